"""Calibration: a few ceilings and a handful of times, from which a device's kernels are predicted.

What takes the tuner minutes for each shape takes seconds here, for all of them: predicted times
(`pyclgemm.families.cost`) have few coefficients, and some forty times of small and large products
by different kernels tell them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyopencl as cl

from ..analysis.ceilings import ceilings_of
from ..analysis.operands import Operands, make_operands, plan_contender
from ..codegen.config import Config
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits, traits_of
from ..errors import ArgumentError, PyclgemmError, UnsupportedError, shown
from ..families.registry import FAMILIES, family_of, problem_on
from ..host.files import locked
from ..measure.bench import Bench, Pace
from ..measure.filled_queue import QueueBlocker
from ..problem.precision import resolve_precision
from ..problem.problem import GemmProblem
from ..problem.shape import GemmShape
from ..selection.database import DATABASE, load_database, reload_database, save_file
from ..selection.model import predict
from ..selection.records import Model
from ..selection.saving import calibrated_file, user_file
from .fit import Fit, Sample, fit_coefficients

#: Seconds for all of it where nobody says, and the most and the least that may be asked for.
SECONDS = 20.0
_BOUNDS = (1.0, 3600.0)

#: Small and large, square and with few rows or columns, shallow and deep.
_SHAPES = (
    (1024, 1024, 1024), (1, 2048, 2048), (256, 256, 256), (16, 2048, 1024), (128, 128, 4096),
    (2048, 2048, 64), (2048, 24, 1024), (4, 4096, 512), (500, 700, 900), (2048, 2048, 2048),
    (64, 64, 64), (96, 3000, 333),
)  # fmt: skip

#: Products that are predicted to take longer are left out, in seconds.
_LONGEST = 0.1
#: Kernels of a family that are timed on a shape: the one that is predicted to be the fastest, and
#: others of the menu in turn.
_OTHERS = 2

_PACE = Pace(burst=0.003, rest=0.5, rounds=3, seconds=0.3)


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    Attributes
    ----------
    path : pathlib.Path
        The file of the user's own database that keeps it.
    ceilings : Ceilings
        What the device can do at most.
    fits : dict of str to dict of str to Fit
        The coefficients of predicted times by element type and path.
    seconds : float
        What it took.
    """

    path: Path
    ceilings: Ceilings
    fits: dict[str, dict[str, Fit]]
    seconds: float


def calibrate(
    queue: cl.CommandQueue,
    seconds: float = SECONDS,
    *,
    report: Callable[[str, float], None] = lambda what, part: None,
) -> Calibration:
    """Measure what the choice of kernels needs to know of a device on which nothing was tuned.

    Ceilings (arithmetic, memory, caches, launches) are measured, and some kernels of each family
    on some products; the user's own database keeps what follows from them, and choices rest on it
    from then on. Nothing else should run on the device meanwhile.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        An in-order queue without profiling.
    seconds : float
        For all of it, about.
    report : callable, optional
        Told what is done next, and which part of the time is over.

    Returns
    -------
    Calibration
        What was found, and where it is kept.

    Raises
    ------
    ArgumentError
        If `seconds` is out of range.
    UnsupportedError
        If SciPy is missing (``pip install "pyclgemm[tune]"``), or no kernel works.
    DatabaseError, FileError
        If the user's database cannot be used or written.

    Examples
    --------
    >>> found = pyclgemm.calibrate(queue, seconds=5.0)    # doctest: +SKIP
    >>> found.fits["float32"]["direct"].error             # doctest: +SKIP
    0.11
    """
    low, high = _BOUNDS
    if not low <= seconds <= high:
        raise ArgumentError(f"seconds is {shown(seconds)}; {low:g} to {high:g} are wanted")
    _check_scipy()
    begin = time.perf_counter()
    traits = traits_of(queue.device)

    def part() -> float:
        return min(1.0, (time.perf_counter() - begin) / seconds)

    ceilings = ceilings_of(queue, report=lambda what: report(what, part()))
    types = _types(traits)
    fits: dict[str, dict[str, Fit]] = {}
    for number, dtype in enumerate(types):
        left = seconds - (time.perf_counter() - begin)
        until = time.perf_counter() + left * (0.5 if number == 0 and len(types) > 1 else 1.0) / (
            1 if number == 0 else len(types) - number
        )
        samples = []
        report(f"kernels of {dtype}", part())
        for sample in measured(queue, dtype, until):
            report(f"kernels of {dtype}", part())
            samples.append(sample)
        fits[dtype] = fit_coefficients(samples, traits, ceilings)
    if not any(fits.values()):
        raise UnsupportedError(f"no kernel could be timed on {traits.name!r}")
    path = user_file(traits)
    models = {
        (dtype, resolve_precision(None, dtype).name): Model(
            f"calibrated on {traits.name}, {traits.platform} {traits.driver}",
            date.today().isoformat(),
            {path: fit.coefficients for path, fit in found.items()},
        )
        for dtype, found in fits.items()
        if found
    }
    with locked(path, DATABASE):
        save_file(calibrated_file(path, traits, ceilings, models))
    reload_database()
    return Calibration(path, ceilings, fits, time.perf_counter() - begin)


