"""The subcommand ``ab``: one change against a baseline, in turn, and the record of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .cli_product import device_option
from .errors import ArgumentError
from .precision import DTYPES
from .suites import Shape, parse_suite, shape_text
from .user_files import check_writable

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
    from .ab_record import LOG, append_record, default_log, markdown_table, read_records

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

    from .ab import Bench
    from .ab_table import record_table
    from .discovery import choose_device

    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False)
    path = log or default_log()
    check_writable(path, LOG)
    command = shlex.join(["python", "-m", "pyclgemm", "ab", *_arguments_of(context)])
    with console.status("preparing operands and the device's ceilings"):
        cl_context = cl.Context([choose_device(device).device])
        queue = cl.CommandQueue(cl_context)
        bench = Bench(queue, shapes, dtype, precision, figures=not no_figures)
    for change in changes:
        with _progress(console) as progress:
            task = progress.add_task(change, total=len(shapes), shape="")
            record = bench.compare(
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
    from .config_text import parse_change, parse_config

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
