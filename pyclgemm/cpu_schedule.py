"""How a product is divided among the cores of a CPU device, and its launch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .config import CpuConfig
from .cpu_codegen import reads_b_in_place
from .device import DeviceTraits
from .element import epilogue_type, operand_type
from .launch import Schedule, gemm_launch
from .problem import GemmProblem
from .product import Product

#: Bytes to which parts of a workspace are aligned: the widest vector of OpenCL C.
_ALIGNMENT = 128

#: Most work-items for each core. Runtimes hand them out one by one: a core that wakes late, or
#: is taken away for a while, then costs a part of its share and not all of it.
_BLOCKS_PER_CORE = 2

#: What such a core costs, in blocks.
_LATE_BLOCKS = 0.5

#: Multiply-adds (16 or 32 are done at once) in the time that packing an element takes.
_PACKING_COST = 16


@dataclass(frozen=True)
class CpuGrid:
    """How the result is divided among cores: blocks of rows and of columns."""

    groups: int
    rows_per_group: int
    columns_per_group: int


def cpu_grid(
    m: int, n: int, units: int, config: CpuConfig, per_core: int = _BLOCKS_PER_CORE
) -> CpuGrid:
    """Divide an m x n result among the `units` cores of a device, at most `per_core` blocks each.

    How long a product takes is decided by the core that gets most: how many of the largest
    blocks, with their multiply-adds and the packing of the rows of A and the columns of B
    that each needs.

    Examples
    --------
    >>> cpu_grid(1024, 1024, 2, CpuConfig(MR=6, NR=64, KC=128, VW=16))
    CpuGrid(groups=4, rows_per_group=516, columns_per_group=512)

    Six panels are two equal shares, but four unequal ones:

    >>> cpu_grid(1, 768, 2, CpuConfig(MR=1, NR=128, KC=32, VW=16))
    CpuGrid(groups=2, rows_per_group=1, columns_per_group=384)
    """
    tiles_m, tiles_n = math.ceil(m / config.MR), math.ceil(n / config.NR)

    def grid(by_m: int, by_n: int) -> CpuGrid:
        rows = math.ceil(tiles_m / by_m) * config.MR
        columns = math.ceil(tiles_n / by_n) * config.NR
        return CpuGrid(math.ceil(m / rows) * math.ceil(n / columns), rows, columns)

    def cost(grid: CpuGrid) -> float:
        rows, columns = grid.rows_per_group, grid.columns_per_group
        block = rows * columns + _PACKING_COST * (rows + columns)
        return (math.ceil(grid.groups / units) + _LATE_BLOCKS) * block

    items = per_core * units
    return min(
        (
            grid(by_m, by_n)
            for by_m in range(1, min(items, tiles_m) + 1)
            for by_n in range(1, min(items // by_m, tiles_n) + 1)
        ),
        key=cost,
    )


def schedule_cpu(product: Product, config: CpuConfig, traits: DeviceTraits) -> Schedule:
    """Lay out the one launch of a product on a CPU device."""
    problem = product.problem
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    wide = epilogue_type(problem.result_dtype, problem.precision.arithmetic)
    # The products of a batch come first: each takes as many cores as are left for it.
    sets = min(problem.products, _BLOCKS_PER_CORE * traits.compute_units)
    units = math.ceil(traits.compute_units / sets)
    # Where B's rows are read in place, the longer the runs the better: one block a core.
    runs = problem.b.order == "row" and reads_b_in_place(problem, config)
    grid = (
        cpu_grid(problem.m, problem.n, units, config, 1 if runs else _BLOCKS_PER_CORE)
        if problem.batch is None or sets < traits.compute_units
        else _whole_product(problem, config)
    )
    groups = sets * grid.groups
    # A tall A goes through the workspace block by block; B is then packed once a block.
    blocks = max(1, round(grid.rows_per_group / config.MC))
    rows_per_block = math.ceil(grid.rows_per_group / blocks / config.MR) * config.MR
    elements = config.KC * (rows_per_block + (0 if problem.packed else config.NR))
    group_bytes = math.ceil(elements * element.bytes / _ALIGNMENT) * _ALIGNMENT
    values = {
        "rows_per_group": grid.rows_per_group,
        "rows_per_block": rows_per_block,
        "columns_per_group": grid.columns_per_group,
        "workspace_per_group": group_bytes // element.real_bytes,
    }
    workspaces = {"workspace": group_bytes * groups}
    if wide.converts:
        # Sums wait there between blocks of k; with one block it stays unused.
        partials = problem.m * problem.n if problem.k > config.KC else 1
        workspaces["partial"] = sets * partials * wide.bytes
    launch = gemm_launch(product, config, traits, (groups,), values, {})
    return Schedule((launch,), workspaces)


def _whole_product(problem: GemmProblem, config: CpuConfig) -> CpuGrid:
    """A product that one work-item computes."""
    rows, columns = (
        math.ceil(extent / tile) * tile
        for extent, tile in ((problem.m, config.MR), (problem.n, config.NR))
    )
    return CpuGrid(1, rows, columns)
