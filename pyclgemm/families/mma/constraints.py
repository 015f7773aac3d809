"""What makes a configuration of matrix units valid: its part of the one list."""

from __future__ import annotations

from ...codegen.config import Constraint, at_most, within_work_group
from ...codegen.element import ElementType
from ...codegen.matrix_units import sub_group_lanes, unit_multiplying
from ...device.traits import DeviceTraits
from .codegen import joined_pitch, work_items
from .config import MatrixConfig
from .slab import COPY_BYTES, most_padding

_MATRIX = ("matrix",)

#: The element types that some unit multiplies, as they are or in parts.
_DTYPES = ("int8", "float16", "bfloat16", "float32", "float64", "complex128")

#: Those of the units for float64.
_OF_DOUBLES = ("float64", "complex128")

#: Rows, columns and depths of the largest fragments, or of the pairs that are loaded at once.
_FRAGMENT = 16

#: Bytes of an element of float32 that is split into parts before: three of bfloat16 or two of
#: tf32, and the smallest part.
_PARTS_BYTES = {"bfloat16": 6, "tf32": 8}
_PART_BYTES = 2

#: Depth of NVIDIA's units for float64.
_DOUBLES_DEPTH = 4

#: Bytes of depth that ldmatrix loads at once: at 1 byte more than `_FRAGMENT` elements.
_FRAGMENT_BYTES = 32

#: Elements of a sub-group's tile, whose sums its lanes hold: 256 each, where there are 32.
_MOST_SUMS = 256 * 32


def copies_through_registers(config: MatrixConfig, traits: DeviceTraits | None) -> bool:
    """Whether slabs pass through registers on their way to local memory; see `matrix_slab`."""
    return bool(config.UNALIGNED) or (traits is not None and traits.vendor == "amd")


def _staged_bytes(dtype: str, traits: DeviceTraits | None) -> tuple[int, int]:
    """Bytes of an element in local memory with all its parts, and of its smallest part."""
    size = ElementType(dtype, dtype).stored_bytes
    if dtype == "float32" and traits:
        multiplied = [name for name in _PARTS_BYTES if unit_multiplying(name, "float32", traits)]
        return max((_PARTS_BYTES[name] for name in multiplied), default=size), _PART_BYTES
    return size, size


def local_bytes(config: MatrixConfig, dtype: str, traits: DeviceTraits | None = None) -> int:
    """Bytes of local memory of a work-group, with the most padding and parts of any precision."""
    size, part = _staged_bytes(dtype, traits)
    padding = most_padding(part)
    slabs = sum(
        max(extent * (config.KWG + padding), config.KWG * (extent + padding))
        for extent in (config.MWG, config.NWG)
    )
    arrivals = 4 if config.FILL else 0
    return config.STAGES * slabs * size + arrivals


def _items(config: MatrixConfig, traits: DeviceTraits | None) -> int:
    return work_items(config, sub_group_lanes(traits))


