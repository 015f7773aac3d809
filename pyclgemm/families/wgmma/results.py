"""How the results of warpgroup units leave the registers, and how an addend gets there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...codegen.element import ElementType
from ...problem.problem import GemmProblem, Order
from .config import WgmmaConfig
from .slab import BoxVectors
from .unit import FRAGMENT_ROWS, MAP_ALIGNMENT, ROW_BYTES, TensorMap, boxes_across

#: Boxes of results that a warpgroup collects before they are copied out.
_MOST_BOXES = 2

#: Columns of a strip: that part of a fragment whose results are finished at a time.
STRIP_COLUMNS = 32

#: Bytes of results that are collected where their columns are contiguous.
_TURNED_BYTES = 4

#: What `cvt` makes of two results that lie in one register.
_PACKED_TYPES = {"float16": "f16x2", "bfloat16": "bf16x2"}


@dataclass(frozen=True)
class Staging:
    """How results are collected in local memory before they are copied out."""

    #: Of 64 rows; where columns are contiguous, of 64 columns, or 32 where those do not divide the
    #: tile's.
    map: TensorMap
    boxes: int  # boxes that a warpgroup collects at a time
    chunks: int  # how often it does so for a fragment of 64 rows
    bytes: int  # local memory for all warpgroups
    turned: bool = False  # whether columns of the result are contiguous: a box's rows are columns

    @property
    def vectors(self) -> BoxVectors:
        """The vectors of a box, as lanes store them where there is no map of the result."""
        return BoxVectors(self.map)

    @property
    def chunk_strips(self) -> int:
        """Strips that are collected at a time."""
        if self.turned:
            return self.map.rows // STRIP_COLUMNS
        return self.boxes * self.map.elements // STRIP_COLUMNS


@dataclass(frozen=True)
class WgmmaResults:
    """How a warpgroup finishes the results of a tile."""

    staging: Staging | None  # None where they are stored from the registers
    #: Whether a loop finishes all strips by the same code: fetching long code takes time.
    rolled: bool
    packs: str  # type of two results in one register, in PTX; empty if a result fills one
    relu_packs: bool  # whether the instruction that packs results applies the activation, relu
    #: How C is read: copied into local memory as slabs are, behind the tile's last one; or from
    #: where it lies, two neighbours at a time or one.
    c_in: Literal["boxes", "pairs", "elements"]
    c_chunks: int  # chunks of results whose boxes of C are copied at a time; 0 without boxes
    is_placed: bool  # whether row and column of a result are computed


def wgmma_results(problem: GemmProblem, result: ElementType, config: WgmmaConfig) -> WgmmaResults:
    """Decide how the results of a product are finished."""
    staging = None
    if copied_out(problem, result) and (config.TMA or problem.out.order == "row"):
        staging = staging_of(config, result.stored_bytes, problem.out.order)
    packs = _PACKED_TYPES.get(result.dtype, "")
    chunks = _c_chunks(problem, result, config, staging)
    c_in_place = problem.c is not None and not chunks
    is_placed = staging is None or problem.precision.terms > 1 or c_in_place
    return WgmmaResults(
        staging=staging,
        rolled=problem.activation not in (None, "relu"),
        packs=packs,
        relu_packs=bool(packs) and problem.activation == "relu",
        c_in="boxes" if chunks else "pairs" if _c_in_pairs(problem) else "elements",
        c_chunks=chunks,
        is_placed=is_placed,
    )


def _c_chunks(
    problem: GemmProblem, result: ElementType, config: WgmmaConfig, staging: Staging | None
) -> int:
    """Chunks of each warpgroup whose boxes of C fill the memory of slabs best.

    0 where there are no maps, where C does not lie as boxes are copied, where it is known only at
    the end which work-group finishes a tile, and in a batch, whose products would need maps of
    their own.
    """
    c = problem.c
    if c is None or staging is None or not config.TMA:
        return 0
    if config.FILL or problem.batch is not None:
        return 0
    if c.order != problem.out.order or not c.in_pieces(MAP_ALIGNMENT, result.stored_bytes):
        return 0
    room = (config.MWG + config.NWG) * ROW_BYTES // staging.bytes
    chunks = config.MWG // (FRAGMENT_ROWS * config.CONSUMERS) * staging.chunks
    return max((number for number in range(1, room + 1) if chunks % number == 0), default=0)


def _c_in_pairs(problem: GemmProblem) -> bool:
    """Whether two neighbouring elements of C, none of them outside, are one aligned load."""
    c = problem.c
    return c is not None and c.order == "row" and c.alignment >= 2 and problem.n % 2 == 0


def staging_of(config: WgmmaConfig, result_bytes: int, order: Order = "row") -> Staging:
    """How results of so many bytes, in an order, are collected where they can be copied out."""
    if order == "column":
        box = TensorMap(result_bytes, rows=math.gcd(config.NWG, FRAGMENT_ROWS))
        boxes = FRAGMENT_ROWS // box.elements
        size = config.CONSUMERS * boxes * box.bytes
        return Staging(box, boxes, config.NWG // box.rows, size, turned=True)
    box = boxes_across(result_bytes, config.NWG, FRAGMENT_ROWS)
    across = config.NWG // box.elements
    boxes = _MOST_BOXES if across % _MOST_BOXES == 0 else 1
    return Staging(box, boxes, across // boxes, config.CONSUMERS * boxes * box.bytes)


def copied_out(problem: GemmProblem, result: ElementType) -> bool:
    """Whether results can be copied out of local memory in boxes."""
    # A copy to memory ends at a whole 16-byte vector: where a row of the result ends within one, it
    # writes over the end (seen on an H100; copies from memory do not read over it).
    out = problem.out
    if out.order == "column" and result.stored_bytes != _TURNED_BYTES:
        return False
    contiguous = problem.n if out.order == "row" else problem.m
    whole = contiguous * result.stored_bytes % MAP_ALIGNMENT == 0
    return whole and out.in_pieces(MAP_ALIGNMENT, result.stored_bytes)
