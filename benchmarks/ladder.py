"""Climb from a naive kernel to the best one in eight steps, each a configuration of this library.

    python benchmarks/ladder.py                       # C = 1.5 A B + 0.5 C, 4096^3; on a CPU 1024^3

A step is checked against float64 before it is timed. All steps take turns in one run with the
vendor's library (cuBLAS through torch; on a CPU NumPy's), with CLBlast, with what this library
takes by itself, and with matrix units where there are some, which are named as not true float32.
Inside the clock: all that a call does on the device, packing of operands included. Beside the
times stands what clang makes of the steps for gfx1100, where clang 19 is installed.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import contenders
from benchmarks.amd_compile import CompilerError, isa_version
from benchmarks.arithmetic import arithmetic_of
from benchmarks.burst import Pace
from benchmarks.case import Case
from benchmarks.environment import describe, now
from benchmarks.ladder_compiled import Figures, compile_ladder, read_compiled
from benchmarks.ladder_frame import OWN_RIVALS, ladder_frame
from benchmarks.ladder_report import ladder_table, legend, write_report
from benchmarks.ladder_rivals import rival_factories
from benchmarks.ladder_step import Step
from benchmarks.ladder_steps import ladder_steps
from benchmarks.report import Record, file_stem
from benchmarks.session import Factory, Session
from pyclgemm.device.discovery import choose_device
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import PyclgemmError
from pyclgemm.families.registry import violations
from pyclgemm.host.process import ended_as_by_hand
from pyclgemm.measure.filled_queue import QueueBlocker

ALPHA, BETA = 1.5, 0.5

_SIZES = {True: 1024, False: 4096}  # on a CPU, elsewhere

_FILE_WIDTH = 140

_RESULTS = Path(__file__).resolve().parent / "results"

_EXAMPLES = """\b
Examples:
  python benchmarks/ladder.py                                  # the first device
  python benchmarks/ladder.py --device NVIDIA --size 8192
  python benchmarks/ladder.py --size 512 --rounds 3 --no-compile
  python benchmarks/ladder.py --no-measure --output figures    # only what clang makes of it
