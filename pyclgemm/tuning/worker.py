"""Measure configurations on one device: build, run, check against float64, then time in turn."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..api.gemm import plan
from ..api.plan import GemmPlan
from ..api.prepare import check_supported, describe_product
from ..codegen.config import Config
from ..codegen.source import KernelSource
from ..device.discovery import choose_device
from ..device.traits import DeviceTraits
from ..errors import ConfigError, KernelBuildError, LaunchError, PyclgemmError, UnsupportedError
from ..families.registry import violations
from ..measure.filled_queue import QueueBlocker, timed_product
from ..measure.operands import uniform
from ..measure.timing import CPU_PACE, GPU_PACE, Work, rotated_sets, time_in_turn
from ..measure.verify import Part, batch_parts, reference_parts
from ..problem.precision import Precision, resolve_precision, result_dtypes
from ..problem.shape import GemmShape
from ..runtime.build import CompilePool, adopt_binary
from ..selection.overrides import kernel_sources
from .process import FINE, Outcome, Trial, outcome_to_json, trial_from_json

#: Bytes of operands, of all shapes together, that are kept on the device.
_KEPT_BYTES = 12 << 30


class DeviceLostError(Exception):
    """The device no longer runs even what ran before: the process must start afresh."""


@dataclass
class _Product:
    """Operands of a shape, what their product must be, and plans.

    There are several equal `sets` of a, b and out where a GPU's cache would hold one.
    `built` has plans that are yet to be checked, or what went wrong as they were made.
    """

    sets: tuple[tuple[Any, Any, Any], ...]
    parts: tuple[Part, ...]
    plans: dict[Config, GemmPlan] = field(default_factory=dict)
    built: dict[Config, GemmPlan | Exception] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(int(array.base_data.size) for one in self.sets for array in one)


class TrialBench:
    """Runs trials for one element type and arithmetic.

    Parameters
    ----------
    context : pyopencl.Context
        Of the device.
    traits : DeviceTraits
        Its facts.
    dtype : str
        NumPy name of the element type of the operands; the result is of the type that it gives
        by itself.
    precision : Precision
        The arithmetic.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> from pyclgemm.device.traits import traits_of
    >>> from pyclgemm.problem.precision import resolve_precision
    >>> bench = TrialBench(
    ...     queue.context, traits_of(queue.device), "float32", resolve_precision(None, "float32")
    ... )
    >>> bench.run(Trial(GemmShape(8, 8, 8), CpuConfig(MR=4, NR=8, KC=128, VW=4))).status
    'fine'
    """

    def __init__(
        self, context: cl.Context, traits: DeviceTraits, dtype: str, precision: Precision
    ) -> None:
        self._context = context  # not every runtime keeps a queue's context alive
        # Not a profiling queue: that costs microseconds a kernel.
        self._queue = cl.CommandQueue(context)
        self._traits = traits
        self._dtype = dtype
        self._result_dtype = np.dtype(result_dtypes(dtype)[0])
        self._precision = precision
        self._pace = CPU_PACE if traits.type == "cpu" else GPU_PACE
        self._products: OrderedDict[GemmShape, _Product] = OrderedDict()
        self._blocker: QueueBlocker | None = None
        self._compilers = CompilePool(self._queue.device)
        self._compiled: set[KernelSource] = set()

    def run(self, trial: Trial) -> Outcome:
        """Build, check and time; every failure becomes an outcome with its reason.

        Raises
        ------
        DeviceLostError
            If the device is unusable after a failure.
        """
        if broken := violations(trial.config, self._dtype, self._traits):
            return Outcome("refused", reason="; ".join(broken))
        product = self._product(trial.shape)
        try:
            candidate = self._plan(product, trial.config)
        except (LaunchError, cl.Error, MemoryError) as error:
            self._require_device()
            return Outcome("unlaunchable", reason=_line(error))
        except (ConfigError, UnsupportedError) as error:
            return Outcome("refused", reason=_line(error))
        except KernelBuildError as error:
            return Outcome("unbuildable", reason=_line(error.log or error))
        except _WrongError as error:
            return Outcome("wrong", reason=str(error))
        rival = None
        if trial.rival is not None:
            try:
                rival = self._plan(product, trial.rival)
            except (PyclgemmError, _WrongError, cl.Error):  # not the candidate's fault
                self._require_device()
        seconds, rival_seconds = time_in_turn(
            self._repeat(product, candidate),
            None if rival is None else self._repeat(product, rival),
            self._pace,
        )
        return Outcome(FINE, seconds, rival_seconds)

    def prepare(self, trials: Sequence[Trial]) -> None:
        """Compile the candidates of some trials side by side, for `run` to find them ready.

        Nothing is timed meanwhile, and failures are kept for `run` to report.
        """
        work = [(self._product(trial.shape), trial.config) for trial in trials]
        sources = dict.fromkeys(
            source for product, config in work for source in self._sources(product, config)
        )
        device = self._queue.device
        for source, binary in self._compilers.binaries(
            [source for source in sources if source not in self._compiled]
        ).items():
            adopt_binary(self._context, device, source, binary)
        self._compiled |= sources.keys()
        for product, config in work:
            product.built[config] = self._build(product, config)

    def _sources(self, product: _Product, config: Config) -> list[KernelSource]:
        """The kernels of a product; none if it cannot be scheduled, as `_build` will tell."""
        a, b, out = product.sets[0]
        try:
            described = describe_product(
                a, b, None, out, trans_a=False, trans_b=False, epilogue=None,
                precision=self._precision.name, reads_product=True, batched=len(out.shape) == 3,
            )  # fmt: skip
            return kernel_sources(described, config, self._traits)
        except PyclgemmError:
            return []

    def _build(self, product: _Product, config: Config) -> GemmPlan | Exception:
        try:
            a, b, out = product.sets[0]
            return plan(self._queue, a, b, out=out, config=config, precision=self._precision.name)
        except (PyclgemmError, cl.Error, MemoryError) as error:
            return error

    def _repeat(self, product: _Product, ready: GemmPlan) -> Work:
        if self._blocker is None and self._traits.type != "cpu":
            self._blocker = QueueBlocker(self._queue)
        return timed_product(ready, product.sets, self._queue.finish, self._blocker)

    def _plan(self, product: _Product, config: Config) -> GemmPlan:
        """A plan whose result has been checked."""
        ready = product.plans.get(config)
        if ready is None:
            found = product.built.pop(config, None) or self._build(product, config)
            if isinstance(found, Exception):
                raise found
            ready = found
            a, b, out = product.sets[0]
            # All bits set is a NaN in every type: what is not written shows.
            cl.enqueue_fill_buffer(self._queue, out.base_data, np.uint8(255), 0, out.base_data.size)
            ready(a, b, out=out)
            self._queue.finish()
            for part in product.parts:
                if fault := part.fault(self._read(out, part)):
                    raise _WrongError(fault)
            if self._padding_written(out):
                raise _WrongError("elements between two rows of the result were written")
            product.plans[config] = ready
        return ready

    def _read(self, out: Any, part: Part) -> Any:
        """The rows or columns of a result that a part is about."""
        rows, columns = out.shape[-2:]
        first = (part.product or 0) * rows
        if len(part.indices) == (rows, columns)[part.axis]:
            return self._rectangle(out, first, 0, rows, columns)
        pieces = [
            self._rectangle(out, first + index, 0, 1, columns)
            if part.axis == 0
            else self._rectangle(out, first, index, rows, 1)
            for index in map(int, part.indices)
        ]
        return np.concatenate(pieces, part.axis)

    def _padding_written(self, out: Any) -> bool:
        """Whether anything between the rows of a result is no longer as it was filled."""
        *rows, columns = out.shape
        padding = out.strides[-2] // out.dtype.itemsize - columns
        if not padding:
            return False
        between = self._rectangle(out, 0, columns, math.prod(rows), padding)
        return bool((between.view(np.uint8) != 255).any())

    def _rectangle(self, out: Any, row: int, column: int, rows: int, columns: int) -> Any:
        """Copy a part of the buffer of a result, whose rows may be padded.

        Rows are counted through a batch: one product's follow those of the one before.
        """
        size, pitch = out.dtype.itemsize, out.strides[-2]
        got = np.empty((rows, columns), out.dtype)
        cl.enqueue_copy(
            self._queue, got, out.base_data,
            buffer_origin=(column * size, row), host_origin=(0, 0), region=(columns * size, rows),
            buffer_pitches=(pitch,), host_pitches=(columns * size,),
        )  # fmt: skip
        return got

    def _product(self, shape: GemmShape) -> _Product:
        product = self._products.pop(shape, None) or self._make_product(shape)
        self._products[shape] = product
        while sum(one.bytes for one in self._products.values()) > _KEPT_BYTES:
            if len(self._products) == 1:
                break
            self._products.popitem(last=False)
        return product

    def _make_product(self, shape: GemmShape) -> _Product:
        rng = np.random.default_rng(shape.m * shape.n + shape.k)
        stack = () if shape.batch is None else (shape.batch,)
        stored_a, stored_b = (
            uniform(rng, (*stack, *one), self._dtype) for one in (shape.stored_a, shape.stored_b)
        )
        turns = [letter == "T" for letter in shape.layout]
        a, b = (
            _transposed(x) if turn else x
            for x, turn in zip((stored_a, stored_b), turns, strict=True)
        )
        parts = (batch_parts if stack else reference_parts)(a, b, self._precision, rng)
        out = np.empty((*stack, shape.m, shape.n), self._result_dtype)
        set_bytes = sum(
            math.prod(x.shape[:-1]) * (x.shape[-1] + shape.padding) * x.itemsize
            for x in (stored_a, stored_b, out)
        )
        sets = []
        for _ in range(rotated_sets(set_bytes, self._queue.device)):
            on_device = [self._stored(x, shape.padding) for x in (stored_a, stored_b)]
            device_a, device_b = (
                _transposed(x) if turn else x for x, turn in zip(on_device, turns, strict=True)
            )
            sets.append((device_a, device_b, self._empty(out.shape, shape.padding)))
        return _Product(tuple(sets), parts)

    def _stored(self, matrix: Any, padding: int) -> Any:
        """Matrices on the device, with NaN or -1 between rows: not the kernel's to use."""
        if not padding:
            return cl_array.to_device(self._queue, matrix)
        *rows, columns = matrix.shape
        filled = np.full((*rows, (columns + padding) * matrix.itemsize), 255, np.uint8)
        padded = filled.view(matrix.dtype)
        padded[..., :columns] = matrix
        return cl_array.to_device(self._queue, padded)[..., :columns]

    def _empty(self, shape: tuple[int, ...], padding: int) -> Any:
        """Room for a result."""
        *rows, columns = shape
        whole = cl_array.empty(self._queue, (*rows, columns + padding), self._result_dtype)
        return whole[..., :columns]

    def _require_device(self) -> None:
        """Raise unless the device still works: one fault can spoil a whole context."""
        try:
            probe = cl_array.zeros(self._queue, 64, np.float32) + np.float32(1)
            if probe.get().sum() == 64:
                return
        except cl.Error:
            pass
        raise DeviceLostError


class _WrongError(Exception):
    """The result differs from the reference."""


def _transposed(array: Any) -> Any:
    """Each matrix of an array transposed."""
    *stack, rows, columns = range(len(array.shape))
    return array.transpose((*stack, columns, rows))


def _line(error: object) -> str:
    """The first line that says something, not too long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    return telling[:200]


# --------------------------------------------------------------------------------------
# The measuring process: ``python -m pyclgemm.tuning.worker``, started by `TrialProcess`.
#
# It reads one JSON object a line from its standard input, first what to measure, then trials,
# and answers each with a line. Only this process touches the device, so a kernel that hangs or
# faults costs the tuner one process. It ends soon after its input does, even while a kernel hangs.
# --------------------------------------------------------------------------------------

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
