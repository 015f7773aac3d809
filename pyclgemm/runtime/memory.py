"""Device memory that the library allocates, and a driver's errors as the library's own."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..errors import AllocationError, ArgumentError, LaunchError
from ..host.process import InRuntime


def new_buffer(
    context: cl.Context, what: str, size: int, content: np.ndarray[Any, Any] | None = None
) -> cl.Buffer:
    """Allocate a buffer, which holds `content` if given; an `AllocationError` calls it `what`."""
    flags = cl.mem_flags.READ_WRITE
    try:
        if content is None:
            return cl.Buffer(context, flags, size)
        return cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=content)
    except cl.Error as error:
        raise _allocation_error(error, what, size, context.devices[0]) from error


def new_array(
    queue: cl.CommandQueue, what: str, shape: tuple[int, ...], dtype: Any, allocator: Any = None
) -> Any:
    """Allocate an array in C order, by `allocator` if there is one, or raise `AllocationError`."""
    try:
        return cl_array.empty(queue, shape, dtype, allocator=allocator)
    except cl.Error as error:
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        raise _allocation_error(error, what, size, queue.device) from error


def copied_array(queue: cl.CommandQueue, what: str, array: np.ndarray[Any, Any]) -> Any:
    """Copy a NumPy array to the device, in C order, or raise `AllocationError`."""
    try:
        with InRuntime():
            return cl_array.to_device(queue, np.array(array, order="C", copy=None))
    except cl.Error as error:
        raise _allocation_error(error, what, array.nbytes, queue.device) from error


_STATUS = cl.status_code

#: Drivers that allocate late do it at the first launch that uses a buffer.
_NO_MEMORY = frozenset((_STATUS.MEM_OBJECT_ALLOCATION_FAILURE, _STATUS.OUT_OF_HOST_MEMORY))

#: At an allocation: memory lacks, or a buffer is larger than any may be.
_NO_BUFFER = _NO_MEMORY | {_STATUS.OUT_OF_RESOURCES, _STATUS.INVALID_BUFFER_SIZE}

#: Of events that a caller gave, or that came with an array.
_BAD_EVENTS = frozenset(
    (_STATUS.INVALID_EVENT_WAIT_LIST, _STATUS.INVALID_EVENT, _STATUS.INVALID_CONTEXT)
)

#: Of a kernel that a driver cannot run with these sizes and arguments.
_REFUSED = frozenset((
    _STATUS.OUT_OF_RESOURCES, _STATUS.INVALID_WORK_GROUP_SIZE, _STATUS.INVALID_WORK_ITEM_SIZE,
    _STATUS.INVALID_WORK_DIMENSION, _STATUS.INVALID_GLOBAL_WORK_SIZE, _STATUS.INVALID_GLOBAL_OFFSET,
    _STATUS.INVALID_KERNEL, _STATUS.INVALID_KERNEL_ARGS, _STATUS.INVALID_ARG_INDEX,
    _STATUS.INVALID_ARG_SIZE, _STATUS.INVALID_ARG_VALUE, _STATUS.INVALID_PROGRAM_EXECUTABLE,
    _STATUS.BUILD_PROGRAM_FAILURE,
))  # fmt: skip


def _allocation_error(error: cl.Error, what: str, size: int, device: cl.Device) -> Exception:
    """The `AllocationError` of a driver's error, or the error itself if it is of another kind."""
    code = getattr(error, "code", None)
    if code not in _NO_BUFFER:
        original: Exception = error
        return original
    return AllocationError(
        f"{what} needs {size} bytes and {device.name.strip()!r} refused them "
        f"({_STATUS.to_string(code)}); it has {device.global_mem_size} bytes, at most "
        f"{device.max_mem_alloc_size} for one buffer"
    )


def launch_error(
    error: cl.Error, queue: cl.CommandQueue, kernels: str, label: str = ""
) -> Exception:
    """What to raise for a driver's error at a launch; the error itself where the device is lost."""
    original: Exception = error
    code = getattr(error, "code", None)
    if code is None:  # pyopencl raised it for reasons of its own
        return original
    said = f"{_STATUS.to_string(code, 'unknown status %d')} at the launch of {kernels}"
    if code == _STATUS.INVALID_MEM_OBJECT:
        return ArgumentError(f"the buffer of an array was released ({said}); give arrays that live")
    device = queue.device.name.strip()
    if code in _NO_MEMORY:
        return AllocationError(
            f"{device!r} has no memory left: {said}; it has {queue.device.global_mem_size} bytes"
        )
    if code in _BAD_EVENTS:
        return ArgumentError(
            f"wait_for, or the events of an array, hold an event that the queue cannot wait for "
            f"({said}); events of the queue's context are wanted"
        )
    if code in _REFUSED:
        return LaunchError(f"{label}{device!r} refused it: {said}")
    return original


#: The workspace in which the work-groups that split a tile's k loop count their arrivals.
COUNTERS = "counters"

#: Most workspaces that wait for a call. Several exist only if several threads call at once.
_MOST_IDLE = 4


class Workspaces:
    """Scratch buffers by name. One call at a time uses them, from its first launch to its last."""

    def __init__(self, context: cl.Context) -> None:
        #: The last launch that used them, which the next user must wait for on an out-of-order
        #: queue; None on others.
        self.last_use: cl.Event | None = None
        self._context = context
        self._buffers: dict[str, tuple[int, cl.Buffer]] = {}  # with their sizes

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """A buffer of at least `size` undefined bytes; `COUNTERS` has zeros between launches."""
        held, buffer = self._buffers.get(name, (0, None))
        if buffer is None or held < size:
            # The driver keeps the old one until launches that use it are done.
            zeros = np.zeros(size, np.uint8) if name == COUNTERS else None
            buffer = new_buffer(self._context, f"workspace {name!r}", size, zeros)
            self._buffers[name] = size, buffer
        return buffer


class WorkspacePool:
    """Workspaces that wait for a call. A call that fails does not give back what it took."""

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self._idle: deque[Workspaces] = deque(maxlen=_MOST_IDLE)

    def take(self) -> Workspaces:
        """Workspaces that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return Workspaces(self._context)

    def give_back(self, workspaces: Workspaces) -> None:
        """Offer workspaces to the next call, while what was enqueued may still use them."""
        self._idle.append(workspaces)
