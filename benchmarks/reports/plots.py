"""Plots of measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import (
    CLBLAST,
    CUBLAS,
    CUBLAS_LAYER,
    CUBLAS_STREAM,
    LAYER,
    NAMES,
    NUMPY,
    PLAN,
)
from benchmarks.reports.report import ratio_ranges, speed_table
from pyclgemm.analysis.plots import (
    COLOURS,
    INK,
    MARKERS,
    figure_file,
    log_axis,
    ranges,
    ratio_axis,
)
from pyclgemm.families.registry import FAMILIES

#: A suite of more cases is drawn as points over the size instead of a row for each case.
_MOST_ROWS = 40

#: A contender or family has the same colour and marker in every plot, those named here the first.
_FIRST = (PLAN, CUBLAS, CLBLAST, NUMPY, LAYER, CUBLAS_LAYER, CUBLAS_STREAM)
_LOOKS = {
    name: {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
    for names in ((*_FIRST, *(name for name in NAMES if name not in _FIRST)), tuple(FAMILIES))
    for index, name in enumerate(names)
}


@contextmanager
def titled_figure(
    path: Path, width: float, height: float, title: str, facts: Mapping[str, Any]
) -> Iterator[Any]:
    """Yield a figure below its title, the device, its driver and the date; then write it."""
    driver = f"{facts['platform']}, driver {facts['driver']}, {facts['date'][:10]}"
    text = f"{title}: {facts['device']}\n{driver}"
    with figure_file(path, width, height, text, dpi=120) as figure:
        yield figure


def plot_suite(frame: pd.DataFrame, suite: str, path: Path) -> None:
    """Draw the speeds of one suite and their ratios, with the quartiles of both as error bars.

    The horizontal axis is the size if the suite is square or large; otherwise each case has a row,
    sorted by the ratio.
    """
    rows = frame[frame["suite"] == suite]
    table = speed_table(frame, suite)
    square = len(table) > 2 and rows["m"].eq(rows["n"]).all() and rows["n"].eq(rows["k"]).all()
    names = [name for name in NAMES if name in set(rows["contender"])]
    first = rows.iloc[0]
    title = f"{first['dtype']} GEMM, {first['precision']}, {suite}"
    by_size = square or len(table) > _MOST_ROWS
    height = 8 if by_size else 1.8 + 0.14 * len(table) * (1 + len(names))
    with titled_figure(path, 9 if by_size else 10, height, title, first) as figure:
        ratios = ratio_ranges(frame, suite)
        if by_size:
            _draw_over_size(figure, rows, names, ratios, "-" if square else "")
        else:
            _draw_rows(figure, rows, names, ratios)


def plot_ratios(frame: pd.DataFrame, suite: str, path: Path) -> None:
    """Draw the sorted speeds of a suite over those of each reference, with quartiles."""
    first = frame[frame["suite"] == suite].iloc[0]
    title = f"{first['dtype']} GEMM, {first['precision']}, {suite}"
    with titled_figure(path, 9, 5, title, first) as figure:
        axes = figure.subplots()
        for reference, part in ratio_ranges(frame, suite).groupby("reference", sort=False):
            ordered = part.sort_values("ratio")
            shares = 100 * (np.arange(len(ordered)) + 0.5) / len(ordered)
            text = f"over {reference}, {len(ordered)} shapes, median {part['ratio'].median():.2f}"
            _bars(axes, shares, ordered, "ratio", text, **_LOOKS[str(reference)])
        axes.axvline(50.0, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the shapes, sorted")
        ratio_axis(axes.yaxis, "times as fast; bars: quartiles of the times")
        axes.legend(loc="upper left")


def plot_unseen(frame: pd.DataFrame, path: Path) -> None:
    """Draw ratios to the vendor's library over arithmetic intensity, with a panel for each type.

    `frame` has rows of `benchmarks.reports.unseen.unseen_row`, with the facts of the run.
    """
    names = list(frame.loc[frame["ratio"].notna(), "arithmetic"].unique())
    vendors = frame["vendor"].dropna().unique()
    library = NUMPY if list(vendors) == [NUMPY] else "the vendor's library"
    # A CPU may have several runtimes: each has a line.
    *others, (last, driver) = frame[["platform", "driver"]].drop_duplicates().to_numpy()
    platform = "\n".join([*(f"{name}, driver {its}" for name, its in others), last])
    facts = {**frame.iloc[0], "platform": platform, "driver": driver}
    columns = min(3, max(len(names), 1))
    lines = -(-len(names) // columns) or 1
    with titled_figure(
        path, max(3.6 * columns, 6), 1.6 + 2.8 * lines, "shapes that nobody tuned", facts
    ) as figure:
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, name in zip(panels.flat, names, strict=False):
            part = frame[(frame["arithmetic"] == name) & frame["ratio"].notna()]
            for family, points in part.groupby("path"):
                axes.plot(
                    points["intensity"], points["ratio"], linestyle="", markersize=3.5,
                    label=family, **_LOOKS.get(str(family), {"color": INK, "marker": "."}),
                )  # fmt: skip
            mean = np.exp(np.log(part["ratio"]).mean())
            axes.set_title(f"{name}\n{len(part)} shapes, mean {mean:.2f}")
        for axes in panels.flat[len(names) :]:
            axes.set_visible(False)
        ratios = frame["ratio"].dropna()
        panels[0, 0].set_ylim(min([0.5, *ratios / 1.1]), max([2.0, *ratios * 1.1]))
        for axes in panels.flat[: len(names)]:
            log_axis(axes.xaxis)
            ratio_axis(axes.yaxis, "")
        # The lowest panel of each column; the last line may not be full.
        for axes in panels.flat[max(len(names) - columns, 0) : len(names)]:
            axes.set_xlabel("operations a byte")
            axes.tick_params(labelbottom=True)
        figure.supylabel(f"times as fast as {library}", fontsize=10)
        looks = {
            text: handle
            for axes in panels.flat
            for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if looks:
            figure.legend(
                looks.values(), looks.keys(), loc="outside lower center", ncols=min(len(looks), 6)
            )


def _bars(axes: Any, x: Any, rows: pd.DataFrame, column: str, label: str, **looks: Any) -> None:
    """Draw a column of numbers over `x`, with error bars from the columns low and high."""
    axes.errorbar(
        x, rows[column], yerr=ranges(rows[column], rows["low"], rows["high"]), label=label,
        **{"linestyle": "", "markersize": 4, "elinewidth": 0.9, **looks},
    )  # fmt: skip


def _speeds(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Select FLOPS of a contender by case, with those of the quartiles of its times."""
    part = rows[rows["contender"] == name].drop_duplicates("case").set_index("case")
    speed = 1e9 * part["gflops"]
    return pd.DataFrame(
        {
            "speed": speed,
            "low": speed * part["seconds"] / part["seconds_75"],
            "high": speed * part["seconds"] / part["seconds_25"],
        }
    )


