"""Why a configuration for matrix units cannot compute a product on a device, if it cannot."""

from __future__ import annotations

from ..codegen.config import Config
from ..codegen.matrix_units import element_unit, elements_wanted
from ..device.traits import DeviceTraits
from ..problem.problem import GemmProblem
from .gemv import GemvUnitConfig, register_unit
from .mma.config import MatrixConfig
from .mma.slab import split_type
from .wgmma.config import WgmmaConfig
from .wgmma.unit import wgmma_unit

#: Boxes are found by coordinates of 32 bits.
_MOST = 2**31 - 2**16


def unit_refusal(config: Config, problem: GemmProblem, traits: DeviceTraits) -> str:
    """State what is lacking; empty if nothing is.

    Parameters
    ----------
    config : Config
        A configuration of any family, otherwise valid.
    problem : GemmProblem
        The product.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.device.traits import typical_traits
    >>> double = GemmShape(64, 64, 64).problem("float64")
    >>> unit_refusal(WgmmaConfig(128, 128), double, typical_traits("sm_90"))
    'no warpgroup unit for F64_F64_F64'
    """
    name = problem.precision.name
    if isinstance(config, MatrixConfig):
        unit = element_unit(problem.dtype, problem.precision, traits)
        if unit is None:
            return f"no matrix unit for {elements_wanted(problem.dtype, problem.precision)}"
        if config.UNALIGNED and split_type(problem.precision, unit):
            return (
                f"UNALIGNED is {config.UNALIGNED}; for {name} operands are split into parts of "
                f"{unit.operand} as they are packed, wherever they lie"
            )
    if isinstance(config, GemvUnitConfig) and register_unit(problem.precision, traits) is None:
        return f"no matrix unit for {name} that takes two-byte elements from registers"
    if isinstance(config, WgmmaConfig):
        if wgmma_unit(problem.precision, traits) is None:
            return f"no warpgroup unit for {name}"
        if max(problem.m, problem.n, problem.k) > _MOST:
            return f"tensor maps reach to {_MOST} rows and columns"
    return ""
