"""The ``wgmma`` instruction (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

A warpgroup is four sub-groups of 32 work-items. It multiplies a 64 x k fragment of A by a k x n
fragment of B, both in local memory, and adds to a 64 x n fragment of sums in registers. Element
``4 j + 2 h + i`` of a work-item is row ``16 (item div 32) + 8 h + (item mod 32) div 4``, column
``8 j + 2 (item mod 4) + i``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.source import divided
from ...device.traits import DeviceTraits
from ...errors import UnsupportedError
from ...problem.precision import Precision
from ...problem.problem import MatrixLayout, OperandName

#: Work-items of a warpgroup.
WARPGROUP = 128

#: Rows of a fragment.
FRAGMENT_ROWS = 64

#: Bytes along k that an instruction multiplies, and the most bytes of a row of a slab or a box: the
#: widest span of a swizzle.
STEP_BYTES = 32
ROW_BYTES = 128


@dataclass(unsafe_hash=True)
class WgmmaUnit:
    """The instruction for a type of operands."""

    operand: str  # the type that it multiplies
    types: str  # types of the result, of A and of B, in PTX
    element_bytes: int  # of an element in local memory
    stored: str  # C type of an element in global memory
    #: Whether k may be strided in local memory. Otherwise k must be contiguous, except for an A
    #: that goes through registers.
    any_order: bool = False
    #: Whether an A whose k is strided goes through registers of 4 bytes: element ``i`` of
    #: a work-item is row ``16 (item div 32) + 8 (i mod 2) + (item mod 32) div 4``, depth
    #: ``4 (i div 2) + item mod 4``.
    a_through_registers: bool = False

    def __post_init__(self) -> None:
        self.k = STEP_BYTES // self.element_bytes  # elements along k
        self.slab_depth = ROW_BYTES // self.element_bytes
        # The type of the sums: whether it is an integer, its NumPy name, and the letter of its
        # registers in inline PTX.
        self.is_integer = self.types.startswith("s32")
        self.sums, self.constraint = ("int32", "r") if self.is_integer else ("float32", "f")

    def reads(self, name: OperandName, layout: MatrixLayout) -> bool:
        """Whether a slab of an operand may lie in local memory as it does in the matrix."""
        through_registers = self.a_through_registers and name == "a"
        return self.any_order or through_registers or layout.is_along_k(name)

    def modifiers(self, turned_a: bool, turned_b: bool) -> str:
        """The operands after the descriptors: signs, and which matrices are transposed."""
        if self.is_integer:
            return ""
        return f", 1, 1, {turned_a:d}, {turned_b:d}" if self.any_order else ", 1, 1"

    def instruction(self, n: int) -> str:
        """The instruction's name for n columns."""
        return f"wgmma.mma_async.sync.aligned.m{FRAGMENT_ROWS}n{n}k{self.k}.{self.types}"


#: The units by the type that they multiply.
UNITS = {
    unit.operand: unit
    for unit in (
        WgmmaUnit("float16", "f32.f16.f16", 2, "half", any_order=True),
        WgmmaUnit("bfloat16", "f32.bf16.bf16", 2, "ushort", any_order=True),
        WgmmaUnit("tf32", "f32.tf32.tf32", 4, "float", a_through_registers=True),
        WgmmaUnit("int8", "s32.s8.s8", 1, "char"),
    )
}


def wgmma_unit(precision: Precision, traits: DeviceTraits) -> WgmmaUnit | None:
    """The device's unit for a precision; None if there is none."""
    if precision.multiplied is None or not traits.wgmma:
        return None
    unit = UNITS.get(precision.multiplied)
    return unit if unit and unit.sums == precision.arithmetic else None


def required_wgmma_unit(precision: Precision, traits: DeviceTraits) -> WgmmaUnit:
    """The device's unit for a precision; `UnsupportedError` if there is none."""
    unit = wgmma_unit(precision, traits)
    if unit is None:
        why = f" ({traits.wgmma_refusal})" if traits.wgmma_refusal else ""
        raise UnsupportedError(
            f"precision is {precision.name}, for which {traits.name!r} has no warpgroup "
            f"units{why}; those of NVIDIA's compute capability 9.0 multiply "
            f"{', '.join(UNITS)}"
        )
    return unit


# Tensor maps describe matrices to NVIDIA's bulk copies of tiles (TMA). A map is 128 bytes, which
# ``cuTensorMapEncodeTiled`` fills (CUDA Driver API, "Tensor Map Object Management"). OpenCL has no
# such function, so kernels write their own maps. These are the words that do not depend on buffers.
# The bits were found in maps that the driver made for two-dimensional matrices with a swizzle of
# 128 bytes and zeros outside; the bits of the swizzle were found in the code that ptxas generates
# for ``tensormap.replace.tile.swizzle_mode``.

#: Words of 8 bytes in a map.
MAP_WORDS = 16

#: The code of the swizzle, by its span, which is a row of a box. The 16-byte vectors of a row are
#: permuted by the number of the 128 bytes in which they lie.
_SWIZZLES = {32: 1, 64: 2, 128: 3}

#: The address of the first element and the distance of rows must be multiples of this many bytes.
MAP_ALIGNMENT = 16

#: The code of the format, by the bytes of an element. Copies move bits: 2 bytes count as float16, 4
#: as float32.
_FORMATS = {1: 0, 2: 6, 4: 7}

_TILED_2D = 0x10
_PROMOTE_L2_128 = 2 << 17


@dataclass
class TensorMap:
    """A map for copies of boxes from or to a matrix."""

    element_bytes: int  # 1, 2 or 4
    rows: int  # of a box, at most 256
    row_bytes: int = ROW_BYTES  # 32, 64 or 128

    def __post_init__(self) -> None:
        self.elements = self.row_bytes // self.element_bytes  # in a row of a box
        self.bytes = self.row_bytes * self.rows  # of a box
        # Word 1 without its upper half, which is the distance of rows in units of 16 bytes; words 6
        # and 7.
        swizzle = _SWIZZLES[self.row_bytes] << 13
        elements = _FORMATS[self.element_bytes] << 7
        self.format_word = _TILED_2D | elements | swizzle | _PROMOTE_L2_128
        self.box_word = self.elements - 1 << 56
        self.rows_word = self.rows - 1

    def offset(self, row: str, part: str, part_bytes: int) -> str:
        """In C: the offset in bytes of a part of a row in local memory; vectors are permuted."""
        vectors, per_vector = self.row_bytes // 16, 16 // part_bytes
        vector = part + (f" / {per_vector}" if per_vector > 1 else "")
        change = divided(row, ROW_BYTES // self.row_bytes)
        within = f" + {part} % {per_vector} * {part_bytes}" if per_vector > 1 else ""
        return f"{row} * {self.row_bytes} + ({vector} ^ ({change} & {vectors - 1})) * 16{within}"


def boxes_across(element_bytes: int, extent: int, rows: int) -> TensorMap:
    """The widest boxes that divide `extent` contiguous elements."""
    row_bytes = max(span for span in _SWIZZLES if extent * element_bytes % span == 0)
    return TensorMap(element_bytes, rows, row_bytes)
