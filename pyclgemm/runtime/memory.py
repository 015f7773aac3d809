"""Allocate device memory, transfer NumPy arrays, and turn a driver's errors into the library's."""

import ctypes
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..errors import AllocationError, ArgumentError, LaunchError
from ..host.process import InRuntime
from ..problem.matrix import check_dtype
from .arguments import as_array, check_allocated, check_allocator, check_queue
from .arrays import ArraySequence, byte_range
from .interchange import check_destination, like, owner_of
from .shared import is_shared, new_shared, received, shared, sharing


def new_buffer(
    context: cl.Context, what: str, size: int, content: np.ndarray[Any, Any] | None = None
) -> cl.Buffer:
    """Allocate a buffer, with `content` or undefined; an `AllocationError` names it `what`."""
    flags = cl.mem_flags.READ_WRITE | (0 if content is None else cl.mem_flags.COPY_HOST_PTR)
    try:
        return cl.Buffer(context, flags, size, hostbuf=content)
    except cl.Error as error:
        device = context.devices[0]
        raise typed_error(error, _ALLOCATION_FAULTS, device, what=what, size=size) from error


#: The advice of Linux's ``madvise`` to use huge pages, their bytes, and the least bytes of a buffer
#: that is worth it.
_ADVICE, _HUGE_PAGE, _LARGE = 14, 2 << 20, 4 << 20


def advise_huge_pages(queue: cl.CommandQueue, buffer: Any) -> None:
    """Ask Linux for huge pages behind a large buffer of a CPU, before its first element is written.

    A constant matrix is read from memory again and again, and each page of 4 KB costs the core a
    translation of its address: with one row of 4096 -> 4096 a fifth of the time.
    """
    on_cpu = queue.device.type & cl.device_type.CPU
    if not (on_cpu and sys.platform == "linux" and buffer.size >= _LARGE):
        return
    flags, size = cl.map_flags.WRITE_INVALIDATE_REGION, buffer.size
    with InRuntime():
        content, _ = cl.enqueue_map_buffer(queue, buffer, flags, 0, (size,), np.uint8)
        first = content.ctypes.data
        begin, end = -(-first // _HUGE_PAGE) * _HUGE_PAGE, (first + size) // _HUGE_PAGE * _HUGE_PAGE
        madvise = ctypes.CDLL(None).madvise
        # Where Linux has no huge pages it refuses, and nothing changes.
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), ctypes.c_int(_ADVICE))
        content.base.release(queue)


def new_array(
    queue: cl.CommandQueue, what: str, shape: tuple[int, ...], dtype: Any, allocator: Any = None
) -> Any:
    """Allocate an array in C order, by `allocator` if there is one, or raise `AllocationError`.

    `size_of` has accepted its size.
    """
    check_allocator(allocator)
    try:
        array = new_shared(queue, shape, dtype) if allocator is None else None
        if array is None:
            array = cl_array.empty(queue, shape, dtype, allocator=allocator)
    except cl.Error as error:
        size = size_of(what, shape, dtype)
        raise typed_error(error, _ALLOCATION_FAULTS, queue.device, what=what, size=size) from error
    if allocator is not None and array.size:
        check_allocated(array.base_data)
    return array


def size_of(what: str, shape: tuple[int, ...], dtype: Any) -> int:
    """The bytes of a new array; raise `AllocationError` if they are 2^63 or more."""
    size: int = math.prod(shape) * np.dtype(dtype).itemsize
    if size >= 2**63:  # pyopencl would take the remainder
        raise AllocationError(f"{what} is {shape}, which needs {size} bytes; no memory has them")
    return size


def to_device(queue: cl.CommandQueue, name: str, array: Any) -> Any:
    """Copy an array on the host to the device, in C order; return others and None as they are.

    In a block of `sharing` the array itself may be taken.
    """
    array = as_array(name, array)
    if not isinstance(array, np.ndarray):
        return array
    check_dtype(name, array.dtype)
    check_queue(queue)
    try:
        with InRuntime():
            there = shared(queue, array)
            if there is not None:
                return there
            return cl_array.to_device(queue, np.array(array, order="C", copy=None))
    except MemoryError as error:
        raise AllocationError(
            f"{name} is {array.shape} and is copied in C order; the host has no {array.nbytes} "
            "bytes for that"
        ) from error
    except cl.Error as error:
        facts = {"what": name, "size": array.nbytes}
        raise typed_error(error, _ALLOCATION_FAULTS, queue.device, **facts) from error


def to_host(queue: cl.CommandQueue, array: Any) -> np.ndarray[Any, Any]:
    """Copy an array of the device, of any strides, to the host; wait for it."""
    low, high = byte_range(array)
    content = np.empty(high - low, np.uint8)
    if content.size:
        with InRuntime():
            if array.queue is not None and array.queue != queue:
                array.queue.flush()  # the copy might wait for ever for an event of this queue
            cl.enqueue_copy(queue, content, array.base_data, src_offset=low, wait_for=array.events)
    return np.ndarray(array.shape, array.dtype, content, array.offset - low, array.strides)


