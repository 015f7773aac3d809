"""Matrix units in plain C, so that kernels for them run on CPUs: lanes meet in local memory.

What is tested is which lane holds what, what is copied where, and all that is around the
instruction. Where the instructions take their operands from and leave the result is told here
again, by lane and element and as the vendors' documents do, not taken from what is tested. Sums
are formed in the type of the result, in the order of k.
"""

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyopencl as cl
import pytest

from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.device.traits import miscompiles_tiles, traits_of
from tests.support.emulation.ptx import in_plain_c
from tests.support.families import changed_kernels, imagined_traits

MULTIPLY = re.compile(r'asm\("mma\.sync.*?\);|\*c = __builtin_amdgcn_.*?;', re.DOTALL)

#: What a lane knows of the others: `exchange` has what each of its sub-group handed out.
_MEET = "barrier(CLK_LOCAL_MEM_FENCE);"

_LOAD = f"""
    const int lane = get_local_id(0) % 32;
    exchange[lane][0][0] = (ulong)row;
    {_MEET}
    for (int j = 0; j < 4; ++j) {{
        BODY
    }}
    {_MEET}"""

_ROWS = _LOAD.replace(
    "BODY",
    """
        const ulong start = exchange[8 * j + lane / 4][0][0];
        to[j] = ((const __local uint *)(size_t)start)[lane % 4];""",
)

_COLUMNS = _LOAD.replace(
    "BODY",
    """
        const ulong even = exchange[8 * j + 2 * (lane % 4)][0][0];
        const ulong odd = exchange[8 * j + 2 * (lane % 4) + 1][0][0];
        const uint low = ((const __local ushort *)(size_t)even)[lane / 4];
        const uint high = ((const __local ushort *)(size_t)odd)[lane / 4];
        to[j] = low | high << 16;""",
)


@dataclass(frozen=True)
class Places:
    """Where an instruction finds its operands and leaves the result, as expressions of C."""

    #: Which lane holds the entry at `position` (a row of A, a column of B) and `depth`, and where
    #: among its own; `word` is how many there are in 32 bits.
    lane: str
    element: str
    #: The entry of the result that is element `i` of `lane`.
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
    ),  # fmt: skip
    "mfma": Places(
        "position + 16 * (depth / (K / 4))", "depth % (K / 4)", "4 * (lane / 16) + i", "lane % 16"
    ),
    "mfma, float64": Places("position + 16 * depth", "0", "4 * i + lane / 16", "lane % 16"),
}


def _places_of(unit):
    if unit.spelling == "ptx":
        return _PLACES["mma.sync"]
    if "_mfma_" in unit.instruction:
        return _PLACES["mfma, float64" if unit.operand == "float64" else "mfma"]
    if "_gfx12" not in unit.instruction:
        return _PLACES["gfx11"]
    return _PLACES["gfx12" if unit.operand == "int8" else "gfx12, 16 bits"]


_MULTIPLY = """
    const int word = {unit.word}, K = {unit.k};
    const int lane = get_local_id(0) % {unit.lanes};
    for (int i = 0; i < {unit.a_registers}; ++i) {{
        exchange[lane][0][i] = {to_bits}({first}[i]);
    }}
    for (int i = 0; i < {unit.b_registers}; ++i) {{
        exchange[lane][1][i] = {to_bits}({second}[i]);
    }}
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < {unit.result_elements}; ++i) {{
        const int row = {places.row}, column = {places.column};
        {sum} sum = 0;
        for (int depth = 0; depth < K; ++depth) {{
            {sum} factors[2];
            for (int operand = 0; operand < 2; ++operand) {{
                const int position = operand ? column : row;
                const int groups = (operand ? {unit.n} : {unit.m}) / 8;
                const int element = {places.element};
                const {unit.register} one =
                    {of_bits}(exchange[{places.lane}][operand][element / word]);
                factors[operand] = {value};
            }}
            sum += factors[0] * factors[1];
        }}
        {add}
    }}
    barrier(CLK_LOCAL_MEM_FENCE);"""

#: What a unit makes of a register, at `element` of the lane's share.
_VALUE = {
    "float16": "half_of(one >> 16 * (element % 2))",
    "bfloat16": "as_float(element % 2 ? one & 0xffff0000 : one << 16)",
    "tf32": "as_float(one & 0xffffe000)",
    "float64": "one",
    "int8": "(char)(one >> 8 * (element % 4))",
}

#: A half by its bits: a pointer to them as another type may read them before they are there.
_HALVES = """
static inline float half_of(const uint bits)
{
    const uint size = (bits & 0x7fff) << 13;
    const float x = size < 0x0f800000 ? as_float(size) * 0x1p112f : as_float(size | 0x7f800000);
    return bits & 0x8000 ? -x : x;
}

// Nearest, ties to even.
static inline uint bits_of(const float x)
{
    const uint size = as_uint(fabs(x) * 0x1p-112f);
    const uint rounded = fabs(x) < 65520 ? (size + 0xfff + (size >> 13 & 1)) >> 13
        : isnan(x) ? 0x7e00 : 0x7c00;
    return x < 0 ? rounded | 0x8000 : rounded;
}
"""

