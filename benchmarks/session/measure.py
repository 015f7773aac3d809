"""Time contenders in turn, in bursts with pauses between them.

A burst is as many calls as make up 12-30 ms of host clock, with one wait at its end (on CPU
devices, where NumPy's synchronous calls are the measure, one after each call), or on a GPU
as many short products as fit behind a kernel that holds the queue; the order is shuffled in
every round, and after a burst the machine rests four times as long. Small machines throttle
and large GPUs sink to their power limit under unbroken load, which would favour whoever
runs first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.session.burst import Burst, Clock, Contender, HostBurst, Pace, Sample, calibrate
from benchmarks.session.filled_queue import QueueNotFilledError, fill_queue
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT, Blocker


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one contender, over the bursts of one case.

    Attributes
    ----------
    calls : int
        Calls in each burst.
    samples : tuple of float
        Seconds per call, one for each burst.
    clock_name : str
        "host", or "queue filled": without the host's time.
    """

    calls: int
    samples: tuple[float, ...]
    clock_name: str = HostBurst.clock_name

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


class MeasurementInterrupted(KeyboardInterrupt):  # noqa: N818 - no error, as its base is none
    """The user stopped the rounds; what was measured until then is in `timings`."""

    def __init__(self, timings: Mapping[str, Timing]) -> None:
        super().__init__()
        self.timings = timings


def prepare_burst(
    contender: Contender, pace: Pace, blocker: Blocker | None, clock: Clock
) -> tuple[Burst, Sample]:
    """Find what a burst of a contender is, and how long it takes.

    Parameters
    ----------
    contender : Contender
        Called before.
    pace : Pace
        Length of a burst on the host's clock.
    blocker : Blocker or None
        Holds the queue, if the contender has no blocker of its own, for products that are too
        short for the host's clock; None times all on the host.
    clock : Clock
        Source of time.

    Returns
    -------
    Burst, Sample
        On the host's clock if the queue cannot be filled.
    """
    calls, elapsed = calibrate(contender, pace, clock)
    if blocker is not None and contender.launches and elapsed / calls < LONGEST_PRODUCT:
        clock.sleep(pace.rest_after(elapsed))
        filled = fill_queue(contender, calls, contender.blocker or blocker, clock)
        if filled is not None:
            return filled
    return HostBurst(contender, calls, clock), Sample(elapsed / calls, elapsed, elapsed)


def measure_in_turn(
    contenders: Sequence[Contender],
    pace: Pace,
    rng: np.random.Generator,
    *,
    blocker: Blocker | None = None,
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
    blocker : Blocker, optional
        Holds the queue for contenders that allow it and take less than `LONGEST_PRODUCT`.
    clock : Clock, optional
        Source of time.
    progress : callable
        Told after each burst which part of the work it was.

    Raises
    ------
    MeasurementInterrupted
        If the user stops the rounds, with the timings of contenders that had a burst.
    """
    clock = clock or Clock()
    pace = pace.shortened(len(contenders))
    bursts, firsts = [], []
    # Each was called before, and threads of the last one may still be busy.
    clock.sleep(max((contender.unrest for contender in contenders), default=0.0))
    for contender in contenders:
        burst, first = prepare_burst(contender, pace, blocker, clock)
        bursts.append(burst)
        firsts.append(first)
        clock.sleep(pace.rest_after(first.worked, contender.unrest))
    rounds = pace.rounds_for(firsts)
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}

    def timings() -> dict[str, Timing]:
        return {
            burst.contender.name: Timing(burst.calls, tuple(taken), burst.clock_name)
            for burst in bursts
            if (taken := samples[burst.contender.name])
        }

    try:
        _take_turns(bursts, samples, rounds, pace, rng, blocker, clock, progress)
    except KeyboardInterrupt:
        raise MeasurementInterrupted(timings()) from None
    return timings()


def _take_turns(
    bursts: list[Burst],
    samples: Mapping[str, list[float]],
    rounds: int,
    pace: Pace,
    rng: np.random.Generator,
    blocker: Blocker | None,
    clock: Clock,
    progress: Callable[[float], None],
) -> None:
    """Add to the samples of each contender, round by round; may replace bursts."""
    again = dict.fromkeys(samples, blocker)  # what holds the queue if a burst must be laid out anew
    for _ in range(rounds):
        for index in rng.permutation(len(bursts)):
            burst = bursts[index]
            taken = samples[burst.contender.name]
            wanted = len(taken) + 1
            while len(taken) < wanted:
                try:
                    sample = burst.sample()
                except QueueNotFilledError:
                    # Its figures are to be of one kind: those that it had are taken again, once
                    # more behind the blocker, then on the host's clock.
                    contender = burst.contender
                    burst, _first = prepare_burst(contender, pace, again[contender.name], clock)
                    bursts[index] = burst
                    again[contender.name] = None
                    taken.clear()
                    continue
                taken.append(sample.seconds)
                clock.sleep(pace.rest_after(sample.worked, burst.contender.unrest))
            progress(1 / (rounds * len(bursts)))
