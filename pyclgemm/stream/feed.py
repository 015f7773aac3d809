"""Hand tiles to devices: each takes one when it would be the first to finish it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from .buffers import POLL
from .plan import Tile


class Feed:
    """The tiles of a product that are left, in progress, and done; for use by several threads.

    `rates` has the predicted tiles a second of each device by name; what a device does corrects it.
    """

    def __init__(self, tiles: Iterable[Tile], rates: Mapping[str, float], *, once: bool) -> None:
        self._left = list(tiles)
        self._total = sum(tile.block.size for tile in self._left)
        self._rates = dict(rates)
        self._began = dict.fromkeys(rates, 0.0)
        self._finished = dict.fromkeys(rates, 0)
        self._held: dict[str, list[Tile]] = {name: [] for name in rates}
        self._last: dict[str, Tile] = {}
        self._once = once  # a tile whose writing has begun cannot be computed again
        self._begun: set[Tile] = set()
        self._changed = threading.Condition()
        self._ended = 0
        self.is_stopped = False
        self.done: list[Tile] = []

    @property
    def is_complete(self) -> bool:
        """Whether every tile is done."""
        return not self._left and not any(self._held.values())

    @property
    def is_drained(self) -> bool:
        """Whether all tiles were drawn; those of a device that fails come back."""
        return not self._left

    def progress(self) -> tuple[int, int]:
        """Elements of the result that are done, and all."""
        with self._changed:
            return sum(tile.block.size for tile in self.done), self._total

    def draw(self, name: str, has_failed: Callable[[], bool] = lambda: False) -> Tile | None:
        """The next tile for a device; None once none is left, or it has failed.

        It waits while other devices will finish the rest earlier, as they may fail.
        """
        with self._changed:
            while self._left and not (self.is_stopped or has_failed()):
                if self._is_first_to_finish(name):
                    tile = min(self._left, key=lambda tile: self._distance(name, tile))
                    self._left.remove(tile)
                    self._held[name].append(tile)
                    self._last[name] = tile
                    if not self._began[name]:
                        self._began[name] = time.monotonic()
                    return tile
                self._changed.wait(POLL)
            return None

    def has_more(self) -> bool:
        """Wait until tiles are left, as other devices may fail; False once all are done."""
        with self._changed:
            while not (self._left or self.is_stopped or self.is_complete):
                self._changed.wait(POLL)
            return not (self.is_stopped or self.is_complete)

    def _distance(self, name: str, tile: Tile) -> tuple[bool, bool, int]:
        """How little a tile shares with what the device has, and with what others work on."""
        if len(self._held) == 1:
            return False, False, tile.index
        last = self._last.get(name)
        others = (one.block[:2] for other, one in self._last.items() if other != name)
        is_other_row = last is not None and last.block[:2] != tile.block[:2]
        starts_others = (last is None or is_other_row) and tile.block[:2] in others
        return is_other_row, starts_others, tile.index

    def _is_first_to_finish(self, name: str) -> bool:
        """Whether the device gets a tile if each of those left goes to the first to finish it."""
        if len(self._held) == 1:
            return True
        ends = {one: len(held) for one, held in self._held.items()}
        for _ in self._left:
            first = min(ends, key=lambda one: (ends[one] + 1) / self._rates[one])
            if first == name:
                return True
            ends[first] += 1
        return False

    def write_begins(self, tile: Tile) -> None:
        """A tile's entries of the destination are about to be overwritten."""
        if self._once:
            with self._changed:
                self._begun.add(tile)

    def finish(self, name: str, tile: Tile) -> None:
        """A device has written a tile to the destination."""
        with self._changed:
            self._held[name].remove(tile)
            self.done.append(tile)
            self._finished[name] += 1
            seconds = time.monotonic() - self._began[name]
            self._rates[name] = self._finished[name] / max(seconds, 1e-6)
            self._changed.notify_all()

    def give_back(self, name: str, *, leaves: bool) -> bool:
        """Return a failed device's tiles; False, and all stop, if one cannot be computed again."""
        with self._changed:
            held = self._held[name]
            self._left = sorted([*held, *self._left], key=lambda tile: tile.index)
            can_repeat = self._begun.isdisjoint(held)
            self.is_stopped = self.is_stopped or not can_repeat
            self._held[name] = []
            if leaves:
                del self._held[name]
                self._last.pop(name, None)
            self._changed.notify_all()
            return can_repeat

    def stop(self) -> None:
        """Let every device end after its present products."""
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()

    def leave(self) -> None:
        """A device's thread ends."""
        with self._changed:
            self._ended += 1
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until something changes, for at most these seconds; False once all devices ended."""
        with self._changed:
            if self._ended < len(self._rates):
                self._changed.wait(seconds)
            return self._ended < len(self._rates)