"""


def _read_architecture(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        isa_version(value)
        typical_traits(value)
    except (CompilerError, PyclgemmError) as error:
        raise click.BadParameter(str(error), context, parameter) from None
    return value


def _compile(
    architecture: str,
    size: int,
    compiled: Path | None,
    facts: dict[str, str],
    console: Console,
    *,
    required: bool,
) -> dict[str, Figures]:
    """Figures of the compiler, or of a file; if there are none it is said, or where required,
    an error.
    """
    try:
        if compiled is not None:
            figures, read = read_compiled(compiled)
            facts |= read
            return figures
        with console.status(f"compiling for {architecture}"):
            figures, facts["compiler"] = compile_ladder(architecture, size)
    except CompilerError as error:
        if required or compiled is not None:
            raise click.ClickException(str(error)) from None
        console.print(
            f"What clang makes of the steps for {architecture} is left out: {error}",
            style="yellow", markup=False, soft_wrap=True,
        )  # fmt: skip
        return {}
    first = next(iter(figures.values()))
    facts["compiled for"] = f"{architecture}, {first['mode']} mode, {first['shape']}"
    return figures


def _measure(
    device: cl.Device,
    steps: Sequence[Step],
    size: int,
    pace: Pace,
    clblast_path: str | None,
    facts: dict[str, str],
    console: Console,
) -> tuple[Session, dict[str, str]]:
    """Check and time all that takes part; titles are those of what stands beside the steps."""

    def say(text: str) -> None:
        console.print(text, style="yellow", markup=False, soft_wrap=True)

    # Held by name: on Intel's runtime a queue does not keep its context alive.
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    on_cpu = bool(device.type & cl.device_type.CPU)
    traits = traits_of(device)
    climbing: dict[str, Factory] = {}
    for step in steps:
        if broken := violations(step.config, "float32", traits):
            say(f"step {step.name} is left out: {'; '.join(broken)}")
            continue
        climbing[step.name] = functools.partial(
            contenders.plan_contender, name=step.name, config=step.config
        )
    rivals, titles = rival_factories(steps, size, traits, device, clblast_path, facts, say)
    session = Session(
        queue=queue,
        factories=climbing | rivals,
        pace=pace,
        say=say,
        longest_product=float("inf"),
        blocker=None if on_cpu else QueueBlocker(queue),
        own=(*climbing, *OWN_RIVALS),
    )
    case = Case(size, size, size, "ladder", alpha=ALPHA, beta=BETA)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("checking, then measuring", total=1.0)
        try:
            session.run(
                [case], arithmetic_of("float32"), lambda part: progress.update(task, advance=part)
            )
        except KeyboardInterrupt:
            console.print("Interrupted: what was measured so far follows.", style="yellow")
            facts["interrupted"] = "the user ended the run: bursts are fewer"
    return session, titles


@click.command(help=(__doc__ or "").partition("\n\n")[0], epilog=_EXAMPLES)
@click.option("--device", help="Rank or part of the name, as `python -m pyclgemm devices` lists.")
@click.option(
    "--size", type=click.IntRange(1),
    help="m, n and k of the product. [default: 4096; on a CPU 1024]",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1), default=7, show_default=True,
    help="Bursts of each step; fewer, at least 3, where they are long.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(min=0.0, min_open=True), default=Pace().seconds,
    show_default=True, help="Time for all bursts and their pauses, about.",
)  # fmt: skip
@click.option("--clblast", "clblast_path", metavar="PATH", help="CLBlast's shared library.")
@click.option(
    "--architecture", default="gfx1100", show_default=True, metavar="NAME",
    callback=_read_architecture, help="AMD's GPU for which the steps are compiled.",
)  # fmt: skip
@click.option(
    "--compile/--no-compile", "compiles", default=None,
    help="For that GPU, offline; on a CPU, whose steps are others, it goes with --no-measure only.",
)  # fmt: skip
@click.option(
    "--compiled", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The CSV file of a run with --no-measure, instead of a compiler.",
)  # fmt: skip
@click.option("--measure/--no-measure", "measures", default=True, help="On a device.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=_RESULTS,
    help="Folder for report, chart and CSV file. [default: benchmarks/results]",
)  # fmt: skip
@click.option("--stem", help="Begins the names of these files. [default: device, platform, date]")
def main(
    device: str | None,
    size: int | None,
    rounds: int,
    seconds: float,
    clblast_path: str | None,
    architecture: str,
    compiles: bool | None,
    compiled: Path | None,
    measures: bool,
    output: Path,
    stem: str | None,
) -> None:
    """Run the benchmark from the command line."""
    if compiles is False and not measures:
        raise click.UsageError("--no-compile and --no-measure leave nothing to do")
    # A file has no width of its own, for which rich takes 80 columns.
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    chosen, traits = None, typical_traits(architecture)
    if measures:
        try:
            chosen = choose_device(device).device
        except PyclgemmError as error:
            raise click.ClickException(str(error)) from None
        assert chosen is not None
        traits = traits_of(chosen)
    facts = describe(chosen) if chosen else {"device": architecture, "date": now()}
    size = size or _SIZES[traits.type == "cpu"]
    steps = ladder_steps(size, traits)
    figures: dict[str, Figures] = {}
    if (compiles or compiled) and traits.type == "cpu":
        raise click.UsageError("the steps of a CPU are not those of a GPU: add --no-measure")
    if compiles or (compiles is None and traits.type != "cpu"):
        figures = _compile(architecture, size, compiled, facts, console, required=not measures)
        # A file tells it itself.
        architecture = facts.get("compiled for", architecture).partition(",")[0]
    facts["command"] = shlex.join(["python", "benchmarks/ladder.py", *sys.argv[1:]])
    for name, value in facts.items():
        console.print(f"[bold]{name:>13}[/]  {value}", highlight=False, soft_wrap=True)
    title = f"C = {ALPHA} A B + {BETA} C, {size} x {size} x {size}, float32: "
    title += facts["device"] if measures else f"compiled for {architecture}"
    records: list[Record] = []
    failures: list[str] = []
    beside: dict[str, str] = {}
    if chosen:
        pace = Pace(rounds=rounds, seconds=seconds)
        session, beside = _measure(chosen, steps, size, pace, clblast_path, facts, console)
        records, failures = session.records, session.failures
        if not records:
            raise click.ClickException("\n".join(["nothing was measured", *failures]))
    frame = ladder_frame(steps, beside, records, figures)
    console.print(ladder_table(frame, title))
    console.print(legend(frame, architecture), highlight=False)
    stem = stem or file_stem({"platform": "compiled", **facts}, "ladder")
    for path in write_report(frame, steps, title, architecture, facts, output, stem):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    if failures:
        raise click.ClickException("\n".join(failures))


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
