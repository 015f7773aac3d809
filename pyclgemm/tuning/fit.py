"""Fit the coefficients of predicted times to measured times.

The fit of each family is non-linear least squares (`scipy.optimize.least_squares`) of the logarithm
of predicted over measured time, with a loss (`soft_l1`) that limits the influence of outliers. A
coefficient keeps the family's default unless the times of several configurations depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date

import numpy as np

from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..families.cost import Coefficients, Column, Work, WorkTable
from ..families.registry import family_of, problem_on
from ..selection.features import Sample, extents
from ..selection.records import Model

_NAMES = [field.name for field in fields(Coefficients)]

#: Errors are logarithms. From this one on, the loss grows linearly instead of quadratically.
_LARGE_ERROR = 0.15
#: Weight of a coefficient's deviation from its default, and the largest deviation.
_ASSUMED = 0.15
_FARTHEST = 5.0
#: Least values of coefficients: kernels cannot exceed measured ceilings by more than this.
_LEAST = {"multiply": 0.8}

#: Coefficients in seconds, which are not fitted: the times of small products hardly depend on the
#: kernel, so latencies cannot be told apart. On an H200, fitting them made choices worse.
_LATENCIES = ("slab", "tile", "launch", "pack_launch", "split", "descriptors")

#: Least number of times of a family for a fit.
_FEWEST = 8
#: A coefficient is fitted if the times of several configurations change by this logarithm as it
#: grows by this factor: what is assumed may be an order of magnitude too small.
_SEVERAL, _TELLING, _GROWN = 2, 0.05, 8
#: With fewer configurations than this, defaults weigh more: the errors of one configuration's
#: times are correlated.
_MANY_CONFIGS = 16
#: Number of folds of the cross-validation over configurations.
_FOLDS = 3


@dataclass(frozen=True)
class Fit:
    """The fit of a family."""

    coefficients: Coefficients
    times: int  # number of times that it was fitted to
    error: float  # median relative error of a predicted time


def fit_coefficients(
    samples: Iterable[Sample], traits: DeviceTraits, ceilings: Ceilings
) -> dict[str, Fit]:
    """Fit the coefficients of each family; the arguments are those of `times_by_family`."""
    families = times_by_family(samples, traits, ceilings)
    return {family: times.fit() for family, times in families.items()}


def model_of(source: str, fits: Mapping[str, Fit]) -> Model:
    """The fits by family as a database keeps them; `source` describes the times."""
    coefficients = {family: fit.coefficients for family, fit in fits.items()}
    return Model(source, date.today().isoformat(), coefficients)


def times_by_family(
    samples: Iterable[Sample], traits: DeviceTraits, ceilings: Ceilings
) -> dict[str, Times]:
    """The times of each family that has enough, of samples of one element type and arithmetic."""
    families: dict[str, list[tuple[Sample, Work]]] = {}
    for sample in samples:
        problem = problem_on(sample.problem, traits)
        work = family_of(sample.config).work(sample.config, problem, traits, ceilings)
        if work is not None:
            measured = families.setdefault(sample.config.family, [])
            measured.append((replace(sample, problem=problem), work))
    return {
        family: Times(measured, traits.compute_units)
        for family, measured in families.items()
        if len(measured) >= _FEWEST
    }


class Times:
    """The measured times of a family, with the work that took them."""

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
        logarithms = self._fitted()
        coefficients = Coefficients(**dict(zip(_NAMES, np.exp(logarithms).tolist(), strict=True)))
        error = float(np.median(np.abs(self._errors(logarithms))))
        return Fit(coefficients, len(self._configs), error)

    def error_of_unseen(self) -> float:
        """The mean absolute error for configurations left out of the fit, as a logarithm."""
        configs = list(dict.fromkeys(self._configs))
        if len(configs) == 1:
            return np.inf
        errors = []
        for fold in range(min(_FOLDS, len(configs))):
            left_out = set(configs[fold::_FOLDS])
            seen, unseen = (
                [one for one in self._measured if (one[0].config in left_out) == is_left_out]
                for is_left_out in (False, True)
            )
            logarithms = Times(seen, self._units)._fitted()
            errors.append(Times(unseen, self._units)._errors(logarithms))
        return float(np.abs(np.concatenate(errors)).mean())

    def _errors(self, logarithms: Column) -> Column:
        """The errors of the predictions, with coefficients given as logarithms."""
        table = self._table.with_coefficients(dict(zip(_NAMES, np.exp(logarithms), strict=True)))
        errors: Column = np.log(table.seconds(*self._sizes) / self._seconds)
        return errors

    def _telling(self, logarithms: Column) -> list[int]:
        """The indices of the coefficients that the times of several configurations depend on."""
        errors = self._errors(logarithms)
        indices = []
        for number, name in enumerate(_NAMES):
            if name in _LATENCIES:
                continue
            grown = logarithms.copy()
            grown[number] += np.log(_GROWN)
            changed = np.flatnonzero(np.abs(self._errors(grown) - errors) > _TELLING)
            if len({self._configs[index] for index in changed}) >= _SEVERAL:
                indices.append(number)
        return indices

    def _fitted(self) -> Column:
        """The logarithms of the fitted coefficients."""
        logarithms, fitted = self._assumed, self._telling(self._assumed)
        while fitted:
            logarithms = self._fit_some(fitted)
            # A term may have been hidden by another one whose coefficient was assumed too large.
            more = sorted({*fitted, *self._telling(logarithms)})
            if more == fitted:
                break
            fitted = more
        return logarithms

    def _fit_some(self, fitted: Sequence[int]) -> Column:
        """The logarithms of the coefficients, of which those with the given indices are fitted."""
        from scipy.optimize import least_squares

        start = self._assumed
        weight = _ASSUMED * max(1.0, _MANY_CONFIGS / len(set(self._configs))) ** 0.5

        def residuals(some: Column) -> Column:
            logarithms = start.copy()
            logarithms[fitted] = some
            return np.concatenate([self._errors(logarithms), weight * (some - start[fitted])])

        lowest = start - _FARTHEST
        for name, least in _LEAST.items():
            lowest[_NAMES.index(name)] = np.log(least)
        logarithms = start.copy()
        logarithms[fitted] = least_squares(
            residuals,
            np.maximum(start, lowest + 1e-6)[fitted],
            loss="soft_l1",
            f_scale=_LARGE_ERROR,
            bounds=(lowest[fitted], (start + _FARTHEST)[fitted]),
        ).x
        return logarithms
