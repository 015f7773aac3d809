"""A tuning run's trials: measure, take in what comes out, log it, and keep to the budget."""

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
from .process import FINE, Logged, Outcome, Trial, TrialProcess, TuningLog
from .search import Search, can_run, search_space, suits

#: A candidate this much faster than the best takes its place; less is noise.
_BETTER = 0.985


@dataclass(eq=False)
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
    def gflops(self) -> float | None:
        """Speed of the best, in GFLOPS."""
        return None if self.best is None else self._speed(self.best)

    def record(self, config: Config) -> Record:
        """What a database keeps of a configuration that was measured."""
        return record_for(features_of(self.problem), config, self._speed(config))

    def _speed(self, config: Config) -> float:
        return self.problem.flops / self.seconds[config] / 1e9

    def note(self, config: Config, outcome: Outcome) -> None:
        """Take in an outcome."""
        if outcome.status != FINE or outcome.seconds is None:
            self.scores.setdefault(config, None)
            return
        self.seconds[config] = outcome.seconds
        best_score = None if self.best is None else self.scores.get(self.best)
        if self.best is None or best_score is None or outcome.rival_seconds is None:
            self.scores[config] = outcome.seconds
            self.best = min(self.seconds, key=lambda timed: self.scores[timed] or math.inf)
        else:
            # The machine may have been slower than before: its speed is that of the rival.
            self.seconds[self.best] = outcome.rival_seconds
            ratio = outcome.seconds / outcome.rival_seconds
            self.scores[config] = best_score * ratio
            if config != self.best and ratio < _BETTER:
                self.best = config

    def ranked(self, family: str | None = None) -> list[tuple[float, Config]]:
        """The configurations of one family, or of all, by their score, the least first."""
        usable = (
            (score, config)
            for config, score in self.scores.items()
            if score is not None and family in (None, config.family)
        )
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
    """The other shapes, the nearest first, in octaves.

    Batches of small products, which have kernels of their own, are far from all else.
    """
    is_small = is_small_batch(standing.problem)

    def far(other: Standing) -> tuple[bool, float]:
        octaves = octaves_between(standing.problem, other.problem)
        return is_small_batch(other.problem) != is_small, octaves

    return sorted((other for other in others if other is not standing), key=far)


#: Seconds that a trial may take, building included, before its process is killed: a part of the
#: budget within limits, and more where operands and their product must be made first.
_TRIAL_PART = 1 / 20
_TRIAL_SECONDS = (10.0, 30.0)
_FIRST_SECONDS = 60.0
#: Seconds that it may take to write the kernels of some trials and to hand them to compilers.
_PREPARE_SECONDS = 30.0
#: Seconds by which the last trial may overrun the budget before it is killed.
_GRACE = 2.0
#: The best of each shape in an earlier run's log that are measured anew.
_MOST_RESUMED = 3


@dataclass(frozen=True)
class Progress:
    """Where a tuning run stands, told after each trial."""

    stage: str  # "start", "search", "cross" or "confirm"
    elapsed: float  # seconds
    trials: int  # configurations measured so far, in this run
    shape: GemmShape  # on which the last one was measured
    gflops: float | None  # the best so far on that shape


class BudgetSpentError(Exception):
    """The time of a stage is over."""


@dataclass
class TuningSession:
    """The shapes of a run, what is known about them, and the process that measures."""

    process: TrialProcess
    standings: Sequence[Standing]  # the shapes
    families: Sequence[str]  # kernel families that take part
    start: float  # when the run began, on `time.monotonic`'s clock
    budget: float  # seconds that it has
    log: TuningLog  # gets every trial
    seed: int  # of the searches
    progress: Callable[[Progress], None]  # told after each trial
    stage: str = "start"  # for `progress`
    # These three as in `pyclgemm.tuning.tuner.TuningResult`.
    outcomes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    comparisons: list[float] = field(default_factory=list)  # seconds of trials of all rounds
    left_out: set[GemmShape] = field(default_factory=set)  # shapes too large for the budget

    def __post_init__(self) -> None:
        self._logs = True
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
        """Shapes that can be tuned within the budget."""
        return [standing for standing in self.standings if standing.shape not in self.left_out]

    @property
    def deadline(self) -> float:
        """When the budget ends, on the clock of `start`."""
        return self.start + self.budget

    @property
    def trial_seconds(self) -> float:
        """What a trial has cost on average, all included."""
        return (time.monotonic() - self.start) / max(1, sum(self.outcomes.values()))

    def trial(
        self, standing: Standing, config: Config, until: float, rival: Config | None = None,
        *, alone: bool = False,
    ) -> Outcome:  # fmt: skip
        """Measure a configuration in turn with the best so far, or `alone`, and keep its time.

        A `rival` is timed in turn with the candidate instead of the best; then no time is kept.
        `BudgetSpentError` says that it is later than `until`, or that the budget ended while it
        was measured.
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
            raise BudgetSpentError  # it was the budget, not the candidate
        if outcome.rival_seconds and outcome.seconds and outcome.seconds < outcome.rival_seconds:
            self.comparisons.append(took)  # timed in all rounds
        self.outcomes[outcome.status] += 1
        if outcome.status != FINE:
            self.examples.setdefault(outcome.status, f"{config.family} {config}: {outcome.reason}")
        if rival is None:
            standing.note(config, outcome)
            score = standing.scores[config]
            self._tell(standing, config, score)
            # Logged with its comparable time in place of the measured one.
            scored = replace(outcome, seconds=score, rival_seconds=None)
            self._keep(Logged(standing.shape, config, scored))
        elapsed, trials = time.monotonic() - self.start, sum(self.outcomes.values())
        self.progress(Progress(self.stage, elapsed, trials, standing.shape, standing.gflops))
        return outcome

    def prepare(self, trials: Sequence[Trial], until: float) -> None:
        """Begin to compile the candidates of some trials side by side, if it is not too late.

        On a CPU compilers would take time from what is measured: each trial compiles its own.
        """
        if self.process.traits.type != "cpu" and time.monotonic() < until:
            self.process.prepare(trials, _PREPARE_SECONDS)

    def may_run(self, standing: Standing, config: Config) -> bool:
        """Whether a configuration can run on the device, suits the shape and is new to it."""
        is_new = config not in standing.scores
        return is_new and can_run(config, standing.problem, self.process.traits)

    def resume(self) -> dict[GemmShape, list[Config]]:
        """Take in what earlier runs measured; returns the best of each shape, to measure anew."""
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
        """Log a trial; where that fails the run goes on, for what it finds is saved at its end."""
        if not self._logs:
            return
        try:
            self.log.append(logged)
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
