"""The survey: products that nobody asked for, measured where predicted times are least certain.

What the tuner finds on the shapes of a user says little about others. Here it draws random
products, takes those on which choosing by predicted time is expected to lose the most, and times
the configurations that may be the fastest there, and among them new ones: of many that are drawn
from the search spaces of the families, those with the least predicted times. What comes out
corrects predictions of products near by, and the coefficients of predicted times are fitted to it.

The expected loss follows from the uncertainty of each prediction, as in Bayesian optimisation (D.
Jones et al., "Efficient Global Optimization", 1998): predictions are normal in the logarithm, the
less certain the fewer records lie near, and the loss is the mean of how far the least of them lies
below that of the configuration that would be taken.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import typical_ceilings
from ..families.registry import problem_on
from ..problem.shape import LAYOUTS, GemmShape
from ..selection.database import Database
from ..selection.features import extents, features_of, problem_of, record_for, seconds_of
from ..selection.model import Ranked, knowledge, known_of
from ..selection.records import Model, Record
from ..selection.saving import extended_file
from .fit import Sample, fit_coefficients
from .process import FINE, Trial
from .session import BudgetSpentError, Standing, TuningSession

#: Sizes of single products and of batches, and the part of the products that are batches.
_LARGEST, _LARGEST_OF_BATCH, _MOST_PRODUCTS = 8192, 1024, 4096
_BATCHES = 0.15
#: Of the products, those whose sizes are all multiples of this one.
_ALIGNED, _MULTIPLE = 0.6, 8
#: Elements of all matrices of a product, and its predicted seconds, at most.
_MOST_ELEMENTS = 2**26
_LONGEST = 0.05

#: Products that are drawn for each round, and those of them that are measured.
_DRAWN, _MEASURED = 96, 8
#: Known configurations that are timed on a product, and that the expected loss is computed of.
_TIMED, _WEIGHED = 5, 24
#: Configurations of a family that are drawn from its space, and those of all that are timed on a
#: product beside known ones.
_POOL, _NEW = 150, 2
#: Candidates that are built side by side, and the seconds that this may take.
_BUILT, _BUILD_SECONDS = 48, 60.0
#: Products, drawn at random, on which choices are judged, and the most of the time they take.
_JUDGED, _JUDGED_PART = 16, 0.3
#: The part of the time that is left for judging once more.
_LAST_PART = 0.1
#: Standard deviation of the logarithm of a predicted time where nothing near was measured.
_DEVIATION = 0.2
#: Draws of the predictions of a product.
_DRAWS = 64
#: Times for which coefficients are fitted anew: so many times as at the last fit.
_REFIT = 1.5
#: A configuration corrects predictions if it took this many times the least time of a product, and
#: was predicted to take at most that many.
_SLOWER, _AS_FAST = 1.1, 1.05


@dataclass(frozen=True)
class Judgement:
    """How good predictions and choices were on products drawn at random."""

    products: int
    error: float  # the median of the relative error of a predicted time
    loss: float  # geometric mean of the time of what was chosen over the least time measured

    def __str__(self) -> str:
        return f"predicted times missed by {self.error:.0%} and choices lost {self.loss - 1:.1%}"


@dataclass(frozen=True)
class SurveyReport:
    """What a survey brought. The products that it is judged on took no part in it."""

    measured: int  # products
    before: Judgement
    after: Judgement | None  # None if the time did not suffice

    def __str__(self) -> str:
        text = f"{self.measured} products surveyed; on {self.before.products} others {self.before}"
        return text if self.after is None else f"{text} before, {self.after} after"


class Survey:
    """Runs the survey within a session."""

    def __init__(
        self, session: TuningSession, database: Database, seed: int, *, contributes: bool = False
    ) -> None:
        self._session = session
        self._database = self._known = database
        problem = session.standings[0].problem
        self._name = problem.dtype, problem.precision.name
        known = knowledge(database, session.process.traits, *self._name)
        # What was learnt once is drawn no second time.
        self._random = np.random.default_rng((seed, len(known.configs)))
        typical = typical_ceilings(session.process.traits)
        # Other devices, for which a contribution is, have ceilings of their own.
        self._ceilings = typical if contributes else known.ceilings
        #: Those of which the model is; None if they follow from the traits.
        self.ceilings = None if self._ceilings == typical else self._ceilings
        self._pool = self._draw_pool(seed)
        self._judged: list[Standing] = []
        self._seen: dict[Standing, float] = {}  # what was missed there, as a logarithm
        self._fitted_to = 0
        self.model: Model | None = None
        self.report: SurveyReport | None = None
        self.missed: list[Record] = []  # of configurations that were predicted to be the fastest

    def run(self) -> None:
        """Measure until the session's deadline."""
        session = self._session
        session.stage = "survey"
        left = session.deadline - time.monotonic()
        measuring_until = session.deadline - _LAST_PART * left
        before = self._judge_first(session.deadline - (1 - _JUDGED_PART) * left)
        measured = 0
        try:
            self._learn()
            while True:
                for _ in self._timed(self._least_certain(), measuring_until):
                    measured += 1
                self._learn()
        except BudgetSpentError:
            pass
        self._learn(at_end=True)
        self.missed = self._missed()
        if before is not None:
            self.report = SurveyReport(measured, before, self._judge_again())

    # -- judging --

    def _judge_first(self, until: float) -> Judgement | None:
        """Time what would be chosen on products drawn at random, and what else may be fast."""
        expected: dict[Standing, dict[Config, float]] = {}
        with contextlib.suppress(BudgetSpentError):
            for standing, timed in self._timed(self._drawn(_JUDGED), until):
                expected[standing] = timed
        self._judged = [standing for standing in expected if len(standing.ranked()) > 1]
        chosen = {one: next(iter(expected[one])) for one in self._judged}
        return self._judgement(chosen, expected)

    def _judge_again(self) -> Judgement | None:
        """Time what would be chosen now on the same products."""
        chosen: dict[Standing, Config] = {}
        expected: dict[Standing, dict[Config, float]] = {}
        try:
            for standing in self._judged:
                pick = next(iter(self._candidates(standing, self._known)))
                if pick not in standing.scores:
                    self._session.trial(standing, pick, self._session.deadline)
                chosen[standing] = pick
                expected[standing] = {
                    one.config: one.seconds for one in self._ranked(standing, self._known)
                }
        except BudgetSpentError:
            return None
        return self._judgement(chosen, expected)

    def _judgement(
        self, chosen: dict[Standing, Config], expected: dict[Standing, dict[Config, float]]
    ) -> Judgement | None:
        missed, lost = [], []
        for standing, config in chosen.items():
            score, best = standing.scores.get(config), standing.best_score()
            if score and best:
                lost.append(score / best)
            missed += [
                abs(np.log(expected[standing][one] / standing.seconds[one]))
                for one in expected[standing]
                if one in standing.seconds
            ]
        if not lost:
            return None
        error = float(np.expm1(np.median(missed)))
        return Judgement(len(lost), error, statistics.geometric_mean(lost))

    # -- measuring --

    def _timed(
        self, standings: list[Standing], until: float
    ) -> Iterator[tuple[Standing, dict[Config, float]]]:
        """Time the configurations that are expected to be the fastest; gives what was expected."""
        session = self._session
        candidates = {
            one: self._candidates(one, self._known) | self._new_candidates(one) for one in standings
        }
        trials = [Trial(one.shape, config) for one in standings for config in candidates[one]]
        if session.process.traits.type == "cpu":  # which would time them beside compilers
            trials = []
        for first in range(0, len(trials), _BUILT):
            session.build(trials[first : first + _BUILT], _BUILD_SECONDS, until)
        for standing in standings:
            session.surveyed.append(standing)
            for config, expected in candidates[standing].items():
                outcome = session.trial(standing, config, until)
                if outcome.status == FINE and standing not in self._seen:
                    self._seen[standing] = abs(np.log(standing.seconds[config] / expected))
            yield standing, candidates[standing]

    def _candidates(self, standing: Standing, database: Database) -> dict[Config, float]:
        """The configurations to be timed on a product, the one that would be taken first."""
        session = self._session
        found: dict[Config, float] = {}
        for one in self._ranked(standing, database):
            if one.config.family in session.families and session.can_run(standing, one.config):
                found[one.config] = one.seconds
                if len(found) == _TIMED:
                    break
        return found

    def _draw_pool(self, seed: int) -> list[Config]:
        """Configurations that no database has, from the spaces of all families."""
        rng = random.Random(seed)
        pool: dict[Config, None] = {}
        for space in self._session.spaces.values():
            for _ in range(_POOL):
                point = space.repaired(space.draw(rng), rng, tries=200)
                config = space.config(point) if point else None
                if config is not None:
                    pool[config] = None
        return list(pool)

    def _new_candidates(self, standing: Standing) -> dict[Config, float]:
        """Those of the pool with the least predicted times on a product."""
        problem, traits = standing.problem, self._session.process.traits
        seconds = known_of(problem, traits, self._known).predict(self._pool, problem)
        found: dict[Config, float] = {}
        for index in np.argsort(seconds, kind="stable"):
            if not np.isfinite(seconds[index]) or len(found) == _NEW:
                break
            if self._session.may_run(standing, self._pool[index]):
                found[self._pool[index]] = float(seconds[index])
        return found

    def _ranked(self, standing: Standing, database: Database) -> Iterator[Ranked]:
        known = known_of(standing.problem, self._session.process.traits, database)
        return known.ranking(standing.problem).ordered(standing.problem)

    def _least_certain(self) -> list[Standing]:
        """Of products drawn at random, those on which choosing is expected to lose the most."""
        drawn = self._drawn(_DRAWN)
        losses = [self._expected_loss(standing) for standing in drawn]
        order = np.argsort(losses)[::-1][:_MEASURED]
        chosen = [drawn[index] for index in order if losses[index] > 0]
        if not chosen:
            raise BudgetSpentError  # there is nothing left to learn
        return chosen

    def _expected_loss(self, standing: Standing) -> float:
        """How much longer than the fastest the first choice takes, as the mean of a logarithm."""
        problem = standing.problem
        known = known_of(problem, self._session.process.traits, self._known)
        candidates = known.ranking(problem)
        if not candidates.candidates:
            return 0.0
        expected, compared, doubt = candidates.seconds(problem)
        first = np.argsort(compared, kind="stable")[:_WEIGHED]
        if expected[first[0]] > _LONGEST:
            return 0.0
        spread = _DEVIATION * doubt[first] * (1.0 + self._missed_near(standing))
        draws = np.log(expected[first]) + spread * self._random.standard_normal(
            (_DRAWS, len(first))
        )
        return float((draws[:, 0] - draws.min(axis=1)).mean())

    def _missed_near(self, standing: Standing) -> float:
        """How wrong predictions were near a product, in standard deviations."""
        if not self._seen:
            return 0.0
        places = np.array([np.log2(extents(one.problem)) for one in self._seen])
        octaves = places - np.log2(extents(standing.problem))
        near = np.exp(-np.square(octaves).sum(1) / 8)
        return float((near * list(self._seen.values())).sum() / (near.sum() + 1)) / _DEVIATION

    def _drawn(self, count: int) -> list[Standing]:
        """Products drawn at random."""
        found: list[Standing] = []
        while len(found) < count:
            shape = self._shape()
            problem = shape.problem(*self._name)
            if problem.m * problem.k + problem.k * problem.n + problem.m * problem.n > (
                _MOST_ELEMENTS // max(1, problem.products)
            ):
                continue
            found.append(Standing(shape, problem_on(problem, self._session.process.traits)))
        return found

    def _shape(self) -> GemmShape:
        random = self._random
        is_batch = random.random() < _BATCHES
        largest = np.log2(_LARGEST_OF_BATCH if is_batch else _LARGEST)
        sizes = np.exp2(random.uniform(0, largest, 3))
        if random.random() < _ALIGNED:
            sizes = np.where(sizes < _MULTIPLE, sizes, np.round(sizes / _MULTIPLE) * _MULTIPLE)
        m, n, k = (max(1, round(size)) for size in sizes)
        layout = LAYOUTS[random.integers(len(LAYOUTS))]
        if not is_batch:
            return GemmShape(m, n, k, layout)
        products = round(np.exp2(random.uniform(1, np.log2(_MOST_PRODUCTS))))
        return GemmShape(m, n, k, layout, batch=products)

    # -- learning --

    def _records(self) -> list[Record]:
        """What was measured on the products of the survey, but for those it is judged on."""
        return [
            record_for(features_of(one.problem), one.best, one.gflops)
            for one in (*self._session.standings, *self._session.surveyed)
            if one.best is not None and one.gflops is not None and one not in self._judged
        ]

    def _missed(self) -> list[Record]:
        """The slower configurations that were predicted to be as fast as the best of a product."""
        traits = self._session.process.traits
        found = []
        for one in (*self._session.standings, *self._session.surveyed):
            if one.best is None or one.best not in one.seconds or one in self._judged:
                continue
            least = one.seconds[one.best]
            slower = [config for config, score in one.seconds.items() if score > _SLOWER * least]
            predicted = known_of(one.problem, traits, self._known).predict(slower, one.problem)
            found += [
                record_for(features_of(one.problem), config, one.problem.flops / seconds / 1e9)
                for config, expected in zip(slower, predicted, strict=True)
                if expected < _AS_FAST * least and (seconds := one.seconds[config])
            ]
        return found

    def _learn(self, *, at_end: bool = False) -> None:
        """Take what was measured into the predictions of the next products."""
        samples = self._samples()
        if at_end or len(samples) > _REFIT * self._fitted_to:
            self._fitted_to = len(samples)
            traits = self._session.process.traits
            fits = fit_coefficients(samples, traits, self._ceilings)
            if fits:
                self.model = Model(
                    f"{len(samples)} times on {traits.name}, {traits.platform} {traits.driver}",
                    date.today().isoformat(),
                    {path: fit.coefficients for path, fit in fits.items()},
                )
        self._known = self._extended()

    def _samples(self) -> list[Sample]:
        """All times that are known: of the databases, and of this run."""
        traits = self._session.process.traits
        known = knowledge(self._database, traits, *self._name)
        found = [
            Sample(problem, record.config, seconds_of(record.gflops, problem))
            for _, entry in known.hits
            for record in entry.own
            if record.gflops is not None
            and not record.packed
            and (problem := problem_of(record, *self._name))
        ]
        for standing in (*self._session.standings, *self._session.surveyed):
            if standing not in self._judged:
                found += [
                    Sample(standing.problem, config, seconds)
                    for config, seconds in standing.seconds.items()
                ]
        return found

    def _extended(self) -> Database:
        """The databases, and what this run knows besides."""
        traits = self._session.process.traits
        file = extended_file(
            Path("survey.json"), traits, self._name, self._records(), model=self.model,
            ceilings=self.ceilings,
        )  # fmt: skip
        return Database(((file,), *self._database.groups))
