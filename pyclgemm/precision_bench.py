"""Measure the error and the time of every algorithm for a product, on the device at hand."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from .ahead_timing import timed_product
from .api import plan
from .device import traits_of
from .errors import PyclgemmError
from .precision import resolve_precision
from .precision_data import SampledProduct, measure_error, random_operands, sample_product
from .precision_table import ALGORITHMS, Algorithm, Report, Row
from .queue_blocker import QueueBlocker
from .rotation import rotated_sets
from .timing import LONGEST_PAUSE, Turns, Work
from .verification import rounding_of

#: Seconds of a burst, and pauses after it in bursts: processors throttle sooner than GPUs.
_BURST_SECONDS = 0.01
_PAUSE_BURSTS_CPU, _PAUSE_BURSTS_GPU = 4.0, 2.0


@dataclass(frozen=True)
class _Operands:
    """Sets of A and B on the device, with the same numbers, and what their product must be."""

    sets: tuple[tuple[Any, Any], ...]
    expected: SampledProduct


class PrecisionBench:
    """Measures algorithms on one product; what is known so far can be asked for at any time.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In-order, without profiling, on a device that does nothing else.
    sizes : tuple of int
        m, n, k.
    data : str
        One of `pyclgemm.precision_data.DISTRIBUTIONS`.
    algorithms : sequence of Algorithm
        In the order in which they are reported.
    seed : int
        Of the numbers.

    Examples
    --------
    >>> from pyclgemm.precision_table import BASELINE
    >>> bench = PrecisionBench(queue, (32, 32, 32), algorithms=[BASELINE])
    >>> bench.check()
    >>> bench.time(rounds=1)
    >>> bench.report().rows[0].verdict
    'held'
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        sizes: tuple[int, int, int],
        data: str = "normal",
        algorithms: Sequence[Algorithm] = ALGORITHMS,
        seed: int = 0,
    ) -> None:
        self._queue = queue
        self._context = queue.context  # not every runtime keeps a queue's context alive
        self._sizes = sizes
        self._data = data
        self._seed = seed
        self._traits = traits_of(queue.device)
        self._blocker = None if self._traits.type == "cpu" else QueueBlocker(queue)
        self._rows = {algorithm: Row(algorithm) for algorithm in algorithms}
        self._works: dict[Algorithm, Work] = {}
        self._operands: dict[str, _Operands] = {}
        self._turns: Turns | None = None

    def check(self, report: Callable[[str], None] = lambda what: None) -> None:
        """Run each algorithm once and measure its error.

        Parameters
        ----------
        report : callable, optional
            Told the name of each algorithm when it is done.
        """
        for algorithm in self._rows:
            try:
                self._rows[algorithm] = self._checked(algorithm)
            except PyclgemmError as error:
                self._rows[algorithm] = Row(algorithm, reason=_line(error))
            except (cl.Error, MemoryError) as error:
                reason = f"it could not be run: {_line(error) or type(error).__name__}"
                self._rows[algorithm] = Row(algorithm, reason=reason)
            report(algorithm.precision)

    def time(self, rounds: int = 5, report: Callable[[], None] = lambda: None) -> None:
        """Time in turn the algorithms whose results are right.

        Parameters
        ----------
        rounds : int
            Bursts of each.
        report : callable, optional
            Called after each round.
        """
        if not self._works:
            return
        bursts = _PAUSE_BURSTS_CPU if self._traits.type == "cpu" else _PAUSE_BURSTS_GPU
        self._turns = Turns(
            tuple(self._works.values()),
            _BURST_SECONDS,
            lambda seconds: min(bursts * seconds, LONGEST_PAUSE),
        )
        for _ in range(rounds):
            self._turns.take()
            report()

    def report(self) -> Report:
        """What is known so far."""
        samples = self._turns.samples if self._turns else [[] for _ in self._works]
        medians = {
            algorithm: statistics.median(taken)
            for algorithm, taken in zip(self._works, samples, strict=True)
            if taken
        }
        rows = (
            replace(row, seconds=medians.get(algorithm)) for algorithm, row in self._rows.items()
        )
        return Report(self._traits.name, self._sizes, self._data, tuple(rows))

    def _checked(self, algorithm: Algorithm) -> Row:
        precision = resolve_precision(algorithm.precision, algorithm.operand)
        operands = self._operands_of(algorithm.operand)
        m, n, k = self._sizes
        kind = np.dtype(algorithm.result)
        outs = [cl_array.empty(self._queue, (m, n), kind) for _ in operands.sets]
        a, b = operands.sets[0]
        ready = plan(self._queue, a, b, out=outs[0], precision=algorithm.precision)
        # All bits set is a NaN in every floating type: what is not written shows.
        cl.enqueue_fill_buffer(
            self._queue, outs[0].base_data, np.uint8(255), 0, outs[0].base_data.size
        )
        ready(a, b, out=outs[0])
        error = measure_error(
            outs[0].get(self._queue),
            operands.expected,
            rounding_of(algorithm.operand, k, precision, algorithm.result),
        )
        if error.held:
            sets = [(a, b, out) for (a, b), out in zip(operands.sets, outs, strict=True)]
            self._works[algorithm] = timed_product(ready, sets, self._queue.finish, self._blocker)
        return Row(algorithm, ready.choice.path, str(ready.choice.config), error=error)

    def _operands_of(self, dtype: str) -> _Operands:
        if dtype not in self._operands:
            m, n, k = self._sizes
            rng = np.random.default_rng(self._seed)
            a, b = random_operands(rng, m, n, k, dtype, self._data)
            # The result may be twice as wide.
            count = rotated_sets(a.nbytes + b.nbytes + m * n * a.itemsize, self._queue.device)
            sets = tuple(
                (cl_array.to_device(self._queue, a), cl_array.to_device(self._queue, b))
                for _ in range(count)
            )
            self._operands[dtype] = _Operands(sets, sample_product(a, b, rng))
        return self._operands[dtype]


def _line(error: BaseException) -> str:
    """The first line of what an error says, and of what a compiler complains of."""
    first, *others = str(error).strip().splitlines() or [""]
    complaint = next((line.strip() for line in others if "error" in line.lower()), "")
    return f"{first}: {complaint}" if complaint else first
