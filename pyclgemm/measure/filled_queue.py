"""Time short products on a queue that the host has filled ahead of the device.

A call from Python costs the host at least 8 us, more than a small product takes on a GPU: a plain
loop would time the host. So a kernel of known duration holds the queue while calls are enqueued
behind it. The calls take the time from its start to their end, minus the time of the kernel alone.
The clock cannot start when the kernel ends, as the host sometimes wakes up after the calls.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyopencl as cl

from ..host.kernels import new_kernel
from ..runtime.build import compiled_program

#: A chain of dependent steps: no compiler shortens it, and other work hardly delays it.
_SOURCE = """
__kernel void hold(__global float *state, const int steps)
{
    float value = state[0];
    for (int step = 0; step < steps; ++step)
        value = value * 0.75f + 0.25f;
    state[0] = value;
}
"""
#: The speed is that of the fastest of `_LAUNCHES` launches with at least `_MEASURED` seconds and
#: `_TIMES_A_WAIT` times the time of a single step, which includes the wait for other processes.
#: They have at most `_LONGEST_MEASURED` seconds, or `_MOST_STEPS`.
_MEASURED, _LONGEST_MEASURED, _MOST_STEPS = 0.004, 0.1, 2**30
_TIMES_A_WAIT, _LAUNCHES = 4, 3
#: The host's clock adds 35 us to a burst, and on a busy host 200 us, for its start and the final
#: wait. Products of more seconds hide that by themselves.
LONGEST_PRODUCT = 2e-3
#: Calls and launches in the queue: drivers make the host wait from 1000 launches on.
_LEAST_CALLS, _MOST_CALLS, _MOST_LAUNCHES = 8, 200, 500
#: Seconds for which the queue is held at first, for each call and in addition; and at most.
_HOLD_CALL, _SPARE_HOLD, _LONGEST_HOLD = 14e-6, 0.3e-3, 0.04
#: Tries to take a sample, and to find the number of calls.
_TRIES, _LAYOUTS = 12, 8
#: Times of a call in bursts of different length differ by less than this factor.
_AGREEING = 1.5
#: Least and most times of the blocker alone whose median counts: a single time that the machine had
#: interrupted would make the calls seem too fast.
_LEAST_ALONE, _MOST_ALONE = 3, 5


@dataclass(frozen=True)
class Clock:
    """The source of time; tests replace it."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    worked: Callable[[], float] = time.process_time  # seconds of all threads of the process


class Blocker(Protocol):
    """Holds a queue, so that calls wait in it."""

    def hold(self, seconds: float) -> Callable[[], bool]:
        """Start to hold the queue for about `seconds`; the result tells whether it still does."""


class Contender:
    """One way to compute something; the base of everything that a bench times."""

    name: str  # key of its timing
    blocker: Blocker | None = None  # holds the queue of its calls; None for the host's clock
    launches: int = 3  # the most kernels of a call
    step: int = 1  # `enqueue` rounds calls up to a multiple
    unrest: float = 0.0  # seconds for which its idle threads keep cores busy after a call

    def enqueue(self, calls: int) -> None:
        """Start calls, without waiting if the library allows it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for all of them."""


class QueueNotFilledError(RuntimeError):
    """The host did not enqueue calls faster than the device ran them."""


class BlockerVariesError(QueueNotFilledError):
    """The blocker's time varies by more than the calls take, or by a large part of that."""


