"""Slices of k within a work-group of matrix units, whose sums meet in local memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest
from buffers import Layout
from checks import ROW, ROW_ALIGNED, STRIDED, check_gemm
from reference import assert_close, expected_gemm
from test_matrix_units import ALIGNED, CONFIG

import pyclgemm

SLICED = replace(CONFIG, KWG=64, SLICES=4, SUBGROUPS_M=1, STAGES=6)


@pytest.mark.parametrize(
    ("dtype", "precision", "changes"),
    [
        ("float16", "F16_F16_F32", {}),
        ("float16", "F16_F16_F16", {"SLICES": 2, "FRAGMENTS": 2}),
        ("bfloat16", "BF16_BF16_F32", {"MWG": 16, "NWG": 64, "SUBGROUPS_N": 2, "SLICES": 2}),
        ("float64", "F64_F64_F64", {"SLICES": 2, "STAGES": 4}),
        ("complex128", "F64_F64_F64", {"SLICES": 2, "STAGES": 3, "FRAGMENTS": 2}),
        ("int8", "I8_I8_I32", {"KWG": 128, "FRAGMENTS": 2, "SLICES": 2}),
        ("float32", "TF32_TF32_F32_X3", {"SLICES": 2, "FRAGMENTS": 2, "STAGES": 3}),
    ],
)
@pytest.mark.parametrize("out", [ROW_ALIGNED, STRIDED], ids=["pieces", "elements"])
def test_slices(
    units: None, queue: Any, dtype: str, precision: str, changes: Any, out: Layout
) -> None:
    """Odd sizes, so that rows end within a piece, and more than one slab."""
    activation = None if dtype == "complex128" else "relu"
    check_gemm(
        queue, (45, 39, 150), dtype, out=out, c=ROW, bias=True, activation=activation, alpha=3,
        beta=-2, precision=precision, config=replace(SLICED, **changes),
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [(1, 1, 1), (32, 32, 64), (5, 70, 0)])
def test_sizes_of_slices(units: None, queue: Any, sizes: Any) -> None:
    config = replace(SLICED, FRAGMENTS=2, SLICES=2)
    for layout in ALIGNED:
        check_gemm(queue, sizes, "float16", a=layout, b=layout, config=config)


def test_infinities_in_slices(units: None, queue: Any, rng: Any) -> None:
    a = rng.uniform(0.5, 1, (32, 70)).astype(np.float32)
    b = rng.uniform(0.5, 1, (70, 32)).astype(np.float32)
    a[0, 3], a[1, 5], a[2, 7], b[40, 4] = np.inf, -np.inf, np.nan, np.inf
    config = replace(SLICED, SLICES=2, STAGES=3)
    got = pyclgemm.gemm(
        queue, *(cl_array.to_device(queue, x) for x in (a, b)), precision="TF32_TF32_F32_X3",
        config=config,
    ).get()  # fmt: skip
    assert_close(got, expected_gemm(a, b, precision="TF32_TF32_F32_X3"))
