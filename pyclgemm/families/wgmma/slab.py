"""The operands of warpgroup units: boxes in local memory, and which are packed to be copied so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ...codegen.config import VECTOR_BYTES
from ...codegen.element import stored_bytes
from ...codegen.pack import PackedForm
from ...problem.precision import PART_TYPES, parts_of
from ...problem.problem import OPERANDS, GemmProblem, OperandName
from .config import WgmmaConfig
from .unit import MAP_ALIGNMENT, ROW_BYTES, WARPGROUP, TensorMap, WgmmaUnit, boxes_across

#: What a descriptor calls the swizzle, by the bytes of a map's rows.
_SWIZZLES = {64: 2, 128: 1}


@dataclass
class WgmmaOperand:
    """A slab of A or B in local memory: boxes as they are copied."""

    name: OperandName
    along_k: bool  # whether k is contiguous; else the index along the tile is
    map: TensorMap
    boxes: int  # in a slab
    inner: str  # in C: the matrix's extent along contiguous elements, and across them
    outer: str
    pitch: str  # in C: elements between its rows

    def __post_init__(self) -> None:
        # A descriptor without its address.
        self.descriptor = descriptor(
            1 if self.along_k else self.map.bytes // 16, self.map.row_bytes
        )
        # From what an instruction multiplies to what the next one does, in units of 16 bytes.
        self.step = 32 // 16 if self.along_k else 16 * self.map.row_bytes // 16


def descriptor(beside: int = 1, row_bytes: int = ROW_BYTES) -> int:
    """How slabs lie, without an address (PTX ISA, "Matrix Descriptor Format").

    Bits 32-45: distance of groups of 8 rows, in units of 16 bytes. Bits 62-63: the swizzle.
    """
    return _SWIZZLES[row_bytes] << 62 | 8 * row_bytes // 16 << 32 | beside << 16


def slab_depth(unit: WgmmaUnit) -> int:
    """Elements along k in a slab."""
    return ROW_BYTES // unit.element_bytes


def boxed_forms(problem: GemmProblem, unit: WgmmaUnit) -> dict[OperandName, PackedForm]:
    """The operands that are packed first, and how they lie then; others are copied as they lie."""
    terms, stored = problem.precision.terms, stored_bytes(problem.dtype)
    split = PART_TYPES[unit.operand] if problem.dtype == "float32" else None
    form = PackedForm(along_k=True, split=split, terms=parts_of(terms))

    def is_copied(name: OperandName) -> bool:
        layout = problem.operand(name)
        along_k = layout.order == ("row" if name == "a" else "column")
        as_it_is = terms == 1 and stored == unit.element_bytes
        reads_it = along_k or unit.any_order or (unit.a_through_registers and name == "a")
        return as_it_is and layout.in_pieces(MAP_ALIGNMENT, stored) and reads_it

    return {name: form for name in OPERANDS if not is_copied(name)}


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
    name: OperandName, along_k: bool, extent: int, unit: WgmmaUnit, terms: int
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


@dataclass
class BoxVectors:
    """The 16-byte vectors of a box in local memory, dealt out to the lanes of a warpgroup."""

    box: TensorMap  # its rows lie one behind the other

    def __post_init__(self) -> None:
        self.across = self.box.row_bytes // VECTOR_BYTES  # vectors of a row; a power of two
        self.width = VECTOR_BYTES // self.box.element_bytes  # elements of a vector
        self.rows = WARPGROUP // self.across  # rows whose vectors all lanes together copy at once
        self.per_box = self.box.rows // self.rows  # vectors of a lane in a box
        # Bytes in local memory from one of them to the next: whole periods of the swizzle.
        self.step = WARPGROUP * VECTOR_BYTES

    def offset(self, lane: str) -> str:
        """Bytes before a lane's first vector, in C: vectors of a row change places every 128."""
        return f"{VECTOR_BYTES} * ({lane} ^ ({lane} / 8 & {self.across - 1}))"


@dataclass
class LaneCopies:
    """How each lane of a warpgroup copies vectors of a slab; what is text is C."""

    operand: WgmmaOperand
    stored: str  # C type of an element in memory
    edges: Literal["vectors", "elements"]  # rows of the matrix end between vectors, or within one

    def __post_init__(self) -> None:
        name, along_k = self.operand.name, self.operand.along_k
        self.name = name
        self.index = {"a": "m", "b": "n"}[name]  # along the tile, also the name of its size
        self.vectors = BoxVectors(self.operand.map)
        self.count = self.operand.boxes * self.vectors.per_box  # copies of a lane in a slab
        # Where a lane's first vector of a slab starts along the matrix's rows; and of a box.
        across, along = (f"{name}_from", "depth") if along_k else ("depth", f"{name}_from")
        self.first_element = f"{along} + {name}_element"
        self.element_of_box = f"{self.first_element} + box"
        # Pointers to that vector; to those `row` rows, and `box` elements, behind it.
        self.first_vector = f"{name} + {self._at(f'{across} + {name}_row', self.first_element)}"
        self.vector_in_row = f"{name}_vector + {self._at('row', '0')}"
        self.vector_in_box = f"{name}_vector + {self._at('row', 'box')}"
        # Where vector i goes in local memory, and its bytes that belong to the matrix.
        self.vector_in_slab = f"{name}_slab + i * {self.vectors.step}"
        inside = f"&& {name}_inside ? 16" if self.edges == "vectors" else f"? {name}_inside"
        self.bytes_inside = f"row < {name}_rows {inside} : 0"

    def _at(self, row: str, element: str) -> str:
        """The offset in memory of an `element` of a row that is contiguous."""
        position, depth = (row, element) if self.operand.along_k else (element, row)
        entry = (position, depth) if self.name == "a" else (depth, position)
        return f"{self.name.upper()}_AT({', '.join(entry)})"


def lane_copies(
    operand: WgmmaOperand, problem: GemmProblem, unit: WgmmaUnit, packed: Collection[str]
) -> LaneCopies:
    """How lanes copy an operand; one that was packed is padded with zeros to whole vectors."""
    end = problem.k if operand.along_k else problem.positions(operand.name)
    whole = operand.name in packed or end * unit.element_bytes % VECTOR_BYTES == 0
    return LaneCopies(operand, unit.stored, edges="vectors" if whole else "elements")
