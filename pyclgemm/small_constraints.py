"""What makes a configuration for batches of small products valid: its part of the one list."""

from __future__ import annotations

from .constraint_forms import Constraint, at_most, multiple
from .device import crashes_on_small_halves
from .precision import is_complex

_SMALL = ("small",)
_SMALL_CPU = ("small_cpu",)

#: Vectors of sums of a register tile: more are spilled by any CPU's compiler.
_MOST_VECTORS = 32

#: Vectors of sums in the text of a kernel for 64 columns, the most that there are: each block of
#: columns is written out.
_MOST_WRITTEN = 1024

SMALL_CONSTRAINTS: tuple[Constraint, ...] = (
    multiple("NR", "VW", _SMALL_CPU),
    Constraint(
        "a tile must not have more than 128 sums",
        _SMALL,
        lambda c, dtype, traits: c.MWI * c.NWI <= 128,
        lambda c, dtype, traits: f"MWI is {c.MWI}, NWI is {c.NWI}",
    ),
    Constraint(
        f"a tile must not have more than {_MOST_VECTORS} vectors of sums",
        _SMALL_CPU,
        lambda c, dtype, traits: c.MR * (c.NR // c.VW) <= _MOST_VECTORS,
        lambda c, dtype, traits: f"MR is {c.MR}, NR is {c.NR}, VW is {c.VW}",
    ),
    at_most(
        "the vectors of sums that are written for 64 columns",
        _MOST_WRITTEN,
        _SMALL_CPU,
        lambda c: c.MR * 64 // c.VW,
    ),
    Constraint(
        "those of CPUs multiply real elements",
        _SMALL_CPU,
        lambda c, dtype, traits: not is_complex(dtype),
        lambda c, dtype, traits: f"the operands are {dtype}",
    ),
    Constraint(
        "the runtime must compile those of float16; pocl 5.0 crashes as it does so",
        _SMALL_CPU,
        lambda c, dtype, traits: (
            dtype != "float16" or traits is None or not crashes_on_small_halves(traits)
        ),
        lambda c, dtype, traits: (
            f"the device's runtime is {traits.platform} {traits.driver}" if traits else "no device"
        ),
    ),
)
