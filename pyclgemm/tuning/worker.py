"""Measure configurations on one device: build, run, check against float64, then time in turn.

``python -m pyclgemm.tuning.worker``, started by `TrialProcess`, is the measuring process. It reads
one JSON object per line from its standard input: first the device and the type, then trials. It
answers each with one line. Only this process uses the device, so a kernel that hangs or faults
costs the tuner one process. The process ends soon after its input, even while a kernel hangs.
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
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..analysis.operands import OperandStore, WrongError, plan_contender
from ..api.prepare import check_supported
from ..codegen.source import KernelSource
from ..device.discovery import choose_device
from ..device.probe import summary
from ..device.traits import DeviceTraits
from ..errors import ConfigError, KernelBuildError, LaunchError, PyclgemmError, UnsupportedError
from ..families.registry import violations
from ..measure.bench import HOST, QUEUE_FILLED, Bench, Pace, Timing, pace_for
from ..measure.filled_queue import LONGEST_PRODUCT, Blocker, Clock, Contender, blocker_of
from ..problem.precision import Precision, resolve_precision
from ..runtime.compile_pool import CompilePool
from ..selection.overrides import kernel_sources
from .process import FINE, Outcome, Trial, trial_from_json

#: By number of rounds: the factor over the rival's time that ends the trial of a candidate.
_SLOWER = {1: 1.3, 3: 1.06}
#: Seconds after which contenders are timed again on a busy host.
_PAUSES = (0.1, 0.3, 1.0)


class DeviceLostError(Exception):
    """The device runs nothing any more: the process must start again."""


class TrialBench:
    """Runs trials for one element type and arithmetic."""

    def __init__(
        self, context: cl.Context, traits: DeviceTraits, dtype: str, precision: Precision
    ) -> None:
        self._context = context  # not every runtime keeps a queue's context alive
        # Profiling would cost microseconds per kernel.
        self._queue = cl.CommandQueue(context)
        self._traits = traits
        self._dtype = dtype
        self._precision = precision
        self._store = OperandStore(self._queue)
        self._blocker: Blocker | None = None
        self._fills_queues = False  # whether the host has filled a queue ahead of the device
        self._compilers = CompilePool(self._queue.device)
        self._started: dict[Trial, list[KernelSource]] = {}  # the kernels of prepared trials

    def run(self, trial: Trial) -> Outcome:
        """Build, check and time; a failure is an outcome, or `DeviceLostError` if it is fatal."""
        if broken := violations(trial.config, self._dtype, self._traits):
            return Outcome("refused", reason="; ".join(broken))
        try:
            operands = self._store.get(trial.shape, self._dtype)
            alone = replace(trial, rival=None)
            self._compilers.adopt(self._context, self._started.pop(alone, ()))
            candidate = operands.checked(trial.config, self._precision)
        except (LaunchError, cl.Error, MemoryError) as error:
            self._require_device()
            return Outcome("unlaunchable", reason=summary(error))
        except (ConfigError, UnsupportedError) as error:
            return Outcome("refused", reason=summary(error))
        except KernelBuildError as error:
            return Outcome("unbuildable", reason=summary(error.log or error))
        except WrongError as error:
            return Outcome("wrong", reason=str(error))
        contenders = {"candidate": candidate}
        if trial.rival is not None:
            try:
                contenders["rival"] = operands.checked(trial.rival, self._precision)
            except (PyclgemmError, WrongError, cl.Error):  # then the candidate is timed alone
                self._require_device()
        if self._blocker is None:
            self._blocker = blocker_of(self._queue)
        timings = timed(
            [
                plan_contender(name, operands, plan, self._blocker)
                for name, plan in contenders.items()
            ],
            pace_for("tuner", self._traits.type),
            fills_queues=self._fills_queues,
        )
        self._fills_queues |= any(one.clock_name == QUEUE_FILLED for one in timings.values())
        rival = timings.get("rival")
        return Outcome(FINE, timings["candidate"].median, rival.median if rival else None)

    def prepare(self, trials: Sequence[Trial]) -> None:
        """Start to build the candidates of some trials in parallel; `run` waits for its own.

        Compilers that start are waited for here: the time limit of a trial does not allow for it.
        """
        for trial in trials:
            with contextlib.suppress(PyclgemmError):  # building the plan will raise it again
                product = trial.shape.product(self._dtype, self._precision.name)
                sources = kernel_sources(product, trial.config, self._traits)
                self._compilers.start(sources)
                self._started[trial] = sources
        with contextlib.suppress(BrokenProcessPool):  # then `adopt` closes the pool
            self._compilers.wait_until_open()

    def _require_device(self) -> None:
        """Raise `DeviceLostError` unless the device works: one fault can spoil a whole context."""
        try:
            probe = cl_array.zeros(self._queue, 64, np.float32) + np.float32(1)
            if probe.get().sum() == 64:
                return
        except cl.Error:
            pass
        raise DeviceLostError


def timed(
    contenders: Sequence[Contender], pace: Pace, *, fills_queues: bool, clock: Clock | None = None
) -> dict[str, Timing]:
    """Time contenders in turn, short ones without the host's time if the host `fills_queues`.

    A host that is busy, as with compiling the next kernels, may fail to fill a queue once. Its time
    is then most of a small product's: contenders are timed again after a pause.
    """
    clock = clock or Clock()
    for pause in (*_PAUSES, 0.0):
        timings = Bench(pace, *contenders, clock=clock).run(enough=clearly_slower)
        if not (fills_queues and any(map(_is_of_host, timings.values()))):
            break
        clock.sleep(pause)
    return timings


def _is_of_host(timing: Timing) -> bool:
    """Whether a timing of a short product includes the host's time."""
    return timing.clock_name == HOST and timing.median < LONGEST_PRODUCT


