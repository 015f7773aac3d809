"""How each family divides a product: the tile among the operands, and who computes its parts."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from docs.drawings.canvas import FILLS, canvas
from pyclgemm import (
    CpuConfig,
    GemvConfig,
    GemvUnitConfig,
    MatrixConfig,
    SmallConfig,
    SmallCpuConfig,
    WgmmaConfig,
    XgemmConfig,
    XgemmDirectConfig,
)
from pyclgemm.codegen.config import Config
from pyclgemm.families.family import Tile
from pyclgemm.families.registry import family_of


class Picture(NamedTuple):
    """What the drawing of a family shows of one of its configurations."""

    config: Config
    place: str  # of the tile
    names: tuple[str, str, str]  # parameters of the tile: rows, columns, depth
    enlarged: str  # what is drawn large: the tile, or the part of B beside it
    parts: tuple[int, int]  # down and across what is enlarged
    part: str  # who has a part, and what it is
    caption: str


def _tiled(config: Any, suffix: str, caption: str) -> Picture:
    tiles = config.tiles
    items = (tiles.MDIMC, tiles.NDIMC)
    part = f"a work-item of {items[0]} x {items[1]}\n(MDIMC{suffix}, NDIMC{suffix})"
    names = ("WGD", "NWGD", "KWGD") if suffix else ("MWG", "NWG", "KWG")
    return Picture(config, "of a work-group", names, "tile", items, part, caption)


_GEMV = GemvConfig(MR=2, WGS=64, LANES_N=8, VW=4)
_UNIT = GemvUnitConfig(MR=16, SUBGROUPS=8, VW=4)
_MATRIX = MatrixConfig(MWG=128, NWG=128, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=4)
_WGMMA = WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=3)
_CPU = CpuConfig(MR=6, NR=64, KC=128, VW=16)
_SMALL = SmallConfig(MWI=2, NWI=4, WGS=64)
_SMALL_CPU = SmallCpuConfig(MR=4, NR=16, VW=8)

PICTURES = (
    _tiled(
        XgemmConfig(
            MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=16, MDIMA=8, NDIMB=8, KWI=2, VWM=4, VWN=4
        ),
        "",
        "Slabs of packed A and B pass through local memory; STAGES of them lie there at a time. "
        "Interleaved by STRM and STRN, a work-item's results lie apart, by vectors of VWM and VWN.",
    ),
    _tiled(
        XgemmDirectConfig(
            WGD=32, NWGD=64, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=4
        ),
        "D",
        "As in Xgemm, but slabs are read from the operands where they lie, with checks at the "
        "edges.",
    ),
    Picture(
        _GEMV, "of a work-group", ("MR", "LANES_N x VW", ""), "B",
        (_GEMV.lanes_k, _GEMV.LANES_N), "a work-item\nof WGS:\nVW columns",
        "Each element of B is read once, without local memory. A work-item takes every "
        "(WGS / LANES_N)-th row of B, and the sums of a column are joined at the end.",
    ),
    Picture(
        _UNIT, "of a work-group", ("MR", "8 x VW", ""), "B",
        (_UNIT.SUBGROUPS, 8), "lanes of one of\nSUBGROUPS:\nVW columns",
        "Sub-groups divide k. Their lanes load B into the registers of mma.sync directly, and "
        "their sums are joined at the end.",
    ),
    Picture(
        _MATRIX, "of a work-group", ("MWG", "NWG", "KWG"), "tile",
        (_MATRIX.SUBGROUPS_M, _MATRIX.SUBGROUPS_N),
        "a sub-group of\nSUBGROUPS_M x\nSUBGROUPS_N",
        "A sub-group multiplies its part by fragments of the matrix unit, from slabs in local "
        "memory. SLICES such sets of sub-groups share a slab's depth.",
    ),
    Picture(
        _WGMMA, "of a work-group", ("MWG", "NWG", "128 bytes"), "tile", (_WGMMA.CONSUMERS, 1),
        "a warpgroup of\nCONSUMERS",
        "One more warpgroup copies slabs into STAGES while these multiply.",
    ),
    Picture(
        _CPU, "in registers", ("MR", "NR", "KC"), "tile", (_CPU.MR, _CPU.NR // _CPU.VW),
        "a vector of VW",
        "A work-item packs a panel of B, KC x NR, for the first-level cache, and about MC rows of "
        "A for the second-level cache. Its tile of sums, MR x NR, walks over both.",
    ),
    Picture(
        _SMALL, "of a work-item", ("MWI", "NWI", ""), "product", (4, 4),
        "a work-item\nof WGS",
        "A work-group loads whole products of a batch into local memory, as many as WGS "
        "work-items suffice for.",
    ),
    Picture(
        _SMALL_CPU, "in registers", ("MR", "NR", ""), "product", (2, 1),
        "a tile of MR x NR\nin registers",
        "A work-item computes one product of a batch after the other, tile by tile, from its "
        "cache.",
    ),
)  # fmt: skip

#: Left and top of C, and its side, in units of length.
_LEFT, _TOP, _SIDE = 13.0, 10.0, 16.0


def _length(extent: int) -> float:
    """Return the side of a tile in the drawing, which grows with the logarithm."""
    return 1.2 + 0.55 * min(log2(extent), 8)


def draw(picture: Picture, path: Path) -> None:
    """Draw a family's tile among the operands and, enlarged, its parts."""
    tile = family_of(picture.config).tile(picture.config)
    rows, columns = _length(tile.rows), _length(tile.columns)
    of_rows, of_columns, of_depth = picture.names
    deep = getattr(picture.config, of_depth, tile.depth)
    depth = _length(deep) if of_depth else 0.0
    x, y = _LEFT + 5.0, _TOP + 5.0  # of the tile
    with canvas(path, 58, 31) as c:
        c.label(1, 1.2, f"The tile {picture.place}", bold=True)
        c.box(_LEFT, _TOP, _SIDE, _SIDE, fill=FILLS[0])
        c.box(1, _TOP, 11, _SIDE, fill=FILLS[0])
        c.box(_LEFT, 3, _SIDE, 6, fill=FILLS[0])
        c.box(1, y, 11, rows, fill=FILLS[1])
        c.box(x, 3, columns, 6, fill=FILLS[1])
        if depth:
            c.box(5, y, min(depth, 6), rows, fill=FILLS[3])
            c.box(x, 5, columns, min(depth, 3.6), fill=FILLS[3])
            text = of_depth if "bytes" in of_depth else f"{of_depth} = {deep}"
            c.label(5, y + rows + 1.2, text, 8.5)
        c.box(x, y, columns, rows, fill=FILLS[4])
        for at_x, at_y, name in (
            (1.5, _TOP + 1, "A"), (_LEFT + 0.5, 4, "B"), (_LEFT + 0.5, _TOP + 1, "C"),
        ):  # fmt: skip
            c.label(at_x, at_y, name, 11, bold=True)
        c.label(x, y + rows + 1.2, f"{of_rows} = {tile.rows}", 8.5)
        c.label(x, y + rows + 2.7, f"{of_columns} = {tile.columns}", 8.5)
        _enlarge(c, picture, tile)
        c.caption(1, 27.4, picture.caption, 100)


