"""The survey: measure random products on which predicted times are least certain.

The results of the tuner for some shapes say little about others. The survey draws random products,
selects those on which a choice by predicted time has the largest expected loss, and times the
configurations that may be the fastest there. Some of these are new: those with the least predicted
times among random points of the search spaces and neighbours of the known configurations. Each
measurement corrects the predictions for nearby products, and the coefficients of predicted times
are fitted to all measurements.

The expected loss follows from the uncertainty of predictions, as in Bayesian optimisation (D. Jones
et al., "Efficient Global Optimization", 1998). The logarithm of each predicted time has a normal
distribution, which is wider where fewer records are near. The loss is the mean difference between
the logarithms of the chosen configuration and of the fastest one.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import Ceilings, typical_ceilings
from ..families.family import Tile
from ..families.registry import family_of, problem_on
from ..problem.shape import LAYOUTS, GemmShape
from ..selection.database import Database
from ..selection.features import Sample, extents, samples_of
from ..selection.model import Knowledge, Ranked, knowledge
from ..selection.records import Model, Record
from ..selection.saving import extended_file
from .fit import fit_coefficients, model_of
from .process import FINE
from .search import can_run
from .session import BudgetSpentError, Standing, TuningSession

#: Sizes of single products and of batches, the largest batch, the fraction of batches.
_SMALLEST, _LARGEST, _LARGEST_OF_BATCH, _MOST_PRODUCTS = 8, 8192, 1024, 4096
_BATCHES = 0.15
#: Fraction of the drawn products of which one size is below _SMALLEST.
_THIN = 0.15
#: Fraction of the drawn products whose sizes are multiples of _MULTIPLE.
_ALIGNED, _MULTIPLE = 0.6, 8
#: Largest number of elements of all matrices, and the longest predicted time in seconds.
_MOST_ELEMENTS = 2**26
_LONGEST = 0.05

#: Number of products that are drawn in each round, and of those that are measured.
_DRAWN, _MEASURED = 96, 12
#: Number of known configurations that are timed on a product, and that the expected loss covers.
_TIMED, _WEIGHED = 5, 24
#: Number of configurations that are drawn from each family's space, and near each of the _WEIGHED
#: best on a product; number of new ones that are timed on a product.
_POOL, _NEAR, _NEW = 150, 25, 3
#: Number of random products for judging choices, and the largest fraction of the time for them.
_JUDGED, _JUDGED_PART = 16, 0.25
#: Fraction of the time that is kept for the second judgement.
_LAST_PART = 0.1
#: A time is measured again if its logarithm is this far from the expected one.
_SURPRISE = 0.4
#: Number of random samples for an expected loss.
_DRAWS = 64
#: Refit the coefficients when the number of times has grown by this factor.
_REFIT = 1.5
#: Slow configurations are recorded, too, if their measured time is above the least time of the
#: product by the first factor, and their predicted time at most by the second.
SLOWER, _AS_FAST = 1.1, 1.05


#: The configurations to be timed on each product, with their expected seconds.
Candidates = dict[Standing, dict[Config, float]]
#: A product, the choice for it, and the expected seconds of configurations.
Judged = tuple[Standing, Config, Mapping[Config, float]]


@dataclass
class Surveyed:
    """The results of a survey."""

    standings: list[Standing] = field(default_factory=list)  # one for each product
    #: Records of slow configurations that were predicted to be the fastest.
    missed: list[Record] = field(default_factory=list)
    model: Model | None = None  # of predicted times, fitted to all known times
    ceilings: Ceilings | None = None  # that the model assumes; None for estimates from the traits
    report: str = ""  # errors of predictions and losses of choices, before and after


class Survey:
    """Runs the survey within a session."""

    def __init__(
        self, session: TuningSession, database: Database, seed: int, *, contributes: bool = False
    ) -> None:
        self._session, self._database = session, database
        self._traits = session.process.traits
        problem = session.standings[0].problem
        self._name = problem.dtype, problem.precision.name
        self._known = known = knowledge(database, self._traits, *self._name)
        records = [record for _, entry in known.hits for record in entry.own]
        self._recorded = list(samples_of(records, *self._name))
        # A later run, which knows more times, draws other products.
        self._random = np.random.default_rng((seed, len(known.residuals.samples)))
        typical = typical_ceilings(self._traits)
        # A contribution is for other devices, too, whose ceilings differ.
        self._ceilings = typical if contributes else known.ceilings
        self.result = Surveyed(ceilings=None if self._ceilings == typical else self._ceilings)
        self._points = random.Random(seed)  # of the search spaces
        self._pool = self._draw_pool()
        #: Random products for judging choices; nothing is learnt from them.
        self._judged: list[Standing] = []
        self._errors: dict[Standing, float] = {}  # logarithms of predicted over measured time
        self._fitted_to = 0  # number of times at the last fit

    def run(self) -> None:
        """Measure until the session's deadline."""
        session = self._session
        session.stage = "survey"
        left = session.deadline - time.monotonic()
        measuring_until = session.deadline - _LAST_PART * left
        first = self._judge_first(session.deadline - (1 - _JUDGED_PART) * left)
        measured = 0
        with contextlib.suppress(BudgetSpentError):
            upcoming = self._begun(self._least_certain(), measuring_until)
            while upcoming:
                # The kernels of the next products are compiled while these are measured.
                current, upcoming = upcoming, self._begun(self._least_certain(), measuring_until)
                for _ in self._timed(current, measuring_until):
                    measured += 1
                self._learn()
        self._learn(at_end=True)
        self.result.missed = self._missed()
        again = self._judge_again()
        # Both sets of choices are compared with the best that the end knows.
        others, before = _judgement(first)
        if others:
            _, after = _judgement(again)
            self.result.report = f"{measured} products surveyed; on {others} others {before}" + (
                f" before, {after} after" if after else ""
            )

    # -- judging --

    def _judge_first(self, until: float) -> list[Judged]:
        """Time the choices, and other candidates, on random products."""
        expected: Candidates = {}
        with contextlib.suppress(BudgetSpentError):
            for standing, timed in self._timed(self._begun(self._drawn(_JUDGED), until), until):
                expected[standing] = timed
        self._judged = [standing for standing in expected if len(standing.ranked()) > 1]
        return [(one, next(iter(expected[one])), expected[one]) for one in self._judged]

    def _judge_again(self) -> list[Judged]:
        """Time the present choices on the same products; empty if the time does not suffice."""
        judged: list[Judged] = []
        try:
            for one in self._judged:
                pick = next(iter(self._candidates(one)))
                if pick not in one.scores:
                    self._session.trial(one, pick, self._session.deadline)
                expected = {each.config: each.seconds for each in self._ranked(one)}
                judged.append((one, pick, expected))
        except BudgetSpentError:
            return []
        return judged

    # -- measuring --

    def _begun(self, standings: Iterable[Standing], until: float) -> Candidates:
        """The candidates of some products; their kernels are built in the background."""
        candidates = {one: self._candidates(one) | self._new_candidates(one) for one in standings}
        for standing, configs in candidates.items():
            self._session.prepare(standing, configs, until)
        return candidates

    def _timed(
        self, candidates: Candidates, until: float
    ) -> Iterator[tuple[Standing, dict[Config, float]]]:
        """Time the candidates of products; yields each product with their expected times."""
        for standing, expected in candidates.items():
            self.result.standings.append(standing)
            for config, seconds in expected.items():
                error = self._measured_error(standing, config, seconds, until)
                if standing not in self._errors and error is not None:
                    self._errors[standing] = error
            yield standing, expected

    def _measured_error(
        self, standing: Standing, config: Config, expected: float, until: float
    ) -> float | None:
        """Time a candidate; returns the error of the expected logarithm, or None after a failure.

        A surprising time is measured again, and the second time counts: the machine may have been
        held up during the first.
        """
        # A GPU keeps its speed; a CPU may slow down between two candidates.
        alone = self._traits.type != "cpu"
        error = None
        for _ in range(2 if alone else 1):
            outcome = self._session.trial(standing, config, until, alone=alone)
            if outcome.status != FINE or outcome.seconds is None:
                break
            error = abs(float(np.log(outcome.seconds / expected)))
            if error < _SURPRISE:
                break
        return error

    def _candidates(self, standing: Standing) -> dict[Config, float]:
        """The known configurations to time on a product, with expected times, the choice first."""
        able = (
            (one.config, one.seconds)
            for one in self._ranked(standing)
            if one.config.family in self._session.families
            and can_run(one.config, standing.problem, self._traits)
        )
        return dict(itertools.islice(able, _TIMED))

    def _draw_pool(self) -> list[Config]:
        """Random configurations from the spaces of all families."""
        pool: dict[Config, None] = {}
        for space in self._session.spaces.values():
            for _ in range(_POOL):
                point = space.repaired(space.draw(self._points), self._points, tries=200)
                config = space.config(point) if point else None
                if config is not None:
                    pool[config] = None
        return list(pool)

    def _neighbours(self, standing: Standing) -> Iterator[Config]:
        """Configurations near those that are the fastest on a product by predicted times."""
        for one in itertools.islice(self._ranked(standing), _WEIGHED):
            if space := self._session.spaces.get(one.config.family):
                point = space.nearest_point(one.config)
                drawn = (space.neighbour(point, self._points) for _ in range(_NEAR))
                yield from filter(None, map(space.config, drawn))

    def _new_candidates(self, standing: Standing) -> dict[Config, float]:
        """New configurations with the least predicted times on a product, of different tiles."""
        drawn = dict.fromkeys((*self._pool, *self._neighbours(standing)))
        pool = [config for config in drawn if config not in self._known.candidates]
        seconds = self._known.predict(pool, standing.problem)
        expected: dict[Config, float] = {}
        tiles: set[Tile] = set()
        for index in np.argsort(seconds, kind="stable"):
            config = pool[index]
            if len(tiles) == _NEW or not np.isfinite(seconds[index]):
                break
            tile = family_of(config).tile(config)
            if tile not in tiles and self._session.may_run(standing, config):
                tiles.add(tile)
                expected[config] = float(seconds[index])
        return expected

    def _ranked(self, standing: Standing) -> Iterator[Ranked]:
        return self._known.ranking(standing.problem).ordered(standing.problem)

    def _least_certain(self) -> list[Standing]:
        """The random products with the largest expected losses; empty if there are no losses."""
        drawn = self._drawn(_DRAWN)
        losses = [self._expected_loss(standing) for standing in drawn]
        order = np.argsort(losses)[::-1][:_MEASURED]
        return [drawn[index] for index in order if losses[index] > 0]

    def _expected_loss(self, standing: Standing) -> float:
        """The mean logarithm of the chosen configuration's time over the least time."""
        problem = standing.problem
        candidates = self._known.ranking(problem)
        if not candidates.candidates:
            return 0.0
        expected, compared, doubt = candidates.seconds(problem)
        first = np.argsort(compared, kind="stable")[:_WEIGHED]
        if expected[first[0]] > _LONGEST:
            return 0.0
        deviations = doubt[first] * (candidates.spreads[first] + self._error_near(standing))
        draws = np.log(expected[first]) + deviations * self._random.standard_normal(
            (_DRAWS, len(first))
        )
        return float((draws[:, 0] - draws.min(axis=1)).mean())

    def _error_near(self, standing: Standing) -> float:
        """The mean error of predictions near a product, as a logarithm."""
        if not self._errors:
            return 0.0
        octaves = np.array([np.log2(extents(one.problem)) for one in self._errors])
        octaves -= np.log2(extents(standing.problem))
        near = np.exp(-np.square(octaves).sum(1) / 8)
        return float((near * list(self._errors.values())).sum() / (near.sum() + 1))

    def _drawn(self, count: int) -> list[Standing]:
        """Random products."""
        standings: list[Standing] = []
        while len(standings) < count:
            shape = self._random_shape()
            elements = shape.m * shape.k + shape.k * shape.n + shape.m * shape.n
            if elements <= _MOST_ELEMENTS // (shape.batch or 1):
                problem = problem_on(shape.problem(*self._name), self._traits)
                standings.append(Standing(shape, problem))
        return standings

    def _random_shape(self) -> GemmShape:
        random = self._random
        is_batch = random.random() < _BATCHES
        largest = _LARGEST_OF_BATCH if is_batch else _LARGEST
        sizes = np.exp2(random.uniform(np.log2(_SMALLEST), np.log2(largest), 3))
        if random.random() < _ALIGNED:
            sizes = np.round(sizes / _MULTIPLE) * _MULTIPLE
        if random.random() < _THIN:
            sizes[random.integers(3)] = random.integers(1, _SMALLEST)
        m, n, k = map(round, sizes)
        layout = LAYOUTS[random.integers(len(LAYOUTS))]
        if not is_batch:
            return GemmShape(m, n, k, layout)
        products = round(np.exp2(random.uniform(1, np.log2(_MOST_PRODUCTS))))
        return GemmShape(m, n, k, layout, batch=products)

    # -- learning --

    def _best(self) -> dict[Standing, Config]:
        """The best configuration of each measured product, except of those for judging."""
        return {
            one: one.best
            for one in (*self._session.standings, *self.result.standings)
            if one.best is not None and one not in self._judged
        }

    def _missed(self) -> list[Record]:
        """Records of slow configurations that were predicted to be as fast as the best."""
        records = []
        for one, best in self._best().items():
            least = one.seconds[best]
            slower = [config for config, score in one.seconds.items() if score > SLOWER * least]
            predicted = self._known.predict(slower, one.problem)
            records += [
                one.record(config)
                for config, expected in zip(slower, predicted, strict=True)
                if expected < _AS_FAST * least
            ]
        return records

    def _learn(self, *, at_end: bool = False) -> None:
        """Update the predictions by the measurements."""
        traits, result, best = self._traits, self.result, self._best()
        samples = self._recorded + [
            Sample(one.problem, config, seconds)
            for one in best
            for config, seconds in one.seconds.items()
        ]
        if at_end or len(samples) > _REFIT * self._fitted_to:
            self._fitted_to = len(samples)
            if fits := fit_coefficients(samples, traits, self._ceilings):
                source = f"{len(samples)} times on {traits.name}, {traits.platform} {traits.driver}"
                result.model = model_of(source, fits)
        records = [one.record(config) for one, config in best.items()]
        file = extended_file(
            None, traits, self._name, records, model=result.model, ceilings=result.ceilings
        )
        self._known = Knowledge(Database(((file,), *self._database.groups)), traits, *self._name)


def _judgement(judged: Iterable[Judged]) -> tuple[int, str]:
    """The number of judged products, the median error of times and the mean loss of choices."""
    errors, losses = [], []
    for standing, choice, expected in judged:
        score, best = standing.scores.get(choice), standing.best_score()
        if score and best:
            losses.append(score / best)
        errors += [
            abs(np.log(seconds / standing.seconds[config]))
            for config, seconds in expected.items()
            if config in standing.seconds
        ]
    if not losses:
        return 0, ""
    error, loss = np.expm1(np.median(errors)), statistics.geometric_mean(losses)
    return len(losses), f"predicted times missed by {error:.0%} and choices lost {loss - 1:.1%}"
