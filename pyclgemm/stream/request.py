"""Check the arguments of `stream_gemm`, and find the devices and what they offer."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..api.epilogue import NO_EPILOGUE, Epilogue, checked_epilogue
from ..api.prepare import Call, choose, describe_product, result_shape
from ..codegen.config import Config
from ..device.discovery import FoundDevice, working_devices
from ..device.probe import is_software
from ..device.queues import default_queue
from ..device.traits import DeviceTraits, traits_of
from ..errors import (
    AllocationError,
    ArgumentError,
    DtypeError,
    KernelBuildError,
    LaunchError,
    described,
    shown,
)
from ..families.registry import make_schedule, oriented
from ..problem.matrix import check_writable, parse_transposition
from ..problem.precision import is_complex
from ..problem.product import Product
from ..runtime.arrays import SHARED, View
from ..runtime.queue_state import PreparedCalls
from ..selection.select import Choice
from .buffers import can_be_in_place
from .call import Device, StreamCall
from .links import Link, link_of
from .plan import DevicePlan, Member, Task
from .sources import HostMatrix, check_destination, check_host_array, is_same, shares
from .timeline import ProductSeconds

#: The part of a device's memory that is used where the caller names none: drivers keep some.
_USED = 0.85
#: The part of the host's free memory that a CPU uses.
_USED_OF_HOST = 0.5
#: The element type in which a result is summed over several panels, where it is another.
_SUMS = {"float16": "float32", "bfloat16": "float32"}
#: What a device raises that fails, without which the others end the product.
FAULTS = (AllocationError, LaunchError, KernelBuildError, cl.Error)
#: Sides of the product whose predicted speed is that of a device.
_TYPICAL = 8192


def devices_of(given: Any) -> list[Device]:
    """The devices that the argument `devices` names."""
    wanted = 'queues, devices, "all" or None are wanted'
    if given is None:
        return [_device(default_queue(), "devices")]
    if isinstance(given, str):
        if given != "all":
            raise ArgumentError(f"devices is {shown(given)}; {wanted}")
        found: list[Any] = []
        for one in working_devices():
            is_cpu = one.traits is not None and one.traits.type == "cpu"
            # Two runtimes for one processor would take it from each other.
            has_cpu = any(other.traits.type == "cpu" for other in found)
            if not is_software(one.name) and not (is_cpu and has_cpu):
                found.append(one)
        given = found or working_devices()[:1]
    if isinstance(given, (cl.CommandQueue, cl.Device, FoundDevice)):
        given = [given]
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise DtypeError(f"devices is {described(given)}; {wanted}")
    if not given:
        raise ArgumentError(f"devices is empty; {wanted}")
    return [_device(one, f"devices[{number}]") for number, one in enumerate(given)]


def _device(given: Any, name: str) -> Device:
    if isinstance(given, FoundDevice):
        given = given.device
    if isinstance(given, cl.Device):
        given = default_queue(given)
    if not isinstance(given, cl.CommandQueue):
        raise DtypeError(
            f"{name} is {described(given)}; a pyopencl.CommandQueue or a pyopencl.Device is wanted"
        )
    try:
        return Device(given, link_of(given.device), given.context)
    except FAULTS as error:
        return Device(given, Link(shares_memory=False), given.context, error)


def memory_of(given: Any, device: Device) -> int:
    """The bytes that a device may use: the argument `memory`, or what is free, with a margin."""
    if given is not None:
        if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
            raise DtypeError(f"memory is {shown(given)}; a number of bytes or None is wanted")
        if given < 1:
            raise ArgumentError(f"memory is {given}; a positive number of bytes is wanted")
        return int(given)
    total = int(device.queue.device.global_mem_size)
    if not device.link.shares_memory:
        return int(_USED * _free_on(device.queue.device, total))
    # A power of two is mostly the same in the next process, and so are the plan and the bits.
    free = max(1, int(_USED_OF_HOST * min(total, _free_on_host())))
    return 1 << (free.bit_length() - 1)


def _free_on(device: cl.Device, total: int) -> int:
    """The free bytes of a device's memory where it tells them, as AMD's does; else all."""
    with suppress(cl.Error, AttributeError):
        kilobytes, *_ = device.global_free_memory_amd
        return min(total, int(kilobytes) << 10)
    return total


def _free_on_host() -> int | float:
    """The bytes of the host's memory that are free, or that files could give back."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(one for one in lines if one.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return math.inf


