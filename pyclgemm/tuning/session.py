"""The trials of a tuning run: measure, evaluate, log, and keep to the budget."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..codegen.config import Config
from ..errors import FileError
from ..families.family import is_small_batch
from ..problem.problem import GemmProblem
from ..problem.shape import GemmShape
from ..selection.features import features_of, octaves_between, record_for
from ..selection.records import Record
from .log import Logged, TuningLog
from .process import FINE, Outcome, Trial, TrialProcess
from .search import Search, can_run, search_space, suits

#: A candidate replaces the best if its time is less than the best's by this factor.
_BETTER = 0.985


@dataclass(eq=False)
class Standing:
    """The state of a shape: configurations tried on it, and the best one."""

    shape: GemmShape
    problem: GemmProblem
    baseline: Config | None = None  # the choice of the library before tuning, measured first
    best: Config | None = None  # the fastest so far
    # Comparable seconds of each configuration: the measured ones, scaled by the speed of the best
    # in the same trial. None if the configuration cannot be used.
    scores: dict[Config, float | None] = field(default_factory=dict)
    seconds: dict[Config, float] = field(default_factory=dict)  # of the last measurement
    spent: float = 0.0  # seconds of the budget that this shape has used
    # Speed of the best over that of the baseline, timed in turn at the end.
    gain: float | None = None

    @property
    def gflops(self) -> float | None:
        """Speed of the best configuration, in GFLOPS."""
        return None if self.best is None else self._speed(self.best)

    def record(self, config: Config) -> Record:
        """The database record of a measured configuration."""
        return record_for(features_of(self.problem), config, self._speed(config))

    def _speed(self, config: Config) -> float:
        return self.problem.flops / self.seconds[config] / 1e9

    def note(self, config: Config, outcome: Outcome) -> None:
        """Evaluate an outcome: update times, scores and the best."""
        if outcome.status != FINE or outcome.seconds is None:
            self.scores.setdefault(config, None)
            return
        self.seconds[config] = outcome.seconds
        best_score = None if self.best is None else self.scores.get(self.best)
        if self.best is None or best_score is None or outcome.rival_seconds is None:
            self.scores[config] = outcome.seconds
            self.best = min(self.seconds, key=lambda timed: self.scores[timed] or math.inf)
        else:
            # The device may run slower than before: the time of the rival shows by how much.
            self.seconds[self.best] = outcome.rival_seconds
            ratio = outcome.seconds / outcome.rival_seconds
            self.scores[config] = best_score * ratio
            if config != self.best and ratio < _BETTER:
                self.best = config

    def ranked(self, family: str | None = None) -> list[tuple[float, Config]]:
        """Scores and configurations of one family, or of all, the best first."""
        usable = (
            (score, config)
            for config, score in self.scores.items()
            if score is not None and family in (None, config.family)
        )
        return sorted(usable, key=lambda pair: pair[0])

    def best_score(self, family: str | None = None) -> float | None:
        """The best score of one family, or of all."""
        return min((score for score, _ in self.ranked(family)), default=None)

    def next_family(self, families: Sequence[str]) -> str:
        """The family with the fewest trials so far, weighted by its relative time squared."""
        best = self.best_score()

        def weight(family: str) -> float:
            tried = sum(config.family == family for config in self.scores)
            score = self.best_score(family)
            return tried * ((score / best) ** 2 if score and best else 1.0)

        return min(families, key=weight)


def nearest(standing: Standing, others: Iterable[Standing]) -> list[Standing]:
    """The other shapes, the nearest first; batches of small products are far from all others."""
    is_small = is_small_batch(standing.problem)

    def far(other: Standing) -> tuple[bool, float]:
        octaves = octaves_between(standing.problem, other.problem)
        return is_small_batch(other.problem) != is_small, octaves

    return sorted((other for other in others if other is not standing), key=far)


#: Time limit of a trial, including building: a fraction of the budget, within limits in seconds;
#: and the limit of the first trial of a shape, which creates operands and a reference product.
_TRIAL_PART = 1 / 20
_TRIAL_SECONDS = (10.0, 30.0)
_FIRST_SECONDS = 60.0
#: Seconds for writing the kernels of some trials and handing them to compilers, each of which opens
#: the device at first.
_PREPARE_SECONDS = 90.0
#: Seconds by which the last trial may overrun the budget.
_GRACE = 2.0
#: Number of the best configurations of an earlier run that are measured again, for each shape.
_MOST_RESUMED = 3


@dataclass(frozen=True)
class Progress:
    """The progress of a tuning run, reported after each trial."""

    stage: str  # "start", "search", "cross", "confirm" or "survey"
    elapsed: float  # seconds
    trials: int  # number of trials of this run
    shape: GemmShape  # of the last trial
    gflops: float | None  # the best speed on that shape


class BudgetSpentError(Exception):
    """The time of a stage is over."""


@dataclass
class TuningSession:
    """The shapes of a run, their state, and the measuring process."""

    process: TrialProcess
    standings: Sequence[Standing]  # one for each shape
    families: Sequence[str]  # kernel families that take part
    start: float  # of the run, on the clock of `time.monotonic`
    budget: float  # seconds
    log: TuningLog  # gets every trial
    seed: int  # of the searches
    progress: Callable[[Progress], None]  # called after each trial
    stage: str = "start"  # for `progress`
    # These three as in `pyclgemm.tuning.tuner.TuningResult`.
    outcomes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    comparisons: list[float] = field(default_factory=list)  # durations of trials with all rounds
    left_out: set[GemmShape] = field(default_factory=set)  # shapes too large for the budget

    def __post_init__(self) -> None:
        self._is_logging = True
        problem, traits = self.standings[0].problem, self.process.traits
        self.spaces = {
            family: search_space(family, problem.dtype, traits, problem.precision)
            for family in self.families
        }
        self.searches = {
            (standing.shape, space.family): Search(space, self.seed + 1000 * number)
            for number, standing in enumerate(self.standings)
            for space in self.spaces.values()
            if suits(space.family, standing.problem, traits)
        }

    @property
    def active(self) -> list[Standing]:
        """The shapes that can be tuned within the budget."""
        return [standing for standing in self.standings if standing.shape not in self.left_out]

    @property
    def deadline(self) -> float:
        """The end of the budget, on the clock of `start`."""
        return self.start + self.budget

    @property
    def trial_seconds(self) -> float:
        """The mean duration of a trial, with everything around it."""
        return (time.monotonic() - self.start) / max(1, sum(self.outcomes.values()))

    def trial(
        self, standing: Standing, config: Config, until: float, rival: Config | None = None,
        *, alone: bool = False,
    ) -> Outcome:  # fmt: skip
        """Measure a configuration `alone` or in turn with the best so far; evaluate the outcome.

        With a `rival`, that is timed instead of the best, and the outcome is not evaluated.
        `BudgetSpentError` if the time is past `until`, or if the budget ended during the trial.
        """
        now = time.monotonic()
        if now >= until:
            raise BudgetSpentError
        left = max(1.0, self.deadline + _GRACE - now)
        against = None if alone else rival or standing.best
        trial = Trial(standing.shape, config, None if against == config else against)
        limit = self._limit(standing)
        outcome = self.process.run(trial, min(limit, left))
        took = time.monotonic() - now
        standing.spent += took
        if outcome.status == "timeout" and left < limit:
            raise BudgetSpentError  # the budget ended; the candidate may be fine
        if outcome.rival_seconds and outcome.seconds and outcome.seconds < outcome.rival_seconds:
            self.comparisons.append(took)  # a faster candidate is timed in all rounds
        self.outcomes[outcome.status] += 1
        if outcome.status != FINE:
            self.examples.setdefault(outcome.status, f"{config.family} {config}: {outcome.reason}")
        if rival is None:
            standing.note(config, outcome)
            score = standing.scores[config]
            self._tell(standing, config, score)
            # The log has the comparable time instead of the measured one.
            scored = replace(outcome, seconds=score, rival_seconds=None)
            self._keep(Logged(standing.shape, config, scored))
        elapsed, trials = time.monotonic() - self.start, sum(self.outcomes.values())
        self.progress(Progress(self.stage, elapsed, trials, standing.shape, standing.gflops))
        return outcome

    def prepare(self, standing: Standing, configs: Iterable[Config], until: float) -> None:
        """Start to build some candidates of a shape in parallel, unless it is past `until`.

        Not on a CPU: compilers would slow down the kernels that are timed.
        """
        if self.process.traits.type != "cpu" and time.monotonic() < until:
            trials = [Trial(standing.shape, config) for config in configs]
            self.process.prepare(trials, _PREPARE_SECONDS)

    def may_run(self, standing: Standing, config: Config) -> bool:
        """Whether a configuration can run, suits the shape and was not tried on it."""
        is_new = config not in standing.scores
        return is_new and can_run(config, standing.problem, self.process.traits)

    def resume(self) -> dict[GemmShape, list[Config]]:
        """Read the log of earlier runs; returns the best of each shape, to measure them again."""
        by_shape = {standing.shape: standing for standing in self.standings}
        resumed = 0
        for logged in self.log:
            standing = by_shape.get(logged.shape)
            if standing is not None and logged.config.family in self.families:
                is_fine = logged.outcome.status == FINE
                standing.scores[logged.config] = logged.outcome.seconds if is_fine else None
                resumed += 1
        for standing in self.standings:
            for config, score in standing.scores.items():
                self._tell(standing, config, score)
        if resumed:
            self.remarks.append(f"resumed with {resumed} trials of earlier runs: {self.log.path}")
        return {
            one.shape: [config for _, config in one.ranked()[:_MOST_RESUMED]]
            for one in self.standings
        }

    def _keep(self, logged: Logged) -> None:
        """Log a trial; if that fails, the run goes on without a log."""
        try:
            if self._is_logging:
                self.log.append(logged)
        except FileError as error:
            self._is_logging = False
            self.remarks.append(f"a second run will not resume all of this one: {error}")

    def _tell(self, standing: Standing, config: Config, score: float | None) -> None:
        search = self.searches.get((standing.shape, config.family))
        if search is not None:
            search.tell(config, score)

    def _limit(self, standing: Standing) -> float:
        """The time limit of a trial, in seconds."""
        if not standing.seconds:
            return _FIRST_SECONDS
        least, most = _TRIAL_SECONDS
        return min(max(least, _TRIAL_PART * self.budget), most)
