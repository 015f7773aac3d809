"""Assemble kernels for NVIDIA's sm_90a without a device: clang's OpenCL C to PTX, and ptxas.

The driver's own compiler is another one; what ptxas makes of the registers it is given, and what it
says of warpgroup instructions, is the same.
"""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyclgemm.device.probe import lift

_LIBRARY = Path("/usr/lib/clc/nvptx64--nvidiacl.bc")

#: The newest that both clang 19 and older assemblers know.
_PTX_VERSION = b".version 8.4"

#: The fence's name in the driver's OpenCL C, and in libclc's.
_FENCE = "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device)"


@dataclass(frozen=True)
class Assembled:
    """What ptxas says of a kernel."""

    registers: int  # of a work-item, at the start
    spilled: int  # bytes of registers that are stored and loaded again, in all functions
    stack_bytes: int  # of a work-item, in all functions: arrays that are not in registers
    local_bytes: int  # of a work-group
    complaints: tuple[str, ...]  # performance losses that it states


@cache
def _ptxas():
    if found := shutil.which("ptxas"):
        return found
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations or () if package else ()
    found = (path for folder in folders for path in Path(folder).glob("*/bin/ptxas"))
    return str(next(found, "")) or None


def missing():
    """What this machine lacks; empty if nothing."""
    lacking = [] if shutil.which("clang-19") else ["clang-19"]
    lacking += [] if _LIBRARY.exists() else ["libclc-19"]
    lacking += [] if _ptxas() else ["ptxas (of the package nvidia-cuda-nvcc)"]
    return f"assembling for NVIDIA needs {', '.join(lacking)}" if lacking else ""


def assemble(source, folder):
    kernel, ptx = folder / "kernel.cl", folder / "kernel.ptx"
    text = re.sub(r"\basm\b", "__asm__", source.text).replace(_FENCE, "__nvvm_membar_gl()")
    kernel.write_text(text)
    subprocess.run(
        [
            "clang-19", "-x", "cl", "-cl-std=CL1.2", "-target", "nvptx64-nvidia-nvcl", "-w",
            *_frontend("-target-cpu", "sm_90", "-target-feature", "+ptx80"),
            *_frontend("-finclude-default-header", "-mlink-builtin-bitcode", str(_LIBRARY)),
            "-nogpulib", "-O3", "-S", str(kernel), "-o", str(ptx),
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    binary = ptx.read_bytes()
    binary = lift(binary, source.target) if source.target else binary
    binary = re.sub(rb"\.version \d\.\d", _PTX_VERSION, binary)
    # clang leaves the work-group's size out, by which registers are counted.
    size = b"\n)\n.reqntid %d, 1, 1\n{" % source.local_size[0]
    ptx.write_bytes(re.sub(rb"\n\)\n\{", size, binary, count=1))
    said = subprocess.run(
        [_ptxas(), "-arch=sm_90a", "-v", str(ptx), "-o", str(folder / "kernel.cubin")],
        check=True, capture_output=True, text=True,
    ).stderr  # fmt: skip
    [registers] = re.findall(r"Used (\d+) registers", said)
    return Assembled(
        registers=int(registers),
        spilled=sum(map(int, re.findall(r"(\d+) bytes spill", said))),
        stack_bytes=sum(map(int, re.findall(r"(\d+) bytes stack frame", said))),
        local_bytes=sum(map(int, re.findall(r"(\d+) bytes smem", said))),
        complaints=tuple(re.findall(r"Potential Performance Loss: (.*)", said)),
    )


def _frontend(*arguments):
    return [word for argument in arguments for word in ("-Xclang", argument)]
