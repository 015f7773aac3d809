"""Checks that every way of dividing k among matrix units must pass."""

import numpy as np
import pyopencl.array as cl_array

import pyclgemm
from tests.support.checks import ROW, check_gemm
from tests.support.reference import assert_close, expected_gemm

_IN_PARTS = "TF32_TF32_F32_X3"


def check_epilogue(queue, dtype, precision, out, config):
    """Odd sizes, so that rows end within a piece and the last slab is a part of one."""
    activation = None if dtype == "complex128" else "relu"
    check_gemm(
        queue, (45, 39, 150), dtype, out=out, c=ROW, bias=True, activation=activation, alpha=3,
        beta=-2, precision=precision, config=config,
    )  # fmt: skip


def check_infinities(queue, rng, k, config):
    """Sums that are not finite, near the beginning of k and beyond its middle."""
    a = rng.uniform(0.5, 1, (32, k)).astype(np.float32)
    b = rng.uniform(0.5, 1, (k, 32)).astype(np.float32)
    a[0, 3], a[1, 5], a[2, 7], b[k - 30, 4] = np.inf, -np.inf, np.nan, np.inf
    operands = (cl_array.to_device(queue, x) for x in (a, b))
    got = pyclgemm.gemm(queue, *operands, precision=_IN_PARTS, config=config).get()
    assert_close(got, expected_gemm(a, b, precision=_IN_PARTS))
