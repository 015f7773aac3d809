"""Configurations by chance: legal ones from the tuner's space, and others by mutation."""

import functools
import random
from typing import Any

from pyclgemm.codegen.config import Config
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.tuning.search import SearchSpace, search_space

#: How often each family is drawn on a CPU and on a GPU; None lets the library choose.
WEIGHTS: dict[str, dict[str | None, int]] = {
    "cpu": {"cpu": 9, "small_cpu": 5, "direct": 4, "indirect": 4, "gemv": 3, "small": 3, None: 3},
    "gpu": {
        "direct": 6, "indirect": 6, "gemv": 3, "small": 4, "matrix": 6, "wgmma": 4,
        "gemv_unit": 2, None: 4,
    },
}  # fmt: skip

#: Larger tiles take CPUs' compilers seconds, and show nothing that smaller ones do not.
_MOST_CPU_TILE = 64 * 64
_MOST_CPU_SUMS = 64
#: Tries at a configuration of a family.
_TRIES = 12


@functools.cache
def _space(family: str, dtype: str, precision: str | None, traits: DeviceTraits) -> SearchSpace:
    algorithm = resolve_precision(precision, dtype)
    return search_space(family, dtype, traits, algorithm)


def drawn_config(
    rng: random.Random, family: str, dtype: str, precision: str | None, traits: DeviceTraits
) -> Config | None:
    """A legal configuration of a family, quick to build; None if none was found."""
    space = _space(family, dtype, precision, traits)
    if not all(space.axes.values()):
        return None  # no vector of such elements is narrow enough
    for _ in range(_TRIES):
        point = space.repaired(space.draw(rng), rng, tries=200)
        config = space.config(point) if point is not None else None
        if config is not None and (traits.type != "cpu" or _is_quick(config)):
            return config
    return None


def _is_quick(config: Any) -> bool:
    if config.family in ("direct", "indirect"):
        tiles = config.tiles
        sums = tiles.MWI * tiles.NWI * tiles.KWI
        return tiles.MWG * tiles.NWG <= _MOST_CPU_TILE and sums <= 4 * _MOST_CPU_SUMS
    if config.family == "small":
        return bool(config.MWI * config.NWI * config.KWI <= 4 * _MOST_CPU_SUMS)
    return True


def tile_edges(config: Any) -> tuple[int, int, int]:
    """Rows, columns and depth at which the kernel's tiles end."""
    values = config.as_dict()
    if config.family in ("direct", "indirect"):
        return config.tiles.MWG, config.tiles.NWG, config.tiles.KWG
    rows = next((values[name] for name in ("MWG", "MR", "MWI") if name in values), 16)
    columns = next((values[name] for name in ("NWG", "NR", "NWI", "VW") if name in values), 16)
    depth = next((values[name] for name in ("KWG", "KC", "KWI") if name in values), 16)
    return rows, columns, depth


#: Values outside of any sense: what a hostile or damaged record could hold.
WILD = (
    0, -1, -8, 3, 5, 7, 17, 100, 1 << 10, 1 << 12, 10**6, 1 << 16, (1 << 16) - 1, 1 << 20,
    1 << 30, (1 << 31) - 1, 1 << 31, 1 << 32, -(1 << 31), 1 << 40, 1 << 62, 1 << 63, 10**30,
)  # fmt: skip


def mutated(rng: random.Random, family: str, parameters: dict[str, int]) -> dict[str, int]:
    """One to three parameters changed: a little, to what another has, or wildly."""
    changed = dict(parameters)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(changed))
        value = changed[name]
        changed[name] = rng.choice(
            (
                value + 1, value - 1, value * 2, value // 2, value * 3, -value,
                rng.choice(sorted(changed.values())), rng.choice(WILD), rng.choice(WILD),
            )
        )  # fmt: skip
    return changed
