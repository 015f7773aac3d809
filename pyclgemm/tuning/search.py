"""The search spaces of the tuner, and the search for a fast configuration.

Each kernel family defines the coordinates of its space; its constraints decide which points are
valid. Optuna's sampler proposes points; `docs/techniques.md` explains why this sampler.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..errors import ArgumentError, UnsupportedError
from ..families.family import Family, Point, Role, is_small_batch
from ..families.registry import FAMILIES, config_from_dict, family_of, violations
from ..problem.precision import Precision
from ..problem.problem import GemmProblem

#: Number of points up to which `SearchSpace.count` tries them all, and the sample for more.
_COUNTED = 50_000
_DRAWN = 4_000
#: How many coordinates of a neighbour differ, each as often as it is listed, and the probability
#: that one has the next value; else it has any.
_CHANGES, _NEXT = (1, 1, 2, 2, 3), 0.8
#: Probability of keeping a change that repairs nothing.
_SIDEWAYS = 0.1
#: Number of random configurations before the sampler learns.
_STARTUP = 8
#: Number of proposals that may be known already, or far from all valid points.
_TRIES = 20


@dataclass(frozen=True)
class Count:
    """The size of a space."""

    points: int
    valid: int  # points that break no constraint
    exact: bool  # False: `valid` is estimated from a random sample


@dataclass(frozen=True)
class SearchSpace:
    """The configurations of one family for an element type on a device."""

    family: str
    dtype: str
    traits: DeviceTraits
    axes: Mapping[str, tuple[int, ...]]  # values of each coordinate, ascending

    def config(self, point: Point) -> Config | None:
        """The configuration at a point; None if it is invalid."""
        config, broken = self._examined(point)
        return None if broken else config

    def _examined(self, point: Point) -> tuple[Config | None, int]:
        """The configuration, valid or not, and the number of constraints that it breaks."""
        parameters = FAMILIES[self.family].at(point, self.dtype, self.traits)
        if parameters is None:
            return None, len(self.axes)
        config = config_from_dict(self.family, parameters)
        return config, len(violations(config, self.dtype, self.traits))

    def draw(self, rng: random.Random) -> dict[str, int]:
        """A random point, valid or not."""
        return {name: rng.choice(values) for name, values in self.axes.items()}

    def nearest_point(self, config: Config) -> dict[str, int]:
        """The point nearest to a configuration, which may lie outside the space."""
        wanted = FAMILIES[self.family].coordinates(config)
        return {
            name: min(values, key=lambda value: abs(_log(value) - _log(wanted.get(name, 0))))
            for name, values in self.axes.items()
        }

    def neighbour(self, point: Point, rng: random.Random) -> dict[str, int]:
        """A random point, valid or not, that differs in a few coordinates."""
        current = dict(point)
        for name in rng.sample(list(self.axes), min(rng.choice(_CHANGES), len(self.axes))):
            values = self.axes[name]
            place = values.index(current[name]) + rng.choice((-1, 1))
            is_next = rng.random() < _NEXT and 0 <= place < len(values)
            current[name] = values[place] if is_next else rng.choice(values)
        return current

    def repaired(
        self, point: Point, rng: random.Random, tries: int = 2000
    ) -> dict[str, int] | None:
        """A valid point near a point, which may be that point; None if none was found.

        Random coordinates are changed one by one. A change is kept if it leaves fewer constraints
        broken, and sometimes if it leaves as many.
        """
        current = dict(point)
        _, broken = self._examined(current)
        names = list(self.axes)
        for _ in range(tries):
            if not broken:
                return current
            name = rng.choice(names)
            candidate = current | {name: rng.choice(self.axes[name])}
            _, left = self._examined(candidate)
            if left < broken or (left == broken and rng.random() < _SIDEWAYS):
                current, broken = candidate, left
        return None

    def count(self, seed: int = 0) -> Count:
        """Count all points and the valid ones."""
        points = math.prod(map(len, self.axes.values()))
        if points <= _COUNTED:
            valid = sum(
                self.config(dict(zip(self.axes, values, strict=True))) is not None
                for values in itertools.product(*self.axes.values())
            )
            return Count(points, valid, exact=True)
        rng = random.Random(seed)
        hits = sum(self.config(self.draw(rng)) is not None for _ in range(_DRAWN))
        return Count(points, round(points * hits / _DRAWN), exact=False)


def _may_run(family: Family[Any], problem: GemmProblem, traits: DeviceTraits) -> bool:
    fits = family.role is not Role.SMALL_BATCH or is_small_batch(problem)
    return fits and family.runs(problem.dtype, problem.precision, traits)


def families_for(problems: Iterable[GemmProblem], traits: DeviceTraits) -> tuple[str, ...]:
    """The families that `select` may choose for some problems of one type and precision."""
    problems = list(problems)
    return tuple(
        name
        for name, family in FAMILIES.items()
        if any(_may_run(family, problem, traits) for problem in problems)
    )


def suits(family: str, problem: GemmProblem, traits: DeviceTraits) -> bool:
    """Whether a family is worth trying on a product or a batch.

    Where kernels for small products can run, only matrix units compete with them.
    """
    candidate = FAMILIES[family]
    small = [one for one in FAMILIES.values() if one.role is Role.SMALL_BATCH]
    if candidate in small:
        return _may_run(candidate, problem, traits)
    if any(_may_run(one, problem, traits) for one in small):
        return candidate.competes_with_small(problem, traits)
    return candidate.most_rows is None or min(problem.m, problem.n) <= candidate.most_rows


def can_run(config: Config, problem: GemmProblem, traits: DeviceTraits) -> bool:
    """Whether a configuration can run on the device, and its family suits the product."""
    if not suits(config.family, problem, traits) or violations(config, problem.dtype, traits):
        return False
    return not family_of(config).refusal(config, problem, traits)


def search_space(
    family: str, dtype: str, traits: DeviceTraits, precision: Precision | None = None
) -> SearchSpace:
    """The search space of a family; `precision` None means that of the element type."""
    if family not in FAMILIES:
        raise ArgumentError(f"family is {family!r}; known are {', '.join(FAMILIES)}")
    return SearchSpace(family, dtype, traits, FAMILIES[family].axes(dtype, traits, precision))


def _log(value: int) -> float:
    return math.log2(value) if value > 0 else -1.0


def import_optuna() -> Any:
    """Optuna, which prints warnings only; `UnsupportedError` if it is missing."""
    try:
        import optuna
    except ImportError as error:
        raise UnsupportedError(
            f'tuning needs Optuna, which cannot be imported ({error}): pip install "pyclgemm[tune]"'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Search:
    """Proposes configurations one by one, and learns from their times.

    Equal seeds and equal times give equal proposals. `UnsupportedError` if Optuna is missing.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._optuna = optuna = import_optuna()
        self._space = space
        self._rng = random.Random(seed)
        self._known: set[Config] = set()
        self._worst = -math.inf
        # The sampler sees indices, because the values of a coordinate are ordered.
        self._distributions = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1)
            for name, values in space.axes.items()
        }
        sampler = optuna.samplers.TPESampler(
            multivariate=True, n_startup_trials=_STARTUP, seed=seed
        )
        self._study = optuna.create_study(sampler=sampler)

    def tell(self, config: Config, seconds: float | None) -> None:
        """Learn the time of a configuration; None if it cannot be used."""
        self._known.add(config)
        if seconds is not None:
            value = math.log(seconds)
            self._worst = max(self._worst, value)
        elif math.isfinite(self._worst):
            value = self._worst + math.log(2)
        else:
            return
        point = self._space.nearest_point(config)
        indices = {name: self._space.axes[name].index(point[name]) for name in self._distributions}
        create = self._optuna.trial.create_trial
        trial = create(params=indices, distributions=self._distributions, value=value)
        self._study.add_trial(trial)

    def ask(self) -> Config | None:
        """A configuration that is neither measured nor proposed yet; None if none is found."""
        for attempt in range(_TRIES):
            point = self._proposed() if attempt < _TRIES // 2 else self._space.draw(self._rng)
            valid = self._space.repaired(point, self._rng)
            config = None if valid is None else self._space.config(valid)
            if config is not None and config not in self._known:
                self._known.add(config)
                return config
        return None

    def _proposed(self) -> dict[str, int]:
        trial = self._study.ask(self._distributions)
        # `tell` adds the measured point as a trial of its own, because `ask` may repair this one.
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return {name: self._space.axes[name][index] for name, index in trial.params.items()}
