"""Predicted time of a product: the work of a configuration, and a device's time for it.

A family states the work of a configuration (`Work`) in seconds at the device's ceilings: for a slab
of k, for a tile, for packing. `WorkTable` predicts the times of many configurations for given sizes
with about ten array operations. `Coefficients` state how far a family stays below the ceilings;
`pyclgemm.tuning.fit` fits them to measured times.

The terms are those of analytical models in the literature: waves of work-groups over compute units,
the time of a slab alone and among others, filling and draining, bytes through memory and caches,
joining the partial sums of Stream-K, packing. See AMD's Origami (hipBLASLt, tritonBLAS), NVIDIA's
nvMatmulHeuristics, and M. Osama et al., "Stream-K" (PPoPP 2023), section 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.config import VECTOR_BYTES
from ..codegen.element import stored_bytes
from ..device.ceilings import Ceilings, unit_name
from ..device.traits import DeviceTraits
from ..problem.problem import GemmProblem, MatrixLayout

Column = NDArray[np.float64]
Sizes = int | Column


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
    resident: int = 1  # work-groups of a compute unit at a time
    alone: float = 1.0  # factor of the time of multiplying if a work-group is alone on its unit
    rounds: float = 1.0  # latencies of a tile: its first slab, each step that joins sums
    exposed: float = 1.0  # the fraction of a slab's latency that other slabs in flight do not hide
    tiles: int = 1  # of a work-group
    swapped: bool = False  # whether rows of the tile are columns of the result
    local: float = 0.0  # seconds of reading a slab from local memory
    cache: float = 0.0  # seconds of reading a slab from the second-level cache
    loads: float = 0.0  # seconds of a slab's load instructions
    turned: float = 0.0  # seconds of transposing a slab, by storing single elements
    store: float = 0.0  # seconds of writing a tile
    join: float = 0.0  # seconds, of all units together, of writing and reading a tile's sums
    packs: int = 0  # launches before the one that multiplies
    packed_a: float = 0.0  # seconds, of all units together, of packing an element of A
    packed_b: float = 0.0  # and of B
    operand: float = 0.0  # seconds, of all units together, of reading an element of A or B once
    result: float = 0.0  # and of an entry of the result
    descriptors: int = 0  # whether each work-group writes tensor maps first


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
    split: float = 2e-6  # seconds of waiting for the sums of others
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
SUB_GROUP, _LINE, _SECTOR = 32, 128, 32

#: Work-items that hold a row of a fragment of results, two neighbours each (NVIDIA, "Parallel
#: Thread Execution ISA", fragments of mma and wgmma).
FRAGMENT_LANES = 4


def _touched(run: int, grain: int, element: int, aligned: bool) -> float:
    """Grains of memory that a run of bytes touches; the mean if it starts at any element."""
    return math.ceil(run / grain) if aligned else (run - element) / grain + 1


def tile_rounds(slices: int, fill: int) -> int:
    """Latencies of a tile: its first slab, joining slices, and reading and writing partial sums."""
    return 1 + (slices > 1) + 2 * (fill > 0)


@dataclass
class Costs:
    """Seconds of single operations of a product, at the ceilings of a device."""

    problem: GemmProblem
    traits: DeviceTraits
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
        terms = precision.terms * (_COMPLEX if problem.complex else 1)
        memory = 1e-9 / ceilings.global_memory
        return cls(
            problem,
            traits,
            terms * 2e-9 * units / rate,
            _LOADS * 2e-9 * units / ceilings.arithmetic["float32"],
            1e-9 * units / ceilings.local_memory if ceilings.local_memory else 0.0,
            1e-9 * units / ceilings.cache if ceilings.cache else memory * units,
            memory,
        )

    def __post_init__(self) -> None:
        # Bytes of an element of A and B, and of the result.
        self.stored = stored_bytes(self.problem.dtype)
        self.result = stored_bytes(self.problem.result_dtype)

    def work(self, rows: int, columns: int, depth: int, times: float = 1, **terms: Any) -> Work:
        """The work of a slab whose multiply-adds take `times` as long; `terms` are other fields."""
        return Work(
            rows,
            columns,
            depth,
            self.multiply_add * rows * columns * depth * times,
            operand=self.memory_byte * self.stored,
            result=self.memory_byte * self.result * (2 if self.problem.c else 1),
            **terms,
        )

    def is_aligned(self, layout: MatrixLayout) -> bool:
        """Whether rows start at multiples of a vector, and so nearly at whole sectors."""
        return layout.alignment * self.stored >= VECTOR_BYTES

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
        each = math.ceil(width * size / _SECTOR)  # sectors of one work-item
        sectors = runs * min(lanes * each, _touched(run, _SECTOR, size, aligned))
        instructions = elements / (SUB_GROUP * width)
        turns = max(lines, SUB_GROUP * width * size / _LINE)
        issue = instructions * turns * SUB_GROUP * self.load
        return issue, instructions * sectors * _SECTOR * self.cache_byte

    def store(
        self, entries: float, layout: MatrixLayout, lanes: int, width: int, *, step: int = 0
    ) -> float:
        """Seconds of one compute unit to store entries of the result, as in `transfer`."""
        aligned = self.is_aligned(layout)
        return max(self.transfer(entries, self.result, lanes, width, step=step, aligned=aligned))


class WorkTable:
    """Predicts the times of many configurations at once."""

    def __init__(
        self, work: Sequence[Work], coefficients: Sequence[Coefficients], units: int
    ) -> None:
        self._units = float(units)
        self.work = _columns(work, Work)
        self.coefficients = _columns(coefficients, Coefficients)
        self._swapped = self.work["swapped"] > 0
        self._fills = self.work["fill"] > 0

    def seconds(self, m: Sizes, n: Sizes, k: Sizes, products: Sizes) -> Column:
        """The predicted time of each configuration; a size of 0 counts as 1.

        Sizes are numbers, or arrays with a size for each configuration.
        """
        w, c, fills, units = self.work, self.coefficients, self._fills, self._units
        m, n, k = (np.maximum(size, 1) for size in (m, n, k))
        rows, columns = np.where(self._swapped, n, m), np.where(self._swapped, m, n)
        tiles = np.ceil(rows / w["rows"]) * np.ceil(columns / w["columns"]) * products
        tiles = np.ceil(tiles / w["tiles"])
        slabs = np.ceil(k / w["depth"])
        # Without FILL a compute unit computes whole tiles, as many at a time as are resident. With
        # FILL all slabs are divided evenly among the work-groups.
        groups = np.where(
            fills, np.minimum(units * w["fill"], np.maximum(tiles, tiles * slabs / 2)), tiles
        )
        busy = np.minimum(units, groups)
        shared = tiles / groups  # tiles of a work-group; less than 1 if tiles are split
        on_unit = np.ceil(groups / units)  # work-groups of the fullest compute unit
        in_turn = np.ceil(on_unit / w["resident"])
        stored = on_unit * shared
        ends = in_turn * np.maximum(1, shared)
        # A unit full of work-groups is limited by throughput, a lone group by its chain of slabs.
        multiply = w["multiply"] * c["multiply"]
        slab = multiply + sum(w[name] * c[name] for name in ("local", "loads", "turned"))
        latency = c["slab"] * w["exposed"]
        chain = in_turn * shared * slabs * (latency + multiply * w["alone"])
        chain += ends * w["rounds"] * c["tile"]
        store = w["store"] * c["store"] * np.maximum(shared, 1)  # one part stores a split tile
        core = _overlapped(stored * slabs * slab + on_unit * store, chain)
        memory = products * ((m * k + k * n) * w["operand"] + m * n * w["result"])
        cache = tiles * slabs * w["cache"] / busy
        body = _overlapped(core, memory * c["memory"], cache * c["cache"])
        split = fills & (tiles % groups != 0)
        # If there are more tiles than work-groups, only the last one to two rounds are split.
        parts = np.where(split, np.minimum(np.maximum(groups, tiles), 3 * groups), 0)
        packed = products * (m * k * w["packed_a"] + k * n * w["packed_b"])
        total: Column = (
            c["launch"]
            + w["packs"] * c["pack_launch"]
            + packed * c["packing"]
            + w["descriptors"] * c["descriptors"]
            + body
            + parts * w["join"] * c["join"]
            + split * c["split"]
        )
        return total


def _columns(rows: Sequence[Any], of: type[Any]) -> dict[str, Column]:
    """An array for each field of many dataclasses."""
    names = [field.name for field in fields(of)]
    return {name: np.array([getattr(row, name) for row in rows], float) for name in names}


def _overlapped(*seconds: Column) -> Column:
    """About the largest of overlapping times; for two equal times 1.26 times one of them."""
    total: Column = np.cbrt(sum((one * one * one for one in seconds), start=0.0))
    return total
