"""Errors of predicted times, learnt from measured times: kriging of their logarithm.

See C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning" (2006), section 2.2. The
error is the logarithm of measured over predicted time. Two errors of one family are correlated: the
more, the closer the sizes of their products are, in octaves, and the more similar their
configurations are. Errors of different families are independent, so the equations of each family
are solved separately, once. A correction is then a weighted sum over the measured times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

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
#: as long as the fastest; without corrections, 1.115 times. On CPUs other processes disturb times:
#: on an EPYC, with the noise of a GPU, the choice took 1.066 times as long as the fastest, with
#: this one 1.046 times.
_OWN, _ALIKE, _FAMILY = 0.03, 0.04, 0.04
_NOISE = {"gpu": 0.004, "cpu": 0.05}
#: Times of a device that tell half of its speed.
_FEW = 3
#: The typical error of a family without times, and the number of times that count as much.
_TYPICAL, _PRIOR_TIMES = 0.13, 10
#: Elements of the widest vectors that kernels for few rows load.
WIDEST = 8
#: Most operands that a kernel may pack.
_MOST_PACKS = 2
#: Factor of the covariance for operands of another layout.
_OTHER_LAYOUT = 0.6

Matrix = NDArray[np.float64]
Single = NDArray[np.float32]


class Residuals:
    """The errors of the predictions of measured times, which are sorted by family.

    `table` has a row for each sample. `sources` has the numbers of their files: the most specific
    one, 0, tells the speed. Others were perhaps measured on a device of another speed, and tell how
    configurations compare. `device` is the type of the device, whose times are noisy.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        table: WorkTable,
        sources: Sequence[int],
        device: Literal["gpu", "cpu"],
    ) -> None:
        self.samples = samples
        self.features, self.packs = _features(table), table.packs
        configs = [sample.config for sample in samples]
        #: The times of each family, and a number for the layouts of each time.
        self.families = _by_family(configs)
        layouts = [_layout(sample.problem) for sample in samples]
        self._numbers = {layout: number for number, layout in enumerate(dict.fromkeys(layouts))}
        self._layouts = np.array([self._numbers[layout] for layout in layouts], int)
        sizes = np.array([extents(sample.problem) for sample in samples], float).reshape(-1, 4)
        self.octaves = np.log2(sizes.T.copy())  # a row for each size
        seconds = np.array([sample.seconds for sample in samples])
        errors = np.log(seconds / table.seconds(*sizes.T))
        errors -= _offsets(errors, np.array(sources, int))
        self.weights = np.zeros(len(errors))
        #: How far predictions of each family are off, as a logarithm.
        self.spreads: dict[str, float] = {}
        config_numbers = _numbered(configs)
        for name, times in self.families.items():
            features, octaves = self.features[times], self.octaves[:, times].T
            packs = self.packs[times]
            configs_here, layouts_here = config_numbers[times], self._layouts[times]
            covariance = _covariance(
                configs_here[:, None] == configs_here,
                _squares(features, features) + np.square(packs[:, None] - packs),
            )
            covariance *= _nearness(_squares(octaves, octaves))
            covariance *= np.where(layouts_here[:, None] == layouts_here, 1.0, _OTHER_LAYOUT)
            covariance[np.diag_indices(len(errors[times]))] += _NOISE[device]
            # Half of the digits take half of the time; the second line gives the weights the rest.
            inverse = np.linalg.inv(covariance.astype(np.float32))
            weights = inverse @ errors[times]
            weights += inverse @ (errors[times] - covariance @ weights)
            self.weights[times] = weights
            # What each time would be off by if it were left out (Rasmussen and Williams, 5.4.2).
            self.spreads[name] = _spread(weights / np.diag(inverse))

    def spread(self, family: str) -> float:
        """How far predictions of a family are off, as a logarithm."""
        return self.spreads.get(family, _TYPICAL)

    def likeness(self, problem: GemmProblem) -> Column:
        """The factor of each time's covariance with products of the layouts of `problem`."""
        return np.where(self._layouts == self._numbers.get(_layout(problem)), 1.0, _OTHER_LAYOUT)


def _spread(errors: Column) -> float:
    """The root mean square of some errors and of typical ones."""
    squares = _PRIOR_TIMES * _TYPICAL**2 + float(errors @ errors)
    return math.sqrt(squares / (_PRIOR_TIMES + len(errors)))


