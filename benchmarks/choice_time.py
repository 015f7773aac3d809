"""Measure what the choice of a kernel costs: the first of an element type, and all others.

    python benchmarks/choice_time.py x86-64-v4 sm_90

No device is needed: the choices are those for typical devices of the architectures, from the files
in databases/. Sizes, layouts, paddings and addends of the products are random, so that few products
have layouts and alignments like one before.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyclgemm.device.traits import DeviceTraits, typical_traits
from pyclgemm.problem.problem import GemmProblem
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.model import known_of
from pyclgemm.selection.select import select

DTYPES = ("float32", "float16", "float64", "int8")

#: A product on which nothing was measured: the first one of a type.
_FIRST = GemmShape(509, 521, 523)


def random_problems(dtype: str, count: int, seed: int) -> Iterator[GemmProblem]:
    """Products with extents of 1 to 4096, half of which are multiples of a vector."""
    rng = random.Random(seed)
    for _ in range(count):
        steps = [rng.choice((1, 1, 1, 2, 4, 8, 8)) for _ in range(3)]
        sizes = [max(1, int(2 ** rng.uniform(0, 12)) // step * step) for step in steps]
        shape = GemmShape(*sizes, rng.choice(LAYOUTS), rng.choice((0, 0, 0, 1, 2, 4)))
        yield shape.problem(dtype, reads_c=rng.random() < 0.3)


def microseconds(
    problems: Sequence[GemmProblem], traits: DeviceTraits, database: Database
) -> np.ndarray:
    """The time of each choice."""
    times = []
    for problem in problems:
        start = time.perf_counter()
        select(problem, traits, database)
        times.append(1e6 * (time.perf_counter() - start))
    return np.array(times)


@click.command(help=__doc__)
@click.argument("architectures", nargs=-1, required=True)
@click.option("--count", type=click.IntRange(2), default=300, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(architectures: tuple[str, ...], count: int, seed: int) -> None:
    """Print the times as a table."""
    table = Table("architecture", "type", "candidates", "first, ms", "others, us", "95 %")
    for architecture in architectures:
        traits, database = typical_traits(architecture), load_database()
        for dtype in DTYPES:
            problems = list(random_problems(dtype, count, seed))
            (first,) = microseconds([_FIRST.problem(dtype)], traits, database)
            times = microseconds(problems, traits, database)
            others = (f"{np.percentile(times, part):.0f}" for part in (50, 95))
            candidates = len(known_of(problems[0], traits, database).candidates)
            table.add_row(architecture, dtype, str(candidates), f"{first / 1e3:.0f}", *others)
    Console().print(table)


if __name__ == "__main__":
    main()
