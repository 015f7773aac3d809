"""What the template of the warpgroup units needs: who copies what, registers, how results leave."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...codegen.kernel import approximation, gemm_parts
from ...codegen.launch import Schedule, gemm_launch
from ...codegen.pack import PackedForm, pack_operands
from ...codegen.source import Argument, KernelSource, share_arguments
from ...codegen.stream_k import Sharing, divide, sharing, tile_count
from ...device.ptx import MARK
from ...device.traits import DeviceTraits
from ...problem.matrix import Matrix
from ...problem.precision import PRODUCTS
from ...problem.problem import OPERANDS, GemmProblem, MatrixLayout
from ...problem.product import Product
from .config import WgmmaConfig
from .results import staging_of, wgmma_results
from .slab import as_boxes, boxed_form, lane_copies, slab_depth, wgmma_operands
from .unit import ROW_BYTES, WARPGROUP, WORDS, WgmmaUnit, required_wgmma_unit

#: The architecture that has the instructions.
TARGET = "sm_90a"

#: Registers of a work-item that copies and of one that multiplies, by the number of warpgroups that
#: do; together they are those of the work-group (CUTLASS 3 divides them so).
_REGISTERS = {2: (40, 232), 3: (32, 160)}

#: The same where lanes copy, which hold more addresses than what starts bulk copies: with the
#: registers above, ptxas spilled up to 72 bytes of theirs in batches and shared tiles.
_REGISTERS_OF_LANES = {2: (56, 224), 3: (56, 152)}

#: Maps of a work-group: of A, of B, of the result, of C.
_MAPS = 4


def local_bytes(config: WgmmaConfig, result_bytes: int) -> int:
    """Bytes of local memory of a work-group, with results of so many bytes staged."""
    staged = staging_of(config, result_bytes).bytes
    slabs = config.STAGES * (config.MWG + config.NWG) * ROW_BYTES
    barriers = 2 * 8 * config.STAGES
    arrivals = 8 if config.FILL else 0
    return slabs + staged + barriers + arrivals


def registers(config: WgmmaConfig) -> tuple[int, int] | None:
    """Registers of a work-item that copies and of one that multiplies; None for even shares."""
    return (_REGISTERS if config.TMA else _REGISTERS_OF_LANES).get(config.CONSUMERS)


def slab_count(problem: GemmProblem, unit: WgmmaUnit) -> int:
    """Slabs of a tile, of all products of parts; of none there is one."""
    return max(1, problem.precision.terms * math.ceil(problem.k / slab_depth(unit)))


def work_items(config: WgmmaConfig) -> int:
    """Work-items of a group."""
    return WARPGROUP * (1 + config.CONSUMERS)


def generate_wgmma(problem: GemmProblem, config: WgmmaConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product by warpgroup units.

    Parameters
    ----------
    problem : GemmProblem
        The product, its operands as the caller has them.
    config : WgmmaConfig
        A valid configuration.
    traits : DeviceTraits
        The device.

    Raises
    ------
    UnsupportedError
        If the device has no such unit.
    """
    unit = required_wgmma_unit(problem.precision, traits)
    whole = (problem.a, problem.b)
    terms = problem.precision.terms
    packed = tuple(name for name in OPERANDS if boxed_form(name, problem, unit))
    problem = as_boxes(problem, unit)
    parts = gemm_parts(problem, config, traits, whole).reading(unit.stored)
    results = wgmma_results(problem, parts.wide, config)
    operands = wgmma_operands(problem, config, unit)
    if terms > 1:
        parts = parts.reading_whole()
    if config.TMA:
        parts = parts.adding(Argument("maps", "output", "ulong"))
    if config.FILL:
        parts = parts.adding(*share_arguments(parts.element.vector(1)))
    return parts.source(
        "gemm_wgmma",
        "wgmma/wgmma.cl.mako",
        work_items(config),
        (traits.fence_options or "") if config.FILL else "",
        TARGET,
        tiles=config,
        operands=operands,
        lanes=tuple(lane_copies(operand, problem, unit, packed) for operand in operands),
        results=results,
        staging=results.staging,
        approximation=approximation(problem.activation, parts.wide.stored_bytes),
        a_in_registers=problem.a.order == "column" and unit.a_through_registers,
        terms=terms,
        whole=whole,
        whole_steps=(
            "whole_a_column_stride" if whole[0].order != "row" else "1",
            "whole_b_row_stride" if whole[1].order != "column" else "1",
        ),
        a_parts=_encoded(pair[0] for pair in PRODUCTS[terms]),
        b_parts=_encoded(pair[1] for pair in PRODUCTS[terms]),
        slab_depth=slab_depth(unit),
        accumulators=config.NWG // 2,
        instruction=unit.instruction(config.NWG),
        modifiers=unit.modifiers(*(not operand.along_k for operand in operands)),
        constraint=unit.constraint,
        held="totals" if config.PROMOTE else "accumulators",
        warpgroup=WARPGROUP,
        registers=registers(config),
        map_count=batch_maps(config) if parts.batched else _MAPS,
        map_words=WORDS,
        mark=MARK,
        sharing=_sharing(problem, config, unit, traits) if config.FILL else None,
    )


