"""The commands ``tune`` and ``calibrate``: measure a device, show and save the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, TextColumn
from rich.table import Table

from ..analysis.report import speed_text
from ..analysis.tables import new_table
from ..codegen.config import Config
from ..errors import UnsupportedError
from ..host.process import postponed
from ..problem.precision import resolve_precision
from ..problem.shape import GemmShape
from ..selection.database import reload_database
from ..tuning import tuner
from ..tuning.calibrate import SECONDS, calibrate as run_calibration
from ..tuning.process import FINE, OUTCOMES, TrialProcess
from ..tuning.search import families_for, search_space, suits
from ..tuning.session import Progress
from . import options


@options.command(
    "tune",
    "tune --shapes dense,64x64x65536 --budget 300",
    "tune --shapes layouts,82x6626x1085:NT,1000x1000x1000+7",
    "tune --shapes batched,24x24x24*5000,512x512x512*256",
    "tune --dtype float64 --device pocl --dry-run",
    "tune --survey 1 --budget 600",
    "tune --shapes shapes.txt --contribute databases/nvidia_sm_90.json",
)
@options.device_option
@options.dtype_option
@options.precision_option
@click.option(
    "--shapes",
    type=lambda text: options.parsed(options.parse_products, text),
    default="square",
    metavar="SHAPES",
    help=f"The products to tune for: {options.SHAPES_HELP}",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    metavar="SECONDS",
    help="The duration, compiling included.",
)
@click.option(
    "--survey",
    type=click.FloatRange(0, 1),
    default=0.25,
    metavar="PART",
    help="Part of the budget for random products on which predicted times are least certain; they "
    "improve the choice for all other shapes. 1 tunes for no particular shape.",
)
@options.file_option(
    "--contribute", "Write a file for databases/ instead of your own database.", metavar="PATH"
)
@click.option("--dry-run", is_flag=True, help="Count the space, show the plan, measure nothing.")
@click.option("--seed", type=int, default=0, help="Seed of the search.")
def tune(
    device: str | None,
    dtype: str,
    precision: str | None,
    shapes: list[GemmShape],
    budget: float,
    survey: float,
    contribute: Path | None,
    dry_run: bool,
    seed: int,
) -> None:
    """Find the fastest kernels for a device and some shapes.

    The results go to your own database, which the library prefers from then on. Ctrl-C and
    SIGTERM end the search and keep the results; a second run resumes where the first one stopped.
    Every product is checked before its time counts.
    """
    console = options.open_console(highlight=False)
    if dry_run:
        for table in dry_run_tables(device, dtype, precision, shapes, budget):
            console.print(table)
        return
    tuner.check_destination(contribute)
    with shown_progress(console, budget) as show:
        result = tuner.tune(
            shapes, device, dtype=dtype, precision=precision, budget=budget, survey=survey,
            contribute=contribute, seed=seed, progress=show,
        )  # fmt: skip
    console.print(result_table(result))
    for line in outcome_lines(result):
        console.print(line)
    if not any(standing.best for standing in (*result.standings, *result.survey.standings)):
        raise click.ClickException("nothing was measured, so nothing was saved")
    try:
        with postponed():
            path = tuner.save_result(result, contribute)
            click.echo(f"saved in {path}")
            reload_database()
    except Exception:
        click.echo("These records were not saved; a file with this content is a database:")
        click.echo(tuner.unsaved_text(result))
        raise


@options.command("calibrate", "calibrate --device pocl --seconds 60")
@options.device_option
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=SECONDS,
    help="The duration, finding the device and compiling included.",
)
def calibrate(device: str | None, seconds: float) -> None:
    """Measure a device that was not tuned, to improve the choice of kernels on it.

    Ceilings and some kernels are measured; predicted times are based on them from then on. The
    results go to your own database. Nothing else should run on the device meanwhile. Ctrl-C and
    SIGTERM end it and keep the results. The tuner (`tune`) finds the fastest kernels for the shapes
    that matter to you.
    """
    console = options.open_console()
    begin = time.monotonic()
    _context, queue = options.open_queue(device)
    left = max(1.0, seconds - (time.monotonic() - begin))
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def report(step: str, fraction: float) -> None:
            bar.update(task, description=step, completed=fraction)

        result = run_calibration(queue, left, report=report)
    if result.fits:
        title = f"{queue.device.name.strip()}: predicted times"
        table = new_table(title, "type", "path", ">times", ">median error")
        for dtype, fits in result.fits.items():
            for path, fit in fits.items():
                table.add_row(dtype, path, str(fit.times), f"{100 * fit.error:.0f} %")
        console.print(table)
    else:
        console.print("The ceilings were measured; no kernel improved the predicted times.")
    ended = "Interrupted after" if result.interrupted else "Done in"
    console.print(f"{ended} {time.monotonic() - begin:.0f} s; saved in {result.path}")


#: Seconds between lines of output without a terminal.
_QUIET_SECONDS = 10.0


@contextmanager
def shown_progress(console: Console, budget: float) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a run of `budget` seconds: a bar on a terminal, otherwise lines.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> with shown_progress(Console(force_terminal=False), 60.0) as show:
    ...     show(Progress("search", 12.0, 34, GemmShape(8, 8, 8), 1.5))
      12 of 60 s: search, 34 trials, best on 8x8x8: 1.5 GFLOPS
    """
    columns = TextColumn("{task.fields[stage]:7}"), BarColumn(), TextColumn("{task.description}")
    last = -_QUIET_SECONDS
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{budget:.0f} s left, opening the device", total=budget, stage="start")

        def show(now: Progress) -> None:
            nonlocal last
            speed = "none yet" if now.gflops is None else speed_text(now.gflops)
            text = f"{now.trials} trials, best on {now.shape}: {speed}"
            elapsed = min(now.elapsed, budget)
            description = f"{budget - elapsed:.0f} s left, {text}"
            bar.update(task, completed=elapsed, stage=now.stage, description=description)
            if not console.is_terminal and time.monotonic() - last >= _QUIET_SECONDS:
                last = time.monotonic()
                console.print(f"{now.elapsed:4.0f} of {budget:.0f} s: {now.stage}, {text}")

        yield show


