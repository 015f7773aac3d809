"""All kernel families, and functions that work for any of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..codegen.config import Config
from ..codegen.launch import Schedule
from ..device.traits import DeviceTraits
from ..errors import ConfigError, known_names, printable, shown
from ..problem.problem import GemmProblem, PackedLayout
from ..problem.product import Product
from .cpu.family import CpuFamily
from .family import Family, Role, broken_constraints
from .gemv.family import GemvFamily, GemvUnitFamily
from .mma.family import MatrixFamily
from .small.family import SmallCpuFamily, SmallFamily
from .tiled.family import DirectFamily, XgemmFamily
from .wgmma.family import WgmmaFamily

_ALL: tuple[Family[Any], ...] = (
    XgemmFamily(), DirectFamily(), GemvFamily(), GemvUnitFamily(), MatrixFamily(), WgmmaFamily(),
    CpuFamily(), SmallFamily(), SmallCpuFamily(),
)  # fmt: skip

#: The families by name, in the order in which messages, the schema and the tuner list them.
FAMILIES = {family.name: family for family in _ALL}


def register(family: Family[Any]) -> None:
    """Add a family for `gemm`, the tuner, `explain` and `profile`."""
    if family.name in FAMILIES:
        raise ConfigError(f"a family {family.name!r} is registered; another name is wanted")
    FAMILIES[family.name] = family


def family_of(config: Config) -> Family[Any]:
    """The family of a configuration."""
    return FAMILIES[config.family]


@functools.cache
def families_with(role: Role | None = None, *, on_cpu: bool = False) -> tuple[Family[Any], ...]:
    """The families that selection uses on CPUs, or on all other devices; optionally of one role."""
    return tuple(
        family
        for family in FAMILIES.values()
        if family.on_cpu == on_cpu and role in (None, family.role)
    )


def config_from_dict(family: str, parameters: Mapping[str, Any]) -> Config:
    """The configuration of a family from its parameters by name, or `ConfigError`."""
    if not isinstance(family, str) or family not in FAMILIES:
        raise ConfigError(f"path is {shown(family)}; {known_names(family, FAMILIES, 'paths')}")
    cls = FAMILIES[family].config_class
    known = {field.name for field in fields(cls)}
    if unknown := sorted(str(name) for name in set(parameters) - known):
        raise ConfigError(
            f"{cls.__name__} has no parameter {_listed(unknown)}; it has {', '.join(sorted(known))}"
        )
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} is {shown(value)}; a configuration parameter is an integer")
    try:
        return cls(**parameters)
    except TypeError as error:
        raise ConfigError(f"{cls.__name__} lacks a parameter: {error}") from None


def _listed(names: list[str], most: int = 5) -> str:
    """The first of a caller's names, shortened."""
    listed = ", ".join(printable(name[:60]) for name in names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed


def as_config(config: Config | Mapping[str, Any]) -> Config:
    """Accept a configuration, or its parameters by name with "path", the family."""
    if isinstance(config, Config) and config.family in FAMILIES:
        return config
    if not isinstance(config, Mapping) or "path" not in config:
        names = (family.config_class.__name__ for family in FAMILIES.values())
        raise ConfigError(
            f"config is {shown(config)}; one of {', '.join(names)}, or a mapping with 'path' and "
            "the parameters of that family is wanted"
        )
    parameters = dict(config)
    return config_from_dict(parameters.pop("path"), parameters)


def violations(config: Config, dtype: str, traits: DeviceTraits | None = None) -> list[str]:
    """State every constraint that a configuration breaks; device limits only with `traits`."""
    return broken_constraints(family_of(config), config, dtype, traits)


def check_config(config: Config, dtype: str, traits: DeviceTraits | None = None) -> None:
    """Raise `ConfigError`, with every broken constraint, unless `config` is valid."""
    if broken := violations(config, dtype, traits):
        raise ConfigError(f"{type(config).__name__}({config}): " + "; ".join(broken))


def reads(config: Config, packed: PackedLayout | None) -> bool:
    """Whether a kernel of this configuration can read B: as an ordinary matrix, or as packed."""
    panels = family_of(config).panels(config)
    return packed is None or (packed.form == "padded" if panels is None else packed == panels)


def adapted(config: Config, packed: PackedLayout | None) -> Config | None:
    """The configuration, adapted to the panels of a packed B; None if it cannot read B."""
    family = family_of(config)
    if packed is None or reads(config, packed):
        return config
    if packed.form == "panels" and family.panels(config) is not None:
        one: Config = family.for_panels(config, packed)
        return one
    return None


def problem_on(problem: GemmProblem, traits: DeviceTraits) -> GemmProblem:
    """The product as a device computes it; records are stored and looked up in this form."""
    for family in families_with(Role.ANY, on_cpu=traits.type == "cpu"):
        problem = family.orient_problem(problem, traits)
    return problem


def oriented(product: Product, config: Config, traits: DeviceTraits) -> Product:
    """Exchange rows and columns if the kernel family needs it."""
    return family_of(config).orient(product, config, traits)


def make_schedule(product: Product, config: Config, traits: DeviceTraits) -> Schedule:
    """The launches of an oriented product whose m and n are not zero."""
    return family_of(config).schedule(product, config, traits)
