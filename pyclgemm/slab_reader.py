"""How work-items copy a slab of A or B, whatever its layout: the templates' view of an operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .config import XgemmConfig
from .element import ElementType
from .errors import ConfigError
from .problem import GemmProblem, MatrixLayout
from .tiling import SlabCopy, slab_copy


@dataclass(frozen=True)
class SlabReader:
    """How a work-item copies its vectors of a slab of A or B; the templates' view of an operand.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    layout : MatrixLayout
        How it lies in memory.
    element : ElementType
        Its elements.
    copy : SlabCopy
        The work-item's share.
    unit : "tile" or "depth"
        The index with unit stride: along the tile (m or n), or k.
    past_registers : bool
        Whether vectors go to local memory without passing through registers.
    edges : "none", "vectors" or "elements"
        Where the matrix may end: nowhere within a slab, between two vectors, or within one.
    """

    name: Literal["a", "b"]
    layout: MatrixLayout
    element: ElementType
    copy: SlabCopy
    unit: Literal["tile", "depth"]
    past_registers: bool
    edges: Literal["none", "vectors", "elements"]

    @property
    def vector(self) -> str:
        """C type of what is read at once."""
        return self.element.vector(self.copy.width)

    @property
    def unit_index(self) -> str:
        """The index with unit stride in memory."""
        return "k" if self.unit == "depth" else self.tile_index

    @property
    def tile_index(self) -> str:
        """The index along the tile, which is also the name of its size."""
        return {"a": "m", "b": "n"}[self.name]

    @property
    def vectors(self) -> int:
        """Vectors of one work-item."""
        return self.copy.unit_vectors * self.copy.other_rows

    @property
    def bytes(self) -> int:
        """Bytes of a vector."""
        return self.copy.width * self.element.stored_bytes

    @property
    def _strides(self) -> tuple[str, str]:
        """Elements from one tile position to the next, and from one depth to the next."""
        row, column = {
            "row": (f"{self.name}_row_stride", ""),
            "column": ("", f"{self.name}_column_stride"),
            "strided": (f"{self.name}_row_stride", f"{self.name}_column_stride"),
        }[self.layout.order]
        return (row, column) if self.name == "a" else (column, row)

    def _distance(self, tile: str, depth: str) -> str:
        """Elements that lie between entries so far apart."""
        terms = []
        for steps, stride in zip((tile, depth), self._strides, strict=True):
            if steps != "0":
                terms.append(f"(long)({steps}) * {stride}" if stride else steps)
        return " + ".join(terms) or "0"

    @property
    def start(self) -> str:
        """Where this work-item's first vector of the slab at `first_depth` lies."""
        unit, other = f"{self.name}_unit", f"{self.name}_other"
        tile, depth = (unit, other) if self.unit == "tile" else (other, unit)
        row, column = f"{self.name}_tile + {tile}", f"first_depth + {depth}"
        if self.name == "b":
            row, column = column, row
        return f"{self.name} + {self.name.upper()}_AT({row}, {column})"

    @property
    def advance(self) -> str:
        """Elements from a slab to the next."""
        return self._distance("0", "KWG")

    def _steps_of_i(self) -> tuple[str, str]:
        """How far vector i lies from vector 0 along the unit-stride index and the other one."""
        copy = self.copy
        unit = other = "0"
        if copy.unit_vectors > 1:
            which = "i" if copy.other_rows == 1 else f"i % {copy.unit_vectors}"
            unit = f"{which} * {copy.unit_items * copy.width}"
        if copy.other_rows > 1:
            which = "i" if copy.unit_vectors == 1 else f"i / {copy.unit_vectors}"
            other = f"{which} * {copy.other_items}"
        return unit, other

    @property
    def unit_of_i(self) -> str:
        """Where vector i starts along the unit-stride index of the slab."""
        step = self._steps_of_i()[0]
        return f"{self.name}_unit" if step == "0" else f"{step} + {self.name}_unit"

    @property
    def other_of_i(self) -> str:
        """Where vector i lies along the other index of the slab."""
        step = self._steps_of_i()[1]
        return f"{self.name}_other" if step == "0" else f"{step} + {self.name}_other"

    @property
    def place(self) -> str:
        """Where the vector at (unit, other) of the slab lies in local memory, within its stage."""
        depth, position = ("other", "unit") if self.unit == "tile" else ("unit", "other")
        return f"{self.name.upper()}_PLACE({depth}, {position})"

    def pointer(self, lane: int = 0) -> str:
        """Where element `lane` of vector i lies."""
        unit, other = self._steps_of_i()
        tile, depth = (unit, other) if self.unit == "tile" else (other, unit)
        terms = [f"{self.name}_from"]
        if (distance := self._distance(tile, depth)) != "0":
            terms.append(distance)
        if lane:
            terms.append(
                self._distance(*((str(lane), "0") if self.unit == "tile" else ("0", str(lane))))
            )
        return " + ".join(terms)

    def lane(self, index: int) -> str:
        """Selector of an element of what was read at once."""
        return self.element.lane(index, self.copy.width)

    def _conjugated(self, value: str, width: int) -> str:
        return value + self.element.conjugation(width) if self.layout.conjugate else value

    def read(self) -> str:
        """Expression for a whole vector."""
        return self._conjugated(self.element.load(self.pointer(), self.copy.width), self.copy.width)

    def read_one(self, lane: int) -> str:
        """Expression for one element of it."""
        return self._conjugated(self.element.load(self.pointer(lane), 1), 1)

    def is_inside(self, lane: int) -> str:
        """Condition under which that element belongs to the matrix."""
        along = f"unit + {lane}" if lane else "unit"
        tile, depth = (along, "other") if self.unit == "tile" else ("other", along)
        return f"({self.name}_tile + {tile} < {self.tile_index} && depth + {depth} < k)"

    def bytes_inside(self) -> str:
        """Bytes of vector i, from its start on, that belong to the matrix."""
        if self.edges == "none":
            return str(self.bytes)
        if self.edges == "vectors":
            return f"({self.is_inside(0)} ? {self.bytes} : 0)"
        position = f"{self.tile_index} - {self.name}_tile - unit"
        count = f"clamp({position}, (extent)0, (extent){self.copy.width})"
        return f"(depth + other < k ? (int){count} * {self.element.stored_bytes} : 0)"


