"""The producer and the consumers of a work-group with warpgroup units."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from docs.drawings.canvas import FILLS, canvas
from pyclgemm.families.wgmma import unit as units
from pyclgemm.families.wgmma.config import WgmmaConfig

CONFIG = WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=3)
SLABS = 7
#: Steps of a copy and of a multiplication in the drawing.
COPY, MULTIPLY = 2.0, 3.0


class Times(NamedTuple):
    """Begin of the copy and of the multiplication of a slab."""

    copy: float
    multiply: float


def timeline(stages: int, slabs: int, copy: float, multiply: float) -> list[Times]:
    """Follow the barriers: a copy waits for an empty stage, a multiplication for a full one."""
    times: list[Times] = []
    for slab in range(slabs):
        free = times[slab - 1].copy + copy if slab else 0.0
        if slab >= stages:  # the stage is empty once its last slab is multiplied
            free = max(free, times[slab - stages].multiply + multiply)
        ready = free + copy
        if slab:
            ready = max(ready, times[slab - 1].multiply + multiply)
        times.append(Times(free, ready))
    return times


def draw(path: Path) -> None:
    """Draw the work-group's parts, and the slabs over time."""
    rows = CONFIG.MWG // CONFIG.CONSUMERS
    copying, multiplying = CONFIG.registers or (0, 0)
    slab_bytes = (CONFIG.MWG + CONFIG.NWG) * units.ROW_BYTES
    with canvas(path, 58, 31.5) as c:
        c.label(
            1,
            1.2,
            f"A work-group of {CONFIG.work_items} work-items: one warpgroup copies,"
            f" {CONFIG.CONSUMERS} multiply",
            bold=True,
        )
        c.box(1, 4, 9, 7, "A and B\nin global memory", FILLS[1])
        c.arrow((10, 7.5), (14, 7.5))
        c.box(
            14,
            4.6,
            9.5,
            5.8,
            f"producer\n{units.WARPGROUP} work-items\nof {copying} registers",
            FILLS[4],
        )
        c.label(28.9, 2.9, f"local memory: {CONFIG.STAGES} stages", 9, "center")
        for stage in range(CONFIG.STAGES):
            c.box(26.5, 3.8 + stage * 2.5, 5, 2.1, f"stage {stage}", FILLS[2 + stage])
        c.label(28.9, 12.1, f"{slab_bytes // 1024} KiB each", 8, "center")
        c.arrow((23.5, 7.5), (26.3, 7.5))
        for consumer in range(CONFIG.CONSUMERS):
            y = 3.4 + consumer * 4.6
            c.arrow((31.8, 7.5), (35.3, y + 1.9))
            c.box(
                35.5,
                y,
                10.5,
                3.8,
                f"consumer {consumer}\n{units.WARPGROUP} work-items\nof {multiplying} registers",
                FILLS[5] if consumer else FILLS[3],
                size=8.5,
            )
            c.arrow((46, y + 1.9), (48.8, y + 1.9))
            c.box(49, y, 8, 3.8, f"C, {rows} x {CONFIG.NWG}", FILLS[5] if consumer else FILLS[3])
        c.label(1, 15.3, "Slabs over time, by number", bold=True)
        times = timeline(CONFIG.STAGES, SLABS, COPY, MULTIPLY)
        left, step = 9.5, 1.9
        c.label(1, 18.1, "producer")
        for consumer in range(CONFIG.CONSUMERS):
            c.label(1, 20.6 + consumer * 2.2, f"consumer {consumer}")
        for slab, begin in enumerate(times):
            fill = FILLS[2 + slab % CONFIG.STAGES]
            c.box(left + begin.copy * step, 17.2, COPY * step, 1.8, f"{slab}", fill)
            for consumer in range(CONFIG.CONSUMERS):
                c.box(
                    left + begin.multiply * step,
                    19.7 + consumer * 2.2,
                    MULTIPLY * step,
                    1.8,
                    f"{slab}",
                    fill,
                )
        c.caption(
            1,
            27,
            "Shades are stages. The producer copies a slab of A and B as soon as its stage is "
            "empty, and the copy itself signals that the stage is full; a consumer signals that it "
            f"has read it. So copies run up to {CONFIG.STAGES} slabs ahead, and the units wait for "
            "the first slab only. Consumers share B's slab and read different rows of A's.",
            118,
        )
