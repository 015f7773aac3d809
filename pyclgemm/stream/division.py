"""Divide a product into tiles and panels by predicted time.

The tile sides, the depth of the panels and the number of panels that stay on the device follow from
its memory, from its speed, and from the speeds of the transfers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AllocationError
from .plan import (
    SIDE_STEP,
    Block,
    DevicePlan,
    Member,
    StreamPlan,
    Task,
    Tile,
    begins_shallow,
    blocks_of,
    padded,
    panel_edges,
    slot_bytes,
    sum_bytes,
    tile_counts,
    tiles_of,
)
from .timeline import STEP_SECONDS, ProductSeconds, end_seconds, seconds_of

#: Numbers of tiles along a dimension, and of panels along k, that are compared.
_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 4096)
#: The part of the transfers behind products that counts, as they take memory's time from both.
_HIDDEN = 0.02
#: From this side on tiles have a multiple of `SIDE_STEP`.
_LARGE = 2048
#: How much is left out of the first of several panels, as everything waits for it.
_SHALLOW = 0.75
#: Tiles of C on a device: one is multiplied while the one before is written back.
_RESULTS = 2
#: Panels on their way: one is multiplied, one waits, and one arrives. A shallow one hides little,
#: so one more is on its way where there is one.
_RING = 3
#: Seconds from which on a product is worth a longer search for its plan, which takes some ms.
_LONG = 0.2
#: The plans of a long product that are followed through time: the best by a rough estimate.
_FOLLOWED = 40
#: Most plans that are followed with the predicted times of their own products; there is one for
#: each `_LONG` that the product takes.
_PREDICTED = 16
#: Products of a plan that are followed; more take as long as these on average.
_MOST_PRODUCTS = 2000
#: Seconds in which the first piece of the first tile arrives: threads need about as long to begin.
_FIRST_SECONDS = 3e-3
#: The least pieces of the first tile, so that little is left to multiply once all has arrived.
_LEAST_PIECES = 12
#: Numbers of strips of the last tile that are compared.
_STRIPS = (1, 2, 4, 8)
#: The least part of the speed of all devices that a device must add. What a slower one adds, it
#: takes away: it occupies the host's cores and memory, which the others' transfers need.
_LEAST_PART = 1 / 8
#: Tiles for each device where there are several, so that they end at about the same time.
_TILES_EACH = 6

#: Values for all tiles and panels that are compared.
Column = NDArray[Any]


@dataclass(frozen=True)
class Share:
    """The part of a product that one of several devices does."""

    part: float = 1.0
    least_tiles: int = 1  # of the whole product
    sides: tuple[int, int] | None = None  # of its tiles, if other devices decide them


def _side(extent: int, count: int, step: int) -> int:
    """The side of `count` nearly equal parts of an extent, a multiple of a step if it is larger."""
    side = -(-extent // count)
    step = max(step, SIDE_STEP) if side >= _LARGE else step
    step = step if step < side else min(64, step)
    if step < side < extent:
        side = min(extent, -(-side // step) * step)
    return max(1, side)


def _sides(extent: int, step: int) -> list[int]:
    counts = [count for count in _COUNTS if count <= max(1, extent)]
    return sorted({_side(extent, count, max(step, 64)) for count in counts}, reverse=True)


def _depths(task: Task) -> list[int]:
    """Depths of panels along k: equal ones, and such that a shallow one is left for the start."""
    k, step = max(1, task.k), task.steps[2]
    depths = _sides(k, step)
    if step == 1:
        counts = [count for count in _COUNTS[1:] if k // count >= _LARGE]
        steps = (math.ceil(k / (count - _SHALLOW) / SIDE_STEP) for count in counts)
        depths += [step * SIDE_STEP for step in steps]
    return sorted(set(depths), reverse=True)


def plan_device(
    task: Task, member: Member, share: Share = Share(), products: ProductSeconds | None = None
) -> DevicePlan:
    """Find the tiles and panels of least predicted time; raise `AllocationError` if none fits.

    The best plans by a rough estimate are followed through time, if the product is worth it.
    """
    ranked = _ranked(task, member, share)
    if not ranked:
        raise AllocationError(
            f"memory is {member.memory} bytes for {member.name!r}, which hold no tile of the "
            f"result with panels of the operands; {smallest(task)} bytes are enough"
        )
    count = min(_PREDICTED, int(ranked[0].seconds / _LONG))
    if products is None or not count:
        return ranked[0]
    plans = [_followed(plan, task, share, products) for plan in ranked[:count]]
    return min(plans, key=lambda plan: _with_end(plan, task, share))


def _followed(plan: DevicePlan, task: Task, share: Share, products: ProductSeconds) -> DevicePlan:
    """The plan with the seconds that it takes if each of its products takes as long as is said.

    What is free in a plan is decided: the order of tiles, and the parts of the first and last one.
    """
    plan = _with_parts(plan, task, products)
    orders = [plan]
    if share.part == 1 and (all_stay := _in_shells(plan, task)):
        orders.append(all_stay)
    return min((_timed(one, task, share, products) for one in orders), key=lambda one: one.seconds)


def _timed(plan: DevicePlan, task: Task, share: Share, products: ProductSeconds) -> DevicePlan:
    count = math.ceil(math.prod(tile_counts(task, plan.rows, plan.columns)) * share.part)
    count = min(count, _MOST_PRODUCTS // max(1, -(-task.k // plan.depth)))
    own = tiles_of(task, plan.rows, plan.columns, in_shells=plan.in_shells, most=count)
    if not own:
        return plan
    seconds = seconds_of(task, plan, own, products)
    done = sum(tile.block.size for tile in own) / (task.m * task.n)
    return replace(plan, seconds=seconds / done)


def _in_shells(plan: DevicePlan, task: Task) -> DevicePlan | None:
    """The plan with tiles in shells and all panels on the device, if its memory holds them."""
    panels = -(-task.k // plan.depth)
    down, across = tile_counts(task, plan.rows, plan.columns)
    if min(panels, down - 1, across - 1) < 1 or plan.member.in_place:
        return None
    sizes = slot_bytes(task, plan.rows, plan.columns, plan.depth)
    a_slots, b_slots = panels * down, panels * across
    memory = plan.memory + (a_slots - plan.a_slots) * sizes["a"]
    memory += (b_slots - plan.b_slots) * sizes["b"]
    if memory > plan.member.memory or plan.bytes_up > _once(task):
        return None
    return replace(plan, a_slots=a_slots, b_slots=b_slots, memory=memory, in_shells=True)


def _once(task: Task) -> int:
    """The bytes that travel to a device if none of them travels twice."""
    operands = task.operand_bytes * task.k * (task.m + task.n)
    return operands + task.adds_c * task.m * task.n * task.sum_bytes


def _with_parts(plan: DevicePlan, task: Task, products: ProductSeconds) -> DevicePlan:
    """The plan with the pieces of its first tile, and the strips of its last one."""
    if plan.member.in_place:
        return plan
    edges = panel_edges(task, plan.member, plan.depth)
    plan = replace(plan, pieces=_pieces(plan, task, edges, products), strips=1)
    panels = len(edges) - 1
    if plan.a_slots < panels or plan.b_slots < panels:
        return plan
    height, width = 1 + (task.m - 1) % plan.rows, 1 + (task.n - 1) % plan.columns
    last = Tile(Block(0, height, 0, width), 0)
    options = [replace(plan, strips=strips) for strips in _STRIPS]
    return min(options, key=lambda one: end_seconds(task, one, last, products))


def _pieces(
    plan: DevicePlan, task: Task, edges: list[int], products: ProductSeconds
) -> tuple[int, ...]:
    """Edges along k of the first tile's pieces.

    The first one arrives soon. While one is multiplied, the next one arrives, which is deeper if
    the product takes longer than its panels.
    """
    # Sums of a single panel are in the result's type, which may have to be rounded once only.
    is_rounded = len(edges) == 2 and task.sum_bytes != task.result_bytes
    if is_rounded or task.steps[2] != 1 or plan.rows * plan.columns < _LARGE**2:
        return ()
    rows, columns = min(plan.rows, task.m), min(plan.columns, task.n)
    arriving = (rows + columns) * task.operand_bytes / plan.member.up  # seconds of a depth
    product = products(rows, columns, _LARGE) / _LARGE
    depth = max(2.0 * SIDE_STEP, _FIRST_SECONDS / arriving)
    growth = max(1.0, product / arriving)
    found = [0]
    for end in edges[1:]:
        while found[-1] < end:
            step = int(depth) // SIDE_STEP * SIDE_STEP
            rest = end - found[-1]
            found.append(end if rest < 1.5 * step else found[-1] + step)
            depth = min(depth * growth, max(depth, task.k / _LEAST_PIECES))
    return tuple(found)


def _with_end(plan: DevicePlan, task: Task, share: Share) -> float:
    """The seconds of a plan; at the end one of several devices waits for another's last tile."""
    tiles = math.prod(tile_counts(task, plan.rows, plan.columns))
    return plan.seconds * (1 + (share.part < 1) * 0.5 / tiles)


