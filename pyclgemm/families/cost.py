"""Predicted time of a product: the work of a configuration, and a device's time for it.

A family states the work of a configuration (`Work`) in seconds at the device's ceilings: for a slab
of k, for a tile, for packing. Some terms depend on how one matrix lies in memory (`Access`), the
others on no layout. `WorkTable` predicts the times of many configurations for given sizes by array
operations. `Coefficients` state how far a family stays below the ceilings; `pyclgemm.tuning.fit`
fits them to measured times.

The terms are those of analytical models in the literature: waves of work-groups over compute units,
the time of a slab alone and among others, filling and draining, bytes through memory and caches,
joining the partial sums of Stream-K, packing. See AMD's Origami (hipBLASLt, tritonBLAS), NVIDIA's
nvMatmulHeuristics, and M. Osama et al., "Stream-K" (PPoPP 2023), section 5.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..codegen.config import VECTOR_BYTES
from ..codegen.element import stored_bytes
from ..codegen.stream_k import FAN_IN, LEAST_SLABS, few_tiles
from ..device.ceilings import Ceilings, unit_name
from ..device.traits import DeviceTraits
from ..problem.matrix import MAX_ALIGNMENT
from ..problem.precision import Precision, is_complex
from ..problem.problem import GemmProblem, MatrixLayout

Column = NDArray[np.float64]
Sizes = int | Column
MatrixName: TypeAlias = Literal["a", "b", "out"]
#: A row for each term or part of a time, a column for each configuration.
Terms = NDArray[np.float64]


#: Slabs in the time of a step that joins partial sums, where nothing tells the time of a slab.
JOINING = 10.0


@dataclass(frozen=True)
class Work:
    """The work of a configuration for products of one layout, at the ceilings of one device.

    Seconds are those of one compute unit (a core of a CPU) at its share of the ceiling.
    """

    rows: int  # of a work-group's tile; on CPUs of a core's register tile
    columns: int
    depth: int  # of a slab
    multiply: float  # seconds of the multiply-adds of a slab
    fill: int = 0  # work-groups of a compute unit that split k loops; 0: a group for each tile
    joining: float = JOINING  # slabs in the time of a step that joins partial sums, with `fill`
    fan_in: int = FAN_IN  # partial sums that are added up in one step
    resident: int = 1  # work-groups of a compute unit at a time
    alone: float = 1.0  # factor of the time of multiplying if a work-group is alone on its unit
    rounds: float = 1.0  # latencies of a tile: its first slab, each step that joins sums
    exposed: float = 1.0  # the fraction of a slab's latency that other slabs in flight do not hide
    tiles: int = 1  # of a work-group
    grain: int = 0  # columns of which the last tile computes a multiple; 0: the whole tile
    swapped: bool = False  # whether rows of the tile are columns of the result
    local: float = 0.0  # seconds of reading a slab from local memory
    cache: float = 0.0  # seconds of reading a slab from the second-level cache
    loads: float = 0.0  # seconds of a slab's load instructions
    turned: float = 0.0  # seconds of transposing a slab, by storing single elements
    store: float = 0.0  # seconds of writing a tile
    join: float = 0.0  # seconds, of all units together, of writing and reading a tile's sums
    packs: int = 0  # launches before the one that multiplies
    packed_a: float = 0.0  # seconds, of all units together, of packing an element of its A
    packed_b: float = 0.0  # and of its B, which are exchanged if `swapped`
    operand: float = 0.0  # seconds, of all units together, of reading an element of A or B once
    result: float = 0.0  # and of an entry of the result, and of C if that is read
    descriptors: int = 0  # whether each work-group writes tensor maps first

    def accessing(self, a: Access, b: Access, out: Access, *, swapped: bool, reads_c: bool) -> Work:
        """The same with the terms of the matrices, as the kernel sees them."""
        return replace(
            self,
            swapped=swapped,
            loads=self.loads + a.loads + b.loads,
            cache=self.cache + a.cache + b.cache,
            turned=self.turned + a.turned + b.turned,
            store=self.store + a.store + b.store + out.store,
            packs=a.packs + b.packs,
            packed_a=a.packed,
            packed_b=b.packed,
            result=self.result * (2 if reads_c else 1),
        )


class Place(NamedTuple):
    """How a matrix lies in memory, as far as reading or writing it takes different times."""

    name: MatrixName
    layout: MatrixLayout
    b_by_columns: bool  # whether B's columns are contiguous: so some kernels divide their lanes
    in_panels: bool = False  # whether it is a B that was packed ahead for CPUs

    @staticmethod
    def of(problem: GemmProblem, widest: int = MAX_ALIGNMENT) -> tuple[Place, Place, Place]:
        """The places of A, B and the result; alignments from `widest` on are alike."""
        by_columns = problem.b.order == "column"
        panels = problem.packed is not None and problem.packed.form == "panels"

        def place(name: MatrixName, layout: MatrixLayout) -> Place:
            alignment = min(layout.alignment, widest)
            clipped = MatrixLayout(layout.order, alignment, layout.conjugate)
            return Place(name, clipped, by_columns, name == "b" and panels)

        return place("a", problem.a), place("b", problem.b), place("out", problem.out)

    @staticmethod
    def exchanged(a: Place, b: Place, out: Place) -> tuple[Place, Place, Place]:
        """The places of B^T, A^T and the transposed result."""
        by_columns = a.layout.order == "row"
        return (
            Place("a", b.layout.transposed, by_columns),
            Place("b", a.layout.transposed, by_columns, b.in_panels),
            Place("out", out.layout.transposed, by_columns),
        )


class Access(NamedTuple):
    """The terms of `Work` for reading a slab of A or B or for ending a tile; others are 0."""

    loads: float = 0.0
    cache: float = 0.0
    turned: float = 0.0
    store: float = 0.0
    packs: int = 0
    packed: float = 0.0  # seconds, of all units together, of packing an element


@dataclass(frozen=True)
class Coefficients:
    """How far kernels stay below the ceilings: ratios, unless the comment states a unit.

    The defaults are assumptions that no measurement supports: kernels reach about 80 % of a
    ceiling, a slab takes a barrier and the latency that is not hidden, a launch the driver's time.
    """

    multiply: float = 1.25
    local: float = 0.5  # reads overlap with multiply-adds, but share their issue slots
    loads: float = 0.5
    turned: float = 1.0
    slab: float = 0.4e-6  # seconds from one slab to the next of a work-group alone
    tile: float = 0.4e-6  # seconds before the first slab and after the last
    store: float = 1.0
    memory: float = 1.25
    cache: float = 1.25
    launch: float = 1.8e-6  # seconds of a launch on the device
    pack_launch: float = 3e-6  # seconds of each launch that packs
    packing: float = 1.25
    join: float = 1.0
    split: float = 2e-6  # seconds of a step that joins sums: of waiting for those of others
    descriptors: float = 0.5e-6  # seconds

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Coefficients:
        """The coefficients of a database; values that it does not state are defaults."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


