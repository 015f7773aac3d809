"""Run campaigns within a budget of seconds or cases, and report what failed."""

import contextlib
import itertools
import json
import os
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import astuple
from pathlib import Path

import click
from rich.console import Console

from .campaign import BLOCK, Case, Skipped, load
from .worker import Died, Outcome, Worker, run_alone

#: Resident bytes from which a worker's process ends with its block: drivers keep their kernels.
_MAX_RESIDENT = 3 << 30
#: Failures after which a campaign stops.
_MAX_FAILURES = 60
#: Failures that are minimised; others are printed as they were found.
_MAX_MINIMISED = 5
#: Seconds between two messages of the progress: on a terminal, and elsewhere.
_STATUS_SECONDS, _LINE_SECONDS = 0.5, 30.0


class Journal:
    """What a run has done, as JSON lines, so that it can be resumed.

    The first line has the seed, each other one the outcome of a case, with the case if it failed.
    """

    def __init__(self, path, *, resume):
        path = path or Path(os.devnull)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+" if resume else "w+", encoding="utf-8", buffering=1)
        self._file.seek(0)
        before = self._file.read()
        self.entries = []  # of the run that is resumed
        for line in before.splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line that was cut off
                self.entries.append(json.loads(line))
        if before and not before.endswith("\n"):
            self._file.write("\n")

    def write(self, entry):
        self._file.write(json.dumps(entry) + "\n")


class CampaignRun:
    """One campaign: its outcomes so far, and a pool of workers that continues it.

    `plan` has the seed, the largest number of cases or None, the number of workers (jobs), the
    bytes of their address space (memory, 0 for no limit), and a block to run alone, or None.
    """

    def __init__(self, name, plan, journal):
        self.name, self._plan, self._journal = name, plan, journal
        self.reports: dict[tuple[str, str], str] = {}  # by the sort of failure
        self._counts = defaultdict[str, Counter[str]](Counter)  # of each status, by device
        #: Case, outcome and block of each failure; the case is {} if drawing cases failed.
        self._failures: list[tuple[Case, Outcome, int]] = []
        self._unavailable = ""  # why no case can run here
        self._is_over = False
        self._lock = threading.Lock()
        #: The next case of each block that was begun.
        self._positions: dict[int, int] = {}
        for entry in journal.entries:
            if entry.get("campaign") == name:
                self._add(entry)
                self._positions[entry["block"]] = entry["index"] + 1
        complete = {block for block, position in self._positions.items() if position == BLOCK}
        blocks = itertools.count() if plan.block is None else [plan.block]
        self._blocks = itertools.filterfalse(complete.__contains__, blocks)
        cases = sys.maxsize if plan.cases is None else max(0, plan.cases - self._total())
        self._budget = threading.Semaphore(cases)

    def run(self, seconds):
        """Keep all workers busy until the budget is spent."""
        self._until = time.monotonic() + seconds
        workers = [Worker(self.name, self._plan.memory) for _ in range(self._plan.jobs)]
        with ThreadPoolExecutor(len(workers)) as pool:
            futures = [pool.submit(self._work, worker) for worker in workers]
            try:
                self._show_progress(futures)
            finally:
                self._is_over = True
                while wait(futures, 0.1).not_done:
                    for worker in workers:
                        worker.close()
        for future in futures:
            future.result()

    def report(self, seconds):
        """Fill `reports`: one failure of each sort, minimised for as many seconds each."""
        for case, outcome, block in self._failures:
            sort = (outcome.kind, re.sub(r"[-\d.e+]+", "#", outcome.headline[:60]))
            if sort not in self.reports:
                limit = seconds if len(self.reports) < _MAX_MINIMISED else 0
                self.reports[sort] = self._reported(case, outcome, block, limit)

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
        """Count a case by its journal entry."""
        outcome = Outcome(*entry["outcome"])
        self._counts[entry["device"]][outcome.status] += 1
        if outcome.failed:
            self._failures.append((entry["case"], outcome, entry["block"]))

    def _show_progress(self, futures):
        """Show the number of cases until all workers are done."""
        with Console().status(self.name) as status:
            is_terminal = status.console.is_terminal
            while wait(futures, _STATUS_SECONDS if is_terminal else _LINE_SECONDS).not_done:
                left = max(0.0, self._until - time.monotonic())
                message = f"{self.name}: {self._total()} cases, {left:.0f} s left"
                status.update(message)
                if not is_terminal:
                    click.echo(message)

    def _work(self, worker):
        """Run block after block."""
        with contextlib.closing(worker):
            while (block := self._next_block()) is not None:
                try:
                    cases = worker.cases(self._plan.seed, block)
                except (Skipped, Died) as error:
                    if isinstance(error, Died):
                        self._record(block, 0, {}, error.outcome)
                    else:
                        self._unavailable = str(error)
                    self._is_over = True
                    return
                for index in range(self._positions.get(block, 0), BLOCK):
                    if self._is_spent() or not self._budget.acquire(blocking=False):
                        return
                    self._record(block, index, cases[index], worker.run(cases[index]))
                if worker.resident > _MAX_RESIDENT:
                    worker.close()

    def _next_block(self):
        with self._lock:
            return None if self._is_spent() else next(self._blocks, None)

    def _is_spent(self):
        has_enough = len(self._failures) >= _MAX_FAILURES
        return self._is_over or has_enough or time.monotonic() >= self._until

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
            alone = run_alone(name, case, memory)
            if not alone.failed:
                remark = "It does not fail alone: cases before it matter. The case and its block:"
                return report(name, outcome, remark, of_case(name, case), of_block)
            case, outcome = minimised(name, case, alone, seconds, memory)
        return report(name, outcome, of_case(name, case))


def minimised(where, case, outcome, seconds, memory):
    """The smallest case, of those tried, that fails alone in the same way, and its outcome."""
    until = time.monotonic() + seconds
    campaign = load(where)
    smallest, tried = case, [case]
    candidates = campaign.smaller(case)
    with contextlib.closing(Worker(where, memory)) as worker:
        while time.monotonic() < until and (candidate := next(candidates, None)) is not None:
            if candidate in tried:
                continue
            tried.append(candidate)
            result = worker.run(candidate)
            if result.failed and result.kind == outcome.kind:
                smallest = candidate
                candidates = campaign.smaller(candidate)
    again = run_alone(where, smallest, memory)
    return (smallest, again) if again.failed else (case, outcome)


def of_case(campaign, case):
    """Arguments that run one case, for the shell."""
    text = json.dumps({"campaign": campaign, **case}).replace("'", "\\u0027")
    return f"--case '{text}'"


def report(campaign, outcome, *repeats):
    """A failure as it is shown, with the lines that repeat it."""
    lines = [f"  python -m tests.fuzz {one}" if one.startswith("--") else one for one in repeats]
    return "\n".join([f"FAILED {campaign}: {outcome.kind}", outcome.message, *lines])
