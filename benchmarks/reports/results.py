"""The results of a run: tables on the terminal, a CSV file and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from benchmarks.reports.plots import plot_ratios, plot_suite
from benchmarks.reports.report import (
    REFERENCES,
    file_stem,
    format_table,
    ratio_columns,
    ratio_summary,
    speed_table,
    to_frame,
    worst_cases,
)
from benchmarks.reports.targets import add_targets, matrix_table
from benchmarks.session import command
from benchmarks.session.session import Record

#: A larger spread (half the distance between quartiles, in percent of the median) gets a warning.
_MOST_SPREAD = 20
#: The distribution over the cases is printed if there are as many.
_MANY = 10


def write_results(records: Sequence[Record], facts: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the CSV file, a plot of each suite and arithmetic, and the ratios of `random`."""
    frame = to_frame(records, facts)
    arithmetics = dict.fromkeys(str(record.arithmetic) for record in records)
    title = next(iter(arithmetics)) if len(arithmetics) == 1 else "precisions"
    paths = [folder / f"{file_stem(facts, title)}.csv"]
    command.write(paths[0], frame.to_csv(index=False))
    for suite, title, part in _parts(records, facts):
        stem = file_stem(facts, title)
        paths.append(folder / f"{stem}-{suite}.png")
        plot_suite(part, suite, paths[-1])
        if suite == "random" and len(ratio_columns(speed_table(part, suite)).columns):
            paths.append(folder / f"{stem}-{suite}-ratios.png")
            plot_ratios(part, suite, paths[-1])
    return paths


def _parts(
    records: Sequence[Record], facts: Mapping[str, str]
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each suite with each of its arithmetics, and their rows."""
    keys = dict.fromkeys((record.case.suite, record.arithmetic) for record in records)
    for suite, arithmetic in keys:
        chosen = [one for one in records if (one.case.suite, one.arithmetic) == (suite, arithmetic)]
        yield suite, str(arithmetic), to_frame(chosen, facts)


def print_tables(records: Sequence[Record], facts: Mapping[str, str], console: Console) -> None:
    """Print the table of each suite and, if it has many cases, the distribution of its ratios."""
    for suite, title, frame in _parts(records, facts):
        table = speed_table(frame, suite)
        shown = add_targets(table, frame) if suite == "limit" else table
        console.print(f"\n{suite}, {title}: GFLOPS, medians", style="bold")
        print(format_table(shown))
        if (table["spread %"] > _MOST_SPREAD).any():
            command.warn(
                console, f"spread above {_MOST_SPREAD} %: perhaps other work ran on this machine"
            )
        if len(table) >= _MANY:
            _print_distribution(frame, suite, table, console)
    on_cpu = "cpu" in facts.get("type", "")
    reached = matrix_table(to_frame(records, facts), on_cpu=on_cpu)
    if len(reached):
        console.print("\nwhat matrix units must reach", style="bold")
        print(reached.to_string(index=False, na_rep="-"))


def _print_distribution(
    frame: pd.DataFrame, suite: str, table: pd.DataFrame, console: Console
) -> None:
    summary = ratio_summary(table)
    if len(summary):
        console.print("\ntimes as fast, over all cases", style="bold")
        print(summary.to_string(float_format="{:.2f}".format))
    if suite != "random":
        return
    for reference in REFERENCES:
        worst = worst_cases(frame, suite, reference)
        if len(worst):
            console.print(f"\nthe worst against {reference}", style="bold")
            print(worst.to_string(float_format="{:.3g}".format))
