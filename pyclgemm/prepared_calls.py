"""What calls prepared, kept for later calls of the same kind."""

from __future__ import annotations

import threading
from typing import Any, Generic, TypeVar

Prepared = TypeVar("Prepared")


class PreparedCalls(Generic[Prepared]):
    """Prepared calls by all that they depend on, the oldest dropped first.

    Parameters
    ----------
    most : int
        How many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: dict[Any, Prepared] = {}
        self._lock = threading.Lock()

    def get(self, key: Any) -> Prepared | None:
        """What was kept for a call, if anything."""
        try:
            return self._calls.get(key)
        except TypeError:  # an argument that cannot be hashed, which is refused by its name
            return None

    def keep(self, key: Any, prepared: Prepared) -> None:
        """Keep what was prepared for a call."""
        with self._lock:  # another thread's entry would end the search for the oldest one
            if len(self._calls) >= self._most:
                self._calls.pop(next(iter(self._calls)))
            self._calls[key] = prepared
