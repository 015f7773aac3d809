"""Find the fastest configurations for a device: ``pyclgemm.tuning.tuner.tune``.

A run has five stages:

1. *start*: on every shape, measure the present choice of the library, then other configurations of
   the databases. A short budget therefore never ends worse than it began.
2. *search*: search configurations on the shape that has used the least time so far. Candidates
   close to the best are tried on the nearest shapes, too.
3. *cross*: try the winner of each shape on the other shapes, the nearest first.
4. *confirm*: time each winner in turn with the best of every other family that is close, and with
   the original choice of the library, which it must beat.
5. *survey*: use a part of the budget for random products, which improve the predictions for all
   others (`pyclgemm.tuning.survey`).

Another process measures (`pyclgemm.tuning.process`). It checks the result of each candidate, and
times the candidate in turn with the best so far.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from ..selection.database import Database
from ..selection.features import features_of, features_of_record
from ..selection.model import known_of
from ..selection.records import Record
from ..selection.saving import Level, extended_file, user_file
from ..selection.select import select
from .log import TuningLog, user_log
from .process import FINE, Outcome, TrialProcess
from .search import families_for, suits
from .session import BudgetSpentError, Progress, Standing, TuningSession, nearest
from .survey import SLOWER, Survey, Surveyed

#: Fraction of the budget for the first stage; the second one if shapes are too many for searches.
_START_UNTIL, _START_OF_MANY = 0.35, 0.65
#: Seconds for each shape that make a search worthwhile: some dozens of trials.
_SEARCH_SECONDS = 6.0
#: Largest and least fractions of the budget that are kept for the stages cross and confirm.
_LAST_AT_MOST = 0.40
LAST_AT_LEAST = 0.15
#: Largest number of configurations of the databases that are tried on a shape.
_MOST_KNOWN = 24
#: Largest time, relative to the best, of another family's best that is compared again at the end.
_CLOSE = 1.10
#: Number of candidates that are built in parallel, except on CPUs.
_BATCH = 16
#: A candidate within this factor of the best of its shape is tried on this many nearest shapes.
_PROMISING = 1.10
_PROMOTED_TO = 2
#: Number of configurations that are recorded for a product after the fastest one. On an H200 they
#: brought the choice for other products from 1.100 to 1.092 times the time of the fastest one that
#: was tried (62 products of random shapes, those for which the choice had been worst).
_FOLLOWING = 6
#: A shape is tuned if its share of the budget suffices for this many products.
_LEAST_PRODUCTS = 20
#: A batch that makes the families for small products take part in a survey.
_SMALL_BATCH = GemmShape(16, 16, 16, batch=1000)
#: Largest assumed speed of a larger product, relative to the fastest so far.
_MOST_GROWTH = 10.0


def start_part(budget: float, shapes: int) -> float:
    """The fraction of a budget in seconds that the first stage may use."""
    return _START_UNTIL if budget >= _SEARCH_SECONDS * shapes else _START_OF_MANY


class TuningStages:
    """The stages start to confirm: which configuration is tried next, on which shape."""

    def __init__(self, session: TuningSession, database: Database) -> None:
        self._session = session
        self._database = database
        self._at_once = 1 if session.process.traits.type == "cpu" else _BATCH
        self._promoted: deque[tuple[Standing, Config]] = deque()

    def run(self) -> None:
        """Run all stages; each ends when its time is over or nothing is left to try."""
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
        """Try the present choice on each shape, small ones first, then known configurations."""
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
                known = candidates[standing.shape][first : first + self._at_once]
                self._try_all(standing, known, until)

    def _try_all(self, standing: Standing, configs: Iterable[Config], until: float) -> None:
        """Try the configurations that can run and are new to the shape."""
        able = [config for config in configs if self._session.may_run(standing, config)]
        self._session.prepare(standing, able, until)
        for config in able:
            self._session.trial(standing, config, until)

    def _chosen_today(self, problem: GemmProblem) -> Config | None:
        """The present choice of the library; None if its family does not take part."""
        session = self._session
        try:
            choice = select(problem, session.process.traits, self._database)
        except UnsupportedError:
            return None
        return choice.config if choice.path in session.families else None

    def _is_too_large(self, standing: Standing) -> bool:
        """Whether a product takes too long to be tuned, estimated from smaller ones."""
        session = self._session
        fastest = max(session.standings, key=lambda one: one.gflops or 0.0)
        if not fastest.gflops:
            return False
        flops = standing.problem.flops
        # A larger product may run faster; the root of its size is a guess.
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
        """Known configurations that suit a product, the least predicted time first."""
        traits = self._session.process.traits
        families = {name for name in self._session.spaces if suits(name, problem, traits)}
        known = [config for config in self._starting_points if config.family in families]
        seconds = known_of(problem, traits, self._database).predict(known, problem)
        return [known[index] for index in np.argsort(seconds, kind="stable")[:_MOST_KNOWN]]

    @cached_property
    def _starting_points(self) -> list[Config]:
        """The configurations of the databases; those of other types, adapted, often suit, too."""
        session = self._session
        problem = session.standings[0].problem
        configs: dict[Config, None] = {}
        for _, entry in self._database.entries_for(session.process.traits):
            is_other = entry.name != (problem.dtype, problem.precision.name)
            for record in entry.records:
                space = session.spaces.get(record.config.family)
                if space is None:
                    continue
                config: Config | None = record.config
                if is_other:  # its vectors may have another length
                    config = space.config(space.nearest_point(record.config))
                if config is not None:
                    configs[config] = None
        return list(configs)

    def _search(self, kept: Callable[[], float]) -> None:
        """Search until only the seconds that `kept` returns are left."""
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
                remark = f"no configuration of the {family} family fits the device"
                is_new = all(config.family != family for config in standing.scores)
                if is_new and f"{standing.shape}: {remark}" not in session.remarks:
                    session.remarks.append(f"{standing.shape}: {remark}")
            session.prepare(standing, proposed, until)
            for config in proposed:
                outcome = session.trial(standing, config, until)
                self._promote(standing, config, outcome, _PROMISING)

    def _promote(self, standing: Standing, config: Config, outcome: Outcome, limit: float) -> None:
        """Queue a candidate for the nearest shapes if it is within `limit` of the best."""
        session = self._session
        score, best = standing.scores.get(config), standing.best_score()
        if outcome.status == FINE and score and best and score <= limit * best:
            others = nearest(standing, session.standings)[:_PROMOTED_TO]
            self._promoted += ((other, config) for other in others)

    def _reserve(self) -> float:
        """Seconds to keep for crossing and confirming, estimated from the trials so far."""
        session = self._session
        active = session.active
        winners = len({standing.best for standing in active})
        # A winner is built already, so a trial takes about half as long.
        seconds = self._confirming() + len(active) * winners * session.trial_seconds / 2
        return min(max(seconds, LAST_AT_LEAST * session.budget), _LAST_AT_MOST * session.budget)

    def _confirming(self) -> float:
        """Seconds to keep for confirming: one or two comparisons for each shape."""
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
            for family in session.families:
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
    """The result of a run, complete or interrupted."""

    traits: DeviceTraits
    dtype: str  # NumPy's name
    precision: str  # JAX's name
    standings: tuple[Standing, ...]  # one for each shape, in the order of the argument
    outcomes: dict[str, int] = field(default_factory=dict)  # number of trials by status
    examples: dict[str, str] = field(default_factory=dict)  # the first reason of each status
    remarks: tuple[str, ...] = ()  # what was left out, and why
    seconds: float = 0.0  # duration
    interrupted: bool = False  # by Ctrl-C or, in a command, by another signal
    survey: Surveyed = field(default_factory=Surveyed)  # empty without a survey


def tune(
    shapes: Sequence[GemmShape | tuple[int, int, int]],
    device: str | None = None,
    *,
    dtype: str = "float32",
    precision: str | None = None,
    budget: float = 120.0,
    survey: float = 0.0,
    contribute: Path | None = None,
    families: Sequence[str] | None = None,
    database: Database | None = None,
    log_folder: Path | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    open_process: Callable[..., TrialProcess] = TrialProcess,
) -> TuningResult:
    """Search the fastest configurations for some shapes on a device.

    A shape is a product with a row-major result, or a batch; (m, n, k) means contiguous operands
    that are not transposed. The device is as for `pyclgemm.device.discovery.choose_device`, `dtype`
    a NumPy name, `precision` JAX's name of the arithmetic. The budget is in seconds and includes
    compiling; `survey` is the fraction of it for random products, which improve predictions. If
    the result is to extend the file `contribute` for an architecture, which must cover the device,
    the survey assumes estimated ceilings.
    By default all families take part that the library may choose, `database` is that of
    `pyclgemm.gemm`, and the log lies in the user's cache folder. `progress` is called after each
    trial. Tests replace `open_process`.

    Only the log of trials is saved, from which a second run resumes; `save_result` writes a
    database. Ctrl-C ends the search and returns what was found so far.

    `ArgumentError` if there are no shapes or a malformed one, if the budget is not positive, or if
    a family is unknown; `DatabaseError` if the file `contribute` does not cover the device; another
    `PyclgemmError` if the device cannot be opened or lacks the precision, if Optuna is missing, or
    if the log cannot be written at the start. A log that fails later does not end the run.

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
        if contribute is not None:  # refuse another device's file before the search
            name = dtype, algorithm.name
            extended_file(contribute, process.traits, name, (), level="architecture")
        standings = [
            Standing(shape, problem_on(shape.problem(dtype, precision), process.traits))
            for shape in dict.fromkeys(map(GemmShape.of, shapes))
        ]
        log = TuningLog(user_log(process.traits, dtype, algorithm.name, log_folder))
        problems = [one.problem for one in standings]
        if survey:
            problems.append(_SMALL_BATCH.problem(dtype, precision))
        session = TuningSession(
            process, standings, families or families_for(problems, process.traits), start,
            (1 - survey) * budget, log, seed, progress or (lambda event: None),
        )  # fmt: skip
        known = database or databases.load_database()
        surveyor = None
        if survey:
            surveyor = Survey(session, known, seed, contributes=contribute is not None)
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
            surveyor.result if surveyor else Surveyed(),
        )  # fmt: skip


