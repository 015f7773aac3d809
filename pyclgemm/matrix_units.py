"""Matrix units: what one instruction multiplies, and which lane holds what. Pure data.

A sub-group multiplies an m x k fragment of A by a k x n fragment of B and adds to an m x n
fragment of the result, each spread over the registers of its lanes. Lanes of NVIDIA's mma.sync
form 8 groups of 4 (PTX ISA, "Warp-level matrix instructions: mma", and the figures of each shape):

- A: register r holds `word` neighbouring depths of row ``8 (r mod m/8) + lane / 4``, from depth
  ``word (lane mod 4) + 4 word (r div m/8)`` on;
- B: register r holds the same depths, r in the place of ``r div m/8``, of column ``lane / 4``;
- the result: elements 2 i and 2 i + 1 are columns ``2 (lane mod 4)`` and the next of row
  ``8 i + lane / 4``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .device import DeviceTraits, has_async_copy
from .errors import UnsupportedError
from .precision import Precision

#: Work-items that multiply together.
LANES = 32


@dataclass(frozen=True)
class MatrixUnit:
    """An instruction that multiplies fragments.

    Attributes
    ----------
    instruction : str
        Its name in PTX.
    operand : "float16", "bfloat16", "tf32" or "float64"
        What it multiplies.
    m, n, k : int
        Sizes of the fragments.
    word : int
        Elements of A or B in a register.

    Examples
    --------
    >>> unit = MatrixUnit("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "float64", 8, 8, 4, 1)
    >>> unit.a_registers, unit.b_registers, unit.result_elements
    (1, 1, 2)
    """

    instruction: str
    operand: Literal["float16", "bfloat16", "tf32", "float64"]
    m: int
    n: int
    k: int
    word: int

    @property
    def row_groups(self) -> int:
        """Groups of 8 rows in a fragment of A."""
        return self.m // 8

    @property
    def depth_groups(self) -> int:
        """Registers of a lane along k."""
        return self.k // (4 * self.word)

    @property
    def a_registers(self) -> int:
        """Registers of a lane for a fragment of A."""
        return self.row_groups * self.depth_groups

    @property
    def b_registers(self) -> int:
        """Registers of a lane for a fragment of B."""
        return self.depth_groups

    @property
    def result_elements(self) -> int:
        """Elements of the result in a lane."""
        return 2 * self.row_groups


_MMA = "mma.sync.aligned"

#: By what they multiply.
_NVIDIA: dict[str, MatrixUnit] = {
    unit.operand: unit
    for unit in (
        MatrixUnit(f"{_MMA}.m16n8k16.row.col.f32.f16.f16.f32", "float16", 16, 8, 16, 2),
        MatrixUnit(f"{_MMA}.m16n8k16.row.col.f32.bf16.bf16.f32", "bfloat16", 16, 8, 16, 2),
        MatrixUnit(f"{_MMA}.m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", 16, 8, 8, 1),
        MatrixUnit(f"{_MMA}.m8n8k4.row.col.f64.f64.f64.f64", "float64", 8, 8, 4, 1),
    )
}


def matrix_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit of a device that computes in a precision; None if there is none.

    Parameters
    ----------
    precision : Precision
        The arithmetic.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm.precision import resolve_precision
    >>> from pyclgemm.typical import typical_traits
    >>> half = resolve_precision("F16_F16_F32", "float16")
    >>> matrix_unit(half, typical_traits("sm_90")).k
    16
    >>> matrix_unit(half, typical_traits("sm_70")) is None
    True
    """
    if precision.multiplied is None or not has_async_copy(traits):
        return None  # both came with compute capability 8.0
    return _NVIDIA.get(precision.multiplied)


def required_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit:
    """The unit of a device that computes in a precision.

    Raises
    ------
    UnsupportedError
        If there is none.
    """
    unit = matrix_unit(precision, traits)
    if unit is None:
        raise UnsupportedError(
            f"precision is {precision.name}, for which {traits.name!r} has no matrix units that "
            "this version drives (those of NVIDIA from compute capability 8.0 on); F32_F32_F32 "
            "and F64_F64_F64 need none"
        )
    return unit
