"""Matrix units: their instructions, their distribution of elements over lanes, and their devices.

A sub-group multiplies an m x k fragment of A by a k x n fragment of B and adds to an m x n fragment
of the result. The elements of each are distributed over the registers of the sub-group's lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..device.traits import DeviceTraits, matching
from ..errors import UnsupportedError
from ..problem.precision import Precision, is_complex
from ..problem.problem import GemmProblem
from .element import C_NAME, stored_bytes

#: The types that units multiply; "tf32" is the leading bits of a float32.
Multiplied = Literal["int8", "float16", "bfloat16", "tf32", "float64"]

#: The types in which units sum.
Summed = Literal["int32", "float16", "float32", "float64"]


@dataclass(unsafe_hash=True)
class OperandLanes:
    """The elements of a fragment of A or B that a lane holds: rows of A, or columns of B.

    The lanes cover a group of `positions` rows of A (columns of B) and `depths` depths of k. Larger
    fragments have several such groups. Register ``r`` of position group ``p`` and depth group ``d``
    is the lane's register ``r + (registers of a run) * (p + position_groups * d)``.
    """

    position: str  # the lane's row or column in a group, an expression of C in ``lane``
    run_index: str  # the number of the lane's run of depths in a group, likewise
    positions: int  # rows or columns of a group
    runs: int  # runs of a group
    #: Consecutive depths of a run. They may be any of the instruction's depths, if A and B agree:
    #: the order of a sum does not matter.
    run: int

    def __post_init__(self) -> None:
        self.depths = self.runs * self.run  # of a group


@dataclass(frozen=True)
class ResultLanes:
    """The elements of a fragment of the result that a lane holds.

    Element ``width * g + i`` is at row ``row + g * row_step`` and column ``column + i``.
    """

    row: str  # of the lane's first element, an expression of C in ``lane``
    column: str  # likewise
    width: int  # elements of a run in neighbouring columns
    groups: int  # runs of a lane
    row_step: int = 0  # rows from one run to the next


@dataclass(unsafe_hash=True)
class MatrixUnit:
    """An instruction that multiplies fragments."""

    #: Whether `instruction` is inline PTX or a function of the compiler
    spelling: Literal["ptx", "builtin"]
    #: The name in PTX; or the call of the builtin, with the operands ``{a}``, ``{b}`` and ``{c}``
    instruction: str
    operand: Multiplied  # the type that it multiplies
    m: int  # sizes of the fragments
    n: int
    k: int
    lanes: int  # work-items of a sub-group
    operand_lanes: OperandLanes  # the elements of A and B in each lane
    result_lanes: ResultLanes  # the elements of the result in each lane
    vector: str = ""  # of a builtin: the C type of a lane's elements of A, and of B
    sums: Summed = "float32"  # the type in which it sums
    #: Whether a builtin with like fragments of A and B gets them exchanged and so computes the
    #: transposed product, to which `result_lanes` refers
    exchanged: bool = False

    def __post_init__(self) -> None:
        name, is_double = self.instruction.partition("(")[0], self.operand == "float64"
        self.text = f"{name}: {self.m} x {self.n} x {self.k} of {self.operand}"  # for reports
        self.operand_bytes = 4 if self.operand == "tf32" else stored_bytes(self.operand)
        # Whether k must be contiguous in local memory: builtins take runs along k from each lane;
        # ldmatrix transposes only elements of 16 bits.
        self.reads_along_k = self.spelling == "builtin" or self.operand == "int8"
        # C type of a lane's registers with elements of A and B; elements of such a register.
        self.register: Literal["uint", "double"] = "double" if is_double else "uint"
        self.word = max(1, 4 // self.operand_bytes)
        self.depth_groups = self.k // self.operand_lanes.depths  # groups of a fragment along k
        # Registers of a lane for a fragment of A, and of B.
        registers = self.depth_groups * self.operand_lanes.run // self.word
        self.a_registers = self.m // self.operand_lanes.positions * registers
        self.b_registers = self.n // self.operand_lanes.positions * registers
        # Elements of the result in a lane; whether a register holds the bits of two neighbours; the
        # registers, and their C type.
        self.result_elements = self.result_lanes.width * self.result_lanes.groups
        self.packed_sums = self.sums == "float16"
        self.result_registers = self.result_elements // (2 if self.packed_sums else 1)
        self.result_register = "uint" if self.packed_sums else C_NAME[self.sums]

    def loads_elements(self, along_k: bool) -> bool:
        """Whether lanes load single elements from a slab in local memory."""
        # ldmatrix loads rows of 16 bytes along k, or transposes elements of 16 bits.
        if self.spelling != "ptx":
            return False
        return self.operand == "float64" or (self.operand == "tf32" and not along_k)


def fills_fragments(problem: GemmProblem, unit: MatrixUnit) -> bool:
    """Whether a product has at least the rows, columns and depths of a unit's fragments."""
    return min(problem.m, problem.n) >= max(unit.m, unit.n) and problem.k >= unit.k


