"""Kernels that clang compiles: for the host, and for GPUs that need not be there."""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

CLANG = "clang-19"
OPENCL = ["-x", "cl", "-cl-std=CL1.2", "-w", "-Xclang=-finclude-default-header"]

_FOLDER = tempfile.TemporaryDirectory()
#: Where programs are built, until the process ends.
BUILT = Path(_FOLDER.name)


def with_built_ins(library):
    """The flags by which a library of OpenCL's functions, in LLVM bitcode, is linked."""
    return ["-Xclang=-mlink-builtin-bitcode", f"-Xclang={library}"]


def skip_without(*needed):
    """Skip a test where this machine lacks one of these programs or files."""
    if lacking := [str(one) for one in needed if not (shutil.which(one) or Path(one).exists())]:
        pytest.skip(f"this machine lacks {' and '.join(lacking)}")


@cache
def built_object(source, *flags):
    """The object file of a file in C."""
    built = BUILT / f"{source.stem}.o"
    run(CLANG, *flags, "-c", source, "-o", built)
    return built


def kernel_file(source, text):
    """A file for a kernel that is compiled with another text."""
    file = BUILT / f"kernel_{abs(hash(source)):x}.cl"
    file.write_text(text)
    return file


#: A function that calls a kernel: `given` is where the arguments are, 16 bytes each.
_CALL = """
void call_kernel(ulong given)
{{
    {name}({arguments});
}}
"""


def with_call(source, text):
    """The text of a kernel with a function `call_kernel`, by which C calls any kernel."""
    kinds = ["__global void *" if one.type else one.kind for one in source.arguments]
    arguments = [f"*(__global {kind}*)(given + {16 * i})" for i, kind in enumerate(kinds)]
    return text + _CALL.format(name=source.name, arguments=", ".join(arguments))


def run(program, *arguments):
    """What a compiler says, which must succeed."""
    ended = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[:4000]
    return ended.stderr
