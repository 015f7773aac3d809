"""Compare the speeds of functions fairly on machines that throttle.

Small virtual machines drop to half their speed after seconds of full load, and power
limits favour whoever runs first. So the contenders take turns, in bursts of some
milliseconds with longer pauses between, and medians are reported.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyopencl as cl

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


# --------------------------------------------------------------------------------------
# Time a candidate in turn with the best so far: many rounds only where it is close.
#
# As `pyclgemm.measure.timing.sample`, but a tuner asks hundreds of times, and most candidates are
# far
# slower than the best: for them one round says enough.
# --------------------------------------------------------------------------------------

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
        Work as `pyclgemm.measure.timing.Turns` takes it. Without a rival the candidate is timed
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


# --------------------------------------------------------------------------------------
# Sets of operands to rotate among, so that no cache holds them all.
# --------------------------------------------------------------------------------------

T = TypeVar("T")

#: Rotated sets together are to exceed so many bytes: the largest cache of a GPU, and more. A CPU
#: may have one that is larger yet, but seldom to itself.
_LEAST_BYTES = 128 << 20
_MOST_SETS = 64


def rotated_sets(set_bytes: int, device: cl.Device) -> int:
    """How many sets of operands to rotate among.

    A program whose operands come from elsewhere finds them in memory, not in the cache.

    Parameters
    ----------
    set_bytes : int
        Of the operands and the result of one product.
    device : pyopencl.Device
        On which it runs.

    Examples
    --------
    >>> rotated_sets(1 << 30, queue.device)
    1
    """
    wanted = _LEAST_BYTES
    if not device.type & cl.device_type.CPU:  # whose runtimes tell of one core's, or of a host's
        wanted = max(wanted, 2 * device.global_mem_cache_size)
    return int(min(_MOST_SETS, max(1, -(-wanted // max(1, set_bytes)))))


def in_turn(sets: Iterable[T]) -> Callable[[int], Iterator[T]]:
    """Hand out sets in turn; each call goes on where the one before stopped.

    Bursts shorter than a turn would find their operands in the cache if each began with the first.

    Examples
    --------
    >>> next_sets = in_turn(["first", "second", "third"])
    >>> list(next_sets(2)), list(next_sets(2))
    (['first', 'second'], ['third', 'first'])
    """
    turn = itertools.cycle(sets)
    return lambda count: itertools.islice(turn, count)
