"""Time short products on a queue that the host has filled ahead of the device.

One call from Python costs the host 8 us and more, longer than a small product takes on a GPU: a
plain loop would time the host, and all configurations would seem alike. So a kernel of known
length holds the queue while calls are enqueued behind it. What counts is the time from its start
to the end of the calls, minus the time of the same kernel alone. To wait for the kernel and start
the clock then would not do: the host wakes late at times, when the calls have long run.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyopencl as cl

from ..host.caches import new_kernel
from ..runtime.build import compiled_program

#: One work-item whose steps each need the one before: no compiler shortens it, and its
#: time hardly depends on what else the device did.
_SOURCE = """
__kernel void hold(__global float *state, const int steps)
{
    float value = state[0];
    for (int step = 0; step < steps; ++step)
        value = value * 0.75f + 0.25f;
    state[0] = value;
}
"""
#: The speed is read from a launch of at least `_MEASURED` seconds that takes `_TIMES_A_WAIT` times
#: as long as one of a single step, which also waits where other processes use the device. No wait
#: makes it longer than `_LONGEST_MEASURED`, or `_MOST_STEPS`. Of `_LAUNCHES` the fastest counts.
_MEASURED, _LONGEST_MEASURED, _MOST_STEPS = 0.004, 0.1, 2**30
_TIMES_A_WAIT, _LAUNCHES = 4, 3

#: Products longer than this, in seconds, hide the host's time by themselves.
LONGEST_PRODUCT = 200e-6

#: Calls and launches on their way at a time: drivers make the host wait from 1000 launches on.
_LEAST_CALLS, _MOST_CALLS, _MOST_LAUNCHES = 8, 200, 500

#: Seconds for which the queue is held: at first for each call and beyond, and at most.
_HOLD_CALL, _SPARE_HOLD, _LONGEST_HOLD = 14e-6, 0.3e-3, 0.04

#: Measurements that are tried for a sample, and numbers of calls for a burst.
_TRIES, _LAYOUTS = 12, 8

#: Times of the blocker alone whose median counts, at least and at most: one that the machine held
#: up would make the calls seem faster than they are.
_LEAST_ALONE, _MOST_ALONE = 3, 5


@dataclass(frozen=True)
class Clock:
    """Where time comes from; tests give another."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


class Blocker(Protocol):
    """What holds a queue."""

    def hold(self, seconds: float) -> Callable[[], bool]:
        """Start to hold the queue for about `seconds`; the result says if it still does."""


class Contender:
    """One way to compute something; the base of all that a bench times."""

    name: str  # key of its timing
    blocker: Blocker | None = None  # holds the queue of its calls; None: the host's clock counts
    launches: int = 3  # kernels that a call enqueues, at most
    step: int = 1  # `enqueue` rounds calls up to a multiple
    unrest: float = 0.0  # seconds for which its idle threads still keep cores busy after a call

    def enqueue(self, calls: int) -> None:
        """Start calls, without waiting where the library allows."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for all of them."""


class QueueNotFilledError(RuntimeError):
    """The host did not get ahead of the device."""


class BlockerVariesError(QueueNotFilledError):
    """The calls take less than the blocker's own time varies."""


class QueueBlocker:
    """Hold an in-order OpenCL queue, which is idle: it is used to find out the kernel's speed."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._state = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4)
        program = compiled_program(queue.context, queue.device, _SOURCE)
        self._kernel = new_kernel(program, "hold")
        cl.enqueue_fill_buffer(queue, self._state, np.float32(0.5), 0, 4)
        self._steps_per_second = self._measure()

    def _measure(self) -> float:
        self._seconds(1)  # some runtimes make machine code at the first launch
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
        """Start to hold the queue for about `seconds`; the result says if it still does."""
        event = self._launch(min(_MOST_STEPS, max(1, round(seconds * self._steps_per_second))))
        self._queue.flush()
        complete = cl.command_execution_status.COMPLETE
        return lambda: bool(event.command_execution_status != complete)


def blocker_of(queue: cl.CommandQueue) -> QueueBlocker | None:
    """A blocker for a queue; None on a CPU, where the host's time is the device's."""
    return None if queue.device.type & cl.device_type.CPU else QueueBlocker(queue)


@dataclass
class Burst:
    """Calls of a contender, timed by the host, or behind a kernel that holds the queue."""

    contender: Contender
    calls: int
    clock: Clock
    blocker: Blocker | None = None
    takes: int = 1  # that make up a sample behind the blocker
    samples: list[float] = field(default_factory=list)  # that its owner keeps

    def __post_init__(self) -> None:
        self._hold = self.calls * _HOLD_CALL + _SPARE_HOLD
        self._alone: deque[float] = deque(maxlen=_MOST_ALONE)

    @property
    def clock_name(self) -> str:
        """What tells the time."""
        return "queue filled" if self.blocker else "host"

    def sample(self) -> float:
        """Seconds of a call; an error if the blocker is too short, or varies too much."""
        if self.blocker is None:
            return self._timed(self.calls)[0] / self.calls
        behind: list[float] = []
        for _ in range(_TRIES * self.takes):
            alone = self._usual_alone()
            done, enqueued = self._timed(self.calls)
            if enqueued is None or enqueued >= alone:
                # The device waited for the host while the clock ran.
                self._hold_longer()
                behind.clear()
                continue
            # No take is dropped for being fast: that would make all seem slower.
            behind.append(done)
            worked = statistics.median(behind[-self.takes :]) - alone
            # A blocker that now takes less than it did alone is tried again.
            if len(behind) >= self.takes and worked > 0:
                return worked / self.calls
        raise BlockerVariesError(
            f"{self.calls} calls of {self.contender.name} take less than the blocker's time varies"
        )

    def _usual_alone(self) -> float:
        """Seconds that the blocker takes with nothing behind it, timed now and before."""
        for _ in range(max(1, _LEAST_ALONE - len(self._alone))):
            self._alone.append(self._timed(0)[0])
        return statistics.median_low(self._alone)

    def _hold_longer(self) -> None:
        if 2 * self._hold > _LONGEST_HOLD:
            raise QueueNotFilledError(
                f"{self.calls} calls of {self.contender.name} were not enqueued within "
                f"{1e3 * self._hold:.3g} ms"
            )
        self._hold *= 2
        self._alone.clear()

    def _timed(self, calls: int) -> tuple[float, float | None]:
        """Seconds until all is done, and until all is enqueued: None if the blocker ended first."""
        start = self.clock.now()
        is_holding = self.blocker.hold(self._hold) if self.blocker else lambda: True
        self.contender.enqueue(calls)
        enqueued = self.clock.now() - start
        was_ahead = is_holding()
        self.contender.finish()
        return self.clock.now() - start, enqueued if was_ahead else None


def fill_queue(
    contender: Contender, wanted_calls: int, blocker: Blocker, clock: Clock, takes: int = 1
) -> Burst | None:
    """Find how many calls the host gets ahead of the device with; None where it never does."""
    most = min(_MOST_CALLS, _MOST_LAUNCHES // contender.launches)
    calls = min(wanted_calls, most)
    least = min(calls, _LEAST_CALLS)
    for _ in range(_LAYOUTS):
        burst = Burst(contender, calls, clock, blocker, takes)
        try:
            burst.sample()
            return burst
        except BlockerVariesError:  # the machine may have held up the calls that were counted
            calls = min(2 * calls, most)
        except QueueNotFilledError:
            calls //= 2
        if calls < least:
            break
    return None