def _sharing(
    problem: GemmProblem, config: WgmmaConfig, unit: WgmmaUnit, traits: DeviceTraits
) -> Sharing:
    sums = config.MWG // config.CONSUMERS * config.NWG // WARPGROUP
    return sharing(slab_count(problem, unit), config.FILL * traits.compute_units, sums)


def batch_maps(config: WgmmaConfig) -> int:
    """Maps of a work-group where products of a batch have maps of their own, in turn."""
    return 2 * (config.STAGES + 1) + config.CONSUMERS


def map_bytes(groups: int, config: WgmmaConfig, *, batched: bool) -> int:
    """Bytes of the maps of so many work-groups."""
    return groups * (batch_maps(config) if batched else _MAPS) * WORDS * 8


def _encoded(parts: Any) -> int:
    """Numbers of parts, 4 bits each, the first in the lowest."""
    return sum(part << 4 * place for place, part in enumerate(parts))


# --------------------------------------------------------------------------------------
# The launches of a product by warpgroup units.
# --------------------------------------------------------------------------------------

#: Elements of which packed rows are multiples: 16 bytes of any type.
_ROW_ELEMENTS = 16

#: Bytes of a sum.
_SUM_BYTES = 4


def schedule_wgmma(product: Product, config: WgmmaConfig, traits: DeviceTraits) -> Schedule:
    """Lay out the launches of a product by warpgroup units.

    Operands that no tensor map describes, or that are split into parts, are packed first.

    Parameters
    ----------
    product : Product
        The product.
    config : WgmmaConfig
        A valid configuration.
    traits : DeviceTraits
        The device.
    """
    product = with_describable_rows(product)
    problem = product.problem
    if problem.k == 0:
        config = replace(config, FILL=0)  # there is nothing to share
    unit = required_wgmma_unit(problem.precision, traits)
    forms = {name: boxed_form(name, problem, unit) for name in OPERANDS}
    padded_k = math.ceil(max(1, problem.k) / _ROW_ELEMENTS) * _ROW_ELEMENTS
    positions = {"a": problem.m, "b": problem.n}
    packed = pack_operands(
        product,
        {name: (positions[name], padded_k) for name in OPERANDS if forms[name]},
        traits,
        forms["a"] or forms["b"] or PackedForm(),
    )
    tiles = tile_count(problem.m, problem.n, config.MWG, config.NWG) * problem.products
    groups = min(tiles, traits.compute_units)
    values = dict(packed.strides)
    workspaces = dict(packed.workspaces)
    if config.FILL:
        share = divide(tiles, slab_count(problem, unit), config.FILL * traits.compute_units)
        groups = share.groups
        values["rounds"] = share.rounds
        workspaces["partial_sums"] = share.slots * config.MWG * config.NWG * _SUM_BYTES
        workspaces["counters"] = 4 * share.counters
    if config.TMA:
        workspaces["maps"] = map_bytes(groups, config, batched=problem.batch is not None)
    source = generate_wgmma(problem, config, traits)
    gemm = gemm_launch(product, source, (groups,), values, packed.moved)
    return Schedule((*packed.launches, gemm), workspaces)


def oriented_wgmma(product: Product) -> Product:
    """Exchange rows and columns where only A may run along the tile: it goes through registers."""
    problem = product.problem
    direct = problem.precision.multiplied == "tf32" and problem.precision.terms == 1
    if direct and problem.a.order == "row" and problem.b.order == "row":
        return product.transposed
    return product


def with_describable_rows(product: Product) -> Product:
    """State rows that run backwards or coincide as unaligned: no tensor map describes them.

    The distance of rows of which there is one may be anything; it is made one that a map takes.
    """
    (a, of_a), (b, of_b), (out, of_out) = (
        _describable(matrix) for matrix in (product.a, product.b, product.out)
    )
    c, of_c = _describable(product.c) if product.c else (None, None)
    problem = replace(product.problem, a=of_a, b=of_b, out=of_out, c=of_c)
    return replace(product, a=a, b=b, out=out, c=c, problem=problem)


def _describable(matrix: Matrix) -> tuple[Matrix, MatrixLayout]:
    layout = matrix.layout
    if layout.order == "row":
        rows, distance = matrix.rows, matrix.row_stride
        single = replace(matrix, row_stride=_whole_rows(matrix.columns))
    elif layout.order == "column":
        rows, distance = matrix.columns, matrix.column_stride
        single = replace(matrix, column_stride=_whole_rows(matrix.rows))
    else:
        return matrix, layout
    if rows <= 1:
        return single, layout
    return matrix, layout if distance > 0 else replace(layout, alignment=1)


def _whole_rows(elements: int) -> int:
    return math.ceil(max(1, elements) / _ROW_ELEMENTS) * _ROW_ELEMENTS
