"""The parent's side: worker processes, each watched for crashes and hangs."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .campaign import Case
from .worker import Outcome, Setup, work

#: Importing the library and opening its devices may take so long on a busy machine.
_START_SECONDS = 120.0
#: Characters at the end of what a process printed before it died.
_LAST_WORDS = 1500

_spawn = multiprocessing.get_context("spawn")


class Worker:
    """A worker process, and what it is doing."""

    def __init__(self, where: str, memory: int = 0) -> None:
        handle, log = tempfile.mkstemp(prefix="fuzz-", suffix=".log")
        os.close(handle)
        self._log = Path(log)
        self.connection, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=work, args=(theirs, Setup(where, log, memory)))
        self._process.start()
        theirs.close()
        self._limit = self._case_limit = _START_SECONDS
        self._since = time.monotonic()
        self._ended = False
        self.block = -1  # the block that it works on
        self.index = 0  # the case of it that is next, or runs
        self.case: Case | None = None  # the case that runs
        self.last: Case = {}  # the case that ran last, or runs

    def ask(self, *request: Any) -> None:
        """Send a request; a dead worker shows when its answer is awaited."""
        self._since = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send(request)

    def receive(self) -> tuple[Any, ...]:
        """The message that `connection` has ready; EOFError if the process has ended."""
        try:
            message: tuple[Any, ...] = self.connection.recv()
        except OSError as error:
            raise EOFError from error
        self._since = time.monotonic()
        self._limit = _START_SECONDS
        if message[0] == "ready":
            self._case_limit = message[1]
        elif message[0] == "case":
            self.index, self.case = message[1:]
            self.last = message[2]
            self._limit = self._case_limit
        elif message[0] == "outcome":
            self.index, self.case = message[1] + 1, None
        return message

    @property
    def overdue(self) -> bool:
        """Whether it has been silent for longer than a case may take."""
        return time.monotonic() - self._since > self._limit

    def hung(self) -> Outcome:
        """End the process; the outcome of the case that ran too long."""
        self._end()
        return Outcome("failed", "hang", f"no end after {self._limit:g} s" + self._last_words())

    def crashed(self) -> Outcome:
        """The outcome of the case during which the process ended."""
        self._process.join(10)
        code = self._process.exitcode
        self._end()
        died = code is not None and code < 0
        kind = f"crash {signal.Signals(-code).name}" if died else f"exit {code}"
        return Outcome("failed", kind, "the process ended" + self._last_words())

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            if text := self._log.read_text(errors="replace").strip():
                return f"; it printed:\n{text[-_LAST_WORDS:]}"
        return ""

    def _end(self) -> None:
        """Kill the process and what it has started."""
        if self._ended:
            return
        self._ended = True
        if self._process.pid and hasattr(os, "killpg"):
            # Until it leads a group of its own, there is no group of that number.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.is_alive():
            self._process.kill()
        self._process.join(10)
        self.connection.close()

    def close(self) -> None:
        """End the process, and remove what it printed."""
        self._end()
        self._log.unlink(missing_ok=True)


def run_alone(where: str, case: Case, memory: int = 0) -> Outcome:
    """Run a case in a fresh process."""
    with contextlib.closing(Worker(where, memory)) as worker:
        return run_in(worker, case)


def run_in(worker: Worker, case: Case) -> Outcome:
    """Run a case in a worker; after a failure the worker is not to be used again."""
    worker.ask("case", case)
    result: Outcome | None = None
    while True:
        while not worker.connection.poll(0.2):
            if worker.overdue:
                return worker.hung()
        try:
            message = worker.receive()
        except EOFError:
            return worker.crashed()
        if message[0] == "outcome":
            result = message[2]
        elif message[0] == "broken":
            return Outcome("failed", "broken campaign", message[1])
        elif message[0] == "done" and result is not None:
            return result


def ready_connections(workers: list[Worker], seconds: float) -> list[Connection]:
    """The connections of workers that have something to say."""
    found = multiprocessing.connection.wait([one.connection for one in workers], seconds)
    return [one for one in found if isinstance(one, Connection)]
