"""Climb from a naive kernel to the best one in eight steps, each a configuration of this library.

    python benchmarks/ladder.py                       # C = 1.5 A B + 0.5 C, 4096^3; on a CPU 1024^3

Each step is checked against float64 before it is timed. All steps are timed in turn in one run with
the vendor's library (cuBLAS through torch; NumPy's on a CPU), CLBlast, the library's own choice,
and matrix units if the device has some, which the report marks as not true float32. The clock
includes all work of a call on the device, with packing. If clang 19 is installed, the report also
has what it makes of the steps for gfx1100.
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
from pyclgemm.measure.filled_queue import blocker_of

ALPHA, BETA = 1.5, 0.5

#: Sizes of the product on a CPU and on other devices.
_SIZES = {True: 1024, False: 4096}

#: Width of a report that goes to a file instead of a terminal.
_FILE_WIDTH = 140

#: The same pace on all devices.
_PACE = pace_for("benchmark", "gpu")

_EXAMPLES = """\b
Examples:
  python benchmarks/ladder.py                                  # the first device
  python benchmarks/ladder.py --device NVIDIA --size 8192
  python benchmarks/ladder.py --size 512 --rounds 3 --no-compile
  python benchmarks/ladder.py --no-measure --output figures    # compile only
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
    """Return the figures of the compiler or of a file; if `required`, a lack ends the command."""
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
        command.warn(console, f"Compiling for {architecture} is left out: {error}")
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
    """Check and time the steps and their rivals; return the session and the rivals' titles."""
    say = functools.partial(command.warn, console)
    traits = traits_of(machine.device)
    own: dict[str, Factory] = {}
    for step in steps:
        if broken := violations(step.config, "float32", traits):
            say(f"step {step.name} is left out: {'; '.join(broken)}")
            continue
        own[step.name] = functools.partial(
            contenders.plan_contender, name=step.name, config=step.config
        )
    rivals, titles = rival_factories(
        steps, size, traits, machine.device, clblast_path, machine.facts, say
    )
    session = Session(
        queue=machine.queue,
        factories=own | rivals,
        pace=pace,
        say=say,
        longest_product=float("inf"),
        blocker=blocker_of(machine.queue),
        own=(*own, *OWN_RIVALS),
    )
    case = Case(size, size, size, suite="ladder", alpha=ALPHA, beta=BETA)
    with command.progress_bar(console) as progress:
        task = progress.add_task("checking, then measuring", total=1.0)
        advance = functools.partial(progress.advance, task)
        with command.interruptible(console, machine.facts):
            session.run([case], arithmetic_of("float32"), advance)
    return session, titles


@click.command(help=(__doc__ or "").partition("\n\n")[0], epilog=_EXAMPLES)
@command.device_option
@click.option(
    "--size", type=click.IntRange(1),
    help="m, n and k of the product. [default: 4096; on a CPU 1024]",
)  # fmt: skip
@command.rounds_option
@click.option(
    "--seconds", type=click.FloatRange(min=0.0, min_open=True), default=_PACE.seconds,
    show_default=True, help="Approximate time for all bursts and their pauses.",
)  # fmt: skip
@command.clblast_option
@click.option(
    "--architecture", default="gfx1100", show_default=True, metavar="NAME",
    callback=_read_architecture, help="The AMD GPU for which the steps are compiled.",
)  # fmt: skip
@click.option(
    "--compile/--no-compile", "compiles", default=None,
    help="Compile for that GPU; with a CPU, which has other steps, only if --no-measure is given.",
)  # fmt: skip
@click.option(
    "--compiled", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the CSV file of a run with --no-measure instead of compiling.",
)  # fmt: skip
@click.option("--measure/--no-measure", "measures", default=True, help="Time on a device.")
@command.output_option("report, chart and CSV file")
@click.option("--stem", help="Beginning of the file names. [default: device, platform, date]")
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
    # For a file rich would take 80 columns.
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
        # A file of an earlier run names its own architecture.
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
        command.check_measured(records, failures)
    frame = ladder_frame(steps, beside, records, figures)
    console.print(ladder_table(frame, title))
    console.print(legend(frame, architecture), highlight=False)
    stem = stem or file_stem({"platform": "compiled", **facts}, "ladder")
    written = write_report(frame, steps, title, architecture, facts, output, stem)
    command.finish(console, written, failures)


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
