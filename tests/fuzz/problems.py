"""The campaign of products: legal configurations of every family, and any operands."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.support.poisoned import poison_allocations

from .campaign import BLOCK, Case
from .devices import device_texts, traits_by_text
from .forms import drawn_form, drawn_problem
from .products import run_product
from .simpler import simpler_products
from .transforms import drawn_transform, run_transform, simpler_transforms

#: Problems for each form: fewer would leave most of the time to compilers.
_PROBLEMS = BLOCK
#: Forms that are transforms of tensors.
_TRANSFORMS = 0.06


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
            form = drawn_form(rng, device, traits_by_text(device))
            yield from (drawn_problem(rng, form) for _ in range(_PROBLEMS))

    def run(self, case: Case) -> str | None:
        if case["entry"] == "transform3d":
            return run_transform(case)
        return run_product(case)

    def smaller(self, case: Case) -> Iterator[dict[str, Any]]:
        if case["entry"] == "transform3d":
            return simpler_transforms(case)
        return simpler_products(case)
