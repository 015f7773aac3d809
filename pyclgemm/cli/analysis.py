"""The subcommand ``ab``: one change against a baseline, in turn, and the record of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..analysis.precision import (
    ALGORITHMS,
    TABLE,
    Report,
    plot_report,
    reasons,
    report_table,
    write_csv,
)
from ..analysis.report import PLOT
from ..errors import ArgumentError
from ..host.files import check_writable
from ..measure.operands import DISTRIBUTIONS
from ..measure.suites import Shape, parse_suite
from ..problem.precision import DTYPES
from ..problem.product import Product
from ..problem.shape import shape_text
from .product import device_option, parse_shape, product_options

#: Columns for tables that go to a file or a pipe.
_FILE_WIDTH = 120

_EXAMPLES = """\b
Examples:
  python -m pyclgemm ab --change KC=256
  python -m pyclgemm ab --base indirect --change KWG=32 --change PADA=4,PADB=4 --shapes dense
  python -m pyclgemm ab --base tuned.json --change direct --shapes 64x3072x768,512x512x512
  python -m pyclgemm ab --precision TF32_TF32_F32 --change matrix:STAGES=4
  python -m pyclgemm ab --table ab.jsonl > techniques.md
"""


def parse_shapes(text: str) -> list[Shape]:
    """Read suites, files and shapes, as `parse_suite` does."""
    try:
        return parse_suite(text)
    except ArgumentError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=_EXAMPLES)
@click.option(
    "--base",
    default="database",
    show_default=True,
    metavar="CONFIG",
    help="The baseline: 'database' (what gemm takes for each shape), a path with parameters "
    "(indirect:MWG=128,KWG=32; those not named come from the database), or a JSON file.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="What is changed: parameters separated by commas, or another CONFIG. Several such "
    "options are several changes, each compared with the baseline by itself.",
)
@click.option("--technique", metavar="TEXT", help="What the change stands for, in the record.")
@click.option(
    "--shapes",
    type=parse_shapes,
    default="square",
    show_default=True,
    metavar="square|dense|skinny|FILE|MxNxK,...",
    help="The products on which the change is judged.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--precision", help="JAX's name of the arithmetic, such as TF32_TF32_F32.")
@click.option(
    "--rounds",
    type=click.IntRange(min=3),
    default=5,
    show_default=True,
    help="Bursts of about 10 ms of each side.",
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append records to this file, one JSON object a line; by default ab.jsonl in the "
    "user's data folder.",
)
@click.option(
    "--no-figures", is_flag=True, help="Leave the bottlenecks of both sides out of the record."
)
@click.option(
    "--table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Print the records of a log as a table in Markdown, and measure nothing.",
)
@device_option
@click.pass_context
def ab(
    context: click.Context,
    base: str,
    changes: tuple[str, ...],
    technique: str | None,
    shapes: list[Shape],
    dtype: str,
    precision: str | None,
    rounds: int,
    log: Path | None,
    no_figures: bool,
    table: Path | None,
    device: str | None,
) -> None:
    """Compare changes of a configuration with a baseline.

    Each change is timed against the baseline in turn, on a suite of shapes, after the
    results of both are checked. It is kept if it gains more than 2 % (geometric mean),
    rejected if it loses more than that; what is less, or within the measurement's own
    spread, is noise. Nothing else should run on the device meanwhile.
    """
    from ..analysis.ab_record import LOG, append_record, default_log, markdown_table, read_records

    if table is not None:
        if changes:
            raise click.UsageError("--table and --change exclude each other")
        click.echo(markdown_table(read_records(table)), nl=False)
        return
    if not changes:
        raise click.UsageError("give a --change KEY=VALUE, or --table FILE")
    if technique is not None and len(changes) > 1:
        raise click.UsageError("--technique names one change; give one --change with it")
    _check_texts(base, changes)

    import pyopencl as cl

    from ..analysis.ab import Comparison
    from ..analysis.ab_record import record_table
    from ..device.discovery import choose_device

    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False)
    path = log or default_log()
    check_writable(path, LOG)
    command = shlex.join(["python", "-m", "pyclgemm", "ab", *_arguments_of(context)])
    with console.status("preparing operands and the device's ceilings"):
        cl_context = cl.Context([choose_device(device).device])
        queue = cl.CommandQueue(cl_context)
        comparison = Comparison(queue, shapes, dtype, precision, figures=not no_figures)
    for change in changes:
        with _progress(console) as progress:
            task = progress.add_task(change, total=len(shapes), shape="")
            record = comparison.run(
                base, change, technique=technique, rounds=rounds, command=command,
                report=lambda shape, task=task, progress=progress: progress.update(  # type: ignore[misc]
                    task, advance=1, shape=shape_text(shape)
                ),
            )  # fmt: skip
        console.print(record_table(record))
        append_record(path, record)
    console.print(f"log: {path}")


def _check_texts(base: str, changes: tuple[str, ...]) -> None:
    """Refuse what cannot be read before anything is measured."""
    from ..selection.overrides import parse_change, parse_config

    try:
        parse_config(base)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="--base") from None
    for change in changes:
        try:
            parse_change(change)
        except ArgumentError as error:
            raise click.BadParameter(str(error), param_hint="--change") from None


def _arguments_of(context: click.Context) -> list[str]:
    """The options that were given, as they would be typed."""
    given: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not click.core.ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        option = parameter.opts[0]
        if value is True:
            given.append(option)
        elif name == "shapes":
            given += [option, ",".join(map(shape_text, value))]
        else:
            for one in value if isinstance(value, tuple) else (value,):
                given += [option, str(one)]
    return given


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shape]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


# --------------------------------------------------------------------------------------
# The subcommand ``precision``: speed and measured error of every algorithm on a device.
# --------------------------------------------------------------------------------------

#: Columns for a table that goes to a file or a pipe.
_PRECISION_FILE_WIDTH = 160

#: Sizes m = n = k that are measured where none are given.
_GPU_SIZE, _CPU_SIZE = 2048, 512

_PRECISION_EXAMPLES = """\b
Examples:
  python -m pyclgemm precision
  python -m pyclgemm precision 4096x4096x4096 --device NVIDIA --csv precisions.csv
  python -m pyclgemm precision 64x3072x768 --data badly-scaled --plot precisions.png
