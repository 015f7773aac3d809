"""Run campaigns within a budget of seconds or cases, and report what failed."""

import contextlib
import json
import os
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import astuple, dataclass, field
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from .campaign import BLOCK, Case, Skipped, load
from .worker import Died, Outcome, Worker, run_alone

#: A worker that has held more bytes ends with its block: drivers keep what they have built.
_MOST_MEMORY = 3 << 30
#: Failures after which a campaign stops: there is enough to mend.
_MOST_FAILURES = 60
#: Failures that are made smaller, at most; others are printed as they were found.
_MOST_MINIMISED = 5
#: Seconds between two looks at the progress: for a bar on a terminal, and for a line elsewhere.
_BAR_SECONDS, _LINE_SECONDS = 0.5, 30.0


@dataclass(frozen=True)
class Plan:
    """What to run."""

    seed: int
    cases: int | None  # most cases of each campaign
    jobs: int  # worker processes
    memory: int  # bytes of address space of a worker; 0 for no limit
    block: int | None  # run this block of cases alone


@dataclass
class Result:
    """One campaign so far."""

    name: str
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by device and status
    #: The next case of each block that was begun; `BLOCK` where it is complete.
    positions: dict[int, int] = field(default_factory=dict)
    #: Case, outcome and block of each failure; the case is {} if drawing cases failed.
    failures: list[tuple[Case, Outcome, int]] = field(default_factory=list)
    unavailable: str = ""

    def add(self, entry):
        """Count a case, as its line of the journal has it."""
        outcome = Outcome(*entry["outcome"])
        self.counts[entry["device"], outcome.status] += 1
        self.positions[entry["block"]] = entry["index"] + 1
        if outcome.failed:
            self.failures.append((entry["case"], outcome, entry["block"]))

    def starts(self):
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

    def __init__(self, path, *, resume):
        path = path or Path(os.devnull)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") if resume and path.exists() else ""
        self.entries = []  # of the run that is resumed
        for line in before.splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # of a line that was cut off
                self.entries.append(json.loads(line))
        self._file = path.open("a" if before else "w", encoding="utf-8", buffering=1)
        if before and not before.endswith("\n"):
            self._file.write("\n")

    def write(self, entry):
        self._file.write(json.dumps(entry) + "\n")

    def close(self):
        self._file.close()


class CampaignRun:
    """One campaign on a pool of workers, for so many seconds."""

    def __init__(self, plan, seconds, result, journal, tell):
        self._plan, self._result, self._journal, self._tell = plan, result, journal, tell
        self._starts = result.starts() if plan.block is None else iter([(plan.block, 0)])
        self._until = time.monotonic() + seconds
        self._begun = result.counts.total()
        self._over = False
        self._lock = threading.Lock()

    def run(self):
        """Keep all workers busy until the budget is spent."""
        workers = [Worker(self._result.name, self._plan.memory) for _ in range(self._plan.jobs)]
        with ThreadPoolExecutor(len(workers)) as pool:
            futures = [pool.submit(self._work, worker) for worker in workers]
            try:
                self._watch(futures)
            finally:
                self._over = True
                while wait(futures, 0.1).not_done:
                    for worker in workers:
                        worker.close()
        for future in futures:
            future.result()

    def _watch(self, futures):
        """Show how far the campaign is until all workers are done."""
        columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task(self._result.name, total=self._until - time.monotonic())
            is_terminal = bar.console.is_terminal
            while wait(futures, _BAR_SECONDS if is_terminal else _LINE_SECONDS).not_done:
                left = max(0.0, self._until - time.monotonic())
                cases = f"{self._result.name}: {self._result.counts.total()} cases"
                if is_terminal:
                    completed = bar.tasks[task].total - left
                    bar.update(task, description=cases, completed=completed)
                else:
                    self._tell(f"{cases}, {left:.0f} s left")

    def _work(self, worker):
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
                    with self._lock:
                        if not self._over:
                            self._result.failures.append(({}, death.outcome, block))
                        self._over = True
                    return
                for index in range(first, BLOCK):
                    if not self._takes_one():
                        return
                    self._record(block, index, cases[index], worker.run(cases[index]))
                if worker.held > _MOST_MEMORY:
                    worker.close()

    def _next_block(self):
        with self._lock:
            return None if self._spent() else next(self._starts, None)

    def _takes_one(self):
        """Whether there is budget for one more case, which is then begun."""
        with self._lock:
            if self._spent():
                return False
            self._begun += 1
            return True

    def _spent(self):
        has_enough = self._plan.cases is not None and self._begun >= self._plan.cases
        has_failed = len(self._result.failures) >= _MOST_FAILURES
        return self._over or has_enough or has_failed or time.monotonic() >= self._until

    def _record(self, block, index, case, outcome):
        name = self._result.name
        entry = {"campaign": name, "block": block, "index": index, "outcome": astuple(outcome)}
        entry["device"] = str(case.get("device", ""))
        if outcome.failed:
            entry["case"] = case
        with self._lock:
            if self._over and outcome.failed:
                return  # its process was ended
            self._result.add(entry)
            self._journal.write(entry)
            if outcome.failed:
                self._tell(f"{name}: {outcome.kind}: {outcome.headline}")


def minimised(where, case, outcome, until, memory):
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


def repeat_line(campaign, case):
    """A line for the shell that runs one case."""
    text = json.dumps({"campaign": campaign, **case}).replace("'", "\\u0027")
    return f"python -m tests.fuzz --case '{text}'"


def report(campaign, outcome, repeat, remark=""):
    """A failure as it is shown, with the line that repeats it."""
    lines = [f"FAILED {campaign}: {outcome.kind}", outcome.message, remark, f"  {repeat}"]
    return "\n".join(filter(None, lines))


def reports_of(result, plan, seconds, tell):
    """The failures of a campaign, one of each sort made smaller, for as many seconds each."""
    reports = {}
    for case, outcome, block in result.failures:
        sort = (outcome.kind, re.sub(r"[-\d.e+]+", "#", outcome.headline[:60]))
        if sort not in reports:
            wants_smaller = len(reports) < _MOST_MINIMISED
            failure = case, outcome, block
            reports[sort] = _report(result.name, plan, failure, seconds * wants_smaller, tell)
    return list(reports.values())


def _report(name, plan, failure, seconds, tell):
    case, outcome, block = failure
    of_block = f"python -m tests.fuzz --seed {plan.seed} --campaign {name} --block {block}"
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


def summary(result):
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
