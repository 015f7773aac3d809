"""Predicted times of many configurations, for products of any layouts.

Most terms of a configuration's work depend on no layout, the others on how one of the three
matrices lies. Each is computed once and kept in arrays over the configurations, which a prediction
adds: no product waits for Python to go through configurations.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..families.cost import Coefficients, Costs, MatrixName, Place, Terms, Work, WorkTable, terms_of
from ..families.family import Family
from ..families.registry import FAMILIES
from ..problem.matrix import MAX_ALIGNMENT
from ..problem.problem import GemmProblem, MatrixLayout, Order

#: The coefficients of a family, and the ceilings that they assume.
Model = Callable[[Family[Any]], tuple[Coefficients, Ceilings]]


@dataclass(frozen=True)
class _Members:
    """Configurations of one family, alike in `swaps`: they share costs and coefficients."""

    family: Family[Any]
    costs: Costs
    coefficients: Coefficients
    configs: list[Config]
    columns: slice  # among all configurations

    def terms(self, place: Place) -> Terms:
        """The terms of a matrix."""
        accesses = [self.family.access(config, self.costs, place) for config in self.configs]
        return terms_of(accesses, self.coefficients, place.name)

    def exchange(self, problem: GemmProblem) -> bool:
        """Whether they compute a product with rows and columns exchanged."""
        return self.family.exchanges(problem, self.configs[0])


class Predictor:
    """Predicts the times of configurations on a device, for products of the types of `problem`.

    Attributes
    ----------
    configs : list of Config
        Those of which a time can be predicted, family by family.
    work : WorkTable
        Their work, without the terms of layouts.
    """

    def __init__(
        self, configs: Iterable[Config], problem: GemmProblem, traits: DeviceTraits, model: Model
    ) -> None:
        self.configs: list[Config] = []
        self._members: list[_Members] = []
        works: list[Work] = []
        coefficients: list[Coefficients] = []
        alike = operator.attrgetter("family", "swaps")
        for (name, _), group in itertools.groupby(sorted(configs, key=alike), alike):
            family = FAMILIES[name]
            fitted, ceilings = model(family)
            costs = Costs.of(problem, traits, ceilings, family.unit_ceiling)
            if costs is None:
                continue
            work_of = family.divided_work
            able = {config: work for config in group if (work := work_of(config, costs))}
            if not able:
                continue
            columns = slice(len(works), len(works) + len(able))
            self._members.append(_Members(family, costs, fitted, list(able), columns))
            self.configs += able
            works += able.values()
            coefficients += [fitted] * len(able)
        self.work = WorkTable(works, coefficients, traits.compute_units)
        self._kept: dict[Place, Terms] = {}

    def prepare(self, widest: int) -> None:
        """Compute the terms of all usual layouts, so that no product waits for them."""
        orders: tuple[Order, ...] = ("row", "column")
        alignments = [1 << bit for bit in range(widest.bit_length())]
        layouts = itertools.starmap(MatrixLayout, itertools.product(orders, alignments))
        for layout, b in itertools.product(layouts, orders):
            names: tuple[MatrixName, ...] = ("a", "b", "out") if layout.order == b else ("a", "out")
            for name in names:
                self._terms(Place(name, layout, b == "column"))

    def table(self, problem: GemmProblem, widest: int = MAX_ALIGNMENT) -> WorkTable:
        """The table for products with the layouts of `problem`, and its order of m and n.

        Alignments from `widest` on are alike.
        """
        places = Place.of(problem, widest)
        laid, swapped = self._laid(*places), None
        swapping = [members for members in self._members if members.exchange(problem)]
        if swapping:
            swapped = np.zeros(len(self.configs), bool)
            exchanged = self._laid(*Place.exchanged(*places))
            for columns in (members.columns for members in swapping):
                laid[:, columns] = exchanged[:, columns]
                swapped[columns] = True
        return self.work.with_layouts(laid, swapped, reads_c=problem.c is not None)

    def layouts(self, problem: GemmProblem, widest: int) -> Hashable:
        """What `table` depends on: equal for products with equal tables."""
        exchanged = tuple(members.exchange(problem) for members in self._members)
        return Place.of(problem, widest), exchanged, problem.c is None

    def _laid(self, a: Place, b: Place, out: Place) -> Terms:
        """The terms of all three matrices."""
        return self._terms(a) + self._terms(b) + self._terms(out)

    def _terms(self, place: Place) -> Terms:
        """The terms of a matrix."""
        terms = self._kept.get(place)
        if terms is None:
            by_family = [members.terms(place) for members in self._members]
            none = terms_of([], Coefficients(), place.name)
            terms = self._kept[place] = np.concatenate([none, *by_family], axis=1)
        return terms
