"""Packed operands with padding at the end of their rows: the indirect path's PADLD."""

from dataclasses import replace
from typing import Any

import pytest

from pyclgemm.codegen.launch import Schedule
from pyclgemm.families.registry import make_schedule
from pyclgemm.problem.problem import PackedLayout
from tests.support.checks import (
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_gemm,
    spoil_workspace,
)
from tests.support.configs import INDIRECT, TELLING_SIZES
from tests.support.facts import gpu, product_of

pytestmark = pytest.mark.any_runtime

PADDED = replace(INDIRECT, PADLD=10)
CONFIGS = {
    "padded": PADDED,
    "by a vector": replace(PADDED, PADLD=2),
    "by more than a tile": replace(PADDED, PADLD=40),
    "caches only": replace(PADDED, SA=0, SB=0),
    "ahead": replace(PADDED, STAGES=2, FRAGMENTS=2),
    "wide vectors": replace(PADDED, VWM=4, VWN=4, NDIMB=4, KWG=16, PADLD=12),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_configuration(queue, config):
    # The padding is NaN then: a read of it shows.
    spoil_workspace(queue, config=config)
    for sizes in TELLING_SIZES:
        check_gemm(queue, sizes, config=config)


@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("trans_a", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_every_layout_and_type(queue, require, dtype, trans_a, trans_b):
    require(dtype)
    spoil_workspace(queue, dtype, config=PADDED)
    for sizes in [(37, 41, 19), (64, 32, 24)]:
        check_gemm(queue, sizes, dtype, config=PADDED, trans_a=trans_a, trans_b=trans_b)


def test_conjugates_and_strides(queue, require):
    require("complex64")
    options: dict[str, Any] = {"trans_a": "C", "trans_b": "C", "config": PADDED}
    check_gemm(queue, (37, 41, 19), "complex64", a=STRIDED, b=STRIDED, **options)


@pytest.mark.parametrize(
    ("a", "b"), [(COLUMN_ALIGNED, ROW), (ROW, ROW_ALIGNED), (COLUMN_ALIGNED, ROW_ALIGNED)],
    ids=["a", "b", "both"],
)  # fmt: skip
def test_beside_an_operand_that_is_read_where_it_lies(queue, a, b):
    check_gemm(queue, (64, 32, 24), config=PADDED, a=a, b=b)


@pytest.mark.parametrize("sizes", [(37, 64, 32), (37, 41, 19)])
def test_an_operand_that_was_packed_ahead_keeps_its_layout(queue, sizes):
    for width in (64, 16):  # whole tiles, and less: that one is packed once more
        layout = PackedLayout("padded", depth_block=32, width=width)
        check_gemm(queue, sizes, config=PADDED, pack=layout)


# The launches, without a device


def _schedule(config: Any, sizes: tuple[int, int, int] = (37, 41, 19), **options: Any) -> Schedule:
    return make_schedule(product_of(*sizes, **options), config, gpu())


def test_leading_dimensions_and_workspaces():
    pack_a, pack_b, gemm = _schedule(PADDED).launches
    # 37 x 19 and 19 x 41 in tiles of 32 and slabs of 8.
    assert _schedule(PADDED).workspaces == {
        "packed_a": 4 * (64 + 10) * 24, "packed_b": 4 * (64 + 10) * 24,
    }  # fmt: skip
    assert (gemm.values["a_column_stride"], gemm.values["b_row_stride"]) == (74, 74)
    for pack in (pack_a, pack_b):
        assert "(long)depth * (padded_positions + 10) + position]" in pack.source.text
        # What is written has no padding.
        assert (pack.values["padded_positions"], pack.values["padded_k"]) == (64, 24)


def test_sizes_of_elements_count():
    for dtype, size in [("float16", 2), ("float64", 8), ("complex128", 16)]:
        assert _schedule(PADDED, dtype=dtype).workspaces["packed_a"] == size * 74 * 24


def test_the_kernel_that_multiplies_is_the_same():
    padded, plain = (_schedule(config).launches[-1].source for config in (PADDED, INDIRECT))
    assert padded.text.splitlines()[2:] == plain.text.splitlines()[2:]
    assert "PADLD=10" in padded.text.splitlines()[1]


def test_what_is_not_packed_has_no_padding():
    # Whole tiles and slabs: of a row-major product only A is packed, of T x N neither.
    first, last = _schedule(PADDED, (64, 64, 64)).launches
    assert first.source.name == "pack_a"
    assert (last.values["a_column_stride"], last.values["b_row_stride"]) == (74, 64)
    (only,) = _schedule(PADDED, (64, 64, 64), trans_a="T").launches
    assert (only.values["a_column_stride"], only.values["b_row_stride"]) == (64, 64)
