"""Slices of k within a work-group of matrix units, whose sums meet in local memory."""

from dataclasses import replace

import pytest

from tests.support.checks import (
    ALIGNED,
    ROW_ALIGNED,
    STRIDED,
    check_epilogue,
    check_gemm,
    check_infinities,
)
from tests.support.configs import MATRIX as CONFIG

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
def test_slices(units, queue, dtype, precision, changes, out):
    check_epilogue(queue, dtype, precision, out, replace(SLICED, **changes))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (32, 32, 64), (5, 70, 0)])
def test_sizes_of_slices(units, queue, sizes):
    config = replace(SLICED, FRAGMENTS=2, SLICES=2)
    for layout in ALIGNED:
        check_gemm(queue, sizes, "float16", a=layout, b=layout, config=config)


def test_infinities_in_slices(units, queue, rng):
    check_infinities(queue, rng, 70, replace(SLICED, SLICES=2, STAGES=3))
