"""Calibration: measure a device's ceilings and a few kernels, and fit predicted times to them.

The tuner takes minutes for each shape; calibration takes seconds for all shapes. Predicted times
(`pyclgemm.families.cost`) have few coefficients, which follow from the times of a few kernels of
each family on small and large products. Ceilings come first, because they help every type. Then
types and families take turns, so that each of them has times whenever calibration ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyopencl as cl

from ..analysis.ceilings import ceilings_in_turn
from ..analysis.operands import OperandStore, WrongError, plan_contender
from ..codegen.config import Config
from ..device.ceilings import Ceilings, completed
from ..device.traits import DeviceTraits, traits_of
from ..errors import ArgumentError, PyclgemmError, UnsupportedError, shown
from ..families.registry import problem_on
from ..host.files import check_writable
from ..host.process import postponed
from ..measure.bench import Bench, Pace
from ..measure.filled_queue import Clock, blocker_of
from ..problem.precision import resolve_precision
from ..problem.problem import GemmProblem
from ..problem.shape import GemmShape
from ..runtime.arguments import check_function, check_queue
from ..runtime.queue_state import forget_choices
from ..selection import database
from ..selection.database import Database
from ..selection.features import Sample, samples_of
from ..selection.model import known_of
from ..selection.saving import calibrated_file, user_file
from .fit import Fit, model_of, times_by_family
from .search import can_run

Item = TypeVar("Item")

#: Default, least and greatest duration in seconds.
SECONDS = 20.0
_LEAST, _MOST = 1.0, 3600.0
#: Fractions of the time when the last ceiling and the last kernel may start. The rest is for fits,
#: and for measurements that take longer than expected.
_CEILINGS_UNTIL, _KERNELS_UNTIL = 0.4, 0.9
#: Initial estimate of the seconds to build and time a kernel.
_FIRST = 0.5

#: Products: large and small, square, with few rows or columns, with small and large k, in all
#: layouts.
_SHAPES = (
    GemmShape(1024, 1024, 1024), GemmShape(1, 2048, 2048, "NT"), GemmShape(96, 96, 96),
    GemmShape(128, 128, 4096, "TN"), GemmShape(16, 2048, 1024, "NT"), GemmShape(2048, 2048, 64),
    GemmShape(4, 4096, 512), GemmShape(500, 700, 900, "TT"), GemmShape(2048, 24, 1024, "NT"),
    GemmShape(2, 1024, 4096), GemmShape(2048, 2048, 2048), GemmShape(256, 256, 256, "TN"),
    GemmShape(96, 3000, 333),
)  # fmt: skip
#: Products on which a kernel is timed before the next one is built, and kernels of a family that
#: are timed on all products before others.
_AT_ONCE, _KERNELS = 4, 6
#: Kernels are left out if they are predicted to take longer than this, in seconds, or longer than
#: the fastest of their family by this factor.
_LONGEST, _SLOWER = 0.1, 2.0
#: Largest number of operand sets, which take time to create.
_MOST_SETS = 8

#: A fit is accepted if it reduces the error of predictions to this fraction; less may be chance.
_BETTER = 0.9

_PACE = Pace(burst=0.003, rest=0.5, rounds=3, seconds=0.3)


@dataclass(frozen=True)
class Calibration:
    """The result of a calibration.

    Attributes
    ----------
    path : pathlib.Path
        The file of the user's database that keeps the result.
    ceilings : Ceilings
        The measured limits of the device.
    fits : dict of str to dict of str to Fit
        Fitted coefficients of predicted times by element type and path, where they predict better
        than the previous ones.
    seconds : float
        The duration.
    interrupted : bool
        Whether Ctrl-C ended it; measurements up to then are kept.
    """

    path: Path
    ceilings: Ceilings
    fits: dict[str, dict[str, Fit]]
    seconds: float
    interrupted: bool = False


def calibrate(
    queue: cl.CommandQueue,
    seconds: float = SECONDS,
    *,
    report: Callable[[str, float], None] | None = None,
) -> Calibration:
    """Measure a device that was not tuned, to improve the choice of kernels on it.

    Ceilings (arithmetic, memory, caches, launches) are measured, then some kernels of each family
    on some products. The results go to the user's database, on which later choices are based.
    Nothing else should run on the device meanwhile. If the time does not suffice for all, or Ctrl-C
    ends it, the measurements up to then are kept.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        An in-order queue without profiling.
    seconds : float
        The duration, including the building of kernels: 1 to 3600.
    report : callable, optional
        Called before each step with its name and the fraction of the time that has passed.

    Returns
    -------
    Calibration
        The results, and the file that keeps them.

    Raises
    ------
    ArgumentError, DtypeError
        If `seconds` is out of range, or `report` no function.
    UnsupportedError
        If SciPy is missing (``pip install "pyclgemm[tune]"``), or no kernel works.
    DatabaseError, FileError
        If the user's database cannot be used or written.

    See Also
    --------
    GemmPlan.autotune : Time the kernels of one product.
    explain : Shows what a choice is based on.

    Examples
    --------
    >>> found = pyclgemm.calibrate(queue, seconds=5.0)    # doctest: +SKIP
    >>> found.fits["float32"]["direct"].error             # doctest: +SKIP
    0.11
    """
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not is_number or not _LEAST <= seconds <= _MOST:
        raise ArgumentError(
            f"seconds is {shown(seconds)}; a number of {_LEAST:g} to {_MOST:g} is wanted"
        )
    check_queue(queue)
    if report is not None:
        check_function("report", report, "a function of a text and a number")
    return Calibrator(queue, float(seconds), report or (lambda step, fraction: None)).run()


class Calibrator:
    """Runs one calibration."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        seconds: float,
        report: Callable[[str, float], None],
        clock: Clock | None = None,
    ) -> None:
        self._queue, self._seconds, self._report = queue, seconds, report
        self._clock = clock or Clock()
        self._begin = self._clock.now()
        try:
            import scipy.optimize  # noqa: F401
        except ImportError as error:
            raise UnsupportedError(
                'calibration fits coefficients with SciPy; pip install "pyclgemm[tune]" has it'
            ) from error
        self._traits = traits_of(queue.device)
        self._path = user_file(self._traits)
        check_writable(self._path, database.DATABASE)
        self._known = database.load_database()
        self._samples: dict[tuple[str, str], list[Sample]] = {}

    def run(self) -> Calibration:
        """Measure until the time is over, then fit and save."""
        interrupted, ceilings = False, None
        try:
            for figures in ceilings_in_turn(self._queue, self._tell):
                ceilings = completed(figures, self._traits)
                if self._clock.now() >= self._begin + _CEILINGS_UNTIL * self._seconds:
                    break
            assert ceilings is not None
            self._time_kernels(ceilings, self._begin + _KERNELS_UNTIL * self._seconds)
        except KeyboardInterrupt:
            if ceilings is None:
                raise
            interrupted = True
        with postponed():
            fits = self._save(ceilings)
        seconds = self._clock.now() - self._begin
        return Calibration(self._path, ceilings, fits, seconds, interrupted)

    def _tell(self, step: str) -> None:
        self._report(step, min(1.0, (self._clock.now() - self._begin) / self._seconds))

    def _time_kernels(self, ceilings: Ceilings, until: float) -> None:
        if self._clock.now() + _FIRST >= until:
            return
        kernels = kernels_in_turn(self._traits, self._before(ceilings))
        timer = KernelTimer(self._queue)
        tried = 0
        for kernel, seconds in timed(kernels, timer.seconds, self._clock, until, self._tell):
            tried += 1
            if seconds is not None:
                name = kernel.problem.dtype, kernel.problem.precision.name
                sample = Sample(kernel.problem, kernel.config, seconds)
                self._samples.setdefault(name, []).append(sample)
        if tried and not self._samples:
            raise UnsupportedError(f"no kernel could be timed on {self._traits.name!r}")

    def _before(self, ceilings: Ceilings) -> Database:
        """The databases before any fit; the user's file has the new ceilings and nothing else."""
        groups = self._known.groups
        others = tuple(tuple(file for file in group if file.path != self._path) for group in groups)
        return Database(((calibrated_file(self._path, self._traits, ceilings, {}),), *others))

    def _save(self, ceilings: Ceilings) -> dict[str, dict[str, Fit]]:
        """Fit coefficients, and write them and the ceilings to the user's database."""
        traits, before = self._traits, self._before(ceilings)
        samples = {name: list(timed) for name, timed in self._samples.items()}
        if self._path.exists():
            for entry in database.read_file(self._path).entries:
                samples.setdefault(entry.name, []).extend(samples_of(entry.own, *entry.name))
        fits = {
            name: fit
            for name, times in samples.items()
            if (fit := better_fits(times, traits, ceilings, before))
        }
        source = f"calibrated on {traits.name}, {traits.platform} {traits.driver}"
        models = {name: model_of(source, of) for name, of in fits.items()}
        database.update_file(
            self._path, lambda: calibrated_file(self._path, traits, ceilings, models)
        )
        database.reload_database()
        forget_choices()
        return {name[0]: fits[name] for name in self._samples if name in fits}


