"""The CPU family's kernel: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ..codegen.config import Config
from ..codegen.element import epilogue_type, operand_type, stored_bytes
from ..codegen.kernel import GemmParts, gemm_parts
from ..codegen.launch import Schedule, gemm_launch
from ..codegen.source import Argument, KernelSource
from ..device.traits import DeviceTraits
from ..problem.problem import GemmProblem
from ..problem.product import Product
from .small import is_small_batch


@dataclass(frozen=True)
class CpuConfig(Config):
    """CPU devices: one work-item a core, explicit vectors, operands packed by the item.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Columns of the register tile, in elements.
    KC : int
        Depth of a block of k; a packed panel of B is KC x NR.
    VW : int
        Vector width in elements; `NR` is a multiple of it. A complex element counts once
        and takes two components.
    MC : int
        Rows of A that are packed at a time, about: blocks are equally long. B is packed
        once for each, and A should stay in the second-level cache.
    PACKB : int
        0 reads B where it lies, unless it must be conjugated: few rows are too few to pay
        packing for. A column-major B is multiplied by dot products along k, in each of which
        the vectors of a whole block of `KC` are summed.
    PREFETCHB : int
        1 fetches the next panel of B, before it is packed, while this one is multiplied.
    PREFETCHC : int
        1 fetches a tile of the result while its sums are formed.
    """

    MR: int
    NR: int
    KC: int
    VW: int
    MC: int = 512
    PACKB: int = 1
    PREFETCHB: int = 1
    PREFETCHC: int = 1

    family: ClassVar[str] = "cpu"


# --------------------------------------------------------------------------------------


def reads_b_in_place(problem: GemmProblem, config: CpuConfig) -> bool:
    """Whether the kernel multiplies by B where it lies, instead of by panels of it."""
    return not (problem.packed or config.PACKB or problem.b.conjugate)


def generate_cpu(parts: GemmParts, config: CpuConfig) -> KernelSource:
    """Write the kernel that computes a product on a CPU.

    Parameters
    ----------
    parts : GemmParts
        What all kernels have.
    config : CpuConfig
        A valid configuration.
    """
    if parts.traits.type != "cpu":
        # Hints, which a compiler for separate address spaces refuses.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
    parts = parts.adding(
        Argument("rows_per_group", parts.position_type),
        Argument("rows_per_block", parts.position_type),
        Argument("columns_per_group", parts.position_type),
        Argument("workspace", "output", parts.element.real),
        Argument("workspace_per_group", "long"),
    )
    if parts.wide.converts:
        parts = parts.adding(Argument("partial", "output", parts.wide.real))
    return parts.source(
        "gemm_cpu", "cpu/gemm.cl.mako", 1,
        cpu=config, in_place=reads_b_in_place(parts.problem, config),
    )  # fmt: skip


# --------------------------------------------------------------------------------------
# How a product is divided among the cores of a CPU device, and its launch.
# --------------------------------------------------------------------------------------

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
    source = generate_cpu(gemm_parts(problem, config, traits), config)
    launch = gemm_launch(product, source, (groups,), values, {})
    return Schedule((launch,), workspaces)


def _whole_product(problem: GemmProblem, config: CpuConfig) -> CpuGrid:
    """A product that one work-item computes."""
    rows, columns = (
        math.ceil(extent / tile) * tile
        for extent, tile in ((problem.m, config.MR), (problem.n, config.NR))
    )
    return CpuGrid(1, rows, columns)


# --------------------------------------------------------------------------------------
# Which way round a CPU computes a product. Pure.
#
# The tiles of the CPU family are a few rows high and whole vectors wide: a result of few columns
# leaves most of each vector empty. Its transpose has few rows, C^T = B^T A^T, and A is read once,
# where it lies. Records of the database, too, are for what is computed.
# --------------------------------------------------------------------------------------

#: Bytes of a row up to which a result is narrow. With vectors of 64 bytes (float32, m = 2000,
#: k = 500) results of 16 columns ran 2.2 to 3.9 times as fast transposed, of 32 columns 1.4 to
#: 2.1 times, of 40 columns 1.1 to 2.2 times, of 128 columns 0.8 to 0.9 times; with vectors of 32
#: bytes, and A column-major, of 8 to 32 columns 1.2 to 2.1 times.
_NARROW_BYTES = 160
#: Bytes of the vectors of which a tile of C is so wide that half of it is narrow in any case.
#: Beneath, where rows of A lie along k, one vector is: 1.5 times with 8 columns, 0.8 with 16.
_LONG_VECTOR = 64
#: Times as many rows: with 60 rows and 30 columns it took twice as long.
_TALLER = 8
#: Columns for each of k, at most: results are stored one by one, which weighs on short sums. With
#: 32 columns it was 0.9 times as fast at k = 8 and 1.1 at 16, with 8 columns 1.7 times at k = 4.
_COLUMNS_PER_DEPTH = 3


def is_transposed_on(problem: GemmProblem, traits: DeviceTraits) -> bool:
    """Whether a device exchanges rows and columns of a product before it chooses a kernel.

    Parameters
    ----------
    problem : GemmProblem
        The product; with a packed B it is left as it is.
    traits : DeviceTraits
        The device: no GPU does.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.device.traits import typical_traits
    >>> shapes = GemmShape(2000, 8, 500), GemmShape(2000, 64, 500), GemmShape(2000, 8, 2)
    >>> cpu = typical_traits("x86-64-v4")
    >>> [is_transposed_on(shape.problem("float32"), cpu) for shape in shapes]
    [True, False, False]
    """
    m, n, k = problem.m, problem.n, problem.k
    if traits.type != "cpu" or problem.packed or is_small_batch(problem):
        return False  # small products have kernels of their own, for any proportions
    if not n or m < _TALLER * n or n > _COLUMNS_PER_DEPTH * k:
        return False
    any_order = traits.vector_bytes >= _LONG_VECTOR or problem.a.order != "row"
    narrow = _NARROW_BYTES if any_order else traits.vector_bytes
    return n * stored_bytes(problem.dtype) <= narrow


def problem_on(problem: GemmProblem, traits: DeviceTraits) -> GemmProblem:
    """The product as a device computes it, for which records are looked up and kept."""
    return problem.transposed if is_transposed_on(problem, traits) else problem


def product_on(product: Product, traits: DeviceTraits) -> Product:
    """The same with its matrices."""
    return product.transposed if is_transposed_on(product.problem, traits) else product
