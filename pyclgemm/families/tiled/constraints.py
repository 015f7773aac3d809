"""The constraints on configurations of the tiled kernels."""

from __future__ import annotations

import math
from typing import Any

from ...codegen import config as common
from ...problem.precision import is_complex
from .codegen import part_width, slab_copy
from .config import XgemmConfig

#: Registers of a work-item are allocated in multiples of this (see `ALL_REGISTERS`).
_NVIDIA_STEP = 8

#: Caps that every compiler obeys: ptxas raises lower ones to 24.
_REGISTER_CAPS = range(24, 256)

#: Most sums, unrolled multiply-adds and copied elements of a work-item. More would not fit the
#: registers, and compilers would take seconds or longer.
_MOST_SUMS = 256
_MOST_UNROLLED = 2**13
_MOST_COPIED = 2**11


def local_bytes(config: XgemmConfig, dtype: str) -> int:
    """Bytes of local memory of a work-group."""
    return config.local_elements() * common.STAGED_BYTES[dtype]


def _capped_registers(config: XgemmConfig) -> int:
    return math.ceil(config.REGISTERS / _NVIDIA_STEP) * _NVIDIA_STEP * config.work_items


def _copies_by_async(config: XgemmConfig, dtype: str) -> bool:
    widths = (config.VWM, config.VWN)
    in_loads = all(common.STAGED_BYTES[dtype] * width in common.LOAD_BYTES for width in widths)
    return config.STAGES >= 2 and common.is_staged_as_stored(dtype) and in_loads


def _divides(config: XgemmConfig, extent: int, width: int, along_tile: int) -> bool:
    """Whether the work-items can copy a slab with `along_tile` of them side by side."""
    items = config.work_items
    return items % along_tile == 0 and bool(slab_copy(extent, config.KWG, items, width, along_tile))


def _divides_along_k(config: XgemmConfig) -> bool:
    extents = (config.MWG, config.NWG)
    return all(slab_copy(config.KWG, extent, config.work_items, 1) for extent in extents)


def _shares_fragments(config: XgemmConfig) -> bool:
    """Whether at least two work-items can share each fragment."""
    return (
        min(config.LANES_M, config.LANES_N) > 1
        and part_width(config.MWI, config.VWM, config.LANES_N) is not None
        and part_width(config.NWI, config.VWN, config.LANES_M) is not None
    )


def _sub_groups(config: XgemmConfig, dtype: str, traits: Any) -> str:
    sizes = " or ".join(map(str, traits.sub_group_sizes)) or "no size"
    return f"{config.LANES_M} * {config.LANES_N}, the device has them in sub-groups of {sizes}"


_ALONG_K = common.Constraint(
    "a slab whose unit-stride index is k must divide among the work-items",
    lambda c, dtype, traits: _divides_along_k(c),
    "{c.MWG} x {c.KWG} and {c.NWG} x {c.KWG} elements, {c.work_items} work-items",
)

_PACKED_PADDING = common.Constraint(
    "padding must keep the vectors of a packed operand aligned",
    lambda c, dtype, traits: c.PADLD % c.VWM == 0 and c.PADLD % c.VWN == 0,
    "PADLD {c.PADLD} with vectors of {c.VWM} and {c.VWN}",
)

