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
from collections.abc import Callable
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

    array: Any = None  # None until the first product: others may still be written back
    slot: Slot | None = None  # None in place


@dataclass
class _Step:
    """One product of panels, which is added to a tile."""

    tile: Tile
    target: _Target
    a: Any
    b: Any
    c: Any  # the addend of the first step; None for others
    is_first: bool
    is_last: bool
    used: list[tuple[Slots, Slot]]
    in_place: list[tuple[HostMatrix, Block]]  # what the product reads where it lies
    transfers: list[Transfer]  # what must arrive before
    whole: Tile  # the tile of the feed that this one is a part of
    event: cl.Event | None = None  # of the product, once it is enqueued


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
        while (whole := self._draw()) is not None:
            parts = list(whole.divided(self.plan.rows, self.plan.columns))
            self._unwritten[whole] = len(parts)
            for tile in parts:
                self._read_tile(tile, whole)
        self._steps.put(None)

    def _draw(self) -> Tile | None:
        return self.feed.draw(self.plan.member.name, self._is_stopped)

    def _read_tile(self, tile: Tile, whole: Tile) -> None:
        call, queue, block = self.call, self.device.queue, tile.block
        while not self._under_way.acquire(timeout=POLL):
            if self._is_stopped():
                raise Stopped
        target = _Target()
        if self._out_in_place:
            target.array = view_in_place(queue, call.out, block)
        c = None
        read_here: list[tuple[HostMatrix, Block]] = []  # by the step that comes next
        transfers: list[Transfer] = []  # for it
        if call.c is not None:
            if self._c_in_place:
                read_here.append((call.c, block))
                c = view_in_place(queue, call.c, block)
            else:
                slot = self._take_slot(target, block)
                c, dtype, turned = target.array, self._tile_dtype, call.out.turned
                transfer = Transfer(call.c, block, slot, dtype, turned, is_up=True)
                transfers.append(self._mover.move(transfer))
        panels = self._panels
        # Every other tile runs backwards: its first panels are still on the device.
        for number, (first, end) in enumerate(panels[::-1] if tile.index % 2 else panels):
            used: list[tuple[Slots, Slot]] = []
            here, read_here = read_here, []
            panel_a = call.a, call.block_of_a(block, first, end), self._a_slots
            panel_b = call.b, call.block_of_b(block, first, end), self._b_slots
            arriving, transfers = transfers, []
            a, b = (self._panel(*one, used, here, arriving) for one in (panel_a, panel_b))
            is_last = number == len(panels) - 1
            step = _Step(
                tile, target, a, b, None if number else c, number == 0, is_last, used, here,
                arriving, whole,
            )  # fmt: skip
            self._steps.put(step)

    def _take_slot(self, target: _Target, block: Block) -> Slot:
        """Take a slot for a tile; waits until one was written back."""
        slot, _ = self._tiles.take(block)
        target.slot = slot
        target.array = slot.array(
            self.device.queue, block.shape, self._tile_dtype, turned=self.call.out.turned
        )
        return slot

    def _panel(
        self, matrix: HostMatrix, block: Block, slots: Slots, used: list[tuple[Slots, Slot]],
        here: list[tuple[HostMatrix, Block]], arriving: list[Transfer],
    ) -> Any:  # fmt: skip
        """A panel on the device; its content may still be on the way."""
        queue = self.device.queue
        if self.device.in_place(matrix, matrix.dtype):
            here.append((matrix, block))
            return view_in_place(queue, matrix, block)
        slot, is_there = slots.take(block)
        used.append((slots, slot))
        if not is_there:
            transfer = Transfer(matrix, block, slot, matrix.dtype, matrix.turned, is_up=True)
            arriving.append(self._mover.move(transfer))
        return slot.array(queue, block.shape, matrix.dtype, turned=matrix.turned)

    # -- the thread that multiplies -------------------------------------------------------------

    def _multiply(self) -> None:
        """Enqueue the products of the steps, in order."""
        call, queue = self.call, self.device.queue
        while (step := self._get(self._steps)) is not None:
            left, right = step.tile.block[2:]
            bias = None if self._bias is None else self._bias[left:right]
            last = Epilogue(bias, call.epilogue.activation)
            if step.target.array is None:
                self._take_slot(step.target, step.tile.block)
            result = step.target.array
            c, beta = (step.c, call.beta) if step.is_first else (result, 1.0)
            if step.is_first and self._out_in_place:
                self.feed.write_begins(step.whole)
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

    # -- the thread that writes -----------------------------------------------------------------

    def _write(self) -> None:
        """Let finished tiles be written to the destination, several at a time."""
        writing: deque[Transfer] = deque()
        while (step := self._get(self._results)) is not None:
            assert step.event is not None
            with InRuntime():
                step.event.wait()
            slot, out = step.target.slot, self.call.out
            if slot is None:
                out.forget(step.tile.block)
                self._written(step)
                continue
            self.feed.write_begins(step.whole)
            transfer = Transfer(
                out, step.tile.block, slot, self._tile_dtype, out.turned, is_up=False,
                then=partial(self._written, step),
            )  # fmt: skip
            writing.append(self._mover.move(transfer))
            if len(writing) >= self.plan.results:
                writing.popleft().wait(self._is_stopped)
        for transfer in writing:
            transfer.wait(self._is_stopped)

    def _written(self, step: _Step) -> None:
        """Note that a tile was written."""
        if step.target.slot is not None:
            self._tiles.used(step.target.slot, None)
        self._under_way.release()
        with self._counting:
            self._unwritten[step.whole] -= 1
            is_whole = not self._unwritten[step.whole]
        if is_whole:
            self.feed.finish(self.plan.member.name, step.whole)
        _log.debug("%s: %s is written", self.plan.member.name, step.tile.block)
