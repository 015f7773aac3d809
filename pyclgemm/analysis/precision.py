"""Measure speed and error of every algorithm on a device; table, CSV file and plot."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyopencl as cl
from rich.table import Table
from rich.text import Text

from ..device.traits import traits_of
from ..errors import PyclgemmError
from ..host.files import Purpose, write_whole
from ..measure.bench import Bench, pace_for
from ..measure.filled_queue import blocker_of
from ..measure.verify import MeasuredError
from ..problem.precision import PRECISIONS, resolve_precision, result_dtypes
from ..problem.shape import GemmShape
from .operands import Operands, make_operands, plan_contender, random_operands
from .plots import COLOURS, INK, MARKERS, figure_file, label_points, log_axis
from .report import speed_text, time_text
from .tables import new_table

#: The most multiply-adds of a reference; for larger products it has some rows and columns.
_MOST_WORK = 1 << 29

TABLE = Purpose("the table", "name another file with --csv")


class Algorithm(NamedTuple):
    """One way to multiply: element types of operands and result, JAX's name of the arithmetic."""

    operand: str
    result: str
    precision: str

    @property
    def name(self) -> str:
        """Types and arithmetic in words."""
        return f"{self.operand} to {self.result}, {self.precision}"


BASELINE = Algorithm("float32", "float32", "F32_F32_F32")

#: All algorithms but that of int32, which wraps; for each operand type those first that sum in
#: this type.
ALGORITHMS = tuple(
    Algorithm(one.operand, result, one.name)
    for operand in ("float16", "bfloat16", "float32", "float64", "int8")
    for one in sorted(PRECISIONS, key=lambda one: one.arithmetic != one.operand)
    for result in result_dtypes(operand)
    if one.operand == operand and result in (one.operand, one.arithmetic)
)


@dataclass(frozen=True)
class Row:
    """The figures of an algorithm on a device."""

    algorithm: Algorithm
    path: str = ""  # kernel family and its parameters; empty if it cannot run
    config: str = ""
    seconds: float | None = None  # median time of one product; None if it was not timed
    error: MeasuredError | None = None  # None if it did not run
    reason: str = ""  # why it cannot run

    @property
    def verdict(self) -> str:
        """Whether the error is within its bound, in words."""
        if self.error is None:
            return ""
        if self.error.held:
            return "exact" if self.error.bound == 0 else "held"
        return "exceeded"


@dataclass(frozen=True)
class Report:
    """The rows of a product on a device, in the order of `ALGORITHMS`."""

    device: str
    sizes: tuple[int, int, int]
    data: str  # one of `pyclgemm.analysis.operands.DISTRIBUTIONS`
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """The product, in words."""
        return f"{' x '.join(map(str, self.sizes))}, {self.data} data"

    def speed(self, row: Row) -> float | None:
        """1e12 operations a second, 2 m n k for a product; None if it was not timed."""
        return 2 * math.prod(self.sizes) / row.seconds / 1e12 if row.seconds else None

    def relative(self, row: Row) -> float | None:
        """The speed over that of `BASELINE`; None if either was not timed."""
        base = next((one.seconds for one in self.rows if one.algorithm == BASELINE), None)
        return base / row.seconds if base and row.seconds else None


def report_table(report: Report) -> Table:
    """Tabulate the algorithms that ran; `reasons` lists the others."""
    table = new_table(
        f"{report.title}, on {report.device}",
        "operands", "result", "algorithm", "path", ">time", ">speed", f">x {BASELINE.operand}",
        ">max error", ">rms", ">bound", "",
        groups=[(0, 1, 2), (4, 5, 6), (7, 8, 9), (3, 10)],
    )  # fmt: skip
    previous = ""
    for row in report.rows:
        if row.error is None:
            continue
        algorithm, speed, relative = row.algorithm, report.speed(row), report.relative(row)
        if previous not in ("", algorithm.operand):
            table.add_section()
        previous = algorithm.operand
        unit = "OPS" if algorithm.operand == "int8" else "FLOPS"
        errors = (row.error.largest, row.error.root_mean_square, row.error.bound)
        table.add_row(
            *algorithm,
            row.path,
            "-" if row.seconds is None else time_text(row.seconds),
            "-" if speed is None else speed_text(1000 * speed, unit),
            "-" if relative is None else f"{relative:.2f}",
            *(f"{error:.1e}" for error in errors),
            Text(row.verdict, style="" if row.error.held else "bold red"),
        )
    return table


def reasons(report: Report) -> dict[str, list[str]]:
    """The algorithms that did not run by the reason, which many of them share."""
    algorithms: dict[str, list[str]] = {}
    for row in report.rows:
        if row.error is None:
            # The algorithm's name is left out of its reason.
            reason = row.reason.removeprefix(f"precision is {row.algorithm.precision}, for which ")
            algorithms.setdefault(reason or "not reached", []).append(row.algorithm.name)
    return algorithms