def slab_reader(
    name: Literal["a", "b"],
    problem: GemmProblem,
    element: ElementType,
    tiles: XgemmConfig,
    run: int = 1,
) -> SlabReader:
    """Choose vectors along the operand's unit-stride index, as wide as its alignment allows.

    Parameters
    ----------
    name : "a" or "b"
        The operand.
    problem : GemmProblem
        The product; its layouts are those that the kernel reads.
    element : ElementType
        The elements of both operands.
    tiles : XgemmConfig
        The tiling.
    run : int
        As for `slab_copy`, where k has unit stride.

    Raises
    ------
    ConfigError
        If a slab does not divide among the work-items.
    """
    layout: MatrixLayout = getattr(problem, name)
    along_tile = layout.order == ("column" if name == "a" else "row")
    size, extent, width, items = (
        (problem.m, tiles.MWG, tiles.VWM, tiles.MDIMA)
        if name == "a"
        else (problem.n, tiles.NWG, tiles.VWN, tiles.NDIMB)
    )
    if layout.order == "strided":
        width = 1
    usable = min(width, layout.alignment)
    unit: Literal["tile", "depth"] = "tile" if along_tile else "depth"
    if along_tile and usable == width:
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, width, items)
    elif along_tile:
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, usable)
    else:
        # A slab is k-major in local memory: what lies along k is turned around element by element.
        at_once = 1 if tiles.ASYNC else usable
        copy = slab_copy(tiles.KWG, extent, tiles.work_items, at_once, run=run)
    if copy is None:
        raise ConfigError(f"a slab of {name} does not divide among the work-items of {tiles}")
    edges: Literal["none", "vectors", "elements"] = "elements"
    if problem.k > 0 and size % extent == 0 and problem.k % tiles.KWG == 0:
        edges = "none"
    elif (size if along_tile else problem.k) % copy.width == 0:
        edges = "vectors"
    return SlabReader(name, layout, element, copy, unit, bool(tiles.ASYNC), edges)