def smallest(task: Task) -> int:
    """Bytes that are enough for tiles and panels of 64x64."""
    sides = [padded(min(64, max(1, one)), 1) for one in (task.m, task.n, task.k)]
    each = max(sides) ** 2
    return each * (2 * _RING * task.operand_bytes + _RESULTS * task.sum_bytes)


@functools.lru_cache(maxsize=256)
def _ranked(task: Task, member: Member, share: Share) -> tuple[DevicePlan, ...]:
    """One plan for each pair of tile sides, those of least estimated time first."""

    def seconds(plan: DevicePlan) -> float:
        return _with_end(plan, task, share)

    def typical(rows: int, columns: int, depth: int) -> float:
        return task.operation_flops * rows * columns * depth / member.flops

    ranked = sorted(_candidates(task, member, share), key=seconds)[:_FOLLOWED]
    if ranked and ranked[0].seconds >= _LONG:
        ranked = sorted((_followed(plan, task, share, typical) for plan in ranked), key=seconds)
    return tuple(ranked)


def _candidates(task: Task, member: Member, share: Share) -> Iterator[DevicePlan]:
    """For each pair of tile sides the plan of least estimated time, where one fits in memory."""
    sides = _sides(task.m, task.steps[0]), _sides(task.n, task.steps[1])
    if share.sides is not None:
        sides = [share.sides[0]], [share.sides[1]]
    grid = np.meshgrid(*(np.array(one, float) for one in (*sides, _depths(task))), indexing="ij")
    tiling = _Tiling(task, member, *grid)
    options = [tiling.option(keeps_a, keeps_b) for keeps_a in (False, True)
               for keeps_b in (False, True)]  # fmt: skip
    tiles = tiling.down * tiling.across
    is_small = (tiling.rows <= 512) & (tiling.columns <= 512)
    fits = tiling.is_possible & ((tiles >= share.least_tiles) | is_small)
    seconds = np.stack([np.where(fits, one.seconds, np.inf) for one in options], -1)
    # Among equals the deepest panels are the fewest.
    rounded = np.round(np.log(seconds + 1e-12) * 1000).reshape(*seconds.shape[:2], -1)
    for (row, column), found in np.ndenumerate(rounded.argmin(-1)):
        depth, number = divmod(int(found), len(options))
        at = row, column, depth
        if np.isfinite(seconds[at][number]):
            yield options[number].plan(at)


