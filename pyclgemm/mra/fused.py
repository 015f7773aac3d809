"""Configurations of fused transforms (L5): their use of local memory, and their choice.

A fused kernel keeps a tensor in local memory between the contractions. If the tensor does not fit,
or if two work-groups would not fit side by side, it is split among PARTS work-groups. Each of them
reads the whole tensor, contracts the second dimension first, and holds a part of its entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from ..codegen.config import VECTOR_BYTES, Bounded
from ..codegen.matrix_units import sub_group_lanes
from ..device.traits import DeviceTraits
from ..problem.bounds import VECTOR_WIDTHS, out_of_bounds, up_to

#: Bytes that local memory reads or writes at a time: 32 banks of 4 bytes.
_BANKS_BYTES = 128

#: Work-items of a sub-group of NVIDIA's GPUs; `FusedUnitConfig` is for these alone.
NVIDIA_LANES = 32

#: With matrix units: the elements that a work-group takes, about (32 KB), and its most tensors.
_GROUP_ELEMENTS = 4096
_MOST_TENSORS = 8


@dataclass(frozen=True)
class FusedConfig(Bounded):
    """A fused transform without matrix units."""

    VW: Annotated[int, VECTOR_WIDTHS]  # elements of a vector
    TENSORS: Annotated[int, up_to(1024)]  # tensors of a work-group
    PARTS: Annotated[int, up_to(1024)]  # work-groups that split a tensor, if TENSORS is 1
    ITEMS: Annotated[int, up_to(2**14)]  # work-items of a work-group
    ROWS: Annotated[int, up_to(32)]  # rows that a work-item contracts per read of the matrix


@dataclass(frozen=True)
class FusedUnitConfig(Bounded):
    """A fused transform with NVIDIA's matrix units for float64."""

    UNIT_M: Annotated[int, (8, 16)]  # rows of an instruction
    UNIT_K: Annotated[int, (4, 8, 16)]  # depth of an instruction: with 8 rows only 4
    TENSORS: Annotated[int, up_to(1024)]  # tensors of a work-group
    PARTS: Annotated[int, up_to(1024)]  # work-groups that split a tensor, if TENSORS is 1
    SUBGROUPS: Annotated[int, up_to(64)]  # sub-groups of a work-group
    SLICES: Annotated[int, up_to(16)]  # slices that a sub-group loads before it multiplies them
    STAGES: Annotated[int, (1, 2)] = 1  # 2: slices are loaded while others are multiplied


AnyFused = FusedConfig | FusedUnitConfig
_Fused = TypeVar("_Fused", FusedConfig, FusedUnitConfig)

#: The fastest configurations for 2048 tensors on an H100 (``benchmarks/transform3d.py``), by K.
_MEASURED_FLOAT32 = {
    8: FusedConfig(4, TENSORS=4, PARTS=1, ITEMS=64, ROWS=4),
    10: FusedConfig(2, TENSORS=2, PARTS=1, ITEMS=128, ROWS=2),
    16: FusedConfig(4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=4),
    20: FusedConfig(4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=4),
}
_MEASURED_FLOAT64 = {
    6: FusedUnitConfig(16, 4, TENSORS=9, PARTS=1, SUBGROUPS=16, SLICES=1),
    8: FusedUnitConfig(8, 4, TENSORS=4, PARTS=1, SUBGROUPS=16, SLICES=1),
    10: FusedUnitConfig(16, 4, TENSORS=2, PARTS=1, SUBGROUPS=4, SLICES=1),
    12: FusedUnitConfig(16, 4, TENSORS=2, PARTS=1, SUBGROUPS=8, SLICES=1),
    16: FusedUnitConfig(8, 4, TENSORS=1, PARTS=1, SUBGROUPS=8, SLICES=1, STAGES=2),
    20: FusedUnitConfig(16, 4, TENSORS=1, PARTS=1, SUBGROUPS=4, SLICES=1),
}


