"""Stream-K: the division of tiles of the result among work-groups, whole or by slabs of k."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .source import Argument

Column = NDArray[np.float64]

#: Most partial sums of a tile that are added up in one step; more take two steps.
FAN_IN = 12

#: Most sums of a work-item that adds up many partial sums in a step. With more, too few registers
#: are left to load them ahead, and a step adds the partial sums of two work-groups. With 160 to 192
#: sums (wgmma on an H200) 227 kernels took 0.55 to 1.08 of the time, in the mean 0.94. With fewer
#: sums, steps of many took as long, or 0.8 of the time where many work-groups share a tile.
_MOST_TO_JOIN_MANY = 150
#: Partial sums that those with more add up in a step.
PAIRS = 2

#: Fewest slabs of k for which a work-group is worthwhile.
LEAST_SLABS = 2

#: Partial sums that a work-item loads at once.
_JOINED_SUMS = 128

#: The time to read and add one more tile of partial sums, relative to that of a step of joining.
_ADDING = 0.12


def fan_in(own_sums: int) -> int:
    """How many partial sums of a tile a step adds up if each work-item has `own_sums` sums."""
    return FAN_IN if own_sums <= _MOST_TO_JOIN_MANY else PAIRS


def _neighbours(sums: int | Column) -> Column:
    """How many of a tile's partial sums are added up in the first step."""
    return np.maximum(np.ceil(np.sqrt(sums)), FAN_IN)


@dataclass(frozen=True)
class Division:
    """A division of tiles among work-groups."""

    groups: int  # work-groups
    rounds: int  # tiles that each computes whole, before the remaining tiles are divided
    fan_in: int = FAN_IN  # partial sums of a tile that are added up in one step

    @property
    def slots(self) -> int:
        """Sets of partial sums: a work-group has sums of two tiles."""
        return 2 * self.groups

    @property
    def counters(self) -> int:
        """Counters of arrivals: one for each slot in each step of adding."""
        steps = (self.groups - 1).bit_length() if self.fan_in == PAIRS else 2
        return max(1, steps) * self.slots

    def group_of(self, slab: int, divided: int) -> int:
        """The work-group that multiplies a slab of the `divided` ones."""
        return ((slab + 1) * self.groups - 1) // divided

    def partial_sums(self, tiles: int, slabs: int) -> int:
        """How often sums of a tile are written: by each work-group, and again for later steps."""
        divided = (tiles - self.rounds * self.groups) * slabs
        written = 0
        for beginning in range(0, divided, slabs):
            lowest, highest = (
                self.group_of(slab, divided) for slab in (beginning, beginning + slabs - 1)
            )
            contributors = highest - lowest + 1
            neighbours = PAIRS if self.fan_in == PAIRS else int(_neighbours(contributors))
            while contributors > 1:
                written += contributors - (self.fan_in == PAIRS and contributors % 2)
                contributors = math.ceil(contributors / neighbours)
        return written


#: A barrier of all work-items of a work-group, and the one that ends a tile.
_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_END_OF_TILE = f"{_BARRIER}  // as at the end of a tile"


