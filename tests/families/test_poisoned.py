"""All that the library allocates is full of NaN at first and guarded: on every device."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.checks import skip_if_refused
from tests.support.configs import CPU_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, INDIRECT_CONFIGS
from tests.support.poisoned import guarded_allocations
from tests.support.reference import assert_transformed

pytestmark = pytest.mark.any_runtime

SIZES = [(37, 35, 19), (1, 1, 1), (32, 32, 32), (13, 15, 70)]
CONFIGS = {
    "chosen": None,
    **{f"indirect, {x}": INDIRECT_CONFIGS[x] for x in ("plain", "slices", "slabs divided")},
    **{f"direct, {name}": DIRECT_CONFIGS[name] for name in ("plain", "all at once")},
    "gemv": GEMV_CONFIGS["plain"],
    **{f"cpu, {name}": CPU_CONFIGS[name] for name in ("plain", "B where it lies")},
}


@pytest.fixture
def own_queue(context):
    """A queue without workspaces, so that they are made within the test."""
    return cl.CommandQueue(context)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_products(own_queue, config, dtype, rng):
    skip_if_refused(own_queue, config)
    scalars = {"alpha": 0.5, "beta": -2.0}
    for m, n, k in SIZES:
        *hosts, bias = draw(rng, (m, k), (k, n), (m, n), (n,), dtype=dtype)
        with guarded_allocations(own_queue):
            *arrays, offset = upload(own_queue, *hosts, bias)
            options = scalars | {"config": config, "epilogue": pyclgemm.Epilogue(offset)}
            got = pyclgemm.gemm(own_queue, *arrays, **options)
            planned = pyclgemm.plan(own_queue, *arrays, **options)(*arrays)
        for one in (got, planned):
            assert_gemm(one, *hosts, bias=bias, **scalars)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
def test_other_types_by_what_is_chosen(own_queue, dtype, rng):
    for m, n, k in SIZES:
        hosts = draw(rng, (m, k), (k, n), dtype=dtype)
        try:
            with guarded_allocations(own_queue):
                a, b = upload(own_queue, *hosts)
                got = pyclgemm.gemm(own_queue, a, b)
                packed = pyclgemm.gemm(own_queue, a, pyclgemm.pack(own_queue, b))
        except pyclgemm.UnsupportedError as error:
            pytest.skip(str(error))
        for one in (got, packed):
            assert_gemm(one, *hosts, result="int32" if dtype == "int8" else None)


BATCHED = [None, SmallConfig(MWI=2, NWI=4, WGS=16), SmallCpuConfig(MR=3, NR=16, VW=8)]


@pytest.mark.parametrize("config", BATCHED, ids=["chosen", "small", "small_cpu"])
@pytest.mark.parametrize("scattered", [False, True], ids=["stack", "sequence"])
def test_batches(own_queue, config, scattered, rng):
    hosts = draw(rng, (4, 5, 7), (4, 7, 6))
    with guarded_allocations(own_queue):
        arrays = upload(own_queue, *hosts)
        if scattered:
            arrays = [[one[i] for i in range(4)] for one in arrays]
        got = pyclgemm.gemm_batched(own_queue, *arrays, config=config)
    assert_gemm(got, *hosts)


def test_layers_and_matmul(own_queue, rng):
    x, weight, bias = draw(rng, (5, 37), (37, 19), (19,))
    with guarded_allocations(own_queue):
        got = pyclgemm.DenseLayer(own_queue, weight, bias, "relu")(*upload(own_queue, x))
        product = pyclgemm.matmul(x, weight, queue=own_queue)
    assert_gemm(got, x, weight, bias=bias, activation="relu")
    assert_gemm(product, x, weight)


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4", "L5", "L6"])
def test_transforms(own_queue, level, rng):
    hosts = draw(rng, (3, 4, 4, 4), (4, 4))
    with guarded_allocations(own_queue):
        got = pyclgemm.transform3d(own_queue, *upload(own_queue, *hosts), level=level)
    assert_transformed(got.get(), *hosts)


def test_a_byte_behind_a_buffer_is_seen(own_queue):
    with (
        pytest.raises(AssertionError, match="byte 3 behind a buffer of 64 bytes"),
        guarded_allocations(own_queue),
    ):
        array = cl_array.empty(own_queue, (16,), np.float32)
        assert np.isnan(array.get()).all()
        cl.enqueue_fill_buffer(own_queue, array.base_data, np.uint8(0), 67, 1)
