"""Bias and activation, fused into the store."""

from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from tests.support.buffers import guarded_matrix, guarded_vector
from tests.support.checks import COLUMN, ROW, STRIDED, check_gemm
from tests.support.reference import ACTIVATIONS, DTYPES, assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

SIZES = (23, 35, 41)


@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(queue, activation, bias, out):
    check_gemm(queue, SIZES, out=out, bias=bias, activation=activation)


@pytest.mark.parametrize("out", [ROW, COLUMN, STRIDED], ids=["row", "column", "strided"])
def test_bias_alone(queue, out):
    check_gemm(queue, SIZES, out=out, bias=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_of_every_type(queue, require, dtype):
    require(dtype)
    check_gemm(queue, SIZES, dtype, bias=True)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_activation_of_other_types(queue, require, dtype, activation):
    require(dtype)
    check_gemm(queue, SIZES, dtype, bias=True, activation=activation)


def test_activation_with_half_arithmetic(queue, require):
    require("float16", "F16_F16_F16")
    check_gemm(
        queue, (21, 35, 24), "float16", bias=True, activation="relu", precision="F16_F16_F16"
    )


@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
def test_everything_at_once(queue, out):
    check_gemm(
        queue, SIZES, out=out, in_place=True, alpha=0.5, beta=-2.0, bias=True, activation="gelu"
    )


@given(sizes=st.tuples(*[st.integers(1, 80)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size_with_epilogue(queue, sizes, seed):
    check_gemm(queue, sizes, bias=True, activation="relu", seed=seed)


def _through(queue: Any, values: np.ndarray, activation: str) -> np.ndarray:
    """Each of `values` through the activation: 1 times a row of them."""
    one = np.ones((1, 1), values.dtype)
    epilogue = pyclgemm.Epilogue(activation=activation)
    got = pyclgemm.gemm(queue, one, values[np.newaxis], epilogue=epilogue)
    return got[0]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_the_whole_range(queue, activation):
    x = np.concatenate([[0.0, -0.0], *(s * np.logspace(-30, 4, 400) for s in (1, -1))])
    x = x.astype(np.float32)
    epilogue = {"activation": activation}
    assert_close(
        _through(queue, x, activation)[np.newaxis],
        expected_gemm(np.ones((1, 1), np.float32), x[np.newaxis], **epilogue),
    )


@given(x=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40))
def test_any_value_through_an_activation(queue, x):
    row = np.array([x], np.float32)
    one = np.ones((1, 1), np.float32)
    assert_close(
        _through(queue, row[0], "gelu")[np.newaxis], expected_gemm(one, row, activation="gelu")
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_passes_every_activation(queue, activation):
    got = _through(queue, np.array([1, np.nan, -1], np.float32), activation)
    assert np.isnan(got).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("activation", "at_minus_infinity", "at_infinity"),
    [
        ("relu", 0, np.inf),
        ("sigmoid", 0, 1),
        ("tanh", -1, 1),
        *((name, 0, np.inf) for name in ("gelu", "gelu_tanh", "silu")),
    ],
)
def test_limits_at_infinity(queue, activation, at_minus_infinity, at_infinity):
    got = _through(queue, np.array([-np.inf, np.inf], np.float32), activation)
    # 16 eps for the evaluation, as in the module `reference`.
    np.testing.assert_allclose(got, [at_minus_infinity, at_infinity], rtol=0, atol=16 * 2.0**-23)


@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
@pytest.mark.parametrize("stride", [2, -1])
def test_bias_is_read_at_its_stride_and_offset(queue, rng, stride, out):
    m, n, k = SIZES
    a = guarded_matrix(queue, random_array(rng, (m, k), "float32"), "float32", ROW)
    b = guarded_matrix(queue, random_array(rng, (k, n), "float32"), "float32", ROW)
    bias = guarded_vector(queue, random_array(rng, (n,), "float32"), stride, lead=71)
    result = guarded_matrix(queue, (m, n), "float32", out)
    pyclgemm.gemm(
        queue, a.array, b.array, out=result.array, epilogue=pyclgemm.Epilogue(bias=bias.array)
    )
    assert_close(result.get(), expected_gemm(a.initial, b.initial, bias=bias.initial))


def test_nan_in_bias_stays_in_its_column(queue):
    bias = np.array([0, np.nan, 0], np.float32)
    ones = np.ones((3, 3), np.float32)
    got = pyclgemm.gemm(queue, ones, ones, epilogue=pyclgemm.Epilogue(bias=bias))
    np.testing.assert_array_equal(got, [[3, np.nan, 3]] * 3)


@pytest.mark.parametrize("where", ["numpy", "device"])
def test_bias_lies_where_the_caller_has_it(queue, rng, where):
    a, b = random_array(rng, (9, 9), "float32"), random_array(rng, (9, 9), "float32")
    bias = random_array(rng, (9,), "float32")
    epilogue = pyclgemm.Epilogue(bias=bias if where == "numpy" else cl_array.to_device(queue, bias))
    for on_device in (False, True):
        operands = [cl_array.to_device(queue, x) for x in (a, b)] if on_device else [a, b]
        got = pyclgemm.gemm(queue, *operands, epilogue=epilogue)
        assert_close(got.get() if on_device else got, expected_gemm(a, b, bias=bias))


def test_empty_epilogue_is_none(queue):
    ones = np.ones((3, 3), np.float32)
    got = pyclgemm.gemm(queue, ones, ones, epilogue=pyclgemm.Epilogue())
    np.testing.assert_array_equal(got, 3 * ones)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_complex_activation_is_refused(queue, activation):
    ones = np.ones((3, 3), np.complex64)
    epilogue = pyclgemm.Epilogue(activation=activation)
    with pytest.raises(
        (pyclgemm.UnsupportedError, pyclgemm.DtypeError), match=f"{activation}.*complex"
    ):
        pyclgemm.gemm(queue, ones, ones, epilogue=epilogue)
