"""Where work-items read a slab: every element once, from its place, and nothing beyond an edge.

The expressions of a `SlabReader` are C; here Python evaluates them for every work-item.
"""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pyclgemm.codegen.element import ElementType
from pyclgemm.errors import ConfigError
from pyclgemm.families.tiled.codegen import SlabReader, slab_reader
from pyclgemm.families.tiled.config import XgemmConfig
from pyclgemm.problem.problem import MatrixLayout
from tests.support.facts import problem

TILES = XgemmConfig(
    MWG=16, NWG=32, KWG=8, MDIMC=4, NDIMC=4, MDIMA=4, NDIMB=8, KWI=2, VWM=4, VWN=4, STAGES=2
)
#: Elements before entry (0, 0), and what separates rows or columns where these are not neighbours.
START, LEADING, SPREAD = 16, 160, 3

LAYOUTS = {
    "row": MatrixLayout("row"),
    "row, aligned": MatrixLayout("row", 16),
    "row, by twos": MatrixLayout("row", 2),
    "column": MatrixLayout("column"),
    "column, aligned": MatrixLayout("column", 16),
    "strided": MatrixLayout("strided"),
}
OPERANDS = pytest.mark.parametrize("name", ["a", "b"])
EVERY_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
#: Of whole tiles and slabs; of whole vectors; of neither.
SIZES = {"whole": (32, 64, 16), "vectors": (36, 68, 20), "odd": (33, 63, 13), "small": (3, 2, 1)}
EVERY_SIZE = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def _reader(
    name: str, layout: MatrixLayout, sizes: tuple[int, int, int], past_registers: bool
) -> SlabReader:
    product = replace(problem(*sizes), **{name: layout})
    tiles = replace(TILES, ASYNC=int(past_registers))
    return slab_reader(name, product, ElementType("float32", "float32"), tiles, run=8)


def _strides(name: str, layout: MatrixLayout) -> dict[str, int]:
    row, column = {"row": (LEADING, 1), "column": (1, LEADING), "strided": (LEADING, SPREAD)}[
        layout.order
    ]
    return {f"{name}_row_stride": row, f"{name}_column_stride": column}


def _evaluate(expression: str, values: dict[str, Any]) -> int:
    """The value of a C expression of integers."""
    expression = re.sub(r"\((?:int|long|extent)\)(?=[\w(])", "", expression)
    expression = expression.replace("&&", "and").replace("/", "//")
    if choice := re.fullmatch(r"\((.*) \? (.*) : (.*)\)", expression):
        condition, first, second = choice.groups()
        expression = f"({first}) if ({condition}) else ({second})"
    return int(eval(expression, {"clamp": lambda x, low, high: max(low, min(x, high))}, values))


class Slab:
    """One slab of an operand, as the work-items of a group see it."""

    def __init__(
        self, reader: SlabReader, sizes: tuple[int, int, int], tile: int, depth: int
    ) -> None:
        self.reader = reader
        self.name = reader.name
        self.sizes = dict(zip("mnk", sizes, strict=True))
        strides = _strides(self.name, reader.layout)
        self.row_stride, self.column_stride = strides.values()
        self.values = {
            **strides, **self.sizes, f"{self.name}_tile": tile, "depth": depth,
            "first_depth": depth, "KWG": TILES.KWG, self.name: START,
            f"{self.name.upper()}_AT": lambda row, column: (
                row * self.row_stride + column * self.column_stride
            ),
        }  # fmt: skip
        self.tile, self.depth = tile, depth

    def address(self, position: int, depth: int) -> int:
        """Where the element at a position along m or n, and at a depth, lies."""
        row, column = (position, depth) if self.name == "a" else (depth, position)
        return START + row * self.row_stride + column * self.column_stride

    def vectors(self) -> list[tuple[dict[str, Any], int, int]]:
        """For each vector the values of names, its first position and its first depth."""
        copy = self.reader.copy
        vectors = []
        for item in range(TILES.work_items):
            own = self.values | {
                f"{self.name}_unit": item % copy.unit_items * copy.width,
                f"{self.name}_other": item // copy.unit_items,
            }
            own[f"{self.name}_from"] = _evaluate(self.reader.start, own)
            for i in range(self.reader.vectors):
                values = own | {"i": i}
                values["unit"] = _evaluate(self.reader.unit_of_i, values)
                values["other"] = _evaluate(self.reader.other_of_i, values)
                unit, other = values["unit"], values["other"]
                position, depth = (unit, other) if self.reader.unit == "tile" else (other, unit)
                vectors.append((values, position, depth))
        return vectors

    def lanes(self, position: int, depth: int) -> list[tuple[int, int]]:
        """Positions and depths of the elements of a vector."""
        along_tile = self.reader.unit == "tile"
        return [
            (position + lane, depth) if along_tile else (position, depth + lane)
            for lane in range(self.reader.copy.width)
        ]

    def is_inside(self, position: int, depth: int) -> bool:
        size = self.sizes[self.reader.tile_index]
        return self.tile + position < size and self.depth + depth < self.sizes["k"]


