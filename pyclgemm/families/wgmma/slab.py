"""The operands of warpgroup units: boxes in local memory, and which are packed to be copied so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ...codegen.config import VECTOR_BYTES
from ...codegen.element import stored_bytes
from ...codegen.pack import PackedForm
from ...problem.precision import PART_TYPES, parts_of
from ...problem.problem import OPERANDS, GemmProblem
from .config import WgmmaConfig
from .unit import MAP_ALIGNMENT, ROW_BYTES, WARPGROUP, TensorMap, WgmmaUnit, boxes_across

#: What a descriptor calls the swizzle of a map's rows of so many bytes.
_SWIZZLES = {64: 2, 128: 1}


@dataclass(frozen=True)
class WgmmaOperand:
    """A slab of A or B in local memory: boxes as they are copied."""

    name: Literal["a", "b"]
    along_k: bool  # whether k is contiguous; else the index along the tile is
    map: TensorMap
    boxes: int  # in a slab
    inner: str  # in C: the matrix's extent along contiguous elements, and across them
    outer: str
    pitch: str  # in C: elements between its rows

    @property
    def descriptor(self) -> int:
        """A descriptor without its address."""
        return descriptor(1 if self.along_k else self.map.bytes // 16, self.map.row_bytes)

    @property
    def step(self) -> int:
        """From what an instruction multiplies to what the next one does, in units of 16 bytes.

        32 bytes of each row where k is contiguous, else 16 rows.
        """
        return 32 // 16 if self.along_k else 16 * self.map.row_bytes // 16


def descriptor(beside: int = 1, row_bytes: int = ROW_BYTES) -> int:
    """How slabs lie, without an address (PTX ISA, "Matrix Descriptor Format").

    Bits 32-45: distance of groups of 8 rows, in units of 16 bytes. Bits 62-63: the swizzle.
    """
    return _SWIZZLES[row_bytes] << 62 | 8 * row_bytes // 16 << 32 | beside << 16


def slab_depth(unit: WgmmaUnit) -> int:
    """Elements along k in a slab."""
    return ROW_BYTES // unit.element_bytes


def boxed_form(name: Literal["a", "b"], problem: GemmProblem, unit: WgmmaUnit) -> PackedForm | None:
    """The form in which an operand must be packed first; None where it is copied as it lies."""
    terms = problem.precision.terms
    layout = problem.a if name == "a" else problem.b
    along_k = layout.order == ("row" if name == "a" else "column")
    stored = stored_bytes(problem.dtype)
    as_it_is = terms == 1 and stored == unit.element_bytes
    reads_it = along_k or unit.any_order or (unit.a_through_registers and name == "a")
    if as_it_is and layout.in_pieces(MAP_ALIGNMENT, stored) and reads_it:
        return None
    split = PART_TYPES[unit.operand] if problem.dtype == "float32" else None
    return PackedForm(along_k=True, split=split, terms=parts_of(terms))


def boxed_forms(problem: GemmProblem, unit: WgmmaUnit) -> dict[Literal["a", "b"], PackedForm]:
    """The operands that are packed first, and how they lie then."""
    forms = {name: boxed_form(name, problem, unit) for name in OPERANDS}
    return {name: form for name, form in forms.items() if form}


def wgmma_operands(
    problem: GemmProblem, config: WgmmaConfig, unit: WgmmaUnit
) -> tuple[WgmmaOperand, WgmmaOperand]:
    """The slabs of A and B of a product whose operands are packed."""
    terms = problem.precision.terms
    return (
        _operand("a", problem.a.order == "row", config.MWG, unit, terms),
        _operand("b", problem.b.order == "column", config.NWG, unit, terms),
    )


def _operand(
    name: Literal["a", "b"], along_k: bool, extent: int, unit: WgmmaUnit, terms: int
) -> WgmmaOperand:
    size = {"a": "m", "b": "n"}[name]
    rows = ROW_BYTES // unit.element_bytes
    pitch = f"{name}_{'row' if along_k == (name == 'a') else 'column'}_stride"
    if along_k:
        outer = f"{parts_of(terms)} * {size}" if terms > 1 else size
        box = TensorMap(unit.element_bytes, extent)
        return WgmmaOperand(name, True, box, 1, "k", outer, pitch)
    box = boxes_across(unit.element_bytes, extent, rows)
    return WgmmaOperand(name, False, box, extent // box.elements, size, "k", pitch)


# Where lanes copy slabs and results by 16-byte vectors, these lie in local memory as TMA would have
# written them: in rows of one span of the swizzle, whose vectors change places from row to row (PTX
# ISA, "Shared Memory Matrix Layout").


@dataclass(frozen=True)
class BoxVectors:
    """The 16-byte vectors of a box in local memory, dealt out to the lanes of a warpgroup.

    Examples
    --------
    >>> vectors = BoxVectors(TensorMap(element_bytes=2, rows=64))
    >>> vectors.across, vectors.width, vectors.rows, vectors.per_box
    (8, 8, 16, 4)
    >>> vectors.offset("item")
    '16 * (item ^ (item / 8 & 7))'
    """

    box: TensorMap  # its rows lie one behind the other

    @property
    def across(self) -> int:
        """Vectors of a row; a power of two."""
        return self.box.row_bytes // VECTOR_BYTES

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return VECTOR_BYTES // self.box.element_bytes

    @property
    def rows(self) -> int:
        """Rows whose vectors all lanes together copy at once."""
        return WARPGROUP // self.across

    @property
    def per_box(self) -> int:
        """Vectors of a lane in a box."""
        return self.box.rows // self.rows

    @property
    def step(self) -> int:
        """Bytes in local memory from one of them to the next: whole periods of the swizzle."""
        return WARPGROUP * VECTOR_BYTES

    def offset(self, lane: str) -> str:
        """Bytes before a lane's first vector, in C: vectors of a row change places every 128."""
        return f"{VECTOR_BYTES} * ({lane} ^ ({lane} / 8 & {self.across - 1}))"


