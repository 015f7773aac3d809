"""A device's memory for blocks: views of host memory, and slots.

A CPU's runtime reads and writes host memory where it lies (``CL_MEM_USE_HOST_PTR``), so matrices of
NumPy need no copy there. Other devices have slots.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..host.process import InRuntime
from ..runtime.arrays import View, byte_range
from ..runtime.memory import new_buffer
from ..runtime.shared import buffer_at
from .plan import Block, padded
from .sources import HostMatrix, address

_log = logging.getLogger(__name__)

#: Addresses of buffers on the host are multiples of this many bytes, as kernels read vectors.
_ALIGNED = 256
#: Seconds after which a waiting thread looks whether the work was stopped.
POLL = 0.05


class Stopped(Exception):
    """The work of a device was stopped; it ends its threads and is not seen by users."""


def without_fault(action: Callable[..., object], *arguments: Any) -> None:
    """Release or await something of a device, which a lost one refuses: the first fault counts."""
    try:
        action(*arguments)
    except cl.Error:
        _log.debug("%s failed", action, exc_info=True)


def host_buffer(context: cl.Context, content: NDArray[Any]) -> tuple[cl.Buffer, int]:
    """A buffer over a NumPy array's own memory, and the offset of its first entry in bytes."""
    at = address(content)
    low, high = byte_range(View(content.shape, content.strides, content.dtype, at))
    begin = low // _ALIGNED * _ALIGNED  # within the same page
    writable = content.flags.writeable
    return buffer_at(context, begin, high - begin, writable=writable), at - begin


def can_be_in_place(array: Any) -> bool:
    """Whether kernels can use an array of NumPy where it lies."""
    if not isinstance(array, np.ndarray):
        return False
    steps = (*array.strides, address(array))
    return not any(step % array.dtype.itemsize for step in steps)


def view_in_place(queue: cl.CommandQueue, matrix: HostMatrix, block: Block) -> Any:
    """A block of a host matrix as an array of a device that shares the host's memory."""
    part = matrix.array[block.top : block.bottom, block.left : block.right]
    if not block.size:
        return cl_array.empty(queue, block.shape, matrix.dtype)
    buffer, offset = host_buffer(queue.context, part)
    return cl_array.Array(
        queue, block.shape, matrix.dtype, data=buffer, offset=offset, strides=part.strides
    )


class Slot:
    """Memory of a device for one block at a time."""

    def __init__(self, queue: cl.CommandQueue, what: str, size: int, *, on_host: bool) -> None:
        #: Its bytes where the device shares the host's memory; else None.
        self.memory: NDArray[Any] | None = None
        self._offset = 0
        if on_host:
            self.memory = np.empty(size, np.uint8)
            self.buffer, self._offset = host_buffer(queue.context, self.memory)
        else:
            self.buffer = new_buffer(queue.context, what, max(size, 4))
        self.key: Hashable = None  # of the block in it
        self.users = 0  # steps that will read it, but are not enqueued yet
        self.last_use: cl.Event | None = None

    def array(
        self, queue: cl.CommandQueue, shape: tuple[int, int], dtype: Any, *, turned: bool
    ) -> Any:
        """The slot as a matrix of this shape, whose columns are contiguous if `turned`."""
        dtype = np.dtype(dtype)
        if 0 in shape:
            return cl_array.empty(queue, shape, dtype)
        lead = padded(shape[not turned], dtype.itemsize) * dtype.itemsize
        strides = (dtype.itemsize, lead) if turned else (lead, dtype.itemsize)
        return cl_array.Array(
            queue, shape, dtype, data=self.buffer, offset=self._offset, strides=strides
        )

    def lines(self, count: int, length: int, dtype: Any) -> NDArray[Any]:
        """The lines of a block in it, on a device that shares the host's memory."""
        assert self.memory is not None
        return lines_in(self.memory, count, length, dtype)


def lines_in(memory: NDArray[Any], count: int, length: int, dtype: Any) -> NDArray[Any]:
    """The first bytes of a memory as lines of a block, padded as on the device."""
    dtype = np.dtype(dtype)
    lead = padded(length, dtype.itemsize)
    whole = memory[: count * lead * dtype.itemsize].view(dtype)
    lines: NDArray[Any] = whole.reshape(count, lead)[:, :length]
    return lines


class Slots:
    """The slots of one matrix: a block that stays in one is not copied again.

    The slot that was used longest ago is taken for another block, once its products have ended.
    """

    def __init__(self, slots: list[Slot], is_stopped: Callable[[], bool]) -> None:
        self._free = slots  # the one used longest ago comes first
        self._changed = threading.Condition()
        self._is_stopped = is_stopped

    def take(self, key: Hashable) -> tuple[Slot, bool]:
        """A slot for a block, and whether the block is in it; waits for one that is free."""
        with self._changed:
            while True:
                if self._is_stopped():
                    raise Stopped
                found = next((one for one in self._free if one.key == key), None)
                slot = found or next((one for one in self._free if not one.users), None)
                if slot is not None:
                    break
                self._changed.wait(POLL)
            self._free.remove(slot)
            self._free.append(slot)
            slot.users += 1
        if found is None:
            slot.key = key
            if slot.last_use is not None:
                with InRuntime():
                    slot.last_use.wait()
                slot.last_use = None
        return slot, found is not None

    def used(self, slot: Slot, event: cl.Event | None) -> None:
        """A step that reads or writes the slot was enqueued, or has ended if there is no event."""
        with self._changed:
            slot.users -= 1
            slot.last_use = event
            self._changed.notify_all()
