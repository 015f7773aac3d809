"""Operands of matrix units that are read where they lie, whatever their alignment."""

from dataclasses import replace

import pytest

from pyclgemm.analysis.explain import describe_packing
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database
from pyclgemm.selection.overrides import kernel_sources
from pyclgemm.selection.select import select
from pyclgemm.tuning.search import search_space
from tests.support.buffers import Layout
from tests.support.checks import COLUMN, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.configs import MATRIX as CONFIG
from tests.support.families import refusal

IN_PLACE = replace(CONFIG, KWG=32, UNALIGNED=1)


@pytest.mark.parametrize(
    ("dtype", "precision", "orders"),
    [
        ("float16", "F16_F16_F32", ("row", "row")),
        ("float16", "F16_F16_F32", ("column", "column")),
        ("float16", "F16_F16_F16", ("row", "column")),
        ("bfloat16", "BF16_BF16_F32", ("column", "row")),
        ("float32", "TF32_TF32_F32", ("row", "row")),
        ("float32", "TF32_TF32_F32", ("column", "column")),
        ("float64", "F64_F64_F64", ("row", "row")),
        ("int8", "I8_I8_I32", ("row", "column")),
        ("int8", "I8_I8_I32", ("row", "row")),  # B is packed: k must be contiguous
    ],
)
@pytest.mark.parametrize("alignment", [1, 4])
def test_any_alignment(units, queue, dtype, precision, orders, alignment):
    """More than one slab, and rows that end within a vector."""
    a, b = (Layout(order, alignment=alignment) for order in orders)
    check_gemm(queue, (45, 39, 77), dtype, a=a, b=b, precision=precision, config=IN_PLACE)


@pytest.mark.parametrize(
    "changes", [{"STAGES": 1}, {"KWG": 128, "SLICES": 2, "SUBGROUPS_M": 1}], ids=str
)
@pytest.mark.parametrize("alignments", [(1, 2), (8, 1)], ids=str)
def test_alignments_differ(units, queue, changes, alignments):
    """Whole tiles and slabs, and the epilogue behind them."""
    a, b = (Layout(alignment=alignment) for alignment in alignments)
    check_gemm(
        queue, (64, 32, 256), "float16", a=a, b=b, c=ROW, bias=True, activation="relu",
        alpha=3, beta=-2, config=replace(IN_PLACE, **changes),
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [(1, 1, 1), (32, 32, 32), (3, 70, 5), (33, 1, 64)])
def test_sizes(units, queue, sizes):
    for layout in (ROW, COLUMN, ROW_ALIGNED):
        check_gemm(queue, sizes, "float16", a=layout, b=layout, config=IN_PLACE)


def test_what_is_strided_is_packed(units, queue):
    check_gemm(queue, (33, 35, 37), "float16", a=STRIDED, b=COLUMN, config=IN_PLACE)


@pytest.mark.parametrize(
    ("architecture", "packed"), [("sm_90", "nothing"), ("gfx1100", "b (k is not contiguous in it)")]
)
def test_what_lies_as_units_read_it_is_not_packed(architecture, packed):
    product = GemmShape(63, 61, 65).product("float16")
    sources = kernel_sources(product, IN_PLACE, typical_traits(architecture))
    names = [source.name for source in sources]
    assert describe_packing(product.problem, IN_PLACE, names) == packed


@pytest.mark.parametrize(
    ("precision", "is_split"),
    [("TF32_TF32_F32", False), ("TF32_TF32_F32_X3", True), ("BF16_BF16_F32", True)],
)
def test_what_is_split_as_it_is_packed_is_not_read_where_it_lies(precision, is_split):
    h100 = typical_traits("sm_90")
    problem = GemmShape(63, 61, 65).problem(precision=precision)
    assert bool(refusal(IN_PLACE, problem, h100)) == is_split
    if is_split:
        with pytest.raises(
            ConfigError, match=f"UNALIGNED is 1; for {precision} operands are split"
        ):
            select(problem, h100, Database(()), IN_PLACE)
    axes = search_space("matrix", "float32", h100, problem.precision).axes
    assert axes["UNALIGNED"] == ((0,) if is_split else (0, 1))