# Constraints on the tiling of both families, in the order in which violations are reported.
_CONSTRAINTS = (
    common.at_most("the sums of a work-item", _MOST_SUMS, lambda c: c.MWI * c.NWI),
    common.at_most(
        "the multiply-adds of a work-item that are unrolled",
        _MOST_UNROLLED,
        lambda c: c.KWI * c.MWI * c.NWI,
    ),
    common.at_most(
        "the elements of a slab that a work-item copies",
        _MOST_COPIED,
        lambda c: max(c.MWG, c.NWG) * c.KWG // c.work_items,
    ),
    common.Constraint(
        "the vectors of a staged row must divide into groups of SWIZZLE",
        lambda c, dtype, traits: (
            c.MWG % (c.SWIZZLE * c.VWM) == 0 and c.NWG % (c.SWIZZLE * c.VWN) == 0
        ),
        "rows of {c.MWG} and {c.NWG} in vectors of {c.VWM} and {c.VWN}, SWIZZLE {c.SWIZZLE}",
    ),
    common.Constraint(
        "copies past the registers need NVIDIA's compute capability 8.0",
        lambda c, dtype, traits: not c.ASYNC or traits.has_async_copy,
        "ASYNC is {c.ASYNC} on {traits.architecture}",
        on_device=True,
    ),
    common.Constraint(
        "copies past the registers move vectors of 4, 8 or 16 bytes as they are stored, into two "
        "stages or more",
        lambda c, dtype, traits: not c.ASYNC or _copies_by_async(c, dtype),
        "{dtype}, STAGES is {c.STAGES}, vectors of {c.VWM} and {c.VWN} elements",
    ),
    common.Constraint(
        "more than two stages need ASYNC",
        lambda c, dtype, traits: c.STAGES <= 2 or c.ASYNC == 1,
        "STAGES is {c.STAGES}, ASYNC is {c.ASYNC}",
    ),
    common.Constraint(
        "two fragments need two stages or more and an even unrolling",
        lambda c, dtype, traits: c.FRAGMENTS == 1 or (c.STAGES >= 2 and c.KWI % 2 == 0),
        "FRAGMENTS is {c.FRAGMENTS}, STAGES is {c.STAGES}, the unrolling is {c.KWI}",
    ),
    common.FENCED_FILL,
    common.Constraint(
        "a cap of registers needs NVIDIA's or AMD's compiler for GPUs",
        lambda c, dtype, traits: not c.REGISTERS or traits.has_register_caps,
        "REGISTERS is {c.REGISTERS} on a {traits.type} of {traits.vendor}",
        on_device=True,
    ),
    common.Constraint(
        f"a cap of registers must be {_REGISTER_CAPS[0]} to {_REGISTER_CAPS[-1]} for a work-item",
        lambda c, dtype, traits: c.REGISTERS <= 0 or c.REGISTERS in _REGISTER_CAPS,
        "REGISTERS is {c.REGISTERS}",
    ),
    common.Constraint(
        # With a declared work-group size the compiler would ensure this.
        "a work-group of capped registers must fit NVIDIA's register file",
        lambda c, dtype, traits: (
            traits.vendor != "nvidia" or _capped_registers(c) <= common.ALL_REGISTERS
        ),
        f"{{c.work_items}} work-items of {{c.REGISTERS}} registers, limit {common.ALL_REGISTERS}",
        on_device=True,
    ),
    common.Constraint(
        "a vector of a complex type must fit OpenCL's 16 components",
        lambda c, dtype, traits: not is_complex(dtype) or max(c.VWM, c.VWN) <= 8,
        "{dtype} with vector widths {c.VWM} and {c.VWN}",
    ),
    common.Constraint(
        "the rows of the tile must divide among work-items and vectors",
        lambda c, dtype, traits: c.MWG % (c.MDIMC * c.VWM) == 0,
        "{c.MWG} rows, {c.MDIMC} work-items, vectors of {c.VWM}",
    ),
    common.Constraint(
        "the columns of the tile must divide among work-items and vectors",
        lambda c, dtype, traits: c.NWG % (c.NDIMC * c.VWN) == 0,
        "{c.NWG} columns, {c.NDIMC} work-items, vectors of {c.VWN}",
    ),
    common.Constraint(
        "the slab's depth must be a multiple of the slices times the unrolling",
        lambda c, dtype, traits: c.KWG % (c.SLICES * c.KWI) == 0,
        "depth {c.KWG}, slices {c.SLICES}, unrolling {c.KWI}",
    ),
    common.Constraint(
        "a slab of A must divide among the work-items that copy it",
        lambda c, dtype, traits: _divides(c, c.MWG, c.VWM, c.MDIMA),
        "{c.KWG} x {c.MWG} elements, {c.work_items} work-items, {c.MDIMA} of them along m, "
        "vectors of {c.VWM}",
    ),
    common.Constraint(
        "a slab of B must divide among the work-items that copy it",
        lambda c, dtype, traits: _divides(c, c.NWG, c.VWN, c.NDIMB),
        "{c.KWG} x {c.NWG} elements, {c.work_items} work-items, {c.NDIMB} of them along n, "
        "vectors of {c.VWN}",
    ),
    _ALONG_K,
    common.Constraint(
        "padding must keep the vectors of a staged slab aligned",
        lambda c, dtype, traits: c.PADA % c.VWM == 0 and c.PADB % c.VWN == 0,
        "PADA {c.PADA} with vectors of {c.VWM}, PADB {c.PADB} with vectors of {c.VWN}",
    ),
    _PACKED_PADDING,
    common.Constraint(
        "the work-items must divide into runs of LANES_M * LANES_N",
        lambda c, dtype, traits: c.MDIMC % c.LANES_M == 0 and c.NDIMC % c.LANES_N == 0,
        "{c.MDIMC} x {c.NDIMC} work-items, runs of {c.LANES_M} x {c.LANES_N}",
    ),
    common.Constraint(
        "passing fragments between work-items needs shuffles within a sub-group of "
        "LANES_M * LANES_N work-items",
        lambda c, dtype, traits: not c.SHUFFLE or c.LANES_M * c.LANES_N in traits.sub_group_sizes,
        _sub_groups,
        on_device=True,
    ),
    common.Constraint(
        "fragments must divide among the work-items that share each (at least two), into whole "
        "vectors or equal parts of one",
        lambda c, dtype, traits: not c.SHUFFLE or _shares_fragments(c),
        "{c.MWI} rows in vectors of {c.VWM} among {c.LANES_N}, {c.NWI} columns in vectors "
        "of {c.VWN} among {c.LANES_M}",
    ),
    common.Constraint(
        "two stages need both operands in local memory",
        lambda c, dtype, traits: c.STAGES == 1 or (c.SA == 1 and c.SB == 1),
        "STAGES is {c.STAGES}, SA is {c.SA}, SB is {c.SB}",
    ),
    common.Constraint(
        # A CPU runs these only on request.
        "the runtime must compile the family correctly; pocl 5.0 miscompiles it",
        lambda c, dtype, traits: not traits.is_pocl_5_0,
        "the device's runtime is {traits.platform} {traits.driver}",
        on_device=True,
    ),
    common.within_work_group(lambda c, traits: c.work_items),
    common.within_local_memory("the staged slabs", lambda c, dtype, traits: local_bytes(c, dtype)),
)

INDIRECT_CONSTRAINTS = tuple(rule for rule in _CONSTRAINTS if rule is not _ALONG_K)
DIRECT_CONSTRAINTS = tuple(rule for rule in _CONSTRAINTS if rule is not _PACKED_PADDING)
