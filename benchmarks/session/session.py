"""One run over many cases: it checks and times the contenders, and keeps records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyopencl as cl

from benchmarks.contenders.contenders import (
    CUBLAS_LAYER,
    GEMM,
    LAYER,
    MMA,
    PACKED,
    PLAN,
    QUEUED,
    CheckedContender,
    Factory,
)
from benchmarks.products.arithmetic import Arithmetic
from benchmarks.products.case import Case
from benchmarks.products.operands import Operands, make_operands, memory_shortage
from pyclgemm.errors import UnsupportedError
from pyclgemm.measure.bench import Bench, Pace, Timing
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT, Blocker, Clock
from pyclgemm.measure.verify import MeasuredError

#: Contenders of this library.
OWN = (PLAN, GEMM, PACKED, LAYER, QUEUED, MMA)
#: Contenders that need a constant second operand.
DENSE_ONLY = (PACKED, LAYER, CUBLAS_LAYER)


@dataclass(frozen=True)
class Record:
    """The time and the error of one contender on one case."""

    case: Case
    #: The requested types and precision.
    arithmetic: Arithmetic
    contender: str
    timing: Timing
    #: Number of sets of operands among which the calls rotated.
    sets: int
    #: Largest error over its bound.
    error: float
    #: Largest error over ``|A| |B|``.
    relative_error: float = float("nan")


@dataclass
class Session:
    """A run and its records, which an interrupted run keeps."""

    queue: cl.CommandQueue
    factories: Mapping[str, Factory]
    pace: Pace
    #: Receives a sentence about everything that is left out.
    say: Callable[[str], None]
    #: Seconds. A contender is left out of a case if one product would take longer at the best
    #: speed that it has reached so far.
    longest_product: float
    #: Holds `queue` while short products are enqueued; None: the host's clock times them.
    blocker: Blocker | None = None
    clock: Clock | None = None
    #: Number of sets of operands; None: more than a cache holds.
    sets: int | None = None
    seed: int = 0
    #: Only parts of products of more multiply-adds are checked; None: a large number.
    most_work: int | None = None
    #: Contenders of this library: their errors and wrong results are failures.
    own: Collection[str] = OWN
    records: list[Record] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _best: dict[tuple[str, Arithmetic], float] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def run(
        self,
        cases: Sequence[Case],
        arithmetic: Arithmetic,
        progress: Callable[[float], None],
        without: Collection[str] = (),
    ) -> None:
        """Measure the cases without some contenders; `progress` gets parts of 1 for each case."""
        for case in cases:
            reported = 0.0

            def report(part: float) -> None:
                nonlocal reported
                reported += part
                progress(part)

            try:
                self.run_case(case, arithmetic, report, without)
            except Exception as error:  # such as a lack of memory; the records must not be lost
                self.failures.append(f"{case} {arithmetic} was given up: {error!r}")
                self.say(self.failures[-1])
            progress(1.0 - reported)

    def run_case(
        self,
        case: Case,
        arithmetic: Arithmetic,
        progress: Callable[[float], None],
        without: Collection[str] = (),
    ) -> None:
        """Make the matrices, check every contender and time the correct ones."""
        names = [
            name
            for name in self.factories
            if name not in without and (case.dense or name not in DENSE_ONLY)
        ]
        names = self._fast_enough(names, case, arithmetic)
        if shortage := memory_shortage(case, arithmetic, self.queue.device):
            names = []
            self.say(f"{case} is skipped: {shortage}.")
        if not names:
            return
        rng = np.random.default_rng([self.seed, *case.sizes])
        operands = make_operands(
            case, arithmetic, self.queue, rng, sets=self.sets, blocker=self.blocker,
            most_work=self.most_work,
        )  # fmt: skip
        checked: dict[CheckedContender, MeasuredError] = {}
        for name in names:
            if found := self._check(name, operands):
                contender, error = found
                checked[contender] = error
        if not checked:
            return
        bench = Bench(self.pace, *checked, rng=rng, clock=self.clock)
        try:
            bench.run(report=progress)
        except KeyboardInterrupt:
            self._record(checked, bench.timings(), operands)
            raise
        self._record(checked, bench.timings(), operands)

    def _record(
        self,
        checked: Mapping[CheckedContender, MeasuredError],
        timings: Mapping[str, Timing],
        operands: Operands,
    ) -> None:
        """Keep the timings; an interrupted case does not have those of all contenders."""
        case, arithmetic = operands.case, operands.arithmetic
        for contender, error in checked.items():
            if contender.name not in timings:
                continue
            name, timing = contender.name, timings[contender.name]
            by_host = timing.clock_name == "host"
            if contender.blocker and by_host and timing.median < LONGEST_PRODUCT:
                self.say(
                    f"{name} could not be timed behind a blocker in {case}: "
                    "its figure has the host's time in it."
                )
            # By the fastest burst: other work on the machine slows most bursts, but hardly all.
            speed = case.flops(arithmetic.dtype) / min(timing.samples)
            key = name, arithmetic
            self._best[key] = max(self._best.get(key, 0.0), speed)
            errors = error.ratio, error.largest
            self.records.append(Record(case, arithmetic, name, timing, len(operands.sets), *errors))

    def _fast_enough(self, names: Sequence[str], case: Case, arithmetic: Arithmetic) -> list[str]:
        """Return the contenders that are fast enough for the case."""
        fit, slow = [], []
        for name in names:
            speed = self._best.get((name, arithmetic))
            seconds = case.flops(arithmetic.dtype) / speed if speed else 0.0
            if seconds <= self.longest_product:
                fit.append(name)
            else:
                slow.append(f"{name} ({seconds:.1f} s)")
        if not slow:
            return fit
        reason = (
            f"one product would take longer than {self.longest_product:g} s "
            "(--max-seconds allows it)"
        )
        if any(name in self.own for name in names) and not any(name in self.own for name in fit):
            self.say(f"{case} is skipped: {', '.join(slow)}, {reason}.")
            return []
        self.say(f"{case} goes without {', '.join(slow)}: {reason}.")
        return fit

    def _check(
        self, name: str, operands: Operands
    ) -> tuple[CheckedContender, MeasuredError] | None:
        """Make a contender, run it once and measure its error; None if this fails."""
        case = operands.case
        try:
            contender = self.factories[name](operands)
            contender.poison()
            contender.enqueue(contender.step)
            contender.finish()
            result = contender.result()
        except Exception as error:  # other libraries may raise anything; the run goes on
            self._say_once(f"{name} is left out of {operands.arithmetic}", case, str(error))
            if name in self.own and not isinstance(error, UnsupportedError):
                self.failures.append(f"{name} raised for {case} {operands.arithmetic}: {error!r}")
            return None
        measured = operands.error(result, contender.precision, contender.bias)
        if measured.held:
            return contender, measured
        message = (
            f"{name} is WRONG for {case} {operands.arithmetic}: its error is "
            f"{measured.ratio:.3g} times what rounding in {contender.precision.name} allows; it is "
            "not timed"
        )
        self.say(message + ".")
        if name in self.own:
            self.failures.append(message)
        return None

    def _say_once(self, what: str, case: Case, cause: str) -> None:
        """Report a failure once, not for every case with the same cause."""
        if (what + cause) not in self._said:
            self._said.add(what + cause)
            self.say(f"{what} (from {case} on): {cause}")