def _enlarge(c: Any, picture: Picture, tile: Tile) -> None:
    """Draw the parts of what is enlarged, the first one filled."""
    title = {
        "tile": "The tile, enlarged", "B": "B beside the tile, enlarged: k goes down",
        "product": "A product, enlarged",
    }[picture.enlarged]  # fmt: skip
    c.label(33, 1.2, title, bold=True)
    down, across = picture.parts
    height, width = _SIDE / down, _SIDE / across
    fill = FILLS[1] if picture.enlarged == "B" else FILLS[4]
    for row in range(down):
        for column in range(across):
            first = row == column == 0
            c.box(33 + column * width, 3 + row * height, width, height,
                  fill=FILLS[5] if first else fill, line=1.2 if first else 0.4)  # fmt: skip
    c.label(50, 4.2 + picture.part.count("\n") * 0.6, picture.part, 8.5)
    if picture.enlarged == "product":
        size = f" of {tile.rows} x {tile.columns}"
    elif picture.enlarged == "tile":
        size = f" of {tile.rows // down} x {tile.columns // across}"
    else:
        size = f"; k is divided by {down}"
    c.label(33, 20.4, f"{down} x {across} parts{size}", 8.5)


def drawings() -> dict[str, Callable[[Path], None]]:
    """Return a function that draws, for each family by the name of its file."""
    return {
        f"family-{picture.config.family}": lambda path, picture=picture: draw(picture, path)
        for picture in PICTURES
    }
