"""Run campaigns within a budget of seconds or cases, and report what failed."""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import registry
from .campaign import Case
from .journal import Found, Journal, Progress
from .minimise import minimised
from .pool import Worker, ready_connections, run_alone
from .worker import Outcome

#: A worker that has held more bytes ends with its block: drivers keep what they have built.
_MOST_MEMORY = 3 << 30
#: Failures after which a campaign stops: there is enough to mend.
_MOST_FAILURES = 60
#: Failures that are made smaller, at most; others are printed as they were found.
_MOST_MINIMISED = 5
#: Seconds for each.
MINIMISE_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes
    ----------
    seed : int
        Of all cases.
    seconds : float
        Budget of all campaigns together, without making failures smaller.
    cases : int or None
        Most cases of each campaign.
    jobs : int
        Worker processes.
    memory : int
        Bytes of address space of a worker; 0 for no limit.
    block : int or None
        Run this block of cases alone.
    """

    seed: int
    seconds: float
    cases: int | None = None
    jobs: int = 1
    memory: int = 0
    block: int | None = None


@dataclass
class Result:
    """One campaign at the end of a run."""

    name: str
    progress: Progress = field(default_factory=Progress)
    unavailable: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.progress.failures)


#: Told about a campaign after every message of a worker, at most some times a second.
Watch = Callable[[Result, float], None]


def run_campaign(
    name: str, plan: Plan, seconds: float, result: Result, journal: Journal, watch: Watch
) -> None:
    """Run blocks of a campaign until the time or the cases are spent, or the user stops it."""
    _CampaignRun(name, plan, seconds, result, journal, watch).run()


class _CampaignRun:
    """One campaign on a pool of workers."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        seconds: float,
        result: Result,
        journal: Journal,
        watch: Watch,
    ) -> None:
        self._name = name
        self._plan = plan
        self._result = result
        self._progress = result.progress
        self._journal = journal
        self._watch = watch
        blocks = result.progress.starts() if plan.block is None else iter([(plan.block, 0)])
        self._starts: Iterator[tuple[int, int]] = blocks
        self._until = time.time() + seconds
        self._workers: list[Worker] = []
        #: Of each block in work: cases since the journal's last line about it.
        self._open: dict[int, Counter[tuple[str, str]]] = {}
        self._over = False

    def run(self) -> None:
        """Keep all workers busy, and replace those that die."""
        try:
            for _ in range(self._plan.jobs):
                self._start()
            while self._workers:
                for connection in ready_connections(self._workers, 0.2):
                    worker = next(one for one in self._workers if one.connection is connection)
                    self._hear(worker)
                for worker in [one for one in self._workers if one.overdue]:
                    self._bury(worker, worker.case, worker.hung())
                self._watch(self._result, self._until)
        finally:
            for worker in self._workers:
                self._settle(worker)
                worker.close()

    def _start(self) -> None:
        """A worker with something to do, unless the budget is spent."""
        if not self._spent():
            worker = Worker(self._name, self._plan.memory)
            self._workers.append(worker)
            self._give_block(worker)

    def _has_enough(self) -> bool:
        return self._plan.cases is not None and self._progress.total >= self._plan.cases

    def _spent(self) -> bool:
        return (
            self._over
            or time.time() >= self._until
            or self._has_enough()
            or len(self._progress.failures) >= _MOST_FAILURES
        )

    def _give_block(self, worker: Worker) -> None:
        start = next(self._starts, None)
        if start is None:
            self._over = True
            self._dismiss(worker)
            return
        worker.block, worker.index = start
        self._open[worker.block] = Counter()
        worker.ask("block", self._plan.seed, worker.block, worker.index, self._until)

    def _hear(self, worker: Worker) -> None:
        try:
            message = worker.receive()
        except EOFError:
            self._bury(worker, worker.case, worker.crashed())
            return
        kind = message[0]
        if kind == "outcome":
            _, index, outcome, device = message
            if self._has_enough():
                worker.index = index  # one too many
                self._dismiss(worker)
                return
            self._count(worker, outcome, device)
            if self._spent():
                self._dismiss(worker)
            elif outcome.failed:
                # A failure may have spoilt the process: the rest of the block goes to another.
                self._replace(worker)
        elif kind == "done":
            worker.index = message[1]
            self._settle(worker)
            if self._spent():
                self._dismiss(worker)
            elif message[2] > _MOST_MEMORY:
                self._dismiss(worker)
                self._start()
            else:
                self._give_block(worker)
        elif kind == "unavailable":
            self._over, self._result.unavailable = True, message[1]
            self._dismiss(worker)
        elif kind == "broken":
            self._over = True
            self._fail(Found({}, Outcome("failed", "broken campaign", message[1]), worker.block))
            self._dismiss(worker)

    def _count(
        self, worker: Worker, outcome: Outcome, device: str, case: Case | None = None
    ) -> None:
        self._progress.counts[device, outcome.status] += 1
        self._open[worker.block][device, outcome.status] += 1
        if outcome.failed:
            self._fail(Found(case or worker.last, outcome, worker.block))

    def _fail(self, found: Found) -> None:
        self._progress.failures.append(found)
        self._journal.failure(self._name, found)

    def _bury(self, worker: Worker, case: Case | None, outcome: Outcome) -> None:
        """Blame the case that ran, and let another process go on behind it."""
        if case is None:
            self._over = True
            self._fail(Found({}, outcome, worker.block))
            self._dismiss(worker)
            return
        worker.index += 1
        self._count(worker, outcome, str(case.get("device", "")), case)
        self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        """Go on with the block of a worker in a fresh process."""
        self._dismiss(worker)
        if self._spent():
            return
        fresh = Worker(self._name, self._plan.memory)
        self._workers.append(fresh)
        fresh.block, fresh.index = worker.block, worker.index
        self._open[fresh.block] = Counter()
        fresh.ask("block", self._plan.seed, fresh.block, fresh.index, self._until)

    def _settle(self, worker: Worker) -> None:
        """Write down how far the block of a worker has come."""
        counts = self._open.pop(worker.block, None)
        if counts is not None:
            self._progress.positions[worker.block] = worker.index
            self._journal.block(self._name, worker.block, worker.index, counts)

    def _dismiss(self, worker: Worker) -> None:
        self._settle(worker)
        worker.close()
        self._workers.remove(worker)


