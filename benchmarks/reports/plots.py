"""Plots of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# Not pyplot: it would look for a display.
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.contenders.contenders import NAMES
from benchmarks.reports.report import REFERENCES, ratio_columns, speed_table
from pyclgemm.analysis.report import save_figure
from pyclgemm.families.registry import FAMILIES

#: A suite of more cases is drawn as points over the size instead of bars.
_MOST_BARS = 40

#: Colours for colour-blind readers. A contender has the same colour and marker in every plot.
PALETTE = (
    "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#17BECF", "#000000", "#D55E00", "#7F7F7F",
    "#E69F00", "#8C564B", "#F0E442",
)  # fmt: skip
MARKERS = "osD^p*vxP<h"
_COLOUR_OF = dict(zip(NAMES, PALETTE, strict=True))
_MARKER_OF = dict(zip(NAMES, MARKERS, strict=True))


def save_titled(figure: Figure, title: str, facts: Mapping[str, Any], path: Path) -> None:
    """Write a figure below its title, the device, its driver and the date."""
    figure.suptitle(
        f"{title}: {facts['device']}\n"
        f"{facts['platform']}, driver {facts['driver']}, {facts['date'][:10]}",
        fontsize=11,
    )
    save_figure(figure, path, dpi=120)


def plot_suite(frame: pd.DataFrame, suite: str, path: Path) -> None:
    """Draw the speeds of one suite: over the size if square or large, otherwise as bars."""
    rows = frame[frame["suite"] == suite]
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
    _save_suite(figure, rows, suite, path)


def plot_ratios(frame: pd.DataFrame, suite: str, path: Path) -> None:
    """Draw the distribution of the speeds of a suite over those of each reference."""
    ratios = ratio_columns(speed_table(frame, suite))
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for name in REFERENCES:
        if f"x {name}" in ratios:
            ordered = np.sort(ratios[f"x {name}"].dropna())
            parts = 100 * (np.arange(len(ordered)) + 0.5) / max(len(ordered), 1)
            axes.plot(
                ordered, parts, label=f"pyclgemm over {name}, {len(ordered)} shapes",
                color=_COLOUR_OF[name], marker=_MARKER_OF[name], markersize=3, linewidth=1,
            )  # fmt: skip
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.axhline(50.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("times as fast")
    axes.set_ylabel("% of the shapes are slower")
    axes.set_ylim(0, 100)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    _save_suite(figure, frame[frame["suite"] == suite], suite, path)


def plot_unseen(frame: pd.DataFrame, path: Path) -> None:
    """Draw ratios to the vendor's library over arithmetic intensity, with a panel for each type.

    `frame` has rows of `benchmarks.reports.unseen.unseen_row`, with the facts of the run.
    """
    names = list(frame["arithmetic"].unique())
    figure = Figure(figsize=(8, 1 + 4 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    colours = dict(zip(FAMILIES, PALETTE, strict=False))
    for axes, name in zip(panels, names, strict=True):
        for family, part in frame[frame["arithmetic"] == name].groupby("path"):
            axes.scatter(
                part["intensity"], part["ratio"], s=14, label=family,
                color=colours.get(str(family), "gray"),
            )  # fmt: skip
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set(
            xscale="log", yscale="log", title=name,
            xlabel="operations a byte, each matrix moved once",
            ylabel="times as fast as the vendor's library",
        )  # fmt: skip
        axes.yaxis.set_major_locator(LogLocator(base=2))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(True, which="both", alpha=0.3)
        axes.legend(fontsize=8)
    ratios = frame["ratio"].dropna()
    panels[0].set_ylim(min([0.5, *ratios / 1.1]), max([2.0, *ratios * 1.1]))
    save_titled(figure, "shapes that nobody tuned", frame.iloc[0], path)


def _save_suite(figure: Figure, rows: pd.DataFrame, suite: str, path: Path) -> None:
    first = rows.iloc[0]
    save_titled(figure, f"{first['dtype']} GEMM, {first['precision']}, {suite}", first, path)


def _draw_over_size(
    upper: Any, lower: Any, rows: pd.DataFrame, table: pd.DataFrame, linestyle: str
) -> None:
    """Draw speeds in the upper and ratios in the lower part, over the cube root of m n k."""
    firsts = rows.drop_duplicates("case").set_index("case").loc[table.index]
    sizes = np.cbrt(firsts["m"] * firsts["n"] * firsts["k"].astype(float)).round(3)

    def draw(axes: Any, column: str, name: str, label: str) -> None:
        axes.plot(
            sizes, table[column], label=label, color=_COLOUR_OF[name],
            marker=_MARKER_OF[name], linestyle=linestyle, markersize=6 if linestyle else 4,
        )  # fmt: skip

    for name in NAMES:
        if name in table:
            draw(upper, name, name, name)
    for name in REFERENCES:
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
    rows = np.arange(len(table))
    for index, name in enumerate(names):
        axes.barh(
            rows + (index - (len(names) - 1) / 2) * height, table[name], height,
            label=name, color=_COLOUR_OF[name],
        )  # fmt: skip
    axes.set_yticks(rows, list(table.index))
    axes.invert_yaxis()
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlabel("GFLOPS, median")
    axes.grid(True, axis="x", alpha=0.3)
    axes.legend()
