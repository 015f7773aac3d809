"""The launches that compute a product, in order, as plain data: sizes, values and who is who.

Pure: from a `Product` and a configuration. `pyclgemm.plan` turns it into kernels on a queue.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field

from .codegen import generate_gemm
from .config import Config, CpuConfig, XgemmConfig, XgemmDirectConfig
from .device import DeviceTraits
from .element import ElementType, epilogue_type, operand_type
from .kernel_source import KernelSource
from .operands import Matrix
from .pack_codegen import generate_pack
from .problem import GemmProblem, MatrixLayout
from .product import Product

#: Bytes to which parts of a workspace are aligned: the widest vector of OpenCL C.
_ALIGNMENT = 128

#: Most rows of A that a CPU's work-item holds packed: packing B costs a thousandth of the work.
_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    source : KernelSource
        The kernel.
    groups : tuple of int
        Work-groups along each dimension.
    values : mapping of str to int
        Arguments that are known now.
    buffers : mapping of str to str
        For each pointer argument the role of the buffer: "a", "b", "c", "out", "bias" of
        the product, or the name of a workspace.
    offsets : mapping of str to str
        For each argument that is known only with the arrays, the role whose offset it is.
    """

    source: KernelSource
    groups: tuple[int, ...]
    values: Mapping[str, int]
    buffers: Mapping[str, str]
    offsets: Mapping[str, str]

    @property
    def global_size(self) -> tuple[int, ...]:
        """Work-items along each dimension."""
        return tuple(map(operator.mul, self.groups, self.source.local_size))


@dataclass(frozen=True)
class Schedule:
    """Launches in order, and the bytes of each workspace that they share."""

    launches: tuple[Launch, ...]
    workspaces: Mapping[str, int] = field(default_factory=dict)


def make_schedule(product: Product, config: Config, traits: DeviceTraits) -> Schedule:
    """Lay out the launches of a product.

    Parameters
    ----------
    product : Product
        The product; neither m nor n is zero.
    config : XgemmConfig, XgemmDirectConfig or CpuConfig
        A valid configuration.
    traits : DeviceTraits
        The device.
    """
    if isinstance(config, XgemmConfig):
        return _schedule_indirect(product, config, traits)
    if isinstance(config, CpuConfig):
        return _schedule_cpu(product, config, traits)
    return _schedule_direct(product, config, traits)


def _stride_values(name: str, matrix: Matrix, layout: MatrixLayout) -> dict[str, int]:
    both = {f"{name}_row_stride": matrix.row_stride, f"{name}_column_stride": matrix.column_stride}
    if layout.order == "strided":
        return both
    wanted = f"{name}_{layout.order}_stride"
    return {wanted: both[wanted]}


def _gemm_launch(
    product: Product,
    config: Config,
    traits: DeviceTraits,
    groups: int,
    values: Mapping[str, int],
    moved: Mapping[str, str],
) -> Launch:
    """The launch that computes; `moved` tells which roles were packed into which workspace."""
    problem = product.problem
    source = generate_gemm(problem, config, traits)
    known: dict[str, int] = {"m": problem.m, "n": problem.n, "k": problem.k}
    buffers: dict[str, str] = {}
    offsets: dict[str, str] = {}
    for role in ("a", "b", "out", "c", "bias"):
        matrix = getattr(product, role, None)
        if isinstance(matrix, Matrix):
            known.update(_stride_values(role, matrix, getattr(problem, role)))
        buffers[role] = moved.get(role, role)
        if role in moved:
            known[f"{role}_offset"] = 0
        else:
            offsets[f"{role}_offset"] = role
    known["bias_stride"] = product.bias_stride
    known.update(values)
    names = {argument.name for argument in source.arguments}
    buffers.update({name: name for name in ("workspace", "partial")})
    return Launch(
        source,
        (groups,),
        {name: value for name, value in known.items() if name in names},
        {name: role for name, role in buffers.items() if name in names},
        {name: role for name, role in offsets.items() if name in names},
    )


# --------------------------------------------------------------------------------------
# Direct
# --------------------------------------------------------------------------------------


def _schedule_direct(product: Product, config: XgemmDirectConfig, traits: DeviceTraits) -> Schedule:
    problem = product.problem
    groups = math.ceil(problem.m / config.WGD) * math.ceil(problem.n / config.WGD)
    return Schedule((_gemm_launch(product, config, traits, groups, {}, {}),))


# --------------------------------------------------------------------------------------
# Indirect
# --------------------------------------------------------------------------------------


def needs_packing(name: str, problem: GemmProblem, config: XgemmConfig) -> bool:
    """Whether an operand must be packed before the indirect kernel can read it.

    Not if it is k-major already, with whole tiles and slabs and vectors in place. A matrix
    that `pyclgemm.pack` padded counts with its padding.
    """
    if name == "a":
        layout, extent, tile, width = problem.a, problem.m, config.MWG, config.VWM
        fits = layout.order == "column" and extent % tile == 0 and problem.k % config.KWG == 0
    else:
        layout, extent, tile, width = problem.b, problem.n, config.NWG, config.VWN
        depth = problem.k
        if problem.packed:
            extent, depth = problem.packed.width, problem.packed.depth_block
        fits = layout.order == "row" and extent % tile == 0 and depth % config.KWG == 0
    # The kernel reads one slab before it looks at k.
    return not (fits and layout.alignment >= width and not layout.conjugate and problem.k > 0)