# AMD's WMMA (RDNA 3 and 4) and MFMA (CDNA 2 and 3), by the compiler's builtins. The distribution of
# elements over lanes is documented in the ISA documents ("AMD RDNA3", "RDNA4", "Instinct MI200" and
# "MI300 Instruction Set Architecture", the chapters on WMMA and on MFMA) and in AMD's Matrix
# Instruction Calculator. It is the same for A and B: neighbouring lanes hold rows of A or columns
# of B, each a run of consecutive depths. MFMA of f64 and WMMA of RDNA 3 distribute a column of the
# result over lanes. Others leave a run of a column in a lane; exchanging A and B makes it a run of
# a row.
#
# The ISA of RDNA 4 numbers the depths of a 16-bit run in another order than the registers; A and B
# agree in it. MFMA of the MI200 series (gfx90a) treats denormal numbers of float16 and bfloat16 as
# zero.

_MFMA_RESULT = ResultLanes("lane % 16", "lane / 16 * 4", width=4, groups=1)
_MFMA_RESULT_F64 = ResultLanes("lane / 16", "lane % 16", width=1, groups=4, row_step=4)

#: The instruction and the type of its sums, by the type of its operands. (WMMA of float16 that sums
#: in float16 distributes its sums differently, and is not supported.) Both operands of int8 are
#: signed, and sums wrap.
_WMMA: dict[Multiplied, tuple[str, Summed]] = {
    "float16": ("f32_16x16x16_f16_{}({{a}}, {{b}}, {{c}})", "float32"),
    "bfloat16": ("f32_16x16x16_bf16_{}({{a}}, {{b}}, {{c}})", "float32"),
    "int8": ("i32_16x16x16_iu8_{}(true, {{a}}, true, {{b}}, {{c}}, false)", "int32"),
}


def _wmma(
    suffix: str, vectors: tuple[str, str, str], operand_lanes: OperandLanes,
    result_lanes: ResultLanes, exchanged: bool,
) -> tuple[MatrixUnit, ...]:  # fmt: skip
    return tuple(
        MatrixUnit(
            "builtin", "__builtin_amdgcn_wmma_" + call.format(suffix), operand, 16, 16, 16, 32,
            operand_lanes, result_lanes, vector, sums, exchanged,
        )
        for (operand, (call, sums)), vector in zip(_WMMA.items(), vectors, strict=True)
    )  # fmt: skip


