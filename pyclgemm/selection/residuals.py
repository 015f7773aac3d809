"""What predictions miss, learnt from measured times: kriging of the logarithm of the miss.

See C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning" (2006), section 2.2. Two
misses of one family are the more alike the nearer the sizes of their products are, in octaves, and
the more alike their configurations: the same one, one with a like tile, or just one of the family.
Families tell nothing of each other, so that the equations of each are solved by themselves, once.
For a product there is left a sum over the measured times, weighted by their distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..codegen.config import Config
from ..families.cost import Column, WorkTable

#: Octaves over which what a prediction missed on a product still tells something.
_REACH = 2.5
#: The same of configurations: of tile sides and of what else `_alike` compares.
_LIKE = 1.5
#: Variances of the logarithm of the miss: what a configuration, those like it, and its family have
#: in common, and what a measurement varies by. These and the reaches were chosen on an H200, over
#: six types, by leaving products out: what was chosen for a product among the configurations timed
#: on it took 1.047 times as long as the fastest, and 1.115 without what is learnt here.
_OWN, _ALIKE, _FAMILY, _NOISE = 0.03, 0.04, 0.04, 0.004
#: What is left of the likeness where operands lie otherwise.
_OTHER_LAYOUT = 0.6

Matrix = NDArray[np.float64]


class Residuals:
    """What the predictions of measured times missed.

    Parameters
    ----------
    configs : sequence
        The configuration of each time.
    layouts : sequence
        How the operands lay: equal where they lay alike.
    sizes : array of shape (times, 4)
        The sizes m, n, k and the number of products.
    table : WorkTable
        What each configuration does for its product.
    seconds : array of shape (times,)
        The measured times.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        layouts: Sequence[object],
        sizes: Matrix,
        table: WorkTable,
        seconds: Column,
    ) -> None:
        self.configs, self.layouts, self.places = configs, layouts, np.log2(sizes)
        self._likeness = _alike(table)
        missed = np.log(seconds / table.seconds(*sizes.T))
        #: The times of each family, and the weight of each in what is learnt from them.
        self._times = _by_family(configs)
        self._weights = np.zeros(len(missed))
        number = {one: index for index, one in enumerate(dict.fromkeys(configs))}
        numbers = np.array([number[one] for one in configs], int)
        lies = {one: index for index, one in enumerate(dict.fromkeys(layouts))}
        kinds = np.array([lies[one] for one in layouts], int)
        for times in self._times.values():
            covariance = _covariance(
                numbers[times][:, None] == numbers[times],
                _squares(self._likeness[times], self._likeness[times]),
            )
            covariance *= _near(_squares(self.places[times], self.places[times]))
            covariance *= np.where(kinds[times][:, None] == kinds[times], 1.0, _OTHER_LAYOUT)
            covariance[np.diag_indices(len(times))] += _NOISE
            self._weights[times] = np.linalg.solve(covariance, missed[times])

    def of(self, configs: Sequence[Config], table: WorkTable, layout: object) -> Corrections:
        """The corrections of configurations for products whose operands lie alike."""
        return Corrections(self, configs, table, layout)


class Corrections:
    """By how much the predicted times of some configurations are corrected."""

    def __init__(
        self,
        residuals: Residuals,
        configs: Sequence[Config],
        table: WorkTable,
        layout: object,
    ) -> None:
        self._places, self._count = residuals.places, len(configs)
        lies = np.array([one == layout for one in residuals.layouts], bool)
        self._layouts = np.where(lies, 1.0, _OTHER_LAYOUT)
        numbers = {config: number for number, config in enumerate(configs)}
        of = np.array([numbers.get(config, -1) for config in residuals.configs], int)
        self._own = np.flatnonzero(of >= 0)
        self._of = of[self._own]
        likeness, own = _alike(table), _by_family(configs)
        #: Of each family: its configurations, its measured times, and the weights of these.
        self._parts: list[tuple[NDArray[np.intp], NDArray[np.intp], Matrix]] = []
        for name, times in residuals._times.items():
            mine = own.get(name, np.zeros(0, int))
            weights = _covariance(
                mine[:, None] == of[times], _squares(likeness[mine], residuals._likeness[times])
            )
            weights *= residuals._weights[times] * self._layouts[times]
            self._parts.append((mine, times, weights))

    def at(self, sizes: Sequence[float]) -> tuple[Column, Column]:
        """For a product: the logarithm of what is missed, and how uncertain that is.

        A configuration's uncertainty is 1 where it was not measured near the product, and the less
        the more often it was.
        """
        octaves = self._places - np.log2(sizes)
        near = _near(np.square(octaves).sum(1))
        missed = np.zeros(self._count)
        for mine, times, weights in self._parts:
            missed[mine] = weights @ near[times]
        near = near[self._own] * self._layouts[self._own]
        return missed, 1 / np.sqrt(1 + np.bincount(self._of, near, self._count))


def _by_family(configs: Sequence[Config]) -> dict[str, NDArray[np.intp]]:
    """The numbers of the configurations of each family."""
    names = np.array([config.family for config in configs], str)
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names)}


def _alike(table: WorkTable) -> Matrix:
    """What configurations are compared by, a row for each."""
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
    """Of configurations of a family on the same product, by the squares of their distances."""
    return _OWN * same + _ALIKE * np.exp(squares / (-2 * _LIKE**2)) + _FAMILY


def _near(squares: Column | Matrix) -> Matrix:
    near: Matrix = np.exp(squares / (-2 * _REACH**2))
    return near


def _squares(rows: Matrix, others: Matrix) -> Matrix:
    """The squares of the distances between rows of two matrices."""
    lengths = np.square(rows).sum(1)[:, None] + np.square(others).sum(1)
    squares: Matrix = np.maximum(lengths - 2 * rows @ others.T, 0.0)
    return squares