@dataclass(frozen=True)
class Report:
    """A failure as it is shown, with the line that repeats it."""

    campaign: str
    outcome: Outcome
    repeat: str
    remark: str = ""

    def __str__(self) -> str:
        lines = [f"FAILED {self.campaign}: {self.outcome.kind}", self.outcome.message]
        return "\n".join([*lines, *filter(None, (self.remark, f"  {self.repeat}"))])


def repeat_line(campaign: str, case: Case) -> str:
    """A line for the shell that runs one case.

    Examples
    --------
    >>> repeat_line("files", {"text": "it's"})
    'python -m tests.fuzz --case \\'{"campaign": "files", "text": "it\\\\u0027s"}\\''
    """
    text = json.dumps({"campaign": campaign, **case}).replace("'", "\\u0027")
    return f"python -m tests.fuzz --case '{text}'"


def reports_of(
    result: Result, plan: Plan, seconds: float, tell: Callable[[str], None]
) -> list[Report]:
    """The failures of a campaign, one of each sort made smaller, for as many seconds each."""
    reports: list[Report] = []
    seen: set[tuple[str, str]] = set()
    campaign: Any = None
    for found in result.progress.failures:
        case, outcome = found.case, found.outcome
        sort = (outcome.kind, re.sub(r"[-\d.e+]+", "#", outcome.headline[:60]))
        if sort in seen:
            continue
        seen.add(sort)
        of_block = (
            f"python -m tests.fuzz --seed {plan.seed} --campaign {result.name} "
            f"--block {found.block}"
        )
        if not case:
            reports.append(Report(result.name, outcome, of_block))
            continue
        line = repeat_line(result.name, case)
        if len(seen) > _MOST_MINIMISED or seconds <= 0:
            reports.append(Report(result.name, outcome, line))
            continue
        campaign = campaign or registry.load(result.name)
        tell(f"{result.name}: making a failure smaller ({outcome.kind}), at most {seconds:g} s")
        again = run_alone(result.name, case, plan.memory)
        if not again.failed:
            remark = f"It does not fail alone, so what ran before it counts. Alone:\n  {line}"
            reports.append(Report(result.name, outcome, of_block, remark))
            continue
        until = time.monotonic() + seconds
        small, why = minimised(campaign, result.name, case, again, until, plan.memory)
        reports.append(Report(result.name, why, repeat_line(result.name, small)))
    return reports


def summary(result: Result, seconds: float = math.nan) -> list[str]:
    """The totals of a campaign, a line for each device."""
    if result.unavailable:
        return [f"{result.name}: no cases: {result.unavailable}"]
    counts = result.progress.counts
    lines = []
    for device in sorted({device for device, _ in counts}):
        by_status = {status: count for (one, status), count in counts.items() if one == device}
        where = f" on {device}" if device else ""
        tail = [f"{by_status.pop('failed', 0)} failed", f"{by_status.pop('skipped', 0)} skipped"]
        total = sum(counts[one, status] for one, status in counts if one == device)
        by_status.pop("passed", None)
        tail += [f"{count} {status}" for status, count in sorted(by_status.items())]
        lines.append(f"{result.name}: {total} cases{where}, {', '.join(tail)}")
    return lines or [f"{result.name}: 0 cases"]
