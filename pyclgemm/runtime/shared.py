"""Arrays of NumPy in place of copies, on devices that compute in the memory of the host.

An array is shared only by calls that wait for the device, so that its memory is the caller's again
when they return.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

#: Bytes of the smallest array that is shared: the copy of a smaller one takes less than a buffer.
_LEAST = 1 << 16
#: A buffer begins at a multiple of `_BLOCK` bytes, on which kernels depend. NumPy aligns arrays to
#: 16 bytes alone. For kernels the others begin `_INSET` bytes behind the beginning of a buffer,
#: wherever they are, so that few kernels are built.
_BLOCK, _INSET = 256, 16

#: The arrays that are shared in a block, which live until it ends; None outside.
_SHARED: ContextVar[list[NDArray[Any]] | None] = ContextVar("_SHARED", default=None)


@contextmanager
def sharing(queue: cl.CommandQueue) -> Iterator[None]:
    """Let arrays be shared in a block, at whose end the device has computed all results."""
    token = _SHARED.set([])
    try:
        yield
    except BaseException:
        if _SHARED.get():  # launches may still use them
            with suppress(cl.Error):
                queue.finish()
        raise
    finally:
        _SHARED.reset(token)


def is_shared(queue: cl.CommandQueue) -> bool:
    """Whether a queue's device computes in the memory of the host."""
    device = queue.device
    return bool(device.type & cl.device_type.CPU and device.host_unified_memory)


def buffer_at(context: cl.Context, address: int, size: int, *, writable: bool) -> cl.Buffer:
    """A buffer of bytes of the host's memory, which must outlive its use."""
    interface = {
        "version": 3, "typestr": "|u1", "shape": (size,), "data": (address, not writable)
    }  # fmt: skip
    memory = np.asarray(SimpleNamespace(__array_interface__=interface))
    flags = cl.mem_flags.READ_WRITE if writable else cl.mem_flags.READ_ONLY
    return cl.Buffer(context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)


def shared(queue: cl.CommandQueue, array: NDArray[Any]) -> Any:
    """An array of the device in the memory of one of NumPy; None if that must be copied."""
    kept, address = _SHARED.get(), array.ctypes.data
    if kept is None or array.nbytes < _LEAST:
        return None
    if not array.flags.c_contiguous or address % _INSET:
        return None
    offset = _INSET if address % _BLOCK else 0  # never in another page than the first entry
    buffer = buffer_at(
        queue.context, address - offset, offset + array.nbytes, writable=array.flags.writeable
    )
    there = cl_array.Array(queue, array.shape, array.dtype, data=buffer, offset=offset)
    there.on_host = array
    kept.append(array)
    return there


def new_shared(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array of the device in memory of NumPy; None if the device allocates it."""
    if _SHARED.get() is None:
        return None
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not _LEAST <= size <= queue.device.max_mem_alloc_size:
        return None
    try:
        memory = np.empty(size + _BLOCK, np.uint8)
    except MemoryError:
        return None
    begin = -memory.ctypes.data % _BLOCK
    return shared(queue, memory[begin : begin + size].view(dtype).reshape(shape))


def received(queue: cl.CommandQueue, result: Any) -> Any:
    """The array of NumPy whose memory a result is in, once that is computed; None if it has none.

    OpenCL promises its content only to who maps the buffer.
    """
    host = getattr(result, "on_host", None)
    if host is not None:
        content, _ = cl.enqueue_map_buffer(
            queue, result.base_data, cl.map_flags.READ, result.offset, (host.nbytes,), np.uint8,
            wait_for=result.events,
        )  # fmt: skip
        content.base.release(queue)
    return host
