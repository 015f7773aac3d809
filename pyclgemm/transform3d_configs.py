"""Configurations of the fused transforms (L5), and which one a device takes. Pure.

Between the contractions a tensor lies in local memory. Where it is too large for that, or for a
second work-group beside it, several work-groups share a tensor: each keeps a part of the entries of
the second dimension, which is contracted first, and reads the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .device import DeviceTraits
from .matrix_units import sub_group_lanes

#: Bytes that local memory reads and writes at a time: 32 banks of 4.
_BANKS_BYTES = 128

#: By matrix units: elements of a work-group's tensors, about (32 KB), and tensors at most.
_GROUP_ELEMENTS = 4096
_MOST_TENSORS = 8
#: Sub-groups of a work-group.
_SUB_GROUPS = range(8, 3, -1)

#: From this extent on CPUs take their widest vectors.
_WIDE_FROM = 24


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


_Fused = TypeVar("_Fused", FusedConfig, FusedUnitConfig)


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


def _local_bytes(extent: int, element_bytes: int, config: FusedConfig) -> int:
    held = config.TENSORS * held_tensor(extent, element_bytes, config).size
    return (held + extent * matrix_row(extent, element_bytes, config)) * element_bytes


def fused_config(
    extent: int, count: int, element_bytes: int, traits: DeviceTraits
) -> FusedConfig | None:
    """The configuration for tensors of an extent; None if local memory does not hold any part.

    Parameters
    ----------
    extent, count : int
        K, and how many tensors there are.
    element_bytes : int
        Bytes of an element.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> fused_config(16, 2048, 4, typical_traits("gfx1100"))
    FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=2)
    >>> fused_config(10, 2048, 8, typical_traits("x86-64-v4"))
    FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=1, ROWS=1)
    """
    if traits.type == "cpu":
        # Vectors of 32 bytes were as fast as wider ones: the last of a row overlaps less.
        vector_bytes = min(traits.vector_bytes, 32 if extent < _WIDE_FROM else 64)
        width = min(vector_bytes // element_bytes, 1 << (extent.bit_length() - 1))
        return _divided(FusedConfig(width, 1, 1, 1, 1), extent, element_bytes, traits)
    width = math.gcd(extent, 16 // element_bytes)
    units = extent * math.ceil(extent / width)
    most = min(256, traits.max_work_group_size)
    lanes = sub_group_lanes(traits)

    def config(tensors: int) -> FusedConfig:
        items = min(most, math.ceil(tensors * units / lanes) * lanes)
        return FusedConfig(width, tensors, 1, items, 2 if extent % 2 == 0 else 1)

    def idle(tensors: int) -> float:
        items = config(tensors).ITEMS
        return math.ceil(tensors * units / items) * items / (tensors * units)

    fitting = [
        tensors
        for tensors in range(1, _share(count, traits) + 1)
        if tensors == 1
        or (
            tensors * units <= most
            and 4 * _local_bytes(extent, element_bytes, config(tensors))
            <= traits.local_memory_bytes
        )
    ]
    enough = [tensors for tensors in fitting if tensors * units >= most // 2] or fitting[-1:]
    return _divided(config(min(enough, key=idle)), extent, element_bytes, traits)


def _share(count: int, traits: DeviceTraits) -> int:
    """Tensors that a work-group may take while every compute unit has work."""
    return max(1, count // traits.compute_units)


def _divided(
    config: FusedConfig, extent: int, element_bytes: int, traits: DeviceTraits
) -> FusedConfig | None:
    """The same in parts that local memory holds; None if it does not hold the smallest."""
    most = extent if config.TENSORS == 1 else 1
    return _fewest_parts(
        [
            (divided, _local_bytes(extent, element_bytes, divided))
            for divided in (replace(config, PARTS=parts) for parts in range(1, most + 1))
            if math.ceil(extent / divided.PARTS) % config.ROWS == 0
        ],
        traits,
    )


def _fewest_parts(configs: Sequence[tuple[_Fused, int]], traits: DeviceTraits) -> _Fused | None:
    """The first configuration that fits, of those by rising PARTS with their bytes.

    On a GPU two work-groups that run side by side hide each other's waits: half of the memory may
    be worth a second part, but no third, for each part reads the whole tensor.
    """
    groups = 1 if traits.type == "cpu" else 2
    for config, local_bytes in configs:
        if groups >= config.PARTS and groups * local_bytes <= traits.local_memory_bytes:
            return config
    return next((one for one, used in configs if used <= traits.local_memory_bytes), None)


# --------------------------------------------------------------------------------------
# By matrix units
# --------------------------------------------------------------------------------------


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


def _sub_groups(slices: int) -> int:
    """So many sub-groups that the fewest of them idle while the last slices are multiplied.

    Examples
    --------
    >>> [_sub_groups(slices) for slices in (16, 20, 25)]
    [8, 5, 5]
    """
    return min(_SUB_GROUPS, key=lambda groups: math.ceil(slices / groups) * groups)


#: The fastest on an H100, of 2048 tensors (``benchmarks/transform3d.py``).
_MEASURED = {
    8: FusedUnitConfig(8, 4, TENSORS=4, PARTS=1, SUBGROUPS=16, SLICES=1),
    10: FusedUnitConfig(16, 4, TENSORS=8, PARTS=1, SUBGROUPS=16, SLICES=1),
    12: FusedUnitConfig(8, 4, TENSORS=1, PARTS=1, SUBGROUPS=4, SLICES=1),
    16: FusedUnitConfig(16, 16, TENSORS=1, PARTS=1, SUBGROUPS=8, SLICES=2),
}


def fused_unit_config(extent: int, count: int, traits: DeviceTraits) -> FusedUnitConfig | None:
    """The configuration for float64 tensors of an extent; None if local memory is too small.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> fused_unit_config(16, 2048, typical_traits("sm_90"))
    FusedUnitConfig(UNIT_M=16, UNIT_K=16, TENSORS=1, PARTS=1, SUBGROUPS=8, SLICES=2, STAGES=1)
    """
    depths, tiles = math.ceil(extent / 4), math.ceil(extent / 8)
    has_large = int(traits.architecture.removeprefix("sm_")) >= 90
    unit_m = 16 if has_large and tiles % 2 == 0 else 8
    unit_k = 4 * math.gcd(depths, 4) if unit_m == 16 else 4
    slices = max(1, min(4, 16 // (depths * tiles)))
    wanted = max(1, min(_MOST_TENSORS, round(_GROUP_ELEMENTS / extent**3)))
    base = FusedUnitConfig(unit_m, unit_k, wanted, 1, _sub_groups(wanted * extent), slices)
    if has_large:
        base = _MEASURED.get(extent, base)

    def config(tensors: int, parts: int) -> FusedUnitConfig:
        return replace(base, TENSORS=tensors, PARTS=parts)

    def local_bytes(one: FusedUnitConfig) -> int:
        return 8 * one.TENSORS * extent * unit_tiles(extent, one).slice

    tensors = min(base.TENSORS, _share(count, traits))
    while tensors > 1 and 2 * local_bytes(config(tensors, 1)) > traits.local_memory_bytes:
        tensors -= 1
    most = 8 * tiles // base.UNIT_M if tensors == 1 else 1
    configs = [config(tensors, parts) for parts in range(1, most + 1)]
    return _fewest_parts([(one, local_bytes(one)) for one in configs], traits)
