"""What the template of the warpgroup units needs: who copies what, registers, how results leave."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...codegen.kernel import approximation, gemm_parts
from ...codegen.pack import with_packed
from ...codegen.source import Argument, KernelSource, stream_k_arguments
from ...codegen.stream_k import PartialSums, stream_k
from ...device.ptx import MARK
from ...device.traits import DeviceTraits
from ...problem.precision import PRODUCTS
from ...problem.problem import GemmProblem
from .config import WgmmaConfig
from .results import staging_of, wgmma_results
from .slab import boxed_forms, lane_copies, slab_depth, wgmma_operands
from .unit import ROW_BYTES, WARPGROUP, WORDS, WgmmaUnit, required_wgmma_unit

#: The architecture that has the instructions.
TARGET = "sm_90a"

#: Registers of a work-item that copies and of one that multiplies, by the number of warpgroups that
#: do; together they are those of the work-group (CUTLASS 3 divides them so).
_REGISTERS = {2: (40, 232), 3: (32, 160)}

#: The same where lanes copy, which hold more addresses than what starts bulk copies: with the
#: registers above, ptxas spilled up to 72 bytes of theirs in batches and with Stream-K.
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
    """Registers of a work-item that copies, and of one that multiplies; None if they are equal."""
    return (_REGISTERS if config.TMA else _REGISTERS_OF_LANES).get(config.CONSUMERS)


def slab_count(problem: GemmProblem, unit: WgmmaUnit) -> int:
    """Slabs of a tile, for all products of split terms; at least one."""
    return max(1, problem.precision.terms * math.ceil(problem.k / slab_depth(unit)))


def work_items(config: WgmmaConfig) -> int:
    """Work-items of a group."""
    return WARPGROUP * (1 + config.CONSUMERS)


def generate_wgmma(problem: GemmProblem, config: WgmmaConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product by warpgroup units."""
    unit = required_wgmma_unit(problem.precision, traits)
    whole = (problem.a, problem.b)
    terms = problem.precision.terms
    packed = boxed_forms(problem, unit)
    problem = with_packed(problem, packed)
    parts = gemm_parts(problem, config, traits, whole).reading(unit.stored)
    results = wgmma_results(problem, parts.wide, config)
    operands = wgmma_operands(problem, config, unit)
    if terms > 1:
        parts = parts.reading_whole()
    if config.TMA:
        parts = parts.adding(Argument("maps", "output", "ulong"))
    if config.FILL:
        parts = parts.adding(*stream_k_arguments(parts.element.vector(1)))
    held = "totals" if config.PROMOTE else "accumulators"
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
        a_terms=_encoded(pair[0] for pair in PRODUCTS[terms]),
        b_terms=_encoded(pair[1] for pair in PRODUCTS[terms]),
        slab_depth=slab_depth(unit),
        accumulators=config.NWG // 2,
        instruction=unit.instruction(config.NWG),
        modifiers=unit.modifiers(*(not operand.along_k for operand in operands)),
        constraint=unit.constraint,
        held=held,
        partial=_partial_sums(config, held),
        warpgroup=WARPGROUP,
        registers=registers(config),
        map_count=batch_maps(config) if parts.batched else _MAPS,
        map_words=WORDS,
        mark=MARK,
        split_k=stream_k(
            slab_count(problem, unit),
            config.FILL * traits.compute_units,
            config.MWG // config.CONSUMERS * config.NWG // WARPGROUP,
        ),
    )


def _partial_sums(config: WgmmaConfig, held: str) -> PartialSums:
    """How the sums of the warpgroups that multiply are added up."""
    items = WARPGROUP * config.CONSUMERS
    return PartialSums(
        "sum_item",
        f"(f * {config.NWG // 2} + i) * {items}",
        f"{held}[f][i]",
        first="sum_item == 0",
        wait=f'asm volatile("bar.sync {config.CONSUMERS + 1}, {items};" : : : "memory");',
        end="",
    )


def batch_maps(config: WgmmaConfig) -> int:
    """Maps of a work-group where products of a batch have maps of their own, in turn."""
    return 2 * (config.STAGES + 1) + config.CONSUMERS


def map_bytes(groups: int, config: WgmmaConfig, *, batched: bool) -> int:
    """Bytes of the maps of so many work-groups."""
    return groups * (batch_maps(config) if batched else _MAPS) * WORDS * 8


def _encoded(terms: Iterable[int]) -> str:
    """Numbers of split terms in C, 4 bits each, the first in the lowest."""
    return f"{sum(term << 4 * number for number, term in enumerate(terms)):#x}"
