"""What kernels_cl/common/stream_k.mako computes, in Python: which work-group does what."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import strategies as st

from pyclgemm.codegen.stream_k import FAN_IN, Share


@dataclass(frozen=True)
class Part:
    """Slabs `first` to `last` of a tile, as one work-group computes them."""

    group: int
    tile: int
    first: int
    last: int


@dataclass(frozen=True)
class Kernel:
    """What kernels_cl/common/stream_k.mako computes from its arguments."""

    tiles: int
    slabs: int
    groups: int
    rounds: int

    @property
    def whole_tiles(self) -> int:
        return self.rounds * self.groups

    @property
    def divided(self) -> int:
        return (self.tiles - self.whole_tiles) * self.slabs

    def parts(self, group: int) -> list[Part]:
        position = self.divided * group // self.groups
        end = self.divided * (group + 1) // self.groups
        parts = []
        turn = 0
        while turn < self.rounds or position < end:
            tile, first, last = turn * self.groups + group, 0, self.slabs
            if turn >= self.rounds:
                tile = self.whole_tiles + position // self.slabs
                first = position % self.slabs
                last = min(self.slabs, first + end - position)
                position += last - first
            parts.append(Part(group, tile, first, last))
            turn += 1
        return parts

    def group_of(self, slab: int) -> int:
        return ((slab + 1) * self.groups - 1) // self.divided

    @staticmethod
    def slot_of(group: int, is_beginning: bool) -> int:
        return 2 * group + is_beginning

    def sharers(self, tile: int) -> tuple[int, int]:
        """The lowest group that shares a tile, and how many do."""
        beginning = (tile - self.whole_tiles) * self.slabs
        lowest = self.group_of(beginning)
        return lowest, self.group_of(beginning + self.slabs - 1) - lowest + 1

    def is_partial(self, part: Part) -> bool:
        return part.last - part.first < self.slabs

    def slot(self, part: Part) -> int:
        """Where the first partial sums of a group go."""
        lowest, _ = self.sharers(part.tile)
        return self.slot_of(part.group, part.group == lowest)


def kernel_of(tiles: int, slabs: int, share: Share) -> Kernel:
    return Kernel(tiles, slabs, share.groups, share.rounds)


SHAPES = {
    "tiles": st.one_of(st.integers(1, 40), st.integers(1, 3000)),
    "slabs": st.one_of(st.integers(1, 12), st.integers(1, 7000)),
    "groups": st.one_of(st.integers(1, 12), st.integers(1, 600)),
}
SMALL_SHAPES = {
    "tiles": st.integers(1, 30),
    "slabs": st.integers(1, 200),
    "groups": st.integers(1, 150),
}


def neighbours_of(sharers: int) -> int:
    """How many partial sums are joined at once."""
    return max(FAN_IN, math.ceil(math.sqrt(sharers)))
