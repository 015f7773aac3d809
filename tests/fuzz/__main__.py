"""The command line of the fuzzer."""

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

from .campaign import CAMPAIGNS, load
from .journal import Journal, read_journal
from .pool import run_alone
from .runner import CampaignRun, Plan, Report, Result, Watch, repeat_line, reports_of, summary

#: Read by `tests.fuzz.devices`, which imports OpenCL; the parent process does without it.
_DEVICE_VARIABLE = "PYCLGEMM_FUZZ_DEVICE"
#: Seconds between two lines about the progress, where the output is no terminal.
_PLAIN_SECONDS = 30.0

_SOME = click.FloatRange(min=0)
_COUNT = click.IntRange(min=1)


def _default_jobs() -> int:
    """All cores but some for the drivers' own threads, where there are many."""
    cores = os.cpu_count() or 1
    return cores if cores < 8 else cores - 2


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="""
\b
Examples:
  python -m tests.fuzz --seconds 600 --seed 7
  python -m tests.fuzz --seconds 3600 --journal fuzz.jsonl --resume
  python -m tests.fuzz --campaign problems --device pocl --cases 20000 --seconds 1500
  python -m tests.fuzz --case '{"campaign": "problems", ...}'
""",
)
# fmt: off
@click.option(
    "--seconds",
    type=_SOME,
    default=60.0,
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
@click.option("--cases", type=_COUNT, help="Most cases of each campaign.")
@click.option("--device", metavar="TEXT", help="Only devices whose platform and name have TEXT.")
@click.option(
    "--jobs", type=_COUNT, default=_default_jobs, show_default="cores", help="Worker processes."
)
@click.option(
    "--memory",
    type=_SOME,
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
@click.option("--minimise", type=_SOME, default=60.0, help="Seconds to make each failure smaller.")
@click.option("--list", "wants_list", is_flag=True, help="List the campaigns.")
# fmt: on
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
        for name in CAMPAIGNS:
            click.echo(f"{name}: {(type(load(name)).__doc__ or '').strip().splitlines()[0]}")
        return
    if case_text is not None:
        sys.exit(_repeat(case_text, limit))
    if resume and journal is None:
        raise click.UsageError("--resume needs --journal, the run to go on with")
    names = campaigns or tuple(CAMPAIGNS)
    unknown = [name for name in names if name not in CAMPAIGNS and ":" not in name]
    if unknown:
        known = ", ".join(CAMPAIGNS)
        raise click.BadParameter(f"{unknown[0]!r}; there are {known}", param_hint="--campaign")
    results = {name: Result(name) for name in names}
    if resume and journal is not None:
        earlier_seed, earlier = read_journal(journal)
        if earlier_seed is not None and seed not in (None, earlier_seed):
            raise click.UsageError(f"--seed is {seed}, and {journal} was begun with {earlier_seed}")
        seed = earlier_seed if earlier_seed is not None else seed
        for name in earlier.keys() & results.keys():
            results[name].progress = earlier[name]
    if seed is None:
        seed = int(datetime.date.today().strftime("%Y%m%d"))
    click.echo(f"seed {seed}")
    plan = Plan(seed, seconds, cases, 1 if block is not None else jobs, limit, block)
    sys.exit(_run(plan, list(results.values()), Journal(journal, seed, append=resume), minimise))


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


def _run(plan: Plan, results: list[Result], journal: Journal, minimise: float) -> int:
    """Run the campaigns one after the other; the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    end = time.monotonic() + plan.seconds
    interrupted = False
    reports: list[Report] = []
    try:
        with _watching() as watch:
            for number, result in enumerate(results):
                share = max(0.0, end - time.monotonic()) / (len(results) - number)
                CampaignRun(plan, share, result, journal, watch).run()
        for result in results:
            reports += reports_of(result, plan, minimise, click.echo)
    except KeyboardInterrupt:
        interrupted = True
        click.echo("interrupted")
        reported = {report.campaign for report in reports}
        for result in results:
            if result.name not in reported:
                reports += reports_of(result, plan, 0, click.echo)
    finally:
        journal.close()
    lines = [line for result in results for line in summary(result)]
    for told in (*reports, *lines):
        click.echo(str(told))
    if any(result.progress.failures for result in results):
        return 1
    return 130 if interrupted else 0


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _watching() -> Iterator[Watch]:
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
            task, progress = tasks[result.name], result.progress
            said = f"{result.name}: {progress.total} cases, {len(progress.failures)} failed"
            total = bar.tasks[task].total or 0.0
            bar.update(task, completed=total - left, description=said)

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