def _slabs(name: str, layout: MatrixLayout, sizes: Any, past_registers: bool) -> list[Slab]:
    """The first and the last slab of the first and the last tile."""
    extent = TILES.MWG if name == "a" else TILES.NWG
    size = sizes[0] if name == "a" else sizes[1]
    reader = _reader(name, layout, sizes, past_registers)
    return [
        Slab(reader, sizes, tile, depth)
        for tile in {0, (size - 1) // extent * extent}
        for depth in {0, (sizes[2] - 1) // TILES.KWG * TILES.KWG}
    ]


@OPERANDS
@EVERY_LAYOUT
@EVERY_SIZE
@pytest.mark.parametrize("past_registers", [False, True], ids=["registers", "past them"])
def test_every_element_is_copied_once_and_from_its_place(name, layout, sizes, past_registers):
    extent = TILES.MWG if name == "a" else TILES.NWG
    for slab in _slabs(name, layout, sizes, past_registers):
        copied: Counter[tuple[int, int]] = Counter()
        for values, position, depth in slab.vectors():
            for lane, (along, deep) in enumerate(slab.lanes(position, depth)):
                copied[along, deep] += 1
                address = _evaluate(slab.reader.pointer(lane), values)
                assert address == slab.address(slab.tile + along, slab.depth + deep)
        assert set(copied) == {(x, p) for x in range(extent) for p in range(TILES.KWG)}
        assert set(copied.values()) == {1}


@OPERANDS
@EVERY_LAYOUT
def test_the_next_slab_lies_where_the_next_depth_does(name, layout):
    for slab in _slabs(name, layout, (33, 63, 40), past_registers=False):
        step = _evaluate(slab.reader.advance, slab.values)
        assert step == slab.address(5, TILES.KWG) - slab.address(5, 0)


@OPERANDS
@EVERY_LAYOUT
@EVERY_SIZE
def test_valid_bytes_end_at_the_edge(name, layout, sizes):
    for slab in _slabs(name, layout, sizes, past_registers=True):
        for values, position, depth in slab.vectors():
            inside = [slab.is_inside(*lane) for lane in slab.lanes(position, depth)]
            # Those that are inside come first, so that the rest can be zeros.
            assert inside == sorted(inside, reverse=True)
            assert _evaluate(slab.reader.bytes_inside(), values) == 4 * sum(inside)


@OPERANDS
@EVERY_LAYOUT
@EVERY_SIZE
def test_what_is_read_whole_lies_inside(name, layout, sizes):
    for slab in _slabs(name, layout, sizes, past_registers=False):
        reader = slab.reader
        for values, position, depth in slab.vectors():
            inside = [slab.is_inside(*lane) for lane in slab.lanes(position, depth)]
            if reader.edges == "none":
                assert all(inside)
            elif reader.edges == "vectors":
                assert len(set(inside)) == 1, "the edge cuts a vector"
                assert _evaluate(reader.is_inside(0), values) == inside[0]
            else:
                for lane, expected in enumerate(inside):
                    assert _evaluate(reader.is_inside(lane), values) == expected


@pytest.mark.parametrize(
    ("sizes", "layout", "edges"),
    [
        ((32, 64, 16), "row", "none"),
        ((32, 64, 17), "row, aligned", "vectors"),  # rows of 64: four by four
        ((32, 66, 17), "row, aligned", "elements"),
        ((32, 66, 17), "row, by twos", "vectors"),
        ((32, 66, 17), "row", "vectors"),
        ((32, 66, 20), "column, aligned", "vectors"),  # columns of k = 20
        ((32, 66, 18), "column, aligned", "elements"),
        ((32, 66, 18), "strided", "vectors"),
        ((32, 64, 0), "row", "vectors"),
        ((32, 64, 0), "column, aligned", "vectors"),
    ],
)
def test_where_a_row_major_b_may_end(sizes, layout, edges):
    assert _reader("b", LAYOUTS[layout], sizes, past_registers=False).edges == edges


def test_vectors_are_as_wide_as_alignment_allows():
    widths = {
        layout: _reader("b", LAYOUTS[layout], (32, 64, 16), past_registers=False).copy.width
        for layout in LAYOUTS
    }
    assert widths == {
        "row": 1, "row, aligned": 4, "row, by twos": 2, "column": 1, "column, aligned": 4,
        "strided": 1,
    }  # fmt: skip
    turned = _reader("b", LAYOUTS["column, aligned"], (32, 64, 16), past_registers=True)
    assert turned.copy.width == 1


def test_a_slab_that_does_not_divide_names_the_operand():
    odd = replace(TILES, NWG=12, NDIMB=3, VWN=1, NDIMC=4)
    with pytest.raises(ConfigError, match="a slab of b does not divide among the work-items"):
        slab_reader("b", problem(12, 12, 12), ElementType("float32", "float32"), odd)
