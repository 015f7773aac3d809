"""Whether a configuration is valid: one answer for tuner, database, selector and caller."""

from __future__ import annotations

from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..errors import ConfigError
from ..problem.bounds import out_of_bounds
from .gemv import GEMV_CONSTRAINTS
from .mma.constraints import MATRIX_CONSTRAINTS
from .small import SMALL_CONSTRAINTS
from .tiled.constraints import TILED_CONSTRAINTS
from .wgmma.constraints import WGMMA_CONSTRAINTS

CONSTRAINTS = (
    *TILED_CONSTRAINTS,
    *SMALL_CONSTRAINTS,
    *MATRIX_CONSTRAINTS,
    *GEMV_CONSTRAINTS,
    *WGMMA_CONSTRAINTS,
)


def violations(config: Config, dtype: str, traits: DeviceTraits | None = None) -> list[str]:
    """State every constraint that a configuration breaks; of one out of bounds, these alone.

    Parameters
    ----------
    config : Config
        The configuration.
    dtype : str
        NumPy name of the operands' element type.
    traits : DeviceTraits, optional
        The device; without it its limits are not checked.

    Returns
    -------
    list of str
        One sentence each, with the values on both sides; empty if the configuration is valid.

    Examples
    --------
    >>> from pyclgemm.families.cpu import CpuConfig
    >>> violations(CpuConfig(MR=6, NR=40, KC=512, VW=16), "float32")
    ['NR must be a multiple of VW: NR is 40, VW is 16']
    """
    # Nothing is computed from a value that is out of bounds.
    return out_of_bounds(config.family, vars(config)) or [
        f"{constraint.rule}: {constraint.values(config, dtype, traits)}"
        for constraint in CONSTRAINTS
        if config.family in constraint.families and not constraint.holds(config, dtype, traits)
    ]


def check_config(config: Config, dtype: str, traits: DeviceTraits | None = None) -> None:
    """Raise `ConfigError`, with every broken constraint, unless `config` is valid."""
    if broken := violations(config, dtype, traits):
        raise ConfigError(f"{type(config).__name__}({config}): " + "; ".join(broken))
