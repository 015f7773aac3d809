"""What makes a configuration of matrix units valid: its part of the one list."""

from __future__ import annotations

import numpy as np

from .constraint_forms import Constraint, one_of
from .kernel_configs import MatrixConfig
from .matrix_codegen import COPY_BYTES, MOST_PADDING, work_items

_MATRIX = ("matrix",)

#: Rows, columns and depths of the largest fragments, or of the pairs that are loaded at once.
_FRAGMENT = 16


def local_bytes(config: MatrixConfig, dtype: str) -> int:
    """Bytes of local memory of a work-group, with the most padding of any layout."""
    size = np.dtype(dtype).itemsize
    slabs = sum(
        max(extent * (config.KWG + MOST_PADDING), config.KWG * (extent + MOST_PADDING))
        for extent in (config.MWG, config.NWG)
    )
    return config.STAGES * slabs * size


def _is_shared(config: MatrixConfig, dtype: str) -> bool:
    copied = COPY_BYTES * work_items(config)
    return all(
        extent * config.KWG * np.dtype(dtype).itemsize % copied == 0
        for extent in (config.MWG, config.NWG)
    )


MATRIX_CONSTRAINTS: tuple[Constraint, ...] = (
    one_of("STAGES", _MATRIX, (2, 3, 4)),
    Constraint(
        "matrix units multiply real elements of 2, 4 or 8 bytes",
        _MATRIX,
        lambda c, dtype, traits: dtype in ("float16", "float32", "float64"),
        lambda c, dtype, traits: f"they are {dtype}",
    ),
    Constraint(
        f"a sub-group's tile and a slab's depth must be multiples of {_FRAGMENT}",
        _MATRIX,
        lambda c, dtype, traits: (
            c.MWG % (_FRAGMENT * c.SUBGROUPS_M) == 0
            and c.NWG % (_FRAGMENT * c.SUBGROUPS_N) == 0
            and c.KWG % _FRAGMENT == 0
        ),
        lambda c, dtype, traits: (
            f"{c.MWG} x {c.NWG} among {c.SUBGROUPS_M} x {c.SUBGROUPS_N} sub-groups, KWG is {c.KWG}"
        ),
    ),
    Constraint(
        f"slabs must divide among the work-items in pieces of {COPY_BYTES} bytes",
        _MATRIX,
        lambda c, dtype, traits: _is_shared(c, dtype),
        lambda c, dtype, traits: (
            f"{c.MWG} x {c.KWG} and {c.KWG} x {c.NWG} {dtype}, {work_items(c)} work-items"
        ),
    ),
    Constraint(
        "a work-group must not exceed the device's limit",
        _MATRIX,
        lambda c, dtype, traits: traits is None or traits.max_work_group_size >= work_items(c),
        lambda c, dtype, traits: (
            f"{work_items(c)} work-items, limit {traits.max_work_group_size if traits else '-'}"
        ),
    ),
    Constraint(
        "the slabs of a work-group must fit the device's local memory",
        _MATRIX,
        lambda c, dtype, traits: (
            traits is None or local_bytes(c, dtype) <= traits.local_memory_bytes
        ),
        lambda c, dtype, traits: (
            f"{local_bytes(c, dtype)} bytes, limit {traits.local_memory_bytes if traits else '-'}"
        ),
    ),
)
