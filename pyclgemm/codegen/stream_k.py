"""How the tiles of a result are divided among work-groups: one each, or evenly by slabs of k."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..device.traits import DeviceTraits
from ..problem.problem import GemmProblem
from .element import operand_type

#: Up to so many partial sums of a tile are joined at once; more in two steps.
FAN_IN = 12

#: Fewest slabs of k that are worth a work-group of their own.
_LEAST_SLABS = 2

#: Partial sums that a work-item loads at once.
_JOINED_SUMS = 128

#: Part of the work-groups that must be busy for each tile to be divided into equal parts.
_BUSY = 0.85


@dataclass(frozen=True)
class Share:
    """A division of tiles.

    Attributes
    ----------
    groups : int
        Work-groups.
    rounds : int
        Tiles that each of them computes whole, before those that are left are divided.
    """

    groups: int
    rounds: int

    @property
    def slots(self) -> int:
        """Places for the partial sums of a tile: each group works on parts of two at most."""
        return 2 * self.groups

    @property
    def counters(self) -> int:
        """Counters of arrivals: one for each slot in both steps of joining."""
        return 2 * self.slots

    def partial_sums(self, tiles: int, slabs: int) -> int:
        """How many times sums of a tile are written to memory; each is read once, to be joined.

        Of a tile that is divided each work-group writes its sums; where they are joined in
        two steps, so does each that goes on to the second.

        Parameters
        ----------
        tiles, slabs : int
            As for `divide`, which gave this division of them.

        Examples
        --------
        >>> divide(tiles=1, slabs=8, groups=4).partial_sums(tiles=1, slabs=8)
        4
        >>> divide(tiles=132, slabs=8, groups=132).partial_sums(tiles=132, slabs=8)
        0
        """
        divided = (tiles - self.rounds * self.groups) * slabs
        written = 0
        for beginning in range(0, divided, slabs):
            lowest, highest = (
                ((slab + 1) * self.groups - 1) // divided
                for slab in (beginning, beginning + slabs - 1)
            )
            sharers = highest - lowest + 1
            neighbours = max(FAN_IN, math.ceil(math.sqrt(sharers)))
            if sharers > 1:
                written += sharers
            if sharers > neighbours:
                written += math.ceil(sharers / neighbours)
        return written


@dataclass(frozen=True)
class Sharing:
    """What kernels whose work-groups share tiles are written with.

    Attributes
    ----------
    counts : "uint" or "ulong"
        The C type that holds the slabs of all divided tiles, times work-groups. Divisions of 64
        bits take many instructions, which a group waits for before its first load.
    unrolling : int
        Partial sums whose loads are under way at once while they are joined.
    fan_in : int
        `FAN_IN`.
    """

    counts: str
    unrolling: int
    fan_in: int = FAN_IN


def sharing(slabs: int, groups: int, sums: int) -> Sharing:
    """How kernels are written of which up to so many `groups` share tiles of `slabs` slabs.

    Parameters
    ----------
    slabs : int
        Slabs of a tile.
    groups : int
        Most work-groups.
    sums : int
        Sums of a work-item: with those of other groups they must fit its registers.

    Examples
    --------
    >>> sharing(slabs=64, groups=132, sums=32)
    Sharing(counts='uint', unrolling=4, fan_in=12)
    """
    most = 2 * groups * slabs * (groups + 1)  # fewer than two rounds of tiles are divided
    return Sharing("uint" if most < 2**32 else "ulong", min(FAN_IN, max(1, _JOINED_SUMS // sums)))


def divide(tiles: int, slabs: int, groups: int) -> Share:
    """Divide `tiles` tiles of `slabs` slabs each among about `groups` work-groups.

    Many tiles are computed whole for as long as that keeps all groups busy; one to two
    rounds of tiles are left, whose slabs are divided evenly ("two-tile Stream-K" of Osama et
    al., PPoPP 2023). Few tiles are divided into equal parts, if nearly all groups then have
    one.

    Examples
    --------
    >>> divide(tiles=512, slabs=256, groups=132)
    Share(groups=132, rounds=2)
    >>> divide(tiles=1, slabs=6250, groups=264)
    Share(groups=264, rounds=0)
    >>> divide(tiles=30, slabs=64, groups=132)
    Share(groups=120, rounds=0)
    """
    groups = min(groups, max(tiles, tiles * slabs // _LEAST_SLABS))
    if tiles % groups == 0:
        return Share(groups, tiles // groups)
    if tiles > groups:
        return Share(groups, tiles // groups - 1)
    equal = groups // tiles * tiles
    return Share(equal if equal >= _BUSY * groups else groups, 0)


def slab_count(k: int, depth: int) -> int:
    """Slabs of `depth` that make up k; of none there is one, whose result is beta C.

    Examples
    --------
    >>> slab_count(100, 32), slab_count(0, 32)
    (4, 1)
    """
    return max(1, math.ceil(k / depth))


def tile_count(m: int, n: int, rows: int, columns: int) -> int:
    """Tiles of `rows` x `columns` that cover an m x n result."""
    return math.ceil(m / rows) * math.ceil(n / columns)


@dataclass(frozen=True)
class TileLaunch:
    """Work-groups of a kernel of tiles, with the values and workspaces that splitting k needs."""

    groups: int
    values: dict[str, int]
    workspaces: dict[str, int]


def launch_tiles(
    problem: GemmProblem, rows: int, columns: int, depth: int, fill: int, traits: DeviceTraits
) -> TileLaunch:
    """A work-group for each tile; or, by FILL, as many as split the k loops of all tiles."""
    tiles = tile_count(problem.m, problem.n, rows, columns) * problem.products
    if not fill:
        return TileLaunch(tiles, {}, {})
    share = divide(tiles, slab_count(problem.k, depth), fill * traits.compute_units)
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    workspaces = {
        "partial_sums": share.slots * rows * columns * element.bytes,
        "counters": 4 * share.counters,
    }
    return TileLaunch(share.groups, {"rounds": share.rounds}, workspaces)
