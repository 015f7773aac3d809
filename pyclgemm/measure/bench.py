"""The bench: time contenders in turn, in bursts with pauses between them.

Small machines drop to half their speed after seconds of full load, and large GPUs fall to their
power limit, which would favour the first contender. So a burst of calls takes some milliseconds,
with one wait at its end, and the machine rests after it; the contenders take turns, and medians
count. A `Pace` has the durations; `PACES` has those of every user. If a contender has a blocker,
products too short for the host's clock are timed on a queue that is filled first
(`pyclgemm.measure.filled_queue`).

A contender is a checked plan on sets of operands (`pyclgemm.analysis.operands.plan_contender`), or
the functions of another library as `Calls` or as a subclass of `Contender`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyopencl as cl

from . import filled_queue
from .filled_queue import Blocker, Burst, Clock, Contender

#: Least bytes of rotated sets, more than any cache of a GPU; larger caches of CPUs are shared.
_LEAST_BYTES = 128 << 20
MOST_SETS = 64
#: Seconds of the shortest burst, so that an interruption of the machine is not a whole burst.
_SHORTEST = 1e-3
#: Calibration ends when the calls take this part of a burst.
_NEARLY = 0.8
#: Calibration increases the number of calls by at most this factor, and to at most this number.
_GROWTH = 16.0
_MOST_CALLS = 2**20
#: Seconds of bursts that no interruption of the machine makes seem long.
_CERTAIN = 0.5
#: Seconds for which idle threads of OpenBLAS spin (2^28 cycles) and keep cores busy.
OPENBLAS_UNREST = 0.2
#: The process is idle if its threads work for less than this part of a pause. The pause has as many
#: seconds as the longest tick by which systems count such work. A bench waits at most some seconds.
_IDLE, _PAUSE, _LONGEST_WAIT = 0.2, 0.016, 0.3

#: The clocks of a timing: that of the host, or the queue, without the host's time.
HOST, QUEUE_FILLED = "host", "queue filled"


@dataclass(frozen=True)
class Pace:
    """The layout of bursts; a call longer than a burst is a burst by itself."""

    burst: float  # seconds of work
    rest: float  # pause after a burst, as a multiple of its work
    rounds: int = 5  # bursts of each contender
    seconds: float = math.inf  # no round starts later; bursts shorten so that all rounds fit
    least_rounds: int = 1  # rounds that run in any case
    longest_rest: float = 2.0  # seconds; a longer pause has no effect
    takes: int = 1  # measurements behind the blocker; a sample is their median

    def shortened(self, contenders: int) -> Pace:
        """Shorten bursts so that all rounds, and three for calibration, fit into the time."""
        fitting = self.seconds / (contenders * (1 + self.rest) * (self.rounds + 3))
        return replace(self, burst=min(self.burst, max(_SHORTEST, fitting)))

    def rest_after(self, worked: float, unrest: float = 0.0) -> float:
        """The pause after `worked` seconds of work; idle threads are busy for `unrest` seconds."""
        return max(min(self.rest * worked, self.longest_rest), unrest)


#: The paces of each user on CPUs, which throttle sooner, and on other devices. In the tuner a GPU
#: also rests while the next candidate is compiled.
PACES: dict[str, tuple[Pace, Pace]] = {
    "tuner": (
        Pace(burst=0.012, rest=4.0, rounds=7, seconds=4.0),
        Pace(burst=0.004, rest=0.5, rounds=7, seconds=4.0),
    ),
    "analysis": (Pace(burst=0.01, rest=4.0), Pace(burst=0.01, rest=2.0)),
    "ceilings": (Pace(burst=0.005, rest=0.0),) * 2,
    "demo": (Pace(burst=0.02, rest=4.0, rounds=7, takes=3),) * 2,
    "benchmark": (Pace(burst=0.015, rest=4.0, rounds=7, seconds=10.0, least_rounds=3, takes=3),)
    * 2,
}


def pace_for(user: str, device_type: str) -> Pace:
    """The pace of a user on a device of a type ("cpu", "gpu" or "accelerator")."""
    on_cpu, elsewhere = PACES[user]
    return on_cpu if device_type == "cpu" else elsewhere


def rotated_sets(set_bytes: int, device: cl.Device) -> int:
    """The number of sets of operands to rotate, so that no call finds its set in a cache."""
    wanted = _LEAST_BYTES
    if not device.type & cl.device_type.CPU:  # some CPU runtimes report the cache of one core
        wanted = max(wanted, 2 * device.global_mem_cache_size)
    return int(min(MOST_SETS, max(1, -(-wanted // max(1, set_bytes)))))


@dataclass(eq=False)
class Calls(Contender):
    """A contender whose calls rotate among sets of operands; `wait` waits for all calls."""

    name: str
    calls: Sequence[Callable[[], object]]
    wait: Callable[[], object] = lambda: None
    blocker: Blocker | None = field(default=None, kw_only=True)
    launches: int = field(default=Contender.launches, kw_only=True)
    unrest: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Make the next call use the first set."""
        # Bursts do not restart: a burst of few calls would find its sets in the cache.
        self._turn = itertools.cycle(self.calls)

    def enqueue(self, calls: int) -> None:
        """Start calls on the next sets."""
        for call in itertools.islice(self._turn, calls):
            call()

    def finish(self) -> None:
        """Wait for all of them."""
        self.wait()


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one contender, a sample for each burst."""

    calls: int  # of a burst
    samples: tuple[float, ...]
    clock_name: str = HOST  # or `QUEUE_FILLED`

    @property
    def median(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples)


class Bench:
    """Times contenders in turn; `rng` shuffles every round, without it they run A B B A A B."""

    def __init__(
        self,
        pace: Pace,
        *contenders: Contender,
        rng: np.random.Generator | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._pace = pace
        self._rng = rng
        self._clock = clock or Clock()
        self._contenders = list(contenders)
        self._bursts: dict[Contender, Burst] = {}
        self._unfillable: set[Contender] = set()
        self._rounds = 0

    def add(self, contender: Contender) -> None:
        """Add a contender, which has been called before, so that the bench builds nothing."""
        self._contenders.append(contender)

    def run(
        self,
        rounds: int | None = None,
        *,
        enough: Callable[[Mapping[str, Timing]], bool] = lambda timings: False,
        report: Callable[[float], None] = lambda fraction: None,
    ) -> dict[str, Timing]:
        """Time every contender once in each round, until `enough` returns true for the timings.

        After each burst, `report` is called with its part of all bursts.
        """
        rounds = rounds or self._pace.rounds
        self._pace = replace(self._pace, rounds=rounds).shortened(max(1, len(self._contenders)))
        new = [one for one in self._contenders if one not in self._bursts]
        if new:  # their results were perhaps checked just now
            _wait_until_idle(self._clock)
        for contender in new:
            self._bursts[contender] = self._burst(contender)
        begin = self._clock.now()
        for done in range(1, rounds + 1):
            order = list(self._contenders)
            if self._rng is not None:
                order = [order[index] for index in self._rng.permutation(len(order))]
            elif self._rounds % 2:
                order.reverse()
            self._rounds += 1
            for contender in order:
                self._take_sample(contender)
                report(1 / (rounds * len(order)))
            is_late = self._clock.now() - begin >= self._pace.seconds
            if enough(self.timings()) or is_late and done >= self._pace.least_rounds:
                break
        return self.timings()

    def timings(self) -> dict[str, Timing]:
        """The timings so far."""
        timings = {}
        for contender, burst in self._bursts.items():
            if burst.samples:
                clock = QUEUE_FILLED if burst.blocker else HOST
                timings[contender.name] = Timing(burst.calls, tuple(burst.samples), clock)
        return timings

    def _burst(self, contender: Contender) -> Burst:
        pace, clock, blocker = self._pace, self._clock, contender.blocker
        calls, elapsed = calibrate(contender, pace, clock)
        clock.sleep(pace.rest_after(elapsed, contender.unrest))
        filled = None
        is_short = elapsed / calls < filled_queue.LONGEST_PRODUCT
        if blocker and is_short and contender not in self._unfillable:
            filled = filled_queue.fill_queue(contender, calls, blocker, clock, pace.takes)
        return filled or Burst(contender, calls, clock)

    def _take_sample(self, contender: Contender) -> None:
        wanted = len(self._bursts[contender].samples) + 1
        while len((burst := self._bursts[contender]).samples) < wanted:
            try:
                seconds = burst.sample()
            except filled_queue.QueueNotFilledError:
                # All samples of a contender must have one clock. They are taken again, once
                # behind the blocker, then with the host's clock.
                self._bursts[contender] = self._burst(contender)
                self._unfillable.add(contender)
                continue
            burst.samples.append(seconds)
            worked = seconds * burst.calls * burst.takes
            self._clock.sleep(self._pace.rest_after(worked, contender.unrest))


def _wait_until_idle(clock: Clock) -> None:
    """Wait until the threads of this process rest.

    Those of OpenBLAS keep all cores busy for a while after a reference was computed. On an H200's
    host with 16 cores one of ten products that were timed at once seemed 1.3 to 1.9 times as slow.
    """
    begin = clock.now()
    while clock.now() - begin < _LONGEST_WAIT:
        paused, worked = clock.now(), clock.worked()
        clock.sleep(_PAUSE)
        if clock.worked() - worked < _IDLE * (clock.now() - paused):
            break


def calibrate(contender: Contender, pace: Pace, clock: Clock) -> tuple[int, float]:
    """The calls of a contender in a burst, a multiple of its step, and the burst's seconds."""
    step = contender.step
    calls, elapsed = step, _burst_seconds(contender, step, pace, clock)
    # In short bursts the first call, which wakes up threads, and the final wait dominate. So the
    # number of calls grows until the last burst is nearly as long as wanted.
    while elapsed < _NEARLY * pace.burst and calls < _MOST_CALLS:
        growth = min(max(pace.burst / max(elapsed, 1e-9), _NEARLY**-2), _GROWTH)
        calls = max(calls + step, round(calls * growth / step) * step)
        clock.sleep(pace.rest_after(elapsed))
        elapsed = _burst_seconds(contender, calls, pace, clock)
    if elapsed > pace.burst:
        shorter = max(step, round(calls * pace.burst / elapsed / step) * step)
        calls, elapsed = shorter, elapsed * shorter / calls
    return calls, elapsed


def _burst_seconds(contender: Contender, calls: int, pace: Pace, clock: Clock) -> float:
    """Seconds of a burst, which is timed twice if it seems long enough."""
    burst = Burst(contender, calls, clock)
    elapsed = calls * burst.sample()
    if not _NEARLY * pace.burst <= elapsed < _CERTAIN:
        return elapsed
    # An interruption of the machine seldom occurs twice.
    clock.sleep(pace.rest_after(elapsed))
    return min(elapsed, calls * burst.sample())
