"""Kernels for warpgroup units as host code: work-items take turns, instructions are emulated.

No CPU runtime lets work-items of a group wait for one another's memory, as these kernels do. So the
generated text is compiled by clang for the host, its inline PTX replaced by calls of functions in
``wgmma.c`` by macros of ``wgmma.h``, which also lets work-items wait.
"""

import ctypes
import mmap
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.device.traits import LOCAL_MEMORY_BYTES, traits_of
from tests.support import clang
from tests.support.emulation.host import kernels_on_the_host
from tests.support.emulation.ptx import in_calls
from tests.support.families import imagined_traits

HERE = Path(__file__).parent

_KINDS = {"f16": 0, "bf16": 1, "tf32": 2, "s8": 3}


def _product(name, results, given):
    """The call of a product of fragments, whose sums are the array `c`."""
    if not name.startswith("wgmma_mma_async"):
        return None
    n, kind = re.search(r"m64n(\d+)k\d+_[^_]+_([^_]+)_", name).groups()
    if len(given) == 8:  # A in four registers
        return f"emulated_wgmma_of_registers((ulong)c, {', '.join(given[:5])}, {n});"
    a, b, *_ = given
    turns = ", ".join(given[5:] or ["0", "0"])
    return f"emulated_wgmma((ulong)c, {a}, {b}, {n}, {_KINDS[kind]}, {turns});"


def as_host_code(source):
    """A kernel's text with calls in the place of inline PTX."""
    text = source.text.replace("return (uint)(size_t)p;", "return emulated_address((ulong)p);")
    text = re.sub(r"atomic_work_item_fence\(.*?\);", "emulated_fence();", text)
    text = in_calls(text, _product)
    # Unrolled, it compiles for long.
    return text.replace("#pragma unroll\n", "#pragma unroll 1\n")


_HOST = ["-target", "x86_64-unknown-linux-gnu", "-O1", "-fPIC"]


@cache
def _library(source):
    kernel = clang.kernel_file(source, clang.with_call(source, as_host_code(source)))
    library = kernel.with_suffix(".so")
    instructions = clang.built_object(HERE / "wgmma.c", *_HOST)  # which kernels call
    linked = ["-shared", "-nostdlib", instructions, "-o", library]
    opencl = [*clang.OPENCL, "-include", HERE / "wgmma.h", kernel]
    clang.run(clang.CLANG, *_HOST, *linked, *opencl)
    loaded = ctypes.CDLL(library)
    loaded.emulation_bytes.restype = ctypes.c_ulong
    return loaded


@cache
def _memory(size):
    """So many bytes, of which the system gives those that are used."""
    return mmap.mmap(-1, size)


#: Rows of loaded boxes of which nothing lay inside the matrix, for each group that ran.
rows_outside = []


def run(source, groups, arguments):
    """Run a kernel, one group after the other; it may copy from the buffers among its arguments."""
    library, (items,) = _library(source), source.local_size
    memory = ctypes.c_char.from_buffer(_memory(library.emulation_bytes(items)))
    buffers = [one for one in arguments if isinstance(one, np.ndarray)]
    slots = [
        np.uint64(one.ctypes.data) if isinstance(one, np.ndarray) else one for one in arguments
    ]
    given = b"".join(slot.tobytes().ljust(16, b"\0") for slot in slots)
    for group in range(groups[0]):
        library.emulation_begin()
        for buffer in buffers:
            address, size = ctypes.c_void_p(buffer.ctypes.data), ctypes.c_ulong(buffer.nbytes)
            library.emulation_allow(address, size)
        library.emulation_run(
            library.call_kernel, given, ctypes.byref(memory), items, group, groups[0]
        )
        assert library.emulation_fault() == 0, f"fault {library.emulation_fault()}"
        rows_outside.append(library.emulation_rows_outside())


@contextmanager
def warpgroups_of(queue, compute_units=2):
    """The device's own units, or a device that passes for an H100 of few units, if it can."""
    if traits_of(queue.device).wgmma:
        yield
        return
    if queue.device.type != cl.device_type.CPU:
        pytest.skip("the device has no warpgroup units, and the emulation wants a CPU's memory")
    clang.skip_without(clang.CLANG, "ld")
    if queue.device.platform.name.startswith("Portable"):
        pytest.skip("the device only holds the memory: one CPU runtime shows it all")
    h100 = {
        "vendor": "nvidia", "architecture": "sm_90", "wgmma": True, "compute_units": compute_units,
        "local_memory_bytes": LOCAL_MEMORY_BYTES["sm_90"],
    }  # fmt: skip
    with imagined_traits(**h100), kernels_on_the_host(run, lambda source: bool(source.target)):
        yield
