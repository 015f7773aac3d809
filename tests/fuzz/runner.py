"""Run campaigns within a budget of seconds or cases, and report what failed."""

import contextlib
import json
import os
import re
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import astuple
from pathlib import Path

import click
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


class Journal:
    """What a run has done, as JSON lines: enough to go on after it was ended.

    The first line has the seed, each other one a case: how it ended, and what it was if it failed.
    """

    def __init__(self, path, *, resume):
        path = path or Path(os.devnull)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+" if resume else "w+", encoding="utf-8", buffering=1)
        self._file.seek(0)
        before = self._file.read()
        self.entries = []  # of the run that is resumed
        for line in before.splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # of a line that was cut off
                self.entries.append(json.loads(line))
        if before and not before.endswith("\n"):
            self._file.write("\n")

    def write(self, entry):
        self._file.write(json.dumps(entry) + "\n")


class CampaignRun:
    """One campaign: what came of it so far, and a pool of workers that goes on with it.

    `plan` says what to run: the seed, the most cases, the number of workers (jobs) and the bytes
    of their address space (memory, 0 for no limit), and a block to run alone, or None.
    """

    def __init__(self, name, plan, journal):
        self.name, self._plan, self._journal = name, plan, journal
        self.reports: dict[tuple[str, str], str] = {}  # by the sort of failure
        self._counts = defaultdict[str, Counter[str]](Counter)  # of each status, by device
        #: Case, outcome and block of each failure; the case is {} if drawing cases failed.
        self._failures: list[tuple[Case, Outcome, int]] = []
        #: The next case of each block that was begun; `BLOCK` where it is complete.
        self._positions: dict[int, int] = {}
        self._unavailable = ""
        self._is_over = False
        self._lock = threading.Lock()
        for entry in journal.entries:
            if entry.get("campaign") == name:
                self._add(entry)
        self._begun = self._total()

    def run(self, seconds):
        """Keep all workers busy until the budget is spent."""
        self._until = time.monotonic() + seconds
        self._starts = self._first_cases()
        workers = [Worker(self.name, self._plan.memory) for _ in range(self._plan.jobs)]
        with ThreadPoolExecutor(len(workers)) as pool:
            futures = [pool.submit(self._work, worker) for worker in workers]
            try:
                self._watch(futures)
            finally:
                self._is_over = True
                while wait(futures, 0.1).not_done:
                    for worker in workers:
                        worker.close()
        for future in futures:
            future.result()

    def report(self, seconds):
        """Fill `reports`: one failure of each sort, made smaller for as many seconds each."""
        for failure in self._failures:
            outcome = failure[1]
            sort = (outcome.kind, re.sub(r"[-\d.e+]+", "#", outcome.headline[:60]))
            if sort not in self.reports:
                wants_smaller = len(self.reports) < _MOST_MINIMISED
                self.reports[sort] = self._reported(*failure, seconds * wants_smaller)

    def summary(self):
        """The totals, a line for each device."""
        if self._unavailable:
            return [f"{self.name}: no cases: {self._unavailable}"]
        lines = []
        for device, counts in sorted(self._counts.items()):
            by_status = {"failed": 0, "skipped": 0} | dict(sorted(counts.items()))
            by_status.pop("passed", None)
            tail = ", ".join(f"{count} {status}" for status, count in by_status.items())
            where = f" on {device}" if device else ""
            lines.append(f"{self.name}: {counts.total()} cases{where}, {tail}")
        return lines or [f"{self.name}: 0 cases"]

    def _total(self):
        return sum(counts.total() for counts in self._counts.values())

    def _add(self, entry):
        """Count a case, as its line of the journal has it."""
        outcome = Outcome(*entry["outcome"])
        self._counts[entry["device"]][outcome.status] += 1
        self._positions[entry["block"]] = entry["index"] + 1
        if outcome.failed:
            self._failures.append((entry["case"], outcome, entry["block"]))

    def _first_cases(self):
        """Blocks to work on with the first case of each: those left unfinished, then new ones."""
        block = self._plan.block or 0
        while True:
            first = self._positions.get(block, 0)
            if first < BLOCK:
                yield block, first
            block += 1
            if self._plan.block is not None:
                return

    def _watch(self, futures):
        """Show how far the campaign is until all workers are done."""
        columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        begin = time.monotonic()
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task(self.name, total=self._until - begin)
            is_terminal = bar.console.is_terminal
            while wait(futures, _BAR_SECONDS if is_terminal else _LINE_SECONDS).not_done:
                now = time.monotonic()
                cases = f"{self.name}: {self._total()} cases"
                bar.update(task, description=cases, completed=now - begin)
                if not is_terminal:
                    click.echo(f"{cases}, {max(0.0, self._until - now):.0f} s left")

    def _work(self, worker):
        """Run block after block."""
        with contextlib.closing(worker):
            while (start := self._next_block()) is not None:
                block, first = start
                try:
                    cases = worker.cases(self._plan.seed, block)
                except Skipped as reason:
                    self._unavailable = str(reason)
                    self._is_over = True
                    return
                except Died as death:
                    self._record(block, 0, {}, death.outcome)
                    self._is_over = True
                    return
                for index in range(first, BLOCK):
                    if not self._takes_one():
                        return
                    self._record(block, index, cases[index], worker.run(cases[index]))
                if worker.held > _MOST_MEMORY:
                    worker.close()

    def _next_block(self):
        with self._lock:
            return None if self._is_spent() else next(self._starts, None)

    def _takes_one(self):
        """Whether there is budget for one more case, which is then begun."""
        with self._lock:
            is_spent = self._is_spent()
            self._begun += not is_spent
            return not is_spent

    def _is_spent(self):
        has_enough = self._plan.cases is not None and self._begun >= self._plan.cases
        has_failed = len(self._failures) >= _MOST_FAILURES
        return self._is_over or has_enough or has_failed or time.monotonic() >= self._until

    def _record(self, block, index, case, outcome):
        entry = {"campaign": self.name, "block": block, "index": index, "outcome": astuple(outcome)}
        entry["device"] = str(case.get("device", ""))
        if outcome.failed:
            entry["case"] = case
        with self._lock:
            if self._is_over and outcome.failed:
                return  # its process was ended
            self._add(entry)
            self._journal.write(entry)
            if outcome.failed:
                click.echo(f"{self.name}: {outcome.kind}: {outcome.headline}")

    def _reported(self, case, outcome, block, seconds):
        """A failure as it is shown, with the line that repeats it."""
        name, memory = self.name, self._plan.memory
        of_block = f"--seed {self._plan.seed} --campaign {name} --block {block}"
        if not case:
            return report(name, outcome, of_block)
        if seconds:
            click.echo(f"{name}: making a failure smaller ({outcome.kind}), at most {seconds:g} s")
            outcome_alone = run_alone(name, case, memory)
            if not outcome_alone.failed:
                remark = "It does not fail alone, so what ran before it counts. Alone:"
                return report(name, outcome, remark, of_case(name, case), of_block)
            until = time.monotonic() + seconds
            case, outcome = minimised(name, case, outcome_alone, until, memory)
        return report(name, outcome, of_case(name, case))


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
    again = run_alone(where, found, memory)
    return (found, again) if again.failed else (case, outcome)


def of_case(campaign, case):
    """Arguments that run one case, for the shell."""
    text = json.dumps({"campaign": campaign, **case}).replace("'", "\\u0027")
    return f"--case '{text}'"


def report(campaign, outcome, *repeats):
    """A failure as it is shown, with the lines that repeat it."""
    lines = [f"  python -m tests.fuzz {one}" if one.startswith("--") else one for one in repeats]
    return "\n".join([f"FAILED {campaign}: {outcome.kind}", outcome.message, *lines])