def through_device(
    queue: cl.CommandQueue,
    operands: Mapping[str, Any],
    out: Any,
    run: Callable[..., tuple[Any, cl.Event | None]],
    allocator: Any = None,
    *,
    share: bool = True,
) -> tuple[Any, cl.Event | None]:
    """Call `run` with copies of arrays on the host, and copy the result back.

    `run` takes the operands and `out` by name. Without `out` the result is on the host if no
    operand but the bias is an array or a sequence of arrays on the device. Then it is an array of
    the first operand's library. With `share` a device in the host's memory needs no copies.
    """
    operands = {name: as_array(name, array) for name, array in operands.items()}
    out = as_array("out", out)
    given = [one for name, one in operands.items() if name != "bias"]
    on_device = any(isinstance(one, (cl_array.Array, ArraySequence)) for one in given)
    to_host = isinstance(out, np.ndarray)
    if not to_host and (on_device or out is not None):
        copies = {name: to_device(queue, name, array) for name, array in operands.items()}
        return run(**copies, out=out)
    check_queue(queue)
    with sharing(queue) if share and is_shared(queue) else nullcontext():
        copies = {name: to_device(queue, name, array) for name, array in operands.items()}
        result, event = run(
            **copies,
            out=_destination(queue, out, allocator, operands.values()) if to_host else None,
        )
        with InRuntime():
            found = received(queue, result)
            if found is None:
                found = result.get(queue)  # waits for it
    if not to_host:
        return like(next(iter(given), None), found), event
    if found is not out:
        out[...] = found
    return owner_of(out), event


def _destination(
    queue: cl.CommandQueue, out: NDArray[Any], allocator: Any, operands: Iterable[Any]
) -> Any:
    """Where the device computes what `out` receives: there, unless operands may be there too."""
    check_destination(out)
    check_dtype("out", out.dtype)
    arrays = [one for one in operands if isinstance(one, np.ndarray)]
    there = None
    if not any(np.may_share_memory(out, one) for one in arrays):
        there = shared(queue, out)
    return new_array(queue, "out", out.shape, out.dtype, allocator) if there is None else there


_STATUS = cl.status_code
#: Some drivers allocate a buffer at the first launch that uses it.
_NO_MEMORY = frozenset((_STATUS.MEM_OBJECT_ALLOCATION_FAILURE, _STATUS.OUT_OF_HOST_MEMORY))
#: Statuses of an allocation without memory, or of more than the largest buffer.
_NO_BUFFER = _NO_MEMORY | {_STATUS.OUT_OF_RESOURCES, _STATUS.INVALID_BUFFER_SIZE}

#: Statuses of a kernel that the driver cannot run with its sizes and arguments.
_REFUSED = frozenset((
    _STATUS.OUT_OF_RESOURCES, _STATUS.INVALID_WORK_GROUP_SIZE, _STATUS.INVALID_WORK_ITEM_SIZE,
    _STATUS.INVALID_WORK_DIMENSION, _STATUS.INVALID_GLOBAL_WORK_SIZE, _STATUS.INVALID_GLOBAL_OFFSET,
    _STATUS.INVALID_KERNEL, _STATUS.INVALID_KERNEL_ARGS, _STATUS.INVALID_ARG_INDEX,
    _STATUS.INVALID_ARG_SIZE, _STATUS.INVALID_ARG_VALUE, _STATUS.INVALID_PROGRAM_EXECUTABLE,
    _STATUS.BUILD_PROGRAM_FAILURE,
))  # fmt: skip

#: Statuses of a driver, the exception to raise for them, and its message.
Faults: TypeAlias = tuple[tuple[Collection[int], type[Exception], str], ...]

_ALLOCATION_FAULTS: Faults = (
    (
        _NO_BUFFER, AllocationError,
        "{what} needs {size} bytes and {name!r} refused them ({status}); it has "
        "{device.global_mem_size} bytes, at most {device.max_mem_alloc_size} for one buffer",
    ),
)  # fmt: skip

LAUNCH_FAULTS: Faults = (
    (
        (_STATUS.INVALID_MEM_OBJECT,), ArgumentError,
        "the buffer of an array was released ({status} at the launch of {kernels}); give arrays "
        "that live",
    ),
    (
        _NO_MEMORY, AllocationError,
        "{name!r} has no memory left: {status} at the launch of {kernels}; it has "
        "{device.global_mem_size} bytes",
    ),
    (
        (_STATUS.INVALID_EVENT_WAIT_LIST, _STATUS.INVALID_EVENT, _STATUS.INVALID_CONTEXT),
        ArgumentError,
        "wait_for, or the events of an array, hold an event that the queue cannot wait for "
        "({status} at the launch of {kernels}); events of the queue's context are wanted",
    ),
    (_REFUSED, LaunchError, "{label}{name!r} refused it: {status} at the launch of {kernels}"),
)  # fmt: skip


def typed_error(error: cl.Error, faults: Faults, device: cl.Device, **facts: Any) -> Exception:
    """The exception to raise for a driver's error: the error itself if no fault matches."""
    code = getattr(error, "code", None)  # None: pyopencl itself raised it
    for codes, kind, message in faults:
        if code in codes:
            facts |= {"status": _STATUS.to_string(code), "name": device.name.strip()}
            return kind(message.format(device=device, **facts))
    original: Exception = error
    return original
