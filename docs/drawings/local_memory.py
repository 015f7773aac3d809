"""A tile's way through local memory, with and without padding, bank by bank."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from docs.drawings.canvas import EMPHASIS, FILLS, Canvas, canvas
from pyclgemm import XgemmDirectConfig
from pyclgemm.families.tiled.codegen import slab_copy_of
from pyclgemm.families.tiled.family import BANKS, transposed_words
from pyclgemm.problem.problem import MatrixLayout

#: A slab of B of 8 depths and 64 columns; its columns are contiguous, so that it is transposed.
CONFIG = XgemmDirectConfig(
    WGD=64,
    KWGD=8,
    MDIMCD=8,
    NDIMCD=8,
    MDIMAD=8,
    NDIMBD=8,
    KWID=1,
    VWMD=4,
    VWND=4,
    PADA=0,
    PADB=0,
    RUN_K=8,
)
LAYOUT = MatrixLayout("column", 1)
_CELL = 1.15


def words_of(config: XgemmDirectConfig) -> list[int]:
    """Return the word that each work-item of a sub-group writes first."""
    tiles = config.tiles
    copy = slab_copy_of("b", LAYOUT, tiles, config.RUN_K)
    return transposed_words(tiles, copy, (tiles.NWG, tiles.PADB, tiles.VWN), 4)


def draw(path: Path) -> None:
    """Draw what a sub-group of 32 work-items reads, and the words that it writes."""
    variants = (
        ("rows of 64 words: PADB=0", CONFIG),
        ("rows of 64 + 4 words: PADB=4", replace(CONFIG, PADB=4)),
        ("columns exchanged by exclusive or: SWIZZLE=8", replace(CONFIG, SWIZZLE=8)),
    )
    copy = slab_copy_of("b", LAYOUT, CONFIG.tiles, CONFIG.RUN_K)
    with canvas(path, 56, 51) as c:
        c.label(1, 1.2, "B in global memory: its columns are contiguous", bold=True)
        c.label(1, 2.6, "32 work-items of a sub-group read 4 columns of 8 elements.")
        c.label(1, 3.9, "The number in a cell is the work-item that reads the element.")
        for item in range(32):
            depth, column = item % copy.unit_items, item // copy.unit_items
            c.box(
                32 + depth * _CELL * 1.2,
                0.8 + column * _CELL,
                _CELL * 1.2,
                _CELL,
                str(item),
                _fill(depth),
                size=7,
            )
        for column in range(4):
            c.label(31.6, 0.8 + (column + 0.5) * _CELL, f"column {column}", 8, "right")
        for number, (title, config) in enumerate(variants):
            _variant(c, 7.5 + number * 14.6, title, config)


def _fill(depth: int) -> str:
    return (FILLS[1], FILLS[2], FILLS[3], FILLS[4])[depth % 4]


def _variant(c: Canvas, top: float, title: str, config: XgemmDirectConfig) -> None:
    words = words_of(config)
    counts = Counter(word % BANKS for word in words)
    most = max(counts.values())
    times = f"{most} accesses, one after the other" if most > 1 else "one access of all banks"
    c.label(1, top, f"Local memory, {title}", bold=True)
    c.label(53, top, times, 9, "right", bold=True, colour=EMPHASIS if most > 1 else "#222222")
    left = 10
    c.label(left - 0.6, top + 1.4, "bank", 8, "right")
    for bank in range(0, BANKS, 4):
        c.label(left + (bank + 0.5) * _CELL * 1.15, top + 1.4, str(bank), 8, "center")
    for depth in range(8):
        y = top + 2.1 + depth * _CELL
        c.label(left - 0.6, y + 0.5 * _CELL, f"depth {depth}", 8, "right")
        for bank in range(BANKS):
            c.box(left + bank * _CELL * 1.15, y, _CELL * 1.15, _CELL, edge="#BBBBBB", line=0.4)
        for item, word in enumerate(words):
            if item % 8 == depth:
                c.box(
                    left + word % BANKS * _CELL * 1.15,
                    y,
                    _CELL * 1.15,
                    _CELL,
                    str(item),
                    _fill(depth),
                    size=7,
                )
    y = top + 2.1 + 8.25 * _CELL
    c.label(left - 0.6, y + 0.55 * _CELL, "words in bank", 8, "right")
    for bank in range(BANKS):
        count = counts[bank]
        c.box(
            left + bank * _CELL * 1.15,
            y,
            _CELL * 1.15,
            _CELL,
            str(count) if count else "",
            FILLS[5] if count > 1 else FILLS[0],
            size=7.5,
        )
