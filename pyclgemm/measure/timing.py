"""Only benchmarks/ still use this module; `pyclgemm.measure.bench` replaces it."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from .filled_queue import Blocker
from .operands import rotated_sets as rotated_sets

T = TypeVar("T")

#: Does some work so many times; gives its seconds, or None if the clock tells them.
Work = Callable[[int], float | None]


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


#: Products longer than this, in seconds, hide the host's time by themselves.
LONGEST_PRODUCT = 200e-6

#: Calls on their way at a time: drivers make the host wait from about 1000 launches on.
_MOST_CALLS = 100

#: Seconds for which the queue is held: at first for each call and beyond, and at most.
_HOLD_CALL = 14e-6
_SPARE_HOLD = 0.3e-3
_LONGEST_HOLD = 0.04
_TRIES = 12

#: Times of the blocker alone whose median counts, at least and at most: one that the machine held
#: up would be taken for products that take less than they do.
_LEAST_ALONE, _MOST_ALONE = 3, 5


def timed_work(
    enqueue: Callable[[int], None], finish: Callable[[], None], blocker: Blocker | None
) -> Work:
    """Work as the timers want it: ahead of the device where a blocker holds its queue.

    Parameters
    ----------
    enqueue, finish : callable
        As for `AheadOfDevice`.
    blocker : Blocker or None
        None where the host's time counts, as on a CPU: the work is waited for then.
    """
    if blocker is not None:
        return AheadOfDevice(enqueue, finish, blocker).work

    def run(count: int) -> None:
        enqueue(count)
        finish()

    return run


def timed_in_turn(
    run: Callable[..., Any],
    sets: Sequence[tuple[Any, ...]],
    finish: Callable[[], None],
    blocker: Blocker | None,
    shared: Iterable[Any] = (),
) -> Work:
    """Work on sets of arrays in turn.

    Parameters
    ----------
    run : callable
        Enqueues the work on the arrays of a set, which are its arguments, without an event.
    sets : sequence of tuple
        The arrays of each.
    finish, blocker
        As for `timed_work`.
    shared : iterable of pyopencl.array.Array
        What else it reads.
    """
    for array in itertools.chain(*sets, shared):
        array.finish()  # events of the past, which every launch would wait for again
    next_sets = in_turn(sets)

    def enqueue(count: int) -> None:
        for arrays in next_sets(count):
            run(*arrays)

    return timed_work(enqueue, finish, blocker)


class AheadOfDevice:
    """Work that is enqueued while a kernel of known length holds the queue.

    What counts is the time from that kernel's start to the end of the work, minus what the same
    kernel alone takes usually. To wait for the kernel and start the clock then would not do: the
    host wakes late at times, when the work has long run.

    Parameters
    ----------
    enqueue : callable
        Enqueues the work so many times, without waiting.
    finish : callable
        Waits for the queue.
    blocker : Blocker
        Holds the queue.
    clock : callable, optional
        Replaced in tests.
    """

    def __init__(
        self,
        enqueue: Callable[[int], None],
        finish: Callable[[], None],
        blocker: Blocker,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._enqueue = enqueue
        self._finish = finish
        self._blocker = blocker
        self._clock = clock
        self._seconds = float("inf")
        self._hold = 0.0
        self._alone: deque[float] = deque(maxlen=_MOST_ALONE)

    def work(self, count: int) -> float:
        """Do the work so many times; gives the seconds that it took the device."""
        if count == 1 or self._seconds > LONGEST_PRODUCT:
            elapsed = self._plain(count)
            self._seconds = elapsed / count
            return elapsed
        calls = min(count, _MOST_CALLS)
        self._hold_at_least(calls * _HOLD_CALL + _SPARE_HOLD)
        for _ in range(_TRIES):
            alone = self._usual_alone()
            elapsed, enqueued = self._behind_blocker(calls)
            if enqueued is None or enqueued >= alone:
                if 2 * self._hold > _LONGEST_HOLD:
                    break
                self._hold_at_least(2 * self._hold)
            elif elapsed > alone:
                return (elapsed - alone) * count / calls
            # Else the blocker itself took longer alone than with all behind it: once more.
        self._hold = 0.0
        return self._plain(calls) * count / calls

    def _usual_alone(self) -> float:
        """Seconds that the blocker takes with nothing behind it, timed now and before."""
        for _ in range(max(1, _LEAST_ALONE - len(self._alone))):
            self._alone.append(self._behind_blocker(0)[0])
        return statistics.median_low(self._alone)

    def _hold_at_least(self, seconds: float) -> None:
        if seconds > self._hold:
            self._hold = seconds
            self._alone.clear()

    def _plain(self, calls: int) -> float:
        start = self._clock()
        self._enqueue(calls)
        self._finish()
        return self._clock() - start

    def _behind_blocker(self, calls: int) -> tuple[float, float | None]:
        return time_behind_blocker(
            self._blocker, self._hold, lambda: self._enqueue(calls), self._finish, self._clock
        )


def time_behind_blocker(
    blocker: Blocker,
    hold: float,
    enqueue: Callable[[], None],
    finish: Callable[[], None],
    clock: Callable[[], float],
) -> tuple[float, float | None]:
    """Time a blocker and what is enqueued behind it.

    Returns
    -------
    done : float
        Seconds until all is done.
    enqueued : float or None
        Seconds until all was enqueued; None if the blocker had ended by then.
    """
    start = clock()
    is_holding = blocker.hold(hold)
    enqueue()
    enqueued = clock() - start
    was_ahead = is_holding()
    finish()
    return clock() - start, enqueued if was_ahead else None
