"""The kernel for few rows by matrix units: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from .device import DeviceTraits
from .element import WORDS
from .errors import UnsupportedError
from .gemm_parts import gemm_parts
from .gemv_configs import GemvUnitConfig
from .gemv_join import Join, join_of
from .kernel_source import KernelSource
from .matrix_unit import MatrixUnit
from .matrix_units import unit_multiplying
from .precision import Precision
from .problem import GemmProblem, MatrixLayout

#: Elements that a lane loads at once, at most.
WIDEST = 8

#: The elements of which the template knows which lane holds what.
OPERANDS = ("float16", "bfloat16")

#: Bytes of a sum.
SUM_BYTES = 4


def register_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit whose fragments lanes load from memory themselves; None if there is none.

    NVIDIA's of `OPERANDS`.

    Examples
    --------
    >>> from pyclgemm.precision import resolve_precision
    >>> from pyclgemm.typical import typical_traits
    >>> half = resolve_precision("F16_F16_F32", "float16")
    >>> register_unit(half, typical_traits("sm_80")).m
    16
    >>> register_unit(half, typical_traits("gfx1100")) is None
    True
    """
    return unit_for(precision.operand, traits) if precision.arithmetic == "float32" else None


def unit_for(dtype: str, traits: DeviceTraits) -> MatrixUnit | None:
    """The one that multiplies elements of `dtype` and sums in float32."""
    unit = unit_multiplying(dtype, "float32", traits) if dtype in OPERANDS else None
    return unit if unit and unit.spelling == "ptx" else None


def sums_join(config: GemvUnitConfig) -> Join:
    """How the sub-groups of a work-group add their sums."""
    return join_of(config.SUBGROUPS, config.MR * config.columns, SUM_BYTES)


def generate_gemv_unit(
    problem: GemmProblem, config: GemvUnitConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that multiplies few rows by a matrix unit.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    config : GemvUnitConfig
        A valid configuration.
    traits : DeviceTraits
        The device.

    Raises
    ------
    UnsupportedError
        If the device has no such unit.
    """
    unit = register_unit(problem.precision, traits)
    if unit is None:
        raise UnsupportedError(
            f"precision is {problem.precision.name}, for which {traits.name!r} has no unit that "
            "takes two-byte elements from registers"
        )
    parts = gemm_parts(problem, config, traits).reading("ushort")
    along_k = problem.b.order == "column"
    join = sums_join(config)
    return parts.source(
        "gemv_unit",
        "gemv_unit.cl.mako",
        unit.lanes * config.SUBGROUPS,
        gemv=config,
        unit=unit,
        constraints="fr",
        a_vector=_vector(problem.a, config.run) if problem.a.order == "row" else 0,
        b_vector=_vector(problem.b, config.run if along_k else config.VW),
        words=WORDS,
        steps=join.steps,
        joined=join.elements,
    )


def _vector(layout: MatrixLayout, run: int) -> int:
    """Neighbours that are loaded at once out of `run`; 0 where they go one by one."""
    wanted = min(run, WIDEST)
    return wanted if layout.order != "strided" and layout.alignment >= wanted else 0
