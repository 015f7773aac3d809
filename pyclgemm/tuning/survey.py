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
import itertools
import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..codegen.config import Config
from ..device.ceilings import Ceilings, typical_ceilings
from ..families.registry import problem_on
from ..problem.shape import LAYOUTS, GemmShape
from ..selection.database import Database
from ..selection.features import extents
from ..selection.model import Knowledge, Ranked, knowledge
from ..selection.records import Model, Record
from ..selection.saving import extended_file
from .fit import Sample, fit_coefficients, model_of, recorded
from .process import FINE, Trial
from .search import can_run
from .session import BudgetSpentError, Standing, TuningSession

#: Sizes of single products and of batches, and the fraction of drawn products that are batches.
_SMALLEST, _LARGEST, _LARGEST_OF_BATCH, _MOST_PRODUCTS = 8, 8192, 1024, 4096
_BATCHES = 0.15
#: Fraction of drawn products of which one size is smaller than `_SMALLEST`, as of a few rows.
_THIN = 0.15
#: Fraction of drawn products whose sizes are multiples of `_MULTIPLE`.
_ALIGNED, _MULTIPLE = 0.6, 8
#: Elements of all matrices of a product, and its predicted seconds, at most.
_MOST_ELEMENTS = 2**26
_LONGEST = 0.05

#: Products that are drawn for each round, and how many of them are measured.
_DRAWN, _MEASURED = 96, 12
#: Known configurations that are timed on a product, and that the expected loss is computed of.
_TIMED, _WEIGHED = 5, 24
#: Configurations of a family that are drawn from its space, and those of all that are timed on a
#: product beside known ones.
_POOL, _NEW = 150, 2
#: Products, drawn at random, on which choices are judged, and the most of the time they take.
_JUDGED, _JUDGED_PART = 16, 0.25
#: The part of the time that is left for judging once more.
_LAST_PART = 0.1
#: A time is taken twice if its logarithm is this far from the expected one.
_SURPRISE = 0.4
#: Standard deviation of the logarithm of a predicted time where nothing near was measured.
_DEVIATION = 0.2
#: Draws of the predictions of a product.
_DRAWS = 64
#: Times for which coefficients are fitted anew: so many times as at the last fit.
_REFIT = 1.5
#: A configuration corrects predictions if it took this many times the least time of a product, and
#: was predicted to take at most that many.
_SLOWER, _AS_FAST = 1.1, 1.05


#: The configurations to be timed on each product, with their expected seconds.
Candidates = dict[Standing, dict[Config, float]]


