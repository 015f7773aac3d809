"""Bias and activation, fused into the store."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.buffers import COLUMN, ROW, STRIDED, GuardedArray, blank, guarded_matrix
from tests.support.checks import check_gemm
from tests.support.reference import ACTIVATIONS, DTYPES, assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

SIZES = (23, 35, 41)
PRODUCTS = [
    *({"out": out, "bias": bias, "activation": activation} for out in (ROW, COLUMN, STRIDED)
      for bias in (False, True) for activation in (None, *ACTIVATIONS)),
    *({"dtype": dtype, "bias": True} for dtype in DTYPES),
    *({"dtype": dtype, "bias": True, "activation": name}
      for dtype in ("float16", "float64") for name in ("gelu", "silu")),
    {"dtype": "float16", "bias": True, "activation": "relu", "precision": "F16_F16_F16"},
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", PRODUCTS)
def test_products(queue, require, options):
    require(options.get("dtype"), options.get("precision"))
    check_gemm(queue, SIZES, **options)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_the_whole_range_and_beyond(queue, activation):
    one, infinite = np.ones((1, 1), np.float32), [-np.inf, np.inf, np.nan]
    x = np.concatenate([infinite, [0.0, -0.0], *(s * np.logspace(-30, 4, 400) for s in (1, -1))])
    row = x.astype(np.float32)[np.newaxis]
    epilogue = pyclgemm.Epilogue(activation=activation)
    got = pyclgemm.gemm(queue, one, row, epilogue=epilogue)
    assert_close(got[:, 3:], expected_gemm(one, row[:, 3:], activation=activation))
    limits = {"sigmoid": (0, 1), "tanh": (-1, 1)}.get(activation, (0, np.inf))
    # 16 eps for the evaluation, as in the module `reference`.
    np.testing.assert_allclose(got[0, :3], [*limits, np.nan], rtol=0, atol=16 * 2.0**-23)


@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
@pytest.mark.parametrize("stride", [2, -1])
def test_bias_is_read_at_its_stride_and_offset(queue, rng, stride, out):
    m, n, k = SIZES
    a, b = (
        guarded_matrix(queue, random_array(rng, shape, "float32"), ROW)
        for shape in ((m, k), (k, n))
    )
    bias = GuardedArray(queue, random_array(rng, (n,), "float32"), (stride,), lead=71)
    result = guarded_matrix(queue, blank((m, n), "float32"), out)
    epilogue = pyclgemm.Epilogue(bias=bias.array)
    pyclgemm.gemm(queue, a.array, b.array, out=result.array, epilogue=epilogue)
    assert_close(result.get(), expected_gemm(a.initial, b.initial, bias=bias.initial))


@pytest.mark.parametrize("bias", [None, [0, np.nan, 0]], ids=["empty", "nan in its column"])
def test_bias_of_products_of_ones(queue, bias):
    ones = np.ones((3, 3), np.float32)
    epilogue = pyclgemm.Epilogue(None if bias is None else np.array(bias, np.float32))
    expected = [[3, 3, 3] if bias is None else [3, np.nan, 3]] * 3
    np.testing.assert_array_equal(pyclgemm.gemm(queue, ones, ones, epilogue=epilogue), expected)


@pytest.mark.parametrize("bias_on_device", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
def test_bias_lies_where_the_caller_has_it(queue, rng, bias_on_device, on_device):
    a, b, bias = (random_array(rng, shape, "float32") for shape in ((9, 9), (9, 9), (9,)))
    epilogue = pyclgemm.Epilogue(cl_array.to_device(queue, bias) if bias_on_device else bias)
    operands = [cl_array.to_device(queue, x) for x in (a, b)] if on_device else [a, b]
    got = pyclgemm.gemm(queue, *operands, epilogue=epilogue)
    assert_close(got.get() if on_device else got, expected_gemm(a, b, bias=bias))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_complex_activation_is_refused(queue, activation):
    ones = np.ones((3, 3), np.complex64)
    epilogue = pyclgemm.Epilogue(activation=activation)
    refused = (pyclgemm.UnsupportedError, pyclgemm.DtypeError)
    with pytest.raises(refused, match=f"{activation}.*complex"):
        pyclgemm.gemm(queue, ones, ones, epilogue=epilogue)
