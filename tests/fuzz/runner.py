"""Run campaigns within a budget of seconds or cases, and report what failed."""

import contextlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from .campaign import BLOCK, Case, Skipped, load
from .worker import Died, Outcome, Worker, run_alone

#: A worker that has held more bytes ends with its block: drivers keep what they have built.
_MOST_MEMORY = 3 << 30
#: Failures after which a campaign stops: there is enough to mend.
_MOST_FAILURES = 60
#: Failures that are made smaller, at most; others are printed as they were found.
_MOST_MINIMISED = 5
#: Seconds between two lines about the progress.
_TELL_SECONDS = 30.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to run."""

    seed: int
    seconds: float  # of all campaigns together, without making failures smaller
    cases: int | None = None  # most cases of each campaign
    jobs: int = 1  # worker processes
    memory: int = 0  # bytes of address space of a worker; 0 for no limit
    block: int | None = None  # run this block of cases alone


@dataclass(frozen=True)
class Found:
    """A case that failed, how, and the block that it was drawn in; {} if it is none's fault."""

    case: Case
    outcome: Outcome
    block: int


@dataclass
class Result:
    """One campaign so far."""

    name: str
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by device and status
    #: The next case of each block that was begun; `BLOCK` where it is complete.
    positions: dict[int, int] = field(default_factory=dict)
    failures: list[Found] = field(default_factory=list)
    unavailable: str = ""

    def add(self, block: int, index: int, device: str, outcome: Outcome, case: Case) -> None:
        """Count a case."""
        self.counts[device, outcome.status] += 1
        self.positions[block] = index + 1
        if outcome.failed:
            self.failures.append(Found(case, outcome, block))

    def starts(self) -> Iterator[tuple[int, int]]:
        """Blocks to work on with the first case of each: those left unfinished, then new ones."""
        block = 0
        while True:
            first = self.positions.get(block, 0)
            if first < BLOCK:
                yield block, first
            block += 1


class Journal:
    """What a run has done, as JSON lines: enough to go on after it was ended.

    The first line has the seed, each other one a case: how it ended, and what it was if it failed.
    """

    def __init__(self, path: Path | None, seed: int, *, append: bool) -> None:
        self._file = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_text(encoding="utf-8") if append and path.exists() else ""
            self._file = path.open("a" if before else "w", encoding="utf-8")
            if not before:
                self.write({"seed": seed})
            elif not before.endswith("\n"):  # a line that was cut off
                self._file.write("\n")

    def write(self, entry: Case) -> None:
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_journal(path: Path, results: dict[str, Result]) -> int | None:
    """Add what a journal has to the results of its campaigns; the seed, if it has one."""
    seed = None
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off
        seed = entry.get("seed", seed)
        if entry.get("campaign") in results:
            outcome = Outcome(*entry["outcome"])
            place = entry["block"], entry["index"], entry["device"]
            results[entry["campaign"]].add(*place, outcome, entry.get("case", {}))
    return seed


