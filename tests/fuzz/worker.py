"""A process that runs cases and reports each before and after, so that its death has a cause."""

import faulthandler
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

from .campaign import Campaign, Case, Failure, Skipped, block_cases, load
from .resident import resident_bytes

#: Frames of an unexpected exception that a report shows.
_FRAMES = 6


@dataclass(frozen=True)
class Setup:
    """What a worker process is given at its start."""

    where: str  # name or ``module:Class`` of the campaign
    log: str  # the file for what the process prints, such as the last words of a driver
    memory: int = 0  # limit of the address space in bytes; 0 sets none


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


def _outcome_of(campaign: Campaign, case: Case) -> Outcome:
    """Run a case here; every exception becomes an outcome."""
    try:
        return Outcome(campaign.run(case) or "passed")
    except Skipped as reason:
        return Outcome("skipped", message=str(reason))
    except Failure as failure:
        return Outcome("failed", "Failure", str(failure))
    except Exception as error:
        frames = traceback.format_exception(type(error), error, error.__traceback__, -_FRAMES)
        return Outcome("failed", type(error).__name__, "".join(frames).strip())


def work(connection: Connection, setup: Setup) -> None:
    """Serve blocks and single cases until the connection closes.

    Requests are ("block", seed, block, first, until) and ("case", case). Answers are ("ready",
    seconds per case), ("unavailable", reason), ("broken", traceback), ("case", index, case),
    ("outcome", index, outcome, device), and ("done", index of the next case, bytes held) at the end
    of a block or past the time `until`.
    """
    _prepare(setup)
    try:
        campaign = load(setup.where)
    except Exception:
        connection.send(("broken", traceback.format_exc(limit=-_FRAMES)))
        return
    connection.send(("ready", campaign.seconds_per_case))
    try:
        while True:
            request = connection.recv()
            if request[0] == "case":
                _serve_case(connection, campaign, 0, request[1])
                connection.send(("done", 1, resident_bytes()))
            else:
                connection.send(_served_block(connection, campaign, *request[1:]))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    # Drivers crash at the end of a process that still has work; nobody asked for that here.
    os._exit(0)


def _served_block(
    connection: Connection, campaign: Campaign, seed: int, block: int, first: int, until: float
) -> tuple[str | int, ...]:
    """Run a block; the last answer."""
    index = first
    try:
        for case in block_cases(campaign, seed, block, first):
            if time.time() >= until:
                break
            _serve_case(connection, campaign, index, case)
            index += 1
    except Skipped as reason:
        return "unavailable", str(reason)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception:
        return "broken", traceback.format_exc(limit=-_FRAMES)
    return "done", index, resident_bytes()


def _serve_case(connection: Connection, campaign: Campaign, index: int, case: Case) -> None:
    connection.send(("case", index, case))
    connection.send(("outcome", index, _outcome_of(campaign, case), str(case.get("device", ""))))


def _prepare(setup: Setup) -> None:
    """Separate the process from the terminal, and keep what it prints."""
    if hasattr(os, "setsid"):
        os.setsid()  # its children end with it, and Ctrl-C reaches the parent alone
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(setup.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(sys.__stderr__)
    # One thread a worker: the workers share the cores.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if setup.memory:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (setup.memory, setup.memory))
