"""The report on transforms, with the roofline: lines, a table, a CSV file and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.table import Table

from benchmarks.mra.cases import Size
from benchmarks.reports.plots import titled_figure
from benchmarks.reports.report import file_stem
from benchmarks.session import command
from pyclgemm.analysis.plots import COLOURS, INK, MARKERS, log_axis, ranges
from pyclgemm.analysis.report import speed_text

#: Names of the levels in plots.
TECHNIQUES = {
    "L1": "columns, all from global memory",
    "L2": "columns, matrix in local memory",
    "L3": "rows in registers",
    "L4": "matrix units",
    "L5": "three contractions fused",
    "L6": "Kronecker product",
}


@dataclass(frozen=True)
class Repetition:
    """One repetition of a level, or of a rival."""

    #: "L1" to "L6", or the rival's function.
    name: str
    #: The technique that ran: that of another level if the device cannot run this one.
    technique: str
    size: Size
    number: int
    #: Mean time of a transform of all tensors.
    seconds: float

    @property
    def gflops(self) -> float:
        """Speed in useful operations."""
        return self.size.flops / self.seconds / 1e9

    @property
    def computed_gflops(self) -> float:
        """Speed in operations that the level computes."""
        return self.size.computed(self.name) / self.seconds / 1e9

    def line(self, bandwidth: float) -> str:
        """Describe the repetition in one line.

        Examples
        --------
        >>> repetition = Repetition("L6", "kronecker", Size(2048, 10, "float64"), 0, 1e-3)
        >>> repetition.line(2.5e12)
        'L6 nfuncs=2048 K=10 time=1000.0 us useful=122.9 GFLOPS actual=4096.0 GFLOPS memory=1.3 %'
        """
        actual = f" actual={self.computed_gflops:.1f} GFLOPS" if self.name == "L6" else ""
        share = self.gflops / self.size.roofline(bandwidth)
        return (
            f"{self.name} nfuncs={self.size.count} K={self.size.extent} "
            f"time={1e6 * self.seconds:.1f} us useful={self.gflops:.1f} GFLOPS{actual} "
            f"memory={100 * share:.1f} %"
        )


def to_frame(repetitions: Iterable[Repetition], bandwidth: float) -> pd.DataFrame:
    """Make a row for each repetition; `bandwidth` is that of a copy, in bytes per second."""
    return pd.DataFrame(
        {
            "level": repetition.name,
            "technique": repetition.technique,
            "nfuncs": repetition.size.count,
            "K": repetition.size.extent,
            "dtype": repetition.size.dtype,
            "repetition": repetition.number,
            "us": 1e6 * repetition.seconds,
            "gflops": repetition.gflops,
            "computed_gflops": repetition.computed_gflops,
            "roofline_gflops": repetition.size.roofline(bandwidth),
            "copy_gb_s": bandwidth / 1e9,
        }
        for repetition in repetitions
    )


def medians(repetitions: Sequence[Repetition]) -> dict[tuple[Size, str], float]:
    """Return the median seconds of each size and name, in the order of measuring."""
    samples: dict[tuple[Size, str], list[float]] = {}
    for repetition in repetitions:
        samples.setdefault((repetition.size, repetition.name), []).append(repetition.seconds)
    return {key: statistics.median(seconds) for key, seconds in samples.items()}


def speed_table(repetitions: Sequence[Repetition], bandwidth: float) -> Table:
    """Tabulate median times, speeds and the roofline with a row for each size and name."""
    table = Table(
        title="Medians. Roofline: each tensor read once and written once at "
        f"{bandwidth / 1e9:.0f} GB/s, the bandwidth of a copy",
        title_justify="left",
    )
    for name in ("K", "type", "level", "us", "GFLOPS", "computed", "roofline", "share"):
        table.add_column(name, justify="left" if name in ("type", "level") else "right")
    last = None
    for (size, name), seconds in medians(repetitions).items():
        if last not in (None, size):
            table.add_section()
        last = size
        roofline = size.roofline(bandwidth)
        gflops, computed = (
            operations / seconds / 1e9 for operations in (size.flops, size.computed(name))
        )
        cells = (f"{gflops:.1f}", f"{computed:.1f}", f"{roofline:.0f}", f"{gflops / roofline:.2f}")
        table.add_row(str(size.extent), size.dtype, name, f"{1e6 * seconds:.1f}", *cells)
    return table


def write_results(
    repetitions: Sequence[Repetition], bandwidth: float, facts: Mapping[str, str], folder: Path
) -> list[Path]:
    """Write the CSV file and a plot for each element type; return the paths."""
    paths = [folder / f"{file_stem(facts, 'transform3d')}.csv"]
    frame = to_frame(repetitions, bandwidth).assign(**facts)
    command.write(paths[0], frame.to_csv(index=False))
    for dtype, rows in frame.groupby("dtype", sort=False):
        paths.append(folder / f"{file_stem(facts, f'transform3d {dtype}')}.png")
        plot_levels(rows, facts, paths[-1])
    return paths


def plot_levels(frame: pd.DataFrame, facts: Mapping[str, str], path: Path) -> None:
    """Draw useful FLOPS over K with a line for each technique, and the roofline.

    `frame` has the rows of `to_frame` of one element type. Bars reach from the slowest to the
    fastest repetition.
    """
    first = frame.iloc[0]
    title = f"transform3d, {first['nfuncs']} tensors, {first['dtype']}"
    with titled_figure(path, 9, 6, title, facts) as figure:
        axes = figure.subplots()
        for index, (name, rows) in enumerate(frame.groupby("level", sort=False)):
            speed = 1e9 * rows.groupby("K")["gflops"].agg(["median", "min", "max"])
            axes.errorbar(
                speed.index, speed["median"],
                yerr=ranges(speed["median"], speed["min"], speed["max"]),
                label=TECHNIQUES.get(str(name), name), marker=MARKERS[index],
                linestyle="-" if str(name) in TECHNIQUES else ":",
                color=COLOURS[index % len(COLOURS)],
            )  # fmt: skip
        roofline = 1e9 * frame.groupby("K")["roofline_gflops"].first()
        axes.plot(
            roofline, "--", color=INK, linewidth=1,
            label=f"roofline, {speed_text(first['copy_gb_s'], 'B/s')}",
        )  # fmt: skip
        log_axis(axes.yaxis, "FLOPS", "useful speed, median; bars: all repetitions")
        axes.set_xticks(roofline.index, [str(extent) for extent in roofline.index])
        axes.set_xlabel("K, the extent of a tensor")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
