"""The ladder's report: a table on the terminal, a Markdown file, a bar chart and a CSV file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from benchmarks.session import command
from benchmarks.steps.frame import has_column, vendor_of
from benchmarks.steps.step import Step, changed_parameters
from pyclgemm.analysis.plots import COLOURS, INK, figure_file, log_axis, ranges
from pyclgemm.analysis.report import speed_text

#: A heading and a format of numbers, by column.
_Columns = dict[str, tuple[str, Callable[[float], str]]]

_STEP = {"color": COLOURS[0]}
_RIVAL = {"color": "white", "edgecolor": INK, "hatch": "///", "linewidth": 0.8}


def _number(form: str, factor: float = 1.0) -> Callable[[float], str]:
    return lambda value: "-" if pd.isna(value) else form.format(factor * value)


def _columns(frame: pd.DataFrame) -> _Columns:
    """Return the headings and formats of the columns that have numbers."""
    shown: _Columns = {}
    if has_column(frame, "gflops"):
        shown["seconds"] = ("ms", _number("{:.3f}", 1e3))
        shown["gflops"] = ("GFLOPS", lambda value: "-" if pd.isna(value) else speed_text(value))
        if vendor := vendor_of(frame):
            shown["percent"] = (f"% {vendor}", _number("{:.1f}"))
        shown["speedup"] = ("x before", _number("{:.2f}"))
    if has_column(frame, "vgprs"):
        shown["vgprs"] = ("VGPRs", _number("{:.0f}"))
        shown["spilled_vgprs"] = ("spills", _number("{:.0f}"))
        shown["lds_bytes"] = ("LDS B", _number("{:.0f}"))
        shown["waves_per_simd"] = ("waves", _number("{:.0f}"))
        shown["dual_share"] = ("dual %", _number("{:.0f}", 100))
        shown["fmas_per_slot"] = ("FMAs/slot", _number("{:.2f}"))
    return shown


def ladder_table(frame: pd.DataFrame, title: str) -> Table:
    """Tabulate a `ladder_frame` for the terminal."""
    table = Table(title=title, title_justify="left")
    table.add_column("step", no_wrap=True)
    table.add_column("", min_width=24)
    columns = _columns(frame)
    for heading, _ in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    steps = frame["config"].notna()
    for name, row in frame.iterrows():
        if not steps[name] and steps.shift(fill_value=False)[name]:
            table.add_section()
        table.add_row(str(name), row["title"], *_cells(row, columns))
    return table


def _cells(row: pd.Series, columns: _Columns) -> Iterator[str]:
    return (form(row[column]) for column, (_, form) in columns.items())


def legend(frame: pd.DataFrame, architecture: str) -> str:
    """Explain the columns."""
    parts = []
    if has_column(frame, "gflops"):
        parts.append(
            "Medians of bursts taken in turn in one run, after results were checked against "
            "float64; the time includes packing. `x before`: speed over that of the previous step."
        )
        if vendor_of(frame) == "NumPy":
            parts.append("NumPy has no alpha and beta: its time is that of the product alone.")
    if has_column(frame, "vgprs"):
        parts.append(
            f"Compiled offline for {architecture}, not run: vector registers and spilled ones, "
            "bytes of local memory of a work-group, waves of a SIMD unit; for the main loop the "
            "share of multiply-adds in dual-issue pairs (v_dual_fmac_f32), and multiply-adds per "
            "issue slot of the vector unit, at most 2."
        )
    return " ".join(parts)


def write_report(
    frame: pd.DataFrame,
    steps: Sequence[Step],
    title: str,
    architecture: str,
    facts: Mapping[str, str],
    folder: Path,
    stem: str,
) -> list[Path]:
    """Write a report in Markdown with a section for each step, a chart and the CSV file.

    `steps` are those of the device that was measured, or else of `architecture`, for which they
    were compiled. The paths are returned, the report first.
    """
    report, chart, csv = (folder / f"{stem}.{suffix}" for suffix in ("md", "png", "csv"))
    lines = _report(frame, steps, title, architecture, facts, chart.name)
    command.write(report, "\n".join(lines) + "\n")
    plot_ladder(frame, title, chart)
    command.write(csv, frame.assign(**facts).to_csv())
    return [report, chart, csv]


def _report(
    frame: pd.DataFrame,
    steps: Sequence[Step],
    title: str,
    architecture: str,
    facts: Mapping[str, str],
    chart: str,
) -> Iterator[str]:
    yield from (f"# {title}", "")
    yield from (f"- {name}: {value}" for name, value in facts.items())
    yield ""
    columns = _columns(frame)
    yield "| step | | " + " | ".join(heading for heading, _ in columns.values()) + " |"
    yield "|---|---|" + "---:|" * len(columns)
    for name, row in frame.iterrows():
        yield f"| {name} | {row['title']} | " + " | ".join(_cells(row, columns)) + " |"
    yield from ("", legend(frame, architecture), "", f"![{title}]({chart})")
    for before, step in zip((None, *steps), steps, strict=False):
        yield from ("", f"## Step {step.name}: {step.title}", "", step.what, step.why, "")
        yield "Parameters: " + _parameters(before, step)
        row = frame.loc[step.name]
        if "compiled_config" in row and row["compiled_config"] != row["config"]:
            yield from ("", f"Compiled for {architecture} as: `{row['compiled_config']}`")
        figures = [
            f"{heading} {form(row[column])}"
            for column, (heading, form) in columns.items()
            if not pd.isna(row[column])
        ]
        if figures:
            yield from ("", "; ".join(figures))


def _parameters(before: Step | None, step: Step) -> str:
    """List the parameters that changed, or all if the family changed."""
    if before is None or before.config.family != step.config.family:
        return f"`{step.config}` of the {step.config.family} family"
    return ", ".join(
        f"`{name}` {old} → {new}" for name, (old, new) in changed_parameters(before, step).items()
    )


def plot_ladder(frame: pd.DataFrame, title: str, path: Path) -> None:
    """Draw the speed of each row or, if nothing was timed, its multiply-adds per issue slot."""
    timed = has_column(frame, "gflops")
    rows = frame[frame["gflops" if timed else "fmas_per_slot"].notna()]
    is_step = rows["config"].notna().to_numpy()
    with figure_file(path, 9, 1.8 + 0.34 * len(rows), title, dpi=120) as figure:
        axes = figure.subplots()
        places = np.arange(len(rows))
        values = 1e9 * rows["gflops"] if timed else rows["fmas_per_slot"]
        for chosen, look in ((is_step, _STEP), (~is_step, _RIVAL)):
            axes.barh(places[chosen], values[chosen], **look)
        texts = [f"{value:.2f}" for value in values]
        if timed:
            texts = [speed_text(value / 1e9) for value in values]
            high, low = (values * rows["seconds"] / rows[f"seconds_{part}"] for part in (25, 75))
            axes.errorbar(values, places, xerr=ranges(values, low, high), linestyle="", color=INK)
            log_axis(axes.xaxis, "FLOPS", "median speed; bars: quartiles")
            axes.set_xlim(values.min() / 2, values.max() * 5)
        else:
            axes.set_xlabel("multiply-adds per issue slot of the main loop")
            axes.margins(x=0.12)
        for place, value, text in zip(places, values, texts, strict=True):
            axes.annotate(
                text, (value, place), xytext=(8, 0), textcoords="offset points", va="center"
            )
        labels = [f"{name}: {row['title']}" for name, row in rows.iterrows()]
        axes.set_yticks(places, [label.removeprefix("units: ") for label in labels])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
