"""Stream-K's shares of the slabs, beside whole tiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.drawings.canvas import FILLS, canvas
from pyclgemm.codegen.stream_k import Division, divide

TILES, SLABS, GROUPS = 10, 8, 4


def shares(division: Division, tiles: int, slabs: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield work-group, tile, and the first and last slab + 1 of each share, in order."""
    whole = division.rounds * division.groups
    for tile in range(whole):
        yield tile % division.groups, tile, 0, slabs
    divided = (tiles - whole) * slabs
    for tile in range(whole, tiles):
        first = 0
        owner = [division.group_of((tile - whole) * slabs + slab, divided) for slab in range(slabs)]
        for slab in range(1, slabs + 1):
            if slab == slabs or owner[slab] != owner[first]:
                yield owner[first], tile, first, slab
                first = slab


def draw(path: Path) -> None:
    """Draw the time of each work-group, with whole tiles and with Stream-K."""
    with canvas(path, 54, 27.5) as c:
        rounds = -(-TILES // GROUPS)
        c.label(
            1,
            1.2,
            f"Whole tiles: {TILES} tiles of {SLABS} slabs for {GROUPS} work-groups take"
            f" {rounds * SLABS} steps",
            bold=True,
        )
        whole = [(tile % GROUPS, tile, 0, SLABS) for tile in range(TILES)]
        end = _timeline(c, 2.5, whole, idle=rounds * SLABS)
        division = divide(TILES, SLABS, GROUPS, joining=1)
        ours = list(shares(division, TILES, SLABS))
        most = max(_ends(ours))
        c.label(
            1,
            end + 2,
            f"Stream-K: {division.rounds} round of whole tiles, then the slabs of the"
            f" other {TILES - division.rounds * GROUPS} divided evenly: {most} steps",
            bold=True,
        )
        end = _timeline(c, end + 3.3, ours, idle=0)
        c.caption(
            1,
            end + 1.6,
            "A box is a share of a tile, in steps of one slab of k. Shares of one tile have "
            "partial sums in global memory; the work-group that arrives last adds them in the "
            "order of the shares, so that equal calls have equal results. No work-group waits.",
            110,
        )


def _ends(parts: list[tuple[int, int, int, int]]) -> list[int]:
    return [
        sum(last - first for g, _, first, last in parts if g == group) for group in range(GROUPS)
    ]


def _timeline(c: Any, top: float, parts: list[tuple[int, int, int, int]], idle: int) -> float:
    step, height = 1.85, 1.9
    counts = {tile: sum(one[1] == tile for one in parts) for _, tile, _, _ in parts}
    at = [0] * GROUPS
    for group in range(GROUPS):
        c.label(1, top + (group + 0.5) * height, f"work-group {group}", 8.5)
    for group, tile, first, last in parts:
        is_part = counts[tile] > 1
        text = f"tile {tile}" if last - first > 2 else str(tile)
        c.box(
            7 + at[group] * step,
            top + group * height + 0.15,
            (last - first) * step,
            height - 0.3,
            text,
            FILLS[4] if is_part else FILLS[2 + tile % 2],
            size=8,
        )
        at[group] += last - first
    for group in range(GROUPS):
        if at[group] < idle:
            c.box(
                7 + at[group] * step,
                top + group * height + 0.15,
                (idle - at[group]) * step,
                height - 0.3,
                "",
                hatch="///",
                edge="#AAAAAA",
            )
            c.box(
                7 + (at[group] + 2.7) * step,
                top + group * height + 0.4,
                2.6 * step,
                height - 0.8,
                "idle",
                edge="white",
                size=8,
            )
    return top + GROUPS * height
