"""The bench: contenders are timed in turn, in bursts with pauses between them.

Small machines drop to half their speed after seconds of full load, and large GPUs sink to their
power limit, which would favour whoever runs first. So a burst is as many calls as take some
milliseconds, with one wait at its end; after it the machine rests; the contenders take turns, and
medians count. A `Pace` says how long each of these is; `PACES` has that of every user. Where a
contender names a blocker, products too short for the host's clock are timed on a queue that is
filled first (`pyclgemm.measure.filled_queue`).

Contenders are plans on sets of operands (`pyclgemm.analysis.operands.plan_contender`), checked
before (`Operands.checked`). Another library is a `Calls` of its functions, or a subclass of
`Contender` where it needs more.
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

#: Rotated sets together exceed these bytes: the largest cache of a GPU, and more. A CPU may
#: have one that is larger yet, but seldom to itself.
_LEAST_BYTES = 128 << 20
MOST_SETS = 64

#: No burst is shorter, in seconds: a machine that is held up for less makes no single call of it.
_SHORTEST = 1e-3

#: The part of a burst that a number of calls must take before the number is final.
_NEARLY = 0.8

#: The number of calls of a burst grows by at most this factor at a time, up to a limit.
_GROWTH = 16.0
_MOST_CALLS = 2**20

#: Seconds for which idle threads of OpenBLAS spin (2^28 cycles) and take a core from the next.
OPENBLAS_UNREST = 0.2


@dataclass(frozen=True)
class Pace:
    """How bursts are laid out; a call that takes longer than a burst is a burst by itself."""

    burst: float  # seconds of work
    rest: float  # pause after a burst, as a multiple of its work
    rounds: int = 5  # bursts of each contender
    seconds: float = math.inf  # no round starts later; bursts shorten so that all rounds fit
    least_rounds: int = 1  # that are run in any case
    longest_rest: float = 2.0  # seconds after which there is nothing left to recover from
    # Measurements behind the blocker whose median is a sample. Where there are several, a burst
    # that looks long enough when calls are counted is timed twice, too.
    takes: int = 1

    def shortened(self, contenders: int) -> Pace:
        """Shorten bursts so that all rounds, and three in which calls are counted, fit the time."""
        fitting = self.seconds / (contenders * (1 + self.rest) * (self.rounds + 3))
        return replace(self, burst=min(self.burst, max(_SHORTEST, fitting)))

    def rest_after(self, worked: float, unrest: float = 0.0) -> float:
        """Pause after `worked` seconds of work, at least until idle threads sleep."""
        return max(min(self.rest * worked, self.longest_rest), unrest)


#: The paces of each user: on CPUs, which throttle sooner, and on other devices. The clock of a
#: GPU settles while the next candidate of the tuner is compiled.
PACES: dict[str, tuple[Pace, Pace]] = {
    "tuner": (
        Pace(burst=0.012, rest=4.0, rounds=7, seconds=4.0),
        Pace(burst=0.004, rest=0.5, rounds=7, seconds=4.0),
    ),
    "analysis": (Pace(burst=0.01, rest=4.0), Pace(burst=0.01, rest=2.0)),
    "ceilings": (Pace(burst=0.005, rest=0.0),) * 2,
    "demo": (Pace(burst=0.02, rest=4.0, rounds=7),) * 2,
    "benchmark": (Pace(burst=0.015, rest=4.0, rounds=7, seconds=10.0, least_rounds=3, takes=3),)
    * 2,
}


def pace_for(user: str, device_type: str) -> Pace:
    """The pace of a user on a device of a type ("cpu", "gpu" or "accelerator")."""
    on_cpu, elsewhere = PACES[user]
    return on_cpu if device_type == "cpu" else elsewhere


def rotated_sets(set_bytes: int, device: cl.Device) -> int:
    """Among how many sets of operands to rotate, so that calls find none in the device's cache."""
    wanted = _LEAST_BYTES
    if not device.type & cl.device_type.CPU:  # whose runtimes tell of one core's, or of a host's
        wanted = max(wanted, 2 * device.global_mem_cache_size)
    return int(min(MOST_SETS, max(1, -(-wanted // max(1, set_bytes)))))


@dataclass(eq=False)
class Calls(Contender):
    """A contender whose calls go through sets of operands in turn; `wait` waits for all."""

    name: str
    calls: Sequence[Callable[[], object]]
    wait: Callable[[], object] = lambda: None
    blocker: Blocker | None = field(default=None, kw_only=True)
    launches: int = field(default=Contender.launches, kw_only=True)
    unrest: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Make the next call that of the first set."""
        # Bursts shorter than a turn would find their operands in the cache if each began anew.
        self._turn = itertools.cycle(self.calls)

    def enqueue(self, calls: int) -> None:
        """Start calls, the next sets in turn."""
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
    clock_name: str = "host"  # or "queue filled": without the host's time

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.samples)


class Bench:
    """Times contenders in turn, in an order that `rng` shuffles in every round, or A B B A A B."""

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
        """Let a contender take part; it has been called before, so that nothing is built now."""
        self._contenders.append(contender)

    def run(
        self,
        rounds: int | None = None,
        *,
        enough: Callable[[Mapping[str, Timing]], bool] = lambda timings: False,
        report: Callable[[float], None] = lambda fraction: None,
    ) -> dict[str, Timing]:
        """Time every contender once a round, until `enough` says that what is known suffices.

        `report` is told after each burst which part of all bursts it was.
        """
        rounds = rounds or self._pace.rounds
        self._pace = replace(self._pace, rounds=rounds).shortened(max(1, len(self._contenders)))
        new = [one for one in self._contenders if one not in self._bursts]
        self._clock.sleep(max((one.unrest for one in new), default=0.0))
        for contender in new:
            self._bursts[contender] = self._burst(contender)
        begin = self._clock.now()
        for done in range(1, rounds + 1):
            for contender in self._order():
                self._take_sample(contender)
                report(1 / (rounds * len(self._contenders)))
            is_late = self._clock.now() - begin >= self._pace.seconds
            if enough(self.timings()) or is_late and done >= self._pace.least_rounds:
                break
        return self.timings()

    def timings(self) -> dict[str, Timing]:
        """What is known so far, of the contenders that had a burst."""
        return {
            contender.name: Timing(burst.calls, tuple(burst.samples), burst.clock_name)
            for contender, burst in self._bursts.items()
            if burst.samples
        }

    def _order(self) -> list[Contender]:
        order = list(self._contenders)
        if self._rng is not None:
            order = [order[index] for index in self._rng.permutation(len(order))]
        elif self._rounds % 2:
            order.reverse()
        self._rounds += 1
        return order

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
                # The samples of a contender are to be of one kind: those that it had are taken
                # again, once more behind the blocker, then on the host's clock.
                self._bursts[contender] = self._burst(contender)
                self._unfillable.add(contender)
                continue
            burst.samples.append(seconds)
            worked = seconds * burst.calls * burst.takes
            self._clock.sleep(self._pace.rest_after(worked, contender.unrest))


def calibrate(contender: Contender, pace: Pace, clock: Clock) -> tuple[int, float]:
    """The calls of a contender, a multiple of its step, that make up a burst; its seconds."""
    step = contender.step
    calls, elapsed = step, _burst_seconds(contender, step, pace, clock)
    # The wait at the end weighs in short bursts, and so does the first call, where threads wake
    # up: the count is approached from below, and the last burst is nearly one that is wanted.
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
    """Seconds of a burst; at a careful pace one that looks long enough is timed again."""
    burst = Burst(contender, calls, clock)
    elapsed = calls * burst.sample()
    if pace.takes == 1 or elapsed < _NEARLY * pace.burst:
        return elapsed
    # The machine may have held it up, which seldom happens twice.
    clock.sleep(pace.rest_after(elapsed))
    return min(elapsed, calls * burst.sample())
