"""The kernels of the warpgroup units: slabs and their copies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...codegen.config import LEAST_LOAD_BYTES, VECTOR_BYTES
from ...codegen.element import stored_bytes
from ...codegen.kernel import GemmKernel
from ...codegen.pack import PackedForm, padded, with_packed
from ...codegen.source import Argument, KernelSource, times
from ...codegen.stream_k import StreamK
from ...device.probe import MARK
from ...device.traits import DeviceTraits
from ...problem.precision import PART_TYPES, PRODUCTS, Precision, parts_of
from ...problem.problem import OPERANDS, GemmProblem, MatrixLayout, OperandName
from ..cost import SECTOR, rows_start_at
from . import unit as units
from .config import WgmmaConfig
from .results import Staging, WgmmaResults
from .unit import TensorMap, WgmmaUnit

#: Columns of a slab of B are copied in multiples of this where its boxes lie along the tile, which
#: are too narrow otherwise, and where lanes transpose it.
_COPIED_COLUMNS = 32

#: The code of the swizzle in a descriptor, by the bytes of a map's rows.
_SWIZZLES = {64: 2, 128: 1}


def descriptor(beside: int = 1, row_bytes: int = units.ROW_BYTES) -> int:
    """The descriptor of a slab, without the address (PTX ISA, "Matrix Descriptor Format").

    Bits 32-45: distance of groups of 8 rows, in units of 16 bytes. Bits 62-63: the swizzle.
    """
    return _SWIZZLES[row_bytes] << 62 | 8 * row_bytes // 16 << 32 | beside << 16


def copied_bytes(config: WgmmaConfig) -> int:
    """The bytes of the smallest vectors in which a kernel can copy rows of an operand."""
    return units.MAP_ALIGNMENT if config.TMA else LEAST_LOAD_BYTES


def packed_forms(
    problem: GemmProblem, config: WgmmaConfig, unit: WgmmaUnit
) -> dict[OperandName, PackedForm]:
    """The operands that are packed first, with their packed form; others are copied in place."""
    precision = problem.precision
    split = PART_TYPES[unit.operand] if problem.dtype == "float32" else None
    form = PackedForm(along_k=True, split=split, terms=parts_of(precision.terms))
    return {
        name: form
        for name in OPERANDS
        if not is_copied(name, problem.operand(name), precision, config, unit)
    }


def is_copied(
    name: OperandName,
    layout: MatrixLayout,
    precision: Precision,
    config: WgmmaConfig,
    unit: WgmmaUnit,
) -> bool:
    """Whether an operand is copied in place; else it is first packed with k contiguous."""
    stored = stored_bytes(precision.operand)
    if precision.terms > 1 or stored != unit.element_bytes:
        return False
    # Lanes transpose a slab whose elements they copy one by one.
    turns = not config.TMA and stored == LEAST_LOAD_BYTES
    is_read = turns or unit.reads(name, layout)
    return is_read and layout.has_vectors(copied_bytes(config), stored)


# Lanes copy slabs to the same places in local memory as TMA does: into rows as long as the span of
# the swizzle, whose 16-byte vectors are permuted from row to row (PTX ISA, "Shared Memory Matrix
# Layout").


@dataclass
class BoxParts:
    """The rows of a box in local memory, in equal parts for the lanes of a warpgroup."""

    box: TensorMap  # its rows lie one behind the other
    bytes: int  # of a part; less than a vector if the alignment of rows requires it

    def __post_init__(self) -> None:
        self.across = self.box.row_bytes // self.bytes  # parts of a row; a power of two
        self.width = self.bytes // self.box.element_bytes  # elements of a part
        # Rows that all lanes together copy at once; parts of a lane in a box.
        self.rows = units.WARPGROUP // self.across
        self.per_box = self.box.rows // self.rows
        # Bytes in local memory from one part of a lane to its next. The permutation repeats every
        # 8 rows; if a step is 4 of 128 bytes, vectors lie in the other half of every other row.
        self.step = units.WARPGROUP * self.bytes
        self.alternates = self.step < 8 * self.box.row_bytes

    def offset(self, row: str, lane: str) -> str:
        """In C: the offset in bytes of a lane's part of a row."""
        return self.box.offset(row, f"{lane} % {self.across}", self.bytes)


