"""What makes a configuration of the tiled kernels valid."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...codegen.config import (
    ALL_REGISTERS,
    FENCED_FILL,
    LOAD_BYTES,
    STAGED_BYTES,
    Constraint,
    at_most,
    is_staged_as_stored,
    within_local_memory,
    within_work_group,
)
from ...device.traits import DeviceTraits, has_async_copy, has_register_caps, miscompiles_tiles
from ...problem.precision import is_complex
from .config import XgemmConfig
from .slab import part_width, slab_copy


def on_tiles(
    rule: str,
    holds: Callable[[XgemmConfig, str, DeviceTraits | None], bool],
    values: Callable[[XgemmConfig, str, DeviceTraits | None], str],
) -> Constraint:
    """A condition on the tiling that both families share."""
    return Constraint(
        rule,
        lambda config, dtype, traits: holds(config.tiles, dtype, traits),
        lambda config, dtype, traits: values(config.tiles, dtype, traits),
    )


#: The steps in which a warp takes registers (see `ALL_REGISTERS`).
_NVIDIA_STEP = 8

#: Caps that no compiler raises or ignores: ptxas takes 24 where it is given less.
_REGISTER_CAPS = range(24, 256)

#: Sums, multiply-adds in a row, and copied elements of a work-item: no registers hold as many, and
#: compilers take seconds and more over the code.
_MOST_SUMS = 256
_MOST_UNROLLED = 2**13
_MOST_COPIED = 2**11


def local_bytes(config: XgemmConfig, dtype: str) -> int:
    """Bytes of local memory of a work-group."""
    return config.local_elements() * STAGED_BYTES[dtype]


def capped_registers(config: XgemmConfig) -> int:
    """Registers of a work-group whose work-items take as many as the cap allows."""
    return math.ceil(config.REGISTERS / _NVIDIA_STEP) * _NVIDIA_STEP * config.work_items


_FIRST: tuple[Constraint, ...] = (
    at_most("the sums of a work-item", _MOST_SUMS, lambda c: c.tiles.MWI * c.tiles.NWI),
    at_most(
        "the multiply-adds of a work-item that are unrolled",
        _MOST_UNROLLED,
        lambda c: c.tiles.KWI * c.tiles.MWI * c.tiles.NWI,
    ),
    at_most(
        "the elements of a slab that a work-item copies",
        _MOST_COPIED,
        lambda c: max(c.tiles.MWG, c.tiles.NWG) * c.tiles.KWG // c.tiles.work_items,
    ),
    on_tiles(
        "the vectors of a staged row must divide into groups of SWIZZLE",
        lambda c, dtype, traits: (
            c.MWG % (c.SWIZZLE * c.VWM) == 0 and c.NWG % (c.SWIZZLE * c.VWN) == 0
        ),
        lambda c, dtype, traits: (
            f"rows of {c.MWG} and {c.NWG} in vectors of {c.VWM} and {c.VWN}, SWIZZLE {c.SWIZZLE}"
        ),
    ),
    on_tiles(
        "copies past the registers need NVIDIA's compute capability 8.0",
        lambda c, dtype, traits: not c.ASYNC or traits is None or has_async_copy(traits),
        lambda c, dtype, traits: f"ASYNC is {c.ASYNC} on {traits.architecture if traits else '-'}",
    ),
    on_tiles(
        "copies past the registers move vectors of 4, 8 or 16 bytes as they are stored, into two "
        "stages or more",
        lambda c, dtype, traits: (
            not c.ASYNC
            or (
                c.STAGES >= 2
                and is_staged_as_stored(dtype)
                and all(STAGED_BYTES[dtype] * width in LOAD_BYTES for width in (c.VWM, c.VWN))
            )
        ),
        lambda c, dtype, traits: (
            f"{dtype}, STAGES is {c.STAGES}, vectors of {c.VWM} and {c.VWN} elements"
        ),
    ),
    on_tiles(
        "more than two stages need ASYNC",
        lambda c, dtype, traits: c.STAGES <= 2 or c.ASYNC == 1,
        lambda c, dtype, traits: f"STAGES is {c.STAGES}, ASYNC is {c.ASYNC}",
    ),
    on_tiles(
        "two fragments need two stages or more and an even unrolling",
        lambda c, dtype, traits: c.FRAGMENTS == 1 or (c.STAGES >= 2 and c.KWI % 2 == 0),
        lambda c, dtype, traits: (
            f"FRAGMENTS is {c.FRAGMENTS}, STAGES is {c.STAGES}, the unrolling is {c.KWI}"
        ),
    ),
    FENCED_FILL,
    on_tiles(
        "a cap of registers needs NVIDIA's or AMD's compiler for GPUs",
        lambda c, dtype, traits: not c.REGISTERS or traits is None or has_register_caps(traits),
        lambda c, dtype, traits: (
            f"REGISTERS is {c.REGISTERS} on a {traits.type} of {traits.vendor}"
            if traits
            else "no device"
        ),
    ),
    on_tiles(
        f"a cap of registers must be {_REGISTER_CAPS[0]} to {_REGISTER_CAPS[-1]} for a work-item",
        lambda c, dtype, traits: c.REGISTERS <= 0 or c.REGISTERS in _REGISTER_CAPS,
        lambda c, dtype, traits: f"REGISTERS is {c.REGISTERS}",
    ),
    on_tiles(
        # With a stated size the compiler would see to it.
        "a work-group of capped registers must fit NVIDIA's register file",
        lambda c, dtype, traits: (
            traits is None or traits.vendor != "nvidia" or capped_registers(c) <= ALL_REGISTERS
        ),
        lambda c, dtype, traits: (
            f"{c.work_items} work-items of {c.REGISTERS} registers, limit {ALL_REGISTERS}"
        ),
    ),
    on_tiles(
        "a vector of a complex type must fit OpenCL's 16 components",
        lambda c, dtype, traits: not is_complex(dtype) or max(c.VWM, c.VWN) <= 8,
        lambda c, dtype, traits: f"{dtype} with vector widths {c.VWM} and {c.VWN}",
    ),
    on_tiles(
        "the rows of the tile must divide among work-items and vectors",
        lambda c, dtype, traits: c.MWG % (c.MDIMC * c.VWM) == 0,
        lambda c, dtype, traits: f"{c.MWG} rows, {c.MDIMC} work-items, vectors of {c.VWM}",
    ),
    on_tiles(
        "the columns of the tile must divide among work-items and vectors",
        lambda c, dtype, traits: c.NWG % (c.NDIMC * c.VWN) == 0,
        lambda c, dtype, traits: f"{c.NWG} columns, {c.NDIMC} work-items, vectors of {c.VWN}",
    ),
    on_tiles(
        "the slab's depth must be a multiple of the slices times the unrolling",
        lambda c, dtype, traits: c.KWG % (c.SLICES * c.KWI) == 0,
        lambda c, dtype, traits: f"depth {c.KWG}, slices {c.SLICES}, unrolling {c.KWI}",
    ),
    on_tiles(
        "a slab of A must divide among the work-items that copy it",
        lambda c, dtype, traits: (
            c.work_items % c.MDIMA == 0
            and slab_copy(c.MWG, c.KWG, c.work_items, c.VWM, c.MDIMA) is not None
        ),
        lambda c, dtype, traits: (
            f"{c.KWG} x {c.MWG} elements, {c.work_items} work-items, {c.MDIMA} of them along m, "
            f"vectors of {c.VWM}"
        ),
    ),
    on_tiles(
        "a slab of B must divide among the work-items that copy it",
        lambda c, dtype, traits: (
            c.work_items % c.NDIMB == 0
            and slab_copy(c.NWG, c.KWG, c.work_items, c.VWN, c.NDIMB) is not None
        ),
        lambda c, dtype, traits: (
            f"{c.KWG} x {c.NWG} elements, {c.work_items} work-items, {c.NDIMB} of them along n, "
            f"vectors of {c.VWN}"
        ),
    ),
)

_MIDDLE: tuple[Constraint, ...] = (
    on_tiles(
        "padding must keep the vectors of a staged slab aligned",
        lambda c, dtype, traits: c.PADA % c.VWM == 0 and c.PADB % c.VWN == 0,
        lambda c, dtype, traits: (
            f"PADA {c.PADA} with vectors of {c.VWM}, PADB {c.PADB} with vectors of {c.VWN}"
        ),
    ),
)

_LAST: tuple[Constraint, ...] = (
    on_tiles(
        "the work-items must divide into runs of LANES_M * LANES_N",
        lambda c, dtype, traits: c.MDIMC % c.LANES_M == 0 and c.NDIMC % c.LANES_N == 0,
        lambda c, dtype, traits: (
            f"{c.MDIMC} x {c.NDIMC} work-items, runs of {c.LANES_M} x {c.LANES_N}"
        ),
    ),
    on_tiles(
        "passing fragments between work-items needs shuffles within a sub-group of "
        "LANES_M * LANES_N work-items",
        lambda c, dtype, traits: (
            not c.SHUFFLE or traits is None or c.LANES_M * c.LANES_N in traits.sub_group_sizes
        ),
        lambda c, dtype, traits: (
            f"{c.LANES_M} * {c.LANES_N}, the device has them in sub-groups of "
            f"{' or '.join(map(str, traits.sub_group_sizes)) or 'no size'}"
            if traits
            else "no device"
        ),
    ),
    on_tiles(
        "fragments must divide among the two work-items or more that share each, into whole "
        "vectors or equal shares of one",
        lambda c, dtype, traits: (
            not c.SHUFFLE
            or (
                min(c.LANES_M, c.LANES_N) > 1
                and part_width(c.MWI, c.VWM, c.LANES_N) is not None
                and part_width(c.NWI, c.VWN, c.LANES_M) is not None
            )
        ),
        lambda c, dtype, traits: (
            f"{c.MWI} rows in vectors of {c.VWM} among {c.LANES_N}, {c.NWI} columns in vectors "
            f"of {c.VWN} among {c.LANES_M}"
        ),
    ),
    on_tiles(
        "two stages need both operands in local memory",
        lambda c, dtype, traits: c.STAGES == 1 or (c.SA == 1 and c.SB == 1),
        lambda c, dtype, traits: f"STAGES is {c.STAGES}, SA is {c.SA}, SB is {c.SB}",
    ),
    Constraint(
        # A CPU runs these only where a caller asks for them.
        "the runtime must compile the family rightly; pocl 5.0 does not compile this one so",
        lambda config, dtype, traits: traits is None or not miscompiles_tiles(traits),
        lambda config, dtype, traits: (
            f"the device's runtime is {traits.platform} {traits.driver}" if traits else "no device"
        ),
    ),
    within_work_group(lambda c, traits: c.tiles.work_items),
    within_local_memory("the staged slabs", lambda c, dtype: local_bytes(c.tiles, dtype)),
)

_ALONG_K = Constraint(
    "a slab whose unit-stride index is k must divide among the work-items",
    lambda config, dtype, traits: (
        slab_copy(config.KWGD, config.WGD, config.tiles.work_items, 1) is not None
        and slab_copy(config.KWGD, config.tiles.NWG, config.tiles.work_items, 1) is not None
    ),
    lambda config, dtype, traits: (
        f"{config.WGD} x {config.KWGD} and {config.tiles.NWG} x {config.KWGD} elements, "
        f"{config.tiles.work_items} work-items"
    ),
)

_PACKED_PADDING = Constraint(
    "padding must keep the vectors of a packed operand aligned",
    lambda c, dtype, traits: c.PADLD % c.VWM == 0 and c.PADLD % c.VWN == 0,
    lambda c, dtype, traits: f"PADLD {c.PADLD} with vectors of {c.VWM} and {c.VWN}",
)

#: In the order in which broken ones are reported.
DIRECT_CONSTRAINTS = (*_FIRST, _ALONG_K, *_MIDDLE, *_LAST)
INDIRECT_CONSTRAINTS = (*_FIRST, *_MIDDLE, _PACKED_PADDING, *_LAST)
