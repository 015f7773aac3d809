"""Coefficients of predicted times, fitted to measured ones.

Non-linear least squares (`scipy.optimize.least_squares`) of the logarithm of predicted over
measured times, family by family. A few wrong times do not pull it far (`soft_l1`). A coefficient
stays as the family assumes it if the times tell nothing of it, or those of one configuration alone
do, which may have faults of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..families.cost import Coefficients, Column, Work, WorkTable
from ..families.registry import family_of, problem_on
from ..problem.problem import GemmProblem
from ..selection.features import extents, problem_of, seconds_of
from ..selection.records import Entry, Model

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
    """Fit the coefficients of each family; arguments are those of `times_by_family`.

    `ImportError` says that SciPy is missing, which the extra ``tune`` has.
    """
    families = times_by_family(samples, traits, ceilings)
    return {family: times.fit() for family, times in families.items()}


def model_of(source: str, fits: Mapping[str, Fit]) -> Model:
    """What a database keeps of fits by family; `source` says to what they were fitted."""
    coefficients = {family: fit.coefficients for family, fit in fits.items()}
    return Model(source, date.today().isoformat(), coefficients)


def recorded(entry: Entry) -> Iterator[Sample]:
    """The times that an entry's own records state."""
    for record in entry.own:
        if record.gflops is not None and not record.packed:
            problem = problem_of(record, *entry.name)
            yield Sample(problem, record.config, seconds_of(record.gflops, problem))


def times_by_family(
    samples: Iterable[Sample], traits: DeviceTraits, ceilings: Ceilings
) -> dict[str, Times]:
    """The times of each family of which there are enough.

    Samples are of one element type and arithmetic; `ceilings` are those by which times are to be
    predicted.
    """
    found: dict[str, list[tuple[Sample, Work]]] = {}
    for sample in samples:
        problem = problem_on(sample.problem, traits)
        work = family_of(sample.config).work(sample.config, problem, traits, ceilings)
        if work is not None:
            measured = found.setdefault(sample.config.family, [])
            measured.append((replace(sample, problem=problem), work))
    return {
        family: Times(measured, traits.compute_units)
        for family, measured in found.items()
        if len(measured) >= _FEWEST
    }


class Times:
    """The times of a family, and the work of the configurations that took them."""

    def __init__(self, measured: Sequence[tuple[Sample, Work]], units: int) -> None:
        self._measured, self._units = measured, units
        self._configs = [sample.config for sample, _ in measured]
        self._sizes = np.array([extents(sample.problem) for sample, _ in measured], float).T
        self._seconds = np.array([sample.seconds for sample, _ in measured])
        assumed = family_of(self._configs[0]).coefficients
        self._table = WorkTable([work for _, work in measured], [assumed] * len(measured), units)
        self._assumed = np.log([getattr(assumed, name) for name in _NAMES])

    def fit(self) -> Fit:
        """Fit the coefficients."""
        found = self._fitted()
        coefficients = Coefficients(**dict(zip(_NAMES, np.exp(found).tolist(), strict=True)))
        error = float(np.median(np.abs(self._missed(found))))
        return Fit(coefficients, len(self._configs), error)

    def error_of_unseen(self) -> float:
        """How wrong fitted coefficients are about configurations to which they were not fitted.

        The mean of the logarithm of predicted over measured times, without its sign. Infinite where
        there is one configuration alone.
        """
        configs = list(dict.fromkeys(self._configs))
        if len(configs) == 1:
            return np.inf
        missed = []
        for fold in range(min(_FOLDS, len(configs))):
            left_out = set(configs[fold::_FOLDS])
            seen, unseen = (
                [one for one in self._measured if (one[0].config in left_out) == is_left_out]
                for is_left_out in (False, True)
            )
            found = Times(seen, self._units)._fitted()
            missed.append(Times(unseen, self._units)._missed(found))
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
            if len({self._configs[index] for index in telling}) >= _SEVERAL:
                told.append(number)
        return told

    def _fitted(self) -> Column:
        """The logarithms of the coefficients."""
        from scipy.optimize import least_squares

        told, start = self._told(), self._assumed
        weight = _ASSUMED * max(1.0, _MANY_CONFIGS / len(set(self._configs))) ** 0.5

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
