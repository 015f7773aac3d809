"""Kernels run as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

clang compiles the generated text, and pocl's library of built-in functions, which is LLVM bitcode,
is linked into it. A small program gives each buffer its exact size, so that an access beyond it
meets what AddressSanitizer keeps around it, and runs a thread for each work-item of a group, one
group after the other.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from tests.support import clang

#: pocl's built-in functions for a CPU that every x86-64 since 2009 can stand in for.
_BUILT_INS = Path("/usr/share/pocl/kernel-x86_64-pc-linux-gnu-sse41.bc")
_LLVM = Path("/usr/lib/llvm-19")
#: What a machine must have; the last is of libclang-rt-19-dev.
NEEDED = clang.CLANG, _BUILT_INS, _LLVM / "lib/clang/19/lib/linux/libclang_rt.asan-x86_64.a"

#: Not optimised: the optimiser drops calls of functions whose calling convention pocl changed.
_FLAGS = ["-target", "x86_64-pc-linux-gnu", "-march=x86-64-v2", "-O0", "-g"]
_FLAGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

_HERE = Path(__file__).parent


class Fault(AssertionError):
    """What a sanitizer found."""


def run_sanitized(source, groups, arguments):
    """Run a kernel, and give the buffers among its arguments what is in them afterwards."""
    program = _program(source)
    given, got = program.with_suffix(".in"), program.with_suffix(".out")
    sizes = [number for one in (groups, source.local_size) for number in (*one, 1, 1)[:3]]
    with given.open("wb") as file:
        file.write(np.array([*sizes, len(arguments)], np.int64).tobytes())
        for value in arguments:
            file.write(np.array([value.nbytes, _is_buffer(value)], np.int64).tobytes())
            file.write(value.tobytes())
    run = subprocess.run(
        [str(program), str(given), str(got)],
        capture_output=True, text=True, check=False, timeout=60,
        env={"ASAN_OPTIONS": "detect_leaks=0", "PATH": f"/usr/bin:{_LLVM}/bin"},
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
    # AddressSanitizer leaves out arrays that are aligned to more than 32 bytes.
    text = clang.with_call(source, source.text.replace("aligned(64)", "aligned(32)"))
    kernel = clang.kernel_file(source, text)
    built, program = kernel.with_suffix(".o"), kernel.with_suffix("")
    built_ins = [*clang.with_built_ins(_BUILT_INS), "-include", _HERE / "host_built_ins.cl"]
    options = re.findall(r"-D *\S+", source.options)
    clang.run(clang.CLANG, *_FLAGS, *clang.OPENCL, *built_ins, *options, "-c", kernel, "-o", built)
    main = clang.built_object(_HERE / "host_program.c", *_FLAGS)  # which calls the kernel
    clang.run(clang.CLANG, *_FLAGS, main, built, "-o", program, "-lm", "-lpthread")
    return program
