"""The ladder's report: a table on the terminal, a Markdown file, a bar chart and a CSV file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

# Not pyplot: it would look for a display.
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.reports.output import RESULTS
from benchmarks.steps.frame import compiled_columns, measured_columns, vendor_of
from benchmarks.steps.step import Step, changed_parameters
from pyclgemm.analysis.report import save_figure
from pyclgemm.host.files import write_whole

_STEP_COLOUR, _BESIDE_COLOUR = "#0072B2", "#7F7F7F"


def _number(form: str) -> Callable[[float], str]:
    return lambda value: "-" if pd.isna(value) else form.format(value)


def _speed(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _columns(frame: pd.DataFrame) -> dict[str, tuple[str, Callable[[float], str]]]:
    """Headings and formats of the numbers that there are, by column."""
    shown: dict[str, tuple[str, Callable[[float], str]]] = {}
    if measured_columns(frame):
        shown["seconds"] = ("ms", lambda value: _number("{:.3f}")(1e3 * value))
        shown["gflops"] = ("GFLOPS", _speed)
        if vendor := vendor_of(frame):
            shown["percent"] = (f"% {vendor}", _number("{:.1f}"))
        shown["speedup"] = ("x before", _number("{:.2f}"))
    if compiled_columns(frame):
        shown["vgprs"] = ("VGPRs", _number("{:.0f}"))
        shown["spilled_vgprs"] = ("spills", _number("{:.0f}"))
        shown["lds_bytes"] = ("LDS B", _number("{:.0f}"))
        shown["waves_per_simd"] = ("waves", _number("{:.0f}"))
        shown["dual_share"] = ("dual %", lambda value: _number("{:.0f}")(100 * value))
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


def _cells(
    row: pd.Series, columns: Mapping[str, tuple[str, Callable[[float], str]]]
) -> Iterator[str]:
    return (form(row[column]) for column, (_, form) in columns.items())


def legend(frame: pd.DataFrame, architecture: str) -> str:
    """Say what the columns are."""
    parts = []
    if measured_columns(frame):
        parts.append(
            "Medians of bursts taken in turn in one run, results checked against float64 before; "
            "packing of operands is within the time. `x before`: times as fast as the step before."
        )
        if vendor_of(frame) == "NumPy":
            parts.append("NumPy has no alpha and beta: its time is that of the product alone.")
    if compiled_columns(frame):
        parts.append(
            f"Compiled offline for {architecture}, not run: vector registers and spilled ones, "
            "bytes of local memory of a work-group, waves that a SIMD unit holds; of the main "
            "loop, the share of multiply-adds in dual-issue pairs (v_dual_fmac_f32), and "
            "multiply-adds for each issue slot of the vector unit, of which 2 is the most."
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
    """Write the report in Markdown with a section a step, its chart, and the CSV file.

    Parameters
    ----------
    frame : DataFrame
        From `benchmarks.steps.frame.ladder_frame`.
    steps : sequence of Step
        Of the device that was measured, or else of `architecture`.
    title : str
        Of report and chart.
    architecture : str
        For which the kernels were compiled.
    facts : mapping
        The machine and the versions.
    folder, stem : Path, str
        Where the files go, and how their names begin.

    Returns
    -------
    list of Path
        The files, the report first.
    """
    report, chart, csv = (folder / f"{stem}.{suffix}" for suffix in ("md", "png", "csv"))
    lines = _report(frame, steps, title, architecture, facts, chart.name)
    write_whole(report, "\n".join(lines) + "\n", RESULTS)
    _plot(frame, title, chart)
    write_whole(csv, frame.assign(**facts).to_csv(), RESULTS)
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
        if told := _told(row, columns):
            yield from ("", told)


def _parameters(before: Step | None, step: Step) -> str:
    """The parameters that changed, or all where the family did."""
    if before is None or before.config.family != step.config.family:
        return f"`{step.config}` of the {step.config.family} family"
    return ", ".join(
        f"`{name}` {old} → {new}" for name, (old, new) in changed_parameters(before, step).items()
    )


def _told(row: pd.Series, columns: Mapping[str, tuple[str, Callable[[float], str]]]) -> str:
    """The known figures of a step, in a line."""
    known = [
        f"{heading} {form(row[column])}"
        for column, (heading, form) in columns.items()
        if not pd.isna(row[column])
    ]
    return "; ".join(known)


def _plot(frame: pd.DataFrame, title: str, path: Path) -> None:
    """Draw a bar for each row: its speed, or where nothing was timed, multiply-adds a slot."""
    column, label = "fmas_per_slot", "multiply-adds for each issue slot of the main loop"
    if measured_columns(frame):
        column, label = "gflops", "GFLOPS, median"
    rows = frame[frame[column].notna()]
    is_step = rows["config"].notna()
    figure = Figure(figsize=(9, 1.8 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(
        [f"{name}: {row['title']}" for name, row in rows.iterrows()], rows[column],
        color=[_STEP_COLOUR if one else _BESIDE_COLOUR for one in is_step],
    )  # fmt: skip
    axes.bar_label(bars, [_speed(value) for value in rows[column]], padding=3)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.grid(True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    figure.suptitle(title, fontsize=11)
    save_figure(figure, path, dpi=120)
