"""Compare the speeds of functions fairly on machines that throttle.

Small virtual machines drop to half their speed after seconds of full load, and power
limits favour whoever runs first. So the contenders take turns, in bursts of some
milliseconds with longer pauses between, and medians are reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

#: Seconds that a burst of calls lasts, and the pause after it in bursts.
BURST_SECONDS = 0.02
PAUSE_BURSTS = 4

#: Shortest pause in seconds: OpenBLAS lets idle threads spin for 2^28 cycles, and until they
#: sleep they take a core from whoever is next.
LEAST_PAUSE = 0.2

#: Longest pause in seconds: after a long burst there is nothing left to recover from.
LONGEST_PAUSE = 2.0

#: The number of calls of a burst is raised by this factor at a time, and so far at most.
_GROWTH = 16
_MOST_CALLS = 2**20

#: Does some work so many times; gives its seconds, or None if the clock tells them.
Work = Callable[[int], float | None]


class Turns:
    """Bursts of some contenders, in turn: A B B A A B ...

    Parameters
    ----------
    works : sequence of callable
        Each does some work so many times, given as its argument, and returns when it is
        done: the seconds that it took, if it knows better than the clock. All have run
        before. Here each runs some bursts, to find out how many calls make one up.
    burst_seconds : float
        How long a burst lasts: at least half of this. Work that takes longer is a burst by
        itself.
    pause : callable
        Seconds of the pause after a burst, from the seconds of the burst.
    clock, sleep : callable, optional
        Replaced in tests.

    Attributes
    ----------
    samples : list of list of float
        Seconds of one repetition, for each contender and burst.

    Examples
    --------
    >>> turns = Turns([lambda count: 0.002 * count], 0.01, lambda seconds: 0.0)
    >>> turns.take()
    >>> turns.samples
    [[0.002]]
    """

    def __init__(
        self,
        works: Sequence[Work],
        burst_seconds: float,
        pause: Callable[[float], float],
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._works = tuple(works)
        self._pause = pause
        self._clock = clock
        self._sleep = sleep
        self._counts = [self._count(work, burst_seconds) for work in works]
        self._taken = 0
        self.samples: list[list[float]] = [[] for _ in works]

    def take(self) -> None:
        """A burst of each, in the opposite order of the last time."""
        order = range(len(self._works))
        for index in order if self._taken % 2 == 0 else reversed(order):
            self.samples[index].append(self._burst(self._works[index], self._counts[index]))
        self._taken += 1

    def _count(self, work: Work, burst_seconds: float) -> int:
        count, seconds = 1, self._burst(work, 1)
        # The wait at the end weighs in short bursts, so the count is approached from below.
        while seconds * count < burst_seconds / 2 and count < _MOST_CALLS:
            wanted = round(burst_seconds / max(seconds, 1e-9))
            count = max(count + 1, min(_GROWTH * count, wanted))
            seconds = self._burst(work, count)
        return count

    def _burst(self, work: Work, count: int) -> float:
        start = self._clock()
        told = work(count)
        seconds = self._clock() - start if told is None else told
        self._sleep(self._pause(seconds))
        return seconds / count


def compare(
    contenders: Mapping[str, Work],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float]:
    """Time functions in turn, as `Turns` does.

    Parameters
    ----------
    contenders : mapping of str to callable
        Work as `Turns` takes it. The caller has warmed all up.
    rounds : int
        Bursts of each.
    clock, sleep : callable, optional
        Replaced in tests.

    Returns
    -------
    dict of str to float
        Median seconds of one repetition of the work.

    Examples
    --------
    >>> seconds = compare({"a": lambda count: 0.1 * count, "b": lambda count: 0.2 * count}, 1)
    >>> sorted(seconds)
    ['a', 'b']
    """
    samples = sample(contenders, rounds, clock=clock, sleep=sleep)
    return {name: statistics.median(values) for name, values in samples.items()}


def sample(
    contenders: Mapping[str, Work],
    rounds: int,
    *,
    burst_seconds: float = BURST_SECONDS,
    pause_bursts: float = PAUSE_BURSTS,
    least_pause: float = LEAST_PAUSE,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, list[float]]:
    """Time functions in turn, as `compare` does, and return every burst.

    Parameters
    ----------
    contenders, rounds, clock, sleep
        As for `compare`.
    burst_seconds : float
        As for `Turns`.
    pause_bursts, least_pause : float
        The pause after a burst, in bursts, and at least, in seconds. Only where NumPy takes
        part is the default of `least_pause` needed.

    Returns
    -------
    dict of str to list of float
        Seconds of one repetition, for each round.

    Examples
    --------
    >>> work = lambda count: 1e-5 * count
    >>> len(sample({"a": work}, 3, burst_seconds=1e-4, least_pause=0.0)["a"])
    3
    """

    def pause(seconds: float) -> float:
        return min(max(pause_bursts * seconds, least_pause), LONGEST_PAUSE)

    turns = Turns(tuple(contenders.values()), burst_seconds, pause, clock=clock, sleep=sleep)
    for _ in range(rounds):
        turns.take()
    return dict(zip(contenders, turns.samples, strict=True))
