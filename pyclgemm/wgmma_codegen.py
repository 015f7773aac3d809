"""What the template of the warpgroup units needs: boxes, descriptors, how results leave."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from .approximation import approximation
from .device import DeviceTraits
from .element import stored_bytes
from .gemm_parts import gemm_parts
from .kernel_source import Argument, KernelSource, share_arguments
from .matrix_configs import WgmmaConfig
from .matrix_slab import COPY_BYTES
from .pack_codegen import PackedForm
from .parts import PART_TYPES, PRODUCTS, parts_of
from .problem import OPERANDS, GemmProblem
from .ptx_step import MARK
from .share import Sharing, sharing
from .tensor_map import ALIGNMENT, ROW_BYTES, WORDS, TensorMap, boxes_across
from .wgmma_lanes import LaneCopies
from .wgmma_results import staging_of, wgmma_results
from .wgmma_units import WARPGROUP, WgmmaUnit, required_wgmma_unit

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

#: What a descriptor calls the swizzle of a map's rows of so many bytes.
_SWIZZLES = {64: 2, 128: 1}


@dataclass(frozen=True)
class WgmmaOperand:
    """A slab of A or B in local memory: boxes as they are copied.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    along_k : bool
        Whether k is contiguous; else the position along the tile is.
    map : TensorMap
        Its boxes.
    boxes : int
        How many are in a slab.
    inner, outer, pitch : str
        Extents of the matrix from which they are copied, and elements between its rows, in C.
    """

    name: Literal["a", "b"]
    along_k: bool
    map: TensorMap
    boxes: int
    inner: str
    outer: str
    pitch: str

    @property
    def descriptor(self) -> int:
        """A descriptor without its address."""
        return descriptor(1 if self.along_k else self.map.bytes // 16, self.map.row_bytes)

    @property
    def step(self) -> int:
        """From one instruction's piece to the next one's along k, in units of 16 bytes.

        32 bytes of each row where k is contiguous, else 16 rows.
        """
        return 32 // 16 if self.along_k else 16 * self.map.row_bytes // 16


def descriptor(beside: int = 1, row_bytes: int = ROW_BYTES) -> int:
    """How slabs lie, without an address (PTX ISA, "Matrix Descriptor Format").

    Bits 32-45: distance of groups of 8 rows, in units of 16 bytes. Bits 62-63: the swizzle.

    Parameters
    ----------
    beside : int
        Bits 16-29: distance of boxes side by side along the tile, in units of 16 bytes; where k
        is contiguous there are none.
    row_bytes : int
        Of a row of a box, 64 or 128: the span of the swizzle.

    Examples
    --------
    >>> hex(descriptor()), hex(descriptor(beside=256, row_bytes=64))
    ('0x4000004000010000', '0x8000002001000000')
    """
    return _SWIZZLES[row_bytes] << 62 | 8 * row_bytes // 16 << 32 | beside << 16


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


def slab_depth(unit: WgmmaUnit) -> int:
    """Elements along k in a slab."""
    return ROW_BYTES // unit.element_bytes


def slab_count(problem: GemmProblem, unit: WgmmaUnit) -> int:
    """Slabs of a tile, of all products of parts; of none there is one."""
    return max(1, problem.precision.terms * math.ceil(problem.k / slab_depth(unit)))


def work_items(config: WgmmaConfig) -> int:
    """Work-items of a group."""
    return WARPGROUP * (1 + config.CONSUMERS)


def boxed_form(name: Literal["a", "b"], problem: GemmProblem, unit: WgmmaUnit) -> PackedForm | None:
    """The form in which an operand must be packed first; None where it is copied as it lies."""
    terms = problem.precision.terms
    layout = problem.a if name == "a" else problem.b
    along_k = layout.order == ("row" if name == "a" else "column")
    stored = stored_bytes(problem.dtype)
    as_it_is = terms == 1 and stored == unit.element_bytes
    reads_it = along_k or unit.any_order or (unit.a_through_registers and name == "a")
    if as_it_is and layout.in_pieces(ALIGNMENT, stored) and reads_it:
        return None
    split = PART_TYPES[unit.operand] if problem.dtype == "float32" else None
    return PackedForm(along_k=True, split=split, parts=parts_of(terms))


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
    operands = (
        _operand("a", problem.a.order == "row", config.MWG, unit, terms),
        _operand("b", problem.b.order == "column", config.NWG, unit, terms),
    )
    if terms > 1:
        parts = parts.reading_whole()
    if config.TMA:
        parts = parts.adding(Argument("maps", "output", "ulong"))
    if config.FILL:
        parts = parts.adding(*share_arguments(parts.element.vector(1)))
    return parts.source(
        "gemm_wgmma",
        "wgmma.cl.mako",
        work_items(config),
        (traits.fence_options or "") if config.FILL else "",
        TARGET,
        tiles=config,
        operands=operands,
        lanes=tuple(_lane_copies(operand, problem, packed, unit) for operand in operands),
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


def as_boxes(problem: GemmProblem, unit: WgmmaUnit) -> GemmProblem:
    """The product with its operands as they are when slabs are copied."""
    form_a, form_b = (boxed_form(name, problem, unit) for name in OPERANDS)
    return replace(
        problem,
        a=form_a.layout("a") if form_a else problem.a,
        b=form_b.layout("b") if form_b else problem.b,
    )


def batch_maps(config: WgmmaConfig) -> int:
    """Maps of a work-group where products of a batch have maps of their own, in turn."""
    return 2 * (config.STAGES + 1) + config.CONSUMERS


def map_bytes(groups: int, config: WgmmaConfig, *, batched: bool) -> int:
    """Bytes of the maps of so many work-groups."""
    return groups * (batch_maps(config) if batched else _MAPS) * WORDS * 8


def _operand(
    name: Literal["a", "b"], along_k: bool, extent: int, unit: WgmmaUnit, terms: int
) -> WgmmaOperand:
    size = {"a": "m", "b": "n"}[name]
    rows = ROW_BYTES // unit.element_bytes
    pitch = f"{name}_{'row' if along_k == (name == 'a') else 'column'}_stride"
    if along_k:
        outer = f"{parts_of(terms)} * {size}" if terms > 1 else size
        box = TensorMap(unit.element_bytes, extent)
        return WgmmaOperand(name, True, box, 1, "k", outer, pitch)
    box = boxes_across(unit.element_bytes, extent, rows)
    return WgmmaOperand(name, False, box, extent // box.elements, size, "k", pitch)


def _lane_copies(
    operand: WgmmaOperand, problem: GemmProblem, packed: tuple[str, ...], unit: WgmmaUnit
) -> LaneCopies:
    """How lanes copy an operand; one that was packed is padded with zeros to whole pieces."""
    end = problem.k if operand.along_k else {"a": problem.m, "b": problem.n}[operand.name]
    whole = operand.name in packed or end * unit.element_bytes % COPY_BYTES == 0
    return LaneCopies(
        operand.name, operand.along_k, unit.stored, operand.map, operand.boxes,
        edges="pieces" if whole else "elements",
    )  # fmt: skip


def _encoded(parts: Any) -> int:
    """Numbers of parts, 4 bits each, the first in the lowest."""
    return sum(part << 4 * place for place, part in enumerate(parts))
