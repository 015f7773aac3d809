"""All that the library allocates is full of NaN at first and guarded: on every device."""

from contextlib import contextmanager
from itertools import product

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.mra.choice import LEVELS
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.checks import check_batch, check_gemm, check_transform
from tests.support.configs import (
    BATCH_CONFIGS,
    CPU_CONFIGS,
    DIRECT_CONFIGS,
    GEMV_CONFIGS,
    INDIRECT_CONFIGS,
)
from tests.support.poisoned import guarded_allocations

pytestmark = pytest.mark.any_runtime

SIZES = [(37, 35, 19), (1, 1, 1), (32, 32, 32), (13, 15, 70)]
CONFIGS = {
    "chosen": None,
    **{
        f"indirect, {x}": INDIRECT_CONFIGS[x]
        for x in ("plain", "slices", "slabs divided", "rows padded")
    },
    **{f"direct, {name}": DIRECT_CONFIGS[name] for name in ("plain", "all at once")},
    "gemv": GEMV_CONFIGS["plain"],
    **{f"cpu, {name}": CPU_CONFIGS[name] for name in ("plain", "B where it lies")},
}


@pytest.fixture
def guarded(context):
    """A function that enters a guarded queue, without workspaces: a product makes its own."""

    @contextmanager
    def enter():
        queue = cl.CommandQueue(context)
        with guarded_allocations(queue):
            yield queue

    return enter


@pytest.mark.one_in(2)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_products(guarded, config, dtype):
    for sizes in SIZES:
        with guarded() as queue:
            whole = {"in_place": True, "bias": True, "alpha": 0.5, "beta": -2.0}
            check_gemm(queue, sizes, dtype, config=config, **whole)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
def test_other_types_by_what_is_chosen(guarded, dtype):
    for sizes, pack in product(SIZES, (False, True)):
        with guarded() as queue:
            try:
                check_gemm(queue, sizes, dtype, pack=pack)
            except pyclgemm.UnsupportedError as error:
                pytest.skip(str(error))


@pytest.mark.parametrize("family", [None, "small", "small_cpu"])
@pytest.mark.parametrize("order", [None, range(4)], ids=["stack", "sequence"])
def test_batches(guarded, family, order):
    config = BATCH_CONFIGS[family] if family else None
    with guarded() as queue:
        check_batch(queue, 4, (5, 6, 7), config=config, order=order)


def test_plans_layers_and_matmul(guarded, rng):
    x, weight, bias = draw(rng, (5, 37), (37, 19), (19,))
    with guarded() as queue:
        there = upload(queue, x, weight)
        planned = pyclgemm.plan(queue, *there)(*there)
        layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")(there[0])
        product = pyclgemm.matmul(x, weight, queue=queue)
    assert_gemm(planned, x, weight)
    assert_gemm(layer, x, weight, bias=bias, activation="relu")
    assert_gemm(product, x, weight)


@pytest.mark.parametrize("level", LEVELS)
def test_transforms(guarded, level):
    with guarded() as queue:
        check_transform(queue, 3, 4, "float32", level)


def test_a_byte_behind_a_buffer_is_seen(queue):
    with (
        pytest.raises(AssertionError, match="byte 3 behind a buffer of 64 bytes"),
        guarded_allocations(queue),
    ):
        array = cl_array.empty(queue, (16,), np.float32)
        assert np.isnan(array.get()).all()
        cl.enqueue_fill_buffer(queue, array.base_data, np.uint8(0), 67, 1)