_ADD = "{result}[i] += sum;"
_ADD_PACKED = """const int shift = i % 2 * 16;
        const uint added = bits_of(half_of({result}[i / 2] >> shift) + sum);
        {result}[i / 2] = ({result}[i / 2] & ~(0xffffu << shift)) | added << shift;"""

#: Instructions but for the product, and what stands in their place.
_IN_C = {
    r'asm volatile\("ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\..*?"memory"\);': _COLUMNS,
    r'asm volatile\("ldmatrix\.sync\.aligned\.m8n8\.x4\..*?"memory"\);': _ROWS,
    r'asm volatile\("ld\.shared\.f(32|64)[^\n]*?"memory"\);': "loaded = *from;",
    r'asm volatile\("ld\.shared\.v2\.f64.*?"memory"\);': "real = from->x; imaginary = from->y;",
    r'asm volatile\("bar\.warp\.sync 0xffffffff;" : : : "memory"\);': _MEET,
    r'asm\("ex2\..*?\);': "y = exp2(x);",
    r'asm\("rcp\..*?\);': "y = 1 / x;",
    r'asm\("max\..*?\);': "y = x < 0 ? 0 : x;",
    r'asm\("\{.*?cvt\.f32\.f16.*?\);': "first = half_of(both); second = half_of(both >> 16);",
    r'asm\("add\.rn\.f16x2.*?\);': "both = bits_of(half_of(first) + half_of(second))"
    " | bits_of(half_of(first >> 16) + half_of(second >> 16)) << 16;",
    # Unrolled, the emulation compiles for seconds.
    r"#pragma unroll[^\n]*": "#pragma unroll 1",
}


def without_units(source, unit):
    """A kernel for a matrix unit, with plain C in the place of each instruction."""
    text = source.text
    for instruction, instead in _IN_C.items():
        text = re.sub(instruction, instead, text, flags=re.DOTALL)
    assert not re.search(r"\bif \((0|1|true|false)\)", text), (
        "what is decided beforehand is left out"
    )
    call = MULTIPLY.search(text)
    assert call and text.count(unit.instruction.split("(")[0]) == 1
    builtin = unit.spelling == "builtin"
    # The operand that the instruction is given in the place of A.
    first, second = ("a", "b")
    if builtin and re.search(r"\b([ab])\[", call[0])[1] == "b":
        first, second = "b", "a"
    places, is_double = _places_of(unit), unit.register == "double"
    body = _MULTIPLY.format(
        unit=unit,
        places=places,
        to_bits="as_ulong" if is_double else "(ulong)",
        of_bits="as_double" if is_double else "(uint)",
        first=first,
        second=second,
        sum={"float64": "double", "int8": "int"}.get(unit.operand, "float"),
        value=_VALUE[unit.operand],
        add=(_ADD_PACKED if unit.packed_sums else _ADD).format(result="(*c)" if builtin else "c"),
    )
    text, count = MULTIPLY.subn(lambda _: body, text)
    assert count == 1
    text = _HALVES + _with_exchange(text, unit)
    return replace(source, text=text if builtin else in_plain_c(text))


def _with_exchange(text, unit):
    """Give the functions of a kernel local memory in which the lanes of a sub-group meet."""
    share = f"[2][{unit.a_registers}]"
    text = re.sub(
        r"(load_[ab]|multiply_accumulate)\((?=uint \*to|(uint|int|float|double|sums) \*c)",
        rf"\1(__local ulong (*exchange){share}, ",
        text,
    )
    text = re.sub(
        r"(load_[ab]|multiply_accumulate)\((?=[ab]_fragments|&?accumulators)",
        rf"\1(exchange + item / {unit.lanes} * {unit.lanes}, ",
        text,
    )
    # Intel's compiler may crash as it joins work-items to vectors here; joined they are no faster.
    text = text.replace("__kernel ", "__kernel __attribute__((intel_vec_len_hint(1))) ")
    local = f"__local ulong exchange[ITEMS]{share};"
    return re.sub(r"(__kernel .*?\)\n\{)", rf"\1\n    {local}", text, count=1, flags=re.DOTALL)


def skip_without_emulation(device, *, may_be_slow=False):
    """Skip a test where emulated kernels do not run, or compile for seconds."""
    traits = traits_of(device)
    if device.type != cl.device_type.CPU:
        pytest.skip("the emulation is for CPUs")
    if miscompiles_tiles(traits):
        pytest.skip(f"{traits.platform} {traits.driver} compiles such kernels wrongly")
    if not may_be_slow and 32 not in traits.sub_group_sizes:
        pytest.skip("the emulation's barriers take this runtime seconds to compile")


@contextmanager
def emulated_units(architecture="sm_90"):
    """Let a device pass for another, and give it plain C instead of matrix instructions."""

    def emulated(source, problem, config, traits):
        return without_units(source, required_unit(problem.precision, traits))

    traits = {
        "vendor": "nvidia" if architecture.startswith("sm_") else "amd",
        "architecture": architecture,
        "local_memory_bytes": 224 << 10,
    }
    with changed_kernels(emulated), imagined_traits(**traits):
        yield
