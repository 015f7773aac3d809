"""Choices with a given kernel family, given parameters, or a configuration as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from ..codegen.config import Config
from ..codegen.source import KernelSource
from ..device.traits import DeviceTraits
from ..errors import ArgumentError, ConfigError, printable, shown
from ..families import registry
from ..families.registry import FAMILIES, config_from_dict
from ..host.files import read_json
from ..problem.problem import GemmProblem
from ..problem.product import Product
from ..resources import names_file
from .database import Database
from .model import known_of
from .select import Choice, faster_arithmetic, select


def choose(
    problem: GemmProblem,
    traits: DeviceTraits,
    database: Database,
    family: str | None = None,
    parameters: Mapping[str, int] | None = None,
) -> Choice:
    """Choose as `select` does, but with a given family and given parameters.

    The family is taken even if another one is faster. Parameters replace those of the best
    configuration of the family. `ArgumentError` if the database has no configuration of the family
    and the parameters do not define one.
    """
    if family is None:
        choice = select(problem, traits, database)
        if not parameters:
            return choice
        base = choice.config
    elif fastest := _fastest(problem, traits, database, family):
        base = fastest
    elif complete := _complete(family, parameters or {}):
        return select(problem, traits, database, complete)
    else:
        raise ArgumentError(
            f"path is {family!r}, of which no database has a configuration for {problem.dtype} on "
            f"{traits.name!r}"
        )
    return select(problem, traits, database, changed(base, parameters or {}))


def changed(config: Config, parameters: Mapping[str, int]) -> Config:
    """A configuration with some parameters replaced; derived defaults are not computed again."""
    return config_from_dict(config.family, {**config.as_dict(), **parameters})


def choose_for(
    product: Product,
    traits: DeviceTraits,
    database: Database,
    family: str | None = None,
    parameters: Mapping[str, int] | None = None,
) -> tuple[Product, Choice]:
    """Choose as `choose` does, and also return the product in the arithmetic that computes it.

    Without a family and parameters, that may be a faster arithmetic than the given one
    (`pyclgemm.selection.select.faster_arithmetic`).
    """
    if family is not None or parameters:
        return product, choose(product.problem, traits, database, family, parameters)
    problem, why = faster_arithmetic(product.problem, traits, database)
    choice = select(problem, traits, database)
    if why:
        choice = replace(choice, reason=f"{choice.reason}; {why}")
    return replace(product, problem=problem), choice


def kernel_sources(product: Product, config: Config, traits: DeviceTraits) -> list[KernelSource]:
    """The kernels of a product, in the order of their launches."""
    schedule = registry.make_schedule(registry.oriented(product, config, traits), config, traits)
    return [launch.source for launch in schedule.launches]


def _fastest(
    problem: GemmProblem, traits: DeviceTraits, database: Database, family: str
) -> Config | None:
    """The configuration of a family that was measured on a product, or else the best predicted."""
    problem, known = registry.problem_on(problem, traits), known_of(problem, traits, database)
    measured = [record.config for _, record in known.measured_on(problem)]
    valid = (
        config for config in measured if not registry.violations(config, problem.dtype, traits)
    )
    predicted = (one.config for one in known.ranking(problem).ordered(problem))
    return next((one for one in chain(valid, predicted) if one.family == family), None)


def _complete(family: str, parameters: Mapping[str, int]) -> Config | None:
    """The configuration that the parameters define; None if required ones are missing."""
    try:
        return config_from_dict(family, parameters)
    except ConfigError:
        return None


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=([0-9]+)", re.ASCII)

#: Largest number of digits of a value, far more than any parameter has.
_MOST_DIGITS = 18


@dataclass(frozen=True)
class AskedConfig:
    """A configuration as the user gave it, to be completed for each product."""

    family: str | None = None  # None: as chosen for the product
    # Parameters that replace those of the configuration chosen for the product.
    parameters: Mapping[str, int] = field(default_factory=dict)

    def choose(self, problem: GemmProblem, traits: DeviceTraits, database: Database) -> Choice:
        """Complete the configuration for a product, and check it."""
        if self.family and (complete := _complete(self.family, self.parameters)):
            return select(problem, traits, database, complete)
        return choose(problem, traits, database, self.family, self.parameters)


def parse_config(text: str) -> AskedConfig:
    """Parse a configuration: "database", a kernel family with optional parameters, or a JSON file.

    The file holds one object: "path" (the family) and the parameters by name.

    Examples
    --------
    >>> parse_config("indirect:MWG=128,NWG=64")
    AskedConfig(family='indirect', parameters={'MWG': 128, 'NWG': 64})
    """
    text = text.strip()
    if text == "database":  # the choice of `pyclgemm.gemm`
        return AskedConfig()
    family, _, assignments = text.partition(":")
    if family in FAMILIES:
        return AskedConfig(family, parse_assignments(assignments) if assignments else {})
    if names_file(text):
        return _from_file(Path(text))
    raise ArgumentError(
        f"config is {shown(text)}; 'database', a path ({', '.join(FAMILIES)}) with parameters "
        "such as indirect:MWG=128,KWG=32, or a JSON file is wanted"
    )


def parse_change(text: str) -> AskedConfig:
    """Parse a change: parameters such as ``KWG=32,PADA=4``, or a whole configuration."""
    if "=" in text and ":" not in text and not names_file(text):
        return AskedConfig(None, parse_assignments(text))
    return parse_config(text)


def parse_assignments(text: str) -> dict[str, int]:
    """Parse parameters in the form NAME=VALUE, separated by commas.

    Examples
    --------
    >>> parse_assignments("mwg=128, KWG=32")
    {'MWG': 128, 'KWG': 32}
    """
    parameters: dict[str, int] = {}
    for item in text.split(","):
        name, value = parse_assignment(item)
        if name in parameters:
            raise ArgumentError(f"{name} is given twice in {shown(text)}")
        parameters[name] = value
    return parameters


def parse_assignment(text: str) -> tuple[str, int]:
    """Parse one parameter in the form NAME=VALUE."""
    match = _ASSIGNMENT.fullmatch(text.strip())
    if match is None:
        raise ArgumentError(f"{shown(text.strip())} is not of the form NAME=VALUE, such as MWG=128")
    name, digits = match[1].upper(), match[2]
    if len(digits) > _MOST_DIGITS:
        raise ArgumentError(
            f"{name[:60]} has a value of {len(digits)} digits; at most {_MOST_DIGITS} are read"
        )
    return name, int(digits)


def _from_file(file: Path) -> AskedConfig:
    named = f"config file {str(file)!r}"
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{named} cannot be read: {error}") from error
    family = content.pop("path", None) if isinstance(content, dict) else None
    if not isinstance(family, str) or family not in FAMILIES:
        raise ArgumentError(
            f"{named} must hold one object with 'path', one of {', '.join(FAMILIES)}, and "
            "parameters by name"
        )
    for name, value in content.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(
                f"{named}: {printable(name[:60])} is {shown(value)}; an integer is wanted"
            )
    return AskedConfig(family, content)
