"""Kernel configurations of any family. `pyclgemm.families.validity` says which are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..codegen.config import Config
from ..errors import ConfigError, printable, shown
from .cpu import CpuConfig
from .gemv import GemvConfig, GemvUnitConfig
from .mma.config import MatrixConfig
from .small import SmallConfig, SmallCpuConfig
from .tiled.config import XgemmConfig, XgemmDirectConfig
from .wgmma.config import WgmmaConfig

#: The configuration class of each path.
FAMILIES: dict[str, type[Any]] = {
    cls.family: cls
    for cls in (
        XgemmConfig,
        XgemmDirectConfig,
        GemvConfig,
        GemvUnitConfig,
        MatrixConfig,
        WgmmaConfig,
        CpuConfig,
        SmallConfig,
        SmallCpuConfig,
    )  # fmt: skip
}

#: The families for batches of small products, on GPUs and on CPUs.
SMALL_FAMILIES = (SmallConfig.family, SmallCpuConfig.family)

#: The families that multiply by matrix units.
UNIT_FAMILIES = (WgmmaConfig.family, MatrixConfig.family, GemvUnitConfig.family)


def config_from_dict(family: str, parameters: Mapping[str, Any]) -> Config:
    """Build the configuration of a family from its parameters by name.

    Raises
    ------
    ConfigError
        If the family or a parameter is unknown, one is missing, or a value is not an
        integer.

    Examples
    --------
    >>> config_from_dict("cpu", {"MR": 6, "NR": 64, "KC": 128, "VW": 16}).KC
    128
    """
    if not isinstance(family, str) or family not in FAMILIES:
        raise ConfigError(f"path is {shown(family)}; known paths are {', '.join(FAMILIES)}")
    cls = FAMILIES[family]
    known = {field.name for field in fields(cls)}
    if unknown := sorted(str(name) for name in set(parameters) - known):
        raise ConfigError(
            f"{cls.__name__} has no parameter {_listed(unknown)}; it has {', '.join(sorted(known))}"
        )
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} is {shown(value)}; a configuration parameter is an integer")
    try:
        config: Config = cls(**parameters)
    except TypeError as error:
        raise ConfigError(f"{cls.__name__} lacks a parameter: {error}") from None
    return config


def _listed(names: list[str], most: int = 5) -> str:
    """Names of the caller's in a message: some of them, and none at full length."""
    listed = ", ".join(printable(name[:60]) for name in names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed


def as_config(config: Config | Mapping[str, Any]) -> Config:
    """Accept a configuration, or its parameters by name with "path", the family.

    Raises
    ------
    ConfigError
        If `config` is neither, or names no family.
    """
    if isinstance(config, Config):
        return config
    if not isinstance(config, Mapping) or "path" not in config:
        raise ConfigError(
            f"config is {shown(config)}; one of "
            f"{', '.join(cls.__name__ for cls in FAMILIES.values())}, or a mapping with 'path' and "
            "the parameters of that family is wanted"
        )
    parameters = dict(config)
    return config_from_dict(parameters.pop("path"), parameters)