def _offsets(errors: Column, sources: NDArray[np.int_]) -> Column:
    """How much slower, as a logarithm, the devices of other files are than that of the first."""
    offsets = np.zeros(len(errors))
    first = None
    for number in np.unique(sources):
        here = errors[sources == number]
        # A few times tell little of a device's speed.
        typical = float(np.median(here)) * len(here) / (len(here) + _FEW)
        first = typical if first is None else first
        offsets[sources == number] = typical - first
    return offsets


class Weights:
    """The weight of each measured time in the error of each configuration.

    The configurations are sorted by family; `table` has a row for each, without their layouts.
    """

    def __init__(self, residuals: Residuals, configs: Sequence[Config], table: WorkTable) -> None:
        self.residuals, self.count = residuals, len(configs)
        # For each measured time the index of its configuration in `configs`, or -1.
        index_of = {config: index for index, config in enumerate(configs)}
        indices = np.array([index_of.get(one.config, -1) for one in residuals.samples], int)
        #: The times of these configurations, and the index of each one's configuration.
        self.measured = np.flatnonzero(indices >= 0)
        self.indices = indices[self.measured]
        features, everyone = _features(table), np.arange(len(configs))
        #: For each family: its configurations, its times, and the weights for each number of
        #: operands that a configuration packs, which depends on the product.
        self._families: list[tuple[slice, slice, Single]] = []
        for name, members in _by_family(configs).items():
            if times := residuals.families.get(name):
                same = everyone[members, None] == indices[times]
                squares = _squares(features[members], residuals.features[times])
                weights = [
                    _covariance(same, squares + np.square(packs - residuals.packs[times]))
                    for packs in range(_MOST_PACKS + 1)
                ]
                # Half as many bytes make a choice faster, and errors need no more digits.
                of_family = (np.array(weights) * residuals.weights[times]).astype(np.float32)
                self._families.append((members, times, of_family))
        self._kept: dict[bytes, list[tuple[slice, slice, Single]]] = {}

    def of(self, packs: NDArray[np.int_]) -> list[tuple[slice, slice, Single]]:
        """The configurations and times of each family, and the weight of each pair."""
        key = packs.tobytes()
        if key not in self._kept:
            self._kept[key] = [
                (members, times, _of_packs(weights, packs[members]))
                for members, times, weights in self._families
            ]
        return self._kept[key]


def _of_packs(weights: Single, packs: NDArray[np.int_]) -> Single:
    """The weights of configurations that pack the given numbers of operands."""
    first = packs[0]
    chosen: Single = weights[first] if (packs == first).all() else weights[packs, range(len(packs))]
    return chosen


class Corrections:
    """Corrections of predicted times, for products of the layouts of `problem`.

    `packs` counts the operands that each configuration packs for them.
    """

    def __init__(self, weights: Weights, problem: GemmProblem, packs: NDArray[np.int_]) -> None:
        self._weights, self._parts = weights, weights.of(packs)
        self._likeness = weights.residuals.likeness(problem)

    def at(self, sizes: Sequence[float]) -> tuple[Column, Column]:
        """The expected error of each configuration for a product, and its uncertainty, up to 1."""
        weights = self._weights
        distances = weights.residuals.octaves - np.log2(sizes)[:, None]
        near = _nearness((distances * distances).sum(0)) * self._likeness
        single = near.astype(np.float32)
        errors = np.zeros(weights.count)
        for members, times, of_pairs in self._parts:
            errors[members] = of_pairs @ single[times]
        known = np.bincount(weights.indices, near[weights.measured], weights.count)
        return errors, 1 / np.sqrt(1 + known)


def _layout(problem: GemmProblem) -> tuple[str, str, bool]:
    """The layouts that matter for the correlation of errors."""
    return problem.a.order, problem.b.order, problem.out.alignment >= WIDEST


def _numbered(keys: Sequence[object]) -> NDArray[np.int_]:
    """A number for each key, the same for equal keys."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], int)


def _by_family(configs: Sequence[Config]) -> dict[str, slice]:
    """Where the configurations of each family are, if they are sorted by family."""
    parts, first = {}, 0
    for name, members in itertools.groupby(configs, lambda config: config.family):
        parts[name] = slice(first, first := first + len(list(members)))
    return parts


def _features(table: WorkTable) -> Matrix:
    """The features, besides packed operands, by which configurations are compared, in rows."""
    work = table.work
    logarithms = ("rows", "columns", "depth", "resident", "rounds")
    return np.column_stack(
        [
            *(np.log2(np.maximum(work[name], 1)) for name in logarithms),
            *(np.log2(np.maximum(work[name], 1e-3)) for name in ("exposed", "alone")),
            2.0 * (work["fill"] > 0) + 0.5 * work["fill"],
            work["descriptors"],
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
