"""Matrix units in plain C over a sub-group's shuffles, so that kernels for them run on CPUs.

What is tested is which lane holds what, what is copied where, and all that is around the
instruction. Where the instructions take their operands from and leave the result is told here
again, by lane and element and as the vendors' documents do, not taken from what is tested. Sums
are formed in the type of the result, in the order of k.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import checks
from async_emulation import in_plain_c

from pyclgemm import launch, prepare
from pyclgemm.kernel_source import KernelSource
from pyclgemm.matrix_unit import MatrixUnit
from pyclgemm.matrix_units import required_unit

LOAD = re.compile(
    r'asm volatile\("ldmatrix\.sync\.aligned\.m8n8\.x4(?P<trans>\.trans)?\..*?"memory"\);',
    re.DOTALL,
)
UNROLLING = re.compile(r"#pragma unroll.*")
MULTIPLY = re.compile(r'asm\("mma\.sync.*?\);|\*c = __builtin_amdgcn_.*?;', re.DOTALL)

_ROWS = """
    const int lane = get_sub_group_local_id();
    for (int j = 0; j < 4; ++j) {
        const ulong start = sub_group_shuffle((ulong)row, 8 * j + lane / 4);
        to[j] = ((const __local uint *)(size_t)start)[lane % 4];
    }"""

_COLUMNS = """
    const int lane = get_sub_group_local_id();
    for (int j = 0; j < 4; ++j) {
        const ulong even = sub_group_shuffle((ulong)row, 8 * j + 2 * (lane % 4));
        const ulong odd = sub_group_shuffle((ulong)row, 8 * j + 2 * (lane % 4) + 1);
        const uint low = ((const __local ushort *)(size_t)even)[lane / 4];
        const uint high = ((const __local ushort *)(size_t)odd)[lane / 4];
        to[j] = low | high << 16;
    }"""


@dataclass(frozen=True)
class Places:
    """Where an instruction finds its operands and leaves the result, as expressions of C.

    Attributes
    ----------
    lane, element : str
        Which lane holds the entry at `position` (a row of A, a column of B) and `depth`, and
        where among its own; `word` is how many there are in 32 bits.
    row, column : str
        The entry of the result that is element `i` of `lane`.
    """

    lane: str
    element: str
    row: str
    column: str


_PLACES = {
    # PTX ISA, figures of mma.m16n8k16 and others. Of B there are 8 columns.
    "mma.sync": Places(
        "4 * (position % 8) + depth / word % 4",
        "depth % word + word * (position / 8 + groups * (depth / (4 * word)))",
        "8 * (i / 2) + lane / 4",
        "2 * (lane % 4) + i % 2",
    ),
    # What AMD's Matrix Instruction Calculator prints; of RDNA 3's copies both are read.
    "gfx11": Places("position + 16 * (depth % 2)", "depth", "2 * i + lane / 16", "lane % 16"),
    "gfx12": Places("position + 16 * (depth / 8)", "depth % 8", "8 * (lane / 16) + i", "lane % 16"),
    "gfx12, 16 bits": Places(
        "position + 16 * (depth / 4 % 2)",
        "depth % 4 + 4 * (depth / 8)",
        "8 * (lane / 16) + i",
        "lane % 16",
    ),
    "mfma": Places(
        "position + 16 * (depth / (K / 4))", "depth % (K / 4)", "4 * (lane / 16) + i", "lane % 16"
    ),
    "mfma, float64": Places("position + 16 * depth", "0", "4 * i + lane / 16", "lane % 16"),
}


def _places_of(unit: MatrixUnit) -> Places:
    if unit.spelling == "ptx":
        return _PLACES["mma.sync"]
    if "_mfma_" in unit.instruction:
        return _PLACES["mfma, float64" if unit.operand == "float64" else "mfma"]
    if "_gfx12" not in unit.instruction:
        return _PLACES["gfx11"]
    return _PLACES["gfx12" if unit.operand == "int8" else "gfx12, 16 bits"]


_HAND_OUT = """
    for (int i = 0; i < {registers}; ++i) {{
        exchange[lane][0][i] = {first}[i];
        exchange[lane][1][i] = {second}[i];
    }}
    barrier(CLK_LOCAL_MEM_FENCE);"""

_MULTIPLY = """
    {hand_out}
    for (int i = 0; i < {results}; ++i) {{
        const int row = {row}, column = {column};
        {sum} sum = 0;
        for (int depth = 0; depth < K; ++depth) {{
            {sum} factors[2];
            for (int operand = 0; operand < 2; ++operand) {{
                const int position = operand ? column : row;
                const int groups = (operand ? {n} : {m}) / 8;
                const int element = {element};
                const {register} one = {fetch};
                factors[operand] = {value};
            }}
            sum += factors[0] * factors[1];
        }}
        {result}[i] += sum;
    }}
    {meet}"""

#: What a unit makes of a register, at `element` of the lane's share.
_VALUE = {
    "float16": "vload_half(element % 2, (const half *)&one)",
    "bfloat16": "as_float(element % 2 ? one & 0xffff0000 : one << 16)",
    "tf32": "as_float(one & 0xffffe000)",
    "float64": "one",
    "int8": "((const char *)&one)[element % 4]",
}


def without_units(source: KernelSource, unit: MatrixUnit) -> KernelSource:
    """A kernel for a matrix unit, with plain C in the place of each instruction."""
    text = LOAD.sub(lambda load: _COLUMNS if load["trans"] else _ROWS, source.text)
    call = MULTIPLY.search(text)
    assert call
    builtin = unit.spelling == "builtin"
    # The operand that the instruction is given in the place of A.
    first, second = ("a", "b")
    if builtin and re.search(r"\b([ab])\[", call[0])[1] == "b":  # type: ignore[index]
        first, second = "b", "a"
    shuffles = unit.lanes == 32
    register, places = unit.register, _places_of(unit)
    if shuffles:
        holder = f"sub_group_shuffle(from[element / word], {places.lane})"
        fetch = f"operand ? {holder.replace('from', second)} : {holder.replace('from', first)}"
    else:
        holder = f"exchange[{places.lane}][operand][element / word]"
        fetch = holder
    hand_out = _HAND_OUT.format(registers=unit.a_registers, first=first, second=second)
    body = f"const int word = {unit.word}, K = {unit.k};\n"
    body += f"const int lane = get_local_id(0) % {unit.lanes};\n"
    body += _MULTIPLY.format(
        hand_out="" if shuffles else hand_out,
        results=unit.result_elements,
        row=places.row,
        column=places.column,
        sum={"float64": "double", "int8": "int"}.get(unit.operand, "float"),
        m=unit.m,
        n=unit.n,
        element=places.element,
        register=register,
        fetch=fetch,
        value=_VALUE[unit.operand],
        result="(*c)" if builtin else "c",
        meet="" if shuffles else "barrier(CLK_LOCAL_MEM_FENCE);",
    )
    text, count = MULTIPLY.subn(lambda _: body, text)
    assert count == 1
    # Unrolled, the emulation compiles for seconds.
    text = UNROLLING.sub("#pragma unroll 1", text)
    if not shuffles:
        text = _with_exchange(text, unit)
    size = "__attribute__((intel_reqd_sub_group_size(32)))" if shuffles else ""
    text = in_plain_c(text) if unit.spelling == "ptx" else text
    return replace(source, text=text.replace("__kernel ", f"__kernel {size} ", 1))


def _with_exchange(text: str, unit: MatrixUnit) -> str:
    """Sub-groups that no CPU has hand their registers round in local memory."""
    share = f"__local {unit.register} (*exchange)[2][{unit.a_registers}]"
    text = text.replace("void multiply_accumulate(", f"void multiply_accumulate({share}, ")
    text = text.replace(
        "multiply_accumulate(&", f"multiply_accumulate(exchange + item / {unit.lanes} * 64, &"
    )
    local = f"__local {unit.register} exchange[ITEMS][2][{unit.a_registers}];"
    return re.sub(r"(__kernel .*?\)\n\{)", rf"\1\n    {local}", text, count=1, flags=re.DOTALL)


@contextmanager
def emulated_units(architecture: str = "sm_90") -> Iterator[None]:
    """Let a device pass for another, and give it plain C instead of matrix instructions."""
    generate, traits_of = launch.generate_gemm, prepare.traits_of

    def generate_without(problem: Any, config: Any, traits: Any) -> KernelSource:
        source = generate(problem, config, traits)
        unit = required_unit(problem.precision, traits)
        return without_units(source, unit)

    def imagined(device: Any) -> Any:
        return replace(
            traits_of(device),
            vendor="nvidia" if architecture.startswith("sm_") else "amd",
            architecture=architecture,
            local_memory_bytes=224 << 10,
        )

    with (
        patch.object(launch, "generate_gemm", generate_without),
        patch.object(prepare, "traits_of", imagined),
        patch.object(checks, "traits_of", imagined),
    ):
        yield
