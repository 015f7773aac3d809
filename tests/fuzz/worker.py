"""Processes that draw and run cases, so that a crash or a hang ends no more than a process.

`Worker` is the parent's side, `work` what the process does.
"""

import contextlib
import faulthandler
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from .campaign import BLOCK, Case, Skipped, load

#: Importing the library and opening its devices may take so long on a busy machine; so may the
#: drawing of a block of cases.
_START_SECONDS = 120.0
#: Characters at the end of what a process printed before it died.
_LAST_WORDS = 1500
#: Frames of an unexpected exception that a report shows.
_FRAMES = 6


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    status: str  # "passed" or another word of the campaign, "skipped", or "failed"
    kind: str = ""  # of a failure: the exception's class, "crash" with the signal, or "hang"
    message: str = ""  # what is wrong, or why the case was skipped

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    @property
    def headline(self) -> str:
        """What is wrong in one line."""
        lines = self.message.splitlines() or [""]
        return lines[-1 if lines[0].startswith("Traceback") else 0][:200]


class Died(Exception):
    """A worker process ended, or had to be ended; the outcome of what it did."""

    def __init__(self, kind: str, message: str) -> None:
        self.outcome = Outcome("failed", kind, message)


class Worker:
    """Draws and runs cases in a process, after each failure in a fresh one: it may be spoilt."""

    def __init__(self, where: str, memory: int = 0) -> None:
        self._where, self._memory = where, memory
        self._process = None
        self.held = 0  # bytes that the process held after the last case

    def cases(self, seed: int, block: int) -> list[Case]:
        """The cases of a block; `Skipped` if there are none here, `Died` if drawing them fails."""
        kind, cases = self._ask((seed, block), _START_SECONDS)
        if kind == "unavailable":
            raise Skipped(cases)
        return cases

    def run(self, case: Case) -> Outcome:
        """Run one case."""
        try:
            _, outcome, self.held = self._ask(case, None)
        except Died as death:
            return death.outcome
        if outcome.failed:
            self.close()
        return outcome

    def close(self) -> None:
        """End the process and what it has started; the next case has a new one."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self):
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - as long as the process
        self._pipe, theirs = multiprocessing.Pipe()
        arguments = (self._where, str(self._memory), str(theirs.fileno()))
        start = "import sys; from tests.fuzz.worker import work; work(*sys.argv[1:])"
        # One thread a worker: the workers share the cores.
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        # A session of its own: its children end with it, and Ctrl-C reaches the parent alone.
        self._process = subprocess.Popen(
            [sys.executable, "-c", start, *arguments], stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, start_new_session=True, pass_fds=[theirs.fileno()],
            env=dict.fromkeys(threads, "1") | os.environ,
        )  # fmt: skip
        theirs.close()
        self._seconds = self._answer(_START_SECONDS)[1]

    def _ask(self, request, seconds):
        """The answer within so many seconds; None for those of a case."""
        if self._process is None:
            self._start()
        with contextlib.suppress(OSError):  # of a dead process; the answer shows it
            self._pipe.send(request)
        return self._answer(seconds or self._seconds)

    def _answer(self, seconds):
        process = self._process
        try:
            if not self._pipe.poll(seconds):
                raise self._died("hang", f"no end after {seconds:g} s")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            code = process.wait()
            kind = f"crash {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
            raise self._died(kind, "the process ended") from None
        if answer[0] == "broken":
            raise self._died("broken campaign", answer[1])
        return answer

    def _died(self, kind, message):
        self.close()
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return Died(kind, f"{message}; it printed:\n{text[-_LAST_WORDS:]}" if text else message)


def run_alone(where: str, case: Case, memory: int = 0) -> Outcome:
    """Run a case in a fresh process."""
    with contextlib.closing(Worker(where, memory)) as worker:
        return worker.run(case)


def resident_bytes() -> int:
    """Bytes of this process in memory; where the system does not say, the most there ever were."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _outcome_of(campaign, case):
    """Run a case here; every exception becomes an outcome."""
    try:
        return Outcome(campaign.run(case) or "passed")
    except Skipped as reason:
        return Outcome("skipped", message=str(reason))
    except AssertionError as failure:
        return Outcome("failed", "Failure", str(failure) or traceback.format_exc(-_FRAMES))
    except Exception as error:
        return Outcome("failed", type(error).__name__, traceback.format_exc(-_FRAMES).strip())


def _answers(pipe, where):
    """Say how long a case may take; then answer seeds with blocks, and cases with outcomes."""
    campaign = load(where)
    yield "ready", campaign.seconds_per_case
    while True:
        request = pipe.recv()
        if isinstance(request, dict):
            yield "outcome", _outcome_of(campaign, request), resident_bytes()
            continue
        seed, block = request
        rng = random.Random(f"{seed} {where} {block}")
        try:
            cases = list(itertools.islice(campaign.cases(rng), BLOCK))
            yield "cases", json.loads(json.dumps(cases))  # as they are repeated
        except Skipped as reason:
            yield "unavailable", str(reason)


def work(where: str, memory: str, descriptor: str) -> None:
    """Serve the parent at the other end of a pipe, until it closes that."""
    os.set_inheritable(int(descriptor), False)
    pipe = Connection(int(descriptor))
    faulthandler.enable(sys.__stderr__)
    try:
        if int(memory):
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
        for answer in _answers(pipe, where):
            pipe.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        pipe.send(("broken", traceback.format_exc(-_FRAMES)))
    # Drivers crash at the end of a process that still has work; nobody asked for that here.
    os._exit(0)