def result_table(result: tuner.TuningResult) -> Table:
    """The best configuration of each shape, its speed and its gain."""
    title = f"{result.traits.name}, {result.dtype}, {result.precision}"
    headings = ("m x n x k", ">speed", ">gain", ">tried", "configuration*")
    table = new_table(title, *headings, groups=[(0,), (1, 2, 3), (4,)])
    for standing in result.standings:
        if standing.best is None:
            table.add_row(str(standing.shape), "-", "-", "0", "-")
            continue
        table.add_row(
            str(standing.shape),
            "none yet" if standing.gflops is None else speed_text(standing.gflops),
            "-" if standing.gain is None else f"{standing.gain:.2f}",
            str(len(standing.scores)),
            f"{standing.best.family} {short_text(standing.best)}",
        )
    return table


def short_text(config: Config) -> str:
    """A configuration without the parameters that have their default.

    Examples
    --------
    >>> from pyclgemm import GemvConfig
    >>> short_text(GemvConfig(MR=1, WGS=64, LANES_N=8, VW=4))
    'MR=1 WGS=64 LANES_N=8 VW=4'
    """
    defaults = {field.name: field.default for field in fields(config)}
    return " ".join(
        f"{name}={value}" for name, value in config.as_dict().items() if value != defaults[name]
    )


def outcome_lines(result: tuner.TuningResult) -> list[str]:
    """The numbers of trials by status with a reason of failure each, and remarks."""
    trials, fine = sum(result.outcomes.values()), result.outcomes.get(FINE, 0)
    ended = "Interrupted after" if result.interrupted else "Done in"
    lines = [f"{ended} {result.seconds:.0f} s: {trials} trials, {fine} right and timed."]
    lines += [
        f"  {count} passed over: {OUTCOMES[status]}; the first: {result.examples[status]}"
        for status, count in sorted(result.outcomes.items())
        if status != FINE
    ]
    if any(standing.gain is not None for standing in result.standings):
        lines.append("The gain is over the previous choice, timed in turn at the end.")
    if result.survey.report:
        lines.append(f"{result.survey.report}.")
    return [*lines, *result.remarks]


def dry_run_tables(
    device: str | None, dtype: str, precision: str | None, shapes: list[GemmShape], budget: float
) -> list[Table]:
    """The size of the search space of each family, and the plan for the budget."""
    with TrialProcess(device, dtype, precision) as process:
        traits = process.traits
    algorithm = resolve_precision(precision, dtype)
    problems = [shape.problem(dtype, precision) for shape in shapes]
    families = families_for(problems, traits)
    if not families:
        raise UnsupportedError(
            f"precision is {algorithm.name}, which no kernel computes on {traits.name!r}"
        )
    title = f"{traits.name}: configurations for {dtype}, {algorithm.name}"
    headings = ("family", "coordinates*", ">points", ">of them valid")
    spaces = new_table(title, *headings, groups=[(0,), (1,), (2, 3)])
    for family in families:
        # A batch leaves out families that do not suit it; a single product shows all.
        if not any(one.batch is None or suits(family, one, traits) for one in problems):
            continue
        space = search_space(family, dtype, traits, algorithm)
        count = space.count()
        axes = [f"{name} {'/'.join(map(str, values))}" for name, values in space.axes.items()]
        valid = f"{count.valid:,}" if count.exact else f"about {count.valid:.2g}"
        spaces.add_row(family, ", ".join(axes), f"{count.points:,}", valid)
    title = f"Budget of {budget:.0f} s on {len(shapes)} shapes"
    plan = new_table(title, "stage", "what*", "seconds*")
    least, most = tuner.LAST_AT_LEAST * budget, tuner.start_part(budget, len(shapes)) * budget
    plan.add_row("start", "choices and configurations of the databases", f"at most {most:.0f}")
    plan.add_row("search", "equal time for each shape", "the rest")
    plan.add_row("cross, confirm", "winners on all shapes, and in turn", f"at least {least:.0f}")
    plan.add_row("", "shapes", " ".join(map(str, shapes)))
    return [spaces, plan]
