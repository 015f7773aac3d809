"""Move blocks between host matrices and a device: some lines of a block are a part of a copy."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..errors import AllocationError
from .buffers import POLL, Slot, Stopped, lines_in
from .copies import LEAST_PART, Copies, Lines, Part
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
    #: The block whose place on the device the slot is; None if it is the one that travels.
    whole: Block | None = None
    left: int = 0  # parts that are not copied yet
    fault: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        shape = self.block.turned.shape if self.turned else self.block.shape
        #: Lines, and elements of a line.
        self.count, self.length = shape
        whole, size = self.whole or self.block, self.dtype.itemsize
        #: Lines of the slot, and elements of one; those among them that the block has.
        self.slot_shape = whole.turned.shape if self.turned else whole.shape
        self.place = self.block.within(whole)[:: -1 if self.turned else 1]
        longest = self.slot_shape[1]
        #: Bytes from one line to the next in the slot and in pinned memory; where the first begins.
        self.step, self.lead = padded(longest, size) * size, padded(self.length, size) * size
        self.origin = self.place[0].start * self.step + self.place[1].start * size
        is_part = self.length < longest
        self.lines = Lines(self.length * size, self.step, self.lead) if is_part else None

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

    def on_host(self, first: int, end: int) -> NDArray[Any]:
        """Some of its lines in a slot in the host's memory."""
        return self.slot.lines(*self.slot_shape, self.dtype)[self.place][first:end]

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
    """What copies blocks for a device."""

    def __init__(
        self, context: cl.Context, threads: int, part_bytes: int, *, shares_memory: bool
    ) -> None:
        self._part_bytes = part_bytes
        self._shares_memory = shares_memory
        self._copies = Copies(context, threads, part_bytes)
        self.start = self._copies.start
        self.close = self._copies.close

    def move(self, transfer: Transfer) -> Transfer:
        """Begin a transfer, after those that were begun before in its direction."""
        edges = transfer.divided(self._part_bytes)
        transfer.left = len(edges)
        self._copies.add([self._part(transfer, *edge) for edge in edges])
        return transfer

    def _part(self, transfer: Transfer, first: int, end: int) -> Part:
        slot, length, dtype = transfer.slot, transfer.length, transfer.dtype

        def exchange(memory: NDArray[Any]) -> None:
            if self._shares_memory:
                lines = transfer.on_host(first, end)
            else:
                lines = lines_in(memory, end - first, length, dtype)
            _exchange(transfer, first, end, lines)

        return Part(
            None if self._shares_memory else slot.buffer, transfer.origin + first * transfer.step,
            (end - first) * transfer.lead, transfer.is_up, exchange, transfer.part_is_done,
            transfer.lines,
        )  # fmt: skip


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
