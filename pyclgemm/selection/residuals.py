"""Errors of predicted times, learnt from measured times: kriging of their logarithm.

See C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning" (2006), sections 2.2 and
2.7. The error is the logarithm of measured over predicted time. It has a trend and a rest. The
trend is linear in what a time consists of: where a coefficient of the model is wrong, the error
grows with the share of its part. The rests of two times of one family are correlated: the more, the
closer the sizes of their products are, in octaves, and the more similar their configurations are.
Errors of different families are independent, so the equations of each family are solved separately,
once. A correction is then a weighted sum over the measured times, and one over the parts of a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codegen.config import Config
from ..families.cost import PARTS, Column, Terms, WorkTable, shares, total
from ..problem.problem import GemmProblem
from .features import Sample, extents

#: Correlation length between products, in octaves.
_REACH = 3.75
#: Correlation length between configurations, in the features of `_features`.
_LIKE = 2.25
#: Factors of the covariance for another order of one operand, for other rows of the result, and for
#: each factor of 2 in the alignment of an operand.
_OTHER_ORDER, _OTHER_ROWS, _OTHER_ALIGNMENT = 0.9, 0.9, 0.95
#: Variances of the error: shared by a configuration, by similar ones, by its family; of each slope
#: of the trend; and the noise of a measurement. These, the lengths and the factors were chosen by
#: cross-validation on an H200, over eight types: see docs/explanation/selection.md. On CPUs other
#: processes disturb times.
_OWN, _ALIKE, _FAMILY, _TREND = 0.0125, 0.06, 0.02, 0.05
_NOISE = {"gpu": 0.02, "cpu": 0.05}
#: Times of a device that tell half of its speed.
_FEW = 3
#: The typical error of a family without times, and the number of times that count as much.
_TYPICAL, _PRIOR_TIMES = 0.13, 10
#: Elements of the widest vectors that kernels for few rows load.
WIDEST = 8
#: The most that left-out terms of the weights of products may change the logarithm of a time. On an
#: H200, times of 600 random products of four types change by 0.1 % at most.
_NEGLIGIBLE = 0.03
#: Most operands that a kernel may pack.
_MOST_PACKS = 2

Matrix = NDArray[np.float64]
Single = NDArray[np.float32]
Numbers = NDArray[np.int_]

#: How far layouts are apart that differ by 1 in a coordinate of `_layout`.
_DISTANCES = -np.log([_OTHER_ORDER, _OTHER_ORDER, _OTHER_ROWS, _OTHER_ALIGNMENT, _OTHER_ALIGNMENT])


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
        #: The times of each family.
        self.families = _by_family(configs)
        layouts = [_layout(sample.problem) for sample in samples]
        #: The different layouts, and the number of each time's.
        self._different = np.array(list(dict.fromkeys(layouts))).reshape(-1, len(_DISTANCES))
        of_layout = _numbered(layouts)
        self._kept: dict[tuple[float, ...], Single] = {}
        sizes = np.array([extents(sample.problem) for sample in samples], float).reshape(-1, 4)
        octaves = np.log2(sizes)
        #: The number of each time's product, of which there are fewer: all else but the
        #: configuration is the same for all times of a product.
        self.numbers = _numbered([*zip(map(tuple, sizes.tolist()), layouts, strict=True)])
        _, firsts = np.unique(self.numbers, return_index=True)
        #: The sizes of each product, a row for each of m, n, k and the number of products.
        self.octaves = octaves[firsts].T.astype(np.float32, order="C")
        self._layouts = of_layout[firsts]
        parts = table.parts(*sizes.T)
        predicted = total(parts)
        errors = np.log([sample.seconds for sample in samples] / predicted)
        errors -= _offsets(errors, np.array(sources, int))
        of_parts = shares(parts, predicted)
        self.weights = np.zeros(len(errors))
        #: The slopes of each family's trend.
        self.slopes: dict[str, Column] = {}
        #: How far predictions of each family are off, as a logarithm.
        self.spreads: dict[str, float] = {}
        likeness = _likeness(self._different, self._different)
        # What the covariance depends on beside the product.
        kernels = np.column_stack([_numbered(configs), self.packs, self.features])
        for name, times in self.families.items():
            different, of_kernel = _distinct(kernels[times])
            own, packs, features = np.split(different, [1, 2], axis=1)
            squares = _squares(features, features) + np.square(packs - packs.T)
            alike = _covariance(own == own.T, squares).astype(np.float32)
            products, of_product = _distinct(self.numbers[times])
            sizes_here = self.octaves.T[products]
            near = _nearness(_squares(sizes_here, sizes_here))
            near *= likeness[np.ix_(self._layouts[products], self._layouts[products])]
            near, parts_here = near.astype(np.float32), of_parts[:, times]
            covariance = _between_times(alike, of_kernel, near, of_product, parts_here)
            covariance[np.diag_indices(len(covariance))] += np.float32(_NOISE[device])
            root = _Root(covariance)
            right = errors[times, None].astype(np.float32)
            weights = root.backward(root.forward(right))[:, 0].astype(float)
            self.weights[times] = weights
            self.slopes[name] = _TREND * parts_here @ weights
            self.spreads[name] = _spread(_left_out(root, weights))

    def spread(self, family: str) -> float:
        """How far predictions of a family are off, as a logarithm."""
        return self.spreads.get(family, _TYPICAL)

    def likeness(self, problem: GemmProblem) -> Single:
        """The factor of each product's covariance with those of the layouts of `problem`."""
        layout = _layout(problem)
        if layout not in self._kept:
            likeness = _likeness(self._different, np.array([layout]))
            self._kept[layout] = likeness[self._layouts, 0].astype(np.float32)
        return self._kept[layout]


