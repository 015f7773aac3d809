"""NVIDIA's mma.sync, from compute capability 8.0 on.

Lanes form 8 groups of 4 (PTX ISA, "Warp-level matrix instructions: mma", and the figures of each
shape): a group holds a row of A or a column of B, each of its lanes a register of neighbouring
depths; and of the result two neighbouring columns of a row.
"""

from __future__ import annotations

from .device import DeviceTraits, has_async_copy
from .matrix_unit import MatrixUnit, Multiplied, OperandPlaces, ResultPlaces, Summed


def _mma(
    types: str, operand: Multiplied, m: int, k: int, word: int, sums: Summed = "float32"
) -> MatrixUnit:
    return MatrixUnit(
        "ptx",
        f"mma.sync.aligned.m{m}n8k{k}.row.col.{types}",
        operand,
        m,
        8,
        k,
        32,
        OperandPlaces("lane / 4", "lane % 4", positions=8, runs=4, run=word),
        ResultPlaces("lane / 4", "lane % 4 * 2", width=2, groups=m // 8, row_step=8),
        sums=sums,
    )


#: The one for float64 from compute capability 9.0 on, which does twice the work of the older one.
#: It is the least deep: registers then hold the fragments of two depths, and those of the next are
#: loaded while one is multiplied.
_DOUBLES = _mma("f64.f64.f64.f64", "float64", m=16, k=4, word=1, sums="float64")

#: By what they multiply, and what they sum in.
_UNITS: dict[tuple[str, str], MatrixUnit] = {
    (unit.operand, unit.sums): unit
    for unit in (
        _mma("f32.f16.f16.f32", "float16", m=16, k=16, word=2),
        _mma("f16.f16.f16.f16", "float16", m=16, k=16, word=2, sums="float16"),
        _mma("f32.bf16.bf16.f32", "bfloat16", m=16, k=16, word=2),
        _mma("f32.tf32.tf32.f32", "tf32", m=16, k=8, word=1),
        _mma("f64.f64.f64.f64", "float64", m=8, k=4, word=1, sums="float64"),
        _mma("s32.s8.s8.s32", "int8", m=16, k=32, word=4, sums="int32"),
    )
}


def nvidia_unit(multiplied: str, sums: str, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit of an NVIDIA device that multiplies and sums in given types; None if there is none.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> nvidia_unit("int8", "int32", typical_traits("sm_90")).instruction
    'mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32'
    """
    if not has_async_copy(traits):
        return None  # both came with compute capability 8.0
    if multiplied == "float64" and int(traits.architecture[3:]) >= 90:
        return _DOUBLES
    return _UNITS.get((multiplied, sums))


def nvidia_double_unit(m: int, k: int) -> MatrixUnit:
    """The unit for float64 of so many rows and depths, which lanes hold as those of any other.

    Parameters
    ----------
    m, k : int
        8 and 4 from compute capability 8.0 on; 16 and 4, 8 or 16 from 9.0 on.

    Examples
    --------
    >>> nvidia_double_unit(8, 4).instruction
    'mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64'
    """
    return _mma("f64.f64.f64.f64", "float64", m=m, k=k, word=1, sums="float64")
