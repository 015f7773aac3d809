"""Copies between the host and a device by several threads, through pinned memory.

The link takes its full speed only from pinned memory, into which the host must copy first. A thread
has two pieces of it: the device reads one while the thread fills the other. On an H200 eight
threads so move 45 GB/s, and 33 GB/s if each waits for its copies.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..host.process import InRuntime, before_exit
from .buffers import without_fault

#: Least and most bytes of a part that a thread copies: few copies, and several parts within a small
#: memory.
LEAST_PART, MOST_PART = 1 << 20, 8 << 20
#: Parts that wait to go up before a caller waits too.
_MOST_WAITING = 64
#: Pieces of pinned memory of a thread.
_PIECES = 2
#: What finished products keep for the next one, as pinning 64 MB takes some 50 ms.
_kept: list[Pinned] = []
_KEPT_BYTES = 256 << 20
_keeping = threading.Lock()


@dataclass(frozen=True)
class Lines:
    """Lines that are parts of longer ones on the device; all numbers are bytes."""

    size: int  # of a line
    step: int  # from one line to the next on the device
    host_step: int  # and in pinned memory


@dataclass(frozen=True)
class Part:
    """Bytes on their way between the host and a place in a device's buffer.

    `exchange` fills pinned bytes from the host's memory, or empties them into it. `done` is called
    at the end, with the fault if there was one.
    """

    buffer: cl.Buffer | None  # None where kernels use host memory: `exchange` gets no bytes
    offset: int
    size: int  # in pinned memory
    is_up: bool  # to the device
    exchange: Callable[[NDArray[Any]], object]
    done: Callable[[BaseException | None], object]
    lines: Lines | None = None  # None if the bytes lie one behind the other on the device


def parts_of(
    buffer: cl.Buffer, offset: int, memory: NDArray[np.uint8],
    done: Callable[[BaseException | None], object], *, is_up: bool,
) -> Iterator[Part]:  # fmt: skip
    """Divide contiguous bytes of the host and a place in a buffer into parts of the usual size."""

    def part_of(start: int) -> Part:
        part = memory[start : start + MOST_PART]

        def exchange(pinned: NDArray[Any]) -> None:
            np.copyto(*((pinned, part) if is_up else (part, pinned)))

        return Part(buffer, offset + start, part.size, is_up, exchange, done)

    return map(part_of, range(0, memory.size, MOST_PART))


class Pinned:
    """Memory of the host that the driver copies at the full speed of the link.

    It has a command queue of its own.
    """

    def __init__(self, context: cl.Context, size: int) -> None:
        self._queue = cl.CommandQueue(context)
        self._make(size)

    @classmethod
    def taken(cls, context: cl.Context, size: int) -> Pinned:
        """Memory that an earlier product of the context left, or else new memory."""
        with _keeping:
            for one in _kept:
                if one.memory.size >= size and one._queue.context == context:
                    _kept.remove(one)
                    return one
        return cls(context, size)

    def keep(self) -> None:
        """Leave it to a later product; the oldest is freed if there is too much."""
        with _keeping:
            _kept.append(self)
            while sum(one.memory.size for one in _kept) > _KEPT_BYTES:
                _kept.pop(0).release()

    def _make(self, size: int) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access = cl.map_flags.READ | cl.map_flags.WRITE
        with InRuntime():
            self._buffer = cl.Buffer(self._queue.context, flags, size)
            self.memory: NDArray[Any]
            self.memory, _ = cl.enqueue_map_buffer(
                self._queue, self._buffer, access, 0, (size,), np.uint8
            )
            self._mapping: Any = self.memory.base

    def at_least(self, size: int) -> NDArray[Any]:
        """The memory, after replacing it by a larger one if it has fewer bytes."""
        if size > self.memory.size:
            self.release()
            self._make(size)
        return self.memory

    def copy(self, part: Part) -> cl.Event:
        """Begin to copy its first bytes to a place in a device's buffer, or back."""
        memory, lines = self.memory[: part.size], part.lines
        to, source, place = (
            (part.buffer, memory, "dst") if part.is_up else (memory, part.buffer, "src")
        )
        arguments: dict[str, Any] = {f"{place}_offset": part.offset}
        if lines is not None:
            arguments = {
                "buffer_origin": (part.offset % lines.step, part.offset // lines.step, 0),
                "host_origin": (0, 0, 0),
                "region": (lines.size, -(-part.size // lines.host_step), 1),
                "buffer_pitches": (lines.step, 0),
                "host_pitches": (lines.host_step, 0),
            }
        with InRuntime():
            event = cl.enqueue_copy(self._queue, to, source, is_blocking=False, **arguments)
            self._queue.flush()
        return event

    def release(self) -> None:
        """Free it, once no copy uses it."""
        with InRuntime():
            without_fault(self._mapping.release, self._queue)
            without_fault(self._buffer.release)  # the command above keeps it until it has ended
            without_fault(self._queue.flush)


def free_kept() -> None:
    """Free the memory that is kept for later products."""
    with _keeping:
        while _kept:
            _kept.pop().release()


before_exit(free_kept)


class Copies:
    """Threads that copy parts in order; parts to the device and from it take turns.

    `part_bytes` is the usual size of a part; pinned memory grows for larger ones.
    """

    def __init__(self, context: cl.Context, threads: int, part_bytes: int) -> None:
        self._context, self._part_bytes = context, part_bytes
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._room = threading.Condition(lock)  # fewer parts wait to go up
        #: The parts that wait, to the device and from it.
        self._waiting: dict[bool, deque[Part]] = {True: deque(), False: deque()}
        self._last_was_up = False
        self._ends = self._keeps = False
        self._threads = [
            threading.Thread(target=self._work, name=f"pyclgemm-move-{number}")
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def add(self, parts: Iterable[Part]) -> None:
        """Let parts be copied, after those that were added before in their direction.

        Parts to the device first wait while very many do: a caller who runs ahead takes Python's
        time from the threads.
        """
        parts = list(parts)
        with self._changed:
            while any(part.is_up for part in parts) and len(self._waiting[True]) >= _MOST_WAITING:
                self._room.wait()
            for part in parts:
                self._waiting[part.is_up].append(part)
                self._changed.notify()
        time.sleep(0)  # lets them begin; without it Python gives them a turn after 5 ms

    def close(self, *, keeps: bool, drops: bool = False) -> None:
        """End the threads after all parts, or drop those that wait; memory is kept or freed."""
        with self._changed:
            self._ends, self._keeps = True, keeps
            if drops:
                for waiting in self._waiting.values():
                    waiting.clear()
                self._room.notify_all()
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _next(self, *, waits: bool) -> Part | None:
        """The next part, or None: at the end, or if none is there and the thread does not wait."""
        with self._changed:
            while True:
                for is_up in (not self._last_was_up, self._last_was_up):
                    if self._waiting[is_up]:
                        self._last_was_up = is_up
                        self._room.notify_all()
                        return self._waiting[is_up].popleft()
                if self._ends or not waits:
                    return None
                self._changed.wait()

    def _work(self) -> None:
        """A thread's work."""
        thread = _CopyThread(self._context, self._part_bytes)
        while (part := self._next(waits=not thread.under_way)) or thread.under_way:
            if part is None:
                thread.end_oldest()
            else:
                thread.begin(part)
        thread.leave(keeps=self._keeps)


class _CopyThread:
    """The pinned memory of a thread, and the parts that the device copies from it or to it."""

    def __init__(self, context: cl.Context, part_bytes: int) -> None:
        self._context, self._part_bytes = context, part_bytes
        self._free: list[Pinned] = []
        self.under_way: deque[tuple[Part, Pinned, cl.Event]] = deque()

    def begin(self, part: Part) -> None:
        """Fill a piece of memory if the part goes up, and let the device copy."""
        pinned = None
        try:
            if part.buffer is None:
                part.exchange(np.empty(0, np.uint8))
                part.done(None)
                return
            pinned = self._piece(part.size)
            if part.is_up:
                part.exchange(pinned.memory[: part.size])
            event = pinned.copy(part)
        except BaseException as error:
            if pinned is not None:
                self._free.append(pinned)
            part.done(error)
        else:
            self.under_way.append((part, pinned, event))
            if len(self.under_way) == _PIECES:  # the oldest is about to end
                self.end_oldest()

    def _piece(self, size: int) -> Pinned:
        if not self._free:
            return Pinned.taken(self._context, max(size, self._part_bytes))
        pinned = self._free.pop()
        pinned.at_least(size)
        return pinned

    def end_oldest(self) -> None:
        """Wait for the oldest copy, and empty its memory if the part came down."""
        part, pinned, event = self.under_way.popleft()
        fault: BaseException | None = None
        try:
            with InRuntime():
                event.wait()
            if not part.is_up:
                part.exchange(pinned.memory[: part.size])
        except BaseException as error:
            fault = error
        self._free.append(pinned)
        part.done(fault)

    def leave(self, *, keeps: bool) -> None:
        """Keep or free the memory."""
        for pinned in self._free:
            without_fault(pinned.keep if keeps else pinned.release)
