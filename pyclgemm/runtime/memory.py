"""Device memory that the library allocates: what a driver refuses becomes `AllocationError`."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..errors import AllocationError, ArgumentError, LaunchError
from ..host.process import InRuntime

#: What OpenCL answers where memory lacks, or a buffer is larger than any may be.
NO_MEMORY = frozenset(
    (
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_HOST_MEMORY,
        cl.status_code.OUT_OF_RESOURCES,
        cl.status_code.INVALID_BUFFER_SIZE,
    )
)


def new_buffer(
    context: cl.Context, what: str, size: int, content: np.ndarray[Any, Any] | None = None
) -> cl.Buffer:
    """Allocate a buffer that kernels read and write.

    Parameters
    ----------
    context : pyopencl.Context
        Where it lies.
    what : str
        What messages call it.
    size : int
        Bytes.
    content : numpy.ndarray, optional
        What it holds at first; undefined without.

    Raises
    ------
    AllocationError
        If the device has no memory for it.
    """
    flags = cl.mem_flags.READ_WRITE
    try:
        if content is None:
            return cl.Buffer(context, flags, size)
        return cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=content)
    except cl.Error as error:
        raise refused(error, what, size, context.devices[0]) from error


def new_array(
    queue: cl.CommandQueue, what: str, shape: tuple[int, ...], dtype: Any, allocator: Any = None
) -> Any:
    """Allocate an array in C order, by `allocator` if there is one.

    Raises
    ------
    AllocationError
        If the device has no memory for it.
    """
    try:
        return cl_array.empty(queue, shape, dtype, allocator=allocator)
    except cl.Error as error:
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        raise refused(error, what, size, queue.device) from error


def copied_array(queue: cl.CommandQueue, what: str, array: np.ndarray[Any, Any]) -> Any:
    """Copy a NumPy array to the device, in C order.

    Raises
    ------
    AllocationError
        If the device has no memory for it.
    """
    try:
        with InRuntime():
            return cl_array.to_device(queue, np.array(array, order="C", copy=None))
    except cl.Error as error:
        raise refused(error, what, array.nbytes, queue.device) from error


def status_of(error: cl.Error) -> int | None:
    """The status that an error stands for; None if pyopencl raised it for reasons of its own."""
    code: int | None = getattr(error, "code", None)
    return code


def refused(error: cl.Error, what: str, size: int, device: cl.Device) -> Exception:
    """The `AllocationError` of a driver's error, or the error itself if it is of another kind."""
    code = status_of(error)
    if code not in NO_MEMORY:
        original: Exception = error
        return original
    return AllocationError(
        f"{what} needs {size} bytes and {device.name.strip()!r} refused them "
        f"({cl.status_code.to_string(code)}); it has {device.global_mem_size} bytes, at most "
        f"{device.max_mem_alloc_size} for one buffer"
    )


# --------------------------------------------------------------------------------------
# Errors of a driver at a launch, as the library's own.
# --------------------------------------------------------------------------------------

_STATUS = cl.status_code

#: Drivers that allocate late do it at the first launch that uses a buffer.
_MEMORY = frozenset((_STATUS.MEM_OBJECT_ALLOCATION_FAILURE, _STATUS.OUT_OF_HOST_MEMORY))

#: Events that a caller gave, or that came with an array.
_EVENTS = frozenset(
    (_STATUS.INVALID_EVENT_WAIT_LIST, _STATUS.INVALID_EVENT, _STATUS.INVALID_CONTEXT)
)

#: What a driver answers to a kernel that it cannot run with these sizes and arguments.
_REFUSED = frozenset(
    (
        _STATUS.OUT_OF_RESOURCES,
        _STATUS.INVALID_WORK_GROUP_SIZE,
        _STATUS.INVALID_WORK_ITEM_SIZE,
        _STATUS.INVALID_WORK_DIMENSION,
        _STATUS.INVALID_GLOBAL_WORK_SIZE,
        _STATUS.INVALID_GLOBAL_OFFSET,
        _STATUS.INVALID_KERNEL,
        _STATUS.INVALID_KERNEL_ARGS,
        _STATUS.INVALID_ARG_INDEX,
        _STATUS.INVALID_ARG_SIZE,
        _STATUS.INVALID_ARG_VALUE,
        _STATUS.INVALID_PROGRAM_EXECUTABLE,
        _STATUS.BUILD_PROGRAM_FAILURE,
    )
)


def launch_error(
    error: cl.Error, queue: cl.CommandQueue, kernels: str, label: str = ""
) -> Exception:
    """What to raise for a driver's error at a launch.

    That is an `AllocationError`, `ArgumentError` or `LaunchError`, whose message begins with
    `label`; or `error` itself, where the device or the queue no longer works.
    """
    original: Exception = error
    code = status_of(error)
    if code is None:
        return original
    said = f"{_STATUS.to_string(code, 'unknown status %d')} at the launch of {kernels}"
    if code == _STATUS.INVALID_MEM_OBJECT:
        return ArgumentError(f"the buffer of an array was released ({said}); give arrays that live")
    device = queue.device.name.strip()
    if code in _MEMORY:
        return AllocationError(
            f"{device!r} has no memory left: {said}; it has {queue.device.global_mem_size} bytes"
        )
    if code in _EVENTS:
        return ArgumentError(
            f"wait_for, or the events of an array, hold an event that the queue cannot wait for "
            f"({said}); events of the queue's context are wanted"
        )
    if code in _REFUSED:
        return LaunchError(f"{label}{device!r} refused it: {said}")
    return original


# --------------------------------------------------------------------------------------
# Scratch buffers of the launches of one call.
# --------------------------------------------------------------------------------------

#: The workspace in which work-groups that share a tile count their arrivals.
COUNTERS = "counters"

#: Workspaces that wait for a call, beyond which they are let go. More than one are only in use
#: where several threads call at the same moment.
_MOST_IDLE = 4


class Workspaces:
    """Scratch buffers by name. One call at a time uses them, from its first launch to its last.

    Parameters
    ----------
    context : pyopencl.Context
        Where the buffers lie.

    Attributes
    ----------
    last_use : pyopencl.Event or None
        The last launch that used them; kept for out-of-order queues, where the next user must
        wait for it.
    """

    def __init__(self, context: cl.Context) -> None:
        self.last_use: cl.Event | None = None
        self._context = context
        self._buffers: dict[str, cl.Buffer] = {}

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """A buffer of at least `size` bytes for workspace `name`.

        Its contents are undefined, but `COUNTERS` starts with zeros; launches leave it so.

        Raises
        ------
        AllocationError
            If the device has no memory for it.
        """
        held = self._buffers.get(name)
        if held is None or held.size < size:
            # The driver keeps the old one until launches that use it are done.
            zeros = np.zeros(size, np.uint8) if name == COUNTERS else None
            held = new_buffer(self._context, f"workspace {name!r}", size, zeros)
            self._buffers[name] = held
        return held


class WorkspacePool:
    """Workspaces that wait for a call. A call that fails does not give back what it took."""

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self._idle: deque[Workspaces] = deque()

    def take(self) -> Workspaces:
        """Workspaces that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return Workspaces(self._context)

    def give_back(self, workspaces: Workspaces) -> None:
        """Offer workspaces to the next call, while what was enqueued may still use them.

        On an in-order queue the next call's launches follow by themselves; on an out-of-order
        queue they wait for `Workspaces.last_use`.
        """
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(workspaces)
