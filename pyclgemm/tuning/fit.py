"""Coefficients of predicted times, fitted to measured ones.

Non-linear least squares (`scipy.optimize.least_squares`) of the logarithm of predicted over
measured times, family by family. A few wrong times do not pull it far (`soft_l1`). A coefficient
stays as the family assumes it if the times tell nothing of it, or those of one configuration alone
do, which may have faults of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..families.cost import Coefficients, Column, Work, WorkTable
from ..families.registry import family_of, problem_on
from ..problem.problem import GemmProblem

_NAMES = [field.name for field in fields(Coefficients)]

#: Of the logarithm: the error from which on a time counts less than its square, how much one of
#: an assumed coefficient counts, and how far a coefficient may go from it.
_LARGE_ERROR = 0.15
_ASSUMED = 0.15
_FARTHEST = 5.0
#: Ceilings that were measured are not surpassed by more than this; others may be estimates.
_LEAST = {"multiply": 0.8}

#: What lasts so many seconds is not fitted: times of small products are alike, whatever kernel
#: runs, and one latency stands for another in them. On an H200 choices lost more with fitted ones.
_LATENCIES = ("slab", "tile", "launch", "pack_launch", "split", "descriptors")

#: Times of a family from which on its coefficients are fitted.
_FEWEST = 8
#: Configurations that must tell of a coefficient; one tells of it where a time is so much longer,
#: as a logarithm, if the coefficient is twice as large.
_SEVERAL, _TELLING = 2, 0.05
#: Times of one configuration are wrong together: with fewer configurations than this, what is
#: assumed counts more.
_MANY_CONFIGS = 16
#: Parts into which the configurations of a family are divided, each of which is left out once.
_FOLDS = 3


@dataclass(frozen=True)
class Sample:
    """A measured time of a product by a configuration."""

    problem: GemmProblem
    config: Config
    seconds: float


@dataclass(frozen=True)
class Fit:
    """What was fitted for a family."""

    coefficients: Coefficients
    times: int  # to which it was fitted
    error: float  # the median of the relative error of a predicted time


def fit_coefficients(
    samples: Iterable[Sample], traits: DeviceTraits, ceilings: Ceilings
) -> dict[str, Fit]:
    """Fit the coefficients of each family of which there are times enough.

    Samples are of one element type and arithmetic; `ceilings` are those by which times are to be
    predicted. `ImportError` says that SciPy is missing, which the extra ``tune`` has.
    """
    return {
        family: times.fit()
        for family, times in _by_family(samples, traits, ceilings).items()
        if len(times.configs) >= _FEWEST
    }


def errors_of_unseen(
    samples: Iterable[Sample], traits: DeviceTraits, ceilings: Ceilings
) -> dict[str, float]:
    """How wrong fitted coefficients are about configurations to which they were not fitted.

    By family: the mean of the logarithm of predicted over measured times, without its sign.
    Infinite where there is one configuration alone.
    """
    return {
        family: times.error_of_unseen()
        for family, times in _by_family(samples, traits, ceilings).items()
    }


def _by_family(
    samples: Iterable[Sample], traits: DeviceTraits, ceilings: Ceilings
) -> dict[str, _Times]:
    found: dict[str, list[tuple[Sample, Work]]] = {}
    for sample in samples:
        problem = problem_on(sample.problem, traits)
        work = family_of(sample.config).work(sample.config, problem, traits, ceilings)
        if work is not None:
            found.setdefault(sample.config.family, []).append((sample, work))
    return {family: _Times(measured, traits) for family, measured in found.items()}


class _Times:
    """The times of a family."""

    def __init__(self, measured: Sequence[tuple[Sample, Work]], traits: DeviceTraits) -> None:
        self._measured, self._traits = measured, traits
        self.configs = [sample.config for sample, _ in measured]
        problems = [problem_on(sample.problem, traits) for sample, _ in measured]
        sizes = [(one.m, one.n, one.k, max(1, one.products)) for one in problems]
        self._sizes = np.array(sizes, float).T
        self._seconds = np.array([sample.seconds for sample, _ in measured])
        assumed = family_of(self.configs[0]).coefficients
        self._table = WorkTable(
            [work for _, work in measured], [assumed] * len(measured), traits.compute_units
        )
        self._assumed = np.log([getattr(assumed, name) for name in _NAMES])

    def fit(self) -> Fit:
        """Fit the coefficients."""
        found = self._fitted()
        coefficients = Coefficients(**dict(zip(_NAMES, np.exp(found).tolist(), strict=True)))
        error = float(np.median(np.abs(self._missed(found))))
        return Fit(coefficients, len(self.configs), error)

    def error_of_unseen(self) -> float:
        """As `errors_of_unseen`."""
        configs = list(dict.fromkeys(self.configs))
        if len(configs) == 1:
            return np.inf
        missed = []
        for fold in range(min(_FOLDS, len(configs))):
            left_out = set(configs[fold::_FOLDS])
            seen, unseen = (
                [one for one in self._measured if (one[0].config in left_out) == is_left_out]
                for is_left_out in (False, True)
            )
            found = _Times(seen, self._traits)._fitted()
            missed.append(_Times(unseen, self._traits)._missed(found))
        return float(np.abs(np.concatenate(missed)).mean())

    def _missed(self, logarithms: Column) -> Column:
        """The logarithms of predicted over measured times."""
        self._table.coefficients.update(zip(_NAMES, np.exp(logarithms), strict=True))
        missed: Column = np.log(self._table.seconds(*self._sizes) / self._seconds)
        return missed

    def _told(self) -> list[int]:
        """What several configurations tell of, by number."""
        assumed = self._missed(self._assumed)
        told = []
        for number, name in enumerate(_NAMES):
            if name in _LATENCIES:
                continue
            doubled = self._assumed.copy()
            doubled[number] += np.log(2)
            telling = np.flatnonzero(np.abs(self._missed(doubled) - assumed) > _TELLING)
            if len({self.configs[index] for index in telling}) >= _SEVERAL:
                told.append(number)
        return told

    def _fitted(self) -> Column:
        """The logarithms of the coefficients."""
        from scipy.optimize import least_squares

        told, start = self._told(), self._assumed
        weight = _ASSUMED * max(1.0, _MANY_CONFIGS / len(set(self.configs))) ** 0.5

        def residuals(some: Column) -> Column:
            logarithms = start.copy()
            logarithms[told] = some
            return np.concatenate([self._missed(logarithms), weight * (some - start[told])])

        lowest = start - _FARTHEST
        for name, least in _LEAST.items():
            lowest[_NAMES.index(name)] = np.log(least)
        found = start.copy()
        found[told] = least_squares(
            residuals,
            np.maximum(start, lowest + 1e-6)[told],
            loss="soft_l1",
            f_scale=_LARGE_ERROR,
            bounds=(lowest[told], (start + _FARTHEST)[told]),
        ).x
        return found
