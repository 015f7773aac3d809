"""The suites of products that are measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.products.case import Case, case_of, parse_shapes
from pyclgemm.cli.options import SUITES as TUNED
from pyclgemm.problem.shape import LAYOUTS

#: The suites of `all`.
SUITES = ("square", "dense", "skinny", "odd")
#: All names of `suite_cases`.
SUITE_NAMES = (*SUITES, "batched", "limit", "random", "all")


def _square() -> list[Case]:
    """Powers of two, also those too small for a tuner, for a curve over the size."""
    return [Case(size, size, size, suite="square") for size in (64 << step for step in range(8))]


def _dense() -> list[Case]:
    """The tuned layers and a wider one, in batches from 1 on."""
    tuned = TUNED["dense"]
    layers = dict.fromkeys((shape.n, shape.k) for shape in tuned) | {(4096, 1024): None}
    batches = sorted({1} | {shape.m for shape in tuned})
    return [Case(m, n, k, suite="dense", dense=True) for n, k in layers for m in batches]


def _skinny() -> list[Case]:
    """Products with one or two sizes far smaller than the third."""
    return [case_of(shape, "skinny") for shape in TUNED["skinny"]]


def _odd() -> list[Case]:
    """Primes, sizes just above a tile, rows at odd distances, and every layout."""
    text = (
        "127x127x127,997x997x997,1009x1013x1019,1000x1000x1000,1000x1000x1000+7,"
        "1000x1000x1000:NT+7,1024x1024x1024:TN,1024x1024x1024:NT,1024x1024x1024:TT,"
        "35x8457x2560,5124x700x2048,4097x4097x4097"
    )
    return parse_shapes(text, suite="odd")


def _batched() -> list[Case]:
    """Batches of small squares, which memory limits, and of larger ones."""
    small = [(size, 10000) for size in (8, 16, 32, 64)]
    return [
        Case(size, size, size, suite="batched", batch=count)
        for size, count in (*small, (128, 256), (512, 256))
    ]


@dataclass(frozen=True)
class Target:
    """The target of a product of the suite ``limit``: float32 on an H100.

    One of the two must be reached. The bandwidth is for products of few rows: they must read the
    second operand once, so no library can be faster.
    """

    #: Ratio to the speed of cuBLAS.
    ratio: float
    #: Ratio to the read bandwidth that was measured in the same run.
    bandwidth: float | None = None

    def is_met(self, ratio: float, bandwidth: float) -> bool:
        """Say whether these ratios meet the target; NaN stands for an unknown one.

        Examples
        --------
        >>> Target(1.0, 0.85).is_met(0.9, 0.86), Target(1.0).is_met(0.9, 0.86)
        (True, False)
        """
        return ratio >= self.ratio or (self.bandwidth is not None and bandwidth >= self.bandwidth)

    def __str__(self) -> str:
        return f"{self.ratio:.2f}" + (f" or {self.bandwidth:.0%}" if self.bandwidth else "")


_FEW_ROWS = ",".join(f"{m}x{n}x{n}" for n in (4096, 1024) for m in (1, 2, 4, 8, 16, 32))
_TARGETS = (
    ("2048x2048x2048,4096x4096x4096,8192x8192x8192", Target(0.97)),
    ("256x256x256,512x512x512,1024x1024x1024,1000x1000x1000", Target(1.0)),
    ("1000x1000x1000+7,1000x1000x1000:NT+7", Target(1.0)),
    ("64x64x65536,16x16x100000", Target(0.9)),
    (_FEW_ROWS, Target(1.0, 0.85)),
    ("64x3072x768,128x768x3072,8192x128x128,4097x4097x4097", Target(0.95)),
    ("35x8457x2560,5124x700x2048", Target(0.95)),
)


def limit_targets() -> dict[Case, Target]:
    """Return the products in the order of measuring, with their targets."""
    return {
        case: target for shapes, target in _TARGETS for case in parse_shapes(shapes, suite="limit")
    }


def random_cases(count: int, seed: int = 0, largest: int = 8192) -> list[Case]:
    """Draw shapes with m, n and k log-uniform in 1...`largest`, in random layouts."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0.0, np.log(largest), size=(count, 3))).round().astype(int)
    transposed = rng.integers(0, 2, size=(count, 2))
    return [
        Case(int(m), int(n), int(k), LAYOUTS[2 * first + second], suite="random")
        for (m, n, k), (first, second) in zip(sizes, transposed, strict=True)
    ]


def unseen_cases(rng: np.random.Generator, *, batched: bool = False) -> Iterator[Case]:
    """Draw products without end: sizes log-uniform in 8...8192, a third not multiples of 8.

    Batches have sizes up to 1024, and 2 to 4096 products.

    Examples
    --------
    >>> str(next(unseen_cases(np.random.default_rng(1))))
    '280x5811x24:NT'
    """
    largest = 1024 if batched else 8192
    while True:
        drawn = np.exp(rng.uniform(np.log(8), np.log(largest), 3))
        is_odd = rng.random(3) < 1 / 3
        sizes = np.where(is_odd, drawn.round(), 8 * (drawn / 8).round())
        sizes += is_odd & (sizes % 8 == 0) & (sizes < largest)
        batch = int(np.exp(rng.uniform(np.log(2), np.log(4096))).round()) if batched else None
        m, n, k = (int(size) for size in sizes)
        yield Case(m, n, k, LAYOUTS[rng.integers(4)], suite="unseen", batch=batch)


def suite_cases(name: str, *, count: int = 200, seed: int = 0) -> list[Case]:
    """Return the products of one of `SUITE_NAMES`; `count` and `seed` are for "random"."""
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