def tuned_records(result: TuningResult) -> list[Record]:
    """A record for each measured product or batch, then samples of slower configurations.

    The latter teach the choice: what was predicted to be the fastest, or what was chosen before if
    nothing was surveyed; and the next fastest ones of each product.
    """
    standings = *result.standings, *result.survey.standings
    measured = [
        (features_of(one.problem), one.record(one.best))
        for one in standings
        if one.best is not None
    ]
    # Shapes may be the same product, such as 9x1x8 and 1x9x8:NT: the last, fastest one counts.
    fastest = dict(sorted(measured, key=lambda pair: pair[1].gflops or 0.0))
    missed = result.survey.missed or [
        one.record(one.baseline)
        for one in result.standings
        if one.baseline is not None and (one.gain or 1.0) > SLOWER
    ]
    following = [
        one.record(config)
        for one in standings
        for config in sorted(one.seconds, key=one.seconds.__getitem__)[: _FOLLOWING + 1]
    ]
    slower = (replace(one, sample=True) for one in (*missed, *following))
    samples = {
        (features_of_record(one, result.dtype, result.precision), one.config): one for one in slower
    }
    for features, record in fastest.items():
        samples.pop((features, record.config), None)
    return [*fastest.values(), *samples.values()]


def check_destination(contribute: Path | None = None) -> None:
    """Raise `DatabaseError` or `FileError` if `save_result` could not extend its file."""
    if contribute is not None and contribute.exists():
        databases.read_file(contribute)
    # The name of the user's file depends on the device, which is not open yet.
    path = contribute or databases.user_database_folder() / "any.json"
    check_writable(path, databases.DATABASE)


def unsaved_text(result: TuningResult) -> str:
    """The text of a database, for the user to save by hand where `save_result` failed."""
    name = result.dtype, result.precision
    return json.dumps(extended_file(None, result.traits, name, tuned_records(result)).document)


def save_result(result: TuningResult, contribute: Path | None = None) -> Path:
    """Write the user's database, or a file for the architecture to `contribute`; returns its path.

    A contribution has no ceilings, which differ between devices: its survey must assume estimates
    (`contribute` of `tune`). `ArgumentError` if nothing was measured; `DatabaseError` if the
    existing file or a record is invalid.
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
