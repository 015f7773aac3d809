"""Run tiles of a product on one device: plan ahead, multiply and write, each in its own thread.

The threads pass steps on by queues, so the next panels travel while the present ones multiply, and
a finished tile travels back while the next one is computed. What travels is copied by the threads
of a `Mover`.
"""

from __future__ import annotations

import itertools
import logging
import queue as queues
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyopencl as cl

from ..api.epilogue import NO_EPILOGUE, Epilogue
from ..api.gemm import gemm
from ..host.process import InRuntime
from ..runtime.memory import LAUNCH_FAULTS, to_device, typed_error
from .buffers import POLL, Slot, Slots, Stopped, view_in_place, without_fault
from .call import Device, StreamCall
from .copies import LEAST_PART, MOST_PART
from .feed import Feed
from .mover import Mover, Transfer
from .plan import Block, DevicePlan, Task, Tile, padded, panel_edges, slot_bytes
from .sources import HostMatrix

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

#: Tiles that are begun before an earlier one is written: panels of the last ones are on the way.
_UNDER_WAY = 4


@dataclass
class _Target:
    """Where a tile is computed on the device."""

    tile: Tile
    whole: Tile  # the tile of the feed that this one is a part of
    array: Any = None  # None until the first product: others may still be written back
    slot: Slot | None = None  # None in place
    unwritten: int = 1  # strips


@dataclass
class _Step:
    """One product of panels or of parts of them, which is added to a tile or a strip of it."""

    target: _Target
    block: Block  # of the result
    a: Any
    b: Any
    is_first: bool
    is_last: bool
    used: list[tuple[Slots, Slot]]
    in_place: list[tuple[HostMatrix, Block]]  # what the product reads where it lies
    transfers: list[Transfer]  # what must arrive before
    event: cl.Event | None = None  # of the product, once it is enqueued


@dataclass
class _Panel:
    """A panel of an operand on the device, and what of it is still to be ordered."""

    matrix: HostMatrix
    block: Block
    array: Any
    slot: Slot | None  # None if kernels read the matrix where it lies
    is_there: bool

    def part(self, block: Block) -> Any:
        """A part of the panel, as an array."""
        return self.array if block == self.block else self.array[block.within(self.block)]


