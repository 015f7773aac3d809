"""Errors of predicted times, learnt from measured times: kriging of their logarithm.

See C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning" (2006), section 2.2. The
error is the logarithm of measured over predicted time. Two errors of one family are correlated: the
more, the closer the sizes of their products are, in octaves, and the more similar their
configurations are. Errors of different families are independent, so the equations of each family
are solved separately, once. A correction is then a weighted sum over the measured times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..codegen.config import Config
from ..families.cost import Column, WorkTable
from ..problem.problem import GemmProblem
from .features import Sample, extents

#: Correlation length between products, in octaves.
_REACH = 2.5
#: Correlation length between configurations, in the features of `_features`.
_LIKE = 1.5
#: Variances of the error: shared by a configuration, by similar ones, by its family; and the noise
#: of a measurement. These and the lengths were chosen by cross-validation on an H200, over six
#: types: the choice for a left-out product, among the configurations timed on it, took 1.047 times
#: as long as the fastest; without corrections, 1.115 times.
_OWN, _ALIKE, _FAMILY, _NOISE = 0.03, 0.04, 0.04, 0.004
#: Elements of the widest vectors that kernels for few rows load.
WIDEST = 8
#: Factor of the covariance for operands of another layout.
_OTHER_LAYOUT = 0.6

Matrix = NDArray[np.float64]


class Residuals:
    """The errors of the predictions of measured times; the table has a row for each sample."""

    def __init__(self, samples: Sequence[Sample], table: WorkTable) -> None:
        self.samples, self.features = samples, _features(table)
        self.layouts = [_layout(sample.problem) for sample in samples]
        configs = [sample.config for sample in samples]
        sizes = np.array([extents(sample.problem) for sample in samples], float).reshape(-1, 4)
        self.octaves = np.log2(sizes)
        seconds = np.array([sample.seconds for sample in samples])
        errors = np.log(seconds / table.seconds(*sizes.T))
        #: The indices of the times of each family, and the weight of each time.
        self.families = _by_family(configs)
        self.weights = np.zeros(len(errors))
        config_numbers, layout_numbers = _numbered(configs), _numbered(self.layouts)
        for times in self.families.values():
            features, octaves = self.features[times], self.octaves[times]
            configs_here, layouts_here = config_numbers[times], layout_numbers[times]
            covariance = _covariance(
                configs_here[:, None] == configs_here, _squares(features, features)
            )
            covariance *= _nearness(_squares(octaves, octaves))
            covariance *= np.where(layouts_here[:, None] == layouts_here, 1.0, _OTHER_LAYOUT)
            covariance[np.diag_indices(len(times))] += _NOISE
            self.weights[times] = np.linalg.solve(covariance, errors[times])


class Corrections:
    """Corrections of predicted times, for products of the layout of `problem`."""

    def __init__(
        self,
        residuals: Residuals,
        configs: Sequence[Config],
        table: WorkTable,
        problem: GemmProblem,
    ) -> None:
        self._octaves, self._count = residuals.octaves, len(configs)
        layout = _layout(problem)
        is_same = np.array([one == layout for one in residuals.layouts], bool)
        self._layouts = np.where(is_same, 1.0, _OTHER_LAYOUT)
        # For each measured time the index of its configuration in `configs`, or -1.
        index_of = {config: index for index, config in enumerate(configs)}
        indices = np.array([index_of.get(one.config, -1) for one in residuals.samples], int)
        self._measured = np.flatnonzero(indices >= 0)
        self._indices = indices[self._measured]
        features, families = _features(table), _by_family(configs)
        #: For each family: its configurations, its measured times, and a weight for each pair.
        self._parts: list[tuple[NDArray[np.intp], NDArray[np.intp], Matrix]] = []
        for name, times in residuals.families.items():
            members = families.get(name, np.zeros(0, int))
            weights = _covariance(
                members[:, None] == indices[times],
                _squares(features[members], residuals.features[times]),
            )
            weights *= residuals.weights[times] * self._layouts[times]
            self._parts.append((members, times, weights))

    def at(self, sizes: Sequence[float]) -> tuple[Column, Column]:
        """The expected error of each configuration for a product, and its uncertainty, up to 1."""
        near = _nearness(np.square(self._octaves - np.log2(sizes)).sum(1))
        errors = np.zeros(self._count)
        for members, times, weights in self._parts:
            errors[members] = weights @ near[times]
        near = near[self._measured] * self._layouts[self._measured]
        return errors, 1 / np.sqrt(1 + np.bincount(self._indices, near, self._count))


def _layout(problem: GemmProblem) -> tuple[str, str, bool]:
    """The layouts that matter for the correlation of errors."""
    return problem.a.order, problem.b.order, problem.out.alignment >= WIDEST


def _numbered(keys: Sequence[object]) -> NDArray[np.int_]:
    """A number for each key, the same for equal keys."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], int)


def _by_family(configs: Sequence[Config]) -> dict[str, NDArray[np.intp]]:
    """The indices of the configurations of each family."""
    names = np.array([config.family for config in configs], str)
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names)}


def _features(table: WorkTable) -> Matrix:
    """The features by which configurations are compared, one row for each configuration."""
    work = table.work
    logarithms = ("rows", "columns", "depth", "resident", "rounds")
    return np.column_stack(
        [
            *(np.log2(np.maximum(work[name], 1)) for name in logarithms),
            *(np.log2(np.maximum(work[name], 1e-3)) for name in ("exposed", "alone")),
            2.0 * (work["fill"] > 0) + 0.5 * work["fill"],
            work["descriptors"],
            work["packs"],
        ]
    )


def _covariance(same: NDArray[np.bool_], squares: Matrix) -> Matrix:
    """The covariance of configurations of a family on one product, by squared distances."""
    return _OWN * same + _ALIKE * np.exp(squares / (-2 * _LIKE**2)) + _FAMILY


def _nearness(squares: Column | Matrix) -> Matrix:
    """The correlation of errors on two products, by squared distances in octaves."""
    near: Matrix = np.exp(squares / (-2 * _REACH**2))
    return near


def _squares(rows: Matrix, others: Matrix) -> Matrix:
    """The squared distances between the rows of two matrices."""
    lengths = np.square(rows).sum(1)[:, None] + np.square(others).sum(1)
    squares: Matrix = np.maximum(lengths - 2 * rows @ others.T, 0.0)
    return squares
