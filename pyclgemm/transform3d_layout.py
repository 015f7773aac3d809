"""How the tensors of a fused transform (L5) lie in local memory, by its configuration. Pure.

Between the contractions a tensor lies in local memory. Where it is too large for that, or for a
second work-group beside it, several work-groups share a tensor: each keeps a part of the entries of
the second dimension, which is contracted first, and reads the whole tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Bytes that local memory reads and writes at a time: 32 banks of 4.
_BANKS_BYTES = 128


@dataclass(frozen=True)
class FusedConfig:
    """A fused transform without matrix units.

    Attributes
    ----------
    VW : int
        Elements of a vector.
    TENSORS : int
        Tensors of a work-group.
    PARTS : int
        Work-groups that share a tensor; above 1 only where TENSORS is 1.
    ITEMS : int
        Work-items of a group.
    ROWS : int
        Rows that a work-item contracts at a time, for which it reads the matrix once.
    """

    VW: int
    TENSORS: int
    PARTS: int
    ITEMS: int
    ROWS: int


@dataclass(frozen=True)
class FusedUnitConfig:
    """A fused transform by NVIDIA's matrix units for float64.

    Attributes
    ----------
    UNIT_M, UNIT_K : int
        Rows and depth of an instruction: 8 and 4, or 16 and 4, 8 or 16.
    TENSORS : int
        Tensors of a work-group.
    PARTS : int
        Work-groups that share a tensor; above 1 only where TENSORS is 1.
    SUBGROUPS : int
        Sub-groups of a work-group.
    SLICES : int
        Slices of a tensor that a sub-group loads before it multiplies.
    STAGES : int
        2 loads the next slices before those are multiplied that were loaded before; 1 does not.
    """

    UNIT_M: int
    UNIT_K: int
    TENSORS: int
    PARTS: int
    SUBGROUPS: int
    SLICES: int
    STAGES: int = 1


@dataclass(frozen=True)
class HeldTensor:
    """How a tensor, or a part of it, lies in local memory; in elements.

    Attributes
    ----------
    rows : int
        Entries of the second dimension that are held.
    row, slice : int
        From an entry of the second dimension to the next, and of the first.
    size : int
        Of all.
    """

    rows: int
    row: int
    slice: int
    size: int


def held_tensor(extent: int, element_bytes: int, config: FusedConfig) -> HeldTensor:
    """Lay a tensor out for vectors, so that neighbouring work-items meet in few banks.

    Rows are an odd number of vectors apart: work-items that read a row each then read from all
    banks. A slice is padded so that the vectors of a row of the next one go on where those of the
    row before ended.

    Examples
    --------
    >>> held_tensor(16, 8, FusedConfig(VW=2, TENSORS=1, PARTS=1, ITEMS=128, ROWS=2))
    HeldTensor(rows=16, row=18, slice=288, size=4608)
    """
    width = config.VW
    vectors = math.ceil(extent / width)
    rows = math.ceil(extent / config.PARTS)
    if config.ITEMS == 1:  # on a CPU there are no banks; vectors overlap within a row
        return HeldTensor(rows, extent, rows * extent, extent * rows * extent)
    row = width * (vectors | 1)
    banks = max(1, _BANKS_BYTES // (width * element_bytes))
    slice_vectors = rows * row // width
    if vectors % banks:
        slice_vectors += (vectors - slice_vectors) % banks
    return HeldTensor(rows, row, width * slice_vectors, extent * width * slice_vectors)


def matrix_row(extent: int, element_bytes: int, config: FusedConfig) -> int:
    """Elements from a row of the matrix to the next in local memory: whole vectors of 16 bytes."""
    width = max(config.VW, 16 // element_bytes)
    return math.ceil(max(extent, config.PARTS * math.ceil(extent / config.PARTS)) / width) * width


@dataclass(frozen=True)
class UnitTiles:
    """How many fragments a K x K matrix is, and how a tensor lies in local memory.

    Attributes
    ----------
    depths : int
        Steps of depth 4.
    row_tiles : int
        Tiles of 8 rows, as the instruction counts them, of all that are held by a group.
    column_tiles : int
        Tiles of 8 columns.
    rows : int
        Entries of the second dimension that are held.
    slice : int
        Elements from an entry of the first dimension to the next in local memory.
    """

    depths: int
    row_tiles: int
    column_tiles: int
    rows: int
    slice: int


def unit_tiles(extent: int, config: FusedUnitConfig) -> UnitTiles:
    """Count the fragments of a configuration.

    The slices are padded to 4 or 12 elements beyond a multiple of 16, so that the lanes of a
    fragment, which read 4 neighbours of 4 slices at a time, meet in no bank.

    Examples
    --------
    >>> unit_tiles(10, FusedUnitConfig(16, 4, TENSORS=4, PARTS=1, SUBGROUPS=8, SLICES=2))
    UnitTiles(depths=3, row_tiles=2, column_tiles=2, rows=10, slice=100)
    """
    steps = config.UNIT_K // 4
    depths = math.ceil(math.ceil(extent / 4) / steps) * steps
    tile = config.UNIT_M // 8
    tiles = math.ceil(math.ceil(extent / 8) / tile / config.PARTS)
    row_tiles = tiles * tile
    rows = extent if config.PARTS == 1 else 8 * row_tiles
    size = rows * extent
    size += min((wanted - size) % 16 for wanted in (4, 12))
    column_tiles = math.ceil(max(extent / 8, depths / 2))
    return UnitTiles(depths, row_tiles, column_tiles, rows, size)


def local_bytes(extent: int, element_bytes: int, config: FusedConfig | FusedUnitConfig) -> int:
    """Bytes of local memory that a work-group takes."""
    if isinstance(config, FusedUnitConfig):
        return element_bytes * config.TENSORS * extent * unit_tiles(extent, config).slice
    held = config.TENSORS * held_tensor(extent, element_bytes, config).size
    return (held + extent * matrix_row(extent, element_bytes, config)) * element_bytes
