"""Products by matrix units of hard numbers, held to the bound that each precision documents."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.configs import FLOAT32_PRECISIONS as FLOAT32
from tests.support.configs import MATRIX as CONFIG
from tests.support.configs import SPLIT_PRECISIONS as SPLIT
from tests.support.reference import assert_close, expected_gemm

# All operands lie alike, so that each precision's kernel is built once.


def product(queue: Any, a: Any, b: Any, precision: str) -> Any:
    """The product of NumPy arrays, computed on the device."""
    device_a, device_b = (cl_array.to_device(queue, x) for x in (a, b))
    return pyclgemm.gemm(queue, device_a, device_b, precision=precision, config=CONFIG).get()


@pytest.mark.parametrize("precision", FLOAT32)
@pytest.mark.parametrize("kind", ["badly scaled", "cancelling", "denormal", "near the largest"])
def test_error_bound(units, queue, rng, precision, kind):
    a, b = rng.uniform(-1, 1, (32, 64)), rng.uniform(-1, 1, (64, 32))
    if kind == "badly scaled":
        a *= 2.0 ** rng.integers(-40, 40, a.shape)
        b *= 2.0 ** rng.integers(-40, 40, b.shape)
    elif kind == "cancelling":
        a[:, 32:], b[32:] = a[:, :32], -b[:32]
    elif kind == "denormal":
        a *= 2.0**-120
        a[:, ::2] *= 2.0**-20
    else:
        a[:, 0], b[0] = 3.4e38, rng.choice([-1.0, 1.0], 32)
        a[:, 1:] *= 1e30
    a, b = a.astype(np.float32), b.astype(np.float32)
    expected = expected_gemm(a, b, precision=precision)
    # A denormal number has fewer bits than a part: what a single part leaves is no part of it.
    lost = 0.0 if precision in SPLIT else 2.0**-133 * np.abs(b.astype(float)).sum(0)
    expected = replace(expected, bound=expected.bound + lost)
    assert_close(product(queue, a, b, precision), expected)


@pytest.mark.parametrize("precision", FLOAT32)
def test_infinities_and_nan(units, queue, rng, precision):
    a = rng.uniform(0.5, 1, (32, 40)).astype(np.float32)
    b = rng.uniform(0.5, 1, (40, 32)).astype(np.float32)
    a[0, 3], a[1, 5], a[2, 7] = np.inf, -np.inf, np.nan
    a[3, 0], a[3, 1] = np.inf, -np.inf
    a[4, 2] = np.uint32(0x7F800001).view(np.float32)  # a NaN by bits that no part keeps
    b[9, 4], b[3, 6], b[:, 8] = np.inf, 0, 1.0
    assert_close(product(queue, a, b, precision), expected_gemm(a, b, precision=precision))


@pytest.mark.parametrize("precision", SPLIT)
def test_leading_parts_that_overflow(units, queue, precision):
    """Both leading parts of bfloat16 are rounded up, and their product is infinite."""
    a, b = np.zeros((32, 64), np.float32), np.zeros((64, 32), np.float32)
    a[5, 9], b[9, 7] = 3.383e38, 1.0040
    assert_close(product(queue, a, b, precision), expected_gemm(a, b, precision=precision))


def test_split_products_are_as_good_as_float32(units, queue, rng):
    """Not only within the bound, which a wrong pair of parts may be: near the sum's own error."""
    a = rng.uniform(-1, 1, (64, 96)).astype(np.float32)
    b = rng.uniform(-1, 1, (96, 64)).astype(np.float32)
    exact = a.astype(float) @ b.astype(float)
    scale = np.abs(a).astype(float) @ np.abs(b).astype(float)
    errors = {
        name: np.abs(product(queue, a, b, name) - exact).max() / scale.max() for name in FLOAT32
    }
    assert errors["BF16_BF16_F32"] < 2**-8 < 2**8 * errors["TF32_TF32_F32"] < 1
    for name in ("TF32_TF32_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"):
        assert errors[name] < 2**-21
    assert 2**-24 < errors["BF16_BF16_F32_X3"] < 2**-15
