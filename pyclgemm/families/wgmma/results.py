"""The results of a warpgroup: how they are collected in local memory, and copied from there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...codegen.config import VECTOR_BYTES
from ...codegen.element import WORDS, ElementType
from ...codegen.source import divided, modulo, plus, times
from ...problem.problem import GemmProblem, Order
from . import unit as units
from .config import WgmmaConfig
from .unit import TensorMap

#: Most boxes of results that a warpgroup collects before they are copied out.
_MOST_BOXES = 2

#: The type of two results in one register, as PTX's `cvt` names it.
_PACKED_TYPES = {"float16": "f16x2", "bfloat16": "bf16x2"}


@dataclass
class Staging:
    """How results of `result_bytes` are collected in local memory, to be copied out."""

    config: WgmmaConfig
    result_bytes: int
    order: Order = "row"

    def __post_init__(self) -> None:
        config = self.config
        # Whether columns of the result are contiguous: a box's rows are columns.
        self.turned = self.order == "column"
        # Boxes have 64 rows, or 64 columns (fewer where 64 does not divide the tile's). The boxes
        # that a warpgroup collects at a time, and their columns.
        if self.turned:
            self.map = TensorMap(self.result_bytes, rows=math.gcd(config.NWG, units.FRAGMENT_ROWS))
            self.boxes, columns = units.FRAGMENT_ROWS // self.map.elements, self.map.rows
        else:
            self.map = units.boxes_across(self.result_bytes, config.NWG, units.FRAGMENT_ROWS)
            self.boxes = math.gcd(config.NWG // self.map.elements, _MOST_BOXES)
            columns = self.boxes * self.map.elements
        # Such chunks of a fragment, strips of a chunk, bytes of local memory for all warpgroups.
        self.chunks = config.NWG // columns
        self.chunk_strips = columns // config.strip
        self.bytes = config.CONSUMERS * self.boxes * self.map.bytes


#: Lanes of a sub-group, and the rows of a fragment whose results they have.
_LANES, _OWN_ROWS = 32, 16


@dataclass
class OwnResults:
    """The results that a sub-group collected, in equal parts for its lanes. Strings are C.

    They are rows of boxes, or parts of all rows if columns of the result are contiguous. No other
    sub-group collects or copies them, so that none has to wait.
    """

    staging: Staging
    bytes: int  # of a part

    def __post_init__(self) -> None:
        box = self.staging.map
        self.type = WORDS[self.bytes]  # C type of a part
        self.width = self.bytes // box.element_bytes  # elements of a part
        # The boxes with results of the sub-group, their rows, and its parts of a row; the first
        # box, row and part.
        sub_group = "thread / 32"
        if self.staging.turned:
            boxes, rows, parts = 1, box.rows, _OWN_ROWS // self.width
            beside = box.elements // _OWN_ROWS  # sub-groups whose results lie in a box
            one_box = self.staging.boxes == 1
            first_box = "0" if one_box else divided(sub_group, beside)
            first_row = "0"
            first_part = times(sub_group if one_box else modulo(sub_group, beside), parts)
        else:
            boxes, rows, parts = self.staging.boxes, _OWN_ROWS, box.row_bytes // self.bytes
            first_box, first_row, first_part = "0", times(sub_group, _OWN_ROWS), "0"
        # All lanes copy several rows at once, or a row in several turns.
        in_box = rows * parts // _LANES  # copies of a lane
        rows_at_once, turns = max(1, _LANES // parts), max(1, parts // _LANES)
        copy = modulo("i", in_box) if boxes > 1 else "i" if in_box > 1 else "0"
        lane_row, lane_part = "0", "lane"
        if rows_at_once > 1:
            lane_row, lane_part = divided("lane", parts), modulo("lane", parts)
        # The copies of a lane; the box of copy i, the row there, and the part of the row.
        self.count = boxes * in_box
        self.box = divided("i", in_box) if boxes > 1 else first_box
        self.row = plus(first_row, times(divided(copy, turns), rows_at_once), lane_row)
        self.part = plus(first_part, times(modulo(copy, turns), _LANES), lane_part)


@dataclass
class WgmmaResults:
    """How a warpgroup computes and stores the results of a tile."""

    problem: GemmProblem
    result: ElementType
    config: WgmmaConfig

    def __post_init__(self) -> None:
        problem, out, c = self.problem, self.problem.out, self.problem.c
        size = self.result.stored_bytes
        is_mapped = bool(self.config.TMA) and self._copied_out()
        # How results are collected (None if they are stored from registers); how lanes copy the
        # collected results (None if TMA does); chunks whose boxes of C are copied at a time, 0 if
        # C is not copied in boxes.
        self.staging: Staging | None = None
        self.parts: OwnResults | None = None
        self.c_chunks = 0
        if out.order != "strided":
            self.staging = Staging(self.config, size, out.order)
            if is_mapped:
                self.c_chunks = self._c_chunks(self.staging)
            else:
                width = math.gcd(VECTOR_BYTES // size, out.alignment, self._contiguous)
                self.parts = OwnResults(self.staging, width * size)
        # Whether a loop runs the same code for all strips: fetching long code takes time.
        self.rolled = problem.activation not in (None, "relu")
        # The biases of columns are distributed over the lanes of a sub-group: columns whose biases
        # its registers of 4 bytes hold; such registers of a tile; strips that share one.
        columns = _LANES * 4 // size
        self.bias_registers = math.ceil(self.config.NWG / columns)
        self.bias_strips = columns // self.config.strip
        # PTX's type of two results in one register, empty if a result fills a register; whether the
        # instruction that packs them also applies the activation, relu.
        self.packs = _PACKED_TYPES.get(self.result.dtype, "")
        self.relu_packs = bool(self.packs) and problem.activation == "relu"
        # How C is read: in boxes that are copied to local memory after the tile's last slab, or in
        # place by pairs of neighbours (aligned, both inside the matrix) or by elements.
        by_pairs = c is not None and c.order == "row" and c.alignment >= 2 and problem.n % 2 == 0
        self.c_in = "boxes" if self.c_chunks else "pairs" if by_pairs else "elements"
        # Whether the code needs row and column of a result.
        c_in_place = c is not None and not self.c_chunks
        self.is_placed = self.staging is None or problem.precision.terms > 1 or c_in_place

    @property
    def _contiguous(self) -> int:
        """The contiguous elements of a row or column of the result."""
        return self.problem.n if self.problem.out.order == "row" else self.problem.m

    def _copied_out(self) -> bool:
        """Whether results can be copied out of local memory in boxes."""
        # A copy to memory ends at a whole 16-byte vector. If a row of the result ends within one,
        # the copy writes past the end (seen on an H100; copies from memory do not read past it).
        out, size = self.problem.out, self.result.stored_bytes
        whole = self._contiguous * size % units.MAP_ALIGNMENT == 0
        return whole and out.has_vectors(units.MAP_ALIGNMENT, size)

    def _c_chunks(self, staging: Staging) -> int:
        """The most chunks of each warpgroup whose boxes of C fit the memory of a stage's slabs."""
        c, config = self.problem.c, self.config
        # Which work-group finishes a divided tile is known only at the end. Each product of a batch
        # would need its own maps.
        if c is None or config.FILL or self.problem.batch is not None:
            return 0
        if staging.turned and staging.result_bytes != 4:
            return 0  # a work-item adds elements of two columns, which are not neighbours
        if c.order != staging.order or not c.has_vectors(units.MAP_ALIGNMENT, staging.result_bytes):
            return 0
        room = (config.MWG + config.NWG) * units.ROW_BYTES // staging.bytes
        chunks = config.fragments * staging.chunks
        return max((number for number in range(1, room + 1) if chunks % number == 0), default=0)
