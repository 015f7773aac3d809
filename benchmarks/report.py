"""What was measured, as a pandas table, a CSV file and plots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.contenders import CLBLAST, CUBLAS, GEMM, LAYER, NAMES, NUMPY, PACKED, PLAN
from benchmarks.measure import Timing
from benchmarks.shapes import Case

_REFERENCES = (CLBLAST, NUMPY, CUBLAS)

#: A suite of more cases is drawn as points over the size instead of bars.
_MOST_BARS = 40

#: The same contender has the same colour in every plot (colours safe for colour-blind eyes).
_COLOURS = {
    PLAN: "#0072B2", GEMM: "#56B4E9", PACKED: "#009E73", LAYER: "#CC79A7",
    CLBLAST: "#D55E00", NUMPY: "#7F7F7F", CUBLAS: "#E69F00",
}  # fmt: skip
_MARKERS = dict(zip(NAMES, "osD^vxP", strict=True))


@dataclass(frozen=True)
class Record:
    """One contender on one case.

    Attributes
    ----------
    case : Case
        The product.
    dtype : str
        NumPy name of the element type.
    contender : str
        One of `benchmarks.contenders.NAMES`.
    timing : Timing
        Its bursts.
    sets : int
        Sets of operands among which the calls rotated.
    error : float
        Largest error as a part of what is allowed.
    """

    case: Case
    dtype: str
    contender: str
    timing: Timing
    sets: int
    error: float


def to_frame(records: Sequence[Record], facts: Mapping[str, str]) -> pd.DataFrame:
    """One row a record, the facts of `benchmarks.environment` in every row.

    Times are seconds per call; ``gflops`` follows from their median.
    """
    rows = []
    for record in records:
        case, timing = record.case, record.timing
        rows.append(
            {
                "suite": case.suite,
                "case": case.label,
                "m": case.m,
                "n": case.n,
                "k": case.k,
                "layout": case.layout,
                "padding": case.padding,
                "dtype": record.dtype,
                "contender": record.contender,
                "gflops": case.flops(record.dtype) / timing.median / 1e9,
                "seconds": timing.median,
                "seconds_25": timing.quantile(0.25),
                "seconds_75": timing.quantile(0.75),
                "seconds_min": min(timing.samples),
                "bursts": len(timing.samples),
                "calls_per_burst": timing.calls,
                "sets": record.sets,
                "error_of_bound": record.error,
                **facts,
            }
        )
    return pd.DataFrame(rows)


def speed_table(frame: pd.DataFrame, suite: str) -> pd.DataFrame:
    """GFLOPS of each contender, and how they compare.

    Parameters
    ----------
    frame : DataFrame
        From `to_frame`.
    suite : str
        Which rows of it.

    Returns
    -------
    DataFrame
        One row a case, in the order of measuring. A column ``x CLBlast`` says how many
        times as fast as CLBlast pyclgemm is; ``layer / plan`` is DenseLayer's time, with
        bias and ReLU, over that of the plain product by a plan.
    """
    rows = frame[frame["suite"] == suite]
    speeds = rows.pivot_table(
        index="case", columns="contender", values="gflops", aggfunc="median", sort=False
    )
    speeds = speeds.reindex(
        index=rows["case"].unique(), columns=[name for name in NAMES if name in speeds]
    )
    table = speeds.copy()
    own = next((name for name in (PLAN, GEMM) if name in speeds), None)
    if own is not None:
        for reference in _REFERENCES:
            if reference in speeds:
                table[f"x {reference}"] = speeds[own] / speeds[reference]
    if LAYER in speeds:
        for name, label in ((PLAN, "plan"), (GEMM, "gemm")):
            if name in speeds:
                table[f"layer / {label}"] = speeds[name] / speeds[LAYER]
    spread = (rows["seconds_75"] - rows["seconds_25"]) / (2 * rows["seconds"])
    table["spread %"] = 100 * spread.groupby(rows["case"]).max()
    table.columns.name = table.index.name = None
    return table


def format_table(table: pd.DataFrame) -> str:
    """Render a `speed_table` as text, numbers no longer than they are sure."""

    def speed(value: float) -> str:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    formatters: dict[Any, Any] = {
        column: speed if column in NAMES else "{:.2f}".format for column in table.columns
    }
    return str(table.to_string(formatters=formatters, na_rep="-"))


def ratio_summary(table: pd.DataFrame) -> pd.DataFrame:
    """How the ratios of a `speed_table` are distributed over its cases."""
    ratios = table[[column for column in table.columns if column.startswith("x ")]]
    quantiles = ratios.quantile([0.0, 0.05, 0.25, 0.5, 0.75, 1.0])
    quantiles.index = pd.Index(["least", "5 %", "25 %", "median", "75 %", "most"])
    return quantiles.T


def plot_suite(frame: pd.DataFrame, suite: str, path: Path) -> None:
    """Draw the speeds of one suite: over the size if square, else case by case.

    Parameters
    ----------
    frame : DataFrame
        From `to_frame`.
    suite : str
        Which rows of it.
    path : Path
        The image.
    """
    # Not pyplot: it would look for a display.
    from matplotlib.figure import Figure

    rows = frame[frame["suite"] == suite]
    facts = rows.iloc[0]
    names = [name for name in NAMES if name in set(rows["contender"])]
    table = speed_table(frame, suite)
    square = len(table) > 2 and rows["m"].eq(rows["n"]).all() and rows["n"].eq(rows["k"]).all()
    if square or len(table) > _MOST_BARS:
        figure = Figure(figsize=(9, 8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        _draw_over_size(upper, lower, rows, table, linestyle="-" if square else "")
    else:
        figure = Figure(figsize=(9, 2 + 0.1 * len(table) * (2 + len(names))), layout="constrained")
        _draw_bars(figure.subplots(), table, names)
    figure.suptitle(
        f"{facts['dtype']} GEMM, {suite}: {facts['device']}\n"
        f"{facts['platform']}, driver {facts['driver']}, {facts['date'][:10]}",
        fontsize=11,
    )
    figure.savefig(path, dpi=120)


def _draw_over_size(
    upper: Any, lower: Any, rows: pd.DataFrame, table: pd.DataFrame, linestyle: str
) -> None:
    """Speeds above and ratios below, over the cube root of m n k."""
    firsts = rows.drop_duplicates("case").set_index("case").loc[table.index]
    sizes = np.cbrt(firsts["m"] * firsts["n"] * firsts["k"].astype(float)).round(3)

    def draw(axes: Any, column: str, name: str, label: str) -> None:
        axes.plot(
            sizes, table[column], label=label, color=_COLOURS[name], marker=_MARKERS[name],
            linestyle=linestyle, markersize=6 if linestyle else 4,
        )  # fmt: skip

    for name in NAMES:
        if name in table:
            draw(upper, name, name, name)
    for name in _REFERENCES:
        if f"x {name}" in table:
            draw(lower, f"x {name}", name, f"pyclgemm over {name}")
    lower.axhline(1.0, color="black", linewidth=0.8)
    upper.set_xscale("log", base=2)
    upper.set_yscale("log")
    upper.set_ylabel("GFLOPS, median")
    upper.grid(True, which="both", alpha=0.3)
    upper.legend()
    if linestyle:
        lower.set_xticks(list(sizes), [f"{size:.0f}" for size in sizes])
        lower.minorticks_off()
    ratios = table.filter(like="x ").to_numpy(dtype=float)
    if np.nanmax(ratios, initial=0.0) > 4:
        lower.set_yscale("log")
        lower.yaxis.set_major_formatter("{x:g}")
    else:
        lower.set_ylim(bottom=0)
    lower.set_xlabel("m = n = k" if linestyle else "cube root of m n k")
    lower.set_ylabel("times as fast")
    lower.grid(True, alpha=0.3)
    if lower.get_legend_handles_labels()[0]:
        lower.legend()


def _draw_bars(axes: Any, table: pd.DataFrame, names: Sequence[str]) -> None:
    height = 0.8 / len(names)
    places = np.arange(len(table))
    for index, name in enumerate(names):
        axes.barh(
            places + (index - (len(names) - 1) / 2) * height, table[name], height,
            label=name, color=_COLOURS[name],
        )  # fmt: skip
    axes.set_yticks(places, list(table.index))
    axes.invert_yaxis()
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlabel("GFLOPS, median")
    axes.grid(True, axis="x", alpha=0.3)
    axes.legend()


def file_stem(facts: Mapping[str, str], dtype: str) -> str:
    """Begin file names with device, platform, dtype and date.

    Examples
    --------
    >>> facts = {"device": "Xeon(R) X", "platform": "Intel(R)", "date": "2026-01-02T03:04:05+00:00"}
    >>> file_stem(facts, "float32")
    'xeon-x-intel-float32-2026-01-02t030405'
    """
    text = f"{facts['device']} {facts['platform']} {dtype} {facts['date'][:19]}"
    text = re.sub(r"\([RTM]+\)|:", "", text, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
