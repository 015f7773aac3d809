"""The subcommand ``precision``: speed and measured error of every algorithm on a device."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .cli_product import device_option, parse_shape
from .figure_file import PLOT
from .precision_data import DISTRIBUTIONS
from .precision_table import (
    ALGORITHMS,
    TABLE,
    Report,
    plot_report,
    reasons,
    report_table,
    write_csv,
)
from .user_files import check_writable

#: Columns for a table that goes to a file or a pipe.
_FILE_WIDTH = 160

#: Sizes m = n = k that are measured where none are given.
_GPU_SIZE, _CPU_SIZE = 2048, 512

_EXAMPLES = """\b
Examples:
  python -m pyclgemm precision
  python -m pyclgemm precision 4096x4096x4096 --device NVIDIA --csv precisions.csv
  python -m pyclgemm precision 64x3072x768 --data badly-scaled --plot precisions.png
"""


@click.command(epilog=_EXAMPLES)
@click.argument("shape", metavar="[MxNxK]", type=parse_shape, required=False)
@device_option
@click.option(
    "--data",
    type=click.Choice(tuple(DISTRIBUTIONS)),
    default="normal",
    show_default=True,
    help="The random numbers that are multiplied.",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the table to this file too, a line for each algorithm.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw speed against error to this file; its suffix, such as .png, is the format.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Bursts of about 10 ms that are timed; their median counts.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random numbers.")
def precision(
    shape: tuple[int, int, int] | None,
    device: str | None,
    data: str,
    csv: Path | None,
    plot: Path | None,
    rounds: int,
    seed: int,
) -> None:
    """Show speed and error of every algorithm on a device.

    It is the product of an (M, K) and a (K, N) matrix; 2048 x 2048 x 2048 by default, on a CPU
    512 x 512 x 512. Errors are differences from a float64 product (of integers: the exact one)
    on some of the rows, relative to |A| |B|: the largest and the root of the mean square. The
    bound is that of the algorithm, with what rounding may do to sums of length K (Higham and
    Mary, 2019); a result beyond it is not timed, and the exit code is then 1. All are timed in
    turn. Nothing else should run on the device meanwhile. Ctrl-C shows what was measured.
    """
    import pyopencl as cl

    from .device import type_of
    from .discovery import choose_device
    from .precision_bench import PrecisionBench

    for path, purpose in ((csv, TABLE), (plot, PLOT)):
        if path is not None:
            check_writable(path, purpose)
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False)
    chosen = choose_device(device).device
    assert chosen is not None
    size = _CPU_SIZE if type_of(chosen) == "cpu" else _GPU_SIZE
    # Held by name: on Intel's runtime a queue does not keep its context alive.
    context = cl.Context([chosen])
    bench = PrecisionBench(
        cl.CommandQueue(context), shape or (size, size, size), data, ALGORITHMS, seed
    )
    interrupted = False
    with _progress(console) as progress:
        checked = progress.add_task("errors", total=len(ALGORITHMS), what="")
        timed = progress.add_task("times", total=rounds, what="")
        try:
            bench.check(lambda what: progress.update(checked, advance=1, what=what))
            bench.time(rounds, lambda: progress.update(timed, advance=1))
        except KeyboardInterrupt:
            interrupted = True
    report = bench.report()
    _show(console, report)
    if interrupted:
        console.print("Interrupted: this is what was measured so far.", style="yellow")
    if csv is not None:
        write_csv(report, csv)
        console.print(f"table: {csv}")
    if plot is not None:
        plot_report(report, plot)
        console.print(f"plot: {plot}")
    if any(row.verdict == "exceeded" for row in report.rows):
        raise click.ClickException("an error exceeds its bound: see above")


def _show(console: Console, report: Report) -> None:
    console.print(report_table(report))
    left_out = reasons(report)
    if left_out:
        console.print("\nnot on this device:")
    for line in left_out:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
