"""Schedules run as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

No OpenCL runtime takes part. clang compiles the generated text for the host, and pocl's library of
built-in functions, which is LLVM bitcode, is linked into it. A small program gives each buffer its
exact size, so that an access beyond it meets what AddressSanitizer keeps around it, and runs a
thread for each work-item of a group, one group after the other.
"""

import atexit
import platform
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from pyclgemm.codegen.launch import Buffer, Known, MatrixOffsets, Offset, Scalar

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

_HERE = Path(__file__).parent

_SCALARS = {
    "int": np.int32, "long": np.int64, "float": np.float32, "double": np.float64,
    "float2": np.complex64, "double2": np.complex128,
}  # fmt: skip


class Fault(AssertionError):
    """What a sanitizer found."""


@cache
def missing():
    """What this machine lacks to run schedules so; empty if nothing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "pocl's built-in functions are looked for on x86-64 Linux alone"
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    if not BUILT_INS.exists():
        return f"pocl's built-in functions are not at {BUILT_INS}"
    program = build_folder() / "nothing.c"
    program.write_text("int main(void) { return 0; }\n")
    command = [COMPILER, *_SANITIZERS, str(program), "-o", str(program.with_suffix(""))]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return f"{COMPILER} finds no sanitizers (libclang-rt-19-dev)"
    return ""


def run_schedule(schedule, buffers, offsets, numbers):
    """Run the launches of a schedule in order, and return the buffers afterwards.

    `buffers`, flat arrays that end where the memory does, and `offsets` are by role; `numbers` has
    "alpha" and "beta". Workspaces are NaN at first, but for counters, which are zeros. What a
    sanitizer finds is raised as a `Fault`.
    """
    held = {role: np.array(buffer).view(np.uint8) for role, buffer in buffers.items()}
    for name, size in schedule.workspaces.items():
        held[name] = np.full(size, 0 if name == "counters" else 0xFF, np.uint8)
    for launch in schedule.launches:
        _run(launch, held, offsets, numbers)
    return {role: held[role].view(buffer.dtype) for role, buffer in buffers.items()}


def _run(launch, held, offsets, numbers):
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
                value = _value_of(passed, offsets, numbers)
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


def _value_of(passed, offsets, numbers):
    match passed:
        case Known():
            return passed.value
        case Offset():
            return offsets.get(passed.role, 0)
        case Scalar():
            return numbers[passed.name]
    raise AssertionError(passed)


@cache
def build_folder():
    """Where programs are built, until the process ends."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _program(source):
    """The program that runs a kernel."""
    stem = build_folder() / f"kernel_{abs(hash(source)):x}"
    kernel = stem.with_suffix(".cl")
    # AddressSanitizer leaves out arrays that are aligned to more than 32 bytes.
    kernel.write_text(source.text.replace("aligned(64)", "aligned(32)"))
    types = ["void *" if argument.type else argument.kind for argument in source.arguments]
    arguments = [
        f"values[{i}]" if kind == "void *" else f"*({kind} *)values[{i}]"
        for i, kind in enumerate(types)
    ]
    defined = {
        "KERNEL": source.name,
        "PARAMETERS": ", ".join(types),
        "ARGUMENTS": ", ".join(arguments),
        "ARGUMENT_COUNT": len(types),
    }
    definitions = [f"-D{name}={value}" for name, value in defined.items()]
    built_ins = ["-include", str(_HERE / "host_built_ins.cl")]
    options = re.findall(r"-D *\S+", source.options)
    _compile([*_OPENCL, *built_ins, *options, "-c", str(kernel), "-o", f"{stem}.o"])
    program = [str(_HERE / "host_program.c"), f"{stem}.o", "-o", str(stem)]
    _compile([*definitions, *program, "-lm", "-lpthread"])
    return stem


def _compile(arguments):
    run = subprocess.run(
        [COMPILER, *_TARGET, *_SANITIZERS, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[:4000]