class _Tiling:
    """Tiles of all sides and panels of all depths that are compared, and what they have in common.

    Each attribute is an array over rows, columns and depths.
    """

    def __init__(
        self, task: Task, member: Member, rows: Column, columns: Column, depth: Column
    ) -> None:
        self.task, self.member = task, member
        self.rows, self.columns, self.depth = rows, columns, depth
        self.panels = np.maximum(1, np.ceil(task.k / depth))
        #: The part of a full panel that the first one has.
        rest = (task.k % depth) * begins_shallow(task, member)
        self.first = np.where(rest > 0, rest / depth, np.minimum(1, task.k / depth))
        self.down, self.across = np.ceil(task.m / rows), np.ceil(task.n / columns)
        #: The bytes of an element of a tile.
        self.sums = sum_bytes(task, depth)
        blocks = blocks_of(rows, columns, depth)
        #: Of each matrix: bytes of a block, and whether kernels use it where it lies.
        self.sizes = slot_bytes(task, rows, columns, depth)
        self.here = {name: np.full(rows.shape, name in member.in_place) for name in blocks}
        # A tile that is summed in another type than the result's is no part of `out`.
        self.here["out"] &= self.sums == task.result_bytes
        possible = np.ones(rows.shape, bool)
        for name, step_bytes, by_columns in member.lines:
            fits = blocks[name][by_columns] * step_bytes <= member.largest
            possible &= fits | ~self.here[name]
        for name, size in self.sizes.items():
            possible &= (size <= member.largest) | self.here[name]
        # Narrow tiles of a square result only cost time.
        short, long = np.minimum(rows, columns), np.maximum(rows, columns)
        is_narrow = (long > 8 * short) & (short < 1024) & (rows < task.m) & (columns < task.n)
        self.is_possible = possible & ~is_narrow

    def moved(self, name: str) -> Column:
        """The bytes of a block that travel."""
        return np.where(self.here[name], 0.0, self.sizes[name])

    def option(self, keeps_a: bool, keeps_b: bool) -> _Option:
        """The plans in which the panels of a row of tiles stay, and all of B, or neither."""
        ring = _RING + (self.first < 1) * (self.panels > 1)
        all_a, all_b = self.panels * self.down, self.panels * self.across
        a_slots = np.minimum(self.panels + ring - 1 if keeps_a else ring, all_a)
        b_slots = all_b if keeps_b else np.minimum(ring, all_b)
        return _Option(self, a_slots, b_slots, keeps_a, keeps_b)