#: Rows or columns of a block of a matrix, and the most times that are left out in turn.
_BLOCK, _LEFT_OUT = 256, 512


class _Root:
    """The Cholesky factor of a matrix, by blocks of columns: most of the work are products.

    The matrix is overwritten. NumPy's own factors of thousands of rows take two to three times as
    long (G. Golub and C. Van Loan, "Matrix Computations", section 4.2, has block forms).
    """

    def __init__(self, matrix: Single) -> None:
        self._lower = matrix
        self._blocks = [slice(i, i + _BLOCK) for i in range(0, len(matrix), _BLOCK)]
        #: The inverses of the blocks on the diagonal.
        self._inverses: list[Single] = []
        for block in self._blocks:
            below = matrix[block.start :, block]
            below -= matrix[block.start :, : block.start] @ matrix[block, : block.start].T
            inverse = np.linalg.inv(np.linalg.cholesky(below[:_BLOCK]))
            below[_BLOCK:] = below[_BLOCK:] @ inverse.T
            self._inverses.append(inverse)

    def forward(self, right: Single) -> Single:
        """The solution x of L x = `right`, a matrix, for the factor L."""
        x = right.copy()
        for block, inverse in zip(self._blocks, self._inverses, strict=True):
            x[block] = inverse @ (x[block] - self._lower[block, : block.start] @ x[: block.start])
        return x

    def backward(self, right: Single) -> Single:
        """The solution x of L^T x = `right`."""
        x = right.copy()
        for block, inverse in zip(self._blocks[::-1], self._inverses[::-1], strict=True):
            below = slice(block.stop, None)
            x[block] = inverse.T @ (x[block] - self._lower[below, block].T @ x[below])
        return x


def _left_out(root: _Root, weights: Column) -> Column:
    """What times would be off by if each were left out (Rasmussen and Williams, 5.4.2).

    Of many times, an even selection.
    """
    count = len(weights)
    chosen = np.linspace(0, count - 1, min(count, _LEFT_OUT)).astype(int)
    units = np.zeros((count, len(chosen)), np.float32)
    units[chosen, range(len(chosen))] = 1
    columns = root.forward(units)
    errors: Column = weights[chosen] / np.einsum("ij,ij->j", columns, columns)
    return errors


def _distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], Numbers]:
    """The different keys, and the number of each key among them."""
    different, numbers = np.unique(keys, return_inverse=True, axis=0)
    return different, numbers.reshape(-1)


