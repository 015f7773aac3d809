"""How work-items read a slab of A or B, whatever its layout: the templates' view of an operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .config import XgemmConfig
from .element import ElementType
from .errors import ConfigError
from .problem import MatrixLayout
from .tiling import SlabCopy, slab_copy


@dataclass(frozen=True)
class SlabReader:
    """How a work-item reads its vectors of a slab of A or B; the templates' view of an operand."""

    name: Literal["a", "b"]
    layout: MatrixLayout
    element: ElementType
    copy: SlabCopy
    unit: Literal["tile", "depth"]

    @property
    def vector(self) -> str:
        """C type of what is read at once."""
        return self.element.vector(self.copy.width)

    @property
    def unit_index(self) -> str:
        """The index with unit stride in memory."""
        return "k" if self.unit == "depth" else {"a": "m", "b": "n"}[self.name]

    @property
    def vectors(self) -> int:
        """Vectors of one work-item."""
        return self.copy.unit_vectors * self.copy.other_rows

    @property
    def unit_of_i(self) -> str:
        """Where vector i starts along the unit-stride index of the slab."""
        step = self.copy.unit_items * self.copy.width
        if self.copy.unit_vectors == 1:
            return f"{self.name}_unit"
        which = "i" if self.copy.other_rows == 1 else f"i % {self.copy.unit_vectors}"
        return f"{which} * {step} + {self.name}_unit"

    @property
    def other_of_i(self) -> str:
        """Where vector i lies along the other index of the slab."""
        if self.copy.other_rows == 1:
            return f"{self.name}_other"
        which = "i" if self.copy.unit_vectors == 1 else f"i / {self.copy.unit_vectors}"
        return f"{which} * {self.copy.other_items} + {self.name}_other"

    def lane(self, index: int) -> str:
        """Selector of an element of what was read at once."""
        return self.element.lane(index, self.copy.width)

    def _coordinates(self, lane: int) -> tuple[str, str]:
        """Position along the tile, and depth, of an element."""
        along = f"unit + {lane}" if lane else "unit"
        tile, depth = (along, "other") if self.unit == "tile" else ("other", along)
        return f"{self.name}_tile + {tile}", f"depth + {depth}"

    def _pointer(self, lane: int) -> str:
        tile, depth = self._coordinates(lane)
        row, column = (tile, depth) if self.name == "a" else (depth, tile)
        return f"{self.name} + {self.name.upper()}_AT({row}, {column})"

    def _conjugated(self, value: str, width: int) -> str:
        if not self.layout.conjugate:
            return value
        signs = ", ".join(["1", "-1"] * width)
        return f"{value} * ({self.element.vector(width)})({signs})"

    def read(self) -> str:
        """Expression for a whole vector."""
        load = self.element.load(self._pointer(0), self.copy.width)
        return self._conjugated(load, self.copy.width)

    def read_one(self, lane: int) -> str:
        """Expression for one element of it."""
        return self._conjugated(self.element.load(self._pointer(lane), 1), 1)

    def is_inside(self, lane: int) -> str:
        """Condition under which that element belongs to the matrix."""
        tile, depth = self._coordinates(lane)
        return f"({tile} < {'m' if self.name == 'a' else 'n'} && {depth} < k)"


def slab_reader(
    name: Literal["a", "b"],
    layout: MatrixLayout,
    element: ElementType,
    tiles: XgemmConfig,
    run: int,
) -> SlabReader:
    """Choose vectors along the operand's unit-stride index, as wide as its alignment allows."""
    along_tile = layout.order == ("column" if name == "a" else "row")
    extent, width, items = (
        (tiles.MWG, tiles.VWM, tiles.MDIMA) if name == "a" else (tiles.NWG, tiles.VWN, tiles.NDIMB)
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
        copy = slab_copy(tiles.KWG, extent, tiles.work_items, usable, run=run)
    if copy is None:
        raise ConfigError(f"a slab of {name} does not divide among the work-items of {tiles}")
    return SlabReader(name, layout, element, copy, unit)
