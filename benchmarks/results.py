"""What a run leaves behind: tables on the terminal, a CSV file and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from benchmarks.distribution import ratio_columns, ratio_summary, worst_cases
from benchmarks.limit_table import add_targets
from benchmarks.plots import plot_ratios, plot_suite
from benchmarks.report import REFERENCES, Record, file_stem, format_table, speed_table, to_frame

#: Half the distance between quartiles, in percent of the median, above which a warning stands.
_UNSURE = 20
#: From so many cases on, their distribution is told.
_MANY = 10


def write_results(
    records: Sequence[Record], facts: Mapping[str, str], dtype: str, folder: Path
) -> list[Path]:
    """Write the CSV file, one plot a suite, and the ratios of `random`; give their paths."""
    frame = to_frame(records, facts)
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(facts, dtype)
    paths = [folder / f"{stem}.csv"]
    frame.to_csv(paths[0], index=False)
    for suite in frame["suite"].unique():
        paths.append(folder / f"{stem}-{suite}.png")
        plot_suite(frame, suite, paths[-1])
        if suite == "random" and len(ratio_columns(speed_table(frame, suite)).columns):
            paths.append(folder / f"{stem}-{suite}-ratios.png")
            plot_ratios(frame, suite, paths[-1])
    return paths


def print_tables(records: Sequence[Record], facts: Mapping[str, str], console: Console) -> None:
    """Print the table of each suite, and for many cases how its ratios are distributed."""
    frame = to_frame(records, facts)
    for suite in frame["suite"].unique():
        table = speed_table(frame, suite)
        shown = add_targets(table, frame) if suite == "limit" else table
        console.print(f"\n{suite}, {frame['dtype'].iloc[0]}: GFLOPS, medians", style="bold")
        print(format_table(shown))
        if (table["spread %"] > _UNSURE).any():
            console.print(
                f"spread above {_UNSURE} %: unsure, perhaps other work ran on this machine",
                style="yellow",
            )
        if len(table) >= _MANY:
            _print_distribution(frame, suite, table, console)


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
