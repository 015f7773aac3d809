"""The command line of the fuzzer."""

import datetime
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import click

from . import runner
from .campaign import CAMPAIGNS, load
from .worker import run_alone

#: All cores but some for the drivers' own threads, where there are many.
_CORES = os.cpu_count() or 1
_JOBS = _CORES if _CORES < 8 else _CORES - 2

_SOME = click.FloatRange(min=0)
_COUNT = click.IntRange(min=1)
_FILE = click.Path(dir_okay=False, path_type=Path)
# fmt: off
_OPTIONS: list[click.Parameter] = [
    click.Option(["--seconds"], type=_SOME, default=60.0,
                 help="Time for all campaigns together; failures are made smaller after it."),
    click.Option(["--seed"], type=int, help="Seed of all cases; the day as YYYYMMDD by default."),
    click.Option(["--campaign", "names"], multiple=True, metavar="NAME",
                 help="Run this campaign; may be given more than once. All by default."),
    click.Option(["--cases"], type=_COUNT, help="Most cases of each campaign."),
    click.Option(["--device"], metavar="TEXT",
                 help="Only devices whose platform and name have TEXT."),
    click.Option(["--jobs"], type=_COUNT, default=_JOBS, show_default="cores",
                 help="Worker processes."),
    click.Option(["--memory"], type=_SOME, default=0.0, metavar="GIB",
                 help="Limit of the address space of a worker; 0 for none."),
    click.Option(["--journal"], type=_FILE, metavar="FILE", help="Write what was run to FILE."),
    click.Option(["--resume"], is_flag=True, help="Go on where the run of --journal ended."),
    click.Option(["--block"], type=click.IntRange(min=0), metavar="N",
                 help="Run block N of the cases of each campaign, and nothing else."),
    click.Option(["--case"], metavar="JSON", help="Run one case, and nothing else."),
    click.Option(["--minimise"], type=_SOME, default=60.0,
                 help="Seconds to make each failure smaller."),
    click.Option(["--list", "wants_list"], is_flag=True, help="List the campaigns."),
]
# fmt: on
_EXAMPLES = """
\b
Examples:
  python -m tests.fuzz --seconds 600 --seed 7
  python -m tests.fuzz --seconds 3600 --journal fuzz.jsonl --resume
  python -m tests.fuzz --campaign problems --device pocl --cases 20000 --seconds 1500
  python -m tests.fuzz --case '{"campaign": "problems", ...}'
"""
_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.command(params=_OPTIONS, context_settings=_SETTINGS, epilog=_EXAMPLES)
def main(**options):
    """Test the library with hostile cases drawn from a seed.

    Failures are made smaller and printed as a line that repeats them; the exit status is then 1.
    """
    asked = SimpleNamespace(**options)
    if asked.device:
        # For `tests.fuzz.devices`, which imports OpenCL; the parent process does without it.
        os.environ["PYCLGEMM_FUZZ_DEVICE"] = asked.device
    asked.memory = int(asked.memory * 2**30)
    if asked.wants_list:
        for name in CAMPAIGNS:
            click.echo(f"{name}: {(type(load(name)).__doc__ or '').strip().splitlines()[0]}")
    elif asked.case is not None:
        sys.exit(_repeat(asked.case, asked.memory))
    else:
        sys.exit(_run(asked))


def _repeat(text, memory):
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
        click.echo(runner.report(name, outcome, runner.of_case(name, case)))
    else:
        tail = f": {outcome.message}" if outcome.message else ""
        click.echo(f"{name}: {outcome.status}{tail}")
    return int(outcome.failed)


def _planned(asked):
    """The campaigns to run; the plan is completed by what the journal has."""
    names = asked.names or tuple(CAMPAIGNS)
    unknown = [name for name in names if name not in CAMPAIGNS and ":" not in name]
    if unknown:
        known = ", ".join(CAMPAIGNS)
        raise click.BadParameter(f"{unknown[0]!r}; there are {known}", param_hint="--campaign")
    if asked.resume and asked.journal is None:
        raise click.UsageError("--resume needs --journal, the run to go on with")
    journal = runner.Journal(asked.journal, resume=asked.resume)
    seed = next((one["seed"] for one in journal.entries if "seed" in one), asked.seed)
    if asked.seed not in (None, seed):
        raise click.UsageError(f"--seed is {asked.seed}; {asked.journal} was begun with {seed}")
    asked.seed = int(datetime.date.today().strftime("%Y%m%d")) if seed is None else seed
    journal.write({"seed": asked.seed})
    if asked.block is not None:
        asked.jobs = 1
    return [runner.CampaignRun(name, asked, journal) for name in dict.fromkeys(names)]


def _run(asked):
    """Run the campaigns one after the other; the exit status."""
    runs = _planned(asked)
    click.echo(f"seed {asked.seed}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end = time.monotonic() + asked.seconds
    interrupted = False
    try:
        for number, run in enumerate(runs):
            run.run(max(0.0, end - time.monotonic()) / (len(runs) - number))
        for run in runs:
            run.report(asked.minimise)
    except KeyboardInterrupt:
        interrupted = True
        click.echo("interrupted")
    for run in runs:
        run.report(0)  # what is not reported yet
    reports = [text for run in runs for text in run.reports.values()]
    click.echo("\n".join([*reports, *(line for run in runs for line in run.summary())]))
    if reports:
        return 1
    return 130 if interrupted else 0


if __name__ == "__main__":
    main()
