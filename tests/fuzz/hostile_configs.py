"""The campaign of configurations that no tuner would write: mutated a little, or wildly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from pyclgemm.device.traits import DeviceTraits, typical_traits
from pyclgemm.families.registry import FAMILIES
from tests.support.poisoned import poison_allocations

from .campaign import Case
from .configurations import drawn_config, families, mutated
from .devices import device_texts, traits_by_text
from .forms import UNCONFIGURED, drawn_form, drawn_problem
from .products import run_product
from .simpler import simpler_products

#: Mutations of one configuration, each with a problem of its own.
_MUTATIONS = 8


class Configs:
    """Configurations changed at random: refused by a typed error, or right; then a plain call."""

    name = "configs"
    seconds_per_case = 40.0

    def __init__(self) -> None:
        poison_allocations()

    def cases(self, rng: random.Random) -> Iterator[Case]:
        devices = device_texts()
        while True:
            device = rng.choice(devices)
            traits = traits_by_text(device)
            form = drawn_form(rng, device, traits)
            if form["entry"] in UNCONFIGURED:
                form["entry"] = "gemm"
            family = rng.choice(families())
            base = _any_config(rng, family, form, traits)
            for _ in range(_MUTATIONS):
                # Sizes need not know of the edges of what cannot run.
                form |= {"config": None, "sizes": []}
                changed = {"path": family, **mutated(rng, family, base)}
                yield drawn_problem(rng, form) | {"config": changed}

    def run(self, case: Case) -> str | None:
        return run_product(case, near_legal=True)

    def smaller(self, case: Case) -> Iterator[dict[str, Any]]:
        return simpler_products(case)


def _any_config(
    rng: random.Random, family: str, form: Case, traits: DeviceTraits
) -> dict[str, int]:
    """A configuration that is legal here, or else on a GPU that has the units for it."""
    for where, dtype in ((traits, form["dtype"]), (typical_traits("sm_90"), "float16")):
        config = drawn_config(rng, family, dtype, None, where)
        if config is not None:
            return config.as_dict()
    names = FAMILIES[family].config_class.__dataclass_fields__
    return {name: rng.choice((1, 2, 4, 8, 16, 64)) for name in names}
