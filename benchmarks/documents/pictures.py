"""The plots of the documents."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.documents.figures import load
from benchmarks.documents.summary import summary
from benchmarks.mra.report import plot_levels
from benchmarks.reports.plots import plot_ratios, plot_suite, plot_unseen
from benchmarks.steps.report import plot_ladder
from pyclgemm.analysis.plots import COLOURS, MARKERS, figure_file, ratio_axis

#: The colour and marker of each library that is compared with.
_REFERENCES = {
    name: {"color": COLOURS[index], "marker": MARKERS[index]}
    for index, name in enumerate(("cuBLAS", "OpenBLAS", "CLBlast"))
}


def plot_speed(path: Path) -> None:
    """Draw the geometric means of `summary`, with quartiles, a row for each type of a device."""
    means = summary()
    devices = list(dict.fromkeys(mean.device for mean in means))
    counts = [sum(mean.device == device for mean in means) for device in devices]
    title = "Speed over other libraries: geometric mean, and middle half of the products"
    with figure_file(path, 8.5, 1.7 + 0.27 * sum(counts), title) as figure:
        panels = figure.subplots(
            len(devices), 1, sharex=True, squeeze=False, height_ratios=[n + 0.8 for n in counts]
        )[:, 0]
        for axes, device in zip(panels, devices, strict=True):
            rows = [mean for mean in means if mean.device == device]
            for place, mean in enumerate(rows):
                look = _REFERENCES[mean.reference]
                axes.plot([mean.low, mean.high], [place, place], "|-", color=look["color"])
                axes.plot([mean.mean], [place], markersize=6, **look)
                axes.annotate(
                    f"{mean.mean:.2f}", (1, place), xycoords=("axes fraction", "data"),
                    xytext=(6, 0), textcoords="offset points", va="center",
                )  # fmt: skip
            axes.set_yticks(
                range(len(rows)),
                [f"{mean.type}, {mean.count} products beside {mean.reference}"
                 if mean.count > 1 else f"{mean.type}, 1 product beside {mean.reference}"
                 for mean in rows],
            )  # fmt: skip
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_title(device, loc="left", fontweight="bold")
            axes.grid(False, axis="y")
        for axes in panels:
            ratio_axis(axes.xaxis, "")
        panels[-1].set_xlabel("times as fast as the other library")


def plot_techniques(path: Path) -> None:
    """Draw the gain of each technique on each product, sorted by the largest gain."""
    frame = load("techniques").dropna(subset=["ratio"])
    best = frame.groupby("technique")["ratio"].max().sort_values(kind="stable")
    place = {technique: index for index, technique in enumerate(best.index)}
    title = "Gain by technique, float32 on an NVIDIA H100: a point is a product"
    with figure_file(path, 9, 1.5 + 0.23 * len(best), title) as figure:
        axes = figure.subplots()
        for (verdict, text), index in zip(_VERDICTS.items(), (0, 4, 6), strict=True):
            rows = frame[frame["verdict"].str.startswith(verdict)]
            axes.plot(
                rows["ratio"], rows["technique"].map(place), MARKERS[index], color=COLOURS[index],
                fillstyle="full" if verdict == "keep" else "none", label=text,
            )  # fmt: skip
        names = [textwrap.shorten(name, 66, placeholder=" ...") for name in best.index]
        axes.set_yticks(range(len(best)), names, fontsize=8)
        axes.set_ylim(-0.7, len(best) - 0.3)
        ratio_axis(axes.xaxis, "speed with the technique over that without it, best pair")
        axes.legend(loc="lower right")


_VERDICTS = {"keep": "kept", "noise": "within the noise", "reject": "rejected"}


def _suite(name: str, title: str, **values: object) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        frame = load(name)
        for column, value in values.items():
            frame = frame[frame[column] == value]
        plot_suite(frame.assign(suite=title), title, path)

    return draw


def _ratios(name: str, dtype: str, precision: str) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        frame = load(name)
        plot_ratios(frame[(frame["dtype"] == dtype) & (frame["precision"] == precision)],
                    "random", path)  # fmt: skip

    return draw


def _ladder(name: str, title: str) -> Callable[[Path], None]:
    return lambda path: plot_ladder(
        load(name).set_index("step"), f"C = 1.5 A B + 0.5 C, {title}", path
    )


def _unseen(name: str) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        frame = load(name)
        hidden = frame["hidden"].fillna("")
        labels = frame["arithmetic"].where(
            frame["batch"].isna(), "batches of " + frame["arithmetic"]
        )
        frame = frame.assign(arithmetic=labels)[hidden == ""]
        if frame["platform"].nunique() > 1:
            frame = frame.assign(arithmetic=frame["arithmetic"] + ", " + frame["platform"])
        plot_unseen(frame, path)

    return draw


def _transform3d(path: Path) -> None:
    frame = load("h100/2026-11-22-transform3d")
    facts: Any = frame.iloc[0]
    plot_levels(frame, facts, path)


def _random_types() -> dict[str, Callable[[Path], None]]:
    name = "h100/2026-11-22-random"
    pairs = load(name)[["dtype", "precision"]].drop_duplicates()
    return {
        f"random-h100-{row.dtype if 'TF32' not in row.precision else 'tf32'}": _ratios(
            name, row.dtype, row.precision
        )
        for row in pairs.itertuples()
    }


def pictures() -> dict[str, Callable[[Path], None]]:
    """Return the functions that draw the plots, by the names of their files."""
    return {
        "speed": plot_speed,
        "techniques": plot_techniques,
        "products-h100": _suite("h100/2026-11-22-products", "products", dtype="float32"),
        "batches-h100": _suite(
            "h100/2026-11-22-batches", "batches", dtype="float32", suite="batched"
        ),
        **_random_types(),
        "ladder-h100": _ladder("h100/2026-11-22-ladder", "4096³, float32: NVIDIA H100"),
        "ladder-xeon": _ladder("xeon/2026-11-21-ladder", "1024³, float32: Intel Xeon, 2 cores"),
        "ladder-gfx1100": _ladder("gfx1100/2026-11-21-ladder", "float32: compiled for gfx1100"),
        "transform3d-h100": _transform3d,
        "unseen-h200": _unseen("h200/2026-12-01-unseen"),
        "unseen-h100": _unseen("h100/2026-11-28-unseen"),
        "unseen-xeon": _unseen("xeon/2026-11-24-unseen"),
        "unseen-epyc": _unseen("epyc/2026-11-29-unseen"),
        "unseen-zen5": _unseen("epyc/2026-12-01-unseen"),
    }