def pack_launch(
    role: str, destination: str, matrix: Matrix, name: str, dtype: str,
    padded: tuple[int, int], traits: DeviceTraits,
) -> Launch:  # fmt: skip
    """The launch that packs `matrix`, in the role of `name` ("a" or "b"), k-major and padded.

    Parameters
    ----------
    role, destination : str
        Roles of the buffers that are read and written.
    matrix : Matrix
        The operand.
    name : "a" or "b"
        Whether its rows (a) or its columns (b) are the positions along the tile.
    dtype : str
        NumPy name of its element type.
    padded : tuple of int
        Positions and depth after padding, in elements.
    traits : DeviceTraits
        The device.
    """
    positions, depth = (
        (matrix.rows, matrix.columns) if name == "a" else (matrix.columns, matrix.rows)
    )
    layout = matrix.layout
    source = generate_pack(layout, "a" if name == "a" else "b", dtype, padded, traits)
    tile = source.local_size[0]
    values = {
        "positions": positions,
        "k": depth,
        "padded_positions": padded[0],
        "padded_k": padded[1],
        "destination_offset": 0,
        **_stride_values("source", matrix, layout),
    }
    return Launch(
        source,
        (math.ceil(padded[0] / tile), math.ceil(padded[1] / tile)),
        values,
        {"source": role, "destination": destination},
        {"source_offset": role},
    )


def _schedule_indirect(product: Product, config: XgemmConfig, traits: DeviceTraits) -> Schedule:
    problem = product.problem
    size = ElementType(problem.dtype, problem.real_dtype).stored_bytes
    padded_k = max(1, math.ceil(problem.k / config.KWG)) * config.KWG
    launches: list[Launch] = []
    workspaces: dict[str, int] = {}
    moved: dict[str, str] = {}
    strides: dict[str, int] = {
        "a_column_stride": product.a.column_stride,
        "b_row_stride": product.b.row_stride,
    }
    for name, extent, tile in (("a", problem.m, config.MWG), ("b", problem.n, config.NWG)):
        if not needs_packing(name, problem, config):
            continue
        padded = (math.ceil(extent / tile) * tile, padded_k)
        workspace = f"packed_{name}"
        launches.append(
            pack_launch(
                name, workspace, getattr(product, name), name, problem.dtype, padded, traits
            )
        )
        workspaces[workspace] = size * padded[0] * padded[1]
        moved[name] = workspace
        strides["a_column_stride" if name == "a" else "b_row_stride"] = padded[0]
    groups = math.ceil(problem.m / config.MWG) * math.ceil(problem.n / config.NWG)
    launches.append(_gemm_launch(product, config, traits, groups, strides, moved))
    return Schedule(tuple(launches), workspaces)


# --------------------------------------------------------------------------------------
# CPU
# --------------------------------------------------------------------------------------


#: Work-items for each core. Runtimes hand them out one by one: a core that wakes late, or is
#: taken away for a while, then costs a part of its share and not all of it.
_BLOCKS_PER_CORE = 2

#: Multiply-adds (16 or 32 are done at once) in the time that packing an element takes.
_PACKING_COST = 16


@dataclass(frozen=True)
class CpuGrid:
    """How the result is divided among cores: blocks of rows and of columns."""

    groups: int
    rows_per_group: int
    columns_per_group: int


def cpu_grid(m: int, n: int, items: int, config: CpuConfig) -> CpuGrid:
    """Divide an m x n result among at most `items` work-items.

    The largest block decides how long the product takes: its multiply-adds, and the packing
    of the rows of A and the columns of B that it needs.

    Examples
    --------
    >>> cpu_grid(1024, 1024, 4, CpuConfig(MR=6, NR=64, KC=512, VW=16))
    CpuGrid(groups=4, rows_per_group=516, columns_per_group=512)
    """
    tiles_m, tiles_n = math.ceil(m / config.MR), math.ceil(n / config.NR)

    def cost(split: tuple[int, int]) -> int:
        rows = math.ceil(tiles_m / split[0]) * config.MR
        columns = math.ceil(tiles_n / split[1]) * config.NR
        return rows * columns + _PACKING_COST * (rows + columns)

    splits = [(by_m, min(items // by_m, tiles_n)) for by_m in range(1, min(items, tiles_m) + 1)]
    by_m, by_n = min(splits, key=cost)
    rows = math.ceil(tiles_m / by_m) * config.MR
    columns = math.ceil(tiles_n / by_n) * config.NR
    return CpuGrid(math.ceil(m / rows) * math.ceil(n / columns), rows, columns)


def _schedule_cpu(product: Product, config: CpuConfig, traits: DeviceTraits) -> Schedule:
    problem = product.problem
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    wide = epilogue_type(problem.dtype, problem.precision.arithmetic)
    grid = cpu_grid(problem.m, problem.n, _BLOCKS_PER_CORE * traits.compute_units, config)
    # A tall A goes through the workspace block by block; B is then packed once a block.
    rows_per_block = min(grid.rows_per_group, math.ceil(_BLOCK_ROWS / config.MR) * config.MR)
    elements = config.KC * (rows_per_block + (0 if problem.packed else config.NR))
    group_bytes = math.ceil(elements * element.bytes / _ALIGNMENT) * _ALIGNMENT
    values = {
        "rows_per_group": grid.rows_per_group,
        "rows_per_block": rows_per_block,
        "columns_per_group": grid.columns_per_group,
        "workspace_per_group": group_bytes // element.real_bytes,
    }
    workspaces = {"workspace": group_bytes * grid.groups}
    if wide.converts:
        # Sums wait there between blocks of k; with one block it stays unused.
        partials = problem.m * problem.n if problem.k > config.KC else 1
        workspaces["partial"] = partials * wide.bytes
    launch = _gemm_launch(product, config, traits, grid.groups, values, {})
    return Schedule((launch,), workspaces)
