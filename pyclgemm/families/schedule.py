"""The launches that compute a product, in order, as plain data: sizes, values and who is who.

Pure: from a `Product` and a configuration. `pyclgemm.plan` turns it into kernels on a queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..codegen.config import Config
from ..codegen.element import operand_type
from ..codegen.launch import Schedule, gemm_launch
from ..codegen.matrix_units import required_unit
from ..codegen.pack import PackedForm, pack_operands
from ..codegen.stream_k import divide, slab_count, tile_count
from ..device.traits import DeviceTraits
from ..problem.problem import OPERANDS, GemmProblem
from ..problem.product import Product
from .cpu import CpuConfig, product_on, schedule_cpu
from .gemv import GEMV_FAMILIES, GemvConfig, GemvUnitConfig
from .generate import generate_gemm
from .mma.config import MatrixConfig
from .mma.slab import packed_form, packed_operands
from .small import SmallConfig, SmallCpuConfig, small_tiling
from .tiled.config import XgemmConfig, XgemmDirectConfig
from .wgmma.codegen import oriented_wgmma, schedule_wgmma
from .wgmma.config import WgmmaConfig

#: Elements to which rows of operands are padded that matrix units read after packing.
_PACKED_WIDTH = 16

#: Parts of a batch for each core of a CPU: one that is late costs a part of its share.
_PARTS_PER_CORE = 4


def oriented(product: Product, config: Config, traits: DeviceTraits) -> Product:
    """Exchange rows and columns where the kernel family, or a CPU, wants it."""
    if isinstance(config, WgmmaConfig):
        return oriented_wgmma(product)
    if isinstance(config, CpuConfig):
        return product_on(product, traits)
    few_columns = product.problem.n < product.problem.m
    if config.family in GEMV_FAMILIES and few_columns and product.problem.packed is None:
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
    if isinstance(config, (GemvConfig, GemvUnitConfig)):
        return _schedule_gemv(product, config, traits)
    if isinstance(config, XgemmConfig):
        return _schedule_indirect(product, config, traits)
    if isinstance(config, MatrixConfig):
        return _schedule_matrix(product, config, traits)
    if isinstance(config, WgmmaConfig):
        return schedule_wgmma(product, config, traits)
    if isinstance(config, SmallConfig):
        return _schedule_small(product, config, traits)
    if isinstance(config, SmallCpuConfig):
        return _schedule_small_cpu(product, config, traits)
    if isinstance(config, CpuConfig):
        return schedule_cpu(product, config, traits)
    assert isinstance(config, XgemmDirectConfig)
    return _schedule_direct(product, config, traits)


@dataclass(frozen=True)
class _Shared:
    """The work-groups of a tiled kernel, and what they need to share tiles, if they do."""

    groups: int
    values: dict[str, int]
    workspaces: dict[str, int]


def _share(
    problem: GemmProblem, tiles: XgemmConfig | MatrixConfig, traits: DeviceTraits
) -> _Shared:
    count = tile_count(problem.m, problem.n, tiles.MWG, tiles.NWG) * problem.products
    if not tiles.FILL:
        return _Shared(count, {}, {})
    share = divide(count, slab_count(problem.k, tiles.KWG), tiles.FILL * traits.compute_units)
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
    shared = _share(product.problem, config.tiles, traits)
    source = generate_gemm(product.problem, config, traits)
    launch = gemm_launch(product, source, (shared.groups,), shared.values, {})
    return Schedule((launch,), shared.workspaces)


# --------------------------------------------------------------------------------------
# Few rows
# --------------------------------------------------------------------------------------


def _schedule_gemv(
    product: Product, config: GemvConfig | GemvUnitConfig, traits: DeviceTraits
) -> Schedule:
    strips = math.ceil(product.problem.n / config.columns)
    # In one dimension: NVIDIA's limit of the second is 65535.
    groups = strips * math.ceil(product.problem.m / config.MR) * product.problem.products
    return Schedule(
        (gemm_launch(product, generate_gemm(product.problem, config, traits), (groups,), {}, {}),)
    )


# --------------------------------------------------------------------------------------
# Batches of small products
# --------------------------------------------------------------------------------------


def _schedule_small(product: Product, config: SmallConfig, traits: DeviceTraits) -> Schedule:
    problem = product.problem
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    groups = math.ceil(problem.products / small_tiling(problem, config, element).products)
    return Schedule(
        (gemm_launch(product, generate_gemm(product.problem, config, traits), (groups,), {}, {}),)
    )


def _schedule_small_cpu(product: Product, config: SmallCpuConfig, traits: DeviceTraits) -> Schedule:
    groups = min(product.problem.products, _PARTS_PER_CORE * traits.compute_units)
    return Schedule(
        (gemm_launch(product, generate_gemm(product.problem, config, traits), (groups,), {}, {}),)
    )


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
    # The kernel reads one slab before it looks at k, and finds the matrices of a batch by a stride.
    fits = fits and problem.k > 0 and not layout.scattered
    return not (fits and layout.alignment >= width and not layout.conjugate)


def _schedule_indirect(product: Product, config: XgemmConfig, traits: DeviceTraits) -> Schedule:
    problem = product.problem
    padded_k = slab_count(problem.k, config.KWG) * config.KWG
    sizes = {
        name: (math.ceil(extent / tile) * tile, padded_k)
        for name, extent, tile in zip(
            OPERANDS, (problem.m, problem.n), (config.MWG, config.NWG), strict=True
        )
        if needs_packing(name, problem, config)
    }
    packed = pack_operands(product, sizes, traits, PackedForm(padding=config.PADLD))
    shared = _share(problem, config.tiles, traits)
    values = {
        "a_column_stride": product.a.column_stride,
        "b_row_stride": product.b.row_stride,
        **packed.strides,
        **shared.values,
    }
    source = generate_gemm(problem, config, traits)
    gemm = gemm_launch(product, source, (shared.groups,), values, packed.moved)
    return Schedule((*packed.launches, gemm), packed.workspaces | shared.workspaces)


# --------------------------------------------------------------------------------------
# Matrix units
# --------------------------------------------------------------------------------------


def _schedule_matrix(product: Product, config: MatrixConfig, traits: DeviceTraits) -> Schedule:
    """Operands whose rows the kernel cannot copy are packed first."""
    problem = product.problem
    unit = required_unit(problem.precision, traits)
    form = packed_form(problem, unit)

    def padded(extent: int) -> int:
        """Rows are whole vectors of any type."""
        return math.ceil(max(1, extent) / _PACKED_WIDTH) * _PACKED_WIDTH

    sizes = {
        name: ((extent, padded(problem.k)) if form.along_k else (padded(extent), max(1, problem.k)))
        for name, extent in zip(OPERANDS, (problem.m, problem.n), strict=True)
        if name in packed_operands(problem, config, unit)
    }
    packed = pack_operands(product, sizes, traits, form)
    shared = _share(problem, config, traits)
    values = packed.strides | shared.values
    source = generate_gemm(problem, config, traits)
    gemm = gemm_launch(product, source, (shared.groups,), values, packed.moved)
    return Schedule((*packed.launches, gemm), packed.workspaces | shared.workspaces)
