"""Time contenders in turn, in bursts with pauses between them.

A burst is as many calls as make up 12-30 ms of host clock, with one wait at its end (on CPU
devices, where NumPy's synchronous calls are the measure, one after each call); the order is
shuffled in every round, and after a burst the machine rests four times as long. Small machines
throttle and large GPUs sink to their power limit under unbroken load, which would favour
whoever runs first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Contender(Protocol):
    """One way to compute the product of a case.

    Attributes
    ----------
    name : str
        Column in tables.
    step : int
        Calls that `enqueue` makes at least: it rounds up to a multiple.
    unrest : float
        Seconds for which its idle threads still keep cores busy after a call.
    """

    name: str
    step: int
    unrest: float

    def enqueue(self, calls: int) -> None:
        """Start so many products, without waiting where the library allows."""

    def finish(self) -> None:
        """Wait for all of them."""


@dataclass(frozen=True)
class Pace:
    """How bursts are laid out.

    Attributes
    ----------
    burst : float
        Seconds of work in a burst; a product that takes longer is a burst by itself.
    rest : float
        Pause after a burst, as a multiple of its length.
    longest_rest : float
        Bound on the pause, in seconds.
    rounds : int
        Bursts of each contender.
    seconds : float
        Time for all rounds of a case. Where bursts are long there are fewer rounds, but
        never fewer than three.
    """

    burst: float = 0.015
    rest: float = 4.0
    longest_rest: float = 2.0
    rounds: int = 7
    seconds: float = 10.0

    def rounds_for(self, bursts: Sequence[float]) -> int:
        """Rounds that fit into `seconds`, given how long each contender's burst takes."""
        one_round = sum(burst + self.rest_after(burst) for burst in bursts)
        return max(min(3, self.rounds), min(self.rounds, int(self.seconds / max(one_round, 1e-9))))

    def rest_after(self, elapsed: float, unrest: float = 0.0) -> float:
        """Pause after a burst that took `elapsed` seconds, at least until threads sleep."""
        return max(min(self.rest * elapsed, self.longest_rest), unrest)


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one contender, over the bursts of one case.

    Attributes
    ----------
    calls : int
        Calls in each burst.
    samples : tuple of float
        Seconds per call, one for each burst.
    """

    calls: int
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return float(np.median(self.samples))

    def quantile(self, fraction: float) -> float:
        """Time that `fraction` of the bursts did not exceed."""
        return float(np.quantile(self.samples, fraction))

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a part of the median."""
        return (self.quantile(0.75) - self.quantile(0.25)) / (2 * self.median)


@dataclass(frozen=True)
class Clock:
    """Where time comes from; tests give another."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


def time_burst(contender: Contender, calls: int, clock: Clock) -> float:
    """Seconds that so many calls take, the wait at the end included."""
    start = clock.now()
    contender.enqueue(calls)
    contender.finish()
    return clock.now() - start


def calibrate(contender: Contender, pace: Pace, clock: Clock) -> tuple[int, float]:
    """Find how many calls make up a burst.

    Parameters
    ----------
    contender : Contender
        Called before, so that nothing is built within the clock.
    pace : Pace
        Length of a burst.
    clock : Clock
        Source of time.

    Returns
    -------
    calls : int
        A multiple of the contender's step.
    seconds : float
        How long that many take.
    """
    step = contender.step
    calls, elapsed = step, time_burst(contender, step, clock)
    # The wait at the end weighs in short bursts, so the count is approached from below.
    while elapsed < pace.burst / 2:
        growth = min(max(pace.burst / max(elapsed, 1e-9), 2.0), 16.0)
        calls = max(calls + step, round(calls * growth / step) * step)
        clock.sleep(pace.rest_after(elapsed))
        elapsed = time_burst(contender, calls, clock)
    wanted = max(step, round(calls * pace.burst / elapsed / step) * step)
    return wanted, elapsed * wanted / calls


def measure_in_turn(
    contenders: Sequence[Contender],
    pace: Pace,
    rng: np.random.Generator,
    *,
    clock: Clock | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Mapping[str, Timing]:
    """Time every contender in every round, in a new order each time.

    Parameters
    ----------
    contenders : sequence of Contender
        Each called before.
    pace : Pace
        Bursts, pauses, rounds.
    rng : numpy.random.Generator
        Shuffles the order.
    clock : Clock, optional
        Source of time.
    progress : callable
        Told after each burst which part of the work it was.
    """
    clock = clock or Clock()
    calls, bursts = {}, []
    for contender in contenders:
        calls[contender.name], burst = calibrate(contender, pace, clock)
        bursts.append(burst)
        clock.sleep(pace.rest_after(burst, contender.unrest))
    rounds = pace.rounds_for(bursts)
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for index in rng.permutation(len(contenders)):
            contender = contenders[index]
            count = calls[contender.name]
            elapsed = time_burst(contender, count, clock)
            samples[contender.name].append(elapsed / count)
            progress(1 / (rounds * len(contenders)))
            clock.sleep(pace.rest_after(elapsed, contender.unrest))
    return {
        name: Timing(calls[name], tuple(seconds)) for name, seconds in samples.items() if seconds
    }
