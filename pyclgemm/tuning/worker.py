"""Measure configurations on one device: build, run, check against float64, then time in turn.

``python -m pyclgemm.tuning.worker``, started by `TrialProcess`, is the measuring process. It
reads one JSON object a line from its standard input, first what to measure, then trials, and
answers each with a line. Only this process touches the device, so a kernel that hangs or faults
costs the tuner one process. It ends soon after its input does, even while a kernel hangs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..analysis.operands import Operands, OperandStore, WrongError, plan_contender
from ..api.plan import GemmPlan
from ..api.prepare import check_supported
from ..codegen.source import KernelSource
from ..device.discovery import choose_device
from ..device.traits import DeviceTraits
from ..errors import ConfigError, KernelBuildError, LaunchError, PyclgemmError, UnsupportedError
from ..families.registry import violations
from ..measure.bench import Bench, Timing, pace_for
from ..measure.filled_queue import Blocker, blocker_of
from ..problem.precision import Precision, resolve_precision
from ..runtime.build import CompilePool
from ..selection.overrides import kernel_sources
from .process import FINE, Outcome, Trial, trial_from_json

#: By rounds: a candidate that is slower than its rival by this factor after them is dropped.
_SLOWER = {1: 1.3, 3: 1.06}


class DeviceLostError(Exception):
    """The device no longer runs even what ran before: the process must start afresh."""


class TrialBench:
    """Runs trials for one element type and arithmetic."""

    def __init__(
        self, context: cl.Context, traits: DeviceTraits, dtype: str, precision: Precision
    ) -> None:
        self._context = context  # not every runtime keeps a queue's context alive
        # Not a profiling queue: that costs microseconds a kernel.
        self._queue = cl.CommandQueue(context)
        self._traits = traits
        self._dtype = dtype
        self._precision = precision
        self._store = OperandStore(self._queue)
        self._blocker: Blocker | None = None
        self._compilers = CompilePool(self._queue.device)

    def run(self, trial: Trial) -> Outcome:
        """Build, check and time; every failure becomes an outcome with its reason.

        A failure after which the device is unusable raises `DeviceLostError`.
        """
        if broken := violations(trial.config, self._dtype, self._traits):
            return Outcome("refused", reason="; ".join(broken))
        try:
            operands = self._store.get(trial.shape, self._dtype)
            self._compilers.adopt(self._context, self._sources(trial))
            candidate = operands.checked(trial.config, self._precision)
        except (LaunchError, cl.Error, MemoryError) as error:
            self._require_device()
            return Outcome("unlaunchable", reason=_line(error))
        except (ConfigError, UnsupportedError) as error:
            return Outcome("refused", reason=_line(error))
        except KernelBuildError as error:
            return Outcome("unbuildable", reason=_line(error.log or error))
        except WrongError as error:
            return Outcome("wrong", reason=str(error))
        contenders = {"candidate": candidate}
        if trial.rival is not None:
            try:
                contenders["rival"] = operands.checked(trial.rival, self._precision)
            except (PyclgemmError, WrongError, cl.Error):  # not the candidate's fault
                self._require_device()
        return self._time(operands, contenders)

    def prepare(self, trials: Sequence[Trial]) -> None:
        """Begin to compile the candidates of some trials side by side; `run` waits for its own."""
        self._compilers.start(source for trial in trials for source in self._sources(trial))

    def _time(self, operands: Operands, contenders: Mapping[str, GemmPlan]) -> Outcome:
        """Time a candidate in turn with its rival: few rounds where it is far slower."""
        if self._blocker is None:
            self._blocker = blocker_of(self._queue)
        bench = Bench(pace_for("tuner", self._traits.type))
        for name, ready in contenders.items():
            bench.add(plan_contender(name, operands, ready, self._blocker))
        timings = bench.run(enough=clearly_slower)
        rival = timings.get("rival")
        return Outcome(FINE, timings["candidate"].median, rival.median if rival else None)

    def _sources(self, trial: Trial) -> list[KernelSource]:
        """The kernels of a candidate; none if it cannot be scheduled, as building it will tell."""
        try:
            product = trial.shape.product(self._dtype, self._precision.name)
            return kernel_sources(product, trial.config, self._traits)
        except PyclgemmError:
            return []

    def _require_device(self) -> None:
        """Raise unless the device still works: one fault can spoil a whole context."""
        try:
            probe = cl_array.zeros(self._queue, 64, np.float32) + np.float32(1)
            if probe.get().sum() == 64:
                return
        except cl.Error:
            pass
        raise DeviceLostError


def clearly_slower(timings: Mapping[str, Timing]) -> bool:
    """Whether a candidate is so much slower than its rival that more rounds would not help."""
    rival = timings.get("rival")
    if rival is None:
        return False
    limit = _SLOWER.get(len(rival.samples), math.inf)
    return timings["candidate"].median > limit * rival.median


def _line(error: object) -> str:
    """The first line that says something, not too long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    return telling[:200]


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


def serve(answer: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until there are no more, or until the device is lost."""
    lines = iter(Requests())
    first = next(lines, None)
    if first is None:
        return
    try:
        bench, traits = open_bench(json.loads(first))
        _leave_the_end_to_the_parent()  # its runtime may have set handlers (LLVM does)
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
            answer(asdict(Outcome("crash", reason="the kernel left the device unusable")))
            return
        answer(asdict(outcome))


def _leave_the_end_to_the_parent() -> None:
    """Let no signal end this process that reaches all processes of a terminal or a service."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            # Not ignored: that would pass to compiling processes, which their pool ends by SIGTERM.
            signal.signal(getattr(signal, name), lambda number, frame: None)


def main() -> None:
    """Serve standard input and output."""
    _leave_the_end_to_the_parent()
    # Compilers print to standard output: answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    # The parent is gone, and may have been killed, where there is nobody to read an answer.
    with contextlib.suppress(BrokenPipeError):
        serve(lambda document: print(json.dumps(document), file=answers, flush=True))
    # Contexts are torn down in no order that all drivers survive.
    os._exit(0)


if __name__ == "__main__":
    main()
