"""A tuning run's trials: measure, take in what comes out, log it, and keep to the budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..codegen.config import Config
from ..errors import FileError
from ..families.family import is_small_batch
from ..families.registry import family_of, violations
from ..problem.problem import GemmProblem
from ..problem.shape import GemmShape
from ..selection.distance import distance, features_of
from .process import FINE, Logged, Outcome, Trial, TrialProcess, TuningLog
from .search import Search, search_space, suits

#: A candidate this much faster than the best takes its place; less is noise.
_BETTER = 0.985


@dataclass
class Standing:
    """A shape: what was tried on it, and what is best."""

    shape: GemmShape
    problem: GemmProblem
    baseline: Config | None = None  # what the library takes without the tuner, measured first
    best: Config | None = None  # the fastest so far
    # Seconds of each configuration as if all had been measured at the same time: each time is
    # scaled by how fast the best was in the same turn. None where it cannot be used.
    scores: dict[Config, float | None] = field(default_factory=dict)
    seconds: dict[Config, float] = field(default_factory=dict)  # as measured last
    spent: float = 0.0  # seconds of the budget that went into this shape
    # How many times faster than the baseline the best was, timed in turn with it at the end.
    gain: float | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of the product, or of the whole batch."""
        return self.problem.flops

    @property
    def gflops(self) -> float | None:
        """Speed of the best, in GFLOPS."""
        if self.best is None or self.best not in self.seconds:
            return None
        return self.flops / self.seconds[self.best] / 1e9

    def note(self, config: Config, outcome: Outcome) -> bool:
        """Take in an outcome; tells whether it is a new best."""
        if outcome.status != FINE or outcome.seconds is None:
            self.scores.setdefault(config, None)
            return False
        self.seconds[config] = outcome.seconds
        best_score = self.scores.get(self.best) if self.best is not None else None
        if self.best is None or best_score is None or outcome.rival_seconds is None:
            self.scores[config] = outcome.seconds
            if self.best is None or best_score is None or outcome.seconds < best_score:
                self.best = config
                return True
            return False
        self.seconds[self.best] = outcome.rival_seconds
        ratio = outcome.seconds / outcome.rival_seconds
        self.scores[config] = best_score * ratio
        if config != self.best and ratio < _BETTER:
            self.best = config
            return True
        return False

    def ranked(self, family: str | None = None) -> list[tuple[float, Config]]:
        """The configurations of one family, or of all, by their score, the least first."""
        usable = [
            (score, config)
            for config, score in self.scores.items()
            if score is not None and family in (None, config.family)
        ]
        return sorted(usable, key=lambda pair: pair[0])

    def best_score(self, family: str | None = None) -> float | None:
        """The least score, of one family or of all."""
        return min((score for score, _ in self.ranked(family)), default=None)

    def next_family(self, families: Sequence[str]) -> str:
        """Which of `families` to try next: a slow one less often, by the square of its ratio."""
        best = self.best_score()

        def weight(family: str) -> float:
            tried = sum(config.family == family for config in self.scores)
            own = self.best_score(family)
            return tried * ((own / best) ** 2 if own and best else 1.0)

        return min(families, key=weight)


def nearest(standing: Standing, others: Iterable[Standing]) -> list[Standing]:
    """The other shapes, the nearest first, as `pyclgemm.selection.distance` has it.

    Batches of small products, which have kernels of their own, are far from all else.
    """
    is_small = is_small_batch(standing.problem)
    wanted = features_of(standing.problem)

    def far(other: Standing) -> tuple[bool, float]:
        octaves = distance(wanted, features_of(other.problem))
        return is_small_batch(other.problem) != is_small, octaves

    return sorted((other for other in others if other is not standing), key=far)


#: Seconds that a trial may take, building included, before its process is killed: a part of the
#: budget within limits, and more where operands and their product must be made first.
_TRIAL_PART = 1 / 20
_TRIAL_SECONDS = (10.0, 30.0)
_FIRST_SECONDS = 60.0
#: Seconds by which the last trial may overrun the budget before it is killed.
_GRACE = 2.0
#: The best of each shape in an earlier run's log that are measured anew.
_MOST_RESUMED = 3


@dataclass(frozen=True)
class Progress:
    """Where a tuning run stands, told after each trial."""

    stage: str  # "start", "search", "cross" or "confirm"
    elapsed: float  # seconds
    budget: float  # seconds
    trials: int  # configurations measured so far, in this run
    shape: GemmShape  # on which the last one was measured
    gflops: float | None  # the best so far on that shape
    improved: bool  # the last trial was a new best


class BudgetSpentError(Exception):
    """The time of a stage is over."""


