"""Time short products on a queue that the host has filled ahead of the device.

One call from Python costs the host 8 us and more, longer than a small product takes on a
GPU, so a plain loop times the host. cuBLAS is spared that by a CUDA graph. The counterpart
here: a kernel of known length holds the queue while the products are enqueued behind it.
What counts is the time from its start to the end of the last product, minus that of the
same kernel alone, measured in turn. To wait for the kernel's event and start the clock then
would not do: the host wakes late at times, when products have long run.
"""

from __future__ import annotations

import statistics
from typing import Protocol

from benchmarks.session.burst import Clock, Contender, Sample
from pyclgemm.measure.filled_queue import Blocker
from pyclgemm.measure.timing import time_behind_blocker

#: Launches on their way at a time: drivers make the host wait from about 1000 on.
_MOST_LAUNCHES = 500
_MOST_CALLS = 200
_LEAST_CALLS = 8

#: Seconds for which the queue is held, at first beyond what enqueueing is expected to take.
_SPARE_HOLD = 0.3e-3
_LONGEST_HOLD = 0.02

#: Bursts, each beside the blocker alone, of whose medians a sample is made.
_REPEATS = 3

#: Numbers of calls that are tried.
_TRIES = 8


class QueueNotFilledError(RuntimeError):
    """The host did not get ahead of the device."""


class BlockerVariesError(QueueNotFilledError):
    """The burst is too short to be told from the blocker's own variation."""


class QueuedContender(Contender, Protocol):
    """A contender all of whose work goes to the queue that is held."""

    def enqueue_ahead(self, calls: int) -> None:
        """Enqueue so many products, without any wait."""


class FilledBurst:
    """Calls timed behind a kernel that holds the queue.

    Parameters
    ----------
    contender : QueuedContender
        Called before.
    calls : int
        In a burst.
    blocker : Blocker
        Holds the contender's queue.
    hold : float
        Seconds to hold it, at first; it grows where the host is slower.
    clock : Clock
        Source of time.
    """

    clock_name = "queue filled"

    def __init__(
        self, contender: QueuedContender, calls: int, blocker: Blocker, hold: float, clock: Clock
    ) -> None:
        self.contender = contender
        self.calls = calls
        self.hold = hold
        self._blocker = blocker
        self._clock = clock

    def sample(self) -> Sample:
        """Time it once.

        Raises
        ------
        QueueNotFilledError
            If the host did not get ahead of the device behind the longest blocker.
        BlockerVariesError
            If the blocker's own time varies more than the products take.
        """
        clock = self._clock
        start = clock.now()
        alone: list[float] = []
        behind: list[float] = []
        while len(behind) < _REPEATS:
            blocker_seconds, _ = self._time(0)
            seconds, was_ahead = self._time(self.calls, blocker_seconds)
            # Not by what came out: to drop what seems too fast would make all seem slower.
            if was_ahead:
                alone.append(blocker_seconds)
                behind.append(seconds)
            else:  # the clock ran while the device waited for the host
                self._hold_longer()
                alone.clear()
                behind.clear()
        worked = statistics.median(behind) - statistics.median(alone)
        if worked <= 0.0:
            raise BlockerVariesError(
                f"{self.calls} calls of {self.contender.name} take less than the blocker's time "
                "varies"
            )
        return Sample(worked / self.calls, clock.now() - start, _REPEATS * worked)

    def _time(self, calls: int, blocker_seconds: float = 0.0) -> tuple[float, bool]:
        """Seconds of the blocker and so many calls, and whether all were enqueued behind it."""
        contender = self.contender
        done, enqueued = time_behind_blocker(
            self._blocker, self.hold, lambda: contender.enqueue_ahead(calls), contender.finish,
            self._clock.now,
        )  # fmt: skip
        return done, enqueued is not None and enqueued < blocker_seconds

    def _hold_longer(self) -> None:
        if self.hold >= _LONGEST_HOLD:
            raise QueueNotFilledError(
                f"{self.calls} calls of {self.contender.name} were not enqueued within "
                f"{1e3 * self.hold:.3g} ms"
            )
        self.hold = min(2 * self.hold, _LONGEST_HOLD)


def fill_queue(
    contender: QueuedContender, wanted_calls: int, blocker: Blocker, clock: Clock
) -> tuple[FilledBurst, Sample] | None:
    """Find how many calls the host gets ahead of the device with, and for how long to hold it.

    Parameters
    ----------
    contender : QueuedContender
        Called before.
    wanted_calls : int
        That a burst should have. More are taken where so many are lost in the blocker's
        variation: the count may come from calls that the machine held up.
    blocker : Blocker
        Holds the contender's queue.
    clock : Clock
        Source of time.

    Returns
    -------
    FilledBurst, Sample
        And how it did; or None where the host never gets ahead, because the library waits,
        say, or the blocker's time varies too much.
    """
    assert contender.launches is not None
    most = min(_MOST_CALLS, _MOST_LAUNCHES // contender.launches)
    calls = min(wanted_calls, most)
    least = min(calls, _LEAST_CALLS)
    for _ in range(_TRIES):
        start = clock.now()
        contender.enqueue_ahead(calls)
        hold = 1.5 * (clock.now() - start) + _SPARE_HOLD
        contender.finish()
        burst = FilledBurst(contender, calls, blocker, min(hold, _LONGEST_HOLD), clock)
        try:
            return burst, burst.sample()
        except BlockerVariesError:
            calls = min(2 * calls, most)
        except QueueNotFilledError:
            calls //= 2
        if calls < least:
            break
    return None
