"""Bytes that a product moves at each level of memory, and operations per byte. Pure.

The terms are those of the roofline model (see `pyclgemm.analysis.ceilings`).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..codegen.config import STAGED_BYTES, Config
from ..codegen.element import operand_type
from ..codegen.pack import PACKED_A, PACKED_B
from ..codegen.stream_k import Share, tile_count
from ..families.cpu import CpuConfig
from ..families.gemv import GemvUnitConfig
from ..families.mma.config import MatrixConfig
from ..families.mma.slab import COPY_BYTES
from ..families.schedule import needs_packing
from ..families.tiled.config import XgemmConfig
from ..families.tiled.slab import slab_reader
from ..families.wgmma.config import WgmmaConfig
from ..families.wgmma.unit import FRAGMENT_ROWS, ROW_BYTES, UNITS
from ..problem.precision import parts_of
from ..problem.problem import GemmProblem


@dataclass(frozen=True)
class Traffic:
    """Bytes that a product moves; None is what does not apply to its family.

    Attributes
    ----------
    least : int
        Every operand read once and the result written once: global memory moves no less.
    packing : int
        Added by packing operands: written, and read again.
    tiles : int or None
        Read from global memory or its caches by all tiles together.
    local : int or None
        Read from local memory, entries that work-items of one sub-group share counted once.
    local_by_items : int or None
        Read from local memory, counted for every work-item.
    joining : int
        Added by joining the partial sums of tiles that work-groups share (FILL): written, and
        read again.
    """

    least: int
    packing: int
    tiles: int | None
    local: int | None
    local_by_items: int | None
    joining: int = 0

    @property
    def global_memory(self) -> int:
        """Read from and written to global memory, if no cache held anything."""
        return self.least + self.packing + self.joining

    @property
    def cache(self) -> int | None:
        """Moved by the kernel that multiplies between its work-groups and the cache they share."""
        return None if self.tiles is None else self.tiles + self.joining


def traffic_of(
    problem: GemmProblem,
    config: Config,
    sub_group: int,
    share: Share | None = None,
    packed: Collection[str] = (),
) -> Traffic:
    """Count the bytes that a configuration moves for a product.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    config : Config
        Of any family.
    sub_group : int
        Work-items that read local memory together.
    share : Share, optional
        How work-groups share tiles, if they do.
    packed : collection of str
        Of matrix units: the operands, "a" and "b", that are packed before.

    Examples
    --------
    A 1024 x 1024 float32 result of k = 1024, with 128 x 128 tiles: 64 tiles read 256 entries
    for each of 1024 depths.

    >>> from pyclgemm import XgemmConfig
    >>> from pyclgemm.selection.overrides import Inquiry, product_of
    >>> config = XgemmConfig(MWG=128, NWG=128, KWG=16, MDIMC=16, NDIMC=16, MDIMA=16, NDIMB=16,
    ...                      KWI=2, VWM=4, VWN=4)
    >>> traffic_of(product_of(Inquiry(1024, 1024, 1024)).problem, config, 32).tiles // 4
    16777216
    """
    size = np.dtype(problem.dtype).itemsize
    m, n, k = problem.m, problem.n, problem.k
    results = np.dtype(problem.result_dtype).itemsize * m * n
    least = size * (m * k + k * n) + results * (2 if problem.c else 1)
    if isinstance(config, CpuConfig):
        return _cpu_traffic(problem, config, least, size)
    if isinstance(config, MatrixConfig):
        return _matrix_traffic(problem, config, least, size, packed, share)
    if isinstance(config, WgmmaConfig):
        return _wgmma_traffic(problem, config, least, packed, share)
    tiles = getattr(config, "tiles", None)
    if tiles is None:
        return Traffic(least, 0, None, None, None)
    packing = 0
    if isinstance(config, XgemmConfig):
        moved = [("a", m * k), ("b", k * n)]
        packing = sum(
            2 * size * entries for name, entries in moved if needs_packing(name, problem, config)
        )
    count = tile_count(m, n, tiles.MWG, tiles.NWG)
    slabs = math.ceil(k / tiles.KWG)
    depth = slabs * tiles.KWG
    joining = _joining(problem, tiles.MWG * tiles.NWG, count, slabs, share)
    local, by_items = _local_bytes(tiles, STAGED_BYTES[problem.dtype], sub_group)
    return Traffic(
        least,
        packing,
        count * depth * (tiles.MWG + tiles.NWG) * size,
        count * depth * local or None,
        count * depth * by_items or None,
        joining,
    )


def load_bytes(
    problem: GemmProblem, config: Config, packed: Collection[str] = ()
) -> dict[str, int]:
    """Bytes that one load instruction of a work-item asks for, by what it reads.

    `packed`: as for `traffic_of`.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> from pyclgemm.selection.overrides import Inquiry, product_of
    >>> load_bytes(product_of(Inquiry(8, 8, 8)).problem, CpuConfig(MR=6, NR=64, KC=512, VW=16))
    {'packed B': 64}
    """
    stored = np.dtype(problem.dtype).itemsize
    if isinstance(config, CpuConfig):
        return {"packed B": config.VW * stored}
    if isinstance(config, WgmmaConfig) and config.TMA:
        return {}  # whole slabs are copied by a descriptor
    if isinstance(config, (MatrixConfig, WgmmaConfig)):
        return {
            f"{name.upper()} from global memory": COPY_BYTES
            if name in packed
            else min(COPY_BYTES, layout.alignment * stored)
            for name, layout in (("a", problem.a), ("b", problem.b))
        }
    tiles = getattr(config, "tiles", None)
    if tiles is None:
        return {}
    reads_packed = isinstance(config, XgemmConfig)
    run = getattr(config, "RUN_K", 1)
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    found: dict[str, int] = {}
    names: tuple[Literal["a", "b"], ...] = ("a", "b")
    read = replace(problem, a=PACKED_A, b=PACKED_B) if reads_packed else problem
    for name, staged, width in zip(
        names,
        (tiles.SA, tiles.SB),
        (tiles.VWM, tiles.VWN),
        strict=True,
    ):
        if staged:
            reader = slab_reader(name, read, element, tiles, run)
            found[f"{name.upper()} from global memory"] = reader.copy.width * stored
            found[f"{name.upper()} from local memory"] = width * STAGED_BYTES[problem.dtype]
        else:
            found[f"{name.upper()} from global memory"] = width * stored
    return found


def _cpu_traffic(problem: GemmProblem, config: CpuConfig, least: int, size: int) -> Traffic:
    """Tiles in registers read panels that were packed; the panels are what caches serve."""
    count = math.ceil(problem.m / config.MR) * math.ceil(problem.n / config.NR)
    packing = 2 * size * problem.k * (problem.m + (0 if problem.packed else problem.n))
    return Traffic(least, packing, count * problem.k * (config.MR + config.NR) * size, None, None)


def _matrix_traffic(
    problem: GemmProblem,
    config: MatrixConfig,
    least: int,
    size: int,
    packed: Collection[str],
    share: Share | None,
) -> Traffic:
    """Sub-groups read their part of a slab from local memory, each element by one work-item."""
    extents = {"a": problem.m, "b": problem.n}
    packing = sum(2 * size * extents[name] * problem.k for name in packed)
    count = tile_count(problem.m, problem.n, config.MWG, config.NWG)
    slabs = math.ceil(problem.k / config.KWG)
    depth = slabs * config.KWG
    read = config.SUBGROUPS_N * config.MWG + config.SUBGROUPS_M * config.NWG
    local = count * depth * read * size
    tiles = count * depth * (config.MWG + config.NWG) * size
    joining = _joining(problem, config.MWG * config.NWG, count, slabs, share)
    return Traffic(least, packing, tiles, local or None, local or None, joining)


def _wgmma_traffic(
    problem: GemmProblem,
    config: WgmmaConfig,
    least: int,
    packed: Collection[str],
    share: Share | None,
) -> Traffic:
    """Each warpgroup's instruction reads 64 rows of A and all columns of the tile's B."""
    precision = problem.precision
    size = UNITS[precision.multiplied or ""].element_bytes
    stored = size * parts_of(precision.terms)
    extents = {"a": problem.m, "b": problem.n}
    packing = sum(2 * stored * extents[name] * problem.k for name in packed)
    count = tile_count(problem.m, problem.n, config.MWG, config.NWG)
    slab = ROW_BYTES // size
    slabs = math.ceil(problem.k / slab)
    depth = slabs * slab
    tiles = count * depth * (config.MWG + config.NWG) * stored
    joining = _joining(problem, config.MWG * config.NWG, count, precision.terms * slabs, share)
    read = config.MWG + config.MWG // FRAGMENT_ROWS * config.NWG
    local = count * depth * read * size * precision.terms
    return Traffic(least, packing, tiles, local or None, local or None, joining)


def _joining(
    problem: GemmProblem, elements: int, tiles: int, slabs: int, share: Share | None
) -> int:
    """Bytes of partial sums, written and read, of so many tiles and elements of each."""
    if share is None:
        return 0
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    return 2 * elements * element.bytes * share.partial_sums(tiles, max(1, slabs))


def _local_bytes(tiles: XgemmConfig, size: int, sub_group: int) -> tuple[int, int]:
    """Bytes that a work-group reads from local memory for one depth: shared ones once, and all."""
    rows = tiles.SA * tiles.MWG // tiles.MDIMC
    columns = tiles.SB * tiles.NWG // tiles.NDIMC
    by_items = tiles.work_items * (rows + columns) * size
    run, runs_m = tiles.LANES_M * tiles.LANES_N, tiles.MDIMC // tiles.LANES_M
    shared = 0
    for first in range(0, tiles.work_items, sub_group):
        items = range(first, min(first + sub_group, tiles.work_items))
        along_m = {item // run % runs_m * tiles.LANES_M + item % tiles.LANES_M for item in items}
        along_n = {
            item // (run * runs_m) * tiles.LANES_N + item % run // tiles.LANES_M for item in items
        }
        shared += len(along_m) * rows + len(along_n) * columns
    return shared * size, by_items


# --------------------------------------------------------------------------------------
# How well the tiles of a product fill the device, and what edges cost. Pure.
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Utilisation:
    """Tiles, work-groups and compute units of a product.

    Attributes
    ----------
    tiles : int or None
        Tiles of the result; None for a family without tiles.
    groups : int
        Work-groups of the launch.
    units : int
        Compute units.
    waves : float
        Work-groups over those that are resident at a time (one a compute unit, where
        occupancy is not known).
    tail : float
        Part of the resident places that are taken, on average over the waves: 1 if the last
        wave is full.
    balance : float
        Work-groups over the places of the fullest compute unit on all of them: at most this
        part of the device's arithmetic is used. 132 work-groups on 132 units: 1; 133: 0.504.
    useful : float or None
        Multiply-adds that the product needs over those that its tiles do, edges included.
    """

    tiles: int | None
    groups: int
    units: int
    waves: float
    tail: float
    balance: float
    useful: float | None


def utilise(
    problem: GemmProblem,
    config: Config,
    groups: int,
    units: int,
    resident_groups: int | None,
) -> Utilisation:
    """Relate a launch to the device.

    Parameters
    ----------
    problem : GemmProblem
        The product; no size is zero.
    config : Config
        Of any family.
    groups, units : int
        Work-groups of the launch, and compute units.
    resident_groups : int or None
        Work-groups resident on a compute unit, if known.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> from pyclgemm.selection.overrides import Inquiry, product_of
    >>> config = CpuConfig(MR=6, NR=64, KC=512, VW=16)
    >>> utilise(product_of(Inquiry(9, 96, 8)).problem, config, 3, 2, None)
    Utilisation(tiles=4, groups=3, units=2, waves=1.5, tail=0.75, balance=0.75, useful=0.5625)
    """
    waves = groups / (units * max(resident_groups or 1, 1))
    balance = groups / (units * math.ceil(groups / units))
    tile = tile_of(config)
    if tile is None:
        return Utilisation(None, groups, units, waves, waves / math.ceil(waves), balance, None)
    rows, columns, depth = tile
    tiles_m, tiles_n = math.ceil(problem.m / rows), math.ceil(problem.n / columns)
    done = tiles_m * rows * tiles_n * columns * math.ceil(problem.k / depth) * depth
    useful = problem.m * problem.n * problem.k / done
    return Utilisation(
        tiles_m * tiles_n, groups, units, waves, waves / math.ceil(waves), balance, useful
    )


def tile_of(config: Config) -> tuple[int, int, int] | None:
    """Rows, columns and depth to which a family rounds up; None for one without tiles."""
    if isinstance(config, CpuConfig):
        return config.MR, config.NR, 1
    if isinstance(config, MatrixConfig):
        return config.MWG, config.NWG, config.KWG
    if isinstance(config, WgmmaConfig):
        return config.MWG, config.NWG, config.DEPTH
    if isinstance(config, GemvUnitConfig):
        return config.MR, config.columns, config.depth
    tiles = getattr(config, "tiles", None)
    return None if tiles is None else (tiles.MWG, tiles.NWG, tiles.KWG)
