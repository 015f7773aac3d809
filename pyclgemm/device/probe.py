"""Probes: tiny kernels find out what a device's compiler and driver can do.

A device's presence and its list of extensions are not reliable: some runtimes list devices on
which no kernel builds, and NVIDIA's compiler has half arithmetic that it does not advertise.

NVIDIA's compiler targets sm_90, whose assembler refuses ``wgmma`` and ``setmaxnreg``; no build
option selects sm_90a, which has them (PTX ISA, "Directives: .target"). But a program's binary is
its PTX text, and a program can be made from a binary. So inline PTX has these instructions as
comments that begin with `MARK`, in which the compiler fills in the registers. Between compiler and
assembler, `lift` turns the comments into instructions.
"""

import itertools
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import UnsupportedError
from ..host.kernels import new_kernel
from ..resources import filled

#: The prefix that hides an instruction from the compiler.
MARK = "//@"

#: Where PTX text states its target.
_TARGET = re.compile(rb"^(\.target\s+)(\w+)", re.MULTILINE)

#: Errors that mean that a probe failed: OpenCL's, and pyopencl's for an unreadable log or binary.
#: Others, such as the TimeoutError of a signal handler, do not mean that the device refused.
REFUSALS = (cl.Error, LookupError, ValueError, TypeError, AttributeError)

#: Macros that tell the compiler's target processor.
MACROS = (
    "FP_FAST_FMAF", "FP_FAST_FMA", "__x86_64__", "__aarch64__", "__SSE4_2__", "__AVX2__",
    "__BMI2__", "__FMA__", "__AVX512F__", "__AVX512BW__", "__AVX512DQ__", "__AVX512VL__",
)  # fmt: skip

#: How a work-item reads another's register within its sub-group, in PTX or OpenCL C.
SHFL = "shfl.sync"
KHR_SHUFFLE = "sub_group_shuffle"
INTEL_SHUFFLE = "intel_sub_group_shuffle"


class PtxStepError(ValueError):
    """A binary is not PTX text that `lift` can change."""


def lift(binary: bytes, target: str) -> bytes:
    """Turn the marked comments of a PTX text into instructions of `target`."""
    found = _TARGET.findall(binary)
    if len(found) != 1:
        start = binary[:40].decode("ascii", "replace")
        raise PtxStepError(
            f"the binary states {len(found)} targets; PTX text with one is wanted "
            f"(it begins with {start!r})"
        )
    ((_, present),) = found
    wanted = target.rstrip("af").encode()
    if present != wanted:
        raise PtxStepError(
            f"the binary is for {present.decode()}; {wanted.decode()} is wanted, to become {target}"
        )
    if MARK.encode() not in binary:
        raise PtxStepError(f"the binary has no instruction behind {MARK}: comments were dropped")
    lifted = _TARGET.sub(rb"\g<1>" + target.encode(), binary)
    return lifted.replace(MARK.encode(), b"")


@dataclass(frozen=True)
class Probe:
    """The results of the probes of a device; `DeviceTraits` explains the fields."""

    float64: bool
    float16: bool
    macros: frozenset[str]  # those of `MACROS` that the compiler defines
    fence_options: str | None
    shuffle: str
    sub_group_sizes: tuple[int, ...]


def probe_device(device: cl.Device) -> Probe:
    """Build and run tiny kernels; raise `UnsupportedError` if the simplest one fails."""
    x, y = np.array([3.0, 5.0, 7.0], np.float32), np.zeros(1, np.float32)
    defined = np.zeros(len(MACROS), np.int32)
    try:
        context = cl.Context([device])  # held: on Intel's CPU runtime a queue does not hold it
        queue = cl.CommandQueue(context)
        _run(queue, filled("probe/base.cl.mako", macros=MACROS), x, y, defined)
    except Exception as error:  # a broken runtime may raise anything
        raise UnsupportedError(
            f"{device.name.strip()} cannot build and run a kernel: {summary(error)}"
        ) from error
    if y[0] != 22.0:
        raise UnsupportedError(
            f"{device.name.strip()} computes wrongly: 3 * 5 + 7 gave {y[0]}, not 22"
        )
    fence, six, sevens = filled("probe/fence.cl.mako"), np.array([6], "i4"), np.array([7, 7], "i4")
    standards = ("", "-cl-std=CL2.0", "-cl-std=CL3.0")
    fences = (one for one in standards if _computes(queue, fence, six, sevens, options=one))
    shuffle, sub_group_sizes = _shuffle(queue)
    return Probe(
        float64=_has_arithmetic(queue, "cl_khr_fp64", "double", np.float64),
        float16=_has_arithmetic(queue, "cl_khr_fp16", "half", np.float16),
        macros=frozenset(itertools.compress(MACROS, defined)),
        fence_options=next(fences, None),
        shuffle=shuffle,
        sub_group_sizes=sub_group_sizes,
    )