@dataclass
class Surveyed:
    """What a survey found."""

    standings: list[Standing] = field(default_factory=list)  # products that nobody asked for
    #: Slower configurations that were predicted to be the fastest.
    missed: list[Record] = field(default_factory=list)
    model: Model | None = None  # of predicted times, fitted to all that is known
    ceilings: Ceilings | None = None  # of which the model is; None if they follow from the traits
    report: str = ""  # how good predictions and choices were before and after, in words


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
        self._recorded = [sample for _, entry in known.hits for sample in recorded(entry)]
        # What was learnt once is drawn no second time.
        self._random = np.random.default_rng((seed, len(known.residuals.configs)))
        typical = typical_ceilings(self._traits)
        # Other devices, for which a contribution is, have ceilings of their own.
        self._ceilings = typical if contributes else known.ceilings
        self.found = Surveyed(ceilings=None if self._ceilings == typical else self._ceilings)
        self._pool = self._draw_pool(seed)
        #: Drawn at random to judge choices by: nothing is learnt from them.
        self._judged: list[Standing] = []
        self._seen: dict[Standing, float] = {}  # what was missed there, as a logarithm
        self._fitted_to = 0

    def run(self) -> None:
        """Measure until the session's deadline."""
        session = self._session
        session.stage = "survey"
        left = session.deadline - time.monotonic()
        measuring_until = session.deadline - _LAST_PART * left
        others, before = self._judge_first(session.deadline - (1 - _JUDGED_PART) * left)
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
        self.found.missed = self._missed()
        if others:
            _, after = self._judge_again()
            self.found.report = f"{measured} products surveyed; on {others} others {before}" + (
                f" before, {after} after" if after else ""
            )

    # -- judging --

    def _judge_first(self, until: float) -> tuple[int, str]:
        """Time what would be chosen on products drawn at random, and what else may be fast."""
        expected: dict[Standing, dict[Config, float]] = {}
        with contextlib.suppress(BudgetSpentError):
            for standing, timed in self._timed(self._begun(self._drawn(_JUDGED), until), until):
                expected[standing] = timed
        self._judged = [standing for standing in expected if len(standing.ranked()) > 1]
        return _judgement((one, next(iter(expected[one])), expected[one]) for one in self._judged)

    def _judge_again(self) -> tuple[int, str]:
        """Time what would be chosen now on the same products; empty if time does not suffice."""
        judged = []
        try:
            for one in self._judged:
                pick = next(iter(self._candidates(one)))
                if pick not in one.scores:
                    self._session.trial(one, pick, self._session.deadline)
                expected = {each.config: each.seconds for each in self._ranked(one)}
                judged.append((one, pick, expected))
        except BudgetSpentError:
            return 0, ""
        return _judgement(judged)

    # -- measuring --

    def _begun(self, standings: Iterable[Standing], until: float) -> Candidates:
        """The configurations to be timed on some products; compilers begin with their kernels."""
        candidates = {one: self._candidates(one) | self._new_candidates(one) for one in standings}
        trials = [Trial(one.shape, config) for one in candidates for config in candidates[one]]
        self._session.prepare(trials, until)
        return candidates

    def _timed(
        self, candidates: Candidates, until: float
    ) -> Iterator[tuple[Standing, dict[Config, float]]]:
        """Time configurations on some products; gives the times that were expected."""
        for standing, expected in candidates.items():
            self.found.standings.append(standing)
            for config, seconds in expected.items():
                missed = self._missed_by(standing, config, seconds, until)
                if standing not in self._seen and missed is not None:
                    self._seen[standing] = missed
            yield standing, expected

    def _missed_by(
        self, standing: Standing, config: Config, expected: float, until: float
    ) -> float | None:
        """Time a configuration; gives how far that is from the expected logarithm, if it is right.

        A surprising time is taken again, and the second one counts: the machine may have been held
        up in the first.
        """
        # A GPU keeps its speed; a CPU may slow down between two candidates.
        alone = self._traits.type != "cpu"
        missed = None
        for _ in range(2 if alone else 1):
            outcome = self._session.trial(standing, config, until, alone=alone)
            if outcome.status != FINE or outcome.seconds is None:
                break
            missed = abs(math.log(outcome.seconds / expected))
            if missed < _SURPRISE:
                break
        return missed

    def _candidates(self, standing: Standing) -> dict[Config, float]:
        """The configurations to be timed on a product, the one that would be taken first."""
        able = (
            (one.config, one.seconds)
            for one in self._ranked(standing)
            if one.config.family in self._session.families
            and can_run(one.config, standing.problem, self._traits)
        )
        return dict(itertools.islice(able, _TIMED))

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
        seconds = self._known.predict(self._pool, standing.problem)
        found: dict[Config, float] = {}
        for index in np.argsort(seconds, kind="stable"):
            if not np.isfinite(seconds[index]) or len(found) == _NEW:
                break
            if self._session.may_run(standing, self._pool[index]):
                found[self._pool[index]] = float(seconds[index])
        return found

    def _ranked(self, standing: Standing) -> Iterator[Ranked]:
        return self._known.ranking(standing.problem).ordered(standing.problem)

    def _least_certain(self) -> list[Standing]:
        """The drawn products on which choosing is expected to lose the most; empty if on none."""
        drawn = self._drawn(_DRAWN)
        losses = [self._expected_loss(standing) for standing in drawn]
        order = np.argsort(losses)[::-1][:_MEASURED]
        return [drawn[index] for index in order if losses[index] > 0]

    def _expected_loss(self, standing: Standing) -> float:
        """How much longer than the fastest the first choice takes, as the mean of a logarithm."""
        problem = standing.problem
        candidates = self._known.ranking(problem)
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
            matrices = shape.stored_a, shape.stored_b, (shape.m, shape.n)
            if sum(map(math.prod, matrices)) <= _MOST_ELEMENTS // (shape.batch or 1):
                problem = problem_on(shape.problem(*self._name), self._traits)
                found.append(Standing(shape, problem))
        return found

    def _shape(self) -> GemmShape:
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
        """The best on each product that was measured, but for those that choices are judged on."""
        return {
            one: one.best
            for one in (*self._session.standings, *self.found.standings)
            if one.best is not None and one not in self._judged
        }

    def _missed(self) -> list[Record]:
        """The slower configurations that were predicted to be as fast as the best of a product."""
        found = []
        for one, best in self._best().items():
            least = one.seconds[best]
            slower = [config for config, score in one.seconds.items() if score > _SLOWER * least]
            predicted = self._known.predict(slower, one.problem)
            found += [
                one.record(config)
                for config, expected in zip(slower, predicted, strict=True)
                if expected < _AS_FAST * least
            ]
        return found

    def _learn(self, *, at_end: bool = False) -> None:
        """Take what was measured into the predictions of the next products."""
        traits, found, best = self._traits, self.found, self._best()
        samples = self._recorded + [
            Sample(one.problem, config, seconds)
            for one in best
            for config, seconds in one.seconds.items()
        ]
        if at_end or len(samples) > _REFIT * self._fitted_to:
            self._fitted_to = len(samples)
            if fits := fit_coefficients(samples, traits, self._ceilings):
                source = f"{len(samples)} times on {traits.name}, {traits.platform} {traits.driver}"
                found.model = model_of(source, fits)
        records = [one.record(config) for one, config in best.items()]
        file = extended_file(
            Path("survey.json"), traits, self._name, records, model=found.model,
            ceilings=found.ceilings,
        )  # fmt: skip
        self._known = Knowledge(Database(((file,), *self._database.groups)), traits, *self._name)


def _judgement(
    judged: Iterable[tuple[Standing, Config, Mapping[Config, float]]],
) -> tuple[int, str]:
    """How good choices and predictions were: the number of products, and the errors in words.

    Of each product these are what was chosen, and the seconds that were expected. Of predicted
    times it is the median of the relative error, of choices the geometric mean of the time over the
    least that was measured.
    """
    missed, lost = [], []
    for standing, chosen, expected in judged:
        score, best = standing.scores.get(chosen), standing.best_score()
        if score and best:
            lost.append(score / best)
        missed += [
            abs(np.log(seconds / standing.seconds[config]))
            for config, seconds in expected.items()
            if config in standing.seconds
        ]
    if not lost:
        return 0, ""
    error, loss = np.expm1(np.median(missed)), statistics.geometric_mean(lost)
    return len(lost), f"predicted times missed by {error:.0%} and choices lost {loss - 1:.1%}"
