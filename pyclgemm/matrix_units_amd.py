"""AMD's WMMA (RDNA 3 and 4) and MFMA (CDNA 2 and 3), by the compiler's builtins.

Which lane holds what is told by the ISA documents ("AMD RDNA3", "RDNA4", "Instinct MI200" and
"MI300 Instruction Set Architecture", the chapters on WMMA and on MFMA) and by AMD's Matrix
Instruction Calculator. A and B lie alike in all of them: lanes side by side hold rows of A or
columns of B, and each a run of neighbouring depths. MFMA's f64 and WMMA of RDNA 3 spread a
column of the result over lanes; the others give a lane a run of it, which the exchange of A and B
makes a run of a row.

Of RDNA 4's 16-bit fragments the ISA numbers the depths of a run in another order than they lie;
A and B agree in it.

MFMA of the MI200 series (gfx90a) takes denormal numbers of float16 and bfloat16 for zero.
"""

from __future__ import annotations

import re

from .device import DeviceTraits
from .matrix_unit import MatrixUnit, Multiplied, OperandPlaces, ResultPlaces, Summed

_WMMA = "__builtin_amdgcn_wmma"
_MFMA = "__builtin_amdgcn_mfma"

#: Of RDNA 3: lanes 16 to 31 hold copies of what lanes 0 to 15 hold of A and B.
_RDNA3_PLACES = OperandPlaces("lane % 16", "", positions=16, runs=1, run=16)
_RDNA3_RESULT = ResultPlaces("lane / 16", "lane % 16", width=1, groups=8, row_step=2)

_RDNA4_PLACES = OperandPlaces("lane % 16", "lane / 16", positions=16, runs=2, run=8)
_RDNA4_RESULT = ResultPlaces("lane % 16", "lane / 16 * 8", width=8, groups=1)

_MFMA_RESULT = ResultPlaces("lane % 16", "lane / 16 * 4", width=4, groups=1)
_MFMA_RESULT_F64 = ResultPlaces("lane / 16", "lane % 16", width=1, groups=4, row_step=4)


#: What the units of a type sum in, where it is not float32. (WMMA of float16 in float16, which
#: spreads its sums in other ways, is not driven.)
_SUMS: dict[Multiplied, Summed] = {"int8": "int32", "float64": "float64"}


def _rdna3(
    name: str, operand: Multiplied, vector: str, call: str = "({a}, {b}, {c})"
) -> MatrixUnit:
    return MatrixUnit(
        "builtin", f"{_WMMA}_{name}_w32{call}", operand,
        16, 16, 16, 32, _RDNA3_PLACES, _RDNA3_RESULT, vector,
        _SUMS.get(operand, "float32"),
    )  # fmt: skip


def _rdna4(
    name: str, operand: Multiplied, vector: str, call: str = "({a}, {b}, {c})"
) -> MatrixUnit:
    return MatrixUnit(
        "builtin", f"{_WMMA}_{name}_w32_gfx12{call}", operand,
        16, 16, 16, 32, _RDNA4_PLACES, _RDNA4_RESULT, vector,
        _SUMS.get(operand, "float32"), exchanged=True,
    )  # fmt: skip


def _mfma(name: str, operand: Multiplied, vector: str, k: int) -> MatrixUnit:
    is_double = operand == "float64"
    return MatrixUnit(
        "builtin", f"{_MFMA}_{name}({{a}}, {{b}}, {{c}}, 0, 0, 0)", operand,
        16, 16, k, 64, OperandPlaces("lane % 16", "lane / 16", positions=16, runs=4, run=k // 4),
        _MFMA_RESULT_F64 if is_double else _MFMA_RESULT, vector,
        _SUMS.get(operand, "float32"), exchanged=not is_double,
    )  # fmt: skip


#: Both operands are signed, and sums wrap.
_SIGNED = "(true, {a}, true, {b}, {c}, false)"

_RDNA3 = (
    _rdna3("f32_16x16x16_f16", "float16", "half16"),
    _rdna3("f32_16x16x16_bf16", "bfloat16", "short16"),
    _rdna3("i32_16x16x16_iu8", "int8", "int4", _SIGNED),
)
_RDNA4 = (
    _rdna4("f32_16x16x16_f16", "float16", "half8"),
    _rdna4("f32_16x16x16_bf16", "bfloat16", "short8"),
    _rdna4("i32_16x16x16_iu8", "int8", "int2", _SIGNED),
)
_CDNA2 = (
    _mfma("f32_16x16x16f16", "float16", "half4", k=16),
    _mfma("f32_16x16x16bf16_1k", "bfloat16", "short4", k=16),
    _mfma("f64_16x16x4f64", "float64", "double", k=4),
    _mfma("i32_16x16x16i8", "int8", "int", k=16),
)
_CDNA3 = (
    *_CDNA2[:3],
    _mfma("i32_16x16x32_i8", "int8", "long", k=32),
    _mfma("f32_16x16x8_xf32", "tf32", "float2", k=8),
)

#: By the architectures that have them.
_UNITS = (
    (r"gfx11[0-9a-f]{2}", _RDNA3),
    (r"gfx12[0-9a-f]{2}", _RDNA4),
    (r"gfx90a", _CDNA2),
    (r"gfx942", _CDNA3),
)

#: Mesa's runtimes compile for AMD's devices by way of languages that have no such builtins.
_WITHOUT_BUILTINS = ("rusticl", "clover")


def amd_unit(multiplied: str, sums: str, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit of an AMD device that multiplies and sums in given types; None if there is none.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> amd_unit("float64", "float64", typical_traits("gfx90a")).lanes
    64
    >>> amd_unit("float64", "float64", typical_traits("gfx1100")) is None
    True
    """
    if traits.platform.lower() in _WITHOUT_BUILTINS:
        return None
    for architecture, units in _UNITS:
        if re.fullmatch(architecture, traits.architecture):
            wanted = multiplied, sums
            return next((unit for unit in units if (unit.operand, unit.sums) == wanted), None)
    return None