def wgmma_refusal(device: cl.Device) -> str:
    """Why a device of compute capability 9.0 does not run ``wgmma``; empty if it does."""
    sums = np.zeros(64 * 8, np.float32)
    try:
        context = cl.Context([device])  # held, as above
        queue = cl.CommandQueue(context)
        source = filled("probe/wgmma.cl.mako", mark=MARK)
        _run(queue, source, None, sums, items=128, target="sm_90a")
    except REFUSALS as error:
        return f"the driver does not take its instructions: {summary(error)}"
    if not (sums == 16).all():
        return f"a sum of 16 ones came out as {sums[sums != 16][0]:g}"
    return ""


def is_software(name: str) -> bool:
    """Whether a device of this name is a simulator, far slower than the CPU."""
    return any(word in name.lower() for word in ("llvmpipe", "softpipe", "swrast", "oclgrind"))


def summary(error: object) -> str:
    """The most informative line of an error or a log, cut to the width of a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "error:" in line.lower()]
    return (telling or lines or [type(error).__name__])[0][:160]


def _has_arithmetic(queue: cl.CommandQueue, extension: str, c_type: str, dtype: Any) -> bool:
    device = queue.device
    advertised = extension in device.extensions.split()
    # CPU runtimes and simulators advertise all they have; else they print messages on the terminal.
    if not advertised and (not device.type & cl.device_type.GPU or is_software(device.name)):
        return False
    x = np.array([1.5, 1.25, 2.0 ** -np.finfo(dtype).nmant, 3.0], dtype)
    # 1.875 plus the spacing of numbers near 1: a narrower type has another result.
    wanted = np.array([x[0] * x[1] + x[2], x[3] * x[0]], dtype)
    source = filled("probe/arithmetic.cl.mako", extension=extension, type=c_type)
    return _computes(queue, source, x, wanted)


def _shuffle(queue: cl.CommandQueue) -> tuple[str, tuple[int, ...]]:
    """How work-items of a sub-group read each other's registers, and its possible sizes."""
    device = queue.device
    extensions = device.extensions.split()
    tried: dict[str, tuple[int, ...]] = {}
    if device.type & cl.device_type.GPU and "NVIDIA" in device.platform.name:
        tried[SHFL] = (32,)
    # Without this extension each kernel may have another size.
    elif "cl_intel_required_subgroup_size" in extensions:
        names = {"cl_khr_subgroup_shuffle": KHR_SHUFFLE, "cl_intel_subgroups": INTEL_SHUFFLE}
        tried = {names[one]: (8, 16, 32) for one in names if one in extensions}

    def exchanges(name: str, size: int) -> bool:
        item = np.arange(2 * size, dtype=np.int32)
        wanted = 3 * (item // size * size + size - 1 - item % size)
        source = filled("probe/shuffle.cl.mako", name=name, size=size, by_ptx=name == SHFL)
        return _computes(queue, source, np.array([3], np.int32), wanted, items=2 * size)

    for name, sizes in tried.items():
        if found := tuple(size for size in sizes if exchanges(name, size)):
            return name, found
    return "", ()


def _computes(queue: cl.CommandQueue, source: str, x: Any, wanted: Any, **options: Any) -> bool:
    """Whether a kernel builds, runs, and computes `wanted` from `x`."""
    y = np.zeros_like(wanted)
    try:
        _run(queue, source, x, y, **options)
    except REFUSALS:
        return False
    return bool((y == wanted).all())


def _run(
    queue: cl.CommandQueue,
    source: str,
    x: Any,
    *results: Any,
    options: str = "",
    items: int = 1,
    target: str = "",
) -> None:
    """Build a kernel and run one work-group; with `target`, as lifted PTX text for it."""
    flags = cl.mem_flags
    context = queue.context
    buffers = [cl.Buffer(context, flags.READ_WRITE, size=result.nbytes) for result in results]
    arguments = list(buffers)
    if x is not None:
        arguments.insert(0, cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        # A cached binary proves nothing, and pyopencl (2026.1) fails on a stale one.
        program = cl.Program(context, source).build(options=options, cache_dir=False)
        if target:
            (binary,) = program.get_info(cl.program_info.BINARIES)
            program = cl.Program(context, [queue.device], [lift(binary, target)]).build()
    new_kernel(program, "probe")(queue, (items,), (items,), *arguments)
    for result, buffer in zip(results, buffers, strict=True):
        cl.enqueue_copy(queue, result, buffer)
