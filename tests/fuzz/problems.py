"""Two campaigns of products: by legal configurations, and by some that no tuner would write."""

import random
from collections.abc import Iterator

from pyclgemm.device.traits import DeviceTraits, traits_of, typical_traits
from pyclgemm.families.registry import FAMILIES
from tests.support.poisoned import poison_allocations

from .campaign import BLOCK, Case
from .configurations import drawn_config, mutated
from .devices import device_of, device_texts
from .forms import UNCONFIGURED, drawn_form, drawn_problem
from .products import run_product
from .simpler import simpler_products
from .transforms import drawn_transform, run_transform, simpler_transforms

#: Problems for each form: fewer would leave most of the time to compilers.
_PROBLEMS = BLOCK
#: Forms that are transforms of tensors.
_TRANSFORMS = 0.06
#: Mutations of one configuration, each with a problem of its own.
_MUTATIONS = 8


class Problems:
    """Products of random shapes, layouts, scalars and data, by random legal configurations."""

    name = "problems"
    seconds_per_case = 120.0

    def __init__(self) -> None:
        poison_allocations()

    def cases(self, rng: random.Random) -> Iterator[Case]:
        devices = device_texts()
        while True:
            device = rng.choice(devices)
            if rng.random() < _TRANSFORMS:
                yield from (drawn_transform(rng, device) for _ in range(_PROBLEMS))
                continue
            form = drawn_form(rng, device, traits_of(device_of(device)))
            yield from (drawn_problem(rng, form) for _ in range(_PROBLEMS))

    def run(self, case: Case) -> str | None:
        return run_transform(case) if case["entry"] == "transform3d" else run_product(case)

    def smaller(self, case: Case) -> Iterator[Case]:
        is_transform = case["entry"] == "transform3d"
        return simpler_transforms(case) if is_transform else simpler_products(case)


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
            traits = traits_of(device_of(device))
            form = drawn_form(rng, device, traits)
            if form["entry"] in UNCONFIGURED:
                form["entry"] = "gemm"
            family = rng.choice(sorted(FAMILIES))
            base = _any_config(rng, family, form, traits)
            for _ in range(_MUTATIONS):
                # Sizes need not know of the edges of what cannot run.
                form |= {"config": None, "sizes": []}
                changed = {"path": family, **mutated(rng, family, base)}
                yield drawn_problem(rng, form) | {"config": changed}

    def run(self, case: Case) -> str | None:
        return run_product(case, near_legal=True)

    def smaller(self, case: Case) -> Iterator[Case]:
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
