"""What one ``wgmma`` multiplies (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

Four sub-groups of 32 work-items, a warpgroup, multiply a 64 x k piece of A by a k x n piece of B,
both in local memory, and add to a 64 x n fragment of sums in their registers. Element
``4 j + 2 h + i`` of a work-item is row ``16 (item div 32) + 8 h + (item mod 32) div 4``, column
``8 j + 2 (item mod 4) + i``.
"""

from __future__ import annotations

from dataclasses import dataclass

from .device import DeviceTraits
from .errors import UnsupportedError
from .precision import Precision

#: Work-items of a warpgroup.
WARPGROUP = 128

#: Rows of a fragment.
FRAGMENT_ROWS = 64

#: Bytes along k that an instruction multiplies.
STEP_BYTES = 32


@dataclass(frozen=True)
class WgmmaUnit:
    """The instruction for a type of operands.

    Attributes
    ----------
    operand : "float16", "bfloat16", "tf32" or "int8"
        What it multiplies.
    types : str
        Types of the result, of A and of B, in PTX.
    element_bytes : int
        Bytes of an element in local memory.
    stored : str
        C type of an element in memory.
    any_order : bool
        Whether operands may run along the tile in local memory; else k is contiguous, except in
        an A that goes through registers.
    a_through_registers : bool
        Whether an A that runs along the tile goes through registers, 4 bytes each: element
        ``i`` of a work-item is row ``16 (item div 32) + 8 (i mod 2) + (item mod 32) div 4``,
        depth ``4 (i div 2) + item mod 4``.

    Examples
    --------
    >>> UNITS["float16"].instruction(128)
    'wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16'
    """

    operand: str
    types: str
    element_bytes: int
    stored: str
    any_order: bool = False
    a_through_registers: bool = False

    @property
    def k(self) -> int:
        """Elements along k."""
        return STEP_BYTES // self.element_bytes

    @property
    def is_integer(self) -> bool:
        """Whether sums are integers."""
        return self.types.startswith("s32")

    @property
    def sums(self) -> str:
        """NumPy name of what it sums in."""
        return "int32" if self.is_integer else "float32"

    @property
    def constraint(self) -> str:
        """The letter of a register of the sums in inline PTX."""
        return "r" if self.is_integer else "f"

    def modifiers(self, turned_a: bool, turned_b: bool) -> str:
        """What follows the descriptors: signs, and which operands run along the tile."""
        if self.is_integer:
            return ""
        return f", 1, 1, {turned_a:d}, {turned_b:d}" if self.any_order else ", 1, 1"

    def instruction(self, n: int) -> str:
        """Its name for n columns."""
        return f"wgmma.mma_async.sync.aligned.m{FRAGMENT_ROWS}n{n}k{self.k}.{self.types}"


#: By what they multiply.
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
    """The unit of a device that computes in a precision; None if there is none.

    Examples
    --------
    >>> from pyclgemm.precision import resolve_precision
    >>> from pyclgemm.typical import typical_traits
    >>> half = resolve_precision("F16_F16_F32", "float16")
    >>> wgmma_unit(half, typical_traits("sm_90")).k
    16
    >>> wgmma_unit(half, typical_traits("sm_80")) is None
    True
    """
    if precision.multiplied is None or not traits.wgmma:
        return None
    unit = UNITS.get(precision.multiplied)
    return unit if unit and unit.sums == precision.arithmetic else None


def required_wgmma_unit(precision: Precision, traits: DeviceTraits) -> WgmmaUnit:
    """The unit of a device that computes in a precision.

    Raises
    ------
    UnsupportedError
        If there is none.
    """
    unit = wgmma_unit(precision, traits)
    if unit is None:
        why = f" ({traits.wgmma_refusal})" if traits.wgmma_refusal else ""
        raise UnsupportedError(
            f"precision is {precision.name}, for which {traits.name!r} has no warpgroup "
            f"units{why}; those of NVIDIA's compute capability 9.0 multiply "
            f"{', '.join(UNITS)}"
        )
    return unit
