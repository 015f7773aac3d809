"""Run campaigns within a budget of seconds or cases, and report what failed."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .campaign import Case, load
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


@dataclass(frozen=True)
class Plan:
    """What to run."""

    seed: int
    seconds: float  # of all campaigns together, without making failures smaller
    cases: int | None = None  # most cases of each campaign
    jobs: int = 1  # worker processes
    memory: int = 0  # bytes of address space of a worker; 0 for no limit
    block: int | None = None  # run this block of cases alone


@dataclass
class Result:
    """One campaign at the end of a run."""

    name: str
    progress: Progress = field(default_factory=Progress)
    unavailable: str = ""


#: Told about a campaign, and when it ends, after every message of a worker or every 0.2 seconds.
Watch = Callable[[Result, float], None]


class CampaignRun:
    """One campaign on a pool of workers, for `seconds`."""

    def __init__(
        self, plan: Plan, seconds: float, result: Result, journal: Journal, watch: Watch
    ) -> None:
        self._name, self._plan, self._result = result.name, plan, result
        self._progress, self._journal, self._watch = result.progress, journal, watch
        blocks = result.progress.starts() if plan.block is None else iter([(plan.block, 0)])
        self._starts = blocks
        self._until = time.time() + seconds
        self._workers: list[Worker] = []
        #: Of each block in work: cases since the journal's last line about it.
        self._open: dict[int, Counter[tuple[str, str]]] = {}
        self._over = False

    def run(self) -> None:
        """Keep all workers busy, and replace those that die, until the budget is spent."""
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

    def _has_enough(self) -> bool:
        return self._plan.cases is not None and self._progress.total >= self._plan.cases

    def _spent(self) -> bool:
        return (
            self._over
            or time.time() >= self._until
            or self._has_enough()
            or len(self._progress.failures) >= _MOST_FAILURES
        )

    def _start(self) -> None:
        """A worker with a new block, unless the budget is spent."""
        if not self._spent():
            worker = Worker(self._name, self._plan.memory)
            self._workers.append(worker)
            self._give_block(worker)

    def _give_block(self, worker: Worker) -> None:
        start = next(self._starts, None)
        if start is None:
            self._over = True
            self._dismiss(worker)
        else:
            self._give(worker, *start)

    def _give(self, worker: Worker, block: int, first: int) -> None:
        worker.block, worker.index = block, first
        self._open[block] = Counter()
        worker.ask("block", self._plan.seed, block, first, self._until)

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
        elif kind in ("unavailable", "broken"):
            self._over = True
            if kind == "unavailable":
                self._result.unavailable = message[1]
            else:
                outcome = Outcome("failed", "broken campaign", message[1])
                self._fail(Found({}, outcome, worker.block))
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
        else:
            worker.index += 1
            self._count(worker, outcome, str(case.get("device", "")), case)
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        """Go on with the block of a worker in a fresh process."""
        self._dismiss(worker)
        if not self._spent():
            fresh = Worker(self._name, self._plan.memory)
            self._workers.append(fresh)
            self._give(fresh, worker.block, worker.index)

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
    """A line for the shell that runs one case."""
    text = json.dumps({"campaign": campaign, **case}).replace("'", "\\u0027")
    return f"python -m tests.fuzz --case '{text}'"


def reports_of(
    result: Result, plan: Plan, seconds: float, tell: Callable[[str], None]
) -> list[Report]:
    """The failures of a campaign, one of each sort made smaller, for as many seconds each."""
    reports: dict[tuple[str, str], Report] = {}
    for found in result.progress.failures:
        outcome = found.outcome
        sort = (outcome.kind, re.sub(r"[-\d.e+]+", "#", outcome.headline[:60]))
        if sort not in reports:
            wants_smaller = len(reports) < _MOST_MINIMISED and seconds > 0
            reports[sort] = _report(result.name, plan, found, seconds * wants_smaller, tell)
    return list(reports.values())


def _report(
    name: str, plan: Plan, found: Found, seconds: float, tell: Callable[[str], None]
) -> Report:
    case, outcome = found.case, found.outcome
    of_block = f"python -m tests.fuzz --seed {plan.seed} --campaign {name} --block {found.block}"
    if not case:
        return Report(name, outcome, of_block)
    line = repeat_line(name, case)
    if not seconds:
        return Report(name, outcome, line)
    tell(f"{name}: making a failure smaller ({outcome.kind}), at most {seconds:g} s")
    again = run_alone(name, case, plan.memory)
    if not again.failed:
        remark = f"It does not fail alone, so what ran before it counts. Alone:\n  {line}"
        return Report(name, outcome, of_block, remark)
    until = time.monotonic() + seconds
    small, why = minimised(load(name), name, case, again, until, plan.memory)
    return Report(name, why, repeat_line(name, small))


def summary(result: Result) -> list[str]:
    """The totals of a campaign, a line for each device."""
    if result.unavailable:
        return [f"{result.name}: no cases: {result.unavailable}"]
    counts = result.progress.counts
    lines = []
    for device in sorted({device for device, _ in counts}):
        by_status = {status: count for (one, status), count in counts.items() if one == device}
        total = sum(by_status.values())
        where = f" on {device}" if device else ""
        tail = [f"{by_status.pop('failed', 0)} failed", f"{by_status.pop('skipped', 0)} skipped"]
        by_status.pop("passed", None)
        tail += [f"{count} {status}" for status, count in sorted(by_status.items())]
        lines.append(f"{result.name}: {total} cases{where}, {', '.join(tail)}")
    return lines or [f"{result.name}: 0 cases"]
