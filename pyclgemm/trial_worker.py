"""The measuring process: ``python -m pyclgemm.trial_worker``, started by `TrialProcess`.

It reads one JSON object a line from its standard input, first what to measure, then trials,
and answers each with a line. Only this process touches the device, so a kernel that hangs or
faults costs the tuner one process. It ends soon after its input does, even while a kernel hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import pyopencl as cl

from .discovery import choose_device
from .errors import PyclgemmError
from .precision import resolve_precision
from .prepare import check_supported
from .trial import Outcome, outcome_to_json, trial_from_json
from .trial_bench import DeviceLostError, TrialBench

#: Seconds that the current trial gets to end, once the process that asked for it is gone.
_GRACE = 2.0


def open_bench(request: dict[str, Any]) -> tuple[TrialBench, dict[str, Any]]:
    """Open the device that a first request names; also returns the facts about it."""
    found = choose_device(request["device"])
    traits = found.traits
    assert traits is not None  # choose_device gives working devices only
    precision = resolve_precision(request["precision"], request["dtype"])
    check_supported(request["dtype"], precision, traits)
    context = cl.Context([found.device])
    return TrialBench(context, traits, request["dtype"], precision), asdict(traits)


class Requests:
    """The lines of standard input, read ahead, so that its end is noticed at any time."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines.get, "")

    def _read(self) -> None:
        # An own file: the interpreter's would be locked by this thread as the process ends.
        with open(os.dup(0), encoding="utf-8") as file:
            for line in file:
                self._lines.put(line)
        self._lines.put("")
        time.sleep(_GRACE)
        os._exit(1)


def serve(
    requests: Iterable[str],
    answer: Callable[[dict[str, Any]], None],
    open_bench: Callable[[dict[str, Any]], tuple[TrialBench, dict[str, Any]]] = open_bench,
) -> None:
    """Answer requests until there are no more, or until the device is lost."""
    lines = iter(requests)
    try:
        first = next(lines, None)
        if first is None:
            return
        bench, traits = open_bench(json.loads(first))
    except PyclgemmError as error:
        answer({"error": type(error).__name__, "message": str(error)})
        return
    answer({"traits": traits})
    for line in lines:
        request = json.loads(line)
        if "build" in request:
            trials = [trial_from_json(trial) for trial in request["build"]]
            bench.prepare(trials)
            answer({"built": len(trials)})
            continue
        try:
            outcome = bench.run(trial_from_json(request))
        except DeviceLostError:
            answer(outcome_to_json(Outcome("crash", reason="the kernel left the device unusable")))
            return
        answer(outcome_to_json(outcome))


def main() -> None:
    """Serve standard input and output."""
    # Ctrl-C reaches every process of the terminal, and what ends a service every process of it;
    # the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            # Not ignored: that would pass to compiling processes, which their pool ends by SIGTERM.
            signal.signal(getattr(signal, name), lambda number, frame: None)
    # Compilers print to standard output: answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    # The parent is gone, and may have been killed, where there is nobody to read an answer.
    with contextlib.suppress(BrokenPipeError):
        serve(Requests(), lambda document: print(json.dumps(document), file=answers, flush=True))
    # Contexts are torn down in no order that all drivers survive.
    os._exit(0)


if __name__ == "__main__":
    main()
