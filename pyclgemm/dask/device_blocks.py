"""A device of a worker: its queue, the blocks that lie on it, and how long it did what."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.queues import default_queue
from ..host.process import InRuntime
from ..runtime.memory import new_buffer
from ..stream.copies import MOST_PART, Copies, Part

#: The part of a device's memory that uploaded blocks may fill.
CACHED_PART = 0.5
#: Threads that copy between the host and the device.
_MOVERS = 4
#: What a device does, as the dashboard names it.
ACTIVITIES = ("transfer", "product")


class DeviceBlocks:
    """A queue for products, and the blocks of NumPy arrays that were uploaded last.

    A CPU reads a block where it lies. Other devices keep copies until the block is gone from the
    host, or until newer ones need the memory. Arrays that were given must not be changed, which is
    Dask's own rule for blocks.

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
        #: One task computes at a time.
        self.lock = threading.Lock()
        #: Seconds of each activity, and bytes that were uploaded.
        self.seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self.uploaded_bytes = 0
        self.layers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._copies: OrderedDict[int, tuple[weakref.ref[Any], cl.Buffer]] = OrderedDict()
        #: Buffers in the host's memory, which must outlive the products that read them.
        self._read: list[cl.Buffer] = []
        # Copies have threads of their own, so that they run beside products.
        self._uploader = ThreadPoolExecutor(1, "pyclgemm-upload")

    @contextmanager
    def spent(self, activity: str) -> Iterator[None]:
        """Add the time of a block of code to an activity."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] += time.perf_counter() - start

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
        if not memory.flags.c_contiguous:
            matrix = memory = np.ascontiguousarray(matrix)
        if not matrix.size:
            return cl_array.empty(self.queue, matrix.shape, matrix.dtype)
        with InRuntime():
            buffer = self._buffer(memory)
        return cl_array.Array(
            self.queue, matrix.shape, matrix.dtype, data=buffer, strides=matrix.strides
        )

    def _buffer(self, memory: np.ndarray[Any, Any]) -> cl.Buffer:
        """A buffer with the content of a contiguous array: its own memory, a copy, or a new one."""
        if self.on_host:
            flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
            buffer = cl.Buffer(self.queue.context, flags, hostbuf=memory)
            self._read.append(buffer)
            return buffer
        owner = memory
        while isinstance(owner.base, np.ndarray) and owner.base.nbytes == memory.nbytes:
            owner = owner.base
        known = self._copies.get(id(owner))
        if known is not None and known[0]() is owner:
            self._copies.move_to_end(id(owner))
            return known[1]
        with self.spent("transfer"):
            self._make_room(memory.nbytes)
            buffer = new_buffer(self.queue.context, "a block", memory.nbytes)
            self._move(buffer, 0, memory, is_up=True)
        self.uploaded_bytes += memory.nbytes
        key = id(owner)
        drop = functools.partial(self._drop, key)
        self._copies[key] = weakref.ref(owner, drop), buffer
        return buffer

    def _drop(self, key: int, gone: Any) -> None:
        """Forget the copy of an array that is gone, unless another has its place."""
        known = self._copies.get(key)
        if known is not None and known[0] is gone:
            del self._copies[key]

    def _make_room(self, size: int) -> None:
        """Forget the copies that were not used for longest; products that read them keep them."""
        held = size + sum(buffer.size for _, buffer in list(self._copies.values()))
        while held > self.cache_bytes and self._copies:
            held -= self._copies.popitem(last=False)[1][1].size

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Wait for the products of an array, and copy it to the host."""
        with self.spent("product"), InRuntime():
            self.queue.finish()
        self._read.clear()
        with self.spent("transfer"):
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

        def part_of(start: int) -> Part:
            part = content[start : start + MOST_PART]

            def exchange(pinned: np.ndarray[Any, Any]) -> None:
                np.copyto(*((pinned, part) if is_up else (part, pinned)))

            return Part(buffer, offset + start, part.size, is_up, exchange, faults.append)

        copies = Copies(self.queue.context, _MOVERS, MOST_PART)
        try:
            copies.start()
            copies.add(map(part_of, range(0, content.size, MOST_PART)))
        finally:
            copies.close(keeps=True)
        for fault in filter(None, faults):
            raise fault

    def report(self) -> dict[str, Any]:
        """Facts for the dashboard."""
        return {"device": self.name, **self.seconds, "uploaded_bytes": self.uploaded_bytes}
