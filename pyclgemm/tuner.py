"""Find the fastest configurations for a device: ``pyclgemm.tuner.tune``.

Four stages share the budget, each given what the ones before left:

1. *start*: on every shape, what the library takes today, then what else its databases know, so
   that a short budget never ends worse than it began;
2. *search*: on the shape that has had the least time so far, the family that deserves the next
   trials gets them; what comes close to the best is tried on the nearest shapes too;
3. *cross*: the winner of each shape is tried on all others, the nearest first;
4. *confirm*: each winner is timed in turn with the best of every other family that comes close,
   and with what the library took before, which it must beat.

All measuring is done by another process (`pyclgemm.trial_process`), each candidate timed in
turn with the best so far, after its result has been checked.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .config import FAMILIES, Config
from .constraints import violations
from .database import Database, by_distance, load_database
from .device import DeviceTraits
from .errors import ArgumentError, UnsupportedError
from .inquiry import Inquiry, product_of
from .precision import resolve_precision
from .problem import GemmProblem
from .search import Search
from .search_space import families_of, search_space, suits
from .select import select
from .suites import Shape
from .trial import FINE, Outcome, Trial
from .trial_process import TrialProcess
from .tuning_log import Logged, TuningLog, user_log
from .tuning_state import Standing, nearest

#: Seconds that a trial may take, building included, before its process is killed: a part of the
#: budget within limits, and more where operands and their product must be made first.
_TRIAL_PART = 1 / 20
_TRIAL_SECONDS = (10.0, 30.0)
_FIRST_SECONDS = 60.0
#: Seconds by which the last trial may overrun the budget before it is killed.
_GRACE = 2.0
#: Parts of the budget: until when starting points are tried, at most and at least kept for the
#: last two stages, and of that for the last.
START_UNTIL = 0.35
_LAST_AT_MOST = 0.40
LAST_AT_LEAST = 0.15
#: Configurations of the databases that are tried on a shape, and of an earlier run's log.
_MOST_KNOWN = 24
_MOST_LOGGED = 3
#: A family whose best is this much slower than the best is not compared with it once more.
_CLOSE = 1.10
#: Candidates that are built side by side, on devices that do not time them on the same cores.
_BATCH = 4
#: A candidate this close to the best of its shape is tried on so many others, the nearest.
_PROMISING = 1.10
_PROMOTED_TO = 2
#: Products that a shape's part of the budget must hold, for it to be tuned at all.
_LEAST_PRODUCTS = 20


@dataclass(frozen=True)
class Progress:
    """Where a tuning run stands, told after each trial.

    Attributes
    ----------
    stage : str
        "start", "search", "cross" or "confirm".
    elapsed, budget : float
        Seconds.
    trials : int
        Configurations measured so far, in this run.
    shape : tuple of int
        What the last one was measured on.
    gflops : float or None
        The best so far on that shape.
    improved : bool
        Whether the last trial was a new best.
    """

    stage: str
    elapsed: float
    budget: float
    trials: int
    shape: Shape
    gflops: float | None
    improved: bool


@dataclass(frozen=True)
class TuningResult:
    """What a run found, also if it was interrupted.

    Attributes
    ----------
    traits : DeviceTraits
        The device.
    dtype, precision : str
        Element type by NumPy's name, arithmetic by JAX's.
    standings : tuple of Standing
        A shape each, in the order in which they were asked for.
    outcomes : dict of str to int
        Trials of this run by how they came out; see `pyclgemm.trial.OUTCOMES`.
    examples : dict of str to str
        For each way to fail, the reason of the first trial that failed so.
    remarks : tuple of str
        What was left out, and why.
    seconds : float
        That the run took.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    traits: DeviceTraits
    dtype: str
    precision: str
    standings: tuple[Standing, ...]
    outcomes: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False


