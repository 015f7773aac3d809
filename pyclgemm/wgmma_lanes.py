"""Slabs of warpgroup units that lanes copy, 16 bytes at a time: who copies what.

They lie in local memory as TMA would have written them: in rows of one span of the swizzle, whose
pieces of 16 bytes change places from row to row (PTX ISA, "Shared Memory Matrix Layout").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .matrix_slab import COPY_BYTES
from .tensor_map import TensorMap
from .wgmma_units import WARPGROUP


@dataclass(frozen=True)
class LaneCopies:
    """The copies of each lane of a warpgroup that make up a slab, a piece of a row in each.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    along_k : bool
        Whether k is contiguous; else the position along the tile is.
    stored : str
        C type of an element in memory.
    box : TensorMap
        Rows that lie one behind the other.
    boxes : int
        How many are side by side.
    edges : "pieces" or "elements"
        Where rows of the matrix may end: between two pieces, or within one.

    Examples
    --------
    A tile of 128 columns of B, which are contiguous: two boxes of 64 depths, each copied in four
    steps of 16 rows.

    >>> copies = LaneCopies("b", False, "half", TensorMap(element_bytes=2, rows=64), 2, "pieces")
    >>> copies.pieces, copies.width, copies.rows, copies.per_box, copies.count
    (8, 8, 16, 4, 8)
    """

    name: Literal["a", "b"]
    along_k: bool
    stored: str
    box: TensorMap
    boxes: int
    edges: Literal["pieces", "elements"]

    @property
    def pieces(self) -> int:
        """Pieces of a row; a power of two."""
        return self.box.row_bytes // COPY_BYTES

    @property
    def width(self) -> int:
        """Elements of a piece."""
        return COPY_BYTES // self.box.element_bytes

    @property
    def rows(self) -> int:
        """Rows of which the lanes copy all pieces at once."""
        return WARPGROUP // self.pieces

    @property
    def per_box(self) -> int:
        """Copies of a lane in a box."""
        return self.box.rows // self.rows

    @property
    def count(self) -> int:
        """Copies of a lane in a slab."""
        return self.boxes * self.per_box

    @property
    def step(self) -> int:
        """Bytes in local memory from one of them to the next; places change within less."""
        return WARPGROUP * COPY_BYTES

    @property
    def index(self) -> str:
        """The index along the tile, which is also the name of its size."""
        return {"a": "m", "b": "n"}[self.name]

    def at(self, position: str, depth: str) -> str:
        """Where an element lies in memory from the first one on, in C."""
        entry = f"{position}, {depth}" if self.name == "a" else f"{depth}, {position}"
        return f"{self.name.upper()}_AT({entry})"
