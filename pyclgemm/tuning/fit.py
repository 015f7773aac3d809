"""Coefficients of predicted times, fitted to measured ones.

Non-linear least squares (`scipy.optimize.least_squares`) of the logarithm of predicted over
measured times, family by family. A few wrong times do not pull it far (`soft_l1`), and a
coefficient about which the times say nothing stays as the family assumes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..families.cost import Coefficients, Work, WorkTable
from ..families.registry import family_of, problem_on
from ..problem.problem import GemmProblem

_NAMES = [field.name for field in fields(Coefficients)]

#: Of the logarithm: the error from which on a time counts less than its square, how much one of
#: an assumed coefficient counts, and how far a coefficient may go from it.
_LARGE_ERROR = 0.15
_ASSUMED = 0.15
_FARTHEST = 5.0
#: Ceilings that were measured are not surpassed by more than this; others may be estimates.
_LEAST = {"multiply": 0.9}

#: Launches follow each other no faster than the host enqueues them: times of small products are
#: the longer of the two, by a norm of this exponent. Seconds that are assumed of it.
_HOST = 6.0
_INTERVAL = 5e-6

#: Times of a family from which on its coefficients are fitted.
_FEWEST = 8


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
    by_family: dict[str, list[tuple[Sample, Work]]] = {}
    for sample in samples:
        problem = problem_on(sample.problem, traits)
        work = family_of(sample.config).work(sample.config, problem, traits, ceilings)
        if work is not None:
            by_family.setdefault(sample.config.family, []).append((sample, work))
    return {
        family: _fit(measured, traits)
        for family, measured in by_family.items()
        if len(measured) >= _FEWEST
    }


def _fit(measured: list[tuple[Sample, Work]], traits: DeviceTraits) -> Fit:
    from scipy.optimize import least_squares

    assumed = family_of(measured[0][0].config).coefficients
    table = WorkTable(
        [work for _, work in measured], [assumed] * len(measured), traits.compute_units
    )
    problems = [problem_on(sample.problem, traits) for sample, _ in measured]
    sizes = np.array([(one.m, one.n, one.k, max(1, one.products)) for one in problems], float).T
    times = np.array([sample.seconds for sample, _ in measured])
    start = np.log([*(getattr(assumed, name) for name in _NAMES), _INTERVAL])

    def predicted(logarithms: np.ndarray) -> np.ndarray:
        *values, interval = np.exp(logarithms)
        table.coefficients.update(zip(_NAMES, values, strict=True))
        total: np.ndarray = (table.seconds(*sizes) ** _HOST + interval**_HOST) ** (1 / _HOST)
        return total

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        missed = np.log(predicted(logarithms) / times)
        return np.concatenate([missed, _ASSUMED * (logarithms - start)])

    lowest = start - _FARTHEST
    for name, least in _LEAST.items():
        lowest[_NAMES.index(name)] = np.log(least)
    found = least_squares(
        residuals,
        np.maximum(start, lowest + 1e-6),
        loss="soft_l1",
        f_scale=_LARGE_ERROR,
        bounds=(lowest, start + _FARTHEST),
    )
    values = dict(zip(_NAMES, np.exp(found.x), strict=False))
    error = float(np.median(np.abs(np.log(predicted(found.x) / times))))
    return Fit(Coefficients(**values), len(measured), error)