def better_fits(
    samples: list[Sample], traits: DeviceTraits, ceilings: Ceilings, before: Database
) -> dict[str, Fit]:
    """The fits whose predictions of unseen configurations are better than the previous ones."""
    errors: dict[str, list[float]] = {}
    for one in samples:
        (expected,) = known_of(one.problem, traits, before).predict([one.config], one.problem)
        errors.setdefault(one.config.family, []).append(abs(math.log(expected / one.seconds)))
    return {
        family: times.fit()
        for family, times in times_by_family(samples, traits, ceilings).items()
        if times.error_of_unseen() < _BETTER * np.mean(errors[family])
    }


class Kernel(NamedTuple):
    """A product and the configuration that computes it."""

    shape: GemmShape
    problem: GemmProblem
    config: Config


def kernels_in_turn(traits: DeviceTraits, known: Database) -> Iterator[Kernel]:
    """The kernels to time: types take turns, and the families of each type.

    The kernels of a family are those with the least predicted time on some product. Each is timed
    on several products before the next one, so that few are built.
    """
    has_half = traits.float16 or traits.type != "cpu"
    dtypes = ["float32", *["float16"] * has_half, *["float64"] * traits.float64]
    return _in_turn(_in_turn(_kernels(dtype, traits, known)) for dtype in dtypes)


