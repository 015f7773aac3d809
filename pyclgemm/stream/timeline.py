"""Predict how long a device takes for tiles, by following them through its link and its kernels."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence

from .plan import DevicePlan, Task, Tile, panel_edges, tile_counts

#: Seconds of the host for one step: threads pass it on, and the product is enqueued. On an H200
#: neither products nor transfers hide them.
STEP_SECONDS = 1e-4
#: Panels that travel ahead of the products, where others must leave their slots first.
_AHEAD = 2

#: Seconds of the product of panels: rows, columns and depth.
ProductSeconds = Callable[[int, int, int], float]


class _Strips:
    """Which rows of A, or columns of B, lie on the device: those that were used last."""

    def __init__(self, slots: int, panels: int) -> None:
        self._most = slots // panels
        self._held: OrderedDict[Hashable, None] = OrderedDict()

    def has(self, key: Hashable) -> bool:
        """Whether a strip is there; it is afterwards."""
        is_there = key in self._held
        self._held[key] = None
        self._held.move_to_end(key)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return is_there


class _Link:
    """A link on which both directions take turns."""

    def __init__(self) -> None:
        self.free = 0.0
        self._waiting: deque[tuple[float, float]] = deque()  # since when, and for how long

    def back(self, since: float, seconds: float) -> None:
        """Let a tile travel back once it is computed."""
        self._waiting.append((since, seconds))

    def until(self, time: float) -> None:
        """Let the tiles travel that are ready before a time."""
        while self._waiting and max(self._waiting[0][0], self.free) <= time:
            since, seconds = self._waiting.popleft()
            self.free = max(self.free, since) + seconds


def seconds_of(
    task: Task, plan: DevicePlan, tiles: Sequence[Tile], product_seconds: ProductSeconds
) -> float:
    """The seconds from the first transfer until the last tile is written."""
    member, edges = plan.member, panel_edges(task, plan.member, plan.depth)
    depths = depths_of(edges)
    rate_a, rate_b = (
        0.0 if one in member.in_place else task.operand_bytes / member.up for one in ("a", "b")
    )
    tile_bytes = plan.bytes_down / (task.m * task.n)  # of an element that travels
    up_out, down_out = tile_bytes / member.up, tile_bytes / member.down
    a, b = _Strips(plan.a_slots, len(depths)), _Strips(plan.b_slots, len(depths))
    down, across = tile_counts(task, plan.rows, plan.columns)
    holds_a, holds_b = plan.a_slots >= len(depths) * down, plan.b_slots >= len(depths) * across
    link, computed, written = _Link(), 0.0, deque([0.0] * plan.results)
    for number, tile in enumerate(tiles):
        (height, width), (top, _, left, _) = tile.block.shape, tile.block
        needs_a, needs_b = not a.has(top), not b.has(left)
        line = (height * rate_a if needs_a else 0.0) + (width * rate_b if needs_b else 0.0)
        order = depths[::-1] if number % 2 else depths
        if not number and plan.pieces:
            order = depths_of(plan.pieces)
        work = [product_seconds(height, width, depth) + STEP_SECONDS for depth in order]
        begin = 0.0
        if (needs_a and not holds_a) or (needs_b and not holds_b):
            begin = computed - sum(work[-_AHEAD:])
        link.until(max(begin, link.free))
        link.free = max(link.free, begin) + height * width * up_out * task.adds_c
        # The tile before the last one must have left its slot.
        computed = max(computed, written.popleft())
        for depth, seconds in zip(order, work, strict=True):
            link.free += line * depth
            computed = max(computed, link.free) + seconds
        if number == len(tiles) - 1 and plan.strips > 1:
            begun = computed - sum(work)
            computed = _strips_of(task, plan, tile, depths, product_seconds, link, begun)
        else:
            link.back(computed, height * width * down_out)
        written.append(computed + height * width * down_out)
    link.until(float("inf"))
    return max(computed, link.free)


def depths_of(edges: Sequence[int]) -> list[int]:
    """The depths of panels or pieces between edges along k."""
    return [end - first for first, end in itertools.pairwise(edges)]


def end_seconds(task: Task, plan: DevicePlan, tile: Tile, product_seconds: ProductSeconds) -> float:
    """The seconds of a last tile in strips whose panels are on the device, until it is written."""
    link, depths = _Link(), depths_of(panel_edges(task, plan.member, plan.depth))
    computed = _strips_of(task, plan, tile, depths, product_seconds, link, 0.0)
    link.until(float("inf"))
    return max(computed, link.free)


def _strips_of(
    task: Task, plan: DevicePlan, tile: Tile, depths: Sequence[int],
    product_seconds: ProductSeconds, link: _Link, begun: float,
) -> float:  # fmt: skip
    """Compute a tile in strips, each of which travels back at once; when all are computed."""
    computed = begun
    down_out = plan.bytes_down / (task.m * task.n) / plan.member.down
    for strip in tile.block.strips(plan.strips, by_columns="out" in task.by_columns):
        height, width = strip.shape
        computed += sum(product_seconds(height, width, depth) + STEP_SECONDS for depth in depths)
        link.back(computed, height * width * down_out)
    return computed