"""


@click.command(epilog=_PRECISION_EXAMPLES)
@click.argument("shape", metavar="[MxNxK]", type=parse_shape, required=False)
@device_option
@click.option(
    "--data",
    type=click.Choice(DISTRIBUTIONS),
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

    from ..analysis.precision import PrecisionBench
    from ..device.discovery import choose_device
    from ..device.traits import type_of

    for path, purpose in ((csv, TABLE), (plot, PLOT)):
        if path is not None:
            check_writable(path, purpose)
    console = Console(width=None if sys.stdout.isatty() else _PRECISION_FILE_WIDTH, markup=False)
    chosen = choose_device(device).device
    assert chosen is not None
    size = _CPU_SIZE if type_of(chosen) == "cpu" else _GPU_SIZE
    # Held by name: on Intel's runtime a queue does not keep its context alive.
    context = cl.Context([chosen])
    bench = PrecisionBench(
        cl.CommandQueue(context), shape or (size, size, size), data, ALGORITHMS, seed
    )
    interrupted = False
    with _precision_progress(console) as progress:
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


def _precision_progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


# --------------------------------------------------------------------------------------
# The subcommand ``profile``: what limits a product on a device, as a table and a plot.
# --------------------------------------------------------------------------------------

#: Columns for a table that goes to a file or a pipe.
_PROFILE_FILE_WIDTH = 120

_PROFILE_EXAMPLES = """\b
Examples:
  python -m pyclgemm profile 1024x1024x1024
  python -m pyclgemm profile 64x3072x768 --bias --activation relu --plot roofline.png
  python -m pyclgemm profile 4096x4096x4096 --path indirect --config KWG=32
"""


@click.command(epilog=_PROFILE_EXAMPLES)
@product_options
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the roofline to this file; its suffix, such as .png, is the format.",
)
@click.option("--remeasure", is_flag=True, help="Measure the device's ceilings again.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Bursts of about 10 ms that are timed; their median counts.",
)
def profile(
    product: Product,
    path: str | None,
    parameters: dict[str, int],
    device: str | None,
    plot: Path | None,
    remeasure: bool,
    rounds: int,
) -> None:
    """Measure a product and say what limits it.

    It is the product of an (M, K) and a (K, N) matrix. The ceilings of the device
    (arithmetic, memory, launches) are measured once and kept in the user's folder. Nothing
    else should run on the device meanwhile.
    """
    import pyopencl as cl

    from ..analysis.ceilings import ceilings_of
    from ..analysis.profile import profile as profile_product
    from ..analysis.report import profile_table
    from ..device.discovery import choose_device

    if plot is not None:
        check_writable(plot, PLOT)
    console = Console(width=None if sys.stdout.isatty() else _PROFILE_FILE_WIDTH, markup=False)
    with console.status("looking for devices") as status:

        def report(what: str) -> None:
            status.update(f"measuring: {what}")

        context = cl.Context([choose_device(device).device])
        queue = cl.CommandQueue(context)
        ceilings = ceilings_of(queue, remeasure=remeasure, report=report)
        result = profile_product(
            queue, product, path=path, parameters=parameters, ceilings=ceilings, rounds=rounds,
            report=report,
        )  # fmt: skip
    console.print(profile_table(result))
    if plot is not None:
        from ..analysis.report import plot_roofline

        plot_roofline(result, plot)
        console.print(f"roofline: {plot}")
