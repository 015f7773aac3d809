"""A device of a worker: its queue, the blocks that lie on it, and how long it did what."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.queues import default_queue
from ..host.process import InRuntime
from ..runtime.memory import new_buffer
from ..stream.copies import MOST_PART, Copies, parts_of
from .busy import PRODUCT, TRANSFER, BusyTimes

#: Tasks at a time on a device with memory of its own: one multiplies while another moves.
TASKS = 2
#: The part of a device's memory that uploaded blocks may fill.
CACHED_PART = 0.5
#: The part of those bytes that stays with the memory of blocks that are gone.
_SPARE_PART = 0.125
#: Threads that copy to the device, and as many that copy from it.
_MOVERS = 4


@dataclass
class _Copy:
    """A copy of a block on the device."""

    block: weakref.ref[Any]  # the array that owns the block's memory
    buffer: cl.Buffer
    turn: int = 0  # the last one that used it


class DeviceBlocks:
    """A queue for products, and the blocks of NumPy arrays that were uploaded last.

    A CPU reads a block where it lies. Other devices keep copies until the block is gone from the
    host, or until newer ones need the memory. Arrays that were given must not be changed, which is
    Dask's own rule for blocks.

    A task uploads and enqueues in its turn, which it ends before its products do. So the blocks of
    the next task travel, and its products are enqueued, while this one multiplies; and its result
    is downloaded while the next one does.

    Parameters
    ----------
    device : int, str or pyopencl.Device, optional
        As for `pyclgemm.default_queue`.
    cache_bytes : int, optional
        The most memory of uploaded blocks; None is half of the device's.
    """

    def __init__(self, device: Any = None, cache_bytes: int | None = None) -> None:
        self.queue = default_queue(device)
        found = self.queue.device
        self.name: str = found.name.strip()
        self.on_host = bool(found.type & cl.device_type.CPU)
        limit = int(found.global_mem_size * CACHED_PART) if cache_bytes is None else cache_bytes
        self.cache_bytes = limit
        #: Held by each task, so that few results lie on the device at a time.
        self.places = threading.Semaphore(TASKS)
        #: Held by the task that uploads and enqueues.
        self.turn = threading.Lock()
        self.times = BusyTimes()
        self.uploaded_bytes = 0
        self.layers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        #: By the array that owns the memory and the part of it, the one used last at the end.
        self._copies: OrderedDict[tuple[int, int, int], _Copy] = OrderedDict()
        #: Buffers in the host's memory, which must outlive the products that read them.
        self._read: list[cl.Buffer] = []
        # Copies have threads of their own, so that they run beside products.
        self._uploader = ThreadPoolExecutor(1, "pyclgemm-upload")
        # A driver that frees memory waits for products, and Python's other threads with it. So the
        # memory of results that were downloaded, of blocks that are gone and of copies that others
        # replace is used again, after all products that use it.
        self._results: deque[cl.Buffer] = deque(maxlen=TASKS)
        self._spare: deque[cl.Buffer] = deque()
        self._turns = 0  # that have ended
        self._end: cl.Event | None = None  # of the products of the last of them

    @property
    def tasks(self) -> int:
        """How many tasks at a time keep the device busy."""
        return 1 if self.on_host else TASKS

    def uploads(self, matrices: Any) -> Iterator[Any]:
        """The matrices on the device, in order; the next one is copied while one is used."""
        if self.on_host:  # nothing is copied
            yield from map(self.upload, matrices)
            return
        ahead = None
        for matrix in matrices:
            following = self._uploader.submit(self.upload, matrix)
            if ahead is not None:
                yield ahead.result()
            ahead = following
        if ahead is not None:
            yield ahead.result()

    def upload(self, matrix: np.ndarray[Any, Any]) -> Any:
        """An array on the device with the entries of one on the host, and like strides if dense."""
        order = np.argsort([-abs(stride) for stride in matrix.strides], kind="stable")
        memory = matrix.transpose(order)
        if not matrix.size:
            return cl_array.empty(self.queue, matrix.shape, matrix.dtype)
        is_dense = memory.flags.c_contiguous
        if not is_dense:
            matrix = memory = np.ascontiguousarray(matrix)
        with InRuntime():
            if self.on_host:
                buffer = self._host_buffer(memory)
            else:
                buffer = self._kept_copy(memory) if is_dense else self._copy(memory)
        return cl_array.Array(
            self.queue, matrix.shape, matrix.dtype, data=buffer, strides=matrix.strides
        )

    def _kept_copy(self, memory: np.ndarray[Any, Any]) -> cl.Buffer:
        """The copy of a part of an array that lives on; a new one if there is none."""
        owner = memory
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        key = id(owner), memory.ctypes.data, memory.nbytes
        known = self._copies.get(key)
        if known is not None and known.block() is owner:
            self._copies.move_to_end(key)
        else:
            block = weakref.ref(owner, functools.partial(self._drop, key))
            known = self._copies[key] = _Copy(block, self._copy(memory))
        known.turn = self._turns
        return known.buffer

    def _host_buffer(self, memory: np.ndarray[Any, Any]) -> cl.Buffer:
        """A buffer that is the memory of a contiguous array."""
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
        buffer = cl.Buffer(self.queue.context, flags, hostbuf=memory)
        self._read.append(buffer)
        return buffer

    def _copy(self, memory: np.ndarray[Any, Any]) -> cl.Buffer:
        """Device memory with the content of a contiguous array."""
        with self.times.during(TRANSFER):
            buffer = _of_size(self._spare, memory.nbytes)
            if buffer is None:
                buffer = self._room_for(memory.nbytes)
            if buffer is None:
                buffer = new_buffer(self.queue.context, "a block", memory.nbytes)
            self._move(buffer, 0, memory, is_up=True)
        self.uploaded_bytes += memory.nbytes
        return buffer

    def _drop(self, key: tuple[int, int, int], gone: Any) -> None:
        """Forget the copy of an array that is gone, unless another has its place.

        The tasks that read it held the array, so they have ended, and so have their products.
        """
        known = self._copies.get(key)
        if known is not None and known.block is gone:
            del self._copies[key]
            if sum(one.size for one in list(self._spare)) < self.cache_bytes * _SPARE_PART:
                self._spare.append(known.buffer)

    def _room_for(self, size: int) -> cl.Buffer | None:
        """Forget the copies that were not used for longest; one of the size is returned.

        Products that still read a copy keep its memory.
        """
        held = size + sum(one.buffer.size for one in list(self._copies.values()))
        held += sum(buffer.size for buffer in list(self._spare))
        while held > self.cache_bytes and self._spare:
            held -= self._spare.popleft().size
        while held > self.cache_bytes and self._copies:
            _, oldest = self._copies.popitem(last=False)
            if oldest.buffer.size == size and self._has_ended(oldest.turn):
                return oldest.buffer
            held -= oldest.buffer.size
        return None

    def _has_ended(self, turn: int) -> bool:
        """Wait for the products of a turn; false if they are not enqueued yet.

        At most `TASKS` tasks have not ended, this one among them, and products end in order.
        """
        if turn == self._turns - 1 and self._end is not None:
            self._end.wait()
        return turn < self._turns

    def result(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array for a result, with undefined entries; `keep` takes it back."""
        buffer = _of_size(self._results, math.prod(shape) * np.dtype(dtype).itemsize)
        if buffer is None:
            return cl_array.empty(self.queue, shape, dtype)
        return cl_array.Array(self.queue, shape, dtype, data=buffer)

    def keep(self, array: Any) -> None:
        """Leave the memory of a result to a later one; it was downloaded."""
        if array.size:
            self._results.append(array.base_data)

    def enqueued(self) -> cl.Event:
        """The end of what was enqueued so far; a CPU has reached it."""
        with self.times.during(PRODUCT), InRuntime():
            end = cl.enqueue_marker(self.queue)
            if self.on_host:
                end.wait()
                self._read.clear()
            else:
                self.queue.flush()
        self._turns, self._end = self._turns + 1, end
        return end

    def download(self, array: Any, end: cl.Event) -> np.ndarray[Any, Any]:
        """Wait for an event, after which an array is complete, and copy it to the host."""
        with self.times.during(PRODUCT), InRuntime():
            end.wait()
        with self.times.during(TRANSFER):
            if self.on_host or not array.flags.c_contiguous:
                with InRuntime():
                    host: np.ndarray[Any, Any] = array.get(self.queue)
            else:
                host = np.empty(array.shape, array.dtype)
                self._move(array.base_data, array.offset, host, is_up=False)
        return host

    def _move(
        self, buffer: cl.Buffer, offset: int, memory: np.ndarray[Any, Any], *, is_up: bool
    ) -> None:
        """Copy contiguous memory to a place in a buffer, or back, by threads with pinned memory."""
        content = memory.reshape(-1).view(np.uint8)
        faults: list[BaseException | None] = []
        copies = Copies(self.queue.context, _MOVERS, MOST_PART)
        try:
            copies.start()
            copies.add(parts_of(buffer, offset, content, faults.append, is_up=is_up))
        finally:
            copies.close(keeps=True)
        for fault in filter(None, faults):
            raise fault

    def report(self) -> dict[str, Any]:
        """Facts for the dashboard."""
        return {"device": self.name, **self.times.read(), "uploaded_bytes": self.uploaded_bytes}


def _of_size(buffers: deque[cl.Buffer], size: int) -> cl.Buffer | None:
    """Take the oldest buffer of a size, if there is one; several threads may do so at once."""
    for buffer in list(buffers):
        if buffer.size == size:
            with suppress(ValueError):  # another thread was first
                buffers.remove(buffer)
                return buffer
    return None
