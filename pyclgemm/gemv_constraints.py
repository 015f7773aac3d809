"""What makes a configuration for few rows valid: its part of the one list."""

from __future__ import annotations

from .config import GEMV_FAMILIES
from .constraint_forms import (
    ALL_REGISTERS,
    COPIED_BYTES,
    MOST_REGISTERS,
    STAGED_BYTES,
    Constraint,
    at_most,
    within_local_memory,
    within_work_group,
)
from .device import has_cache_hints
from .element import stored_bytes
from .gemv_configs import GemvConfig, GemvUnitConfig
from .gemv_join import join_of
from .gemv_unit_codegen import OPERANDS, SUM_BYTES, sums_join, unit_for

_PLAIN = (GemvConfig.family,)
_UNIT = (GemvUnitConfig.family,)
_LANES = 32

#: Registers that a lane needs beside sums and fragments.
_SPARE = 40

#: Sums of a work-item, and its multiply-adds in a row, over which compilers take long.
_MOST_SUMS = 256
_MOST_UNROLLED = 2**12


def gemv_local_bytes(config: GemvConfig, dtype: str) -> int:
    """Bytes of local memory in which a gemv's work-group adds its sums."""
    size = STAGED_BYTES[dtype]
    return join_of(config.lanes_k, config.MR * config.columns, size).elements * size


def _registers(config: GemvUnitConfig) -> int:
    """Those of a lane: sums, and of A and B the depths that are loaded at once."""
    a = config.MR // 8 * config.run // 2
    return config.MR * config.VW // 4 + a + config.run * config.VW // 2 + _SPARE


def _limit(config: GemvUnitConfig) -> int:
    return min(MOST_REGISTERS, ALL_REGISTERS // (_LANES * config.SUBGROUPS))


GEMV_CONSTRAINTS: tuple[Constraint, ...] = (
    at_most("the sums of a work-item", _MOST_SUMS, _PLAIN, lambda c: c.MR * c.VW),
    at_most(
        "the multiply-adds of a work-item that are unrolled",
        _MOST_UNROLLED,
        _PLAIN,
        lambda c: c.MR * c.VW * c.KWI,
    ),
    Constraint(
        "loads past the first-level cache need NVIDIA's compute capability 7.5",
        GEMV_FAMILIES,
        lambda c, dtype, traits: not c.STREAMB or traits is None or has_cache_hints(traits),
        lambda c, dtype, traits: (
            f"STREAMB is {c.STREAMB} on {traits.architecture if traits else '-'}"
        ),
    ),
    Constraint(
        "the work-items of a gemv must divide into LANES_N columns and a power of two along k",
        _PLAIN,
        lambda c, dtype, traits: c.WGS % c.LANES_N == 0 and (c.WGS // c.LANES_N).bit_count() == 1,
        lambda c, dtype, traits: f"WGS is {c.WGS}, LANES_N is {c.LANES_N}",
    ),
    within_work_group(_PLAIN, lambda c, traits: c.WGS),
    within_local_memory("the partial sums of a work-group", _PLAIN, gemv_local_bytes),
    Constraint(
        "loads past the first-level cache read vectors of 4, 8 or 16 bytes",
        _PLAIN,
        lambda c, dtype, traits: not c.STREAMB or stored_bytes(dtype) * c.VW in COPIED_BYTES,
        lambda c, dtype, traits: f"STREAMB is {c.STREAMB}, VW is {c.VW}, {dtype}",
    ),
    within_work_group(_UNIT, lambda c, traits: _LANES * c.SUBGROUPS),
    Constraint(
        "the units that take elements from registers multiply float16 and bfloat16",
        _UNIT,
        lambda c, dtype, traits: dtype in OPERANDS,
        lambda c, dtype, traits: f"they are {dtype}",
    ),
    Constraint(
        "the device must have NVIDIA's mma.sync for the elements",
        _UNIT,
        lambda c, dtype, traits: (
            traits is None or dtype not in OPERANDS or unit_for(dtype, traits) is not None
        ),
        lambda c, dtype, traits: f"{traits.name if traits else '-'!r} has none for {dtype}",
    ),
    Constraint(
        "a lane's sums and fragments must fit its registers",
        _UNIT,
        lambda c, dtype, traits: _registers(c) <= _limit(c),
        lambda c, dtype, traits: f"about {_registers(c)}, limit {_limit(c)}",
    ),
    within_local_memory(
        "the partial sums of a work-group",
        _UNIT,
        lambda c, dtype: SUM_BYTES * sums_join(c).elements,
    ),
)