def lane_bytes(name: OperandName, layout: MatrixLayout, unit: WgmmaUnit) -> int:
    """The bytes of an operand that a lane copies at a time: an element if it transposes them."""
    alignment = layout.alignment if unit.reads(name, layout) else 1
    return math.gcd(VECTOR_BYTES, alignment * unit.element_bytes)


def slab_boxes(
    name: OperandName, layout: MatrixLayout, config: WgmmaConfig, unit: WgmmaUnit
) -> tuple[TensorMap, int]:
    """The boxes in which a slab of an operand is copied, and their number."""
    extent = config.MWG if name == "a" else config.NWG
    across, turned = not layout.is_along_k(name), not unit.reads(name, layout)
    if across:
        extent = padded(extent, _COPIED_COLUMNS)
    if turned or not across:
        return TensorMap(unit.element_bytes, extent), 1
    box = units.boxes_across(unit.element_bytes, extent, unit.slab_depth)
    return box, extent // box.elements


#: Kilobytes of a compute unit that local memory and the first-level cache share, and what local
#: memory may take (NVIDIA, "Hopper Tuning Guide", "Unified Shared Memory/L1/Texture Cache"). A
#: work-group takes one more than it declares. By the times on an H200, local memory takes enough
#: for as many work-groups as it can hold, even if their registers do not fit.
_SHARED, _LOCAL_SIZES = 256, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

#: Kilobytes that must be left to the cache for copies through it. The bytes that lanes have in
#: flight need room there: with 60 KB left, copies took up to 1.5 times as long as past the cache.
_LEAST_CACHE = 92


def leaves_cache(config: WgmmaConfig, result_bytes: int, *, b_along_k: bool) -> bool:
    """Whether local memory leaves the room that copies through the first-level cache need."""
    columns = config.NWG if b_along_k else padded(config.NWG, _COPIED_COLUMNS)
    own = local_bytes(config, result_bytes, columns) / 1024 + 1
    taken = _LOCAL_SIZES[-1] // own * own
    left = max((_SHARED - size for size in _LOCAL_SIZES if size >= taken), default=0)
    return taken > 0 and left >= _LEAST_CACHE


class MatrixMap(NamedTuple):
    """A tensor map and the matrix that it describes. Strings are C."""

    name: str
    box: TensorMap
    matrix: str  # its pointer
    inner: str  # its extent along its contiguous elements
    outer: str  # and across them
    pitch: str  # elements from one row to the next
    rows_word: str  # rows of a box, less one


