"""Time a candidate in turn with the best so far: many rounds only where it is close.

As `pyclgemm.timing`, but a tuner asks hundreds of times, and most candidates are far slower
than the best: for them one round says enough.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Candidates this many times slower than the rival are dropped after one round, or three.
_HOPELESS = 1.3
_SLOWER = 1.06


#: Does some work so many times; gives its seconds, or None if the clock tells them.
Work = Callable[[int], float | None]


@dataclass(frozen=True)
class Pace:
    """How bursts of calls are laid out.

    Attributes
    ----------
    burst : float
        Seconds of a burst; a product that takes longer is a burst by itself.
    rest : float
        Pause after a burst, in bursts.
    rounds : int
        Bursts of each contender, where the two are close.
    longest : float
        Seconds after which no further round starts, pauses included.
    """

    burst: float
    rest: float
    rounds: int
    longest: float = 4.0


#: Small machines throttle after seconds of full load, so processors rest four times as long
#: as they work; a GPU's clock settles while the next candidate is compiled.
CPU_PACE = Pace(burst=0.012, rest=4.0, rounds=7)
GPU_PACE = Pace(burst=0.004, rest=0.5, rounds=7)


def time_in_turn(
    candidate: Work,
    rival: Work | None,
    pace: Pace,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[float, float | None]:
    """Time a candidate and its rival: A B B A A B ...

    Parameters
    ----------
    candidate, rival : callable
        Do some work so many times, given as their argument, and return when it is done: the
        seconds that it took, if they know better than the clock. Both have run before.
        Without a rival the candidate is timed alone.
    pace : Pace
        Bursts, pauses and rounds.
    clock, sleep : callable, optional
        Replaced in tests.

    Returns
    -------
    candidate, rival : float and float or None
        Median seconds of one repetition.

    Examples
    --------
    >>> time_in_turn(lambda count: None, None, Pace(0.0, 0.0, 3))[1] is None
    True
    """

    def burst(work: Work, count: int) -> float:
        start = clock()
        told = work(count)
        seconds = clock() - start if told is None else told
        sleep(min(pace.rest * seconds, 2.0))
        return seconds / count

    works = [candidate] if rival is None else [candidate, rival]
    counts = []
    for work in works:
        count, seconds = 1, burst(work, 1)
        # The wait at the end weighs in short bursts, so the count is approached from below.
        while seconds * count < pace.burst / 2:
            count = max(count + 1, min(16 * count, round(pace.burst / max(seconds, 1e-9))))
            seconds = burst(work, count)
        counts.append(count)
    samples: list[list[float]] = [[] for _ in works]
    begin = clock()
    for turn in range(pace.rounds):
        order = range(len(works)) if turn % 2 == 0 else reversed(range(len(works)))
        for index in order:
            samples[index].append(burst(works[index], counts[index]))
        if len(works) == 2 and turn in (0, 2):
            limit = _HOPELESS if turn == 0 else _SLOWER
            if statistics.median(samples[0]) > limit * statistics.median(samples[1]):
                break
        if clock() - begin > pace.longest:
            break
    medians = [statistics.median(values) for values in samples]
    return medians[0], medians[1] if rival is not None else None
