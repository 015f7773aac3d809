"""Bytes that a product moves at each level of memory: the terms of the roofline model."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ..codegen.config import VECTOR_BYTES
from ..codegen.element import operand_type
from ..codegen.stream_k import Division, tile_count
from ..problem.problem import GemmProblem


@dataclass(frozen=True)
class Traffic:
    """Bytes that a product moves; None is what does not apply to its family.

    Attributes
    ----------
    least : int
        Every operand read once and the result written once: global memory moves no less.
    packing : int
        Added by packing operands: written, and read again.
    tiles : int or None
        Read from global memory or its caches by all tiles together.
    local : int or None
        Read from local memory, entries that work-items of one sub-group share counted once.
    local_by_items : int or None
        Read from local memory, counted for every work-item.
    joining : int
        Added by joining the partial sums of tiles whose k loop is split (FILL): written, and
        read again.
    """

    least: int
    packing: int
    tiles: int | None
    local: int | None
    local_by_items: int | None
    joining: int = 0

    @property
    def global_memory(self) -> int:
        """Read from and written to global memory, if no cache held anything."""
        return self.least + self.packing + self.joining

    @property
    def cache(self) -> int | None:
        """Moved by the kernel that multiplies between its work-groups and the cache they share."""
        return None if self.tiles is None else self.tiles + self.joining


def least_traffic(problem: GemmProblem) -> int:
    """Bytes of every operand read once and of the result written once."""
    m, n, k = problem.m, problem.n, problem.k
    results = np.dtype(problem.result_dtype).itemsize * m * n
    return stored_size(problem) * (m * k + k * n) + results * (2 if problem.c else 1)


def stored_size(problem: GemmProblem) -> int:
    """Bytes of an operand's element as it is stored."""
    return np.dtype(problem.dtype).itemsize


@dataclass(frozen=True)
class TileReads:
    """Reads of all tiles of a product: how many tiles, their slabs, and all depths of all tiles."""

    tiles: int
    slabs: int
    depths: int


def tile_reads(problem: GemmProblem, rows: int, columns: int, depth: int) -> TileReads:
    """The reads of tiles of `rows` x `columns` that take slabs of `depth`."""
    tiles = tile_count(problem.m, problem.n, rows, columns)
    slabs = math.ceil(problem.k / depth)
    return TileReads(tiles, slabs, tiles * slabs * depth)


def joining_bytes(
    problem: GemmProblem, elements: int, tiles: int, slabs: int, division: Division | None
) -> int:
    """Bytes of partial sums, written and read, of `tiles` tiles of `elements` each."""
    if division is None:
        return 0
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    return 2 * elements * element.bytes * division.partial_sums(tiles, max(1, slabs))


def slab_load_bytes(problem: GemmProblem, packed: Collection[str]) -> dict[str, int]:
    """Bytes of the loads of matrix units' slabs: whole vectors, or what the alignment allows."""
    stored = stored_size(problem)
    return {
        f"{name.upper()} from global memory": VECTOR_BYTES
        if name in packed
        else min(VECTOR_BYTES, layout.alignment * stored)
        for name, layout in (("a", problem.a), ("b", problem.b))
    }