def _check_scipy() -> None:
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            'calibration fits coefficients with SciPy; pip install "pyclgemm[tune]" has it'
        ) from error


def _types(traits: DeviceTraits) -> list[str]:
    """Element types, those that matter most first."""
    types = ["float32", "float16"] if traits.float16 or traits.type != "cpu" else ["float32"]
    return [*types, "float64"] if traits.float64 else types


def measured(queue: cl.CommandQueue, dtype: str, until: float) -> Iterator[Sample]:
    """Times of kernels of all families on some products, until it is `until` on the clock."""
    traits = traits_of(queue.device)
    precision = resolve_precision(None, dtype)
    menus = {
        family.name: family.menu(dtype, traits, precision)
        for family in FAMILIES.values()
        if family.runs(dtype, precision, traits)
    }
    turns = {name: itertools.cycle(menu) for name, menu in menus.items() if menu}
    blocker = None if traits.type == "cpu" else QueueBlocker(queue)
    for sizes in _SHAPES:
        shape = GemmShape(*sizes)
        problem = problem_on(shape.problem(dtype, precision.name), traits)
        configs = [
            config
            for name, menu in menus.items()
            for config in _picked(name, menu, turns, problem, traits)
            if not family_of(config).refusal(config, problem, traits)
        ]
        operands = None
        for config in configs:
            if time.perf_counter() >= until:
                return
            if predict([config], problem, traits, load_database())[0] > _LONGEST:
                continue
            operands = operands or make_operands(queue, shape, dtype)
            seconds = _seconds(operands, config, blocker)
            if seconds is not None:
                yield Sample(problem, config, seconds)


def _picked(
    name: str,
    menu: tuple[Config, ...],
    turns: Mapping[str, Iterator[Config]],
    problem: GemmProblem,
    traits: DeviceTraits,
) -> list[Config]:
    """The kernel of a menu that is predicted to be the fastest, and the next ones in turn."""
    if not menu:
        return []
    times = predict(menu, problem, traits, load_database())
    best = menu[int(np.argmin(times))]
    return list(dict.fromkeys([best, *itertools.islice(turns[name], _OTHERS)]))


def _seconds(operands: Operands, config: Config, blocker: QueueBlocker | None) -> float | None:
    """The time of a product by a configuration; None if it cannot run, or its result is wrong."""
    try:
        product = operands.plan(config=config)
        if operands.fault(product, product.product.problem.precision) is not None:
            return None
        bench = Bench(_PACE)
        bench.add(plan_contender("kernel", operands, product, blocker))
        return min(bench.run()["kernel"].samples)
    except PyclgemmError:
        return None
