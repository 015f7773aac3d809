"""Schedules run as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

No OpenCL runtime takes part. clang compiles the generated text for the host, and pocl's library of
built-in functions, which is LLVM bitcode, is linked into it. A small program gives each buffer its
exact size, so that an access beyond it meets what AddressSanitizer keeps around it, and runs a
thread for each work-item of a group, one group after the other.
"""

from __future__ import annotations

import atexit
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pyclgemm.codegen.launch import (
    Buffer,
    Known,
    Launch,
    MatrixOffsets,
    Offset,
    Scalar,
    Schedule,
)
from pyclgemm.codegen.source import KernelSource

COMPILER = "clang-19"

#: pocl's built-in functions for a CPU that every x86-64 since 2009 can stand in for.
BUILT_INS = Path("/usr/share/pocl/kernel-x86_64-pc-linux-gnu-sse41.bc")

#: Not optimised: the optimiser drops calls of functions whose calling convention pocl changed.
_TARGET = ["-target", "x86_64-pc-linux-gnu", "-march=x86-64-v2", "-O0", "-g", "-w"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_OPENCL = [
    "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header",
    "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(BUILT_INS),
]  # fmt: skip

#: What work-items ask about themselves, answered by the program below.
_WORK_ITEM = """
size_t host_local_id(uint);
size_t host_group_id(uint);
size_t host_groups(uint);
size_t host_local_size(uint);
void host_barrier(void);
#define OVERLOADED static inline __attribute__((overloadable))
#define get_local_id(d) host_local_id(d)
#define get_group_id(d) host_group_id(d)
#define get_num_groups(d) host_groups(d)
#define get_local_size(d) host_local_size(d)
#define get_global_id(d) (host_group_id(d) * host_local_size(d) + host_local_id(d))
#define barrier(flags) host_barrier()
#define atomic_inc(p) __sync_fetch_and_add(p, 1)
#define mem_fence(flags) __sync_synchronize()
#define atomic_work_item_fence(flags, order, scope) __sync_synchronize()
"""

#: Accesses by vector, in text that sanitizers see: pocl's own were compiled without them.
_VECTORS = """
OVERLOADED {type}{n} host_load{n}(size_t i, const {space} {type} *p)
{{
    {type}{n} loaded;
    for (int j = 0; j < {n}; ++j) {{
        loaded[j] = p[i * {n} + j];
    }}
    return loaded;
}}
OVERLOADED void host_store{n}({type}{n} x, size_t i, {space} {type} *p)
{{
    for (int j = 0; j < {n}; ++j) {{
        p[i * {n} + j] = x[j];
    }}
}}
"""
_WIDTHS = (2, 4, 8, 16)
_TYPES = ("char", "uchar", "short", "ushort", "int", "uint", "float", "double")
_NAMES = ("load", "store", "load_half", "store_half", "loada_half", "storea_half")

#: Halves, which any kernel may hold in memory; `loada` and `storea` are aligned.
_HALVES = """
OVERLOADED float{n} host_loada_half{n}(size_t i, const {space} half *p)
{{
    const half{n} loaded = ((const {space} half{n} *)p)[i];
    float{n} x;
    for (int j = 0; j < {n}; ++j) {{
        x[j] = loaded[j];
    }}
    return x;
}}
OVERLOADED void host_storea_half{n}(float{n} x, size_t i, {space} half *p)
{{
    half{n} stored;
    for (int j = 0; j < {n}; ++j) {{
        stored[j] = (half)x[j];
    }}
    (({space} half{n} *)p)[i] = stored;
}}
OVERLOADED float{n} host_load_half{n}(size_t i, const {space} half *p)
{{
    float{n} x;
    for (int j = 0; j < {n}; ++j) {{
        x[j] = p[i * {n} + j];
    }}
    return x;
}}
OVERLOADED void host_store_half{n}(float{n} x, size_t i, {space} half *p)
{{
    for (int j = 0; j < {n}; ++j) {{
        p[i * {n} + j] = (half)x[j];
    }}
}}
"""
_SPACES = ("__global", "__local", "__private")


@cache
def _accesses() -> str:
    """Functions in the place of OpenCL's `vload` and `vstore`."""
    lines = [
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
        "#define vload_half(i, p) ((float)(p)[i])",
        "#define vstore_half(x, i, p) ((p)[i] = (half)(x))",
    ]
    for n in _WIDTHS:
        for space in _SPACES:
            lines += [_VECTORS.format(n=n, type=kind, space=space) for kind in _TYPES]
            lines.append(_HALVES.format(n=n, space=space))
        lines += [f"#define v{what}{n} host_{what}{n}" for what in _NAMES]
    return "\n".join(lines)


#: Runs a kernel on the buffers and numbers of one file, and writes the buffers to another. A file
#: starts with groups and work-items along three dimensions; each argument has its size, and 1 if it
#: is a buffer.
_PROGRAM = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef float float2 __attribute__((ext_vector_type(2)));
typedef double double2 __attribute__((ext_vector_type(2)));

enum {{ COUNT = {count} }};
static long sizes[6], heads[COUNT][2];
static void *values[COUNT];
static pthread_barrier_t meeting;
static __thread long item, group;

static long along(const long *counts, long index, unsigned d)
{{
    for (unsigned i = 0; i < d; ++i) {{
        index /= counts[i];
    }}
    return index % counts[d];
}}

size_t host_local_id(unsigned d) {{ return along(sizes + 3, item, d); }}
size_t host_group_id(unsigned d) {{ return along(sizes, group, d); }}
size_t host_groups(unsigned d) {{ return sizes[d]; }}
size_t host_local_size(unsigned d) {{ return sizes[3 + d]; }}
void host_barrier(void) {{ pthread_barrier_wait(&meeting); }}

void {name}({parameters});

static void *work(void *number)
{{
    item = (long)number;
    for (group = 0; group < sizes[0] * sizes[1] * sizes[2]; ++group) {{
        {name}({arguments});
        host_barrier();
    }}
    return 0;
}}

int main(int argc, char **argv)
{{
    FILE *file = fopen(argv[1], "rb");
    fread(sizes, sizeof sizes, 1, file);
    for (int i = 0; i < COUNT; ++i) {{
        fread(heads[i], sizeof heads[i], 1, file);
        values[i] = malloc(heads[i][0]);
        fread(values[i], 1, heads[i][0], file);
    }}
    fclose(file);
    const long items = sizes[3] * sizes[4] * sizes[5];
    pthread_barrier_init(&meeting, 0, items);
    pthread_t *threads = malloc(items * sizeof *threads);
    for (long i = 0; i < items; ++i) {{
        pthread_create(&threads[i], 0, work, (void *)i);
    }}
    for (long i = 0; i < items; ++i) {{
        pthread_join(threads[i], 0);
    }}
    file = fopen(argv[2], "wb");
    for (int i = 0; i < COUNT; ++i) {{
        if (heads[i][1]) {{
            fwrite(values[i], 1, heads[i][0], file);
        }}
    }}
    return fclose(file);
}}
"""

_SCALARS: dict[str, Any] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "float2": np.complex64,
    "double2": np.complex128,
}


class Fault(AssertionError):
    """What a sanitizer found."""


@cache
def missing() -> str:
    """What this machine lacks to run schedules so; empty if nothing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "pocl's built-in functions are looked for on x86-64 Linux alone"
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    if not BUILT_INS.exists():
        return f"pocl's built-in functions are not at {BUILT_INS}"
    program = _folder() / "nothing.c"
    program.write_text("int main(void) { return 0; }\n")
    command = [COMPILER, *_SANITIZERS, str(program), "-o", str(program.with_suffix(""))]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return f"{COMPILER} finds no sanitizers (libclang-rt-19-dev)"
    return ""


def run_schedule(
    schedule: Schedule,
    buffers: Mapping[str, np.ndarray],
    offsets: Mapping[str, int],
    numbers: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Run the launches of a schedule in order, and return the buffers afterwards.

    Parameters
    ----------
    schedule : Schedule
        What is run. Its workspaces are NaN at first, but for counters, which are zeros.
    buffers, offsets : mapping
        By role. Buffers are flat arrays and end where the memory does.
    numbers : mapping
        "alpha" and "beta".

    Raises
    ------
    Fault
        If a sanitizer finds one.
    """
    held = {role: np.array(buffer).view(np.uint8) for role, buffer in buffers.items()}
    for name, size in schedule.workspaces.items():
        held[name] = np.full(size, 0 if name == "counters" else 0xFF, np.uint8)
    for launch in schedule.launches:
        _run(launch, held, offsets, numbers)
    return {role: held[role].view(buffer.dtype) for role, buffer in buffers.items()}


def _run(
    launch: Launch,
    held: dict[str, np.ndarray],
    offsets: Mapping[str, int],
    numbers: Mapping[str, Any],
) -> None:
    program = _program(launch.source)
    given, got = program.with_suffix(".in"), program.with_suffix(".out")
    written = []
    groups, items = (
        (*sizes, *[1] * (3 - len(sizes))) for sizes in (launch.groups, launch.source.local_size)
    )
    with given.open("wb") as file:
        file.write(np.array([*groups, *items], np.int64).tobytes())
        for argument, passed in zip(launch.source.arguments, launch.arguments, strict=True):
            if argument.is_pointer:
                assert isinstance(passed, Buffer | MatrixOffsets)
                suffix = "_offsets" if isinstance(passed, MatrixOffsets) else ""
                written.append(passed.role + suffix)
                content = held[written[-1]].tobytes()
            else:
                if isinstance(passed, Known):
                    value = passed.value
                elif isinstance(passed, Offset):
                    value = offsets.get(passed.role, 0)
                else:
                    assert isinstance(passed, Scalar)
                    value = numbers[passed.name]
                content = _SCALARS[argument.kind](value).tobytes()
            file.write(np.array([len(content), argument.is_pointer], np.int64).tobytes())
            file.write(content)
    run = subprocess.run(
        [str(program), str(given), str(got)],
        capture_output=True, text=True, check=False, timeout=60,
        env={"ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/usr/lib/llvm-19/bin"},
    )  # fmt: skip
    if run.returncode:
        raise Fault(f"{launch.source.name}: {run.stderr[:4000]}")
    content = got.read_bytes()
    start = 0
    for role in written:
        size = held[role].size
        after = np.frombuffer(content[start : start + size], np.uint8)
        # Each argument has memory of its own, of which a kernel writes one at most.
        if not np.array_equal(after, held[role]):
            held[role] = after.copy()
        start += size


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _program(source: KernelSource) -> Path:
    """The program that runs a kernel."""
    stem = _folder() / f"kernel_{abs(hash(source)):x}"
    kernel, main = stem.with_suffix(".cl"), stem.with_suffix(".c")
    kernel.write_text(f"{_WORK_ITEM}{_accesses()}\n#line 1\n{source.text}")
    types = ["void *" if argument.type else argument.kind for argument in source.arguments]
    arguments = [
        f"values[{i}]" if kind == "void *" else f"*({kind} *)values[{i}]"
        for i, kind in enumerate(types)
    ]
    main.write_text(
        _PROGRAM.format(
            count=len(types),
            name=source.name,
            parameters=", ".join(types),
            arguments=", ".join(arguments),
        )
    )
    definitions = re.findall(r"-D *\S+", source.options)
    _compile([*_OPENCL, *definitions, "-c", str(kernel), "-o", f"{stem}.o"])
    _compile([str(main), f"{stem}.o", "-o", str(stem), "-lm", "-lpthread"])
    return stem


def _compile(arguments: list[str]) -> None:
    run = subprocess.run(
        [COMPILER, *_TARGET, *_SANITIZERS, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[:4000]