def _mfma(
    types: str, operand: Multiplied, vector: str, k: int = 16, sums: Summed = "float32"
) -> MatrixUnit:
    is_double = operand == "float64"
    return MatrixUnit(
        "builtin", f"__builtin_amdgcn_mfma_{types}({{a}}, {{b}}, {{c}}, 0, 0, 0)", operand,
        16, 16, k, 64, OperandLanes("lane % 16", "lane / 16", positions=16, runs=4, run=k // 4),
        _MFMA_RESULT_F64 if is_double else _MFMA_RESULT, vector, sums, exchanged=not is_double,
    )  # fmt: skip


_CDNA2 = (
    _mfma("f32_16x16x16f16", "float16", "half4"),
    _mfma("f32_16x16x16bf16_1k", "bfloat16", "short4"),
    _mfma("f64_16x16x4f64", "float64", "double", 4, "float64"),
    _mfma("i32_16x16x16i8", "int8", "int", sums="int32"),
)

#: AMD's units by patterns of architectures.
_AMD_UNITS = {
    # Lanes 16 to 31 hold copies of what lanes 0 to 15 hold of A and B.
    r"gfx11[0-9a-f]{2}": _wmma(
        "w32", ("half16", "short16", "int4"),
        OperandLanes("lane % 16", "", positions=16, runs=1, run=16),
        ResultLanes("lane / 16", "lane % 16", width=1, groups=8, row_step=2), exchanged=False,
    ),
    r"gfx12[0-9a-f]{2}": _wmma(
        "w32_gfx12", ("half8", "short8", "int2"),
        OperandLanes("lane % 16", "lane / 16", positions=16, runs=2, run=8),
        ResultLanes("lane % 16", "lane / 16 * 8", width=8, groups=1), exchanged=True,
    ),
    r"gfx90a": _CDNA2,
    r"gfx942": (
        *_CDNA2[:3],
        _mfma("i32_16x16x32_i8", "int8", "long", 32, "int32"),
        _mfma("f32_16x16x8_xf32", "tf32", "float2", 8),
    ),
}  # fmt: skip

#: Mesa's runtimes compile for AMD's devices through languages without such builtins.
_WITHOUT_BUILTINS = ("rusticl", "clover")


# NVIDIA's mma.sync, from compute capability 8.0 on. Lanes form 8 groups of 4 (PTX ISA, "Warp-level
# matrix instructions: mma", with the figures of each shape). A group holds a row of A or a column
# of B, and each of its lanes a register of consecutive depths. Of the result a lane holds two
# neighbouring columns of a row.


def _mma(
    types: str, operand: Multiplied, m: int, k: int, word: int, sums: Summed = "float32"
) -> MatrixUnit:
    return MatrixUnit(
        "ptx", f"mma.sync.aligned.m{m}n8k{k}.row.col.{types}", operand, m, 8, k, 32,
        OperandLanes("lane / 4", "lane % 4", positions=8, runs=4, run=word),
        ResultLanes("lane / 4", "lane % 4 * 2", width=2, groups=m // 8, row_step=8),
        sums=sums,
    )  # fmt: skip


def nvidia_double_unit(m: int, k: int) -> MatrixUnit:
    """NVIDIA's unit for float64: 8 x 4 from capability 8.0 on; 16 x 4, 8 or 16 from 9.0 on."""
    return _mma("f64.f64.f64.f64", "float64", m=m, k=k, word=1, sums="float64")


#: From compute capability 8.0 on. From 9.0 on another unit for float64 does twice the work. Of its
#: depths the smallest is used: registers can then hold the fragments of two depths, of which one is
#: loaded while the other is multiplied.
_NVIDIA_UNITS = (
    _mma("f32.f16.f16.f32", "float16", m=16, k=16, word=2),
    _mma("f16.f16.f16.f16", "float16", m=16, k=16, word=2, sums="float16"),
    _mma("f32.bf16.bf16.f32", "bfloat16", m=16, k=16, word=2),
    _mma("f32.tf32.tf32.f32", "tf32", m=16, k=8, word=1),
    nvidia_double_unit(m=8, k=4),
    _mma("s32.s8.s8.s32", "int8", m=16, k=32, word=4, sums="int32"),
)
_UNITS_OF_SM_90 = (nvidia_double_unit(m=16, k=4), *_NVIDIA_UNITS)


def unit_multiplying(multiplied: str | None, sums: str, traits: DeviceTraits) -> MatrixUnit | None:
    """The device's unit that multiplies and sums in these types; None if there is none."""
    units: tuple[MatrixUnit, ...] = ()
    if traits.nvidia_capability >= 80:
        units = _UNITS_OF_SM_90 if traits.nvidia_capability >= 90 else _NVIDIA_UNITS
    elif traits.vendor == "amd" and traits.platform.lower() not in _WITHOUT_BUILTINS:
        units = matching(_AMD_UNITS, traits.architecture) or ()
    return next((unit for unit in units if (unit.operand, unit.sums) == (multiplied, sums)), None)


def matrix_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The device's unit for a precision; None if there is none."""
    return unit_multiplying(precision.multiplied, precision.arithmetic, traits)


def element_unit(dtype: str, precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The same for elements that may be complex, which only NVIDIA's units multiply."""
    unit = matrix_unit(precision, traits)
    if unit is not None and is_complex(dtype) and not unit.loads_elements(True):
        return None
    return unit


def elements_wanted(dtype: str, precision: Precision) -> str:
    """The unit that `element_unit` looks for, in words."""
    return f"{precision.name} of complex elements" if is_complex(dtype) else precision.name


def required_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit:
    """The device's unit for a precision; `UnsupportedError` if there is none."""
    unit = matrix_unit(precision, traits)
    if unit is None:
        raise UnsupportedError(
            f"precision is {precision.name}, for which {traits.name!r} has no matrix units that "
            "this version drives (NVIDIA's from compute capability 8.0 on, and AMD's of gfx11, "
            "gfx12, gfx90a and gfx942 under AMD's own driver, each for some precisions); "
            "F32_F32_F32 and F64_F64_F64 need none"
        )
    return unit


def sub_group_lanes(traits: DeviceTraits | None) -> int:
    """Work-items of the sub-groups of a device's units; without a device the fewest."""
    wide = traits is not None and traits.vendor == "amd" and traits.architecture.startswith("gfx9")
    return 64 if wide else 32


def prefers_units(problem: GemmProblem, traits: DeviceTraits) -> bool:
    """Whether fragments are full, except for float64, where others are at most twice as slow."""
    unit = matrix_unit(problem.precision, traits)
    return unit is not None and unit.operand != "float64" and fills_fragments(problem, unit)