def write_csv(report: Report, path: Path) -> None:
    """Write a line for each algorithm; unknown figures are empty. May raise `FileError`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([
        "device", "m", "n", "k", "data", "operand", "result", "precision", "path", "config",
        "seconds", "tera_per_second", "times_f32", "largest_error", "rms_error", "bound",
        "verdict", "reason",
    ])  # fmt: skip
    for row in report.rows:
        error = row.error
        figures = (error.largest, error.root_mean_square, error.bound) if error else [None] * 3
        writer.writerow([
            report.device, *report.sizes, report.data, *row.algorithm, row.path, row.config,
            row.seconds, report.speed(row), report.relative(row), *figures, row.verdict, row.reason,
        ])  # fmt: skip
    write_whole(path, text.getvalue(), TABLE)


def plot_report(report: Report, path: Path) -> None:
    """Draw speed over the largest error, with the bound of each algorithm that was timed."""
    drawn = [(row, row.error) for row in report.rows if row.error and row.seconds]
    # The position of an error of zero on the logarithmic axis.
    floor = min((error.largest for _, error in drawn if error.largest > 0), default=1e-16) / 2
    title = f"{report.title}\n{report.device}"
    with figure_file(path, 9, 6, title) as figure:
        axes = figure.subplots()
        points, bounds = [], []
        for operand, colour, marker in zip(
            dict.fromkeys(row.algorithm.operand for row, _ in drawn), COLOURS, MARKERS, strict=False
        ):
            for row, error in drawn:
                algorithm, speed = row.algorithm, 1e12 * (report.speed(row) or 0.0)
                if algorithm.operand != operand:
                    continue
                exact, known = error.largest == 0, operand in axes.get_legend_handles_labels()[1]
                x = max(error.largest, floor)
                axes.plot(
                    [x], [speed], "<" if exact else marker, color=colour,
                    label=None if known else operand,
                )  # fmt: skip
                if error.bound > 0:
                    bound = max(error.bound, floor)
                    axes.plot([x, bound], [speed, speed], color=colour, linewidth=0.8, alpha=0.7)
                    axes.plot([bound], [speed], "|", color=colour, markersize=9)
                    bounds.append((x, speed, bound, speed))
                points.append((x, speed, f"{algorithm.precision} to {algorithm.result}"))
        axes.plot([], [], "|", color=INK, markersize=9, label="the bound of an error")
        axes.margins(x=0.15, y=0.15)
        log_axis(axes.xaxis, "", "largest error over |A| |B| (an arrow to the left: none)")
        axes.xaxis.set_major_formatter("{x:.0e}")
        log_axis(axes.yaxis, "OPS" if all(row.algorithm.operand == "int8" for row, _ in drawn)
                 else "FLOPS")  # fmt: skip
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), title="operands")
        label_points(axes, points, bounds)


@dataclass
class PrecisionBench:
    """Measures algorithms on one product; `report` returns the known figures at any time."""

    queue: cl.CommandQueue
    sizes: tuple[int, int, int]
    data: str = "normal"
    algorithms: Sequence[Algorithm] = ALGORITHMS
    seed: int = 0

    def __post_init__(self) -> None:
        self._context = self.queue.context  # not every runtime keeps a queue's context alive
        self._traits = traits_of(self.queue.device)
        self._blocker = blocker_of(self.queue)
        self._rows = {algorithm: Row(algorithm) for algorithm in self.algorithms}
        self._operands: dict[tuple[str, str], Operands] = {}
        self._bench = Bench(pace_for("analysis", self._traits.type))

    def check(self, report: Callable[[str], None] = lambda what: None) -> None:
        """Run each algorithm once, measure its error, and call `report` with its name."""
        for algorithm in self._rows:
            try:
                row = self._checked(algorithm)
            except PyclgemmError as error:
                row = Row(algorithm, reason=_line(error))
            except (cl.Error, MemoryError) as error:
                reason = f"it could not be run: {_line(error) or type(error).__name__}"
                row = Row(algorithm, reason=reason)
            self._rows[algorithm] = row
            report(algorithm.precision)

    def time(self, rounds: int = 5, report: Callable[[], None] = lambda: None) -> None:
        """Time the algorithms with right results in turn; call `report` after every round."""
        for _ in range(rounds):
            self._bench.run(1)
            report()

    def report(self) -> Report:
        """The figures that are known so far."""
        seconds = {name: timing.median for name, timing in self._bench.timings().items()}
        rows = self._rows.values()
        timed = (replace(row, seconds=seconds.get(row.algorithm.name)) for row in rows)
        return Report(self._traits.name, self.sizes, self.data, tuple(timed))

    def _checked(self, algorithm: Algorithm) -> Row:
        precision = resolve_precision(algorithm.precision, algorithm.operand)
        types = (algorithm.operand, algorithm.result)
        if types not in self._operands:
            rng = np.random.default_rng(self.seed)
            host = random_operands(rng, *self.sizes, algorithm.operand, self.data)
            self._operands[types] = make_operands(
                self.queue, GemmShape(*self.sizes), *types, host=host, most_work=_MOST_WORK
            )
        operands = self._operands[types]
        ready = operands.plan(precision=algorithm.precision)
        error = operands.error(ready, precision)
        if error.held:
            self._bench.add(plan_contender(algorithm.name, operands, ready, self._blocker))
        return Row(algorithm, ready.choice.path, str(ready.choice.config), error=error)


def _line(error: BaseException) -> str:
    """The first line of an error's message, and the first error in a compiler's log."""
    first, *others = str(error).strip().splitlines() or [""]
    complaint = next((line.strip() for line in others if "error" in line.lower()), "")
    return f"{first}: {complaint}" if complaint else first