class _Option:
    """Plans for all tiles of a `_Tiling`, by what stays on the device."""

    def __init__(
        self, tiling: _Tiling, a_slots: Column, b_slots: Column, keeps_a: bool, keeps_b: bool
    ) -> None:
        self.tiling, self.a_slots, self.b_slots = tiling, a_slots, b_slots
        task, member = tiling.task, tiling.member
        tiles = tiling.down * tiling.across
        self.results = np.minimum(_RESULTS, tiles)
        used = {"a": a_slots, "b": b_slots, "out": self.results}
        self.memory: Column = sum(
            tiling.sizes[name] * slots * (~tiling.here[name] | (name in member.mapped))
            for name, slots in used.items()
        )
        # A panel that is the only one along k also stays for the next tile.
        stays_a = keeps_a | (tiling.panels == 1) | (a_slots == tiling.panels * tiling.down)
        stays_b = keeps_b | (b_slots == tiling.panels * tiling.across)
        of_a = task.operand_bytes * task.k * task.m * ~tiling.here["a"]
        of_b = task.operand_bytes * task.k * task.n * ~tiling.here["b"]
        whole = task.m * task.n * tiling.sums * ~tiling.here["out"]
        self.bytes_down = whole
        self.bytes_up = np.where(stays_a, 1, tiling.across) * of_a
        self.bytes_up = self.bytes_up + np.where(stays_b, 1, tiling.down) * of_b
        self.bytes_up = self.bytes_up + whole * task.adds_c
        # What is not hidden: each panel adds a pass over the tile of C.
        work = task.flops / member.flops * (1 + np.minimum(0.1, 16 / tiling.depth))
        # The driver serialises the copies of both directions.
        transfers = self.bytes_up / member.up + whole / member.down
        body = np.maximum(work, transfers)
        # The first tile waits for all its panels, and the first row for all of B if it stays.
        panels = (tiling.panels - 1 + tiling.first) * (tiling.moved("a") + tiling.moved("b"))
        late = np.maximum(0, panels / member.up - work / tiles)
        row_up = of_b + (self.bytes_up - of_b) / tiling.down
        row = row_up / member.up + whole / tiling.down / member.down
        late_row = np.maximum(0, row - work / tiling.down)
        body = np.maximum(body, work + np.maximum(late, np.where(stays_b, late_row, 0)))
        first = tiling.first * (tiling.moved("a") + tiling.moved("b"))
        first = first + tiling.moved("out") * task.adds_c
        seconds = first / member.up + body + tiling.moved("out") / member.down
        seconds += _HIDDEN * np.minimum(work, transfers) + STEP_SECONDS * tiles * tiling.panels
        self.seconds = np.where(self.memory <= member.memory, seconds, np.inf)

    def plan(self, at: tuple[int, int, int]) -> DevicePlan:
        """One of the plans."""
        tiling = self.tiling

        def number(array: Column) -> int:
            return int(np.broadcast_to(array, tiling.rows.shape)[at])

        return DevicePlan(
            tiling.member, number(tiling.rows), number(tiling.columns), number(tiling.depth),
            number(self.a_slots), number(self.b_slots), number(self.results),
            number(self.bytes_up), number(self.bytes_down), float(self.seconds[at]),
            number(self.memory),
        )  # fmt: skip


