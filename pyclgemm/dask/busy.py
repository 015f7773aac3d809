"""How long a device was busy, and with what, where several tasks share it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

#: What a device does, as the dashboard names it.
ACTIVITIES = TRANSFER, PRODUCT = "transfer", "product"
#: Any task has the device.
BUSY = "busy"


class BusyTimes:
    """Seconds in which at least one thread did something, for each activity."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys((BUSY, *ACTIVITIES), 0.0)
        self._told = dict(self._seconds)
        self._threads: Counter[str] = Counter()
        self._until = time.perf_counter()
        self._lock = threading.Lock()

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Count the time of a block of code."""
        self._change(activity, 1)
        try:
            yield
        finally:
            self._change(activity, -1)

    def read(self) -> dict[str, float]:
        """The seconds until now."""
        with self._lock:
            return self._counted()

    def since_last(self) -> dict[str, float]:
        """The seconds since the last such question."""
        with self._lock:
            before, self._told = self._told, self._counted()
            return {activity: self._told[activity] - before[activity] for activity in before}

    def _change(self, activity: str, threads: int) -> None:
        with self._lock:
            self._counted()
            self._threads[activity] += threads

    def _counted(self) -> dict[str, float]:
        """A copy of the seconds, after adding what has passed."""
        now = time.perf_counter()
        for activity, threads in self._threads.items():
            if threads:
                self._seconds[activity] += now - self._until
        self._until = now
        return dict(self._seconds)
