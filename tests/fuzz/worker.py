"""Processes that draw and run cases, so that a crash or a hang ends no more than a process.

`Worker` is the parent's side; `work` is what the process does.
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

#: Limit for importing the library, opening its devices, and drawing a block, on a busy machine.
_START_SECONDS = 120.0
#: How many characters of a dead process's output are kept, from its end.
_OUTPUT_TAIL = 1500
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
    """A worker process ended, or had to be ended: the kind of failure and a message."""

    @property
    def outcome(self) -> Outcome:
        return Outcome("failed", *self.args)


class Worker:
    """Draws and runs cases in a process, and replaces the process after each failure."""

    def __init__(self, where: str, memory: int = 0) -> None:
        self._where, self._memory = where, memory
        self._process = None
        self.resident = 0  # bytes of the process after the last case

    def cases(self, seed: int, block: int) -> list[Case]:
        """Draw the cases of a block: `Skipped` if none can run here, `Died` if drawing fails."""
        return self._ask((seed, block), _START_SECONDS)

    def run(self, case: Case) -> Outcome:
        """Run one case."""
        try:
            outcome, self.resident = self._ask(case)
        except Died as death:
            outcome = death.outcome
        if outcome.failed:
            self.close()
        return outcome

    def close(self) -> None:
        """End the process and its children; the next case gets a new process."""
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
        self._seconds_per_case = self._answer(_START_SECONDS)

    def _ask(self, request, seconds=None):
        """Send a request and return the answer, within the time of a case by default."""
        if self._process is None:
            self._start()
        with contextlib.suppress(OSError):  # a dead process: `_answer` raises
            self._pipe.send(request)
        return self._answer(seconds or self._seconds_per_case)

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
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _died(self, kind, message):
        self.close()
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return Died(kind, f"{message}; it printed:\n{text[-_OUTPUT_TAIL:]}" if text else message)


def run_alone(where: str, case: Case, memory: int = 0) -> Outcome:
    """Run a case in a fresh process."""
    with contextlib.closing(Worker(where, memory)) as worker:
        return worker.run(case)


def resident_bytes() -> int:
    """Bytes of this process in memory, or the most there ever were if the system hides these."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _drawn(campaign, where, seed, block):
    """The cases of a block as JSON returns them, or the exception that says why there are none."""
    rng = random.Random(f"{seed} {where} {block}")
    try:
        return json.loads(json.dumps(list(itertools.islice(campaign.cases(rng), BLOCK))))
    except Skipped as reason:
        return reason


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


def work(where: str, memory: str, descriptor: str) -> None:
    """Send the seconds per case, then answer the parent's requests until it closes the pipe."""
    os.set_inheritable(int(descriptor), False)
    pipe = Connection(int(descriptor))
    faulthandler.enable(sys.__stderr__)
    try:
        if int(memory):
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
        campaign = load(where)
        pipe.send(campaign.seconds_per_case)
        while True:
            match pipe.recv():
                case seed, block:
                    pipe.send(_drawn(campaign, where, seed, block))
                case case:
                    pipe.send((_outcome_of(campaign, case), resident_bytes()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        pipe.send(Died("broken campaign", traceback.format_exc(-_FRAMES)))
    # Drivers crash at the end of a process that still has work.
    os._exit(0)