def stand_in(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array with a shape and a type but without its memory: nothing reads it."""
    if 0 in shape:
        return cl_array.empty(queue, shape, dtype)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 256)
    return cl_array.Array(queue, shape, np.dtype(dtype), data=buffer)


def checked_call(
    queue: cl.CommandQueue, a: Any, b: Any, c: Any, alpha: Any, beta: Any, trans_a: Any,
    trans_b: Any, out: Any, epilogue: Any, precision: Any, make_out: bool,
) -> StreamCall:  # fmt: skip
    """The matrices and options of a call, if they fit together; `out` is made if there is none."""
    epilogue = checked_epilogue(epilogue)
    bias = epilogue.bias
    if isinstance(bias, cl_array.Array):
        bias = bias.get()
    given = {"a": a, "b": b, "c": c, "out": out}
    for name, array in given.items():
        if array is not None or name in ("a", "b"):
            check_host_array(name, array)
    forms = {
        name: None if array is None else stand_in(queue, tuple(array.shape), array.dtype)
        for name, array in given.items()
    }
    form_of_bias = None if bias is None else stand_in(queue, bias.shape, bias.dtype)
    of_forms = Epilogue(form_of_bias, epilogue.activation)
    call = Call(
        forms["a"], forms["b"], forms["c"], forms["out"], of_forms, alpha, beta, trans_a, trans_b,
        precision,
    )  # fmt: skip
    call.check()
    product = describe_product(call)
    result = np.dtype(product.problem.result_dtype)
    for name in ("a", "b", "c"):
        _check_apart(name, given[name], out)
    if out is not None:
        check_destination(out)
        if isinstance(out, np.ndarray):
            check_writable(View(out.shape, out.strides, out.dtype, 0))
    shape = result_shape(call)
    if out is None:
        try:
            out = np.empty(shape if make_out else 1, result)
        except (MemoryError, ValueError) as error:
            raise AllocationError(
                f"out is {shape} and the host has no memory for it; give a numpy.memmap"
            ) from error
    if out.shape != shape:  # it is not written, but the plan depends on where it would lie
        out = np.lib.stride_tricks.as_strided(
            out, shape, (shape[1] * result.itemsize, out.itemsize)
        )
    is_c_read = c is not None and bool(call.beta)
    destination = HostMatrix("out", out, written=True)
    addend, updates = None, is_c_read and is_same(c, out)
    if is_c_read:
        addend = destination if updates else HostMatrix("c", c)
    trans = [parse_transposition(name, value) for name, value in
             (("trans_a", call.trans_a), ("trans_b", call.trans_b))]  # fmt: skip
    depth = a.shape[1] if trans[0] == "N" else a.shape[0]
    return StreamCall(
        HostMatrix("a", a), HostMatrix("b", b), addend, destination,
        Epilogue(bias, epilogue.activation), call.alpha, call.beta if is_c_read else None,
        trans[0], trans[1], precision, 0 if call.alpha == 0 else int(depth),
        np.dtype(_SUMS.get(result.name, result.name)), updates,
        (shape[0], shape[1]), result,
    )  # fmt: skip


def _check_apart(name: str, operand: Any, out: Any) -> None:
    """Raise `ArgumentError` if an operand shares elements with `out`; c may be the same matrix."""
    if operand is None or out is None or (name == "c" and is_same(operand, out)):
        return
    if shares(operand, out):
        raise ArgumentError(SHARED.format(name=name))


def task_of(call: StreamCall) -> Task:
    """The facts that decide how a product is divided."""
    (m, n), a, b, out = call.shape, call.a, call.b, call.out
    chunks_a = a.chunks if call.trans_a == "N" else a.chunks[::-1]
    chunks_b = b.chunks if call.trans_b == "N" else b.chunks[::-1]
    steps = (
        max(out.chunks[0], chunks_a[0]), max(out.chunks[1], chunks_b[1]),
        max(chunks_a[1], chunks_b[0]),
    )  # fmt: skip
    return Task(
        m, n, call.k, 8 if is_complex(a.dtype.name) else 2, a.dtype.itemsize,
        call.result.itemsize, call.sums.itemsize, call.c is not None, steps, call.by_columns,
    )  # fmt: skip


def member_of(device: Device, name: str, call: StreamCall, memory: int) -> Member:
    """What a device offers for a product.

    Raise `UnsupportedError` if it cannot compute it, and the device's fault if it failed already.
    """
    if device.fault is not None:
        raise device.fault
    sides = [max(1, min(_TYPICAL, one)) for one in (*call.shape, call.k)]
    seconds = products_of(device, call)(sides[0], sides[1], sides[2])
    work = (8 if is_complex(call.a.dtype.name) else 2) * math.prod(sides)
    in_place = {
        "a": device.in_place(call.a, call.a.dtype), "b": device.in_place(call.b, call.b.dtype),
        "out": device.writes_in_place(call, call.result),
    }  # fmt: skip
    matrices = {"a": call.a, "b": call.b, "out": call.out}
    here = frozenset(name for name, is_here in in_place.items() if is_here)
    lines = tuple((one, _line_step(matrices[one]), one in call.by_columns) for one in sorted(here))
    return Member(
        name, memory, int(device.queue.device.max_mem_alloc_size), work / seconds, device.link.up,
        device.link.down, here, frozenset(one for one in here if matrices[one].is_mapped), lines,
    )  # fmt: skip


def _line_step(matrix: HostMatrix) -> int:
    """Bytes from one line of an array to the next."""
    return max(abs(step) for step in matrix.array.strides) if can_be_in_place(matrix.array) else 0


def _choice(
    device: Device, call: StreamCall, m: int, n: int, k: int, *, is_whole: bool
) -> tuple[Product, Choice]:
    """The product of panels, and the kernels that are chosen for it."""
    queue, dtype = device.queue, call.a.dtype
    a = stand_in(queue, (m, k) if call.trans_a == "N" else (k, m), dtype)
    b = stand_in(queue, (k, n) if call.trans_b == "N" else (n, k), dtype)
    result = stand_in(queue, (m, n), call.result if is_whole else call.sums)
    form = Call(
        a, b, None, result, NO_EPILOGUE, call.alpha or 1.0, None, call.trans_a, call.trans_b,
        call.precision,
    )  # fmt: skip
    form.check()
    return choose(queue, describe_product(form), None)


def products_of(device: Device, call: StreamCall) -> ProductSeconds:
    """What predicts the seconds of products of panels."""
    facts = (
        device.queue.device, call.a.dtype, call.result, call.trans_a, call.trans_b, call.precision,
        call.alpha in (0, 1),
    )  # fmt: skip

    def seconds(m: int, n: int, k: int) -> float:
        is_whole = k >= call.k
        key = (*facts, m, n, k, is_whole)
        known = _known_seconds.get(key)
        if known is None:
            choice = _choice(device, call, m, n, k, is_whole=is_whole)[1]
            known = choice.seconds or 2e-9 * m * n * max(1, k)
            _known_seconds.keep(key, known)
        return known

    return seconds


#: Predicted seconds of products of panels, by what they depend on.
_known_seconds: PreparedCalls[float] = PreparedCalls(most=4096)


@functools.lru_cache(maxsize=256)
def _workspace_bytes(product: Product, config: Config, traits: DeviceTraits) -> int:
    product = oriented(product, config, traits)
    return sum(make_schedule(product, config, traits).workspaces.values())


def scratch_of(device: Device, call: StreamCall, plan: DevicePlan) -> int:
    """The scratch bytes of the products of a plan; those of a CPU are some MB, and not counted."""
    if device.link.shares_memory:
        return 0
    depth = min(plan.depth, call.k)
    product, choice = _choice(
        device, call, plan.rows, plan.columns, depth, is_whole=plan.depth >= call.k
    )
    return _workspace_bytes(product, choice.config, traits_of(device.queue.device))


def halved(member: Member) -> Member:
    """The same device with half the memory."""
    return replace(member, memory=member.memory // 2)
