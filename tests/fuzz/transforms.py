"""Transforms of tensors as cases."""

import random
from collections.abc import Iterator

import numpy as np

import pyclgemm
from pyclgemm.errors import UnsupportedError
from tests.support.buffers import GuardedArray
from tests.support.reference import assert_transformed

from .campaign import Case, Failure, simpler_in
from .devices import queue_of
from .operands import check_unchanged, checked
from .simpler import smaller_sizes

_LEVELS = (None, None, "L1", "L2", "L3", "L4", "L5", "L6")
#: Above this extent the Kronecker product of L6 takes K^6 elements of more than a few megabytes.
_MOST_L6 = 8

#: How tensors lie, as strides in elements of the tensor's number and its three indices.
_KINDS = ("contiguous", "padded", "reversed dimensions", "every other", "backwards", "repeated")


def drawn_transform(rng: random.Random, device: str) -> Case:
    """A transform of a few small tensors."""
    level = rng.choice(_LEVELS)
    extent = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17, 20))
    if level == "L6":
        extent = min(extent, _MOST_L6)
    kinds = ("contiguous",) if level == "L6" else _KINDS
    return {
        "device": device,
        "entry": "transform3d",
        "queue": rng.choice(([], [], [], ["out"], ["profiling"])),
        "dtype": rng.choice(("float32", "float64")),
        "level": level,
        "count": rng.choice((0, 1, 1, 2, 3, 5, 16)),
        "extent": extent,
        "tensors": rng.choice(kinds),
        "out": rng.choice(kinds[:-1] or kinds),
        "lead": rng.choice((64, 64, 65, 66)),
        "matrix": rng.choice(("row", "column", "backwards")),
        "data": rng.randrange(1 << 30),
    }


def _strides(kind: str, k: int) -> tuple[int, ...]:
    return {
        "contiguous": (k**3, k * k, k, 1),
        "padded": ((k + 2) * k * k, (k + 2) * k, k + 2, 1),
        "reversed dimensions": (k**3, 1, k, k * k),
        "every other": (2 * k**3, 2 * k * k, 2 * k, 2),
        "backwards": (-(k**3), k * k, -k, 1),
        "repeated": (0, k * k, k, 1),
    }[kind]


def run_transform(case: Case) -> str | None:
    """Transform, twice, and hold the result against the reference."""
    queue = queue_of(case["device"], tuple(case["queue"]))
    rng = np.random.default_rng(case["data"])
    k, dtype = case["extent"], case["dtype"]
    shape = (case["count"], k, k, k)
    strides = {"row": (k + 1, 1), "column": (1, k), "backwards": (-k, 1)}[case["matrix"]]
    source = GuardedArray(
        queue, shape, dtype, _strides(case["tensors"], k), lead=case["lead"],
        values=rng.uniform(-1, 1, shape).astype(dtype),
    )  # fmt: skip
    matrix = GuardedArray(
        queue, (k, k), dtype, strides, values=rng.uniform(-1, 1, (k, k)).astype(dtype)
    )
    out = GuardedArray(queue, shape, dtype, _strides(case["out"], k), lead=case["lead"])
    results = []
    for _ in range(2):
        out.reset()
        try:
            pyclgemm.transform3d(
                queue, source.array, matrix.array, level=case["level"], out=out.array
            )
        except UnsupportedError:
            return "refused by UnsupportedError"
        results.append(checked("out", out))
        try:
            assert_transformed(results[-1], source.initial, matrix.initial, case["level"])
        except AssertionError as error:
            raise Failure(f"out: {error}") from None
    if results[0].tobytes() != results[1].tobytes():
        raise Failure("the same transform gave other bits the second time")
    for name, guarded in (("tensors", source), ("matrix", matrix)):
        check_unchanged(name, guarded.initial, checked(name, guarded))
    return None


def simpler_transforms(case: Case) -> Iterator[Case]:
    """Cases simpler in one respect."""
    yield from simpler_in(
        case, queue=[], level=None, tensors="contiguous", out="contiguous", lead=64, matrix="row",
        dtype="float32",
    )  # fmt: skip
    yield from smaller_sizes(case, ("count", "extent"))
