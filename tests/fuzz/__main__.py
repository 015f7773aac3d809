"""The command line of the fuzzer."""

import datetime
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from .campaign import CAMPAIGNS, load
from .runner import (
    CampaignRun,
    Journal,
    Plan,
    Result,
    read_journal,
    repeat_line,
    report,
    reports_of,
    summary,
)
from .worker import run_alone

_SOME = click.FloatRange(min=0)
_COUNT = click.IntRange(min=1)
_FILE = click.Path(dir_okay=False, path_type=Path)


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
@click.option("--journal", type=_FILE, metavar="FILE", help="Write what was run to FILE.")
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
        # For `tests.fuzz.devices`, which imports OpenCL; the parent process does without it.
        os.environ["PYCLGEMM_FUZZ_DEVICE"] = device
    limit = int(memory * 2**30)
    if wants_list:
        for name in CAMPAIGNS:
            click.echo(f"{name}: {(type(load(name)).__doc__ or '').strip().splitlines()[0]}")
        return
    if case_text is not None:
        sys.exit(_repeat(case_text, limit))
    names = campaigns or tuple(CAMPAIGNS)
    unknown = [name for name in names if name not in CAMPAIGNS and ":" not in name]
    if unknown:
        known = ", ".join(CAMPAIGNS)
        raise click.BadParameter(f"{unknown[0]!r}; there are {known}", param_hint="--campaign")
    results = {name: Result(name) for name in names}
    if resume:
        if journal is None:
            raise click.UsageError("--resume needs --journal, the run to go on with")
        earlier = read_journal(journal, results)
        if earlier is not None and seed not in (None, earlier):
            raise click.UsageError(f"--seed is {seed}, and {journal} was begun with {earlier}")
        seed = seed if earlier is None else earlier
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
        click.echo(report(name, outcome, repeat_line(name, case)))
        return 1
    click.echo(f"{name}: {outcome.status}" + (f": {outcome.message}" if outcome.message else ""))
    return 0


def _run(plan: Plan, results: list[Result], journal: Journal, minimise: float) -> int:
    """Run the campaigns one after the other; the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    end = time.monotonic() + plan.seconds
    interrupted = False
    reports: dict[str, list[str]] = {}
    try:
        for number, result in enumerate(results):
            share = max(0.0, end - time.monotonic()) / (len(results) - number)
            CampaignRun(plan, share, result, journal, click.echo).run()
        for result in results:
            reports[result.name] = reports_of(result, plan, minimise, click.echo)
    except KeyboardInterrupt:
        interrupted = True
        click.echo("interrupted")
    finally:
        journal.close()
    for result in results:
        for told in reports.get(result.name) or reports_of(result, plan, 0, click.echo):
            click.echo(told)
    for result in results:
        for told in summary(result):
            click.echo(told)
    if any(result.failures for result in results):
        return 1
    return 130 if interrupted else 0


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
