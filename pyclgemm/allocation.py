"""Device memory that the library allocates: what a driver refuses becomes `AllocationError`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from .errors import AllocationError
from .interpreter_exit import InRuntime

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
