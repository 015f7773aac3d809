"""Climb from a naive kernel to the best one in eight steps, each a configuration of this library.

    python benchmarks/ladder.py                       # C = 1.5 A B + 0.5 C, 4096^3; on a CPU 1024^3

A step is checked against float64 before it is timed. All steps take turns in one run with the
vendor's library (cuBLAS through torch; on a CPU NumPy's), with CLBlast, with the library's own
choice, and with matrix units where the device has some, which the report marks as not true
float32. The clock includes all that a call does on the device, packing of operands among it. Beside
the times stands what clang makes of the steps for gfx1100, where clang 19 is installed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.amd.compile import CompilerError, isa_version
from benchmarks.amd.rows import Figures
from benchmarks.contenders import contenders
from benchmarks.contenders.contenders import Factory
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.reports.report import file_stem
from benchmarks.session import command
from benchmarks.session.environment import now
from benchmarks.session.session import Record, Session
from benchmarks.steps.compiled import compile_ladder, read_compiled
from benchmarks.steps.frame import OWN_RIVALS, ladder_frame
from benchmarks.steps.report import ladder_table, legend, write_report
from benchmarks.steps.rivals import rival_factories
from benchmarks.steps.step import Step
from benchmarks.steps.steps import ladder_steps
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import PyclgemmError
from pyclgemm.families.registry import violations
from pyclgemm.host.process import ended_as_by_hand
from pyclgemm.measure.bench import Pace, pace_for
from pyclgemm.measure.filled_queue import QueueBlocker

ALPHA, BETA = 1.5, 0.5

_SIZES = {True: 1024, False: 4096}  # on a CPU, elsewhere

_FILE_WIDTH = 140

#: The same on all devices.
_PACE = pace_for("benchmark", "gpu")

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
    """Figures of the compiler, or of a file; if `required`, their absence ends the command."""
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
        command.warn(
            console, f"What clang makes of the steps for {architecture} is left out: {error}"
        )
        return {}
    first = next(iter(figures.values()))
    facts["compiled for"] = f"{architecture}, {first['mode']} mode, {first['shape']}"
    return figures


def _measure(
    machine: command.Machine,
    steps: Sequence[Step],
    size: int,
    pace: Pace,
    clblast_path: str | None,
    console: Console,
) -> tuple[Session, dict[str, str]]:
    """Check and time all that takes part; the titles are those of the rivals."""
    say = functools.partial(command.warn, console)
    traits = traits_of(machine.device)
    climbing: dict[str, Factory] = {}
    for step in steps:
        if broken := violations(step.config, "float32", traits):
            say(f"step {step.name} is left out: {'; '.join(broken)}")
            continue
        climbing[step.name] = functools.partial(
            contenders.plan_contender, name=step.name, config=step.config
        )
    rivals, titles = rival_factories(
        steps, size, traits, machine.device, clblast_path, machine.facts, say
    )
    session = Session(
        queue=machine.queue,
        factories=climbing | rivals,
        pace=pace,
        say=say,
        longest_product=float("inf"),
        blocker=None if machine.on_cpu else QueueBlocker(machine.queue),
        own=(*climbing, *OWN_RIVALS),
    )
    case = Case(size, size, size, suite="ladder", alpha=ALPHA, beta=BETA)
    with command.progress_bar(console) as progress:
        task = progress.add_task("checking, then measuring", total=1.0)
        try:
            session.run(
                [case], arithmetic_of("float32"), lambda part: progress.update(task, advance=part)
            )
        except KeyboardInterrupt:
            console.print("Interrupted: what was measured so far follows.", style="yellow")
            machine.facts["interrupted"] = "the user ended the run: bursts are fewer"
    return session, titles


@click.command(help=(__doc__ or "").partition("\n\n")[0], epilog=_EXAMPLES)
@command.device_option
@click.option(
    "--size", type=click.IntRange(1),
    help="m, n and k of the product. [default: 4096; on a CPU 1024]",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1), default=7, show_default=True,
    help="Bursts of each step; fewer, at least 3, where they are long.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(min=0.0, min_open=True), default=_PACE.seconds,
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
@command.output_option("report, chart and CSV file")
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
    machine = command.open_machine(device) if measures else None
    traits = traits_of(machine.device) if machine else typical_traits(architecture)
    facts = machine.facts if machine else {"device": architecture, "date": now()}
    size = size or _SIZES[traits.type == "cpu"]
    steps = ladder_steps(size, traits)
    figures: dict[str, Figures] = {}
    if (compiles or compiled) and traits.type == "cpu":
        raise click.UsageError("the steps of a CPU are not those of a GPU: add --no-measure")
    if compiles or (compiles is None and traits.type != "cpu"):
        figures = _compile(architecture, size, compiled, facts, console, required=not measures)
        # A file tells it itself.
        architecture = facts.get("compiled for", architecture).partition(",")[0]
    facts["command"] = command.as_typed("ladder.py")
    command.print_facts(facts, console)
    title = f"C = {ALPHA} A B + {BETA} C, {size} x {size} x {size}, float32: "
    title += facts["device"] if measures else f"compiled for {architecture}"
    records: list[Record] = []
    failures: list[str] = []
    beside: dict[str, str] = {}
    if machine:
        pace = replace(_PACE, rounds=rounds, seconds=seconds)
        session, beside = _measure(machine, steps, size, pace, clblast_path, console)
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
