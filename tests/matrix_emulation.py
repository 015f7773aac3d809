"""Matrix units in plain C over a sub-group's shuffles, so that kernels for them run on CPUs.

What is tested is which lane holds what, what is copied where, and all that is around the
instruction. Sums are formed in float32, in the order of k.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import checks
from async_emulation import in_plain_c

from pyclgemm import launch, prepare
from pyclgemm.kernel_source import KernelSource
from pyclgemm.matrix_units import MatrixUnit, required_unit

LOAD = re.compile(
    r'asm volatile\("ldmatrix\.sync\.aligned\.m8n8\.x4(?P<trans>\.trans)?\..*?"memory"\);',
    re.DOTALL,
)
UNROLLING = re.compile(r"#pragma unroll.*")
MULTIPLY = re.compile(r'asm\("mma\.sync.*?\);', re.DOTALL)

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

_MULTIPLY = """
    const int lane = get_sub_group_local_id();
    for (int i = 0; i < {results}; ++i) {{
        for (int depth = 0; depth < {k}; ++depth) {{
            const int holder = depth / {word} % 4;
            const int group = depth / {per_group};
            const int row = lane / 4, column = 2 * (lane % 4) + i % 2;
            const {register} x =
                sub_group_shuffle(a[i / 2 + {row_groups} * group], 4 * row + holder);
            const {register} y = sub_group_shuffle(b[group], 4 * column + holder);
            c[i] += {x} * {y};
        }}
    }}"""

#: What a unit makes of a register, at element `depth % word` of it.
_VALUE = {
    "float16": "vload_half(depth % 2, (const half *)&{0})",
    "bfloat16": "as_float(depth % 2 ? {0} & 0xffff0000 : {0} << 16)",
    "tf32": "as_float({0} & 0xffffe000)",
    "float64": "{0}",
}


def without_units(source: KernelSource, unit: MatrixUnit) -> KernelSource:
    """A kernel for a matrix unit, with plain C in the place of each instruction."""
    text = LOAD.sub(lambda load: _COLUMNS if load["trans"] else _ROWS, source.text)
    value = _VALUE[unit.operand]
    body = _MULTIPLY.format(
        results=unit.result_elements,
        k=unit.k,
        word=unit.word,
        per_group=4 * unit.word,
        row_groups=unit.row_groups,
        register="double" if unit.operand == "float64" else "uint",
        x=value.format("x"),
        y=value.format("y"),
    )
    text, count = MULTIPLY.subn(body, text)
    assert count == 1
    # Unrolled, the emulation compiles for seconds.
    text = UNROLLING.sub("#pragma unroll 1", text)
    size = "__attribute__((intel_reqd_sub_group_size(32)))"
    return replace(source, text=in_plain_c(text).replace("__kernel ", f"__kernel {size} ", 1))


@contextmanager
def emulated_units() -> Iterator[None]:
    """Let a device pass for an H100, and give it plain C instead of matrix instructions."""
    generate, traits_of = launch.generate_gemm, prepare.traits_of

    def generate_without(problem: Any, config: Any, traits: Any) -> KernelSource:
        source = generate(problem, config, traits)
        unit = required_unit(problem.precision, traits)
        return without_units(source, unit)

    def imagined(device: Any) -> Any:
        return replace(
            traits_of(device),
            vendor="nvidia",
            architecture="sm_90",
            local_memory_bytes=224 << 10,
        )

    with (
        patch.object(launch, "generate_gemm", generate_without),
        patch.object(prepare, "traits_of", imagined),
        patch.object(checks, "traits_of", imagined),
    ):
        yield
