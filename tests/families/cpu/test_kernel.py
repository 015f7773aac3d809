"""What only the CPU family does: B read where it lies, by rows or by dot products along k, or
transposed in registers as it is packed."""

from dataclasses import replace

import pytest

from pyclgemm import CpuConfig
from tests.support.checks import COLUMN, ROW, STRIDED, check_gemm, spoil_workspace

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


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
@pytest.mark.parametrize("width", [2, 16])
def test_squares_of_b_are_transposed(queue, require, dtype, width):
    require(dtype)
    width = min(width, 8) if dtype == "complex64" else width
    config = replace(IN_PLACE, PACKB=1, VW=width, NR=2 * width)
    check_gemm(queue, (5, 3 * width + 1, 83), dtype, b=COLUMN, config=config)


WHOLE = {"c": STRIDED, "alpha": 0.5, "beta": -2.0, "bias": True, "activation": "tanh"}
OPTIONS = {
    **{f"dot products, A {a.order}": {"a": a, "b": COLUMN} for a in (ROW, COLUMN, STRIDED)},
    "conjugated A": {"dtype": "complex64", "trans_a": "C", "trans_b": "T"},
    "conjugated B": {"dtype": "complex64", "trans_b": "C"},
    "a packed operand is transposed": {"b": COLUMN, "pack": True, "config": None},
    "activation after dot products": {
        "b": COLUMN, "bias": True, "activation": "tanh", "out": COLUMN,
    },
    "rows of whole tiles": WHOLE | {"out": ROW},
    "rows of whole tiles that are strided": WHOLE | {"out": COLUMN},
    "rows of whole tiles of scalars": WHOLE
    | {"out": STRIDED, "config": replace(IN_PLACE, VW=1, NR=3)},
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_layouts_and_epilogues(queue, options):
    check_gemm(queue, ODD, **{"config": IN_PLACE} | options)
