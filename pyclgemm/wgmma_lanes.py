"""Slabs and results of warpgroup units that lanes copy, 16 bytes at a time: who copies what.

They lie in local memory as TMA would have written them: in rows of one span of the swizzle, whose
pieces of 16 bytes change places from row to row (PTX ISA, "Shared Memory Matrix Layout").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .matrix_slab import COPY_BYTES
from .problem import GemmProblem
from .tensor_map import TensorMap
from .wgmma_operands import WgmmaOperand
from .wgmma_units import WARPGROUP, WgmmaUnit


@dataclass(frozen=True)
class BoxPieces:
    """The pieces of 16 bytes of a box in local memory, dealt out to the lanes of a warpgroup.

    Attributes
    ----------
    box : TensorMap
        Rows that lie one behind the other.

    Examples
    --------
    >>> pieces = BoxPieces(TensorMap(element_bytes=2, rows=64))
    >>> pieces.across, pieces.width, pieces.rows, pieces.per_box
    (8, 8, 16, 4)
    >>> pieces.place("item")
    '16 * (item ^ (item / 8 & 7))'
    """

    box: TensorMap

    @property
    def across(self) -> int:
        """Pieces of a row; a power of two."""
        return self.box.row_bytes // COPY_BYTES

    @property
    def width(self) -> int:
        """Elements of a piece."""
        return COPY_BYTES // self.box.element_bytes

    @property
    def rows(self) -> int:
        """Rows of which the lanes have all pieces at once."""
        return WARPGROUP // self.across

    @property
    def per_box(self) -> int:
        """Pieces of a lane in a box."""
        return self.box.rows // self.rows

    @property
    def step(self) -> int:
        """Bytes in local memory from one of them to the next; places change within less."""
        return WARPGROUP * COPY_BYTES

    def place(self, lane: str) -> str:
        """Where a lane's first piece lies, in C: pieces of a row change places every 128 bytes."""
        return f"{COPY_BYTES} * ({lane} ^ ({lane} / 8 & {self.across - 1}))"


@dataclass(frozen=True)
class LaneCopies:
    """The copies of each lane of a warpgroup that make up a slab, a piece of a row in each.

    Attributes
    ----------
    operand : WgmmaOperand
        Of which slabs.
    stored : str
        C type of an element in memory.
    edges : "pieces" or "elements"
        Where rows of the matrix may end: between two pieces, or within one.

    Examples
    --------
    A tile of 128 columns of B, which are contiguous: two boxes of 64 depths, each copied in four
    steps of 16 rows.

    >>> box = TensorMap(element_bytes=2, rows=64)
    >>> operand = WgmmaOperand("b", False, box, 2, "n", "k", "b_row_stride")
    >>> copies = LaneCopies(operand, "half", "pieces")
    >>> copies.pieces.per_box, copies.count
    (4, 8)
    """

    operand: WgmmaOperand
    stored: str
    edges: Literal["pieces", "elements"]

    @property
    def pieces(self) -> BoxPieces:
        """Those of a box."""
        return BoxPieces(self.operand.map)

    @property
    def count(self) -> int:
        """Copies of a lane in a slab."""
        return self.operand.boxes * self.pieces.per_box

    @property
    def index(self) -> str:
        """The index along the tile, which is also the name of its size."""
        return {"a": "m", "b": "n"}[self.operand.name]

    def at(self, position: str, depth: str) -> str:
        """Where an element lies in memory from the first one on, in C."""
        name = self.operand.name
        entry = f"{position}, {depth}" if name == "a" else f"{depth}, {position}"
        return f"{name.upper()}_AT({entry})"


def lane_copies(
    operand: WgmmaOperand, problem: GemmProblem, unit: WgmmaUnit, packed: tuple[str, ...]
) -> LaneCopies:
    """How lanes copy an operand; one that was packed is padded with zeros to whole pieces.

    Parameters
    ----------
    operand : WgmmaOperand
        Of which slabs.
    problem : GemmProblem
        The product, `as_boxes`.
    unit : WgmmaUnit
        What multiplies.
    packed : tuple of str
        The operands that were packed.
    """
    end = problem.k if operand.along_k else {"a": problem.m, "b": problem.n}[operand.name]
    whole = operand.name in packed or end * unit.element_bytes % COPY_BYTES == 0
    return LaneCopies(operand, unit.stored, edges="pieces" if whole else "elements")