#: Real multiply-adds of a complex one.
_COMPLEX = 4

#: Multiply-adds in float32 in the time of one load: a compute unit of NVIDIA has 128 lanes for
#: arithmetic and 32 for loads and stores, and others have about the same ratio.
_LOADS = 4

#: Work-items of a load or store instruction; bytes of a line, of which the first-level cache serves
#: one at a time; bytes of a sector, the unit of transfers to and from it. These hold for NVIDIA's
#: GPUs (Nsight Compute, "Memory Tables"); others have the same sizes or half of them.
SUB_GROUP, _LINE, SECTOR = 32, 128, 32

#: Work-items that hold a row of a fragment of results, two neighbours each (NVIDIA, "Parallel
#: Thread Execution ISA", fragments of mma and wgmma).
FRAGMENT_LANES = 4


def rows_start_at(step: int, layout: MatrixLayout, element: int) -> bool:
    """Whether rows start at multiples of `step` bytes, as far as their alignment tells."""
    return layout.alignment >= min(MAX_ALIGNMENT, step // element)


def _touched(run: int, grain: int, element: int, aligned: bool) -> float:
    """Grains of memory that a run of bytes touches; the mean if it starts at any element."""
    return math.ceil(run / grain) if aligned else (run - element) / grain + 1


def tile_rounds(slices: int, fill: int) -> int:
    """Latencies of a tile: its first slab, joining slices, and reading and writing partial sums."""
    return 1 + (slices > 1) + 2 * (fill > 0)


@dataclass(frozen=True)
class Costs:
    """Seconds of single operations of products of one type, at the ceilings of a device."""

    dtype: str
    precision: Precision
    traits: DeviceTraits
    stored: int  # bytes of an element of A and B
    result: int  # and of the result
    multiply_add: float  # of one compute unit
    load: float  # a load instruction of one work-item, of one compute unit
    local_byte: float  # of one compute unit
    cache_byte: float  # of one compute unit
    memory_byte: float  # of global memory, of all compute units together

    @classmethod
    def of(
        cls, problem: GemmProblem, traits: DeviceTraits, ceilings: Ceilings, unit: str = ""
    ) -> Costs | None:
        """The costs with the matrix unit `unit`, or without one if it is empty.

        None if the ceilings lack this arithmetic.
        """
        units = traits.compute_units
        precision = problem.precision
        if unit:
            rate = ceilings.units.get(unit_name(unit, precision.multiplied or ""))
        else:
            rate = ceilings.arithmetic.get(precision.arithmetic)
        if rate is None:
            return None
        terms = precision.terms * (_COMPLEX if is_complex(problem.dtype) else 1)
        memory = 1e-9 / ceilings.global_memory
        return cls(
            problem.dtype,
            precision,
            traits,
            stored_bytes(problem.dtype),
            stored_bytes(problem.result_dtype),
            terms * 2e-9 * units / rate,
            _LOADS * 2e-9 * units / ceilings.arithmetic["float32"],
            1e-9 * units / ceilings.local_memory if ceilings.local_memory else 0.0,
            1e-9 * units / ceilings.cache if ceilings.cache else memory * units,
            memory,
        )

    def work(self, rows: int, columns: int, depth: int, times: float = 1, **terms: Any) -> Work:
        """The work of a slab whose multiply-adds take `times` as long; `terms` are other fields."""
        return Work(
            rows,
            columns,
            depth,
            self.multiply_add * rows * columns * depth * times,
            operand=self.memory_byte * self.stored,
            result=self.memory_byte * self.result,
            **terms,
        )

    def is_aligned(self, layout: MatrixLayout, to: int = VECTOR_BYTES) -> bool:
        """Whether rows start at multiples of `to` bytes, as far as their alignment tells.

        Rows that start at multiples of a vector nearly start at whole sectors.
        """
        return rows_start_at(to, layout, self.stored)

    def transfer(
        self,
        elements: float,
        size: int,
        lanes: int,
        width: int,
        *,
        step: int = 0,
        rows: float = 0,
        aligned: bool = True,
    ) -> tuple[float, float]:
        """Seconds of one compute unit to load or store elements, and to move them to its cache.

        In a sub-group `lanes` neighbours access `width` consecutive elements of `size` bytes each,
        which start `step` elements apart (0: without a gap). Other lanes do the same in other rows,
        of which there are `rows` (0: as many as there are lanes for). `aligned` states whether rows
        start at whole sectors.
        """
        lanes = max(1, min(lanes, SUB_GROUP))
        runs = rows or SUB_GROUP / lanes
        run = ((lanes - 1) * (step or width) + width) * size
        lines = runs * min(lanes, _touched(run, _LINE, size, aligned))
        each = math.ceil(width * size / SECTOR)  # sectors of one work-item
        sectors = runs * min(lanes * each, _touched(run, SECTOR, size, aligned))
        instructions = elements / (SUB_GROUP * width)
        turns = max(lines, SUB_GROUP * width * size / _LINE)
        issue = instructions * turns * SUB_GROUP * self.load
        return issue, instructions * sectors * SECTOR * self.cache_byte

    def store(
        self, entries: float, layout: MatrixLayout, lanes: int, width: int, *, step: int = 0
    ) -> float:
        """Seconds of one compute unit to store entries of the result, as in `transfer`."""
        aligned = self.is_aligned(layout)
        return max(self.transfer(entries, self.result, lanes, width, step=step, aligned=aligned))


#: The terms of a table: the work times coefficients. The first ones depend on layouts. `slab` is
#: throughput, `step` latency; `packs` counts launches, whose time is in `start`.
_LAID = ("slab", "cache", "store", "start", "packed_a", "packed_b", "packs")
_TERMS = (*_LAID, "step", "ends", "operand", "result", "join", "split")


def terms_of(accesses: Sequence[Access], c: Coefficients, name: str) -> Terms:
    """What the accesses of many configurations to matrix `name` add to the terms of a table."""
    columns = np.array(accesses, float).reshape(-1, len(Access._fields)).T
    loads, cache, turned, store, packs, packed = columns
    return np.array(
        [
            loads * c.loads + turned * c.turned,
            cache * c.cache,
            store * c.store,
            packs * c.pack_launch,
            packed * c.packing * (name == "a"),
            packed * c.packing * (name == "b"),
            packs,
        ]
    )


class WorkTable:
    """Predicts the times of many configurations at once."""

    def __init__(
        self, work: Sequence[Work], coefficients: Sequence[Coefficients], units: int
    ) -> None:
        self._units = float(units)
        self.work = _columns(work, Work)
        self.work["grain"] = np.where(self.work["grain"], self.work["grain"], self.work["columns"])
        self._fills = np.flatnonzero(self.work["fill"])  # those whose k loops are split
        self._none = np.zeros(len(work))
        # Most tables need less arithmetic: no swapped rows, one tile for each work-group.
        swapped = self.work["swapped"] > 0
        self._swapped = swapped if swapped.any() else None
        self._has_many_tiles = bool((self.work["tiles"] > 1).any())
        self._set(_columns(coefficients, Coefficients))

    def _set(self, c: Mapping[str, Any]) -> None:
        """Multiply the terms of the work by coefficients."""
        w = self.work
        multiply = w["multiply"] * c["multiply"]
        self._terms = np.array(
            [
                multiply + sum(w[name] * c[name] for name in ("local", "loads", "turned")),
                w["cache"] * c["cache"],
                w["store"] * c["store"],
                c["launch"] + w["packs"] * c["pack_launch"] + w["descriptors"] * c["descriptors"],
                w["packed_a"] * c["packing"],
                w["packed_b"] * c["packing"],
                w["packs"],
                c["slab"] * w["exposed"] + multiply * w["alone"],
                w["rounds"] * c["tile"],
                w["operand"] * c["memory"],
                w["result"] * c["memory"],
                w["join"] * c["join"],
                np.broadcast_to(c["split"], multiply.shape),
            ]
        )

    def with_coefficients(self, coefficients: Mapping[str, float]) -> WorkTable:
        """The same work with other coefficients, the same for all configurations."""
        table = copy.copy(self)
        table._set(coefficients)
        return table

    def with_layouts(
        self, laid: Terms, swapped: NDArray[np.bool_] | None, *, reads_c: bool
    ) -> WorkTable:
        """The same with the terms of layouts, which this table must lack.

        `swapped` states where rows of a tile are columns of the result; None: nowhere.
        """
        table = copy.copy(self)
        table._terms = self._terms.copy()
        table._terms[: len(_LAID)] += laid
        table._terms[_TERMS.index("result")] *= 2 if reads_c else 1
        table._swapped = swapped
        return table

    @property
    def packs(self) -> Column:
        """The launches before the one that multiplies, of each configuration."""
        packs: Column = self._terms[_LAID.index("packs")]
        return packs

    def seconds(
        self, m: Sizes, n: Sizes, k: Sizes, products: Sizes, *, in_cache: bool = False
    ) -> Column:
        """The predicted time of each configuration, as in `parts`; a size of 0 counts as 1."""
        m, n, k = (np.maximum(size, 1) for size in (m, n, k))
        return total(self.parts(m, n, k, products, in_cache=in_cache))

    def parts(
        self, m: Sizes, n: Sizes, k: Sizes, products: Sizes, *, in_cache: bool = False
    ) -> Terms:
        """The parts of each configuration's predicted time, in rows: see `total`.

        Sizes are positive numbers, or arrays with one for each configuration. With `in_cache` the
        matrices are in a cache before.
        """
        w, units = self.work, self._units
        slab, cache, store, start, packed_a, packed_b, _, *others = self._terms
        step, ends, operand, result, join, waiting = others
        rows, columns = m, n
        if self._swapped is not None:
            rows, columns = np.where(self._swapped, n, m), np.where(self._swapped, m, n)
        computed = np.ceil(columns / w["grain"]) * w["grain"]
        tiles = np.ceil(rows / w["rows"]) * (computed / w["columns"]) * products
        if self._has_many_tiles:
            tiles = np.where(w["tiles"] > 1, np.ceil(tiles / w["tiles"]), tiles)
        slabs = np.ceil(k / w["depth"])
        # Without FILL a compute unit computes whole tiles, as many at a time as are resident. With
        # FILL the slabs are divided among the work-groups.
        groups, longest, steps, sums = tiles, slabs, self._none, self._none
        if len(self._fills):
            groups, longest, steps, sums = self._divided(tiles, slabs)
        shared = tiles / groups  # tiles of a work-group; less than 1 if tiles are split
        whole = np.maximum(shared, 1)
        on_unit = np.ceil(groups / units)  # work-groups of the fullest compute unit
        in_turn = np.ceil(on_unit / w["resident"])
        # If there are more tiles than work-groups, only the last one to two rounds are split.
        joined = np.minimum(np.maximum(groups, tiles), 3 * groups)
        return np.array(
            [
                start,
                products * k * (rows * packed_a + columns * packed_b),
                # A work-group reads the sums of others at its share of the bandwidth.
                (steps > 0) * joined * join + steps * waiting + sums * (join / 2 * units),
                # A unit full of work-groups is limited by throughput, a lone group by its chain of
                # slabs. One part stores a split tile.
                on_unit * (longest * slab + whole * store),
                in_turn * (longest * step + whole * ends),
                products * ((m * k + k * n) * operand + m * n * result) * (not in_cache),
                tiles * slabs * cache / np.minimum(units, groups),
            ]
        )

    def _divided(self, tiles: Column, slabs: Column) -> tuple[Column, Column, Column, Column]:
        """The work-groups, the slabs of one, and the steps and sums that join its tiles."""
        fills, w = self._fills, self.work
        groups, longest = np.array(tiles), np.array(slabs)
        steps, sums = np.zeros((2, len(groups)))
        tiles, slabs = tiles[fills], slabs[fills]
        all_slabs = tiles * slabs
        worthwhile = np.maximum(tiles, np.floor(all_slabs / LEAST_SLABS))
        most = np.minimum(self._units * w["fill"][fills], worthwhile)
        rounds = tiles / most
        split = 2.0 * ((rounds != np.floor(rounds)) & (slabs > 1))
        groups[fills], longest[fills] = most, all_slabs / most
        steps[fills] = sums[fills] = split
        few = np.flatnonzero(tiles < most)
        if len(few):
            at, tiles, slabs = fills[few], tiles[few], slabs[few]
            rules = w["joining"][at], w["fan_in"][at]
            parts, steps[at], sums[at] = few_tiles(tiles, slabs, most[few], *rules)
            groups[at] = np.round(tiles * parts)
            longest[at] = np.ceil(tiles * slabs / groups[at])
        return groups, longest, steps, sums


#: The number of parts of a predicted time. The first ones follow each other: start, packing,
#: joining. The others overlap: throughput, the chain of a work-group, memory, cache.
PARTS, _FOLLOWING = 7, 3


def total(parts: Terms) -> Column:
    """The time of parts; overlapping ones take about as long as the longest.

    Two equal ones take 1.26 times as long as one of them.
    """
    following, overlapping = parts[:_FOLLOWING], parts[_FOLLOWING:]
    seconds: Column = following.sum(0) + np.cbrt((overlapping * overlapping * overlapping).sum(0))
    return seconds


def shares(parts: Terms, seconds: Column) -> Terms:
    """The relative change of the time `seconds` with each of its parts; they add up to 1."""
    overlapped = seconds - parts[:_FOLLOWING].sum(0)
    of_time = parts / seconds
    of_time[_FOLLOWING:] *= np.square(parts[_FOLLOWING:] / overlapped)
    return of_time


def _columns(rows: Sequence[Any], of: type[Any]) -> dict[str, Column]:
    """An array for each field of many dataclasses."""
    names = [field.name for field in fields(of)]
    return {name: np.array([getattr(row, name) for row in rows], float) for name in names}
