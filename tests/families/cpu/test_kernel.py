"""What only the CPU family does: B read where it lies, by rows or by dot products along k, or
turned in registers as it is packed."""

from dataclasses import replace

import pytest

from pyclgemm import CpuConfig
from tests.support.buffers import Layout
from tests.support.checks import COLUMN, ROW, check_gemm, spoil_workspace

IN_PLACE = CpuConfig(MR=2, NR=16, KC=32, VW=8, PACKB=0)
BY_ROWS_AND_BY_COLUMNS = pytest.mark.parametrize("b", [ROW, COLUMN], ids=["row", "column"])

# Rows and columns that fill no tile, several blocks of k, and a last one that fills no vector.
ODD = (5, 37, 83)


@BY_ROWS_AND_BY_COLUMNS
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_b_where_it_lies(queue, require, dtype, b):
    require(dtype)
    spoil_workspace(queue, dtype, config=IN_PLACE)
    check_gemm(queue, ODD, dtype, b=b, config=IN_PLACE, c=ROW, alpha=0.5, beta=-2.0, bias=True)


@BY_ROWS_AND_BY_COLUMNS
def test_half_arithmetic(queue, traits, require, b):
    require("float16", "F16_F16_F16")
    if traits.type != "cpu":
        pytest.skip("GPU compilers may lack vectors of halves")
    check_gemm(queue, ODD, "float16", b=b, config=IN_PLACE, precision="F16_F16_F16")


@BY_ROWS_AND_BY_COLUMNS
@pytest.mark.parametrize(
    "changes",
    [
        {"VW": 1, "NR": 3},
        {"VW": 16, "MR": 1, "NR": 48},
        {"VW": 4, "MR": 13, "NR": 4, "MC": 13},
    ],
    ids=["scalars", "one row", "many rows"],
)
def test_shapes_of_tiles(queue, changes, b):
    config = replace(IN_PLACE, **changes)
    for sizes in [ODD, (1, 1, 1), (29, 48, 64)]:
        check_gemm(queue, sizes, b=b, config=config)


@pytest.mark.parametrize("a", [ROW, COLUMN, Layout("strided")], ids=["row", "column", "strided"])
def test_any_layout_of_a_meets_dot_products(queue, a):
    check_gemm(queue, ODD, a=a, b=COLUMN, config=IN_PLACE)


@pytest.mark.parametrize(("trans_a", "trans_b"), [("C", "T"), ("N", "C")])
def test_conjugated_operands(queue, trans_a, trans_b):
    check_gemm(queue, ODD, "complex64", config=IN_PLACE, trans_a=trans_a, trans_b=trans_b)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
@pytest.mark.parametrize("width", [2, 16])
def test_squares_of_b_are_turned(queue, require, dtype, width):
    require(dtype)
    width = min(width, 8) if dtype == "complex64" else width
    config = replace(IN_PLACE, PACKB=1, VW=width, NR=2 * width)
    check_gemm(queue, (5, 3 * width + 1, 83), dtype, b=COLUMN, config=config)


def test_a_packed_operand_is_turned_too(queue):
    check_gemm(queue, ODD, b=COLUMN, pack=True)


def test_activation_after_dot_products(queue):
    check_gemm(queue, ODD, b=COLUMN, config=IN_PLACE, bias=True, activation="tanh", out=COLUMN)
