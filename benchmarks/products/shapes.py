"""The suites of products that are measured."""

from __future__ import annotations

import numpy as np

from benchmarks.products.case import Case, case_of, parse_shapes
from benchmarks.products.limit import limit_targets
from pyclgemm.measure.suites import SUITES as TUNED
from pyclgemm.problem.shape import LAYOUTS

#: Suites that `all` stands for; the others are asked for by name.
SUITES = ("square", "dense", "skinny", "odd")
#: Every name that `suite_cases` knows.
SUITE_NAMES = (*SUITES, "batched", "limit", "random", "all")


def _square() -> list[Case]:
    """Every power of two, also those too small for a tuner, for a curve over the size."""
    return [Case(size, size, size, suite="square") for size in (64 << step for step in range(8))]


def _dense() -> list[Case]:
    """The layers that are tuned for and a wider one, in batches from 1 on."""
    tuned = TUNED["dense"]
    layers = dict.fromkeys((shape.n, shape.k) for shape in tuned) | {(4096, 1024): None}
    batches = sorted({1} | {shape.m for shape in tuned})
    return [Case(m, n, k, suite="dense", dense=True) for n, k in layers for m in batches]


def _skinny() -> list[Case]:
    """One or two sizes far smaller than the third."""
    return [case_of(shape, "skinny") for shape in TUNED["skinny"]]


def _odd() -> list[Case]:
    """Primes, sizes just past a tile, rows at odd distances, and every layout."""
    text = (
        "127x127x127,997x997x997,1009x1013x1019,1000x1000x1000,1000x1000x1000+7,"
        "1000x1000x1000:NT+7,1024x1024x1024:TN,1024x1024x1024:NT,1024x1024x1024:TT,"
        "35x8457x2560,5124x700x2048,4097x4097x4097"
    )
    return parse_shapes(text, suite="odd")


def _batched() -> list[Case]:
    """Batches of small squares, which are bound by memory, and of larger ones."""
    small = [(size, 10000) for size in (8, 16, 32, 64)]
    return [
        Case(size, size, size, suite="batched", batch=count)
        for size, count in (*small, (128, 256), (512, 256))
    ]


def random_cases(count: int, seed: int = 0, largest: int = 8192) -> list[Case]:
    """Shapes with m, n and k log-uniform in 1...`largest`, in random layouts."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0.0, np.log(largest), size=(count, 3))).round().astype(int)
    transposed = rng.integers(0, 2, size=(count, 2))
    return [
        Case(int(m), int(n), int(k), LAYOUTS[2 * first + second], suite="random")
        for (m, n, k), (first, second) in zip(sizes, transposed, strict=True)
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
