"""The command line of the fuzzer."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from . import registry
from .journal import Journal, read_journal
from .pool import run_alone
from .runner import (
    MINIMISE_SECONDS,
    Plan,
    Report,
    Result,
    Watch,
    repeat_line,
    reports_of,
    run_campaign,
    summary,
)

#: Read by `tests.fuzz.devices`, which imports OpenCL; the parent process does without it.
_DEVICE_VARIABLE = "PYCLGEMM_FUZZ_DEVICE"
#: Seconds between two lines about the progress, where the output is no terminal.
_PLAIN_SECONDS = 30.0


def _default_jobs() -> int:
    """All cores but some for the drivers' own threads, where there are many."""
    cores = os.cpu_count() or 1
    return cores if cores < 8 else cores - 2


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
\b
Examples:
  python -m tests.fuzz --seconds 600 --seed 7
  python -m tests.fuzz --seconds 3600 --journal fuzz.jsonl --resume
  python -m tests.fuzz --campaign problems --device pocl --cases 20000 --seconds 1500
  python -m tests.fuzz --case '{"campaign": "problems", ...}'
""",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Time for all campaigns together; failures are made smaller after it.",
)
@click.option("--seed", type=int, help="Seed of all cases; the day as YYYYMMDD by default.")
@click.option(
    "--campaign",
    "campaigns",
    multiple=True,
    metavar="NAME",
    help="Run this campaign; may be given more than once. All by default.",
)
@click.option("--cases", type=click.IntRange(min=1), help="Most cases of each campaign.")
@click.option("--device", metavar="TEXT", help="Only devices whose platform and name have TEXT.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=_default_jobs,
    show_default="cores",
    help="Worker processes.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="GIB",
    help="Limit of the address space of a worker; 0 for none.",
)
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what was run to FILE.",
)
@click.option("--resume", is_flag=True, help="Go on where the run of --journal ended.")
@click.option(
    "--block",
    type=click.IntRange(min=0),
    metavar="N",
    help="Run block N of the cases of each campaign, and nothing else.",
)
@click.option("--case", "case_text", metavar="JSON", help="Run one case, and nothing else.")
@click.option(
    "--minimise",
    type=click.FloatRange(min=0),
    default=MINIMISE_SECONDS,
    show_default=True,
    help="Seconds to make each failure smaller.",
)
@click.option("--list", "wants_list", is_flag=True, help="List the campaigns.")
def main(
    seconds: float, seed: int | None, campaigns: tuple[str, ...], cases: int | None,
    device: str | None, jobs: int, memory: float, journal: Path | None, resume: bool,
    block: int | None, case_text: str | None, minimise: float, wants_list: bool,
) -> None:  # fmt: skip
    """Test the library with hostile cases drawn from a seed.

    Failures are made smaller and printed as a line that repeats them; the exit status is then 1.
    """
    if device:
        os.environ[_DEVICE_VARIABLE] = device
    limit = int(memory * 2**30)
    if wants_list:
        _print_list()
        return
    if case_text is not None:
        sys.exit(_repeat(case_text, limit))
    if resume and journal is None:
        raise click.UsageError("--resume needs --journal, the run to go on with")
    names = campaigns or tuple(registry.available())
    unknown = [name for name in names if name not in registry.CAMPAIGNS and ":" not in name]
    if unknown:
        known = ", ".join(registry.CAMPAIGNS)
        raise click.BadParameter(f"{unknown[0]!r}; there are {known}", param_hint="--campaign")
    results = {name: Result(name) for name in names}
    if resume and journal is not None:
        earlier_seed, earlier = read_journal(journal)
        if earlier_seed is not None and seed not in (None, earlier_seed):
            raise click.UsageError(f"--seed is {seed}, and {journal} was begun with {earlier_seed}")
        seed = earlier_seed if earlier_seed is not None else seed
        for name, progress in earlier.items():
            if name in results:
                results[name].progress = progress
    if seed is None:
        seed = int(datetime.date.today().strftime("%Y%m%d"))
    click.echo(f"seed {seed}")
    plan = Plan(seed, seconds, cases, 1 if block is not None else jobs, limit, block)
    sys.exit(_run(plan, results, Journal(journal, seed, append=resume), minimise))


def _print_list() -> None:
    present = set(registry.available())
    for name in registry.CAMPAIGNS:
        if name in present:
            documentation = (type(registry.load(name)).__doc__ or "").strip().splitlines()
            click.echo(f"{name}: {documentation[0] if documentation else ''}")


def _repeat(text: str, memory: int) -> int:
    """Run one case in a process of its own; the exit status."""
    try:
        case = json.loads(text)
        name = case.pop("campaign")
    except (json.JSONDecodeError, KeyError, AttributeError) as error:
        raise click.BadParameter(
            f'{text[:80]!r} is no JSON object with a "campaign": {error!r}', param_hint="--case"
        ) from None
    outcome = run_alone(name, case, memory)
    if outcome.failed:
        click.echo(str(Report(name, outcome, repeat_line(name, case))))
        return 1
    click.echo(f"{name}: {outcome.status}" + (f": {outcome.message}" if outcome.message else ""))
    return 0


def _run(plan: Plan, results: dict[str, Result], journal: Journal, minimise: float) -> int:
    """Run the campaigns one after the other; the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    end = time.monotonic() + plan.seconds
    interrupted = False
    reports: list[Report] = []
    try:
        with _watching(plan) as watch:
            for left, (name, result) in zip(
                range(len(results), 0, -1), results.items(), strict=True
            ):
                share = max(0.0, end - time.monotonic()) / left
                run_campaign(name, plan, share, result, journal, watch)
        for result in results.values():
            reports += reports_of(result, plan, minimise, click.echo)
    except KeyboardInterrupt:
        interrupted = True
        click.echo("interrupted")
        reported = {report.campaign for report in reports}
        for result in results.values():
            if result.name not in reported:
                reports += reports_of(result, plan, 0, click.echo)
    finally:
        journal.close()
    for report in reports:
        click.echo(str(report))
    for result in results.values():
        for line in summary(result):
            click.echo(line)
    if any(result.failed for result in results.values()):
        return 1
    return 130 if interrupted else 0


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _watching(plan: Plan) -> Iterator[Watch]:
    """A progress bar on a terminal, and a line now and then elsewhere."""
    console = Console()
    if not console.is_terminal:
        yield _PlainWatch()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def watch(result: Result, until: float) -> None:
            left = max(0.0, until - time.time())
            if result.name not in tasks:
                tasks[result.name] = bar.add_task(result.name, total=left)
            progress = result.progress
            total = bar.tasks[tasks[result.name]].total or 0.0
            bar.update(
                tasks[result.name],
                completed=total - left,
                description=f"{result.name}: {progress.total} cases, "
                f"{len(progress.failures)} failed",
            )

        yield watch


class _PlainWatch:
    def __init__(self) -> None:
        self._next = time.monotonic() + _PLAIN_SECONDS
        self._told = 0

    def __call__(self, result: Result, until: float) -> None:
        failures = result.progress.failures
        for found in failures[self._told :]:
            click.echo(f"{result.name}: {found.outcome.kind}: {found.outcome.headline}")
        self._told = len(failures)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PLAIN_SECONDS
        left = max(0.0, until - time.time())
        click.echo(f"{result.name}: {result.progress.total} cases, {left:.0f} s left")


if __name__ == "__main__":
    main()
