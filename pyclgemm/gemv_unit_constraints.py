"""What makes a configuration for few rows by matrix units valid: its part of the one list."""

from __future__ import annotations

from .constraint_forms import Constraint, one_of, within_local_memory, within_work_group
from .device import DeviceTraits, has_cache_hints
from .gemv_unit_codegen import sums_join
from .matrix_configs import GemvUnitConfig
from .matrix_units import unit_multiplying

_FAMILY = (GemvUnitConfig.family,)
_DTYPES = ("float16", "bfloat16")
_LANES = 32
_SUM_BYTES = 4

#: Registers of a work-item, of a work-group, and what a lane needs beside sums and fragments.
_MOST_REGISTERS = 255
_ALL_REGISTERS = 64 * 1024
_SPARE = 40


def _registers(config: GemvUnitConfig) -> int:
    """Those of a lane: sums, and of A and B the depths that are loaded at once."""
    a = config.MR // 8 * config.run // 2
    return config.MR * config.VW // 4 + a + config.run * config.VW // 2 + _SPARE


def _limit(config: GemvUnitConfig) -> int:
    return min(_MOST_REGISTERS, _ALL_REGISTERS // (_LANES * config.SUBGROUPS))


def _has_unit(dtype: str, traits: DeviceTraits) -> bool:
    unit = unit_multiplying(dtype, "float32", traits)
    return unit is not None and unit.spelling == "ptx"


GEMV_UNIT_CONSTRAINTS: tuple[Constraint, ...] = (
    one_of("MR", _FAMILY, (8, 16, 32)),
    one_of("SUBGROUPS", _FAMILY, (1, 2, 4, 8, 16, 32)),
    one_of("VW", _FAMILY, (2, 4, 8)),
    one_of("KWI", _FAMILY, (1, 2, 4, 8)),
    one_of("STREAMB", _FAMILY, (0, 1)),
    within_work_group(_FAMILY, lambda c, traits: _LANES * c.SUBGROUPS),
    Constraint(
        "the units that take elements from registers multiply float16 and bfloat16",
        _FAMILY,
        lambda c, dtype, traits: dtype in _DTYPES,
        lambda c, dtype, traits: f"they are {dtype}",
    ),
    Constraint(
        "the device must have NVIDIA's mma.sync for the elements",
        _FAMILY,
        lambda c, dtype, traits: traits is None or dtype not in _DTYPES or _has_unit(dtype, traits),
        lambda c, dtype, traits: f"{traits.name if traits else '-'!r} has none for {dtype}",
    ),
    Constraint(
        "streamed loads need NVIDIA's compute capability 7.5",
        _FAMILY,
        lambda c, dtype, traits: not c.STREAMB or traits is None or has_cache_hints(traits),
        lambda c, dtype, traits: (
            f"STREAMB is {c.STREAMB} on {traits.architecture if traits else '-'}"
        ),
    ),
    Constraint(
        "a lane's sums and fragments must fit its registers",
        _FAMILY,
        lambda c, dtype, traits: _registers(c) <= _limit(c),
        lambda c, dtype, traits: f"about {_registers(c)}, limit {_limit(c)}",
    ),
    within_local_memory(
        "the partial sums of a work-group",
        _FAMILY,
        lambda c, dtype: _SUM_BYTES * sums_join(c).elements,
    ),
)
