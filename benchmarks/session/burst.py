"""Bursts of calls on the host's clock: how long, how many calls, what pause after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyclgemm.measure.filled_queue import Blocker

#: Seconds of the shortest burst: a machine that is held up for less makes no single call of it.
_SHORTEST = 1e-3

#: Part of a burst from which on its length tells how many calls make up a whole one.
_NEARLY = 0.8


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
    launches : int or None
        Kernels that a call enqueues, at most; None where its time is the host's in any case.
    blocker : Blocker or None
        Holds what its calls are enqueued to; None where that is the queue of the session.
    """

    name: str
    step: int
    unrest: float
    launches: int | None
    blocker: Blocker | None

    def enqueue(self, calls: int) -> None:
        """Start so many products, without waiting where the library allows."""

    def finish(self) -> None:
        """Wait for all of them."""


@dataclass(frozen=True)
class Clock:
    """Where time comes from; tests give another."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Sample:
    """What one burst took.

    Attributes
    ----------
    seconds : float
        Of a call.
    elapsed : float
        Of the whole burst, on the host's clock.
    worked : float
        For which products ran.
    """

    seconds: float
    elapsed: float
    worked: float


class Burst(Protocol):
    """So many calls of a contender, timed again and again.

    Attributes
    ----------
    contender : Contender
        Whose calls.
    calls : int
        How many.
    clock_name : str
        What the clock is, for tables.
    """

    contender: Contender
    calls: int
    clock_name: str

    def sample(self) -> Sample:
        """Time it once."""


@dataclass(frozen=True)
class Pace:
    """How bursts are laid out.

    Attributes
    ----------
    burst : float
        Seconds of work in a burst; a product that takes longer is a burst by itself.
    rest : float
        Pause after a burst, as a multiple of its work.
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

    def shortened(self, contenders: int) -> Pace:
        """Make bursts so short that all rounds of so many contenders fit into `seconds`.

        None is shorter than a millisecond, where rounds take longer then.

        Finding the number of calls takes about as long as three rounds.

        Examples
        --------
        >>> Pace(burst=0.015, rest=4.0, rounds=3, seconds=0.6).shortened(2).burst
        0.01
        >>> Pace(seconds=0.05).shortened(2).burst
        0.001
        """
        fitting = self.seconds / (contenders * (1 + self.rest) * (self.rounds + 3))
        return replace(self, burst=min(self.burst, max(_SHORTEST, fitting)))

    def rounds_for(self, samples: Sequence[Sample]) -> int:
        """Rounds that fit into `seconds`, given what a burst of each contender takes."""
        one_round = sum(one.elapsed + self.rest_after(one.worked) for one in samples)
        return max(min(3, self.rounds), min(self.rounds, int(self.seconds / max(one_round, 1e-9))))

    def rest_after(self, worked: float, unrest: float = 0.0) -> float:
        """Pause after `worked` seconds of work, at least until threads sleep."""
        return max(min(self.rest * worked, self.longest_rest), unrest)


def time_burst(contender: Contender, calls: int, clock: Clock) -> float:
    """Seconds that so many calls take, the wait at the end included."""
    start = clock.now()
    contender.enqueue(calls)
    contender.finish()
    return clock.now() - start


class HostBurst:
    """Calls timed from before the first to after the wait at their end.

    Parameters
    ----------
    contender : Contender
        Called before.
    calls : int
        A multiple of its step.
    clock : Clock
        Source of time.
    """

    clock_name = "host"

    def __init__(self, contender: Contender, calls: int, clock: Clock) -> None:
        self.contender = contender
        self.calls = calls
        self._clock = clock

    def sample(self) -> Sample:
        """Time it once."""
        elapsed = time_burst(self.contender, self.calls, self._clock)
        return Sample(elapsed / self.calls, elapsed, elapsed)


def _shorter_of_two(contender: Contender, calls: int, pace: Pace, clock: Clock) -> float:
    """Seconds of a burst; one that looks long enough is timed again.

    The machine may have held it up, which seldom happens twice: a burst that is too short would
    be taken for a whole one, and a short product for one that the host's clock can time.
    """
    elapsed = time_burst(contender, calls, clock)
    if elapsed < _NEARLY * pace.burst:
        return elapsed
    clock.sleep(pace.rest_after(elapsed))
    return min(elapsed, time_burst(contender, calls, clock))


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
    calls, elapsed = step, _shorter_of_two(contender, step, pace, clock)
    # The wait at the end weighs in short bursts, and so does the first call where threads wake up:
    # the count is approached from below, and the last burst is nearly one that is wanted.
    while elapsed < _NEARLY * pace.burst:
        growth = min(max(pace.burst / max(elapsed, 1e-9), _NEARLY**-2), 16.0)
        calls = max(calls + step, round(calls * growth / step) * step)
        clock.sleep(pace.rest_after(elapsed))
        elapsed = _shorter_of_two(contender, calls, pace, clock)
    wanted = max(step, round(calls * pace.burst / elapsed / step) * step)
    return wanted, elapsed * wanted / calls