@dataclass
class HeldTensor:
    """How a tensor, or a part of it, lies in local memory together with the matrix; in elements.

    The vectors of neighbouring work-items are in different banks.
    """

    extent: int
    element_bytes: int
    config: FusedConfig

    def __post_init__(self) -> None:
        extent, size, config = self.extent, self.element_bytes, self.config
        width = config.VW
        vectors = math.ceil(extent / width)
        self.rows = math.ceil(extent / config.PARTS)  # entries of the second dimension
        # The distance of entries of the second dimension, and of entries of the first. A CPU has no
        # banks, and the last two vectors of a row may overlap.
        self.row, self.slice = extent, self.rows * extent
        if config.ITEMS > 1:
            # With an odd number of vectors, work-items that each read a row use all banks.
            self.row = width * (vectors | 1)
            slice_vectors = self.rows * (vectors | 1)
            # The first row of a slice uses the banks after those of the previous slice's last row.
            banks = max(1, _BANKS_BYTES // (width * size))
            if vectors % banks:
                slice_vectors += (vectors - slice_vectors) % banks
            self.slice = width * slice_vectors
        self.size = extent * self.slice
        # The distance of rows of the matrix is a whole number of 16-byte vectors.
        wide = max(width, VECTOR_BYTES // size)
        self.matrix_row = math.ceil(config.PARTS * self.rows / wide) * wide
        self.local_bytes = size * (config.TENSORS * self.size + extent * self.matrix_row)


@dataclass
class UnitTiles:
    """The fragments of a K x K matrix, and the layout of a float64 tensor in local memory."""

    extent: int
    config: FusedUnitConfig

    def __post_init__(self) -> None:
        extent, config = self.extent, self.config
        steps, tile = config.UNIT_K // 4, config.UNIT_M // 8
        self.depths = math.ceil(math.ceil(extent / 4) / steps) * steps  # steps of depth 4
        # Tiles of 8 rows that a work-group holds, in whole instructions; tiles of 8 columns.
        self.row_tiles = math.ceil(math.ceil(extent / 8) / tile / config.PARTS) * tile
        self.column_tiles = math.ceil(max(extent / 8, self.depths / 2))
        # Entries of the second dimension that are held.
        self.rows = extent if config.PARTS == 1 else 8 * self.row_tiles
        # The distance of entries of the first dimension. The lanes of a fragment read 4 neighbours
        # of 4 slices at a time, all from different banks.
        size = self.rows * extent
        self.slice = size + min((wanted - size) % 16 for wanted in (4, 12))
        self.local_bytes = 8 * config.TENSORS * extent * self.slice


def local_bytes(extent: int, element_bytes: int, config: AnyFused) -> int:
    """Bytes of local memory of a work-group."""
    if isinstance(config, FusedUnitConfig):
        return UnitTiles(extent, config).local_bytes
    return HeldTensor(extent, element_bytes, config).local_bytes


def fused_violations(
    extent: int, element_bytes: int, config: AnyFused, traits: DeviceTraits
) -> list[str]:
    """Every constraint that a configuration breaks; only the bounds if one of them is broken."""
    if broken_bounds := out_of_bounds(vars(config), config.bounds()):
        return broken_bounds
    items = config.ITEMS if isinstance(config, FusedConfig) else NVIDIA_LANES * config.SUBGROUPS
    most_items, most_bytes = traits.max_work_group_size, traits.local_memory_bytes
    used = local_bytes(extent, element_bytes, config)
    conditions = [
        (
            1 in (config.TENSORS, config.PARTS),
            f"TENSORS is {config.TENSORS} and PARTS is {config.PARTS}: one of them must be 1",
        ),
        (
            items <= most_items,
            f"a work-group has {items} work-items, and the device allows {most_items}",
        ),
        (
            used <= most_bytes,
            f"a work-group takes {used} bytes of local memory, and the device has {most_bytes}",
        ),
    ]
    if isinstance(config, FusedConfig):
        width, rows = config.VW, math.ceil(extent / config.PARTS)
        size = width * element_bytes
        # On CPUs a work-group is one work-item; vectors may have any address, and may overlap.
        on_cpu = items == 1
        conditions += [
            (width <= extent, f"VW is {width}, more than K = {extent}"),
            (on_cpu or extent % width == 0, f"VW must divide K: VW is {width}, K is {extent}"),
            (
                on_cpu or size <= VECTOR_BYTES,
                f"a vector has {size} bytes, more than {VECTOR_BYTES}",
            ),
            (
                extent * rows % config.ROWS == 0,
                f"ROWS must divide K * {rows}, the rows of a tensor that a work-group has: "
                f"ROWS is {config.ROWS}, K is {extent}",
            ),
        ]
    return [broken for holds, broken in conditions if not holds]


def fused_config(
    extent: int, count: int, element_bytes: int, traits: DeviceTraits
) -> FusedConfig | None:
    """The configuration for `count` tensors; None if local memory cannot hold the smallest part."""
    if traits.type == "cpu":
        # For small K vectors of 32 bytes were as fast as wider ones, as the last two vectors of a
        # row overlap less.
        vector_bytes = min(traits.vector_bytes, 32 if extent < 24 else 64)
        width = min(vector_bytes // element_bytes, 1 << (extent.bit_length() - 1))
        return _split(FusedConfig(width, 1, 1, 1, 1), extent, extent, element_bytes, traits)
    most_tensors = max(1, count // traits.compute_units)  # so that every unit has work
    if traits.architecture == "sm_90" and element_bytes == 4 and extent in _MEASURED_FLOAT32:
        measured = _MEASURED_FLOAT32[extent]
        tensors = min(measured.TENSORS, most_tensors)
        return _split(replace(measured, TENSORS=tensors), extent, extent, element_bytes, traits)
    width = math.gcd(extent, VECTOR_BYTES // element_bytes)
    vectors = extent * math.ceil(extent / width)  # of a slice, one for each work-item
    most_items = min(256, traits.max_work_group_size)
    lanes = sub_group_lanes(traits)

    def config(tensors: int) -> FusedConfig:
        items = min(most_items, math.ceil(tensors * vectors / lanes) * lanes)
        return FusedConfig(width, tensors, 1, items, 2 if extent % 2 == 0 else 1)

    def fits(tensors: int) -> bool:
        used = local_bytes(extent, element_bytes, config(tensors))
        return tensors * vectors <= most_items and 4 * used <= traits.local_memory_bytes

    def idle(tensors: int) -> float:
        items = config(tensors).ITEMS
        return math.ceil(tensors * vectors / items) * items / (tensors * vectors)

    fitting = [1, *filter(fits, range(2, most_tensors + 1))]
    enough = [tensors for tensors in fitting if tensors * vectors >= most_items // 2]
    tensors = min(enough or fitting[-1:], key=idle)
    return _split(config(tensors), extent, extent, element_bytes, traits)


def fused_unit_config(extent: int, count: int, traits: DeviceTraits) -> FusedUnitConfig | None:
    """The configuration for `count` tensors of float64; None if local memory is too small."""
    depths, tiles = math.ceil(extent / 4), math.ceil(extent / 8)
    has_large = int(traits.architecture.removeprefix("sm_")) >= 90
    unit_m = 16 if has_large and tiles % 2 == 0 else 8
    unit_k = 4 * math.gcd(depths, 4) if unit_m == 16 else 4
    slices = max(1, min(4, 16 // (depths * tiles)))
    wanted = max(1, min(_MOST_TENSORS, round(_GROUP_ELEMENTS / extent**3)))
    # As few sub-groups as possible are idle while the last slices are multiplied.
    rows = wanted * extent
    sub_groups = min(range(8, 3, -1), key=lambda groups: math.ceil(rows / groups) * groups)
    base = FusedUnitConfig(unit_m, unit_k, wanted, 1, sub_groups, slices)
    measured = _MEASURED_FLOAT64.get(extent, base)
    measured_bytes = local_bytes(extent, 8, replace(measured, TENSORS=1))
    if has_large and measured_bytes <= traits.local_memory_bytes:
        base = measured

    tensors = min(base.TENSORS, max(1, count // traits.compute_units))
    half = traits.local_memory_bytes // 2
    while tensors > 1 and local_bytes(extent, 8, replace(base, TENSORS=tensors)) > half:
        tensors -= 1
    most_parts = 8 * tiles // base.UNIT_M
    return _split(replace(base, TENSORS=tensors), most_parts, extent, 8, traits)


def _split(
    base: _Fused, most_parts: int, extent: int, element_bytes: int, traits: DeviceTraits
) -> _Fused | None:
    """The configuration with the fewest parts that fit local memory; None if none fits."""
    # On a GPU two work-groups that run side by side hide each other's waits. Two parts that each
    # fit half of the memory are therefore preferred to a whole tensor that fits alone. Three parts
    # are not, as each part reads the whole tensor.
    groups = 1 if traits.type == "cpu" else 2
    fitting = []
    for parts in range(1, (most_parts if base.TENSORS == 1 else 1) + 1):
        config = replace(base, PARTS=parts)
        if isinstance(config, FusedConfig) and math.ceil(extent / parts) % config.ROWS:
            continue
        used = local_bytes(extent, element_bytes, config)
        if groups >= parts and groups * used <= traits.local_memory_bytes:
            return config
        if used <= traits.local_memory_bytes:
            fitting.append(config)
    return next(iter(fitting), None)