@dataclass
class WgmmaOperand:
    """A slab of A or B in local memory, as boxes that TMA or lanes copy. Strings are C."""

    name: OperandName
    problem: GemmProblem  # with its operands as they are copied
    config: WgmmaConfig
    unit: WgmmaUnit
    packed: bool  # whether it was packed, and thus padded with zeros to whole vectors
    leaves_cache: bool  # whether the first-level cache has room for copies by lanes

    def __post_init__(self) -> None:
        name, problem, unit = self.name, self.problem, self.unit
        layout, size = problem.operand(name), unit.element_bytes
        # Whether lanes transpose the slab, so that k is contiguous in local memory only.
        self.turned = not unit.reads(name, layout)
        # Whether k is contiguous in local memory; else the index along the tile is, which is also
        # its size's name.
        self.along_k = along_k = self.turned or layout.is_along_k(name)
        self.index = {"a": "m", "b": "n"}[name]
        # The boxes of a slab; the matrix's extents along its rows of contiguous elements and across
        # them; elements from one row to the next.
        self.map, self.boxes = slab_boxes(name, layout, self.config, unit)
        if along_k:
            parts = parts_of(problem.precision.terms)
            self.inner, self.outer = "k", times(parts, self.index)
        else:
            self.inner, self.outer = self.index, "k"
        self.pitch = f"{name}_{layout.order}_stride"
        self.rows = self.boxes * self.map.bytes // units.ROW_BYTES  # of 128 bytes, in all boxes
        # The bytes of those boxes, or rows of the box, that lie inside the matrix.
        if along_k:
            self.inside_bytes = f"{name}_rows * {self.map.row_bytes}"
        else:
            count = f"{name}_boxes * " if self.boxes > 1 else ""
            self.inside_bytes = f"{count}{self.map.bytes}"
        # A descriptor without its address; the distance from the operand of one instruction to that
        # of the next, in units of 16 bytes.
        self.descriptor = descriptor(1 if along_k else self.map.bytes // 16, self.map.row_bytes)
        self.step = 32 // 16 if along_k else 16 * self.map.row_bytes // 16

        # For lanes that copy: the vectors of a row; whether they pass through the first-level cache
        # (those of less than 16 bytes must), and the function that copies one; whether rows of the
        # matrix end between vectors or within one; the copies of a lane in a slab. Past the cache,
        # rows that start within a sector take twice as long as others.
        self.vectors = BoxParts(self.map, lane_bytes(name, layout, unit))
        within = not rows_start_at(SECTOR, layout, size)
        self.cached = self.vectors.bytes < VECTOR_BYTES or within and self.leaves_cache
        self.copy = f"copy_{self.vectors.bytes}_bytes"
        if self.cached and self.vectors.bytes == VECTOR_BYTES:
            self.copy += "_cached"
        end = problem.k if along_k else problem.positions(name)
        whole = self.packed or end * size % self.vectors.bytes == 0
        self.edges = "vectors" if whole else "elements"
        self.count = self.boxes * self.vectors.per_box

    @property
    def matrix_map(self) -> MatrixMap:
        """The map of boxes inside the matrix."""
        rows_word, name = str(self.map.rows_word), self.name
        return MatrixMap(
            f"{name}_map", self.map, name, self.inner, self.outer, self.pitch, rows_word
        )

    @property
    def edge_map(self) -> MatrixMap:
        """The map of boxes along k that have only the rows of the last tile."""
        rows_word = f"({self.index} - 1) % {self.map.rows}"
        return self.matrix_map._replace(name=f"{self.name}_edge_map", rows_word=rows_word)


#: The architecture whose instructions the kernels use.
TARGET = "sm_90a"

#: Maps of a work-group: for A and B, each within the matrix and at its edge, the result and C.
_MAPS = 6


def local_bytes(config: WgmmaConfig, result_bytes: int, columns: int = 0) -> int:
    """Bytes of local memory of a work-group that collects results of `result_bytes`.

    A slab of B has `columns`; 0: as many as in the layout that takes most.
    """
    staged = Staging(config, result_bytes).bytes
    columns = columns or padded(config.NWG, _COPIED_COLUMNS)
    slabs = config.STAGES * (config.MWG + columns) * units.ROW_BYTES
    barriers = 2 * 8 * config.STAGES
    arrivals = 8 if config.FILL else 0
    return slabs + staged + barriers + arrivals


def matrix_maps(
    operands: Sequence[WgmmaOperand], results: WgmmaResults, *, batched: bool
) -> list[MatrixMap]:
    """The maps of the matrices that are copied in boxes, operands first."""
    maps = [operand.matrix_map for operand in operands]
    if not batched:
        maps += [operand.edge_map for operand in operands if operand.along_k]
    if results.staging and not results.parts:
        names = ("out", "c") if results.c_in == "boxes" else ("out",)
        maps += [_map_of_results(name, results.staging) for name in names]
    return maps


def _map_of_results(name: str, staging: Staging) -> MatrixMap:
    inner, outer, line = ("m", "n", "column") if staging.turned else ("n", "m", "row")
    rows_word = str(staging.map.rows_word)
    return MatrixMap(
        f"{name}_map", staging.map, name, inner, outer, f"{name}_{line}_stride", rows_word
    )


def slab_count(problem: GemmProblem, unit: WgmmaUnit) -> int:
    """Slabs of a tile over all products of split terms; at least one."""
    return max(1, problem.precision.terms * math.ceil(problem.k / unit.slab_depth))


def generate_wgmma(problem: GemmProblem, config: WgmmaConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product by warpgroup units."""
    unit = units.required_wgmma_unit(problem.precision, traits)
    whole = (problem.a, problem.b)
    terms = problem.precision.terms
    packed = packed_forms(problem, config, unit)
    problem = with_packed(problem, packed)
    kernel = GemmKernel(problem, config, traits, unit.stored, whole if terms > 1 else None)
    results = WgmmaResults(problem, kernel.wide, config)
    b_along_k = problem.b.is_along_k("b") or not unit.reads("b", problem.b)
    has_cache = leaves_cache(config, kernel.wide.stored_bytes, b_along_k=b_along_k)
    operands = [
        WgmmaOperand(name, problem, config, unit, name in packed, has_cache) for name in OPERANDS
    ]
    if config.TMA:
        kernel.arguments += (Argument("maps", "output", "ulong"),)
    held = "totals" if config.PROMOTE else "accumulators"
    consumers = units.WARPGROUP * config.CONSUMERS  # work-items that have sums
    split_k = StreamK(
        slab_count(problem, unit),
        config.FILL * traits.compute_units,
        config.own_sums,
        own="sum_item",
        index=f"(f * {config.NWG // 2} + i) * {consumers}",
        sum=f"{held}[f][i]",
        first="sum_item == 0",
        wait=f'asm volatile("bar.sync {config.CONSUMERS + 1}, {consumers};" : : : "memory");',
        end="",
        fan_in=config.fan_in,
    )
    return kernel.source(
        "gemm_wgmma",
        "wgmma/wgmma.cl.mako",
        config.work_items,
        target=TARGET,
        split_k=split_k if config.FILL else None,
        tiles=config,
        operands=operands,
        matrix_maps=matrix_maps(operands, results, batched=kernel.batched),
        stored=unit.stored,
        results=results,
        staging=results.staging,
        a_in_registers=problem.a.order == "column" and unit.a_through_registers,
        terms=terms,
        whole=whole,
        whole_steps=(
            "whole_a_column_stride" if whole[0].order != "row" else "1",
            "whole_b_row_stride" if whole[1].order != "column" else "1",
        ),
        a_terms=_encoded(pair[0] for pair in PRODUCTS[terms]),
        b_terms=_encoded(pair[1] for pair in PRODUCTS[terms]),
        slab_depth=unit.slab_depth,
        accumulators=config.NWG // 2,
        instruction=unit.instruction(config.NWG),
        modifiers=unit.modifiers(*(not operand.along_k for operand in operands)),
        constraint=unit.constraint,
        held=held,
        warpgroup=units.WARPGROUP,
        registers=config.registers,
        map_count=map_count(config, batched=kernel.batched),
        map_words=units.MAP_WORDS,
        mark=MARK,
    )


def map_count(config: WgmmaConfig, *, batched: bool) -> int:
    """Maps of a work-group; in a batch each product has its own, and they are reused in turn."""
    return 2 * (config.STAGES + 1) + config.CONSUMERS if batched else _MAPS


def _encoded(terms: Iterable[int]) -> str:
    """Numbers of split terms as a C literal, 4 bits each, the first in the lowest bits."""
    return f"{sum(term << 4 * number for number, term in enumerate(terms)):#x}"
