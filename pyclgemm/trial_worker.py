"""The measuring process: ``python -m pyclgemm.trial_worker``, started by `TrialProcess`.

It reads one JSON object a line from its standard input, first what to measure, then trials,
and answers each with a line. Only this process touches the device, so a kernel that hangs or
faults costs the tuner one process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

import pyopencl as cl

from .discovery import choose_device
from .errors import PyclgemmError
from .precision import resolve_precision
from .prepare import check_supported
from .trial import Outcome, outcome_to_json, trial_from_json
from .trial_bench import DeviceLostError, TrialBench


def open_bench(request: dict[str, Any]) -> tuple[TrialBench, dict[str, Any]]:
    """Open the device that a first request names; also returns the facts about it."""
    found = choose_device(request["device"])
    traits = found.traits
    assert traits is not None  # choose_device gives working devices only
    precision = resolve_precision(request["precision"], request["dtype"])
    check_supported(request["dtype"], precision, traits)
    context = cl.Context([found.device])
    return TrialBench(context, traits, request["dtype"], precision), asdict(traits)


def serve(
    requests: TextIO,
    answer: Callable[[dict[str, Any]], None],
    open_bench: Callable[[dict[str, Any]], tuple[TrialBench, dict[str, Any]]] = open_bench,
) -> None:
    """Answer requests until there are no more, or until the device is lost."""
    try:
        bench, traits = open_bench(json.loads(requests.readline()))
    except PyclgemmError as error:
        answer({"error": type(error).__name__, "message": str(error)})
        return
    answer({"traits": traits})
    for line in requests:
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
    # Ctrl-C reaches every process of the terminal; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Compilers print to standard output: answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, lambda document: print(json.dumps(document), file=answers, flush=True))
    # Contexts are torn down in no order that all drivers survive.
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
