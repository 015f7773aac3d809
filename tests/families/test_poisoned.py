"""All that the library allocates is full of NaN at first and guarded: on every device."""

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from tests.support.checks import skip_if_refused
from tests.support.configs import CPU_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, INDIRECT_CONFIGS
from tests.support.poisoned import guarded_allocations
from tests.support.reference import assert_close, assert_transformed, expected_gemm, random_array

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
    for m, n, k in SIZES:
        a, b, c = (random_array(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        bias = random_array(rng, (n,), dtype)
        with guarded_allocations(own_queue):
            arrays = [cl_array.to_device(own_queue, one) for one in (a, b, c)]
            epilogue = pyclgemm.Epilogue(bias=cl_array.to_device(own_queue, bias))
            options = {"alpha": 0.5, "beta": -2.0, "config": config, "epilogue": epilogue}
            got = pyclgemm.gemm(own_queue, *arrays, **options)
            planned = pyclgemm.plan(own_queue, *arrays, **options)(*arrays)
        expected = expected_gemm(a, b, c, alpha=0.5, beta=-2.0, bias=bias)
        assert_close(got.get(), expected)
        assert_close(planned.get(), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
def test_other_types_by_what_is_chosen(own_queue, dtype, rng):
    for m, n, k in SIZES:
        a, b = (random_array(rng, shape, dtype) for shape in ((m, k), (k, n)))
        try:
            with guarded_allocations(own_queue):
                left, right = (cl_array.to_device(own_queue, one) for one in (a, b))
                got = pyclgemm.gemm(own_queue, left, right)
                packed = pyclgemm.gemm(own_queue, left, pyclgemm.pack(own_queue, right))
        except pyclgemm.UnsupportedError as error:
            pytest.skip(str(error))
        expected = expected_gemm(a, b, result="int32" if dtype == "int8" else None)
        assert_close(got.get(), expected)
        assert_close(packed.get(), expected)


BATCHED = [None, SmallConfig(MWI=2, NWI=4, WGS=16), SmallCpuConfig(MR=3, NR=16, VW=8)]


@pytest.mark.parametrize("config", BATCHED, ids=["chosen", "small", "small_cpu"])
@pytest.mark.parametrize("scattered", [False, True], ids=["stack", "sequence"])
def test_batches(own_queue, config, scattered, rng):
    a, b = (random_array(rng, shape, "float32") for shape in ((4, 5, 7), (4, 7, 6)))
    with guarded_allocations(own_queue):
        arrays = [cl_array.to_device(own_queue, one) for one in (a, b)]
        if scattered:
            arrays = [[one[i] for i in range(4)] for one in arrays]
        got = pyclgemm.gemm_batched(own_queue, *arrays, config=config)
    for index in range(4):
        assert_close(got[index].get(), expected_gemm(a[index], b[index]))


def test_layers_and_matmul(own_queue, rng):
    x, weight = (random_array(rng, shape, "float32") for shape in ((5, 37), (37, 19)))
    bias = random_array(rng, (19,), "float32")
    with guarded_allocations(own_queue):
        layer = pyclgemm.DenseLayer(own_queue, weight, bias, "relu")
        got = layer(cl_array.to_device(own_queue, x))
        product = pyclgemm.matmul(x, weight, queue=own_queue)
    assert_close(got.get(), expected_gemm(x, weight, bias=bias, activation="relu"))
    assert_close(product, expected_gemm(x, weight))


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4", "L5", "L6"])
def test_transforms(own_queue, level, rng):
    tensors, matrix = (random_array(rng, shape, "float32") for shape in ((3, 4, 4, 4), (4, 4)))
    with guarded_allocations(own_queue):
        arrays = [cl_array.to_device(own_queue, one) for one in (tensors, matrix)]
        got = pyclgemm.transform3d(own_queue, *arrays, level=level)
    assert_transformed(got.get(), tensors, matrix)


def test_a_byte_behind_a_buffer_is_seen(own_queue):
    with (
        pytest.raises(AssertionError, match="byte 3 behind a buffer of 64 bytes"),
        guarded_allocations(own_queue),
    ):
        array = cl_array.empty(own_queue, (16,), np.float32)
        assert np.isnan(array.get()).all()
        cl.enqueue_fill_buffer(own_queue, array.base_data, np.uint8(0), 67, 1)