def _between_times(
    alike: Single, of_kernel: Numbers, near: Single, of_product: Numbers, of_parts: Terms
) -> Single:
    """The covariance of the errors of all times, without the noise of measurements.

    `alike` is the covariance of different kernels, `near` the correlation of different products;
    the numbers tell which of them each time is of. `of_parts` has the shares of each time's parts.
    """
    # Half of the digits take half of the time, and errors need no more. A few rows at a time stay
    # in the processor's cache.
    trend = (math.sqrt(_TREND) * of_parts).astype(np.float32)
    covariance = np.empty((len(of_kernel),) * 2, np.float32)
    for first in range(0, len(covariance), _BLOCK):
        rows = slice(first, first + _BLOCK)
        part = covariance[rows]
        np.matmul(trend[:, rows].T, trend, out=part)
        of_pairs = alike[of_kernel[rows]].take(of_kernel, axis=1)
        of_pairs *= near[of_product[rows]].take(of_product, axis=1)
        part += of_pairs
    return covariance


def _spread(errors: Column) -> float:
    """The root mean square of some errors and of typical ones."""
    squares = _PRIOR_TIMES * _TYPICAL**2 + float(errors @ errors)
    return math.sqrt(squares / (_PRIOR_TIMES + len(errors)))


def _offsets(errors: Column, sources: Numbers) -> Column:
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
    """The weight of each measured product in the error of each configuration.

    The configurations are sorted by family; `table` has a row for each, without their layouts.
    """

    def __init__(self, residuals: Residuals, configs: Sequence[Config], table: WorkTable) -> None:
        self.residuals, self.count = residuals, len(configs)
        # For each measured time the index of its configuration in `configs`, or -1.
        index_of = {config: index for index, config in enumerate(configs)}
        indices = np.array([index_of.get(one.config, -1) for one in residuals.samples], int)
        theirs = np.argsort(indices, kind="stable")[np.count_nonzero(indices < 0) :]
        #: Those of these configurations that were measured, where the times of each one begin, and
        #: of each time its product and its weight beyond those of other configurations.
        self.known, self.firsts = np.unique(indices[theirs], return_index=True)
        self.measured = residuals.numbers[theirs]
        self.own = (_OWN * residuals.weights[theirs]).astype(np.float32)
        features = _features(table)
        #: The products of all families, one after the other.
        self.products = np.zeros(0, int)
        self._families: list[_FamilyWeights] = []
        #: The slopes of each configuration's trend.
        self.slopes = np.zeros((PARTS, len(configs)))
        for name, members in _by_family(configs).items():
            if times := residuals.families.get(name):
                # Many configurations have equal features: they differ in the order of tiles, say.
                different, numbered = _distinct(features[members])
                squares = _squares(different, residuals.features[times])
                weights = [
                    _alike(squares + np.square(packs - residuals.packs[times]))
                    for packs in range(_MOST_PACKS + 1)
                ]
                # The times of a product are as near to any other one: their weights are added.
                order = np.argsort(residuals.numbers[times], kind="stable")
                numbers, firsts = np.unique(residuals.numbers[times][order], return_index=True)
                of_times = (np.array(weights) * residuals.weights[times])[..., order]
                left, right = _factored(np.add.reduceat(of_times, firsts, axis=-1))
                products = slice(len(self.products), len(self.products) + len(numbers))
                self._families.append(_FamilyWeights(members, numbered, products, left, right))
                self.products = np.append(self.products, numbers)
                self.slopes[:, members] = residuals.slopes[name][:, None]
        self._kept: dict[bytes, list[tuple[slice, slice, Single, Single]]] = {}

    def of(self, packs: Numbers) -> list[tuple[slice, slice, Single, Single]]:
        """For each family its configurations, its products, and the two factors of the weights."""
        key = packs.tobytes()
        if key not in self._kept:
            self._kept[key] = [
                (one.members, one.products, one.left[packs[one.members], one.numbered], one.right)
                for one in self._families
            ]
        return self._kept[key]


class _FamilyWeights(NamedTuple):
    """The weights of products in the errors of a family's configurations, as two factors."""

    members: slice  # among all configurations
    numbered: Numbers  # the number of each configuration's features
    products: slice  # among those of all families
    left: Single  # for each number of operands that a configuration packs, and its features
    right: Single  # for each product


def _factored(weights: NDArray[np.float64]) -> tuple[Single, Single]:
    """Two factors of weights, whose last axis are products, with as few terms as errors need.

    Similar configurations have similar weights. The second factor, which is the same however many
    operands are packed, stays in the processor's cache from choice to choice. The first one has
    singular vectors (G. Golub and C. Van Loan, "Matrix Computations", section 2.4).
    """
    matrix = weights.reshape(-1, weights.shape[-1])
    squares, vectors = np.linalg.eigh(matrix @ matrix.T)
    # The correlations of a product with the measured ones are at most 1, so that the root of their
    # number bounds their length as a vector.
    vectors = vectors[:, squares * matrix.shape[1] > _NEGLIGIBLE**2]
    left = vectors.reshape(*weights.shape[:-1], -1)
    # Half as many bytes make a choice faster, and errors need no more digits.
    return left.astype(np.float32), (vectors.T @ matrix).astype(np.float32)


