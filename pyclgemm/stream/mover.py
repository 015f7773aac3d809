"""Copy blocks between host matrices and a device, by several threads.

Each thread has pinned memory and a command queue of its own: it fills the memory from the host's
matrix and copies it to the device, or the other way round. So a part of a block passes through one
thread, and the link is busy while other threads fill their memory. A driver may keep a thread
until its copy is done; here it keeps none that has something else to do.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..errors import AllocationError
from .buffers import (
    LEAST_PART,
    POLL,
    Pinned,
    PinnedCopies,
    Slot,
    Stopped,
    lines_in,
    without_fault,
)
from .plan import Block, padded
from .sources import HostMatrix


class SourceError(Exception):
    """A host matrix could not be read or written: no fault of a device. Its cause is the fault."""


@dataclass
class Transfer:
    """A block on its way between a host matrix and a slot, in parts that several threads copy."""

    matrix: HostMatrix
    block: Block
    slot: Slot
    dtype: np.dtype[Any]  # of the block in the slot
    turned: bool  # whether its lines there are columns
    is_up: bool  # to the device
    then: Callable[[], object] = lambda: None  # called once all parts are copied
    left: int = 0  # parts that are not copied yet
    fault: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        shape = self.block.turned.shape if self.turned else self.block.shape
        #: Lines, and elements of a line.
        self.count, self.length = shape
        #: Bytes from one line to the next in the slot.
        self.lead = padded(self.length, self.dtype.itemsize) * self.dtype.itemsize

    def divided(self, size: int) -> list[tuple[int, int]]:
        """Divide the lines into parts of some bytes, at the chunks of a store where it has any."""
        each = max(1, min(size // max(1, self.lead), -(-self.count // 2)))
        each = max(each, min(self.count, LEAST_PART // max(1, self.lead)))
        chunk = self.matrix.chunks[self.turned]
        start = self.block.left if self.turned else self.block.top
        if chunk > 1 and each >= chunk:
            each = each // chunk * chunk
        edges = [0]
        while edges[-1] < self.count:
            end = edges[-1] + each
            if chunk > 1 and each >= chunk:
                end -= (start + end) % chunk
            edges.append(min(self.count, end))
        return list(itertools.pairwise(edges))

    def lines_of(self, first: int, end: int) -> Block:
        """The block of some of its lines."""
        block = self.block
        if self.turned:
            return block._replace(left=block.left + first, right=block.left + end)
        return block._replace(top=block.top + first, bottom=block.top + end)

    def part_is_done(self, fault: BaseException | None = None) -> None:
        """Note that a part was copied, or failed."""
        with self._changed:
            self.fault = self.fault or fault
            if self.left == 1 and self.fault is None:
                try:
                    self.then()
                except BaseException as error:
                    self.fault = error
            self.left -= 1
            if not self.left or self.fault is not None:
                self._changed.notify_all()

    def wait(self, is_stopped: Callable[[], bool]) -> None:
        """Wait until all parts are copied; raise the fault of a part, or `Stopped`."""
        with self._changed:
            while self.left and self.fault is None:
                if is_stopped():
                    raise Stopped
                self._changed.wait(POLL)
        if self.fault is not None:
            raise self.fault


class Mover:
    """The threads that copy for a device; parts to it and from it take turns."""

    def __init__(
        self, context: cl.Context, threads: int, part_bytes: int, *, shares_memory: bool
    ) -> None:
        self._context = context
        self._part_bytes = part_bytes
        self._shares_memory = shares_memory
        self._changed = threading.Condition()
        #: The parts that wait, to the device and from it.
        self._waiting: dict[bool, deque[tuple[Transfer, int, int]]] = {
            True: deque(), False: deque(),
        }  # fmt: skip
        self._last_was_up = False
        self._copies = PinnedCopies()
        self._ends = self._keeps = False
        self._threads = [
            threading.Thread(target=self._work, name=f"pyclgemm-move-{number}")
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def move(self, transfer: Transfer) -> Transfer:
        """Begin a transfer, after those that were begun before in its direction."""
        parts = transfer.divided(self._part_bytes)
        transfer.left = len(parts)
        with self._changed:
            self._waiting[transfer.is_up].extend((transfer, *part) for part in parts)
            self._changed.notify(len(parts))
        return transfer

    def close(self, *, keeps: bool) -> None:
        """End the threads after their present parts; their memory is kept or freed."""
        with self._changed:
            self._ends, self._keeps = True, keeps
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _next(self) -> tuple[Transfer, int, int] | None:
        """The next part; waits for one. None at the end."""
        with self._changed:
            while not self._ends:
                for is_up in (not self._last_was_up, self._last_was_up):
                    if self._waiting[is_up]:
                        self._last_was_up = is_up
                        return self._waiting[is_up].popleft()
                self._changed.wait()
        return None

    def _work(self) -> None:
        """A thread's work."""
        pinned: Pinned | None = None
        try:
            while (part := self._next()) is not None:
                transfer, first, end = part
                fault: BaseException | None = None
                try:
                    if pinned is None and not self._shares_memory:
                        pinned = Pinned.taken(self._context, self._part_bytes)
                    self._copy(transfer, first, end, pinned)
                except BaseException as error:
                    fault = error
                transfer.part_is_done(fault)
        finally:
            if pinned is not None:
                without_fault(pinned.keep if self._keeps else pinned.release)

    def _copy(self, transfer: Transfer, first: int, end: int, pinned: Pinned | None) -> None:
        slot, length, dtype = transfer.slot, transfer.length, transfer.dtype
        if pinned is None:
            _exchange(transfer, first, end, slot.lines(transfer.count, length, dtype)[first:end])
            return

        def exchange(memory: NDArray[Any]) -> None:
            _exchange(transfer, first, end, lines_in(memory, end - first, length, dtype))

        start, size = first * transfer.lead, (end - first) * transfer.lead
        self._copies.copy(pinned, slot.buffer, start, size, exchange, is_up=transfer.is_up)


def _exchange(transfer: Transfer, first: int, end: int, lines: NDArray[Any]) -> None:
    """Read lines from the host matrix, or write them to it."""
    matrix, part = transfer.matrix, transfer.lines_of(first, end)
    act = matrix.read if transfer.is_up else matrix.write
    try:
        act(part, lines.T if transfer.turned else lines)
    except MemoryError as error:
        raise AllocationError(f"the host has no memory for a block: {error}") from error
    except Exception as error:
        raise SourceError from error
