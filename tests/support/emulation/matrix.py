"""Matrix units in plain C, so that kernels for them run on CPUs: lanes meet in local memory.

What is tested is which lane holds what, what is copied where, and all that is around the
instruction. Where the instructions take their operands from and leave the result is told again in
``matrix.cl``, not taken from what is tested. Sums are formed in the type of the result, in the
order of k.
"""

import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyopencl as cl
import pytest

from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.device.traits import traits_of
from tests.support.emulation.ptx import in_plain_c
from tests.support.families import changed_kernels, imagined_traits, unoptimised

_EMULATION = Path(__file__).with_name("matrix.cl").read_text()
_MULTIPLY = re.compile(r'asm\("mma\.sync.*?\);|\*c = __builtin_amdgcn_.*?;', re.DOTALL)


def _layout_of(unit):
    """The macro of ``matrix.cl`` for what the lanes hold."""
    if unit.spelling == "ptx":
        return "UNIT_MMA_SYNC"
    if "_mfma_" in unit.instruction:
        return "UNIT_MFMA_FLOAT64" if unit.operand == "float64" else "UNIT_MFMA"
    if "_gfx12" not in unit.instruction:
        return "UNIT_GFX11"
    return "UNIT_GFX12_INT8" if unit.operand == "int8" else "UNIT_GFX12"


def without_units(source, unit):
    """A kernel for a matrix unit, with plain C in the place of each instruction."""
    # Unrolled, the emulation compiles for seconds.
    text = re.sub(r"#pragma unroll[^\n]*", "#pragma unroll 1", source.text)
    assert not re.search(r"\bif \((0|1|true|false)\)", text), (
        "what is decided beforehand is left out"
    )
    call = _MULTIPLY.search(text)
    assert call and text.count(unit.instruction.split("(")[0]) == 1
    builtin, is_double = unit.spelling == "builtin", unit.register == "double"
    # The operand that the instruction is given in the place of A.
    is_swapped = builtin and re.search(r"\b([ab])\[", call[0])[1] == "b"
    operands = "b, a" if is_swapped else "a, b"
    product = f"emulated_multiply(exchange, ({unit.result_register} *)c, {operands});"
    text, count = _MULTIPLY.subn(product, text)
    assert count == 1
    facts = {
        _layout_of(unit): "",
        "UNIT_M": unit.m, "UNIT_N": unit.n, "UNIT_K": unit.k, "UNIT_LANES": unit.lanes,
        "UNIT_WORD": unit.word, "UNIT_A_REGISTERS": unit.a_registers,
        "UNIT_B_REGISTERS": unit.b_registers, "UNIT_RESULT_ELEMENTS": unit.result_elements,
        "UNIT_RESULT": unit.result_register, "UNIT_PACKED_SUMS": int(unit.packed_sums),
        "UNIT_REGISTER": unit.register, "UNIT_BITS": "as_ulong" if is_double else "(ulong)",
        "UNIT_WHOLE": "ulong" if is_double else "uint",
        "UNIT_VALUE": f"OF_{unit.operand.upper()}",
        "UNIT_SUM": {"float64": "double", "int8": "int"}.get(unit.operand, "float"),
    }  # fmt: skip
    defines = "".join(f"#define {name} {fact}\n" for name, fact in facts.items())
    text = in_plain_c(defines + _EMULATION + _with_exchange(text, unit))
    # Nor is there anything to learn from how such a text is optimised.
    return unoptimised(replace(source, text=text))


def _with_exchange(text, unit):
    """Give the functions of a kernel local memory in which the lanes of a sub-group meet."""
    text = re.sub(
        r"(load_[ab]|multiply_accumulate)\((?=uint \*to|(uint|int|float|double|sums) \*c)",
        r"\1(handed_out exchange, ",
        text,
    )
    text = re.sub(
        r"(load_[ab]|multiply_accumulate)\((?=[ab]_fragments|&?accumulators)",
        rf"\1(exchange + item / {unit.lanes} * {unit.lanes}, ",
        text,
    )
    # Intel's compiler may crash as it joins work-items to vectors here; joined they are no faster.
    text = text.replace("__kernel ", "__kernel __attribute__((intel_vec_len_hint(1))) ")
    local = "__local ulong exchange[ITEMS][2][UNIT_A_REGISTERS];"
    return re.sub(r"(__kernel .*?\)\n\{)", rf"\1\n    {local}", text, count=1, flags=re.DOTALL)


def skip_without_emulation(device):
    """Skip a test where emulated kernels do not run, or compile for seconds."""
    traits = traits_of(device)
    if device.type != cl.device_type.CPU:
        pytest.skip("the emulation is for CPUs")
    if traits.is_pocl_5_0:
        pytest.skip(f"{traits.platform} {traits.driver} compiles such kernels wrongly")
    if 32 not in traits.sub_group_sizes:
        pytest.skip("the emulation's barriers take this runtime seconds to compile")


@contextmanager
def emulated_units(device, architecture="sm_90"):
    """Let a device pass for another, and give it plain C instead of matrix instructions."""
    skip_without_emulation(device)

    def emulated(source, problem, config, traits):
        return without_units(source, required_unit(problem.precision, traits))

    traits = {
        "vendor": "nvidia" if architecture.startswith("sm_") else "amd",
        "architecture": architecture,
        "local_memory_bytes": 224 << 10,
    }
    with changed_kernels(emulated), imagined_traits(**traits):
        yield