def tune(
    shapes: Sequence[Shape],
    device: str | None = None,
    *,
    dtype: str = "float32",
    precision: str | None = None,
    budget: float = 120.0,
    families: Sequence[str] | None = None,
    database: Database | None = None,
    log_folder: Path | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    open_process: Callable[..., TrialProcess] = TrialProcess,
) -> TuningResult:
    """Search configurations for some shapes on a device.

    Nothing is saved but the log of trials, from which a second run resumes;
    `pyclgemm.tuning_result.save_result` writes the database. Ctrl-C ends the search, and what
    was found is returned.

    Parameters
    ----------
    shapes : sequence of tuple of int
        m, n, k of row-major products.
    device : str, optional
        As for `pyclgemm.discovery.choose_device`.
    dtype : str
        NumPy name of the element type.
    precision : str, optional
        JAX's name of the arithmetic; None for the default of the type.
    budget : float
        Seconds, compiling and all else included.
    families : sequence of str, optional
        Kernel families; None takes those that the library may choose on the device.
    database : Database, optional
        What is known; None takes what `pyclgemm.gemm` uses.
    log_folder : pathlib.Path, optional
        Where logs lie; None takes the user's cache folder.
    seed : int
        Of the search.
    progress : callable, optional
        Told after each trial.
    open_process : callable, optional
        Makes the measuring process; replaced in tests.

    Raises
    ------
    ArgumentError
        If there is no shape, the budget is not positive, or a family is unknown.
    PyclgemmError
        If the device cannot be opened or cannot compute in this precision, or if Optuna is
        not installed.

    Examples
    --------
    >>> import tempfile
    >>> result = tune([(64, 64, 64)], budget=2.0, log_folder=Path(tempfile.mkdtemp()))
    >>> result.standings[0].best is not None
    True
    """
    start = time.monotonic()
    if not shapes:
        raise ArgumentError("shapes is empty; at least one m, n, k is wanted")
    if not budget > 0:
        raise ArgumentError(f"budget is {budget}; a positive number of seconds is wanted")
    for family in families or ():
        if family not in FAMILIES:
            raise ArgumentError(f"families has {family!r}; known are {', '.join(FAMILIES)}")
    algorithm = resolve_precision(precision, dtype).name
    with open_process(device, dtype, precision) as process:
        run = _Run(
            process,
            [_problem(shape, dtype, precision) for shape in dict.fromkeys(shapes)],
            budget,
            start,
            tuple(families or families_of(process.traits)),
            database or load_database(),
            TuningLog(user_log(process.traits, dtype, algorithm, log_folder)),
            seed,
            progress or (lambda event: None),
        )
        interrupted = False
        try:
            run.stages()
        except KeyboardInterrupt:
            interrupted = True
        return TuningResult(
            process.traits,
            dtype,
            algorithm,
            tuple(run.standings),
            dict(run.outcomes),
            run.examples,
            tuple(run.remarks),
            time.monotonic() - start,
            interrupted,
        )


def _problem(shape: Shape, dtype: str, precision: str | None) -> GemmProblem:
    return product_of(Inquiry(*shape, dtype=dtype, precision=precision)).problem


class _BudgetSpentError(Exception):
    """The stage's time is over."""


