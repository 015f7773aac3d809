"""Kernels run as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

clang compiles the generated text, and pocl's library of built-in functions, which is LLVM bitcode,
is linked into it. A small program gives each buffer its exact size, so that an access beyond it
meets what AddressSanitizer keeps around it, and runs a thread for each work-item of a group, one
group after the other.
"""

import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from tests.support.emulation.host import build_folder

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


class Fault(AssertionError):
    """What a sanitizer found."""


@cache
def missing():
    """What this machine lacks to run kernels so; empty if nothing."""
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


def run_sanitized(source, groups, arguments):
    """Run a kernel, and give the buffers among its arguments what is in them afterwards."""
    program = _program(source)
    given, got = program.with_suffix(".in"), program.with_suffix(".out")
    sizes = [number for one in (groups, source.local_size) for number in (*one, 1, 1)[:3]]
    with given.open("wb") as file:
        file.write(np.array(sizes, np.int64).tobytes())
        for value in arguments:
            file.write(np.array([value.nbytes, _is_buffer(value)], np.int64).tobytes())
            file.write(value.tobytes())
    run = subprocess.run(
        [str(program), str(given), str(got)],
        capture_output=True, text=True, check=False, timeout=60,
        env={"ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/usr/lib/llvm-19/bin"},
    )  # fmt: skip
    if run.returncode:
        raise Fault(f"{source.name}: {run.stderr[:4000]}")
    content = np.fromfile(got, np.uint8)
    before = {value.ctypes.data: value.copy() for value in filter(_is_buffer, arguments)}
    for value in filter(_is_buffer, arguments):
        after, content = content[: value.size], content[value.size :]
        # Each argument has memory of its own, of which a kernel writes one at most.
        if not np.array_equal(after, before[value.ctypes.data]):
            value[:] = after


def _is_buffer(value):
    return isinstance(value, np.ndarray)


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
