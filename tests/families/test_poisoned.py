"""All that the library allocates is full of NaN at first and guarded: on every device."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.mra.choice import LEVELS
from tests.support import memory_cases
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.checks import check_batch, check_gemm, check_transform
from tests.support.poisoned import guarded_allocations

pytestmark = pytest.mark.any_runtime


@pytest.fixture
def guarded(context):
    """A guarded queue, without workspaces: a product makes its own."""
    queue = cl.CommandQueue(context)
    with guarded_allocations(queue):
        yield queue


@pytest.mark.one_in(4)
@pytest.mark.parametrize("product", memory_cases.PRODUCTS)
def test_products(guarded, product):
    family, name, case = product.split("/")
    memory_cases.multiply(guarded, family, memory_cases.CONFIGS[family][name], case)


@pytest.mark.parametrize("sizes", [(37, 35, 19), (1, 1, 1), (32, 32, 32), (13, 15, 70)])
@pytest.mark.parametrize(
    "dtype", ["float32", "complex64", "float16", "bfloat16", "float64", "int8"]
)
def test_types_by_what_is_chosen(guarded, dtype, sizes):
    try:
        for pack in (False, True):
            check_gemm(guarded, sizes, dtype, pack=pack)
        check_batch(guarded, 4, sizes, dtype)
    except pyclgemm.UnsupportedError as error:
        pytest.skip(str(error))


def test_plans_layers_and_matmul(guarded, rng):
    x, weight, bias = draw(rng, (5, 37), (37, 19), (19,))
    there = upload(guarded, x, weight)
    assert_gemm(pyclgemm.plan(guarded, *there)(*there), x, weight)
    layer = pyclgemm.DenseLayer(guarded, weight, bias, "relu")
    assert_gemm(layer(there[0]), x, weight, bias=bias, activation="relu")
    assert_gemm(pyclgemm.matmul(x, weight, queue=guarded), x, weight)


@pytest.mark.parametrize("level", LEVELS)
def test_transforms(guarded, level):
    check_transform(guarded, 3, 4, "float32", level)


def test_a_byte_behind_a_buffer_is_seen(queue):
    with (
        pytest.raises(AssertionError, match="byte 3 behind a buffer of 64 bytes"),
        guarded_allocations(queue),
    ):
        array = cl_array.empty(queue, (16,), np.float32)
        assert np.isnan(array.get()).all()
        cl.enqueue_fill_buffer(queue, array.base_data, np.uint8(0), 67, 1)
