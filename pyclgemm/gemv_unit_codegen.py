"""The kernel for few rows by matrix units: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from .device import DeviceTraits
from .errors import UnsupportedError
from .gemm_parts import gemm_parts
from .gemv_configs import GemvUnitConfig
from .gemv_join import Join, join_of
from .kernel_source import KernelSource
from .matrix_unit import MatrixUnit
from .matrix_units import matrix_unit
from .precision import Precision
from .problem import GemmProblem, MatrixLayout

#: The widest loads, in elements.
_WIDEST = 8

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
    if precision.operand not in OPERANDS or precision.arithmetic != "float32":
        return None
    unit = matrix_unit(precision, traits)
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
        a_vector=_vector(problem.a, "row", config.run),
        b_vector=_vector(problem.b, problem.b.order, config.run if along_k else config.VW),
        steps=join.steps,
        joined=join.elements,
    )


def _vector(layout: MatrixLayout, contiguous: str, run: int) -> int:
    """Neighbours that are loaded at once out of `run`; 0 where they go one by one."""
    if layout.order != contiguous or layout.order == "strided":
        return 0
    wanted = min(run, _WIDEST)
    return wanted if layout.alignment >= wanted else 0