class QueueBlocker:
    """Holds an in-order OpenCL queue by a kernel, whose speed it measures on the idle queue."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._state = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4)
        program = compiled_program(queue.context, queue.device, _SOURCE)
        self._kernel = new_kernel(program, "hold")
        cl.enqueue_fill_buffer(queue, self._state, np.float32(0.5), 0, 4)
        self._steps_per_second = self._measure()

    def _measure(self) -> float:
        self._seconds(1)  # some runtimes compile at the first launch
        wait = max(self._seconds(1) for _ in range(_LAUNCHES))
        wanted = max(_MEASURED, min(_LONGEST_MEASURED, _TIMES_A_WAIT * wait))
        steps = 1024
        while True:
            elapsed = min(self._seconds(steps) for _ in range(_LAUNCHES))
            if elapsed >= wanted or steps >= _MOST_STEPS:
                return steps / elapsed
            steps *= 2

    def _seconds(self, steps: int) -> float:
        start = time.perf_counter()
        self._launch(steps)
        self._queue.finish()
        return time.perf_counter() - start

    def _launch(self, steps: int) -> cl.Event:
        self._kernel.set_args(self._state, np.int32(steps))
        return cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), (1,))

    def hold(self, seconds: float) -> Callable[[], bool]:
        """Start to hold the queue for about `seconds`; the result tells whether it still does."""
        event = self._launch(min(_MOST_STEPS, max(1, round(seconds * self._steps_per_second))))
        self._queue.flush()
        complete = cl.command_execution_status.COMPLETE
        return lambda: bool(event.command_execution_status != complete)


def blocker_of(queue: cl.CommandQueue) -> QueueBlocker | None:
    """A blocker for a queue; None on a CPU, where the host's time is the device's."""
    return None if queue.device.type & cl.device_type.CPU else QueueBlocker(queue)


@dataclass
class Burst:
    """Calls of a contender, timed by the host's clock or behind a blocker."""

    contender: Contender
    calls: int
    clock: Clock
    blocker: Blocker | None = None
    takes: int = 1  # behind the blocker, a sample is the median of these
    samples: list[float] = field(default_factory=list)  # for the caller

    def __post_init__(self) -> None:
        self._hold = self.calls * _HOLD_CALL + _SPARE_HOLD
        #: The latest seconds of the blocker alone.
        self._alone: deque[float] = deque(maxlen=_MOST_ALONE)

    def sample(self) -> float:
        """Seconds of a call; raise an error if the blocker is too short or varies too much."""
        if self.blocker is None:
            return self._timed(self.calls)[0] / self.calls
        behind: list[float] = []
        for _ in range(_TRIES * self.takes):
            for _ in range(max(1, _LEAST_ALONE - len(self._alone))):
                self._alone.append(self._timed(0)[0])
            alone = statistics.median_low(self._alone)
            done, enqueued = self._timed(self.calls)
            if enqueued is None or enqueued >= alone:  # the device waited for the host
                if 2 * self._hold > _LONGEST_HOLD:
                    raise QueueNotFilledError(
                        f"{self.calls} calls of {self.contender.name} were not enqueued within "
                        f"{1e3 * self._hold:.3g} ms"
                    )
                self._hold *= 2
                self._alone.clear()
                behind.clear()
                continue
            # Fast takes count, too: without them the calls would seem slower.
            behind.append(done)
            worked = statistics.median(behind[-self.takes :]) - alone
            # The time of the calls must exceed what the blocker's varies by, on a busy host
            # milliseconds. Otherwise there is another try.
            if len(behind) >= self.takes and worked > _spread(self._alone):
                return worked / self.calls
        raise BlockerVariesError(
            f"{self.calls} calls of {self.contender.name} take less than the blocker's time varies"
        )

    def _timed(self, calls: int) -> tuple[float, float | None]:
        """Seconds until all is done, and until all is enqueued; None if the blocker ended first."""
        start = self.clock.now()
        is_holding = self.blocker.hold(self._hold) if self.blocker else lambda: True
        self.contender.enqueue(calls)
        enqueued = self.clock.now() - start
        was_ahead = is_holding()
        self.contender.finish()
        return self.clock.now() - start, enqueued if was_ahead else None


def _spread(times: Collection[float]) -> float:
    """By how much times differ, without the fastest and slowest quarter."""
    ordered = sorted(times)
    return ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]


def _check_length(burst: Burst) -> None:
    """Raise `BlockerVariesError` unless calls take as long in a burst of another length.

    If the blocker is slower alone than with calls behind it, fewer calls seem faster.
    """
    calls, step = burst.calls, burst.contender.step
    other = replace(burst, calls=calls // 2 // step * step or 2 * calls, samples=[])
    ratio = burst.sample() / other.sample()
    if not 1 / _AGREEING < ratio < _AGREEING:
        raise BlockerVariesError(
            f"a call of {burst.contender.name} takes {ratio:.3g} times as long in bursts of "
            f"{calls} as in those of {other.calls}"
        )


def fill_queue(
    contender: Contender, wanted_calls: int, blocker: Blocker, clock: Clock, takes: int = 1
) -> Burst | None:
    """Find a burst that the host enqueues ahead of the device; None if there is none."""
    most = min(_MOST_CALLS, _MOST_LAUNCHES // contender.launches)
    calls = min(wanted_calls, most)
    least = min(calls, _LEAST_CALLS)
    for _ in range(_LAYOUTS):
        burst = Burst(contender, calls, clock, blocker, takes)
        try:
            _check_length(burst)
            return burst
        except BlockerVariesError:  # the machine may have been interrupted during calibration
            calls = min(2 * calls, most)
        except QueueNotFilledError:
            calls //= 2
        if calls < least:
            break
    return None
