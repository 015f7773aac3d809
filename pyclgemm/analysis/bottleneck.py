"""What limits a product: how it fills a device, the time that each ceiling alone would take.

It says what to try, too. All of it is pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..codegen.config import Config
from ..codegen.stream_k import tile_count
from ..families.family import Role, Traffic
from ..families.registry import family_of
from ..problem.problem import GemmProblem
from .ceilings import Ceilings
from .occupancy import Occupancy

#: Below this part of the time, the largest bound does not explain it.
_EXPLAINS = 0.5
#: Parts of balance, useful work and occupancy below which they are named as the reason.
_FULL = 0.9
_FEW_SUB_GROUPS = 0.2


@dataclass(frozen=True)
class Utilisation:
    """How well the tiles of a product fill the device, and what edges cost."""

    tiles: int | None  # of the result; None for a family without tiles
    groups: int  # work-groups of the launch
    units: int  # compute units
    waves: float  # work-groups over those resident at a time (one a unit if that is not known)
    tail: float  # mean part of the resident work-groups over the waves: 1 if the last is full
    # Mean work-groups of a compute unit over those of the fullest: at most this part of the
    # device's arithmetic is used. 132 work-groups on 132 units: 1; 133: 0.504.
    balance: float
    useful: float | None  # multiply-adds of the product over those of its tiles, edges included


def utilise(
    problem: GemmProblem, config: Config, groups: int, units: int, resident_groups: int | None
) -> Utilisation:
    """Relate the work-groups of a launch to compute units; no size of the product is zero.

    `resident_groups` are those of one compute unit, if known.

    Examples
    --------
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


@dataclass(frozen=True)
class Bound:
    """The least time that one resource allows."""

    name: str  # "arithmetic", "global memory", "cache", "local memory" or "launches"
    seconds: float  # what the product would take if nothing else mattered
    share: float  # that, over the time that it took


@dataclass(frozen=True)
class Verdict:
    """What limits a product."""

    limit: str  # the name of the largest bound, or "latency" where none explains the time
    kind: str  # "compute-bound", "memory-bound" or "latency-bound"
    reason: str  # why, a sentence
    advice: str  # what to try, a sentence


def bounds_of(
    flops: int,
    peak: float | None,
    traffic: Traffic,
    launches: int,
    utilisation: Utilisation,
    ceilings: Ceilings,
    seconds: float,
) -> tuple[Bound, ...]:
    """The time that each ceiling alone would take, the largest first.

    `flops` are the useful operations, `peak` the GFLOPS of the arithmetic by `Ceilings.peak` (None
    if not known), `launches` the number of kernels, `seconds` what the product took. Idle compute
    units and padded tiles raise the time of arithmetic.
    """
    done = flops / (utilisation.useful or 1.0) / utilisation.balance
    times = {
        "arithmetic": done / (peak * 1e9) if peak else None,
        "global memory": traffic.global_memory / (ceilings.global_memory * 1e9),
        "launches": launches * ceilings.launch_seconds,
    }
    if ceilings.cache and traffic.cache:
        times["cache"] = traffic.cache / (ceilings.cache * 1e9)
    if ceilings.local_memory and traffic.local:
        times["local memory"] = traffic.local / (ceilings.local_memory * 1e9) / utilisation.balance
    bounds = [Bound(name, time, time / seconds) for name, time in times.items() if time is not None]
    return tuple(sorted(bounds, key=lambda bound: -bound.share))


def judge(
    bounds: Sequence[Bound],
    utilisation: Utilisation,
    occupancy: Occupancy,
    traffic: Traffic,
    config: Config,
) -> Verdict:
    """Say what limits a product by its bounds, as `bounds_of` gives them, and what to try."""
    first = bounds[0]
    share = f"{first.share:.0%} of the time"
    if first.share < _EXPLAINS:
        reason = (
            f"no ceiling explains the time: {first.name}, the nearest, would take "
            f"{first.share:.0%} of it"
        )
        advice = _latency_advice(utilisation, occupancy, config)
        return Verdict("latency", "latency-bound", reason, advice)
    if first.name == "arithmetic":
        reason = f"its multiply-adds alone take {share} at the measured peak{_waste(utilisation)}"
        advice = _arithmetic_advice(utilisation, config)
        return Verdict("arithmetic", "compute-bound", reason, advice)
    if first.name == "launches":
        reason = f"launching kernels alone takes {share}"
        advice = (
            "one launch instead of several (the direct path, operands packed ahead), or "
            "several products in one"
        )
        return Verdict("launches", "latency-bound", reason, advice)
    reason = f"moving its bytes through {first.name} alone takes {share}"
    return Verdict(first.name, "memory-bound", reason, _memory_advice(first.name, traffic, config))


def _memory_advice(name: str, traffic: Traffic, config: Config) -> str:
    others = {"cache": traffic.tiles, "global memory": traffic.least + traffic.packing}.get(name)
    if others and traffic.joining > others:
        return (
            "joining partial sums moves more than all else: fewer work-groups that share a tile "
            "(FILL), or a smaller tile"
        )
    if name == "cache":
        return (
            "a larger tile of the work-group (MWG, NWG) reads less, and GROUP_M keeps what "
            "neighbours share in the cache"
        )
    if name == "local memory":
        return family_of(config).advice.local_memory
    if traffic.packing >= traffic.least:
        return (
            "packing moves more than the product itself: `pack` for a constant operand, or a "
            "path that does not pack"
        )
    return (
        "nothing but fewer bytes helps: a narrower type, an epilogue in the same kernel, "
        "operands packed ahead"
    )


def _waste(utilisation: Utilisation) -> str:
    parts = []
    if utilisation.balance < _FULL:
        parts.append(f"{1 - utilisation.balance:.0%} of the device's units idle")
    if utilisation.useful is not None and utilisation.useful < _FULL:
        parts.append(f"{1 - utilisation.useful:.0%} of the work padding at edges")
    return f" ({' and '.join(parts)})" if parts else ""


def _arithmetic_advice(utilisation: Utilisation, config: Config) -> str:
    if utilisation.useful is not None and utilisation.useful < min(_FULL, utilisation.balance):
        return "a tile that divides the result with less padding"
    if utilisation.balance < _FULL:
        return _balance_advice(config, "tiles whose number is a multiple of the compute units")
    return "little is left but fewer instructions beside the multiply-adds, or a lower precision"


def _latency_advice(utilisation: Utilisation, occupancy: Occupancy, config: Config) -> str:
    share = occupancy.share
    family = family_of(config)
    if family.on_cpu:
        return family.advice.latency
    if utilisation.groups < utilisation.units and utilisation.balance < _FULL:
        return (
            f"only {utilisation.groups} work-groups for {utilisation.units} compute units: "
            f"{_balance_advice(config, 'a smaller tile')}"
        )
    if share is not None and share < _FEW_SUB_GROUPS:
        staged = ", or more on its way in each (STAGES)" if "STAGES" in config.as_dict() else ""
        return (
            f"{occupancy.sub_groups} of {occupancy.most_sub_groups} sub-groups are resident, "
            f"limited by {occupancy.limit}: a smaller tile or shallower slab{staged}"
        )
    return family.advice.latency


def _balance_advice(config: Config, fitting: str) -> str:
    """What gives every compute unit as much to do; `fitting` is what tiles could do."""
    if balance := family_of(config).advice.balance:
        return balance
    fill = config.as_dict().get("FILL")
    if fill is None:
        return fitting
    if fill:
        return "a smaller tile or a shallower slab, so that FILL has more to divide"
    return f"{fitting}, or FILL, which divides k among work-groups"