class TuningSession:
    """The shapes of a run, what is known about them, and the process that measures.

    Parameters
    ----------
    process : TrialProcess
        Measures.
    standings : sequence of Standing
        The shapes.
    families : sequence of str
        Kernel families that take part.
    start, budget : float
        When the run began, on `time.monotonic`'s clock, and the seconds that it has.
    log : TuningLog
        Gets every trial.
    seed : int
        Of the searches.
    progress : callable
        Told after each trial.
    """

    def __init__(
        self,
        process: TrialProcess,
        standings: Sequence[Standing],
        families: Sequence[str],
        start: float,
        budget: float,
        log: TuningLog,
        seed: int,
        progress: Callable[[Progress], None],
    ) -> None:
        self.process = process
        self.standings = standings
        self.families = families
        self.start = start
        self.budget = budget
        self.deadline = start + budget
        self.stage = "start"  # for `progress`
        # These three as in `pyclgemm.tuning.tuner.TuningResult`.
        self.outcomes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.remarks: list[str] = []
        self.comparisons: list[float] = []  # seconds of trials that were timed in all rounds
        self.left_out: set[GemmShape] = set()  # shapes that are too large for the budget
        self._log = log
        self._logs = True
        self._progress = progress
        self._dtype = standings[0].problem.dtype
        precision = standings[0].problem.precision
        self.spaces = {
            family: search_space(family, self._dtype, process.traits, precision)
            for family in families
        }
        self.searches = {
            (standing.shape, space.family): Search(space, seed + 1000 * number)
            for number, standing in enumerate(self.standings)
            for space in self.spaces.values()
            if suits(space.family, standing.problem, process.traits)
        }

    @property
    def active(self) -> list[Standing]:
        """Shapes that can be tuned within the budget."""
        return [standing for standing in self.standings if standing.shape not in self.left_out]

    @property
    def trial_seconds(self) -> float:
        """What a trial has cost on average, all included."""
        return (time.monotonic() - self.start) / max(1, sum(self.outcomes.values()))

    def trial(
        self, standing: Standing, config: Config, until: float, rival: Config | None = None
    ) -> Outcome:
        """Measure a configuration in turn with the best so far, and take in what comes out.

        The trial does not start after `until`. A `rival` is timed in turn with the candidate
        instead of the best; then nothing is taken in.

        Raises
        ------
        BudgetSpentError
            If it is too late, or the budget ended while it was measured.
        """
        now = time.monotonic()
        if now >= until:
            raise BudgetSpentError
        left = max(1.0, self.deadline + _GRACE - now)
        trial = Trial(standing.shape, config, rival or standing.best)
        if trial.rival == config:
            trial = Trial(standing.shape, config)
        limit = self._limit(standing)
        outcome = self.process.run(trial, min(limit, left))
        took = time.monotonic() - now
        standing.spent += took
        if outcome.status == "timeout" and left < limit:
            raise BudgetSpentError  # it was the budget, not the candidate
        if outcome.rival_seconds and outcome.seconds and outcome.seconds < outcome.rival_seconds:
            self.comparisons.append(took)  # timed in all rounds
        self.outcomes[outcome.status] += 1
        if outcome.status != FINE:
            self.examples.setdefault(outcome.status, f"{config.family} {config}: {outcome.reason}")
        improved = False
        if rival is None:
            improved = standing.note(config, outcome)
            score = standing.scores[config]
            self._tell(standing, config, score)
            self._keep(Logged(standing.shape, config, _scored(outcome, score)))
        self._progress(
            Progress(
                self.stage,
                time.monotonic() - self.start,
                self.budget,
                sum(self.outcomes.values()),
                standing.shape,
                standing.gflops,
                improved,
            )
        )
        return outcome

    def prepare(self, standing: Standing, configs: Sequence[Config], until: float) -> None:
        """Have some candidates built side by side, if it is not too late."""
        now = time.monotonic()
        if len(configs) > 1 and now < until:
            trials = [Trial(standing.shape, config) for config in configs]
            left = max(1.0, self.deadline + _GRACE - now)
            self.process.prepare(trials, min(2 * self._limit(standing), left))
            standing.spent += time.monotonic() - now

    def may_run(self, standing: Standing, config: Config) -> bool:
        """Whether a configuration can run on the device, suits the shape and is new to it."""
        traits = self.process.traits
        if config in standing.scores or not suits(config.family, standing.problem, traits):
            return False
        if violations(config, self._dtype, traits):
            return False
        return not family_of(config).refusal(config, standing.problem, traits)

    def resume(self) -> dict[GemmShape, list[Config]]:
        """Take in what earlier runs measured; returns the best of each shape, to measure anew."""
        by_shape = {standing.shape: standing for standing in self.standings}
        resumed = 0
        best: dict[GemmShape, list[Config]] = {}
        for logged in self._log:
            standing = by_shape.get(logged.shape)
            if standing is None or logged.config.family not in self.families:
                continue
            score = logged.outcome.seconds if logged.outcome.status == FINE else None
            standing.scores[logged.config] = score
            resumed += 1
        for standing in self.standings:
            for config, score in standing.scores.items():
                self._tell(standing, config, score)
            best[standing.shape] = [config for _, config in standing.ranked()[:_MOST_RESUMED]]
        if resumed:
            self.remarks.append(f"resumed with {resumed} trials of earlier runs: {self._log.path}")
        return best

    def _keep(self, logged: Logged) -> None:
        """Log a trial; where that fails the run goes on, for what it finds is saved at its end."""
        if not self._logs:
            return
        try:
            self._log.append(logged)
        except FileError as error:
            self._logs = False
            self.remarks.append(f"a second run will not resume all of this one: {error}")

    def _tell(self, standing: Standing, config: Config, score: float | None) -> None:
        search = self.searches.get((standing.shape, config.family))
        if search is not None:
            search.tell(config, score)

    def _limit(self, standing: Standing) -> float:
        """Seconds that a trial may take."""
        if not standing.seconds:
            return _FIRST_SECONDS
        least, most = _TRIAL_SECONDS
        return min(max(least, _TRIAL_PART * self.budget), most)


def _scored(outcome: Outcome, score: float | None) -> Outcome:
    """The outcome with its comparable time in place of the measured one."""
    return Outcome(outcome.status, score, None, outcome.reason)