def _is_shared(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> bool:
    copied = COPY_BYTES * _items(config, traits)
    _, part = _staged_bytes(dtype, traits)
    return all(extent * config.KWG * part % copied == 0 for extent in (config.MWG, config.NWG))


def _least_depth(dtype: str) -> int:
    return max(_FRAGMENT, _FRAGMENT_BYTES // ElementType(dtype, dtype).stored_bytes)


def _depths_in_turn(dtype: str) -> int:
    """Depths for which fragments are loaded two times, to registers that take turns."""
    return 2 * (_DOUBLES_DEPTH if dtype in _OF_DOUBLES else _least_depth(dtype))


def _rows_are_shared(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> bool:
    """Whether a work-item's copies of a slab lie at the same steps for all work-items.

    Rows lie along k where slabs pass through registers, else along k or a side of the tile.
    """
    items = _items(config, traits)
    _, part = _staged_bytes(dtype, traits)
    through = traits is None or copies_through_registers(config, traits)
    sides = () if through else (config.MWG, config.NWG)
    rows = {extent * part // COPY_BYTES for extent in (config.KWG, *sides)}
    return all(pieces and max(items, pieces) % min(items, pieces) == 0 for pieces in rows)


def _depths_at_a_time(config: MatrixConfig, dtype: str) -> int:
    """Of what a slice's part of a slab is a multiple."""
    return _depths_in_turn(dtype) if config.FRAGMENTS == 2 else _least_depth(dtype)


def _sum_bytes(dtype: str) -> int:
    return ElementType(dtype, dtype).stored_bytes if dtype in _OF_DOUBLES else 4


def _joined_bytes(config: MatrixConfig, dtype: str) -> int:
    """Bytes of local memory in which the sums of slices meet."""
    return config.SLICES * config.MWG * joined_pitch(config) * _sum_bytes(dtype)


def _least_slab_bytes(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> int:
    """Bytes of the slabs of one operand, the larger one's, without padding."""
    _, part = _staged_bytes(dtype, traits)
    return config.STAGES * max(config.MWG, config.NWG) * config.KWG * part


MATRIX_CONSTRAINTS: tuple[Constraint, ...] = (
    at_most(
        "the sums of a sub-group",
        _MOST_SUMS,
        _MATRIX,
        lambda c: c.MWG * c.NWG // c.tile_subgroups,
    ),
    Constraint(
        "slabs that are copied past the registers need STAGES of 2 to 8, through them 1 or 2",
        _MATRIX,
        lambda c, dtype, traits: (
            traits is None
            or (c.STAGES <= 2 if copies_through_registers(c, traits) else c.STAGES >= 2)
        ),
        lambda c, dtype, traits: f"STAGES is {c.STAGES}",
    ),
    Constraint(
        "matrix units multiply real elements of 1, 2, 4 or 8 bytes, and complex ones of 16",
        _MATRIX,
        lambda c, dtype, traits: dtype in _DTYPES,
        lambda c, dtype, traits: f"they are {dtype}",
    ),
    Constraint(
        f"a sub-group's tile and a slab's depth must be multiples of {_FRAGMENT}, the depth also "
        f"of {_FRAGMENT_BYTES} bytes",
        _MATRIX,
        lambda c, dtype, traits: (
            c.MWG % (_FRAGMENT * c.SUBGROUPS_M) == 0
            and c.NWG % (_FRAGMENT * c.SUBGROUPS_N) == 0
            and (dtype not in _DTYPES or c.KWG % _least_depth(dtype) == 0)
        ),
        lambda c, dtype, traits: (
            f"{c.MWG} x {c.NWG} among {c.SUBGROUPS_M} x {c.SUBGROUPS_N} sub-groups, KWG is {c.KWG}"
        ),
    ),
    Constraint(
        f"slabs must divide among the work-items in pieces of {COPY_BYTES} bytes",
        _MATRIX,
        lambda c, dtype, traits: dtype not in _DTYPES or _is_shared(c, dtype, traits),
        lambda c, dtype, traits: (
            f"{c.MWG} x {c.KWG} and {c.KWG} x {c.NWG} {dtype}, {_items(c, traits)} work-items"
        ),
    ),
    Constraint(
        f"of the work-items and the pieces of {COPY_BYTES} bytes in a row of a slab, one must be a "
        "multiple of the other",
        _MATRIX,
        lambda c, dtype, traits: dtype not in _DTYPES or _rows_are_shared(c, dtype, traits),
        lambda c, dtype, traits: (
            f"rows of {c.MWG}, {c.NWG} or {c.KWG} {dtype}, {_items(c, traits)} work-items"
        ),
    ),
    Constraint(
        "FRAGMENTS of 2 need slabs that are copied past the registers, and of twice the depth of "
        "a fragment",
        _MATRIX,
        lambda c, dtype, traits: (
            c.FRAGMENTS == 1
            or (
                not copies_through_registers(c, traits)
                and (dtype not in _DTYPES or c.KWG % _depths_in_turn(dtype) == 0)
            )
        ),
        lambda c, dtype, traits: f"FRAGMENTS is {c.FRAGMENTS}, KWG is {c.KWG} {dtype}",
    ),
    Constraint(
        f"UNALIGNED is for elements smaller than the pieces of {COPY_BYTES} bytes",
        _MATRIX,
        lambda c, dtype, traits: (
            not c.UNALIGNED or ElementType(dtype, dtype).stored_bytes < COPY_BYTES
        ),
        lambda c, dtype, traits: f"they are {dtype}",
    ),
    Constraint(
        "the slices of a slab must be as deep as a fragment, with FRAGMENTS of 2 twice that",
        _MATRIX,
        lambda c, dtype, traits: (
            c.SLICES == 1
            or dtype not in _DTYPES
            or c.KWG % (c.SLICES * _depths_at_a_time(c, dtype)) == 0
        ),
        lambda c, dtype, traits: (
            f"KWG is {c.KWG} {dtype}, SLICES is {c.SLICES}, FRAGMENTS is {c.FRAGMENTS}"
        ),
    ),
    Constraint(
        "tiles are divided among work-groups (FILL) or among slices (SLICES), not both",
        _MATRIX,
        lambda c, dtype, traits: not c.FILL or c.SLICES == 1,
        lambda c, dtype, traits: f"FILL is {c.FILL}, SLICES is {c.SLICES}",
    ),
    Constraint(
        "the sums of all slices must fit the local memory of one operand's slabs",
        _MATRIX,
        lambda c, dtype, traits: (
            c.SLICES == 1
            or dtype not in _DTYPES
            or _joined_bytes(c, dtype) <= _least_slab_bytes(c, dtype, traits)
        ),
        lambda c, dtype, traits: (
            f"{_joined_bytes(c, dtype)} bytes of {c.SLICES} slices, limit "
            f"{_least_slab_bytes(c, dtype, traits)}"
        ),
    ),
    within_work_group(_MATRIX, _items),
    Constraint(
        "the slabs of a work-group must fit the device's local memory",
        _MATRIX,
        lambda c, dtype, traits: (
            traits is None
            or dtype not in _DTYPES
            or local_bytes(c, dtype, traits) <= traits.local_memory_bytes
        ),
        lambda c, dtype, traits: (
            f"{local_bytes(c, dtype, traits)} bytes, limit "
            f"{traits.local_memory_bytes if traits else '-'}"
        ),
    ),
)
