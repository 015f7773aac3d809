"""Check a device: every kernel family in every type on small and odd shapes, and the host's time.

The kernels are built by the user's own driver, and each result is compared with NumPy's, within the
bounds of `pyclgemm.measure.verify`. Drivers miscompile some kernels, and only some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..api.gemm import gemm
from ..api.plan import plan
from ..api.prepare import check_supported
from ..codegen.config import Config
from ..device.probe import summary
from ..device.traits import traits_of
from ..errors import ArgumentError, KernelBuildError, PyclgemmError, UnsupportedError
from ..families.registry import FAMILIES
from ..problem.precision import (
    DTYPES,
    PRECISIONS,
    Precision,
    is_complex,
    real_part_name,
    resolve_precision,
)
from ..problem.shape import GemmShape
from ..selection.database import load_database
from ..selection.overrides import choose
from .operands import Operands, make_operands

#: The least product, tiles with edges in every direction, one row, all layouts, padding, a batch.
SHAPES = tuple(
    shape
    for text in ("1x1x1", "33x17x65:NT+3", "1x67x130", "65x130x7:TN", "40x24x33:TT", "9x8x5*6")
    if (shape := GemmShape.parse(text))
)

#: The name that stands for what the library chooses by itself.
CHOSEN = "chosen"

Outcome = Literal["right", "wrong", "refused", "failed"]


class Algorithm(NamedTuple):
    """An element type and the arithmetic of a product."""

    dtype: str
    precision: Precision

    def __str__(self) -> str:
        is_default = self.precision == resolve_precision(None, self.dtype)
        return self.dtype if is_default else f"{self.dtype} by {self.precision.name}"


def algorithms() -> list[Algorithm]:
    """Every arithmetic of every element type."""
    return [
        Algorithm(dtype, precision)
        for dtype in DTYPES
        for precision in PRECISIONS
        if precision.operand == real_part_name(dtype)
        and not (is_complex(dtype) and precision.needs_matrix_unit)
    ]


@dataclass(frozen=True)
class Finding:
    """The outcome of a product; without family and shape, of all products of an algorithm."""

    algorithm: Algorithm
    outcome: Outcome
    reason: str = ""  # why it was refused or failed, or what is wrong
    family: str = ""  # a kernel family, or `CHOSEN`
    shape: GemmShape | None = None


def examine(queue: cl.CommandQueue, algorithm: Algorithm) -> Iterator[Finding]:
    """Check all families on all shapes in one arithmetic of one type, one after the other."""
    try:
        check_supported(algorithm.dtype, algorithm.precision, traits_of(queue.device))
    except UnsupportedError as error:
        reason = str(error).removeprefix(f"precision is {algorithm.precision.name}, for which ")
        yield Finding(algorithm, "refused", reason)
        return
    for shape in SHAPES:
        operands = make_operands(queue, shape, algorithm.dtype, count=1)
        for family in (CHOSEN, *FAMILIES):
            yield Finding(algorithm, *_outcome(operands, algorithm, family), family, shape)


def _outcome(operands: Operands, algorithm: Algorithm, family: str) -> tuple[Outcome, str]:
    try:
        config = None if family == CHOSEN else _config(operands, algorithm, family)
        ready = operands.plan(config=config, precision=algorithm.precision.name)
        fault = operands.error(ready, algorithm.precision).fault
    except KernelBuildError as error:
        return "refused", f"the compiler refused it: {summary(error)}"
    except PyclgemmError as error:
        return "refused", str(error)
    except (cl.Error, MemoryError, ArithmeticError) as error:
        return "failed", summary(error)
    return ("wrong", f"{ready.choice.config}: {fault}") if fault else ("right", "")


def _config(operands: Operands, algorithm: Algorithm, family: str) -> Config:
    """The best known configuration of a family, or the first that its menu has for the device."""
    traits = traits_of(operands.queue.device)
    problem = operands.shape.problem(algorithm.dtype, algorithm.precision.name)
    try:
        return choose(problem, traits, load_database(), family).config
    except ArgumentError as error:
        menu = FAMILIES[family].menu(algorithm.dtype, traits, algorithm.precision)
        if not menu:
            raise UnsupportedError("it has no configuration for this type and device") from error
        first: Config = menu[0]
        return first


def host_times(queue: cl.CommandQueue, calls: int = 200, rounds: int = 15) -> dict[str, float]:
    """Seconds that a call of a tiny product costs the host, medians by the kind of call."""
    rng = np.random.default_rng(0)
    a, b = (cl_array.to_device(queue, rng.random((8, 8), np.float32)) for _ in range(2))
    out = cl_array.empty(queue, (8, 8), np.float32)
    ready = plan(queue, a, b, out=out)
    kinds: dict[str, Callable[[], object]] = {
        "a plan's call": lambda: ready(a, b, out=out, add_event=False),
        "gemm": lambda: gemm(queue, a, b, out=out),
        "gemm and a wait": lambda: (gemm(queue, a, b, out=out), queue.finish()),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds + 1):
        for name, call in kinds.items():
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            times[name].append((time.perf_counter() - begin) / calls)
            queue.finish()
    return {name: float(np.median(samples[1:])) for name, samples in times.items()}