class CampaignRun:
    """One campaign on a pool of workers, for `seconds`."""

    def __init__(
        self, plan: Plan, seconds: float, result: Result, journal: Journal, tell: Tell
    ) -> None:
        self._plan, self._result, self._journal, self._tell = plan, result, journal, tell
        self._starts = result.starts() if plan.block is None else iter([(plan.block, 0)])
        self._until = time.monotonic() + seconds
        self._begun = result.counts.total()
        self._over = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Keep all workers busy until the budget is spent."""
        workers = [Worker(self._result.name, self._plan.memory) for _ in range(self._plan.jobs)]
        with ThreadPoolExecutor(len(workers)) as pool:
            futures = [pool.submit(self._work, worker) for worker in workers]
            try:
                while wait(futures, _TELL_SECONDS).not_done:
                    left = max(0.0, self._until - time.monotonic())
                    total = self._result.counts.total()
                    self._tell(f"{self._result.name}: {total} cases, {left:.0f} s left")
            finally:
                self._over = True
                while wait(futures, 0.1).not_done:
                    for worker in workers:
                        worker.close()
        for future in futures:
            future.result()

    def _work(self, worker: Worker) -> None:
        """Run block after block."""
        with contextlib.closing(worker):
            while (start := self._next_block()) is not None:
                block, first = start
                try:
                    cases = worker.cases(self._plan.seed, block)
                except Skipped as reason:
                    self._result.unavailable = str(reason)
                    self._over = True
                    return
                except Died as death:
                    self._fail_to_draw(Found({}, death.outcome, block))
                    return
                for index in range(first, BLOCK):
                    if not self._takes_one():
                        return
                    outcome = worker.run(cases[index])
                    self._record(block, index, cases[index], outcome)
                if worker.held > _MOST_MEMORY:
                    worker.close()

    def _next_block(self) -> tuple[int, int] | None:
        with self._lock:
            return None if self._spent() else next(self._starts, None)

    def _takes_one(self) -> bool:
        """Whether there is budget for one more case, which is then begun."""
        with self._lock:
            if self._spent():
                return False
            self._begun += 1
            return True

    def _spent(self) -> bool:
        has_enough = self._plan.cases is not None and self._begun >= self._plan.cases
        has_failed = len(self._result.failures) >= _MOST_FAILURES
        return self._over or has_enough or has_failed or time.monotonic() >= self._until

    def _record(self, block: int, index: int, case: Case, outcome: Outcome) -> None:
        device = str(case.get("device", ""))
        with self._lock:
            if self._over and outcome.failed:
                return  # its process was ended
            self._result.add(block, index, device, outcome, case)
            entry = {"campaign": self._result.name, "block": block, "index": index}
            entry |= {"device": device, "outcome": (outcome.status, outcome.kind, outcome.message)}
            self._journal.write(entry | {"case": case} if outcome.failed else entry)
            if outcome.failed:
                self._tell(f"{self._result.name}: {outcome.kind}: {outcome.headline}")

    def _fail_to_draw(self, found: Found) -> None:
        with self._lock:
            if not self._over:
                self._over = True
                self._result.failures.append(found)


def minimised(
    where: str, case: Case, outcome: Outcome, until: float, memory: int
) -> tuple[Case, Outcome]:
    """The smallest case found until then that fails in the same way, and its outcome.

    It is run once more alone; the case itself is returned if that does not fail.
    """
    campaign = load(where)
    found = case
    tried = [case]
    candidates = campaign.smaller(found)
    with contextlib.closing(Worker(where, memory)) as worker:
        while time.monotonic() < until and (candidate := next(candidates, None)) is not None:
            if candidate in tried:
                continue
            tried.append(candidate)
            result = worker.run(candidate)
            if result.failed and result.kind == outcome.kind:
                found = candidate
                candidates = campaign.smaller(found)
    if found is not case:
        again = run_alone(where, found, memory)
        if again.failed:
            return found, again
    return case, outcome


def repeat_line(campaign: str, case: Case) -> str:
    """A line for the shell that runs one case."""
    text = json.dumps({"campaign": campaign, **case}).replace("'", "\\u0027")
    return f"python -m tests.fuzz --case '{text}'"


def report(campaign: str, outcome: Outcome, repeat: str, remark: str = "") -> str:
    """A failure as it is shown, with the line that repeats it."""
    lines = [f"FAILED {campaign}: {outcome.kind}", outcome.message, remark, f"  {repeat}"]
    return "\n".join(filter(None, lines))


def reports_of(result: Result, plan: Plan, seconds: float, tell: Tell) -> list[str]:
    """The failures of a campaign, one of each sort made smaller, for as many seconds each."""
    reports: dict[tuple[str, str], str] = {}
    for found in result.failures:
        outcome = found.outcome
        sort = (outcome.kind, re.sub(r"[-\d.e+]+", "#", outcome.headline[:60]))
        if sort not in reports:
            wants_smaller = len(reports) < _MOST_MINIMISED
            reports[sort] = _report(result.name, plan, found, seconds * wants_smaller, tell)
    return list(reports.values())


def _report(name: str, plan: Plan, found: Found, seconds: float, tell: Tell) -> str:
    case, outcome = found.case, found.outcome
    of_block = f"python -m tests.fuzz --seed {plan.seed} --campaign {name} --block {found.block}"
    if not case:
        return report(name, outcome, of_block)
    line = repeat_line(name, case)
    if not seconds:
        return report(name, outcome, line)
    tell(f"{name}: making a failure smaller ({outcome.kind}), at most {seconds:g} s")
    again = run_alone(name, case, plan.memory)
    if not again.failed:
        remark = f"It does not fail alone, so what ran before it counts. Alone:\n  {line}"
        return report(name, outcome, of_block, remark)
    small, why = minimised(name, case, again, time.monotonic() + seconds, plan.memory)
    return report(name, why, repeat_line(name, small))


def summary(result: Result) -> list[str]:
    """The totals of a campaign, a line for each device."""
    if result.unavailable:
        return [f"{result.name}: no cases: {result.unavailable}"]
    lines = []
    for device in sorted({device for device, _ in result.counts}):
        of_device = {status: n for (one, status), n in result.counts.items() if one == device}
        by_status = {"failed": 0, "skipped": 0} | dict(sorted(of_device.items()))
        total = sum(by_status.values())
        by_status.pop("passed", None)
        where = f" on {device}" if device else ""
        tail = [f"{count} {status}" for status, count in by_status.items()]
        lines.append(f"{result.name}: {total} cases{where}, {', '.join(tail)}")
    return lines or [f"{result.name}: 0 cases"]
