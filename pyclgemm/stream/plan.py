"""Divide a product into tiles and panels for a device's memory, by predicted time.

A device holds tiles of C while panels of A and B stream past. The tile sides, the depth of the
panels and the number of panels that stay on the device follow from its memory, from its speed, and
from the speeds of the transfers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import AllocationError

#: Bytes to which the lines of a block are padded on a device, so that kernels read them in vectors.
LINE_BYTES = 256
#: Seconds of the host for one step: threads pass it on, and the product is enqueued. On an H200
#: neither products nor transfers hide them.
_STEP_SECONDS = 3e-4
#: Numbers of tiles along a dimension, and of panels along k, that are compared.
_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 4096)
#: The part of the transfers behind products that counts, as they take memory's time from both.
_HIDDEN = 0.02
#: From this side on tiles have a multiple of the tiles of kernels.
_LARGE, _LARGE_STEP = 2048, 256
#: Tiles of C on a device: one is multiplied while the one before is written back.
_RESULTS = 2
#: Panels on their way: one is multiplied, one waits, and one arrives.
_RING = 3


class Block(NamedTuple):
    """Rows and columns of a matrix; the ends are excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def turned(self) -> Block:
        """The same entries of the transposed matrix."""
        return Block(self.left, self.right, self.top, self.bottom)

    def __str__(self) -> str:
        return f"rows {self.top}:{self.bottom}, columns {self.left}:{self.right}"


@dataclass(frozen=True)
class Tile:
    """A part of C, computed by one device."""

    block: Block
    index: int  # in the order of the work

    def divided(self, rows: int, columns: int) -> Iterator[Tile]:
        """The same part in tiles of at most these sides; each has the index of the whole."""
        top, bottom, left, right = self.block
        for start in range(top, bottom, rows):
            for begin in range(left, right, columns):
                end = min(start + rows, bottom), min(begin + columns, right)
                yield Tile(Block(start, end[0], begin, end[1]), self.index)


@dataclass(frozen=True)
class Task:
    """The facts about a product that decide how it is divided."""

    m: int
    n: int
    k: int
    operation_flops: int  # of a multiply-add
    operand_bytes: int  # of an element of A or B
    result_bytes: int  # of an element of the result
    sum_bytes: int  # of an element of a tile that is summed over several panels
    adds_c: bool = False
    #: Multiples that the sides of tiles and the depth of panels should have: chunks of a store.
    steps: tuple[int, int, int] = (1, 1, 1)
    #: Which of "a", "b" and "out" have their columns contiguous, as op(A), op(B) and C.
    by_columns: frozenset[str] = frozenset()

    @property
    def flops(self) -> int:
        """Floating-point operations of the whole product."""
        return self.operation_flops * self.m * self.n * self.k


@dataclass(frozen=True)
class Member:
    """What a device offers."""

    name: str
    memory: int  # bytes for tiles and panels
    largest: int  # bytes of the largest buffer
    flops: float  # predicted operations a second
    up: float = math.inf  # bytes a second to the device, through pinned memory
    down: float = math.inf  # and from it
    #: Which of "a", "b" and "out" it reads or writes where they lie.
    in_place: frozenset[str] = frozenset()
    #: Which of these are maps of files: their blocks take memory all the same.
    mapped: frozenset[str] = frozenset()
    #: For each of these, bytes from one line to the next, and whether lines are columns.
    lines: tuple[tuple[str, int, bool], ...] = ()


@dataclass(frozen=True)
class DevicePlan:
    """How one device divides its part of a product."""

    member: Member
    rows: int  # of a tile
    columns: int  # of a tile
    depth: int  # of a panel, along k
    a_slots: int  # panels of A that the device holds
    b_slots: int
    results: int  # tiles of C that the device holds
    bytes_up: int  # for the whole product
    bytes_down: int
    seconds: float  # predicted for the whole product on this device alone
    memory: int  # bytes of its tiles and panels

    def __str__(self) -> str:
        return (
            f"{self.member.name}: tiles {self.rows}x{self.columns}, panels {self.depth} deep "
            f"({self.a_slots} of A, {self.b_slots} of B, {self.results} of C; "
            f"{self.memory / 1e6:.0f} MB), {self.bytes_up / 1e6:.0f} MB to it and "
            f"{self.bytes_down / 1e6:.0f} MB from it if it works alone, in {self.seconds:.3g} s"
        )


@dataclass(frozen=True)
class StreamPlan:
    """How `stream_gemm` divides a product, from ``explain=True``; printable.

    Attributes
    ----------
    tiles : tuple of Tile
        The parts of the result, in order. Each `block` has its rows and columns.
    devices : tuple of DevicePlan
        What each device does: sides of tiles, depth of panels, bytes over its link and predicted
        seconds if it computed everything alone.
    left_out : tuple of str
        Devices that would only delay the end, and why.
    seconds : float
        The predicted time.

    See Also
    --------
    stream_gemm : Returns or follows it.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.ones((30, 20), np.float32)
    >>> plan = stream_gemm(a, a, trans_b=True, explain=True)
    >>> plan.tiles[0].block.shape, plan.seconds > 0
    ((30, 30), True)
    """

    tiles: tuple[Tile, ...]
    devices: tuple[DevicePlan, ...]
    left_out: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        count = len(self.tiles)
        heading = f"{count} tile{'s' * (count != 1)} of C, predicted {self.seconds:.3g} s"
        return "\n".join([heading, *map(str, self.devices), *self.left_out])