class Corrections:
    """Corrections of predicted times, for products of the layouts of `problem`.

    `packs` counts the operands that each configuration packs for them.
    """

    def __init__(self, weights: Weights, problem: GemmProblem, packs: Numbers) -> None:
        self._weights, self._parts = weights, weights.of(packs)
        self._likeness = weights.residuals.likeness(problem)

    def at(self, sizes: Sequence[float], parts: Terms, seconds: Column) -> tuple[Column, Column]:
        """The expected error of each configuration for a product, and its uncertainty, up to 1.

        `seconds` are the predicted times, and `parts` their parts.
        """
        weights = self._weights
        distances = weights.residuals.octaves - np.log2(sizes, dtype=np.float32)[:, None]
        near = _nearness(np.einsum("ij,ij->j", distances, distances)) * self._likeness
        errors = np.einsum("ij,ij->j", weights.slopes, shares(parts, seconds))
        near_of_families = near[weights.products]
        for members, products, left, right in self._parts:
            errors[members] += left @ (right @ near_of_families[products])
        nearest, doubt = near[weights.measured], np.ones(weights.count)
        errors[weights.known] += np.add.reduceat(nearest * weights.own, weights.firsts)
        # A time whose error is correlated by r tells as much as r^2 times of the same product.
        times = np.add.reduceat(nearest * nearest, weights.firsts)
        doubt[weights.known] = 1 / np.sqrt(1 + times)
        return errors, doubt


def _layout(problem: GemmProblem) -> tuple[float, ...]:
    """The layouts of a product, as coordinates of which `_DISTANCES` has the distances."""
    operands = problem.a, problem.b
    orders = (float(operand.order == "column") for operand in operands)
    alignments = (math.log2(min(operand.alignment, WIDEST)) for operand in operands)
    return (*orders, float(problem.out.alignment >= WIDEST), *alignments)


def _likeness(layouts: Matrix, others: Matrix) -> Matrix:
    """The factor of the covariance for each pair of layouts."""
    likeness: Matrix = np.exp(-np.abs(layouts[:, None] - others) @ _DISTANCES)
    return likeness


def _numbered(keys: Sequence[object]) -> Numbers:
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
    """The features, besides packed operands, by which configurations are compared, in rows.

    The factors, of what counts more than an octave of others, were chosen with the lengths above.
    """
    work = table.work
    logarithms = ("rows", "columns", "depth", "resident")
    return np.column_stack(
        [
            *(np.log2(np.maximum(work[name], 1)) for name in logarithms),
            *(np.log2(np.maximum(work[name], 1e-3)) for name in ("exposed", "alone")),
            1.5 * np.log2(np.maximum(work["rounds"], 1)),
            4.0 * (work["fill"] > 0) + work["fill"],
            3.0 * work["descriptors"],
        ]
    )


def _covariance(same: NDArray[np.bool_], squares: Matrix) -> Matrix:
    """The covariance of configurations of a family on one product, by squared distances."""
    return _OWN * same + _alike(squares)


def _alike(squares: Matrix) -> Matrix:
    """The covariance of different configurations of a family on one product."""
    covariance: Matrix = _ALIKE * np.exp(squares / (-2 * _LIKE**2)) + _FAMILY
    return covariance


def _nearness(squares: NDArray[Any]) -> NDArray[Any]:
    """The correlation of errors on two products, by squared distances in octaves.

    This is the rational quadratic (Rasmussen and Williams, 4.2.1): far times tell a little, too.
    """
    return 1 / (1 + squares / (2 * _REACH**2))


def _squares(rows: Matrix, others: Matrix) -> Matrix:
    """The squared distances between the rows of two matrices."""
    lengths = np.square(rows).sum(1)[:, None] + np.square(others).sum(1)
    squares: Matrix = np.maximum(lengths - 2 * rows @ others.T, 0.0)
    return squares
