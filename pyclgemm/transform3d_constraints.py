"""Whether a configuration of a fused transform (L5) can run: asked before its kernel is written."""

from __future__ import annotations

import math

from .device import DeviceTraits
from .errors import ConfigError
from .parameter_bounds import out_of_bounds
from .transform3d_layout import FusedConfig, FusedUnitConfig, local_bytes

#: Bytes of the widest vector that a GPU reads at once; its address must be a multiple of them.
_VECTOR_BYTES = 16

#: Work-items of a sub-group of NVIDIA's, for which `FusedUnitConfig` is.
_LANES = 32


def fused_violations(
    extent: int, element_bytes: int, config: FusedConfig | FusedUnitConfig, traits: DeviceTraits
) -> list[str]:
    """State every constraint that a configuration breaks; of one out of bounds, these alone.

    Parameters
    ----------
    extent : int
        K.
    element_bytes : int
        Bytes of an element.
    config : FusedConfig or FusedUnitConfig
        The configuration.
    traits : DeviceTraits
        The device.

    Returns
    -------
    list of str
        One sentence each, with the values on both sides; empty if the configuration can run.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> config = FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=2)
    >>> fused_violations(16, 4, config, typical_traits("sm_80"))
    []
    >>> fused_violations(32, 4, config, typical_traits("sm_80"))
    ['a work-group takes 151552 bytes of local memory, and the device has 49152']
    """
    is_unit = isinstance(config, FusedUnitConfig)
    family = "transform3d_fused_unit" if is_unit else "transform3d_fused"
    if wild := out_of_bounds(family, vars(config)):
        return wild
    broken = []
    if config.TENSORS > 1 and config.PARTS > 1:
        broken.append(
            f"TENSORS is {config.TENSORS} and PARTS is {config.PARTS}: one of them must be 1"
        )
    items = config.ITEMS if isinstance(config, FusedConfig) else _LANES * config.SUBGROUPS
    if items > traits.max_work_group_size:
        broken.append(
            f"a work-group has {items} work-items, and the device allows "
            f"{traits.max_work_group_size}"
        )
    if isinstance(config, FusedConfig):
        broken += _vector_violations(extent, element_bytes, config)
    if not broken:
        used = local_bytes(extent, element_bytes, config)
        if used > traits.local_memory_bytes:
            broken.append(
                f"a work-group takes {used} bytes of local memory, and the device has "
                f"{traits.local_memory_bytes}"
            )
    return broken


def _vector_violations(extent: int, element_bytes: int, config: FusedConfig) -> list[str]:
    width, rows = config.VW, math.ceil(extent / config.PARTS)
    broken = []
    if width > extent:
        broken.append(f"VW is {width}, more than K = {extent}")
    # Work-groups of one work-item (on CPUs) read vectors from any address, and let them overlap.
    if config.ITEMS > 1 and extent % width:
        broken.append(f"VW must divide K: VW is {width}, K is {extent}")
    if config.ITEMS > 1 and width * element_bytes > _VECTOR_BYTES:
        broken.append(f"a vector has {width * element_bytes} bytes, more than {_VECTOR_BYTES}")
    if extent * rows % config.ROWS:
        broken.append(
            f"ROWS must divide K * {rows}, the rows of a tensor that a work-group has: "
            f"ROWS is {config.ROWS}, K is {extent}"
        )
    return broken


def check_fused(
    extent: int, element_bytes: int, config: FusedConfig | FusedUnitConfig, traits: DeviceTraits
) -> None:
    """Raise `ConfigError`, with every broken constraint, unless a configuration can run."""
    if broken := fused_violations(extent, element_bytes, config, traits):
        raise ConfigError(f"{config}, for K = {extent}: " + "; ".join(broken))
