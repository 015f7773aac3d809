"""The suites of products that are measured."""

from __future__ import annotations

import numpy as np

from benchmarks.products.case import Case
from benchmarks.products.limit import limit_targets
from pyclgemm.measure.suites import SUITES as TUNED

#: Suites that `all` stands for; the others are asked for by name.
SUITES = ("square", "dense", "skinny", "odd")
#: Every name that `suite_cases` knows.
SUITE_NAMES = (*SUITES, "batched", "limit", "random", "all")


def _square() -> list[Case]:
    """Every power of two, also those too small for a tuner, for a curve over the size."""
    return [Case(size, size, size, "square") for size in (64 << step for step in range(8))]


def _dense() -> list[Case]:
    """The layers that are tuned for and a wider one, in batches from 1 on."""
    tuned = TUNED["dense"]
    layers = dict.fromkeys((shape.n, shape.k) for shape in tuned) | {(4096, 1024): None}
    batches = sorted({1} | {shape.m for shape in tuned})
    return [Case(m, n, k, "dense", dense=True) for n, k in layers for m in batches]


def _skinny() -> list[Case]:
    """One or two sizes far smaller than the third."""
    return [Case(*shape.sizes, suite="skinny") for shape in TUNED["skinny"]]


def _odd() -> list[Case]:
    """Primes, sizes just past a tile, rows at odd distances, and every layout."""
    return [
        Case(127, 127, 127, "odd"),
        Case(997, 997, 997, "odd"),
        Case(1009, 1013, 1019, "odd"),
        Case(1000, 1000, 1000, "odd"),
        Case(1000, 1000, 1000, "odd", padding=7),
        Case(1000, 1000, 1000, "odd", trans_b=True, padding=7),
        Case(1024, 1024, 1024, "odd", trans_a=True),
        Case(1024, 1024, 1024, "odd", trans_b=True),
        Case(1024, 1024, 1024, "odd", trans_a=True, trans_b=True),
        Case(35, 8457, 2560, "odd"),
        Case(5124, 700, 2048, "odd"),
        Case(4097, 4097, 4097, "odd"),
    ]


def _batched() -> list[Case]:
    """Batches of small squares, which are bound by memory, and of larger ones."""
    small = [(size, 10000) for size in (8, 16, 32, 64)]
    return [
        Case(size, size, size, "batched", batch=count)
        for size, count in (*small, (128, 256), (512, 256))
    ]


def random_cases(count: int, seed: int = 0, largest: int = 8192) -> list[Case]:
    """Shapes with m, n and k log-uniform in 1...`largest`, in random layouts."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0.0, np.log(largest), size=(count, 3))).round().astype(int)
    layouts = rng.integers(0, 2, size=(count, 2)).astype(bool)
    return [
        Case(int(m), int(n), int(k), "random", bool(trans_a), bool(trans_b))
        for (m, n, k), (trans_a, trans_b) in zip(sizes, layouts, strict=True)
    ]


def suite_cases(name: str, *, count: int = 200, seed: int = 0) -> list[Case]:
    """List the products of one of `SUITE_NAMES`; `count` and `seed` are for "random"."""
    makers = {
        "square": _square, "dense": _dense, "skinny": _skinny, "odd": _odd,
        "limit": lambda: list(limit_targets()), "batched": _batched,
    }  # fmt: skip
    if name == "all":
        return [case for suite in SUITES for case in makers[suite]()]
    if name == "random":
        return random_cases(count, seed)
    if name not in makers:
        raise ValueError(f"suite is {name!r}; known are {', '.join(SUITE_NAMES)}")
    return makers[name]()