@dataclass(frozen=True)
class LaneCopies:
    """How each lane of a warpgroup copies vectors of a slab; what is text is C."""

    operand: WgmmaOperand
    stored: str  # C type of an element in memory
    edges: Literal["vectors", "elements"]  # rows of the matrix end between vectors, or within one

    @property
    def name(self) -> str:
        """The operand's name."""
        return self.operand.name

    @property
    def vectors(self) -> BoxVectors:
        """The vectors of a box."""
        return BoxVectors(self.operand.map)

    @property
    def count(self) -> int:
        """Copies of a lane in a slab."""
        return self.operand.boxes * self.vectors.per_box

    @property
    def index(self) -> str:
        """The index along the tile, which is also the name of its size."""
        return {"a": "m", "b": "n"}[self.name]

    @property
    def first_element(self) -> str:
        """Where a lane's first vector of a slab starts along the matrix's rows."""
        return f"{'depth' if self.operand.along_k else f'{self.name}_from'} + {self.name}_element"

    @property
    def element_of_box(self) -> str:
        """The same of a box."""
        return f"{self.first_element} + box"

    @property
    def first_vector(self) -> str:
        """A pointer to the lane's first vector of a slab."""
        row = f"{self.name}_from" if self.operand.along_k else "depth"
        return f"{self.name} + {self._at(f'{row} + {self.name}_row', self.first_element)}"

    @property
    def vector_in_row(self) -> str:
        """A pointer to the vector that lies `row` rows behind the first one."""
        return f"{self.name}_vector + {self._at('row', '0')}"

    @property
    def vector_in_box(self) -> str:
        """A pointer to the vector that lies `row` rows and `box` elements behind the first one."""
        return f"{self.name}_vector + {self._at('row', 'box')}"

    @property
    def vector_in_slab(self) -> str:
        """Where vector i goes in local memory."""
        return f"{self.name}_slab + i * {self.vectors.step}"

    @property
    def bytes_inside(self) -> str:
        """Bytes of a vector that belong to the matrix."""
        inside = "&& {0}_inside ? 16" if self.edges == "vectors" else "? {0}_inside"
        return f"row < {self.name}_rows {inside.format(self.name)} : 0"

    def _at(self, row: str, element: str) -> str:
        """The offset in memory of an `element` of a row that is contiguous."""
        position, depth = (row, element) if self.operand.along_k else (element, row)
        entry = (position, depth) if self.name == "a" else (depth, position)
        return f"{self.name.upper()}_AT({', '.join(entry)})"


def lane_copies(
    operand: WgmmaOperand, problem: GemmProblem, unit: WgmmaUnit, packed: Collection[str]
) -> LaneCopies:
    """How lanes copy an operand; one that was packed is padded with zeros to whole vectors."""
    end = problem.k if operand.along_k else {"a": problem.m, "b": problem.n}[operand.name]
    whole = operand.name in packed or end * unit.element_bytes % VECTOR_BYTES == 0
    return LaneCopies(operand, unit.stored, edges="vectors" if whole else "elements")
