"""The division of a product among the cores of a CPU: by rows, by columns, and along k."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ...codegen.element import ElementType, epilogue_type
from ...device.traits import DeviceTraits
from ...problem.problem import GemmProblem
from .config import CpuConfig, reads_b_in_place

#: Most work-items for each core. Runtimes assign them one by one: if a core wakes up late, or is
#: taken away for a while, the others compute some of its work-items.
_BLOCKS_PER_CORE = 2

#: The cost of a late core, in blocks.
_LATE_BLOCKS = 0.5

#: Multiply-adds (of which 16 or 32 run at once) in the time of packing an element, and of reading
#: or writing a sum of a slice.
_MOVING_COST = 16

#: Most bytes of all panels of B of a work-item that stay in a cache.
#: Products with k from 8 to 16 became up to 1.3 times as fast; at k = 112 it made no difference.
_SWEPT_BYTES = 2**16

#: k is divided if that is predicted to take less than this part of the time, and to save more
#: multiply-adds than a core computes while it wakes another one.
_CLEARLY_FASTER = 0.95
_WAKING_COST = 2**18


@dataclass(frozen=True)
class CpuGrid:
    """The division of the result into blocks of rows and columns, and of k into slices."""

    blocks: int
    rows_per_group: int
    columns_per_group: int
    slices: int = 1
    depth_per_slice: int = 0  # with a single slice 0: all of k

    @property
    def groups(self) -> int:
        """Work-items, each with a slice of a block."""
        return self.blocks * self.slices

    @property
    def sums(self) -> int:
        """Sums of all work-items, in whole tiles."""
        return self.groups * self.rows_per_group * self.columns_per_group


@functools.lru_cache(maxsize=256)
def cpu_grid(
    m: int, n: int, units: int, config: CpuConfig, per_core: int = _BLOCKS_PER_CORE,
    k: int = 0, step: int = 0,
) -> CpuGrid:  # fmt: skip
    """Divide an m x n result among `units` cores so that the busiest core has the least work.

    If `step` is not 0, k may be divided as well, into slices of a multiple of `step`.

    Examples
    --------
    >>> cpu_grid(1024, 1024, 2, config := CpuConfig(MR=6, NR=64, KC=128, VW=16)).blocks
    4

    >>> # Six panels make two equal parts, but four unequal ones.
    >>> cpu_grid(1, 768, 2, CpuConfig(MR=1, NR=128, KC=32, VW=16))
    CpuGrid(blocks=2, rows_per_group=1, columns_per_group=384, slices=1, depth_per_slice=0)

    >>> # Three panels cannot be shared by two cores, but k can.
    >>> cpu_grid(17, 168, 2, config, k=5000, step=16).slices
    4
    """
    tiles_m, tiles_n = math.ceil(m / config.MR), math.ceil(n / config.NR)
    items = per_core * units

    def grid(by_m: int, by_n: int, by_k: int = 1) -> CpuGrid:
        rows = math.ceil(tiles_m / by_m) * config.MR
        columns = math.ceil(tiles_n / by_n) * config.NR
        blocks = math.ceil(m / rows) * math.ceil(n / columns)
        depth = math.ceil(k / by_k / step) * step if by_k > 1 else 0
        return CpuGrid(blocks, rows, columns, math.ceil(k / depth) if depth else 1, depth)

    def cost(grid: CpuGrid) -> float:
        # The multiply-adds of a block for each depth of k, the packing of its rows of A and columns
        # of B; and adding up the sums of slices, which the last work-item of a block does.
        rows, columns = grid.rows_per_group, grid.columns_per_group
        block = rows * columns + _MOVING_COST * (rows + columns)
        turns = math.ceil(grid.groups / units) + _LATE_BLOCKS
        if grid.slices == 1:
            return turns * block
        moved = math.ceil(grid.blocks / units) * (grid.slices + 1) * rows * columns
        return (turns * block * grid.depth_per_slice + _MOVING_COST * moved) / k

    divisions = [
        (by_m, by_n)
        for by_m in range(1, min(items, tiles_m) + 1)
        for by_n in range(1, min(items // by_m, tiles_n) + 1)
    ]
    whole = min((grid(*division) for division in divisions), key=cost)
    if not step:
        return whole
    # As many slices as give each core one work-item, or as many as it may have.
    sliced = [
        grid(by_m, by_n, by_k)
        for by_m, by_n in divisions
        for by_k in {count // (by_m * by_n) for count in (units, items)}
        if 1 < by_k <= k / step
    ]
    best = min(sliced, key=cost, default=whole)
    least = min(_CLEARLY_FASTER * cost(whole), cost(whole) - _WAKING_COST / max(1, k))
    return best if cost(best) < least else whole


@dataclass(frozen=True)
class CpuDivision:
    """The division of a batch among sets of work-items, and of each product among a set."""

    sets: int
    grid: CpuGrid
    sweeps: bool  # whether a work-item packs all its panels of B, and then finishes rows of tiles

    @property
    def groups(self) -> int:
        """All work-items."""
        return self.sets * self.grid.groups


def divide(problem: GemmProblem, config: CpuConfig, traits: DeviceTraits) -> CpuDivision:
    """Divide a product, or the products of a batch and then each product, among cores."""
    cores = traits.compute_units
    sets = min(problem.products, _BLOCKS_PER_CORE * cores)
    units = math.ceil(cores / sets)
    # If rows of B are read in place, long runs are better: one block for each core.
    runs = problem.b.order == "row" and reads_b_in_place(problem, config)
    per_core = 1 if runs else _BLOCKS_PER_CORE
    if problem.batch is not None and sets >= cores:
        units = per_core = 1
    step = 0
    if _may_divide_k(problem):
        step = config.KC if problem.packed else config.VW
    grid = cpu_grid(problem.m, problem.n, units, config, per_core, problem.k, step)
    return CpuDivision(sets, grid, _sweeps(problem, config, grid))


def _sweeps(problem: GemmProblem, config: CpuConfig, grid: CpuGrid) -> bool:
    """Whether panels of B are few and shallow enough for a cache, and rows of the result long."""
    depths = math.ceil(problem.k / problem.precision.packed_depth)
    element = ElementType(problem.dtype, problem.precision.arithmetic)
    return (
        not problem.packed
        and not reads_b_in_place(problem, config)
        and problem.out.order == "row"
        and grid.slices == 1
        and 0 < depths <= config.KC
        and grid.columns_per_group > config.NR
        and depths * grid.columns_per_group * element.bytes <= _SWEPT_BYTES
    )


def _may_divide_k(problem: GemmProblem) -> bool:
    """Whether a kernel can add up slices: of single products, whose sums have the result's type."""
    precision = problem.precision
    return (
        problem.batch is None
        and precision.packed_depth == 1
        and ElementType(problem.dtype, precision.arithmetic)
        == epilogue_type(problem.result_dtype, precision.arithmetic)
    )