@dataclass
class Engine:
    """The work of one device."""

    device: Device
    plan: DevicePlan
    task: Task
    call: StreamCall
    feed: Feed
    threads: int
    _errors: list[BaseException] = field(default_factory=list)
    _stop: bool = False
    #: The parts of each tile of the feed that are not written yet.
    _unwritten: dict[Tile, int] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Compute tiles of the feed until it has no more; raise the first fault.

        All threads have ended, no kernel runs and nothing is written when it returns or raises.
        """
        queue, memory = self.device.queue, self.device.link.shares_memory
        self._steps: queues.Queue[_Step | None] = queues.Queue()
        self._results: queues.Queue[_Step | None] = queues.Queue()
        self._mover = Mover(
            self.device.context, self.threads, self._part_bytes(), shares_memory=memory
        )
        with ExitStack() as stack:
            try:
                # What holds panels is released before the rest, while the last tile is written.
                self._reading = stack.enter_context(ExitStack())
                self._allocate(stack, self._reading)
                read, write = (
                    threading.Thread(target=self._guarded, args=(stage,), name=f"pyclgemm-{name}")
                    for name, stage in (("read", self._read), ("write", self._write))
                )
                try:
                    read.start()  # the first parts wait for the threads that copy
                    self._mover.start()
                    write.start()
                    self._guarded(self._multiply)
                finally:
                    self._stop = self._stop or bool(self._errors)
                    for thread in (read, write):
                        if thread.ident is not None:
                            thread.join()
                    self._mover.close(keeps=not self._is_stopped(), drops=True)
            finally:
                with InRuntime():
                    without_fault(queue.finish)
        if self._errors:
            raise self._errors[0]

    def _part_bytes(self) -> int:
        """The bytes of a part of a block, a multiple of the chunks of a store if it can be."""
        call, plan = self.call, self.plan
        size = min(MOST_PART, max(LEAST_PART, plan.memory // 32))
        lines = max(one.chunks[one.turned] for one in (call.a, call.b, call.out))
        itemsize = max(call.a.dtype.itemsize, call.sums.itemsize, call.out.dtype.itemsize)
        longest = padded(max(plan.rows, plan.columns, plan.depth), itemsize) * itemsize
        return max(size, longest * max(1, min(lines, MOST_PART // longest)))

    def _is_stopped(self) -> bool:
        return self._stop or self.feed.is_stopped

    def _guarded(self, stage: Callable[[], None]) -> None:
        """Run a thread's work; its fault stops the other threads."""
        try:
            stage()
        except Stopped:
            self._stop = True
        except cl.Error as error:
            facts = {"kernels": "a product or a copy", "label": ""}
            fault = typed_error(error, LAUNCH_FAULTS, self.device.queue.device, **facts)
            fault.__cause__ = error if fault is not error else None
            self._errors.append(fault)
            self._stop = True
        except BaseException as error:
            self._errors.append(error)
            self._stop = True

    def _get(self, source: queues.Queue[Item]) -> Item:
        """The next item of a queue, or `Stopped`."""
        while True:
            if self._is_stopped():
                raise Stopped
            try:
                return source.get(timeout=POLL)
            except queues.Empty:
                continue

    def _allocate(self, stack: ExitStack, reading: ExitStack) -> None:
        """Make slots; raise `AllocationError` if the memory is lacking."""
        call, plan, queue = self.call, self.plan, self.device.queue
        self._panels = list(itertools.pairwise(panel_edges(self.task, plan.member, plan.depth)))
        self._tile_dtype = call.out.dtype if len(self._panels) == 1 else call.sums
        self._c_in_place = call.c is not None and self.device.in_place(call.c, self._tile_dtype)
        self._out_in_place = self.device.writes_in_place(call, self._tile_dtype)
        sizes = slot_bytes(self.task, plan.rows, plan.columns, plan.depth)

        def slots(kept: ExitStack, what: str, count: int, size: int, in_place: bool) -> Slots:
            shares = self.device.link.shares_memory
            made = []
            for _ in range(count):
                slot = Slot(queue, what, size, on_host=shares)
                kept.callback(without_fault, slot.buffer.release)
                made.append(slot)
            return Slots([] if in_place else made, self._is_stopped)

        a_here, b_here = (self.device.in_place(one, call.a.dtype) for one in (call.a, call.b))
        self._a_slots = slots(
            reading, "a panel of a", 0 if a_here else plan.a_slots, sizes["a"], a_here
        )
        self._b_slots = slots(
            reading, "a panel of b", 0 if b_here else plan.b_slots, sizes["b"], b_here
        )
        count = 0 if self._out_in_place else plan.results
        self._tiles = slots(stack, "a tile of the result", count, sizes["out"], self._out_in_place)
        self._under_way = threading.Semaphore(_UNDER_WAY)
        bias = call.epilogue.bias
        if bias is not None:
            bias = to_device(queue, "bias", bias.astype(self._tile_dtype, copy=False))
        self._bias = bias

    # -- the thread that plans ahead ------------------------------------------------------------

    def _read(self) -> None:
        """Draw tiles, and let their panels be read ahead of the products."""
        is_first = True
        while (whole := self._draw()) is not None:
            parts = list(whole.divided(self.plan.rows, self.plan.columns))
            self._unwritten[whole] = len(parts)
            for tile in parts:
                is_last = self.feed.is_drained and tile is parts[-1]
                self._read_tile(_Target(tile, whole), is_first=is_first, is_last=is_last)
                is_first = False
        self._steps.put(None)

    def _draw(self) -> Tile | None:
        return self.feed.draw(self.plan.member.name, self._is_stopped)

    def _read_tile(self, target: _Target, *, is_first: bool, is_last: bool) -> None:
        call, tile, block = self.call, target.tile, target.tile.block
        while not self._under_way.acquire(timeout=POLL):
            if self._is_stopped():
                raise Stopped
        if self._out_in_place:
            target.array = view_in_place(self.device.queue, call.out, block)
        here: list[tuple[HostMatrix, Block]] = []  # by the first step
        transfers: list[Transfer] = []  # for it
        if call.c is not None and self._c_in_place:
            here.append((call.c, block))
        elif call.c is not None:
            slot, turned = self._take_slot(target), call.out.turned
            transfer = Transfer(call.c, block, slot, self._tile_dtype, turned, is_up=True)
            transfers.append(self._mover.move(transfer))
        # The first tile is multiplied in pieces as they arrive, the last one written in strips as
        # they are computed. Every other tile runs backwards: its first panels are on the device.
        pieces, panels = self.plan.pieces if is_first else (), self._panels
        if tile.index % 2 and not pieces:
            panels = panels[::-1]
        strips = [block]
        if is_last and self.plan.strips > 1 and not self._out_in_place:
            strips = list(block.strips(self.plan.strips, by_columns=call.out.turned))
        target.unwritten = len(strips)
        for strip in strips:
            for step in self._steps_of(target, strip, panels, pieces):
                step.in_place += here
                step.transfers += transfers
                here, transfers = [], []
                self._steps.put(step)

    def _steps_of(
        self, target: _Target, strip: Block, panels: list[tuple[int, int]], pieces: tuple[int, ...]
    ) -> Iterator[_Step]:
        """The products for a strip of a tile, after ordering what of their panels is not there."""
        call, block = self.call, target.tile.block
        for first, end in panels:
            used: list[tuple[Slots, Slot]] = []
            a = self._panel(call.a, call.block_of_a(block, first, end), self._a_slots, used)
            b = self._panel(call.b, call.block_of_b(block, first, end), self._b_slots, used)
            inner = [edge for edge in pieces if first < edge < end]
            for begin, stop in itertools.pairwise([first, *inner, end]):
                here: list[tuple[HostMatrix, Block]] = []
                arriving: list[Transfer] = []
                self._order(a, call.block_of_a(block, begin, stop), here, arriving)
                self._order(b, call.block_of_b(block, begin, stop), here, arriving)
                yield _Step(
                    target, strip, a.part(call.block_of_a(strip, begin, stop)),
                    b.part(call.block_of_b(strip, begin, stop)), begin == panels[0][0],
                    stop == panels[-1][1], used if stop == end else [], here, arriving,
                )  # fmt: skip

    def _take_slot(self, target: _Target) -> Slot:
        """Take a slot for a tile; waits until one was written back."""
        block = target.tile.block
        slot, _ = self._tiles.take(block)
        target.slot = slot
        target.array = slot.array(
            self.device.queue, block.shape, self._tile_dtype, turned=self.call.out.turned
        )
        return slot

    def _panel(
        self, matrix: HostMatrix, block: Block, slots: Slots, used: list[tuple[Slots, Slot]]
    ) -> _Panel:
        """A place for a panel on the device; its content may be there, or be ordered later."""
        queue = self.device.queue
        if self.device.in_place(matrix, matrix.dtype):
            return _Panel(matrix, block, view_in_place(queue, matrix, block), None, is_there=True)
        slot, is_there = slots.take(block)
        used.append((slots, slot))
        array = slot.array(queue, block.shape, matrix.dtype, turned=matrix.turned)
        return _Panel(matrix, block, array, slot, is_there)

    def _order(
        self, panel: _Panel, block: Block, here: list[tuple[HostMatrix, Block]],
        arriving: list[Transfer],
    ) -> None:  # fmt: skip
        """Let a part of a panel be read, unless it is there."""
        matrix = panel.matrix
        if panel.slot is None:
            here.append((matrix, block))
        elif not panel.is_there:
            transfer = Transfer(
                matrix, block, panel.slot, matrix.dtype, matrix.turned, is_up=True,
                whole=panel.block,
            )  # fmt: skip
            arriving.append(self._mover.move(transfer))

    # -- the thread that multiplies -------------------------------------------------------------

    def _multiply(self) -> None:
        """Enqueue the products of the steps, in order."""
        call, queue = self.call, self.device.queue
        while (step := self._get(self._steps)) is not None:
            target, left, right = step.target, *step.block[2:]
            bias = None if self._bias is None else self._bias[left:right]
            last = Epilogue(bias, call.epilogue.activation)
            if target.array is None:
                self._take_slot(target)
            result = target.array
            if step.block != target.tile.block:
                result = result[step.block.within(target.tile.block)]
            c, beta = result, 1.0
            if step.is_first:
                c, beta = self._addend(step, result), call.beta
            if step.is_first and self._out_in_place:
                self.feed.write_begins(target.whole)
            for transfer in step.transfers:
                transfer.wait(self._is_stopped)
            event: cl.Event
            _, event = gemm(
                queue, step.a, step.b, c, alpha=call.alpha, beta=None if c is None else beta,
                trans_a=call.trans_a, trans_b=call.trans_b, out=result,
                epilogue=last if step.is_last else NO_EPILOGUE, precision=call.precision,
                return_event=True,
            )  # fmt: skip
            with InRuntime():
                queue.flush()
                if self.device.link.shares_memory:
                    # In Intel's runtime the thread that waits computes, and this one stepped aside.
                    event.wait()
            step.event = event
            for slots, slot in step.used:
                slots.used(slot, event)
            for matrix, block in step.in_place:
                matrix.forget(block)
            if step.is_last:
                self._results.put(step)
        self._results.put(None)
        with InRuntime():
            queue.finish()
            self._reading.close()

    def _addend(self, step: _Step, result: Any) -> Any:
        """What the first product of a tile adds: c where it lies or in the tile's slot, or None."""
        c = self.call.c
        if c is None:
            return None
        return view_in_place(self.device.queue, c, step.block) if self._c_in_place else result

    # -- the thread that writes -----------------------------------------------------------------

    def _write(self) -> None:
        """Let finished tiles be written to the destination, several at a time."""
        writing: deque[Transfer] = deque()
        while (step := self._get(self._results)) is not None:
            assert step.event is not None
            with InRuntime():
                step.event.wait()
            target, out = step.target, self.call.out
            if target.slot is None:
                out.forget(step.block)
                self._written(step)
                continue
            self.feed.write_begins(target.whole)
            transfer = Transfer(
                out, step.block, target.slot, self._tile_dtype, out.turned, is_up=False,
                then=partial(self._written, step), whole=target.tile.block,
            )  # fmt: skip
            writing.append(self._mover.move(transfer))
            if len(writing) >= self.plan.results:
                writing.popleft().wait(self._is_stopped)
        for transfer in writing:
            transfer.wait(self._is_stopped)

    def _written(self, step: _Step) -> None:
        """Note that a tile, or a strip of one, was written."""
        target = step.target
        with self._counting:
            target.unwritten -= 1
            if target.unwritten:
                return
            self._unwritten[target.whole] -= 1
            is_whole = not self._unwritten[target.whole]
        if target.slot is not None:
            self._tiles.used(target.slot, None)
        self._under_way.release()
        if is_whole:
            self.feed.finish(self.plan.member.name, target.whole)
        _log.debug("%s: %s is written", self.plan.member.name, target.tile.block)
