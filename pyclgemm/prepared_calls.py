"""What calls prepared, kept for later calls of the same kind."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Prepared = TypeVar("Prepared")


class PreparedCalls(Generic[Prepared]):
    """Prepared calls by all that they depend on, the oldest dropped first. Threads may share it.

    Parameters
    ----------
    most : int
        How many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: dict[Any, Prepared] = {}

    def get(self, key: Any) -> Prepared | None:
        """What was kept for a call, if anything."""
        try:
            return self._calls.get(key)
        except TypeError:  # an argument that cannot be hashed, which is refused by its name
            return None

    def take(self, key: Any) -> Prepared | None:
        """The same, and it is kept no longer."""
        return self._calls.pop(key, None)

    def keep(self, key: Any, prepared: Prepared) -> None:
        """Keep what was prepared for a call."""
        self._calls[key] = prepared
        while len(self._calls) > self._most:
            # A list, since another thread's entry would end a walk over the dictionary itself.
            self._calls.pop(next(iter(list(self._calls)), None), None)
