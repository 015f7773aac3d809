"""Time a candidate in turn with the best so far: many rounds only where it is close.

As `pyclgemm.timing.sample`, but a tuner asks hundreds of times, and most candidates are far
slower than the best: for them one round says enough.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from .timing import Turns
from .timing import Work as Work

#: Candidates this many times slower than the rival are dropped after one round, or three.
_HOPELESS = 1.3
_SLOWER = 1.06

#: Longest pause, in seconds.
_LONGEST_REST = 2.0


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
        Work as `pyclgemm.timing.Turns` takes it. Without a rival the candidate is timed
        alone.
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
    works = [candidate] if rival is None else [candidate, rival]
    turns = Turns(
        works, pace.burst, lambda seconds: min(pace.rest * seconds, _LONGEST_REST),
        clock=clock, sleep=sleep,
    )  # fmt: skip
    begin = clock()
    for turn in range(pace.rounds):
        turns.take()
        if len(works) == 2 and turn in (0, 2):
            limit = _HOPELESS if turn == 0 else _SLOWER
            if statistics.median(turns.samples[0]) > limit * statistics.median(turns.samples[1]):
                break
        if clock() - begin > pace.longest:
            break
    medians = [statistics.median(values) for values in turns.samples]
    return medians[0], medians[1] if rival is not None else None