class _Run:
    """The state of one run; its stages, in their order."""

    def __init__(
        self,
        process: TrialProcess,
        problems: Sequence[GemmProblem],
        budget: float,
        start: float,
        families: tuple[str, ...],
        database: Database,
        log: TuningLog,
        seed: int,
        progress: Callable[[Progress], None],
    ) -> None:
        self.standings = [Standing((p.m, p.n, p.k), p.flops) for p in problems]
        self.outcomes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.remarks: list[str] = []
        self._process = process
        self._problems = problems
        self._budget = budget
        self._start = start
        self._deadline = start + budget
        self._families = families
        self._database = database
        self._log = log
        self._progress = progress
        self._stage = "start"
        self._too_large: set[Shape] = set()
        self._known: dict[Shape, list[Config]] = {}
        self._comparisons: list[float] = []
        self._promoted: deque[tuple[Standing, Config]] = deque()
        traits, dtype = process.traits, problems[0].dtype
        spaces = [search_space(family, dtype, traits) for family in families]
        self._searches = {
            (standing.shape, space.family): Search(space, seed + 1000 * number)
            for number, standing in enumerate(self.standings)
            for space in spaces
            if suits(space.family, *standing.shape[:2])
        }

    def stages(self) -> None:
        """Run all stages; each ends when its time is over or when it has nothing left to try."""
        self._resume()
        for stage, run in (
            ("start", self._try_known),
            ("search", lambda: self._search(self._reserve)),
            ("cross", self._cross),
            ("search", lambda: self._search(self._confirming)),
            ("confirm", self._confirm),
        ):
            self._stage = stage
            with contextlib.suppress(_BudgetSpentError):
                run()

    # ---------------------------------------------------------------------------- trials

    def _trial(
        self, standing: Standing, config: Config, until: float, rival: Config | None = None
    ) -> Outcome:
        """Measure a configuration in turn with the best so far, and take in what comes out."""
        now = time.monotonic()
        if now >= until:
            raise _BudgetSpentError
        left = max(1.0, self._deadline + _GRACE - now)
        trial = Trial(standing.shape, config, rival or standing.best)
        if trial.rival == config:
            trial = Trial(standing.shape, config)
        limit = self._limit(standing)
        outcome = self._process.run(trial, min(limit, left))
        took = time.monotonic() - now
        standing.spent += took
        if outcome.status == "timeout" and left < limit:
            raise _BudgetSpentError  # it was the budget, not the candidate
        if outcome.rival_seconds and outcome.seconds and outcome.seconds < outcome.rival_seconds:
            self._comparisons.append(took)  # timed in all rounds
        self.outcomes[outcome.status] += 1
        if outcome.status != FINE:
            self.examples.setdefault(outcome.status, f"{config.family} {config}: {outcome.reason}")
        improved = False
        if rival is None:
            improved = standing.note(config, outcome)
            score = standing.scores[config]
            self._tell(standing, config, score)
            self._log.append(Logged(standing.shape, config, _scored(outcome, score)))
        self._progress(
            Progress(
                self._stage,
                time.monotonic() - self._start,
                self._budget,
                sum(self.outcomes.values()),
                standing.shape,
                standing.gflops,
                improved,
            )
        )
        return outcome

    def _prepare(self, standing: Standing, configs: Sequence[Config], until: float) -> None:
        """Have some candidates built side by side."""
        now = time.monotonic()
        if len(configs) > 1 and now < until:
            trials = [Trial(standing.shape, config) for config in configs]
            left = max(1.0, self._deadline + _GRACE - now)
            self._process.prepare(trials, min(2 * self._limit(standing), left))
            standing.spent += time.monotonic() - now

    def _promote(self, standing: Standing, config: Config, outcome: Outcome, limit: float) -> None:
        """Put a candidate up on the nearest shapes, if it is the best or close to it."""
        score, best = standing.scores.get(config), standing.best_score()
        if outcome.status == FINE and score and best and score <= limit * best:
            others = nearest(standing, self.standings)[:_PROMOTED_TO]
            self._promoted += ((other, config) for other in others)

    def _limit(self, standing: Standing) -> float:
        """Seconds that a trial may take."""
        if not standing.seconds:
            return _FIRST_SECONDS
        least, most = _TRIAL_SECONDS
        return min(max(least, _TRIAL_PART * self._budget), most)

    def _tell(self, standing: Standing, config: Config, score: float | None) -> None:
        search = self._searches.get((standing.shape, config.family))
        if search is not None:
            search.tell(config, score)

    def _active(self) -> list[Standing]:
        """Shapes that can be tuned within the budget."""
        return [standing for standing in self.standings if standing.shape not in self._too_large]

    def _may_run(self, standing: Standing, config: Config) -> bool:
        if config in standing.scores or not suits(config.family, *standing.shape[:2]):
            return False
        return not violations(config, self._problems[0].dtype, self._process.traits)

    # ---------------------------------------------------------------------------- stages

    def _resume(self) -> None:
        """Take in what an earlier run measured."""
        by_shape = {standing.shape: standing for standing in self.standings}
        resumed = 0
        for logged in self._log:
            standing = by_shape.get(logged.shape)
            if standing is None or logged.config.family not in self._families:
                continue
            score = logged.outcome.seconds if logged.outcome.status == FINE else None
            standing.scores[logged.config] = score
            resumed += 1
        for standing in self.standings:
            for config, score in standing.scores.items():
                self._tell(standing, config, score)
            usable = [(score, config) for config, score in standing.scores.items() if score]
            usable.sort(key=lambda pair: pair[0])
            self._known[standing.shape] = [config for _, config in usable[:_MOST_LOGGED]]
        if resumed:
            self.remarks.append(f"resumed with {resumed} trials of earlier runs: {self._log.path}")

    def _try_known(self) -> None:
        """Try what the library takes today on each shape, small ones first, then what it knows."""
        until = self._start + START_UNTIL * self._budget
        pairs = sorted(
            zip(self.standings, self._problems, strict=True), key=lambda pair: pair[0].flops
        )
        for standing, problem in pairs:
            if self._is_too_large(standing):
                continue
            with contextlib.suppress(UnsupportedError):  # nothing is known yet
                choice = select(problem, self._process.traits, self._database)
                if choice.path in self._families:
                    standing.baseline = choice.config
                    self._trial(standing, choice.config, self._deadline)
            for config in self._known[standing.shape]:
                if config != standing.baseline:
                    self._trial(standing, config, until)
        candidates = {standing.shape: self._from_database(problem) for standing, problem in pairs}
        for place in range(_MOST_KNOWN):
            for standing in self._active():
                for config in candidates[standing.shape][place : place + 1]:
                    if self._may_run(standing, config):
                        self._trial(standing, config, until)

    def _is_too_large(self, standing: Standing) -> bool:
        """Whether a product takes too long to be tuned, judging by the smaller ones."""
        speeds = [one.gflops for one in self.standings if one.gflops]
        if not speeds:
            return False
        product = standing.flops / max(speeds) / 1e9
        if product * _LEAST_PRODUCTS <= self._budget / len(self.standings):
            return False
        self._too_large.add(standing.shape)
        m, n, k = standing.shape
        self.remarks.append(
            f"{m}x{n}x{k} was left out: a product takes about {product:.2g} s, and "
            f"{_LEAST_PRODUCTS} of them do not fit its part of the budget; give a longer one"
        )
        return True

    def _from_database(self, problem: GemmProblem) -> list[Config]:
        """The configurations that the databases have for the device, the nearest shapes first."""
        shape = (problem.m, problem.n, problem.k)
        hits = self._database.lookup(self._process.traits, problem.dtype, problem.precision.name)
        configs = [
            record.config
            for _, entry in hits
            for record in by_distance(entry.records, shape)
            if record.config.family in self._families
        ]
        return list(dict.fromkeys(configs))

    def _search(self, kept: Callable[[], float]) -> None:
        """Search until only so many seconds are left as `kept` says."""
        exhausted: set[tuple[Shape, str]] = set()
        while True:
            until = self._deadline - kept()
            while self._promoted:
                standing, config = self._promoted.popleft()
                if standing.shape not in self._too_large and self._may_run(standing, config):
                    outcome = self._trial(standing, config, until)
                    self._promote(standing, config, outcome, 1.0)
            open_shapes = [
                (standing, families)
                for standing in self._active()
                if (families := self._open_families(standing, exhausted))
            ]
            if not open_shapes:
                return
            standing, families = min(open_shapes, key=lambda pair: pair[0].spent)
            family = standing.next_family(families)
            batch = 1 if self._process.traits.type == "cpu" else _BATCH
            search = self._searches[standing.shape, family]
            asked = [search.ask() for _ in range(batch)]
            proposed = [config for config in asked if config is not None]
            if not proposed:
                exhausted.add((standing.shape, family))
            self._prepare(standing, proposed, until)
            for config in proposed:
                outcome = self._trial(standing, config, until)
                self._promote(standing, config, outcome, _PROMISING)

    def _open_families(self, standing: Standing, exhausted: set[tuple[Shape, str]]) -> list[str]:
        keys = [(standing.shape, family) for family in self._families]
        return [key[1] for key in keys if key in self._searches and key not in exhausted]

    def _reserve(self) -> float:
        """Seconds to keep for crossing and confirming, by what trials have cost so far."""
        active = self._active()
        winners = len({standing.best for standing in active})
        # A winner that is built already costs about half of a new candidate.
        wanted = self._confirming() + len(active) * winners * self._trial_seconds() / 2
        return min(max(wanted, LAST_AT_LEAST * self._budget), _LAST_AT_MOST * self._budget)

    def _confirming(self) -> float:
        """Seconds to keep for confirming: a comparison or two for each shape."""
        one = statistics.fmean(self._comparisons) if self._comparisons else self._trial_seconds()
        return min(1.5 * len(self._active()) * one, _LAST_AT_MOST * self._budget / 2)

    def _trial_seconds(self) -> float:
        """What a trial has cost on average, all included."""
        return (time.monotonic() - self._start) / max(1, sum(self.outcomes.values()))

    def _cross(self) -> None:
        active = self._active()
        until = self._deadline - self._confirming()
        for rank in range(len(active) - 1):
            for standing in active:
                winner = nearest(standing, active)[rank].best
                if winner is not None and self._may_run(standing, winner):
                    self._trial(standing, winner, until)

    def _confirm(self) -> None:
        for standing in self._active():
            for challenger in self._challengers(standing):
                self._trial(standing, challenger, self._deadline)
            if standing.best is None or standing.baseline is None:
                continue
            if standing.best == standing.baseline:
                standing.gain = 1.0
                continue
            outcome = self._trial(standing, standing.best, self._deadline, standing.baseline)
            if outcome.seconds is None or outcome.rival_seconds is None:
                continue
            standing.gain = outcome.rival_seconds / outcome.seconds
            standing.seconds |= {
                standing.best: outcome.seconds,
                standing.baseline: outcome.rival_seconds,
            }
            if standing.gain < 1.0:
                standing.best, standing.gain = standing.baseline, 1.0

    def _challengers(self, standing: Standing) -> Iterator[Config]:
        """The best of every other family, where it comes close."""
        for family in self._families:
            challenger, score = standing.best_of(family), standing.best_score(family)
            if challenger is None or score is None or standing.best is None:
                continue
            best = standing.scores[standing.best]
            if family != standing.best.family and best and score < _CLOSE * best:
                yield challenger


def _scored(outcome: Outcome, score: float | None) -> Outcome:
    """The outcome with its comparable time in place of the measured one."""
    return Outcome(outcome.status, score, None, outcome.reason)