def _draw_over_size(
    figure: Any, rows: pd.DataFrame, names: Sequence[str], ratios: pd.DataFrame, linestyle: str
) -> None:
    """Draw speeds in the upper and ratios in the lower part, over the cube root of m n k."""
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    firsts = rows.drop_duplicates("case").set_index("case")
    sizes = np.cbrt(firsts["m"] * firsts["n"] * firsts["k"].astype(float)).round(3)
    for name in names:
        part = _speeds(rows, name)
        looks = {**_LOOKS[name], "linestyle": linestyle}
        _bars(upper, sizes[part.index], part, "speed", name, **looks)
    for reference, part in ratios.groupby("reference", sort=False):
        looks = {**_LOOKS[str(reference)], "linestyle": linestyle}
        _bars(lower, sizes[part["case"]], part, "ratio", f"over {reference}", **looks)
    log_axis(upper.yaxis, "FLOPS", "median speed; bars: quartiles")
    upper.legend()
    log_axis(lower.xaxis, "", "m = n = k" if linestyle else "cube root of m n k")
    if linestyle:
        lower.set_xticks(list(sizes), [f"{size:.0f}" for size in sizes], minor=False)
        lower.minorticks_off()
    if len(ratios):
        ratio_axis(lower.yaxis, "times as fast")
        lower.legend()
    else:
        lower.set_visible(False)


def _draw_rows(figure: Any, rows: pd.DataFrame, names: Sequence[str], ratios: pd.DataFrame) -> None:
    """Draw speeds on the left and ratios on the right, with a row for each case."""
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    cases = list(rows["case"].unique())
    if len(ratios):
        first = ratios[ratios["reference"] == ratios["reference"].iloc[0]]
        order = first.set_index("case")["ratio"]
        cases.sort(key=lambda case: -order.get(case, np.inf))
    position = {case: float(index) for index, case in enumerate(cases)}

    def draw(axes: Any, table: pd.DataFrame, column: str, shift: float, name: str) -> None:
        axes.errorbar(
            table[column], [position[case] + shift for case in table["case"]],
            xerr=ranges(table[column], table["low"], table["high"]), label=name,
            linestyle="", markersize=4.5, elinewidth=0.9, **_LOOKS[name],
        )  # fmt: skip

    for index, name in enumerate(names):
        shift = 0.7 * ((index + 0.5) / len(names) - 0.5)
        draw(left, _speeds(rows, name).reset_index(), "speed", shift, name)
    references = list(ratios["reference"].unique())
    for index, name in enumerate(references):
        shift = 0.7 * ((index + 0.5) / len(references) - 0.5)
        draw(right, ratios[ratios["reference"] == name], "ratio", shift, name)
    left.set_yticks(list(position.values()), cases)
    left.set_ylim(len(cases) - 0.4, -0.6)
    log_axis(left.xaxis, "FLOPS", "median speed; bars: quartiles")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    if len(ratios):
        ratio_axis(right.xaxis, "pyclgemm times as fast")
    else:
        right.set_visible(False)