def _in_turn(sequences: Iterable[Iterable[Item]]) -> Iterator[Item]:
    """The first item of each sequence, then the second of each that has one, and so on."""
    ranks = itertools.zip_longest(*sequences)
    return (one for rank in ranks for one in rank if one is not None)


def _kernels(dtype: str, traits: DeviceTraits, known: Database) -> list[list[Kernel]]:
    """The kernels to time for a type, family by family."""
    precision = resolve_precision(None, dtype).name
    able: dict[str, list[tuple[GemmShape, GemmProblem, list[Config]]]] = {}
    for shape in _SHAPES:
        problem = problem_on(shape.problem(dtype, precision), traits)
        least: dict[str, float] = {}
        of_family: dict[str, list[Config]] = {}
        for one in known_of(problem, traits, known).ranking(problem).ordered(problem):
            family = one.config.family
            most = min(_LONGEST, _SLOWER * least.get(family, math.inf))
            if one.seconds <= most and can_run(one.config, problem, traits):
                least.setdefault(family, one.seconds)
                of_family.setdefault(family, []).append(one.config)
        for family, configs in of_family.items():
            able.setdefault(family, []).append((shape, problem, configs))
    return [list(_of_family(products)) for products in able.values()]


def _of_family(
    products: Sequence[tuple[GemmShape, GemmProblem, Sequence[Config]]],
) -> Iterator[Kernel]:
    """The kernels to time of a family, from products with their configurations, the best first."""
    best = list(dict.fromkeys(_in_turn(configs[:2] for _, _, configs in products)))
    for some in (best[:_KERNELS], best[_KERNELS:]):
        for first in range(0, len(products), _AT_ONCE):
            for config in some:
                for shape, problem, configs in products[first : first + _AT_ONCE]:
                    if config in configs:
                        yield Kernel(shape, problem, config)


def timed(
    kernels: Iterable[Kernel],
    seconds_of: Callable[[Kernel], float | None],
    clock: Clock,
    until: float,
    tell: Callable[[str], None],
) -> Iterator[tuple[Kernel, float | None]]:
    """Time the kernels that are expected to end before `until` on the clock.

    A kernel is expected to take as long as the longest so far, among those that were built before
    or among those that had to be built.
    """
    built: set[tuple[str, Config]] = set()
    longest = {True: 0.0, False: _FIRST}
    for kernel in kernels:
        key = kernel.problem.dtype, kernel.config
        is_built, begin = key in built, clock.now()
        if begin + longest[is_built] >= until:
            continue
        tell(f"kernels of {kernel.problem.dtype}")
        built.add(key)
        seconds = seconds_of(kernel)
        longest[is_built] = max(longest[is_built], clock.now() - begin)
        yield kernel, seconds


class KernelTimer:
    """Times kernels on a queue."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._store = OperandStore(queue, _MOST_SETS)
        self._blocker = blocker_of(queue)

    def seconds(self, kernel: Kernel) -> float | None:
        """The time of a kernel; None if it cannot run or its result is wrong."""
        try:
            operands = self._store.get(kernel.shape, kernel.problem.dtype)
            product = operands.checked(kernel.config, kernel.problem.precision)
            contender = plan_contender("kernel", operands, product, self._blocker)
            return min(Bench(_PACE, contender).run()["kernel"].samples)
        except (PyclgemmError, WrongError, cl.Error, MemoryError):
            return None
