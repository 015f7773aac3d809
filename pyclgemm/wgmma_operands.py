"""The operands of warpgroup units: boxes in local memory, and which are packed to be copied so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .element import stored_bytes
from .matrix_configs import WgmmaConfig
from .pack_codegen import PackedForm
from .parts import PART_TYPES, parts_of
from .problem import OPERANDS, GemmProblem
from .tensor_map import ALIGNMENT, ROW_BYTES, TensorMap, boxes_across
from .wgmma_units import WgmmaUnit

#: What a descriptor calls the swizzle of a map's rows of so many bytes.
_SWIZZLES = {64: 2, 128: 1}


@dataclass(frozen=True)
class WgmmaOperand:
    """A slab of A or B in local memory: boxes as they are copied.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    along_k : bool
        Whether k is contiguous; else the position along the tile is.
    map : TensorMap
        Its boxes.
    boxes : int
        How many are in a slab.
    inner, outer, pitch : str
        Extents of the matrix from which they are copied, and elements between its rows, in C.
    """

    name: Literal["a", "b"]
    along_k: bool
    map: TensorMap
    boxes: int
    inner: str
    outer: str
    pitch: str

    @property
    def descriptor(self) -> int:
        """A descriptor without its address."""
        return descriptor(1 if self.along_k else self.map.bytes // 16, self.map.row_bytes)

    @property
    def step(self) -> int:
        """From one instruction's piece to the next one's along k, in units of 16 bytes.

        32 bytes of each row where k is contiguous, else 16 rows.
        """
        return 32 // 16 if self.along_k else 16 * self.map.row_bytes // 16


def descriptor(beside: int = 1, row_bytes: int = ROW_BYTES) -> int:
    """How slabs lie, without an address (PTX ISA, "Matrix Descriptor Format").

    Bits 32-45: distance of groups of 8 rows, in units of 16 bytes. Bits 62-63: the swizzle.

    Parameters
    ----------
    beside : int
        Bits 16-29: distance of boxes side by side along the tile, in units of 16 bytes; where k
        is contiguous there are none.
    row_bytes : int
        Of a row of a box, 64 or 128: the span of the swizzle.

    Examples
    --------
    >>> hex(descriptor()), hex(descriptor(beside=256, row_bytes=64))
    ('0x4000004000010000', '0x8000002001000000')
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
    if as_it_is and layout.in_pieces(ALIGNMENT, stored) and reads_it:
        return None
    split = PART_TYPES[unit.operand] if problem.dtype == "float32" else None
    return PackedForm(along_k=True, split=split, parts=parts_of(terms))


def as_boxes(problem: GemmProblem, unit: WgmmaUnit) -> GemmProblem:
    """The product with its operands as they are when slabs are copied."""
    form_a, form_b = (boxed_form(name, problem, unit) for name in OPERANDS)
    return replace(
        problem,
        a=form_a.layout("a") if form_a else problem.a,
        b=form_b.layout("b") if form_b else problem.b,
    )


def wgmma_operands(
    problem: GemmProblem, config: WgmmaConfig, unit: WgmmaUnit
) -> tuple[WgmmaOperand, WgmmaOperand]:
    """The slabs of A and B of a product, `as_boxes`."""
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
