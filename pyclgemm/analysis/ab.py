"""Compare a change of configuration with a baseline, in turn, on a suite of shapes.

Each side is checked against float64 before a time of it counts; the two are timed A B B A,
burst by burst, on the same operands. One `Comparison` serves many changes: operands, references
and kernels are kept.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pyopencl as cl

from ..api.plan import GemmPlan
from ..codegen.config import Config
from ..device.traits import traits_of
from ..errors import ArgumentError, ConfigError, KernelBuildError, UnsupportedError
from ..measure.bench import Bench, pace_for
from ..measure.filled_queue import blocker_of
from ..measure.operands import Operands, OperandStore, check_room, plan_contender
from ..measure.suites import Shape
from ..problem.precision import resolve_precision
from ..problem.product import Product
from ..problem.shape import GemmShape, shape_text
from ..selection.database import load_database
from ..selection.overrides import (
    AskedConfig,
    apply_change,
    parse_change,
    parse_config,
)
from ..selection.select import Choice, select
from .ab_record import Record, ShapeResult, Side
from .ceilings import ceilings_of
from .profile import analyse, assess

#: A change is kept above this gain, and rejected beyond a loss as large.
THRESHOLD = 0.02

#: From the median absolute deviation to a standard deviation, and from that to the standard
#: error of a median (P. Huber and E. Ronchetti, "Robust Statistics", 2009, section 1.1).
_DEVIATION, _MEDIAN_ERROR = 1.4826, 1.2533


def speedup(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """How much faster a change made a product, from bursts taken in turn.

    Parameters
    ----------
    before, after : sequence of float
        Seconds; burst i of one was taken beside burst i of the other.

    Returns
    -------
    ratio, error : float
        Median of before over after; and the standard error of its logarithm, which for
        small values is that of the ratio.

    Examples
    --------
    >>> speedup([2.0, 2.2, 2.0], [1.0, 1.1, 1.0])
    (2.0, 0.0)
    """
    logarithms = [math.log(x / y) for x, y in zip(before, after, strict=True)]
    middle = statistics.median(logarithms)
    deviation = statistics.median(abs(value - middle) for value in logarithms)
    error = _MEDIAN_ERROR * _DEVIATION * deviation / math.sqrt(len(logarithms))
    return round(math.exp(middle), 12), error


def combine(ratios: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """The geometric mean over a suite, and twice its standard error.

    Examples
    --------
    >>> combine([1.0, 1.21], [0.0, 0.0])
    (1.1, 0.0)
    """
    mean = statistics.fmean(math.log(ratio) for ratio in ratios)
    spread = 2 * math.hypot(*errors) / len(errors)
    return round(math.exp(mean), 12), spread


def decide(ratio: float, spread: float) -> str:
    """Decide on a change.

    Parameters
    ----------
    ratio : float
        Geometric mean of the speed after over the speed before.
    spread : float
        Of that ratio, by the measurement itself.

    Returns
    -------
    str
        "kept" if it gains more than `THRESHOLD`, "rejected" if it loses more than that, and
        "noise" if it does neither, or not by more than the spread.

    Examples
    --------
    >>> decide(1.05, 0.01), decide(1.05, 0.06), decide(0.97, 0.01), decide(1.01, 0.001)
    ('kept', 'noise', 'rejected', 'noise')
    """
    if abs(ratio - 1) <= max(THRESHOLD, spread):
        return "noise"
    return "kept" if ratio > 1 else "rejected"


class _UncomparedError(Exception):
    """A shape on which the two sides cannot be compared; `wrong` if a result was not right."""

    def __init__(self, reason: str, *, wrong: bool = False) -> None:
        super().__init__(reason)
        self.wrong = wrong


@dataclass
class _Tally:
    """What has been found of a comparison so far."""

    results: list[ShapeResult] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    wrong: bool = False


class Comparison:
    """Compares changes on a suite of shapes on one device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In-order, without profiling, on a device that does nothing else.
    shapes : sequence of tuple of int
        m, n, k of each product.
    dtype : str
        NumPy name of the element type.
    precision : str, optional
        JAX's name of the arithmetic; None for the default of the type.
    figures : bool
        Whether to find the bottleneck of each side too: it compiles each kernel once more
        on NVIDIA's devices, and measures the device's ceilings if nobody has yet.

    Raises
    ------
    UnsupportedError
        If the device cannot hold the largest product.

    Examples
    --------
    >>> comparison = Comparison(queue, [(64, 64, 64)], figures=False)
    >>> record = comparison.run("cpu:MR=4,NR=16,KC=256,VW=4", "KC=128", rounds=3)
    >>> record.verdict in ("kept", "rejected", "noise"), record.results[0].shape
    (True, '64x64x64')
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        shapes: Sequence[Shape],
        dtype: str = "float32",
        precision: str | None = None,
        *,
        figures: bool = True,
    ) -> None:
        self._queue = queue
        self._traits = traits_of(queue.device)
        self._shapes = tuple(shapes)
        self._dtype = dtype
        self._precision = resolve_precision(precision, dtype)
        for shape in shapes:
            check_room(queue.device, GemmShape(*shape), dtype)
        self._store = OperandStore(queue)
        self._blocker = blocker_of(queue)
        self._ceilings = ceilings_of(queue) if figures else None
        # Baselines come back with every change; of a change nothing is kept.
        self._baselines: WeakKeyDictionary[Operands, dict[Config, GemmPlan]] = WeakKeyDictionary()

    def run(
        self,
        base: str,
        change: str,
        *,
        technique: str | None = None,
        rounds: int = 5,
        command: str = "",
        report: Callable[[Shape], None] = lambda shape: None,
    ) -> Record:
        """Compare one change with a baseline.

        Parameters
        ----------
        base : str
            As `pyclgemm.selection.overrides.parse_config` reads it.
        change : str
            As `pyclgemm.selection.overrides.parse_change` reads it; its parameters replace those
            of the baseline, shape by shape.
        technique : str, optional
            What the change stands for; by default the change itself.
        rounds : int
            Bursts of each side, at least 3.
        command : str
            What was called, for the record.
        report : callable, optional
            Told each shape when it is done.

        Returns
        -------
        Record
            With a verdict. Shapes on which the change is not possible are skipped, with
            the reason; a wrong result fails the change.

        Raises
        ------
        ArgumentError
            If `base` or `change` cannot be read, or `rounds` is too small.
        """
        if rounds < 3:
            raise ArgumentError(f"rounds is {rounds}; a spread needs at least 3")
        asked_base, asked_change = parse_config(base), parse_change(change)
        tally = _Tally()
        for shape in self._shapes:
            try:
                tally.results.append(self._compare_on(shape, asked_base, asked_change, rounds))
            except _UncomparedError as error:
                tally.skipped[shape_text(shape)] = str(error)
                tally.wrong = tally.wrong or error.wrong
            report(shape)
        ratio = spread = None
        verdict = "failed"
        if tally.results:
            ratio, spread = combine(
                [one.ratio for one in tally.results], [one.error for one in tally.results]
            )
            if not tally.wrong:
                verdict = decide(ratio, spread)
        return Record(
            technique=technique or change,
            base=base,
            change=change,
            dtype=self._dtype,
            precision=self._precision.name,
            device=self._traits.name,
            platform=self._traits.platform,
            driver=self._traits.driver,
            version=_version(),
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=command,
            rounds=rounds,
            verdict=verdict,
            ratio=ratio,
            spread=spread,
            results=tuple(tally.results),
            skipped=tally.skipped,
        )

    def _compare_on(
        self, shape: Shape, base: AskedConfig, change: AskedConfig, rounds: int
    ) -> ShapeResult:
        product = GemmShape(*shape).product(self._dtype, self._precision.name)
        choices = self._choices(product, base, change)
        if choices["before"].config == choices["after"].config:
            raise _UncomparedError("the change changes nothing")
        operands = self._store.get(GemmShape(*shape), self._dtype)
        baselines = self._baselines.setdefault(operands, {})
        before = choices["before"]
        if before.config not in baselines:
            baselines[before.config] = self._checked(operands, before)
        plans = {
            "before": baselines[before.config],
            "after": self._checked(operands, choices["after"]),
        }
        bench = Bench(pace_for("analysis", self._traits.type))
        for name, ready in plans.items():
            bench.add(plan_contender(name, operands, ready, self._blocker))
        timings = bench.run(rounds)
        ratio, error = speedup(timings["before"].samples, timings["after"].samples)
        sides = {
            name: self._describe(product, choice, timings[name].median)
            for name, choice in choices.items()
        }
        return ShapeResult(shape_text(shape), **sides, ratio=ratio, error=error)

    def _choices(
        self, product: Product, base: AskedConfig, change: AskedConfig
    ) -> dict[str, Choice]:
        traits, database, problem = self._traits, load_database(), product.problem
        try:
            before = base.choose(problem, traits, database)
            if change.path is not None or not change.parameters:
                after = change.choose(problem, traits, database)
            else:
                after = select(problem, traits, database, apply_change(before, change))
        except (ArgumentError, ConfigError, UnsupportedError) as error:
            raise _UncomparedError(str(error)) from error
        return {"before": before, "after": after}

    def _checked(self, operands: Operands, choice: Choice) -> GemmPlan:
        """Build a configuration and check its result."""
        named = f"{choice.path} {choice.config}"
        try:
            ready = operands.plan(config=choice.config, precision=self._precision.name)
            fault = operands.fault(ready, self._precision)
        except (ConfigError, UnsupportedError, KernelBuildError, cl.Error, MemoryError) as error:
            line = str(error).strip().splitlines() or [type(error).__name__]
            raise _UncomparedError(f"{named} does not run: {line[0]}") from error
        if fault:
            raise _UncomparedError(f"{named} is wrong: {fault}", wrong=True)
        return ready

    def _describe(self, product: Product, choice: Choice, seconds: float) -> Side:
        config = {"path": choice.path, **choice.config.as_dict()}
        gflops = product.problem.flops / seconds / 1e9
        figures: dict[str, Any] = {}
        if self._ceilings is not None:
            analysis = analyse(self._queue, product, choice)
            found = assess(analysis, self._ceilings, seconds)
            figures = {
                "limit": found.verdict.limit,
                "share": round(found.bounds[0].share, 3),
                "occupancy": analysis.occupancy.share,
                "registers": analysis.resources.registers,
                "spill_bytes": analysis.resources.spill_bytes,
                "local_bytes": analysis.resources.local_bytes,
            }
        return Side(config, round(gflops, 3), figures)


def _version() -> str:
    try:
        return importlib.metadata.version("pyclgemm")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"