def padded(length: int, itemsize: int) -> int:
    """The elements from one line of a block on a device to the next."""
    step = max(1, LINE_BYTES // itemsize)
    return -(-length // step) * step if length > 1 else max(1, length)


def block_bytes(rows: int, columns: int, itemsize: int, *, by_columns: bool) -> int:
    """The bytes of a block on a device, whose lines are its rows or its columns."""
    count, length = (columns, rows) if by_columns else (rows, columns)
    return count * padded(length, itemsize) * itemsize


def slot_bytes(task: Task, rows: int, columns: int, depth: int) -> dict[str, int]:
    """The bytes of a panel of "a" and of "b", and of a tile "out", on a device."""
    sums = task.result_bytes if depth >= task.k else task.sum_bytes
    blocks = {
        "a": (rows, depth, task.operand_bytes), "b": (depth, columns, task.operand_bytes),
        "out": (rows, columns, sums),
    }  # fmt: skip
    return {
        name: block_bytes(*block, by_columns=name in task.by_columns)
        for name, block in blocks.items()
    }


def _side(extent: int, count: int, step: int) -> int:
    """The side of `count` nearly equal parts of an extent, a multiple of a step if it is larger."""
    side = -(-extent // count)
    step = max(step, _LARGE_STEP) if side >= _LARGE else step
    step = step if step < side else min(64, step)
    if step < side < extent:
        side = min(extent, -(-side // step) * step)
    return max(1, side)


def _sides(extent: int, step: int) -> list[int]:
    counts = [count for count in _COUNTS if count <= max(1, extent)]
    return sorted({_side(extent, count, max(step, 64)) for count in counts}, reverse=True)


@functools.lru_cache(maxsize=256)
def plan_device(task: Task, member: Member, least_tiles: int = 1) -> DevicePlan:
    """Find the tiles and panels of least predicted time; raise `AllocationError` if none fits.

    The time is that of the first panels, then the longest of arithmetic and transfers, and then the
    way back of the last tile.
    """
    best: DevicePlan | None = None
    depths = _sides(max(1, task.k), task.steps[2])
    least_seconds = 1.01 * (task.flops / member.flops + _STEP_SECONDS)
    for rows in _sides(task.m, task.steps[0]):
        for columns in _sides(task.n, task.steps[1]):
            tiles = -(-task.m // rows) * -(-task.n // columns)
            if tiles < least_tiles and (rows > 512 or columns > 512):
                continue
            # Narrow tiles of a square result only cost time.
            short, long = sorted((rows, columns))
            if long > 8 * short and short < 1024 and rows != task.m and columns != task.n:
                continue
            for depth in depths:
                if best is not None and best.seconds <= least_seconds:
                    return best
                for plan in _candidates(task, member, rows, columns, depth):
                    if least_tiles > 1:
                        # At the end a device waits for another one's last tile.
                        plan = replace(plan, seconds=plan.seconds * (1 + 0.5 / tiles))
                    if best is None or plan.seconds < 0.999 * best.seconds:
                        best = plan
    if best is None:
        raise AllocationError(
            f"memory is {member.memory} bytes for {member.name!r}, which hold no tile of the "
            f"result with panels of the operands; {smallest(task)} bytes are enough"
        )
    return best


def smallest(task: Task) -> int:
    """Bytes that are enough for tiles and panels of 64x64."""
    sides = [padded(min(64, max(1, one)), 1) for one in (task.m, task.n, task.k)]
    each = max(sides) ** 2
    return each * (2 * _RING * task.operand_bytes + _RESULTS * task.sum_bytes)


def _candidates(
    task: Task, member: Member, rows: int, columns: int, depth: int
) -> Iterator[DevicePlan]:
    """The plans for these tiles that fit in memory: panels stay on the device, or do not."""
    panels = max(1, -(-task.k // depth))
    down_tiles, across = -(-task.m // rows), -(-task.n // columns)
    tiles = down_tiles * across
    sums = task.sum_bytes if panels > 1 else task.result_bytes
    # A tile that is summed in another type than the result's is no part of `out`.
    in_place = member.in_place if sums == task.result_bytes else member.in_place - {"out"}
    extents = {"a": (rows, depth), "b": (depth, columns), "out": (rows, columns)}
    for name, step, by_columns in member.lines:
        if name in in_place and extents[name][by_columns] * step > member.largest:
            return
    sizes = slot_bytes(task, rows, columns, depth)
    if any(size > member.largest for name, size in sizes.items() if name not in in_place):
        return
    results = min(_RESULTS, tiles)
    operand_bytes = {
        name: task.operand_bytes * task.k * extent * (name not in in_place)
        for name, extent in (("a", task.m), ("b", task.n))
    }
    ring_a, ring_b = min(_RING, panels * down_tiles), min(_RING, panels * across)
    for keeps_a in (False, True):
        a_slots = min(panels + _RING - 1, panels * down_tiles) if keeps_a else ring_a
        for keeps_b in (False, True):
            b_slots = panels * across if keeps_b else ring_b
            used = {"a": a_slots, "b": b_slots, "out": results}
            memory = sum(
                sizes[name] * (used[name] if name not in in_place else name in member.mapped)
                for name in used
            )
            if memory > member.memory:
                continue
            # A panel that is the only one along k also stays for the next tile.
            stays_a = keeps_a or panels == 1 or a_slots == panels * down_tiles
            stays_b = keeps_b or b_slots == panels * across
            passes_a, passes_b = 1 if stays_a else across, 1 if stays_b else down_tiles
            up = passes_a * operand_bytes["a"] + passes_b * operand_bytes["b"]
            whole = task.m * task.n * sums * ("out" not in in_place)
            up += whole * task.adds_c
            first = sum(sizes[name] for name in ("a", "b") if name not in in_place)
            first += sizes["out"] * task.adds_c * ("out" not in in_place)
            last = sizes["out"] * ("out" not in in_place)
            # The driver serialises the copies of both directions.
            transfers = up / member.up + whole / member.down
            work = task.flops / member.flops
            # What is not hidden: each panel adds a pass over the tile of C.
            work *= 1 + min(0.1, 16 / depth)
            hidden = min(work, transfers)
            body = max(work, transfers)
            if stays_b:
                # All of B travels during the first row of tiles.
                row_up = operand_bytes["b"] + (up - operand_bytes["b"]) / down_tiles
                copies = row_up / member.up + whole / down_tiles / member.down
                body = max(body, work - work / down_tiles + max(copies, work / down_tiles))
            seconds = first / member.up + body + last / member.down
            seconds += _HIDDEN * hidden + _STEP_SECONDS * tiles * panels
            yield DevicePlan(
                member, rows, columns, depth, a_slots, b_slots, results, up, whole, seconds, memory
            )  # fmt: skip


def tiles_of(task: Task, rows: int, columns: int) -> tuple[Tile, ...]:
    """The tiles of C, row by row; every other row runs backwards: neighbours share panels."""
    tiles: list[Tile] = []
    for number, top in enumerate(range(0, task.m, rows)):
        starts = list(range(0, task.n, columns))
        for left in starts[::-1] if number % 2 else starts:
            block = Block(top, min(top + rows, task.m), left, min(left + columns, task.n))
            tiles.append(Tile(block, len(tiles)))
    return tuple(tiles)


#: The least part of the speed of all devices that a device must add. What a slower one adds, it
#: takes away: it occupies the host's cores and memory, which the others' transfers need.
_LEAST_PART = 1 / 8
#: Tiles for each device where there are several, so that they end at about the same time.
_TILES_EACH = 6


def plan_stream(task: Task, members: list[Member], fit: Callable[[DevicePlan], int]) -> StreamPlan:
    """Divide a product among devices; `fit` returns the scratch space of a plan's products."""
    total = sum(member.flops for member in members)
    worth = [one for one in members if one.flops >= _LEAST_PART * total]
    left_out = tuple(
        f"{one.name} is left out: it would add {one.flops / total:.1%} of the speed"
        for one in members
        if one not in worth
    )
    least = 1 if len(worth) == 1 else _TILES_EACH * len(worth)
    sharing = sum(math.isfinite(member.up) and not member.in_place for member in worth)
    plans = []
    for member in worth:
        # All copies of a process share the speed of one link.
        part = max(1, sharing) if not member.in_place else 1
        alone = replace(member, up=member.up / part, down=member.down / part)
        plans.append(replace(fitted(task, alone, least, fit), member=member))
    fastest = max(plans, key=lambda plan: plan.member.flops)
    tiles = tiles_of(task, fastest.rows, fastest.columns)
    seconds = 1 / sum(1 / max(plan.seconds, 1e-9) for plan in plans)
    return StreamPlan(tiles, tuple(plans), left_out, seconds)


def fitted(
    task: Task, member: Member, least_tiles: int, fit: Callable[[DevicePlan], int]
) -> DevicePlan:
    """The plan of a device that leaves room for the scratch space of its products."""
    budget, scratch = member.memory, 0
    while True:
        try:
            plan = plan_device(task, replace(member, memory=budget), least_tiles)
        except AllocationError as error:
            if not scratch:
                raise
            raise AllocationError(
                f"memory is {member.memory} bytes for {member.name!r}, which hold no tile of the "
                f"result with panels of the operands and the scratch space of their product; "
                f"{smallest(task) + scratch} bytes are enough"
            ) from error
        scratch = fit(plan)
        if plan.memory + scratch <= member.memory:
            return replace(plan, member=member)
        budget = int(0.8 * budget)
