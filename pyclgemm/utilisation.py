"""How well the tiles of a product fill the device, and what edges cost. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .config import Config, CpuConfig, GemvUnitConfig, MatrixConfig, WgmmaConfig
from .problem import GemmProblem


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
    >>> from pyclgemm.inquiry import Inquiry, product_of
    >>> config = CpuConfig(MR=6, NR=64, KC=512, VW=16)
    >>> utilise(product_of(Inquiry(9, 96, 8)).problem, config, 3, 2, None)
    Utilisation(tiles=4, groups=3, units=2, waves=1.5, tail=0.75, balance=0.75, useful=0.5625)
    """
    waves = groups / (units * max(resident_groups or 1, 1))
    balance = groups / (units * math.ceil(groups / units))
    tile = tile_of(config)
    if tile is None:
        return Utilisation(None, groups, units, waves, waves / math.ceil(waves), balance, None)
    rows, columns, depth = tile
    tiles_m, tiles_n = math.ceil(problem.m / rows), math.ceil(problem.n / columns)
    done = tiles_m * rows * tiles_n * columns * math.ceil(problem.k / depth) * depth
    useful = problem.m * problem.n * problem.k / done
    return Utilisation(
        tiles_m * tiles_n, groups, units, waves, waves / math.ceil(waves), balance, useful
    )


def tile_of(config: Config) -> tuple[int, int, int] | None:
    """Rows, columns and depth to which a family rounds up; None for one without tiles."""
    if isinstance(config, CpuConfig):
        return config.MR, config.NR, 1
    if isinstance(config, MatrixConfig):
        return config.MWG, config.NWG, config.KWG
    if isinstance(config, WgmmaConfig):
        return config.MWG, config.NWG, config.DEPTH
    if isinstance(config, GemvUnitConfig):
        return config.MR, config.columns, config.depth
    tiles = getattr(config, "tiles", None)
    return None if tiles is None else (tiles.MWG, tiles.NWG, tiles.KWG)
