"""How well the tiles of a product fill the device, and what edges cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..codegen.config import Config
from ..codegen.stream_k import tile_count
from ..families.family import Role
from ..families.registry import family_of
from ..problem.problem import GemmProblem


@dataclass(frozen=True)
class Utilisation:
    """Tiles, work-groups and compute units of a product.

    Attributes
    ----------
    tiles : int or None
        Tiles of the result; None for a family without tiles.
    groups : int
        Work-groups of the launch.
    units : int
        Compute units.
    waves : float
        Work-groups over those that are resident at a time (one a compute unit, where
        occupancy is not known).
    tail : float
        Part of the resident places that are taken, on average over the waves: 1 if the last
        wave is full.
    balance : float
        Work-groups over the places of the fullest compute unit on all of them: at most this
        part of the device's arithmetic is used. 132 work-groups on 132 units: 1; 133: 0.504.
    useful : float or None
        Multiply-adds that the product needs over those that its tiles do, edges included.
    """

    tiles: int | None
    groups: int
    units: int
    waves: float
    tail: float
    balance: float
    useful: float | None


def utilise(
    problem: GemmProblem,
    config: Config,
    groups: int,
    units: int,
    resident_groups: int | None,
) -> Utilisation:
    """Relate a launch to the device.

    Parameters
    ----------
    problem : GemmProblem
        The product; no size is zero.
    config : Config
        Of any family.
    groups, units : int
        Work-groups of the launch, and compute units.
    resident_groups : int or None
        Work-groups resident on a compute unit, if known.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> from pyclgemm.problem.shape import GemmShape
    >>> config = CpuConfig(MR=6, NR=64, KC=512, VW=16)
    >>> utilise(GemmShape(9, 96, 8).problem(), config, 3, 2, None)
    Utilisation(tiles=4, groups=3, units=2, waves=1.5, tail=0.75, balance=0.75, useful=0.5625)
    """
    waves = groups / (units * max(resident_groups or 1, 1))
    balance = groups / (units * math.ceil(groups / units))
    tail = waves / math.ceil(waves)
    family = family_of(config)
    if family.role is Role.SMALL_BATCH:
        return Utilisation(None, groups, units, waves, tail, balance, None)
    tile = family.tile(config)
    tiles = tile_count(problem.m, problem.n, tile.rows, tile.columns)
    done = tiles * tile.rows * tile.columns * math.ceil(problem.k / tile.depth) * tile.depth
    useful = problem.m * problem.n * problem.k / done
    return Utilisation(tiles, groups, units, waves, tail, balance, useful)