def clearly_slower(timings: Mapping[str, Timing]) -> bool:
    """Whether a candidate is so much slower than its rival that more rounds are useless."""
    rival = timings.get("rival")
    if rival is None:
        return False
    limit = _SLOWER.get(len(rival.samples), math.inf)
    return timings["candidate"].median > limit * rival.median


#: Seconds for the current trial to end after the end of the input.
_GRACE = 2.0


def open_bench(request: dict[str, Any]) -> tuple[TrialBench, dict[str, Any]]:
    """Open the device of the first request; also returns its traits as JSON."""
    chosen = choose_device(request["device"])
    traits = chosen.traits
    assert traits is not None  # choose_device returns working devices only
    precision = resolve_precision(request["precision"], request["dtype"])
    check_supported(request["dtype"], precision, traits)
    context = cl.Context([chosen.device])
    return TrialBench(context, traits, request["dtype"], precision), asdict(traits)


def read_requests() -> Iterator[str]:
    """The lines of standard input; a thread reads them, to notice the end at any time."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        # A second file: this thread would hold the lock of sys.stdin as the process ends.
        with open(os.dup(0), encoding="utf-8") as file:
            for line in file:
                lines.put(line)
        lines.put("")
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, "")


def serve(answer: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until the input ends or the device is lost."""
    lines = read_requests()
    first = next(lines, None)
    if first is None:
        return
    try:
        bench, traits = open_bench(json.loads(first))
        _ignore_signals()  # again: the device's runtime may have set handlers (LLVM does)
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


def _ignore_signals() -> None:
    """Ignore the signals that a terminal or a service sends to all processes of a command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            # Not SIG_IGN, which compiling processes inherit: their pool ends them by SIGTERM.
            signal.signal(getattr(signal, name), lambda number, frame: None)


def main() -> None:
    """Serve standard input and output."""
    _ignore_signals()
    # Compilers print to standard output, so answers use a separate descriptor.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    # The pipe is broken if the parent was killed.
    with contextlib.suppress(BrokenPipeError):
        serve(lambda document: print(json.dumps(document), file=answers, flush=True))
    # Without cleaning up: some drivers crash while contexts are destroyed.
    os._exit(0)


if __name__ == "__main__":
    main()