def plan_stream(
    task: Task, members: list[Member], fit: Callable[[DevicePlan], int],
    products: Callable[[Member], ProductSeconds] | None = None,
) -> StreamPlan:  # fmt: skip
    """Divide a product among devices.

    `fit` returns the scratch space of a plan's products, `products` what predicts their times.
    """
    total = sum(member.flops for member in members)
    worth = [one for one in members if one.flops >= _LEAST_PART * total]
    left_out = tuple(
        f"{one.name} is left out: it would add {one.flops / total:.1%} of the speed"
        for one in members
        if one not in worth
    )
    total = sum(member.flops for member in worth)
    least = 1 if len(worth) == 1 else _TILES_EACH * len(worth)
    sharing = sum(math.isfinite(member.up) and not member.in_place for member in worth)
    found: dict[str, DevicePlan] = {}
    sides: tuple[int, int] | None = None
    for member in sorted(worth, key=lambda member: -member.flops):
        # All copies of a process share the speed of one link.
        part = max(1, sharing) if not member.in_place else 1
        alone = replace(member, up=member.up / part, down=member.down / part)
        share = Share(member.flops / total, least, sides)
        predicted = products(member) if products else None
        try:
            plan = fitted(task, alone, share, fit, predicted)
        except AllocationError:
            if sides is None:
                raise
            plan = fitted(task, alone, replace(share, sides=None), fit, predicted)
        # Others take the same tiles: each one is computed whole.
        sides = sides or (plan.rows, plan.columns)
        found[member.name] = replace(plan, member=member)
    assert sides is not None
    seconds = 1 / sum(1 / max(plan.seconds, 1e-9) for plan in found.values())
    plans = tuple(found[member.name] for member in worth)
    tiles = tiles_of(task, *sides, in_shells=all(plan.in_shells for plan in plans))
    return StreamPlan(tiles, plans, left_out, seconds)


def fitted(
    task: Task, member: Member, share: Share, fit: Callable[[DevicePlan], int],
    products: ProductSeconds | None = None,
) -> DevicePlan:  # fmt: skip
    """The plan of a device that leaves room for the scratch space of its products."""
    budget, scratch = member.memory, 0
    while True:
        try:
            plan = plan_device(task, replace(member, memory=budget), share, products)
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
        budget = min(member.memory - scratch, int(0.98 * budget))
