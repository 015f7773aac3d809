"""The launches that compute a product, in order, as plain data: sizes, values and who is who.

Pure: from a `Product` and a configuration. `pyclgemm.plan` turns it into kernels on a queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .config import Config, CpuConfig, GemvConfig, MatrixConfig, XgemmConfig, XgemmDirectConfig
from .cpu_schedule import schedule_cpu
from .device import DeviceTraits
from .element import ElementType, operand_type
from .launch import Launch, Schedule, gemm_launch, stride_values
from .matrix_slab import packed_form, packed_operands
from .matrix_units import required_unit
from .operands import Matrix
from .pack_codegen import PackedForm, generate_pack
from .problem import GemmProblem
from .product import Product
from .share import divide, tile_count

#: Elements to which rows of operands are padded that matrix units read after packing.
_PACKED_WIDTH = 16

_PLAIN = PackedForm()

_NAMES: tuple[Literal["a", "b"], ...] = ("a", "b")


def oriented(product: Product, config: Config) -> Product:
    """Exchange rows and columns where the kernel family wants it: gemv takes few rows."""
    few_columns = product.problem.n < product.problem.m
    if isinstance(config, GemvConfig) and few_columns and product.problem.packed is None:
        return product.transposed
    return product


def make_schedule(product: Product, config: Config, traits: DeviceTraits) -> Schedule:
    """Lay out the launches of a product.

    Parameters
    ----------
    product : Product
        The product, `oriented` for the configuration; neither m nor n is zero.
    config : Config
        A valid configuration.
    traits : DeviceTraits
        The device.
    """
    if isinstance(config, GemvConfig):
        return _schedule_gemv(product, config, traits)
    if isinstance(config, XgemmConfig):
        return _schedule_indirect(product, config, traits)
    if isinstance(config, MatrixConfig):
        return _schedule_matrix(product, config, traits)
    if isinstance(config, CpuConfig):
        return schedule_cpu(product, config, traits)
    return _schedule_direct(product, config, traits)


@dataclass(frozen=True)
class _Shared:
    """The work-groups of a tiled kernel, and what they need to share tiles, if they do."""

    groups: int
    values: dict[str, int]
    workspaces: dict[str, int]


def _share(
    problem: GemmProblem, config: XgemmConfig | XgemmDirectConfig, traits: DeviceTraits
) -> _Shared:
    tiles = config.tiles
    count = tile_count(problem.m, problem.n, tiles.MWG, tiles.NWG)
    if not tiles.FILL:
        return _Shared(count, {}, {})
    slabs = max(1, math.ceil(problem.k / tiles.KWG))
    share = divide(count, slabs, tiles.FILL * traits.compute_units)
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    return _Shared(
        share.groups,
        {"rounds": share.rounds},
        {
            "partial_sums": share.slots * tiles.MWG * tiles.NWG * element.bytes,
            "counters": 4 * share.counters,
        },
    )


# --------------------------------------------------------------------------------------
# Direct
# --------------------------------------------------------------------------------------


def _schedule_direct(product: Product, config: XgemmDirectConfig, traits: DeviceTraits) -> Schedule:
    shared = _share(product.problem, config, traits)
    launch = gemm_launch(product, config, traits, (shared.groups,), shared.values, {})
    return Schedule((launch,), shared.workspaces)


# --------------------------------------------------------------------------------------
# Few rows
# --------------------------------------------------------------------------------------


def _schedule_gemv(product: Product, config: GemvConfig, traits: DeviceTraits) -> Schedule:
    strips = math.ceil(product.problem.n / (config.LANES_N * config.VW))
    # In one dimension: NVIDIA's limit of the second is 65535.
    groups = strips * math.ceil(product.problem.m / config.MR)
    return Schedule((gemm_launch(product, config, traits, (groups,), {}, {}),))


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
    role: str, destination: str, matrix: Matrix, name: Literal["a", "b"], dtype: str,
    padded: tuple[int, int], traits: DeviceTraits, form: PackedForm = _PLAIN,
) -> Launch:  # fmt: skip
    """The launch that packs `matrix`, in the role of `name`.

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
    form : PackedForm
        How it lies then.
    """
    positions, depth = (
        (matrix.rows, matrix.columns) if name == "a" else (matrix.columns, matrix.rows)
    )
    layout = matrix.layout
    source = generate_pack(layout, name, dtype, padded, traits, form)
    tile = source.local_size[0]
    values = {
        "positions": positions,
        "k": depth,
        "padded_positions": padded[0],
        "padded_k": padded[1],
        "destination_offset": 0,
        **stride_values("source", matrix, layout),
    }
    inner, outer = reversed(padded) if form.along_k else padded
    return Launch(
        source,
        (math.ceil(inner / tile), math.ceil(outer / tile)),
        values,
        {"source": role, "destination": destination},
        {"source_offset": role},
    )


@dataclass(frozen=True)
class _Packed:
    """The launches that pack operands, and how the kernel behind them finds what they wrote."""

    launches: tuple[Launch, ...]
    workspaces: dict[str, int]
    moved: dict[str, str]
    strides: dict[str, int]


def _pack(
    product: Product,
    sizes: dict[Literal["a", "b"], tuple[int, int]],
    traits: DeviceTraits,
    form: PackedForm = _PLAIN,
) -> _Packed:
    """Pack the operands in `sizes` to as many positions and depths."""
    problem = product.problem
    stored = ElementType(problem.dtype, problem.real_dtype).stored_bytes
    size = form.split.stored_bytes if form.split else stored
    launches: list[Launch] = []
    workspaces: dict[str, int] = {}
    strides: dict[str, int] = {}
    moved: dict[str, str] = {name: f"packed_{name}" for name in sizes}
    for name, padded in sizes.items():
        launches.append(
            pack_launch(
                name, moved[name], getattr(product, name), name, problem.dtype, padded, traits,
                form,
            )
        )  # fmt: skip
        inner, outer = reversed(padded) if form.along_k else padded
        leading_dimension = inner + form.padding
        workspaces[moved[name]] = size * form.parts * leading_dimension * outer
        stride = f"{name}_{form.layout(name).order}_stride"
        strides[stride] = leading_dimension
    return _Packed(tuple(launches), workspaces, moved, strides)


def _schedule_indirect(product: Product, config: XgemmConfig, traits: DeviceTraits) -> Schedule:
    problem = product.problem
    padded_k = max(1, math.ceil(problem.k / config.KWG)) * config.KWG
    sizes = {
        name: (math.ceil(extent / tile) * tile, padded_k)
        for name, extent, tile in zip(
            _NAMES, (problem.m, problem.n), (config.MWG, config.NWG), strict=True
        )
        if needs_packing(name, problem, config)
    }
    packed = _pack(product, sizes, traits, PackedForm(padding=config.PADLD))
    shared = _share(problem, config, traits)
    values = {
        "a_column_stride": product.a.column_stride,
        "b_row_stride": product.b.row_stride,
        **packed.strides,
        **shared.values,
    }
    gemm = gemm_launch(product, config, traits, (shared.groups,), values, packed.moved)
    return Schedule((*packed.launches, gemm), packed.workspaces | shared.workspaces)


# --------------------------------------------------------------------------------------
# Matrix units
# --------------------------------------------------------------------------------------


def _schedule_matrix(product: Product, config: MatrixConfig, traits: DeviceTraits) -> Schedule:
    """Operands whose rows cannot be copied by vectors are packed first."""
    problem = product.problem
    size = ElementType(problem.dtype, problem.real_dtype).stored_bytes
    unit = required_unit(problem.precision, traits)
    form = packed_form(unit)
    # Rows, along k or along the tile, are whole vectors of any type.
    padded_k = math.ceil(max(1, problem.k) / _PACKED_WIDTH) * _PACKED_WIDTH
    sizes = {
        name: (
            math.ceil(extent / _PACKED_WIDTH) * _PACKED_WIDTH,
            padded_k if form.along_k else max(1, problem.k),
        )
        for name, extent in zip(_NAMES, (problem.m, problem.n), strict=True)
        if name in packed_operands(problem, size, unit)
    }
    packed = _pack(product, sizes, traits, form)
    groups = tile_count(problem.m, problem.n, config.MWG, config.NWG)
    gemm = gemm_launch(product, config, traits, (groups,), packed.strides, packed.moved)
    return Schedule((*packed.launches, gemm), packed.workspaces)
