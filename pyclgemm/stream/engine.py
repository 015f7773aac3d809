"""Run tiles of a product on one device: read, copy, multiply and write, each in its own thread.

The threads pass steps on by queues, so the next panels travel while the present ones multiply, and
a finished tile travels back while the next one is computed. A driver may keep a thread until its
copy is done, so copies have threads of their own.
"""

from __future__ import annotations

import logging
import queue as queues
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyopencl as cl

from ..api.epilogue import NO_EPILOGUE, Epilogue
from ..api.gemm import gemm
from ..errors import AllocationError
from ..host.process import InRuntime
from ..runtime.memory import LAUNCH_FAULTS, to_device, typed_error
from .buffers import POLL, Slot, Slots, Staging, Stopped, lines_in, view_in_place, without_fault
from .call import Device, StreamCall
from .feed import Feed
from .plan import Block, DevicePlan, Task, Tile, padded, slot_bytes
from .sources import HostMatrix

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

#: Bytes of a staging buffer: few copies, and several buffers within a small memory.
_LEAST_STAGE, _MOST_STAGE = 1 << 20, 8 << 20
#: Most staging buffers that are filled at a time; drivers pin 100 MB in some 50 ms.
_FILLING = 8


class SourceError(Exception):
    """A host matrix could not be read or written: no fault of a device. Its cause is the fault."""


@dataclass
class _Step:
    """One product of panels, which is added to a tile."""

    tile: Tile
    result: Any  # the tile on the device
    slot: Slot | None  # of the tile; None in place
    a: Any
    b: Any
    c: Any  # the addend of the first step; None for others
    is_first: bool
    is_last: bool
    used: list[tuple[Slots, Slot]]
    in_place: list[tuple[HostMatrix, Block]]  # what the product reads where it lies
    whole: Tile  # the tile of the feed that this one is a part of
    ends_whole: bool
    event: cl.Event | None = None


@dataclass
class _Copy:
    """Lines of a block on their way to a slot: read by a future, then copied to the device."""

    filled: Future[None]
    slot: Slot
    memory: Any = None  # the staging buffer; None if the slot is host memory
    offset: int = 0
    size: int = 0


