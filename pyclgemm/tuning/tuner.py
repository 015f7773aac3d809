"""Find the fastest configurations for a device: ``pyclgemm.tuning.tuner.tune``.

A run has five stages. Each gets what the ones before it left of the budget:

1. *start*: on every shape, what the library takes today, then what else its databases know, so
   that a short budget never ends worse than it began;
2. *search*: on the shape that has had the least time so far, the family that deserves the next
   trials gets them; what comes close to the best is tried on the nearest shapes too;
3. *cross*: the winner of each shape is tried on all others, the nearest first;
4. *confirm*: each winner is timed in turn with the best of every other family that comes close,
   and with what the library took before, which it must beat;
5. *survey*: a part of the budget goes to products that nobody asked for, by which all others are
   predicted (`pyclgemm.tuning.survey`).

All measuring is done by another process (`pyclgemm.tuning.process`), each candidate timed in
turn with the best so far, after its result has been checked.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path

import numpy as np

from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..errors import ArgumentError, UnsupportedError
from ..families.registry import FAMILIES, problem_on
from ..host.files import check_writable
from ..problem.precision import resolve_precision
from ..problem.problem import GemmProblem
from ..problem.shape import GemmShape
from ..selection import database as databases
from ..selection.database import Database, DatabaseFile
from ..selection.features import features_of
from ..selection.model import known_of
from ..selection.records import Entry, Record, Source
from ..selection.saving import Level, extended_file, match_of, sorted_records, user_file
from ..selection.select import select
from .process import FINE, Outcome, Trial, TrialProcess, TuningLog, user_log
from .search import families_for, suits
from .session import BudgetSpentError, Progress, Standing, TuningSession, nearest
from .survey import Survey, Surveyed

#: Parts of the budget: until when starting points are tried, where each shape has time for a
#: search of its own and where it has not, and at most and at least kept for the last two stages.
START_UNTIL = 0.35
_START_OF_MANY = 0.65
#: Seconds for a shape from which a search is worth its time: some dozens of trials.
_SEARCH_SECONDS = 6.0
_LAST_AT_MOST = 0.40
LAST_AT_LEAST = 0.15
#: Configurations of the databases that are tried on a shape.
_MOST_KNOWN = 24
#: A family whose best is this much slower than the best is not compared with it once more.
_CLOSE = 1.10
#: Candidates that are built side by side, on devices that do not time them on the same cores.
_BATCH = 16
#: A candidate this close to the best of its shape is tried on the nearest others, this many.
_PROMISING = 1.10
_PROMOTED_TO = 2
#: Products that a shape's part of the budget must hold, for it to be tuned at all.
_LEAST_PRODUCTS = 20
#: A batch for which the families of small products take part in a survey.
_SMALL_BATCH = GemmShape(16, 16, 16, batch=1000)
#: How many times faster than the fastest so far a larger product may be.
_MOST_GROWTH = 10.0


def start_part(budget: float, shapes: int) -> float:
    """The part of a budget of seconds until whose end starting points are tried."""
    return START_UNTIL if budget >= _SEARCH_SECONDS * shapes else _START_OF_MANY


class TuningStages:
    """Runs the stages: which configuration is tried next, on which shape."""

    def __init__(self, session: TuningSession, database: Database) -> None:
        self._session = session
        self._database = database
        self._at_once = 1 if session.process.traits.type == "cpu" else _BATCH
        self._promoted: deque[tuple[Standing, Config]] = deque()

    def run(self) -> None:
        """Run all stages; each ends when its time is over or when it has nothing left to try."""
        session = self._session
        resumed = session.resume()
        stages: tuple[tuple[str, Callable[[], None]], ...] = (
            ("start", lambda: self._try_known(resumed)),
            ("search", lambda: self._search(self._reserve)),
            ("cross", self._cross),
            ("search", lambda: self._search(self._confirming)),
            ("confirm", self._confirm),
        )
        for stage, step in stages:
            session.stage = stage
            with contextlib.suppress(BudgetSpentError):
                step()

    def _try_known(self, resumed: Mapping[GemmShape, Sequence[Config]]) -> None:
        """Try what the library takes today on each shape, small ones first, then what it knows."""
        session = self._session
        until = session.start + start_part(session.budget, len(session.standings)) * session.budget
        ascending = sorted(session.standings, key=lambda standing: standing.problem.flops)
        for standing in ascending:
            standing.baseline = self._chosen_today(standing.problem)
            if standing.baseline is not None and not self._is_too_large(standing):
                session.trial(standing, standing.baseline, session.deadline)
        for standing in session.active:
            for config in resumed[standing.shape]:
                if config != standing.baseline:
                    session.trial(standing, config, until)
        candidates = {one.shape: self._from_database(one.problem) for one in ascending}
        for first in range(0, _MOST_KNOWN, self._at_once):
            for standing in session.active:
                known = candidates[standing.shape][first : min(first + self._at_once, _MOST_KNOWN)]
                self._try_all(standing, known, until)

    def _try_all(self, standing: Standing, configs: Iterable[Config], until: float) -> None:
        """Try those of some configurations that can run."""
        able = [config for config in configs if self._session.may_run(standing, config)]
        self._session.prepare([Trial(standing.shape, config) for config in able], until)
        for config in able:
            self._session.trial(standing, config, until)

    def _chosen_today(self, problem: GemmProblem) -> Config | None:
        """What the library takes without the tuner; None if it knows nothing that takes part."""
        session = self._session
        try:
            choice = select(problem, session.process.traits, self._database)
        except UnsupportedError:
            return None
        return choice.config if choice.path in session.families else None

    def _is_too_large(self, standing: Standing) -> bool:
        """Whether a product takes too long to be tuned, judging by the smaller ones."""
        session = self._session
        fastest = max(session.standings, key=lambda one: one.gflops or 0.0)
        if not fastest.gflops:
            return False
        flops = standing.problem.flops
        # A larger product may run much faster: by the root of its size, as a guess.
        growth = min(_MOST_GROWTH, math.sqrt(max(1.0, flops / fastest.problem.flops)))
        product = flops / (fastest.gflops * 1e9 * growth)
        if product * _LEAST_PRODUCTS <= session.budget / len(session.standings):
            return False
        session.left_out.add(standing.shape)
        session.remarks.append(
            f"{standing.shape} was left out: a product takes about {product:.2g} s, and "
            f"{_LEAST_PRODUCTS} of them do not fit its part of the budget; give a longer one"
        )
        return True

    def _from_database(self, problem: GemmProblem) -> list[Config]:
        """The configurations that the databases have for the device, the fastest expected first.

        Those for other types are among them, adapted to this one: what suits a shape often does so
        whatever is multiplied.
        """
        traits = self._session.process.traits
        families = {name for name in self._session.spaces if suits(name, problem, traits)}
        known = [config for config in self._starting_points if config.family in families]
        seconds = known_of(problem, traits, self._database).predict(known, problem)
        return [known[index] for index in np.argsort(seconds, kind="stable")]

    @cached_property
    def _starting_points(self) -> list[Config]:
        """All configurations that may be tried, those of other types adapted."""
        session = self._session
        problem = session.standings[0].problem
        found: dict[Config, None] = {}
        for _, entry in self._database.entries_for(session.process.traits):
            is_other = entry.name != (problem.dtype, problem.precision.name)
            for record in entry.records:
                space = session.spaces.get(record.config.family)
                if space is None:
                    continue
                config: Config | None = record.config
                if is_other:  # whose vectors are of another length
                    config = space.config(space.nearest_point(record.config))
                if config is not None:
                    found[config] = None
        return list(found)

    def _search(self, kept: Callable[[], float]) -> None:
        """Search until no more seconds are left than `kept` says."""
        session = self._session
        left = {
            one: [family for family in session.families if (one.shape, family) in session.searches]
            for one in session.standings
        }
        while True:
            until = session.deadline - kept()
            while self._promoted:
                standing, config = self._promoted.popleft()
                if standing.shape not in session.left_out and session.may_run(standing, config):
                    outcome = session.trial(standing, config, until)
                    self._promote(standing, config, outcome, 1.0)
            open_ones = [one for one in session.active if left[one]]
            if not open_ones:
                return
            standing = min(open_ones, key=lambda one: one.spent)
            family = standing.next_family(left[standing])
            search = session.searches[standing.shape, family]
            asked = [search.ask() for _ in range(self._at_once)]
            proposed = [config for config in asked if config is not None]
            if not proposed:
                left[standing].remove(family)
                told = f"{standing.shape}: no configuration of the {family} family fits the device"
                is_new = all(config.family != family for config in standing.scores)
                if is_new and told not in session.remarks:
                    session.remarks.append(told)
            session.prepare([Trial(standing.shape, config) for config in proposed], until)
            for config in proposed:
                outcome = session.trial(standing, config, until)
                self._promote(standing, config, outcome, _PROMISING)

    def _promote(self, standing: Standing, config: Config, outcome: Outcome, limit: float) -> None:
        """Put a candidate up on the nearest shapes, if it is the best or close to it."""
        session = self._session
        score, best = standing.scores.get(config), standing.best_score()
        if outcome.status == FINE and score and best and score <= limit * best:
            others = nearest(standing, session.standings)[:_PROMOTED_TO]
            self._promoted += ((other, config) for other in others)

    def _reserve(self) -> float:
        """Seconds to keep for crossing and confirming, by what trials have cost so far."""
        session = self._session
        active = session.active
        winners = len({standing.best for standing in active})
        # A winner that is built already costs about half of a new candidate.
        wanted = self._confirming() + len(active) * winners * session.trial_seconds / 2
        return min(max(wanted, LAST_AT_LEAST * session.budget), _LAST_AT_MOST * session.budget)

    def _confirming(self) -> float:
        """Seconds to keep for confirming: a comparison or two for each shape."""
        session = self._session
        one = statistics.fmean(session.comparisons or [session.trial_seconds])
        return min(1.5 * len(session.active) * one, _LAST_AT_MOST * session.budget / 2)

    def _cross(self) -> None:
        session = self._session
        active = session.active
        until = session.deadline - self._confirming()
        for first in range(0, len(active) - 1, self._at_once):
            for standing in active:
                others = nearest(standing, active)[first : first + self._at_once]
                winners = dict.fromkeys(other.best for other in others if other.best is not None)
                self._try_all(standing, winners, until)

    def _confirm(self) -> None:
        session = self._session
        for standing in session.active:
            for family in session.families:  # the best of every other one, where it comes close
                ranked = standing.ranked(family)
                if not ranked or standing.best is None or family == standing.best.family:
                    continue
                score, challenger = ranked[0]
                best = standing.scores[standing.best]
                if best and score < _CLOSE * best:
                    session.trial(standing, challenger, session.deadline)
            if standing.best is None or standing.baseline is None:
                continue
            if standing.best == standing.baseline:
                standing.gain = 1.0
                continue
            outcome = session.trial(standing, standing.best, session.deadline, standing.baseline)
            if outcome.seconds is None or outcome.rival_seconds is None:
                continue
            standing.gain = outcome.rival_seconds / outcome.seconds
            standing.seconds[standing.best] = outcome.seconds
            standing.seconds[standing.baseline] = outcome.rival_seconds
            if standing.gain < 1.0:
                standing.best, standing.gain = standing.baseline, 1.0


@dataclass(frozen=True)
class TuningResult:
    """What a run found, also if it was interrupted."""

    traits: DeviceTraits
    dtype: str  # by NumPy's name
    precision: str  # by JAX's name
    standings: tuple[Standing, ...]  # a shape each, in the order in which they were asked for
    outcomes: dict[str, int] = field(default_factory=dict)  # trials of this run, by `OUTCOMES`
    examples: dict[str, str] = field(default_factory=dict)  # the first reason of each failure
    remarks: tuple[str, ...] = ()  # what was left out, and why
    seconds: float = 0.0  # that the run took
    interrupted: bool = False  # by Ctrl-C or, in a command, by another signal
    survey: Surveyed = field(default_factory=Surveyed)  # empty where there was none


def tune(
    shapes: Sequence[GemmShape | tuple[int, int, int]],
    device: str | None = None,
    *,
    dtype: str = "float32",
    precision: str | None = None,
    budget: float = 120.0,
    survey: float = 0.0,
    contributes: bool = False,
    families: Sequence[str] | None = None,
    database: Database | None = None,
    log_folder: Path | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    open_process: Callable[..., TrialProcess] = TrialProcess,
) -> TuningResult:
    """Search configurations for some shapes on a device.

    Shapes are products with a row-major result, or batches of them; m, n, k alone stand for one of
    contiguous operands that are not transposed. The device is as for
    `pyclgemm.device.discovery.choose_device`, `dtype` a NumPy name, `precision` JAX's name of the
    arithmetic. The budget is in seconds, compiling and all else included; `survey` is the part of
    it that goes to products that nobody asked for, by which others are predicted; for others'
    devices if the result `contributes` to what they know. By default all families take part that
    the library may choose, `database` is what `pyclgemm.gemm` uses, and the log lies in the user's
    cache folder. `progress` is told after each trial; `open_process` is replaced in tests.

    Nothing is saved but the log of trials, from which a second run resumes;
    `save_result` writes the database. Ctrl-C ends the search, and what was
    found is returned.

    `ArgumentError` says that there is no shape or a malformed one, that the budget is not positive,
    or that a family is unknown; another `PyclgemmError` that the device cannot be opened or cannot
    compute in this precision, that Optuna is not installed, or that the log cannot be written. If
    that happens only later, the run goes on without it.

    Examples
    --------
    >>> import tempfile
    >>> result = tune([(64, 64, 64)], budget=2.0, log_folder=Path(tempfile.mkdtemp()))
    >>> len(result.standings)
    1
    """
    start = time.monotonic()
    if not shapes:
        raise ArgumentError("shapes is empty; at least one m, n, k is wanted")
    if not budget > 0:
        raise ArgumentError(f"budget is {budget}; a positive number of seconds is wanted")
    if not 0 <= survey <= 1:
        raise ArgumentError(f"survey is {survey}; a part from 0 to 1 is wanted")
    for family in families or ():
        if family not in FAMILIES:
            raise ArgumentError(f"families has {family!r}; known are {', '.join(FAMILIES)}")
    algorithm = resolve_precision(precision, dtype)
    with open_process(device, dtype, precision) as process:
        standings = [
            Standing(shape, problem_on(shape.problem(dtype, precision), process.traits))
            for shape in dict.fromkeys(map(GemmShape.of, shapes))
        ]
        log = TuningLog(user_log(process.traits, dtype, algorithm.name, log_folder))
        log.check_writable()
        problems = [one.problem for one in standings]
        if survey:
            problems.append(_SMALL_BATCH.problem(dtype, precision))
        session = TuningSession(
            process, standings, families or families_for(problems, process.traits), start,
            (1 - survey) * budget, log, seed, progress or (lambda event: None),
        )  # fmt: skip
        known = database or databases.load_database()
        surveyor = Survey(session, known, seed, contributes=contributes) if survey else None
        interrupted = False
        try:
            if survey < 1:
                TuningStages(session, known).run()
            if surveyor is not None:
                session.budget += survey * budget
                surveyor.run()
        except KeyboardInterrupt:
            interrupted = True
        return TuningResult(
            process.traits, dtype, algorithm.name, tuple(standings), dict(session.outcomes),
            session.examples, tuple(session.remarks), time.monotonic() - start, interrupted,
            surveyor.found if surveyor else Surveyed(),
        )  # fmt: skip


# From what was found to records of a database


def tuned_records(result: TuningResult) -> list[Record]:
    """A record for each product or batch on which something was measured, then those that missed.

    Of shapes that are one product, such as 9x1x8 and 1x9x8:NT, the faster counts.
    """
    measured = [
        (features_of(one.problem), one.record(one.best))
        for one in (*result.standings, *result.survey.standings)
        if one.best is not None
    ]
    fastest = dict(sorted(measured, key=lambda pair: pair[1].gflops or 0.0))
    return [*fastest.values(), *result.survey.missed]


def check_destination(contribute: Path | None = None) -> None:
    """Refuse a database that `save_result` could not write, before anything is measured.

    `DatabaseError` says that it cannot be used, `FileError` that it cannot be written.
    """
    if contribute is not None and contribute.exists():
        databases.read_file(contribute)
    # The name of the user's own file depends on the device, which nothing has opened yet.
    path = contribute or databases.user_database_folder() / "any.json"
    check_writable(path, databases.DATABASE)


def unsaved_text(result: TuningResult) -> str:
    """A database of what was found, for the user to save by hand where `save_result` failed."""
    source = Source("measured", f"tuned on {result.traits.name}, {date.today()}")
    entry = Entry(result.dtype, result.precision, sorted_records(tuned_records(result)))
    match = match_of(result.traits, "device")
    return json.dumps(DatabaseFile.make(Path("unsaved.json"), match, source, [entry]).document)


def save_result(result: TuningResult, contribute: Path | None = None) -> Path:
    """Write the user's database, or a file to `contribute`, for the architecture; gives its path.

    What is contributed has no ceilings, which are those of one device; so the model of the survey
    must be about none (`contributes` of `tune`). `ArgumentError` says that nothing was measured;
    `DatabaseError` that the file that is there cannot be used, or that a record is not valid.
    """
    records = tuned_records(result)
    if not records:
        raise ArgumentError("nothing was measured: there is nothing to save")
    path = user_file(result.traits) if contribute is None else contribute
    level: Level = "device" if contribute is None else "architecture"
    databases.update_file(
        path,
        lambda: extended_file(
            path, result.traits, (result.dtype, result.precision), records, level=level,
            model=result.survey.model, ceilings=None if contribute else result.survey.ceilings,
        ),
    )  # fmt: skip
    return path
