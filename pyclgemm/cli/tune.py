"""The command ``tune``: search configurations for a device, and save what it finds."""

from __future__ import annotations

from pathlib import Path

import click

from ..host.process import postponed
from ..measure.suites import SUITES, parse_products
from ..problem.shape import GemmShape
from .console import (
    device_option,
    dtype_option,
    file_option,
    open_console,
    parsed,
    precision_option,
)

_EXAMPLES = """\b
Examples:
  python -m pyclgemm tune
  python -m pyclgemm tune --shapes dense,64x64x65536 --budget 300
  python -m pyclgemm tune --shapes layouts,82x6626x1085:NT,1000x1000x1000+7
  python -m pyclgemm tune --shapes batched,24x24x24*5000,512x512x512*256
  python -m pyclgemm tune --dtype float64 --device pocl --dry-run
  python -m pyclgemm tune --shapes shapes.txt --contribute databases/nvidia_sm_90.json
"""


def parse_shapes(text: str) -> list[GemmShape]:
    """Read suites, files and shapes, as `parse_products` does."""
    return parsed(parse_products, text)


@click.command(epilog=_EXAMPLES)
@device_option
@dtype_option
@precision_option
@click.option(
    "--shapes",
    type=parse_shapes,
    default="square",
    show_default=True,
    metavar="|".join((*SUITES, "FILE", "MxNxK[:NT][+7][*100],...")),
    help="What to tune for; several are separated by commas. :NT says which operands lie "
    "transposed, +7 puts 7 elements between rows, *100 makes a batch of 100 products.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For all of it, compiling included.",
)
@file_option(
    "--contribute", "Write a file for databases/ instead of your own database.", metavar="PATH"
)
@click.option("--dry-run", is_flag=True, help="Count the space, show the plan, measure nothing.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
def tune(
    device: str | None,
    dtype: str,
    precision: str | None,
    shapes: list[GemmShape],
    budget: float,
    contribute: Path | None,
    dry_run: bool,
    seed: int,
) -> None:
    """Find the fastest kernels for a device and some shapes.

    What is found goes to your own database, which the library prefers from then on. Ctrl-C
    and SIGTERM end the search and keep what was found; a second run resumes where the first one
    stopped.
    Every result is checked before its time counts.
    """
    # Imported here, because the other commands need none of it.
    from ..selection.database import reload_database
    from ..tuning.report import ShownProgress, dry_run_tables, outcome_lines, result_table
    from ..tuning.results import check_destination, save_result, unsaved_text
    from ..tuning.tuner import tune as run_tuner

    console = open_console(highlight=False)
    if dry_run:
        for table in dry_run_tables(device, dtype, precision, shapes, budget):
            console.print(table)
        return
    check_destination(contribute)
    with ShownProgress(console, budget) as show:
        result = run_tuner(
            shapes, device, dtype=dtype, precision=precision, budget=budget, seed=seed,
            progress=show.show,
        )  # fmt: skip
    console.print(result_table(result))
    for line in outcome_lines(result):
        console.print(line)
    if not any(standing.best for standing in result.standings):
        raise click.ClickException("nothing was measured, so nothing was saved")
    try:
        with postponed():
            path = save_result(result, contribute=contribute)
            console.print(f"saved in {path}")
            reload_database()
    except Exception:
        click.echo("These records were not saved; a file of this content is a database:")
        click.echo(unsaved_text(result))
        raise