@dataclass
class StreamK:
    """How a kernel splits the k loops of tiles and adds up partial sums; strings are C."""

    slabs: int  # of a tile
    groups: int  # work-groups
    own_sums: int  # sums of a work-item
    own: str  # the number of a work-item among those that have sums
    index: str  # of a sum, for work-item 0
    sum: str  # a sum
    first: str = "item == 0"  # whether a work-item is the first of those that have sums
    wait: str = _BARRIER  # a barrier of all that have sums
    end: str = _END_OF_TILE  # executed before another work-group finishes the tile
    type: str = "element"  # C type of a sum
    add: str = ""  # a function that adds two sums; empty for the operator
    sliced: bool = False  # whether only the first slice has sums
    fan_in: int = FAN_IN  # partial sums that are added up in one step

    def __post_init__(self) -> None:
        self.by_pairs = self.fan_in == PAIRS
        # The C type of the number of slabs of all divided tiles (less than two rounds) times the
        # number of work-groups. Divisions of 64 bits take many instructions, which delay a group's
        # first load.
        most = 2 * self.groups * self.slabs * (self.groups + 1)
        self.counts = "uint" if most < 2**32 else "ulong"
        # Partial sums that are loaded at once while they are added up: all of a step, or a power of
        # two. By 5 and by 3, for 24 and 40 sums, NVIDIA's compiler (driver 580) unrolled the loop
        # wrongly; by FAN_IN and by powers of two it did so in no kernel that was measured.
        at_once = max(1, _JOINED_SUMS // self.own_sums)
        self.unrolling = FAN_IN if at_once >= FAN_IN else 1 << at_once.bit_length() - 1

    def arguments(self, element: str) -> tuple[Argument, ...]:
        """The additional arguments of a kernel whose elements have this C type."""
        return (
            Argument("rounds", "int"),
            Argument("partial_sums", "output", element if self.type == "element" else self.type),
            Argument("counters", "output", "int"),
        )


def divide(tiles: int, slabs: int, groups: int, joining: float, fan_in: int = FAN_IN) -> Division:
    """Divide `tiles` tiles of `slabs` slabs each among about `groups` work-groups.

    Work-groups compute whole tiles as long as that keeps all of them busy. The slabs of the last
    one to two rounds of tiles are divided evenly ("two-tile Stream-K" of Osama et al., PPoPP 2023).
    If there are fewer tiles than work-groups, `few_tiles` divides them.
    """
    groups = min(groups, max(tiles, tiles * slabs // LEAST_SLABS))
    if tiles % groups == 0:
        return Division(groups, tiles // groups, fan_in)
    if tiles > groups:
        return Division(groups, tiles // groups - 1, fan_in)
    case = np.array([[tiles], [slabs], [groups], [joining], [fan_in]], float)
    (parts,), _, _ = few_tiles(*case)
    groups, rounds = (tiles, 1) if parts == 1 else (round(tiles * parts), 0)
    return Division(groups, rounds, fan_in)


def few_tiles(
    tiles: Column, slabs: Column, groups: Column, joining: Column, fan_in: Column
) -> tuple[Column, Column, Column]:
    """Divide tiles that are fewer than work-groups, in each of many cases.

    Either each tile is divided into equal parts or all slabs are divided evenly among all
    work-groups, whatever ends first if a step that joins up to `fan_in` partial sums takes as long
    as `joining` slabs. Returns the parts of a tile, the steps that join them and the sums that they
    read.
    """
    # Rows of `parts` are alternatives; only those of the last one may be uneven.
    parts = np.empty((5, len(tiles)))
    parts[0] = 1
    parts[1] = np.sqrt(slabs / (_ADDING * joining)).round()  # adding more costs more than it saves
    parts[2] = FAN_IN
    parts[4] = groups / tiles
    parts[3] = np.floor(parts[4])
    np.minimum(parts[1:3], parts[3], out=parts[1:3])
    np.maximum(parts[1], 1, out=parts[1])
    sums = np.ceil(parts)
    # In uneven parts a work-group has the end of one tile and the beginning of the next.
    uneven = sums[4] > parts[4]
    sums[4] += uneven
    twice = sums > FAN_IN
    steps = 1.0 + twice
    neighbours = _neighbours(sums)
    read = np.where(twice, neighbours + np.ceil(sums / neighbours), sums)
    if (by_pairs := fan_in == PAIRS).any():
        levels = np.ceil(np.log2(sums))
        steps, read = np.where(by_pairs, levels, steps), np.where(by_pairs, levels, read)
    steps[4] += uneven
    is_divided = parts != 1
    steps *= is_divided
    read *= is_divided
    durations = np.ceil(slabs / parts) + joining * (steps + _ADDING * read)
    chosen = durations.argmin(axis=0) * len(tiles) + np.arange(len(tiles))
    return parts.take(chosen), steps.take(chosen), read.take(chosen)


def slab_count(k: int, depth: int) -> int:
    """Slabs of `depth` that cover k; at least one, for the result beta C if k is 0."""
    return max(1, math.ceil(k / depth))


def tile_count(m: int, n: int, rows: int, columns: int) -> int:
    """Tiles of `rows` x `columns` that cover an m x n result."""
    return math.ceil(m / rows) * math.ceil(n / columns)