@dataclass
class Engine:
    """The work of one device."""

    device: Device
    plan: DevicePlan
    task: Task
    call: StreamCall
    feed: Feed
    pool: Executor
    threads: int
    _errors: list[BaseException] = field(default_factory=list)
    _stop: bool = False

    def run(self) -> None:
        """Compute tiles of the feed until it has no more; raise the first fault.

        All threads have ended, no kernel runs and nothing is written when it returns or raises.
        """
        queue = self.device.queue
        context = self.device.context
        self._up, self._down = cl.CommandQueue(context), cl.CommandQueue(context)
        self._copies: queues.Queue[_Copy | _Step | None] = queues.Queue()
        self._steps: queues.Queue[_Step | None] = queues.Queue()
        self._results: queues.Queue[_Step | None] = queues.Queue()
        self._written: list[Future[None]] = []
        with ExitStack() as stack:
            try:
                # What holds panels is released before the rest, while the last tile is written.
                self._reading = stack.enter_context(ExitStack())
                self._allocate(stack, self._reading)
                others = [
                    threading.Thread(target=self._guarded, args=(stage,), name=f"pyclgemm-{name}")
                    for name, stage in (
                        ("read", self._read), ("copy", self._copy), ("write", self._write),
                    )
                ]  # fmt: skip
                try:
                    for thread in others:
                        thread.start()
                    self._guarded(self._multiply)
                finally:
                    self._stop = self._stop or bool(self._errors)
                    for thread in others:
                        if thread.ident is not None:
                            thread.join()
                    self._settle()
            finally:
                with InRuntime():
                    for one in (queue, self._up, self._down):
                        without_fault(one.finish)
        if self._errors:
            raise self._errors[0]

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

    def _settle(self) -> None:
        """Wait for the pool's reads and writes of this device."""
        pending = list(self._written)
        while True:
            try:
                item = self._copies.get_nowait()
            except queues.Empty:
                break
            if isinstance(item, _Copy):
                pending.append(item.filled)
        for one in pending:
            if not one.cancel():
                one.exception()

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
        """Make slots and staging buffers; raise `AllocationError` if the memory is lacking."""
        call, plan, queue = self.call, self.plan, self.device.queue
        context = self.device.context
        self._panels = max(1, -(-call.k // plan.depth))
        self._tile_dtype = call.out.dtype if self._panels == 1 else call.sums
        self._c_in_place = call.c is not None and self.device.in_place(call.c, self._tile_dtype)
        self._out_in_place = self.device.writes_in_place(call, self._tile_dtype)
        size, item = call.a.dtype.itemsize, self._tile_dtype.itemsize
        m, k, n = plan.rows, plan.depth, plan.columns
        sizes = slot_bytes(self.task, m, n, k)

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
        self._under_way = threading.Semaphore(max(1, plan.results))
        bias = call.epilogue.bias
        if bias is not None:
            bias = to_device(queue, "bias", bias.astype(self._tile_dtype, copy=False))
        self._bias = bias
        if not self.device.link.shares_memory:
            stage = min(_MOST_STAGE, max(_LEAST_STAGE, plan.memory // 32))
            lines = max(one.chunks[one.turned] for one in (call.a, call.b, call.out))
            longest = padded(max(m, n, k), max(size, item)) * max(size, item)
            stage = max(stage, longest * max(1, min(lines, _MOST_STAGE // longest)))
            self._staging = Staging(context, min(self.threads, _FILLING) + 2, stage)
            reading.callback(self._staging.release)
            self._returning = Staging(context, min(self.threads, _FILLING) + 1, stage)
            stack.callback(self._returning.release)

    # -- the thread that reads ------------------------------------------------------------------

    def _read(self) -> None:
        """Draw tiles, and read their panels ahead of the products."""
        while (whole := self._draw()) is not None:
            parts = list(whole.divided(self.plan.rows, self.plan.columns))
            for number, tile in enumerate(parts):
                self._read_tile(tile, whole, number == len(parts) - 1)
        self._copies.put(None)

    def _draw(self) -> Tile | None:
        return self.feed.draw(self.plan.member.name, self._is_stopped)

    def _read_tile(self, tile: Tile, whole: Tile, ends_whole: bool) -> None:
        call, queue, block = self.call, self.device.queue, tile.block
        while not self._under_way.acquire(timeout=POLL):
            if self._is_stopped():
                raise Stopped
        slot = None
        if self._out_in_place:
            result = view_in_place(queue, call.out, block)
        else:
            slot, _ = self._tiles.take(block)
            result = slot.array(queue, block.shape, self._tile_dtype, turned=call.out.turned)
        c = None
        read_here: list[tuple[HostMatrix, Block]] = []  # by the step that comes next
        if call.c is not None:
            if self._c_in_place:
                read_here.append((call.c, block))
                c = view_in_place(queue, call.c, block)
            elif slot is None:
                raise AssertionError("c of the result's type is in place where out is")
            else:
                self._bring(call.c, block, slot, self._tile_dtype, call.out.turned)
                c = result
        panels = list(range(self._panels))
        # Every other tile runs backwards: its first panels are still on the device.
        for number, panel in enumerate(panels[::-1] if tile.index % 2 else panels):
            first = panel * self.plan.depth
            end = min(call.k, first + self.plan.depth)
            used: list[tuple[Slots, Slot]] = []
            here, read_here = read_here, []
            panel_a = call.a, call.block_of_a(block, first, end), self._a_slots
            panel_b = call.b, call.block_of_b(block, first, end), self._b_slots
            a, b = (self._panel(*one, used, here) for one in (panel_a, panel_b))
            is_last = number == len(panels) - 1
            step = _Step(
                tile, result, slot, a, b, None if number else c, number == 0, is_last, used, here,
                whole, ends_whole and is_last,
            )  # fmt: skip
            self._copies.put(step)

    def _panel(
        self, matrix: HostMatrix, block: Block, slots: Slots, used: list[tuple[Slots, Slot]],
        here: list[tuple[HostMatrix, Block]],
    ) -> Any:  # fmt: skip
        """A panel on the device; its content may still be on the way."""
        queue = self.device.queue
        if self.device.in_place(matrix, matrix.dtype):
            here.append((matrix, block))
            return view_in_place(queue, matrix, block)
        slot, is_there = slots.take(block)
        used.append((slots, slot))
        if not is_there:
            self._bring(matrix, block, slot, matrix.dtype, matrix.turned)
        return slot.array(queue, block.shape, matrix.dtype, turned=matrix.turned)

    def _bring(
        self, matrix: HostMatrix, block: Block, slot: Slot, dtype: Any, turned: bool
    ) -> None:
        """Read a block into a slot, in parts that several threads fill."""
        count, length = block.turned.shape if turned else block.shape
        lead = padded(length, dtype.itemsize) * dtype.itemsize
        for first, end in self._parts(matrix, block, count, lead, turned):
            part = _lines_of(block, first, end, turned)
            if slot.memory is not None:
                memory, into = None, slot.lines(count, length, dtype)[first:end]
            else:
                memory = self._staging.take(self._is_stopped)
                into = lines_in(memory, end - first, length, dtype)
            filled = self.pool.submit(matrix.read, part, into.T if turned else into)
            size = (end - first) * lead
            self._copies.put(_Copy(filled, slot, memory, first * lead, size))

    def _parts(
        self, matrix: HostMatrix, block: Block, count: int, lead: int, turned: bool
    ) -> list[tuple[int, int]]:
        """Divide lines of a block among threads, at the chunks of a store where there are any."""
        size = _MOST_STAGE if self.device.link.shares_memory else self._staging.size
        each = max(1, min(size // max(1, lead), -(-count // 2)))
        each = max(each, min(count, _LEAST_STAGE // max(1, lead)))
        chunk, start = matrix.chunks[turned], block.left if turned else block.top
        if chunk > 1 and each >= chunk:
            each = each // chunk * chunk
        edges = [0]
        while edges[-1] < count:
            end = edges[-1] + each
            if chunk > 1 and each >= chunk:
                end -= (start + end) % chunk
            edges.append(min(count, end))
        return list(zip(edges[:-1], edges[1:], strict=True))

    # -- the thread that copies -----------------------------------------------------------------

    def _copy(self) -> None:
        """Copy what was read to the device, and pass the steps on whose panels have gone."""
        event: cl.Event | None = None
        sent: list[tuple[cl.Event, Any]] = []
        while (item := self._get(self._copies)) is not None:
            if isinstance(item, _Step):
                item.event = event
                self._steps.put(item)
                continue
            self._await(item.filled)
            if item.memory is None:
                continue
            with InRuntime():
                source = item.memory[: item.size]
                event = cl.enqueue_copy(
                    self._up, item.slot.buffer, source, dst_offset=item.offset, is_blocking=False
                )
                self._up.flush()
                sent.append((event, item.memory))
                # Of three copies the oldest has ended, or soon will.
                while len(sent) > 2 or (sent and _is_complete(sent[0][0])):
                    ended, memory = sent.pop(0)
                    ended.wait()
                    self._staging.give(memory)
        self._steps.put(None)

    def _await(self, future: Future[None]) -> None:
        """Wait for a read or write of the pool."""
        try:
            future.result()
        except MemoryError as error:
            raise AllocationError(f"the host has no memory for a block: {error}") from error
        except Exception as error:
            raise SourceError from error

    # -- the thread that multiplies -------------------------------------------------------------

    def _multiply(self) -> None:
        """Enqueue the products of the steps, in order."""
        call, queue = self.call, self.device.queue
        while (step := self._get(self._steps)) is not None:
            left, right = step.tile.block[2:]
            bias = None if self._bias is None else self._bias[left:right]
            last = Epilogue(bias, call.epilogue.activation)
            c, beta = (step.c, call.beta) if step.is_first else (step.result, 1.0)
            if step.is_first and self._out_in_place:
                self.feed.write_begins(step.whole)
            event: cl.Event
            _, event = gemm(
                queue, step.a, step.b, c, alpha=call.alpha, beta=None if c is None else beta,
                trans_a=call.trans_a, trans_b=call.trans_b, out=step.result,
                epilogue=last if step.is_last else NO_EPILOGUE, precision=call.precision,
                wait_for=None if step.event is None else [step.event], return_event=True,
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
        """Write finished tiles to the destination."""
        began = time.perf_counter()
        while (step := self._get(self._results)) is not None:
            assert step.event is not None
            with InRuntime():
                step.event.wait()
            if step.slot is None:
                self.call.out.forget(step.tile.block)
            else:
                self.feed.write_begins(step.whole)
                self._write_tile(step, step.slot)
            self._under_way.release()
            if step.ends_whole:
                self.feed.finish(self.plan.member.name, step.whole)
            seconds = time.perf_counter() - began
            _log.debug("%s: %s in %.3g s", self.plan.member.name, step.tile.block, seconds)
            began = time.perf_counter()

    def _write_tile(self, step: _Step, slot: Slot) -> None:
        """Copy a tile back in parts, which threads write to the destination."""
        out, block, dtype = self.call.out, step.tile.block, self._tile_dtype
        turned = out.turned
        count, length = block.turned.shape if turned else block.shape
        lead = padded(length, dtype.itemsize) * dtype.itemsize
        self._written = []
        for first, end in self._parts(out, block, count, lead, turned):
            part = _lines_of(block, first, end, turned)
            if slot.memory is not None:
                lines = slot.lines(count, length, dtype)[first:end]
                content = lines.T if turned else lines
                self._written.append(self.pool.submit(out.write, part, content))
                continue
            memory = self._returning.take(self._is_stopped)
            target = memory[: (end - first) * lead]
            with InRuntime():
                cl.enqueue_copy(
                    self._down, target, slot.buffer, src_offset=first * lead, is_blocking=True
                )
            lines = lines_in(memory, end - first, length, dtype)
            written = self.pool.submit(out.write, part, lines.T if turned else lines)
            written.add_done_callback(lambda _, memory=memory: self._returning.give(memory))  # type: ignore[misc]
            self._written.append(written)
        if slot.memory is None:
            self._tiles.used(slot, None)
        for future in self._written:
            self._await(future)
        if slot.memory is not None:
            self._tiles.used(slot, None)


def _lines_of(block: Block, first: int, end: int, turned: bool) -> Block:
    """Some lines of a block: columns if it is `turned`."""
    if turned:
        return block._replace(left=block.left + first, right=block.left + end)
    return block._replace(top=block.top + first, bottom=block.top + end)


def _is_complete(event: cl.Event) -> bool:
    status: int = event.command_execution_status
    return status <= int(cl.command_execution_status.COMPLETE)
