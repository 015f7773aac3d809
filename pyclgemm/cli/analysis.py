"""The commands ``source``, ``explain``, ``profile``, ``ab`` and ``precision``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..analysis import (
    ab as comparisons,
    ceilings,
    plots,
    precision as precisions,
    profile as profiles,
    report,
)
from ..analysis.operands import DISTRIBUTIONS
from ..analysis.tables import new_table
from ..device.traits import DeviceTraits, type_of
from ..errors import FileError
from ..host.files import check_writable
from ..problem.product import Product
from ..problem.shape import GemmShape
from ..selection.overrides import kernel_sources, parse_change, parse_config
from ..selection.select import Choice
from . import options


@options.command(
    "source 1024x1024x1024",
    "source 64x3072x768 --bias --activation relu",
    "source 512x512x512 --path indirect --architecture gfx1012 --config KWG=32",
)
@options.choice_options
def source(product: Product, choice: Choice, traits: DeviceTraits) -> None:
    """Print the OpenCL C that computes a product.

    It is the product of an (M, K) and a (K, N) matrix. In its shape :NT says which operands are
    stored transposed, +7 puts 7 elements between rows, *100 makes a batch of 100 products. All
    kernels are printed in the order of their launches. The output is coloured only on a terminal,
    so it can be piped to a compiler.
    """
    kernels = kernel_sources(product, choice.config, traits)
    text = "\n".join(kernel.text for kernel in kernels)
    if sys.stdout.isatty():
        shown = Syntax(text, "c", background_color="default", word_wrap=True)
        options.open_console().print(shown)
    else:
        click.echo(text, nl=False)


@options.command(
    "explain 1024x1024x1024",
    "explain 64x3072x768 --dtype float16 --architecture sm_90",
    'explain "128x128x128*256"',
    "explain 7680x16x2560 --top 5",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1,
    help="Number of kernels to list, by predicted time; less certain ones count as longer.",
)
@options.choice_options
def explain(product: Product, choice: Choice, traits: DeviceTraits, top: int) -> None:
    """Say which kernels compute a product, and why.

    It is the product of an (M, K) and a (K, N) matrix. In its shape :NT says which operands are
    stored transposed, +7 puts 7 elements between rows, *100 makes a batch of 100 products. `unit`
    is the matrix unit that is used, or why none is; `packed` says which operands are packed before
    the product, and why.
    """
    problem = product.problem
    kernels = [kernel.name for kernel in kernel_sources(product, choice.config, traits)]
    lines = {
        "product": report.describe_product(problem),
        "device": f"{traits.name} ({traits.architecture or 'unknown architecture'}), "
        f"{traits.platform} {traits.driver}",
        "path": choice.path,
        "config": str(choice.config),
        "from": f"{choice.source} (level {choice.level})",
        "reason": choice.reason,
        "advice": choice.advice,
        "unit": report.describe_unit(problem, choice.config, traits),
        "packed": report.describe_packing(problem, choice.config, kernels),
        "kernels": ", ".join(kernels),
    }
    console = options.open_console(highlight=False)
    text = Table.grid(padding=(0, 1))
    for name, value in lines.items():
        if value:
            text.add_row(f"{name:8}", value)
    console.print(text)
    if top > 1:
        headings = (">time", "path", "configuration*", "from")
        table = new_table("Predicted times", *headings, groups=[(0, 1, 3), (2,)])
        for one in [choice, *choice.alternatives][:top]:
            time = "unknown" if one.seconds is None else report.time_text(one.seconds)
            table.add_row(time, one.path, str(one.config), one.level)
        console.print(table)


_rounds_option = click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    help="Number of timed bursts of about 10 ms; the median counts.",
)


@options.command(
    "ab --change KC=256",
    "ab --base indirect --change KWG=32 --change PADA=4,PADB=4 --shapes dense",
    "ab --base tuned.json --change direct --shapes 64x3072x768,512x512x512",
    "ab --precision TF32_TF32_F32 --change matrix:STAGES=4",
    "ab --table ab.jsonl > techniques.md",
)
@click.option(
    "--base",
    default="database",
    metavar="CONFIG",
    help="The baseline: 'database' (what gemm takes for each shape), a path with parameters "
    "(indirect:MWG=128,KWG=32; those not named come from the database), or a JSON file.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Parameters separated by commas, or another CONFIG. The option may be repeated; each "
    "change is compared with the baseline.",
)
@click.option("--technique", metavar="TEXT", help="Name of the change in the record.")
@click.option(
    "--shapes",
    type=lambda text: options.parsed(options.parse_products, text),
    default="square",
    metavar="SHAPES",
    help=f"The products on which the change is judged: {options.SHAPES_HELP}",
)
@options.dtype_option
@click.option("--precision", help="JAX's name of the arithmetic, such as TF32_TF32_F32.")
@click.option(
    "--rounds", type=click.IntRange(min=3), default=5, help="Number of bursts of about 10 ms."
)
@options.file_option(
    "--log",
    "Append records to this file, one JSON object a line; by default ab.jsonl in the user's "
    "data folder.",
)
@click.option(
    "--no-figures", is_flag=True, help="Leave the bottlenecks of both sides out of the record."
)
@options.file_option(
    "--table",
    "Print the records of a log as a table in Markdown, and measure nothing.",
    exists=True,
)
@options.device_option
@click.pass_context
def ab(
    context: click.Context,
    base: str,
    changes: tuple[str, ...],
    technique: str | None,
    shapes: list[GemmShape],
    dtype: str,
    precision: str | None,
    rounds: int,
    log: Path | None,
    no_figures: bool,
    table: Path | None,
    device: str | None,
) -> None:
    """Compare changes of a configuration with a baseline.

    Change and baseline are checked, then timed in turn, on a suite of shapes. The change is kept if
    it gains more than 2 % (geometric mean), and rejected if it loses more than that; less than
    that, or less than the spread of the measurements, is noise. The exit code is 1 if a change
    could be compared on no shape, or gave a wrong result. Nothing else should run on the device
    meanwhile.
    """
    if table is not None:
        if changes:
            raise click.UsageError("--table and --change exclude each other")
        click.echo(report.markdown_table(comparisons.read_records(table)), nl=False)
        return
    if not changes:
        raise click.UsageError("give a --change KEY=VALUE, or --table FILE")
    if technique is not None and len(changes) > 1:
        raise click.UsageError("--technique names one change; give one --change with it")
    # Wrong arguments are refused before anything is measured.
    options.parsed(parse_config, base, "--base")
    for change in changes:
        options.parsed(parse_change, change, "--change")

    console = options.open_console()
    path = log or comparisons.default_log()
    check_writable(path, comparisons.LOG)
    command = shlex.join(["python", "-m", "pyclgemm", "ab", *_arguments_of(context)])
    with console.status("preparing operands and the device's ceilings"):
        _context, queue = options.open_queue(device)
        comparison = comparisons.Comparison(queue, shapes, dtype, precision, figures=not no_figures)
    failed: list[str] = []
    for change in changes:
        with options.open_progress(console) as progress:
            record = comparison.run(
                base, change, technique=technique, rounds=rounds, command=command,
                report=options.add_task(progress, change, len(shapes)),
            )  # fmt: skip
        console.print(report.record_table(record))
        try:
            comparisons.append_record(path, record)
            failed += [change] * (record.verdict == "failed")
        except FileError:
            click.echo("This record was not saved; as a line of a log it is:")
            click.echo(comparisons.record_line(record))
            raise
    click.echo(f"log: {path}")
    if failed:
        raise click.ClickException(f"failed, see above: {'; '.join(failed)}")


def _arguments_of(context: click.Context) -> list[str]:
    """The options of the command line, as the user typed them."""
    arguments: list[str] = []
    for parameter in context.command.params:
        name, option = parameter.name or "", parameter.opts[0]
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            value = context.params[name]
            if isinstance(value, list):  # of shapes, in one argument
                value = ",".join(map(str, value))
            for one in value if isinstance(value, tuple) else (value,):
                arguments += [option] if one is True else [option, str(one)]
    return arguments


#: The default size m = n = k.
_GPU_SIZE, _CPU_SIZE = 2048, 512


@options.command(
    "precision",
    "precision 4096x4096x4096 --device NVIDIA --csv precisions.csv",
    "precision 64x3072x768 --data badly-scaled --plot precisions.png",
)
@click.argument(
    "shape",
    metavar="[MxNxK]",
    type=lambda text: options.parse_shape(text, plain=True),
    required=False,
)
@options.device_option
@click.option(
    "--data",
    type=click.Choice(DISTRIBUTIONS),
    default="normal",
    help="The distribution of the random matrices.",
)
@options.file_option("--csv", "Also write the table to this file, one line per algorithm.")
@options.file_option(
    "--plot", "Draw speed over error to this file; its suffix, such as .png, is the format."
)
@_rounds_option
@click.option("--seed", type=int, default=0, help="Seed of the random numbers.")
def precision(
    shape: GemmShape | None,
    device: str | None,
    data: str,
    csv: Path | None,
    plot: Path | None,
    rounds: int,
    seed: int,
) -> None:
    """Show speed and error of every algorithm on a device.

    It is the product of an (M, K) and a (K, N) matrix; 2048 x 2048 x 2048 by default, on a CPU
    512 x 512 x 512. Errors are differences from a float64 product (of float64 and integers from the
    exact one)
    on some of the rows, relative to |A| |B|: the largest and the root mean square. The bound is
    that of the algorithm plus rounding in sums of length K (Higham and Mary, 2019). A result
    beyond it is not timed, and the exit code is 1. The algorithms are timed in turn. Nothing else
    should run on the device meanwhile. Ctrl-C shows the results so far.
    """
    if csv is not None:
        check_writable(csv, precisions.TABLE)
    if plot is not None:
        plots.check_plot(plot)
    console = options.open_console(file_width=160)
    _context, queue = options.open_queue(device)
    size = _CPU_SIZE if type_of(queue.device) == "cpu" else _GPU_SIZE
    sizes = shape.sizes if shape else (size, size, size)
    bench = precisions.PrecisionBench(queue, sizes, data, seed=seed)
    interrupted = False
    with options.open_progress(console) as progress:
        checked = options.add_task(progress, "errors", len(bench.algorithms))
        timed = options.add_task(progress, "times", rounds)
        try:
            bench.check(checked)
            bench.time(rounds, timed)
        except KeyboardInterrupt:
            interrupted = True
    result = bench.report()
    console.print(precisions.report_table(result))
    if left_out := precisions.reasons(result):
        console.print("\nnot on this device:")
        for reason, algorithms in left_out.items():
            text = "\n".join((*algorithms, f"  {reason}"))
            console.print(Padding(Text(text), (0, 0, 0, 2)), highlight=False)
    if interrupted:
        console.print("Interrupted: these are the results so far.", style="yellow")
    if csv is not None:
        precisions.write_csv(result, csv)
        click.echo(f"table: {csv}")
    if plot is not None:
        precisions.plot_report(result, plot)
        click.echo(f"plot: {plot}")
    if any(row.verdict == "exceeded" for row in result.rows):
        raise click.ClickException("an error exceeds its bound: see above")


@options.command(
    "profile 1024x1024x1024",
    "profile 64x3072x768 --bias --activation relu --plot roofline.png",
    "profile 4096x4096x4096 --path indirect --config KWG=32",
)
@options.product_options
@options.file_option(
    "--plot", "Draw the roofline to this file; its suffix, such as .png, is the format."
)
@click.option("--remeasure", is_flag=True, help="Measure the device's ceilings again.")
@_rounds_option
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

    It is the product of an (M, K) and a (K, N) matrix; its shape is written as for `explain`. The
    ceilings of the device (arithmetic, memory, launches) are measured once and kept in the user's
    folder. Nothing else should run on the device meanwhile.
    """
    if plot is not None:
        plots.check_plot(plot)
    console = options.open_console()
    with console.status("looking for devices") as status:

        def tell(step: str) -> None:
            status.update(f"measuring: {step}")

        _context, queue = options.open_queue(device)
        known = ceilings.ceilings_of(queue, tell, remeasure=remeasure)
        result = profiles.profile(
            queue, product, path=path, parameters=parameters, ceilings=known, rounds=rounds,
            report=tell,
        )  # fmt: skip
    console.print(report.profile_table(result))
    if plot is not None:
        report.plot_roofline(result, plot)
        click.echo(f"roofline: {plot}")
