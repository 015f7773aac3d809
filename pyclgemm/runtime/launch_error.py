"""Errors of a driver at a launch, as the library's own."""

from __future__ import annotations

import pyopencl as cl

from ..codegen.config import Config
from ..errors import AllocationError, ArgumentError, LaunchError
from .memory import status_of

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
    error: cl.Error, queue: cl.CommandQueue, config: Config | None, kernels: str
) -> Exception:
    """What to raise for an error at a launch.

    Parameters
    ----------
    error : pyopencl.Error
        What the driver said.
    queue : pyopencl.CommandQueue
        Where the launch was to run.
    config : Config or None
        The configuration of the kernels, if they have one.
    kernels : str
        Their names.

    Returns
    -------
    Exception
        `AllocationError`, `ArgumentError` or `LaunchError`; `error` itself where the device or
        the queue no longer works.
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
        shown = "" if config is None else f"{type(config).__name__}({config}): "
        return LaunchError(f"{shown}{device!r} refused it: {said}")
    return original
