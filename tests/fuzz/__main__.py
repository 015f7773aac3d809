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

_CORES = os.cpu_count() or 1
#: Two of many cores are left to the drivers' own threads.
_JOBS = _CORES if _CORES < 8 else _CORES - 2

_NOT_NEGATIVE = click.FloatRange(min=0)
_COUNT = click.IntRange(min=1)
_FILE = click.Path(dir_okay=False, path_type=Path)
# fmt: off
_OPTIONS: list[click.Parameter] = [
    click.Option(["--seconds"], type=_NOT_NEGATIVE, default=60.0,
                 help="Time for all campaigns together, without the time that --minimise takes."),
    click.Option(["--seed"], type=int, help="Seed of all cases; the day as YYYYMMDD by default."),
    click.Option(["--campaign", "names"], multiple=True, metavar="NAME",
                 help="Run this campaign; may be given more than once. All by default."),
    click.Option(["--cases"], type=_COUNT, help="Largest number of cases of each campaign."),
    click.Option(["--device"], metavar="TEXT",
                 help="Use only devices whose platform and name contain TEXT."),
    click.Option(["--jobs"], type=_COUNT, default=_JOBS, show_default="cores",
                 help="Worker processes."),
    click.Option(["--memory"], type=_NOT_NEGATIVE, default=0.0, metavar="GIB",
                 help="Limit of the address space of a worker; 0 for none."),
    click.Option(["--journal"], type=_FILE, metavar="FILE", help="Write what was run to FILE."),
    click.Option(["--resume"], is_flag=True, help="Continue the run of --journal."),
    click.Option(["--block"], type=click.IntRange(min=0), metavar="N",
                 help="Run block N of the cases of each campaign, and nothing else."),
    click.Option(["--case"], metavar="JSON", help="Run one case, and nothing else."),
    click.Option(["--minimise"], type=_NOT_NEGATIVE, default=60.0,
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

    Failures are made smaller and printed with a command that repeats them; the exit status is
    then 1.
    """
    asked = SimpleNamespace(**options)
    if asked.device:
        # `tests.fuzz.devices` reads it in the workers.
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
    """Run one case in a process of its own and return the exit status."""
    try:
        case = json.loads(text)
        name = case.pop("campaign")
    except (json.JSONDecodeError, KeyError, AttributeError) as error:
        message = f'{text[:80]!r} is no JSON object with a "campaign": {error!r}'
        raise click.BadParameter(message, param_hint="--case") from None
    outcome = run_alone(name, case, memory)
    if outcome.failed:
        click.echo(runner.report(name, outcome, runner.of_case(name, case)))
    else:
        click.echo(": ".join(filter(None, (name, outcome.status, outcome.message))))
    return int(outcome.failed)


def _planned(asked):
    """The campaigns to run. A journal that is resumed decides the seed."""
    names = asked.names or tuple(CAMPAIGNS)
    unknown = [name for name in names if name not in CAMPAIGNS and ":" not in name]
    if unknown:
        known = ", ".join(CAMPAIGNS)
        raise click.BadParameter(f"{unknown[0]!r}; there are {known}", param_hint="--campaign")
    if asked.resume and asked.journal is None:
        raise click.UsageError("--resume needs --journal, the run to continue")
    journal = runner.Journal(asked.journal, resume=asked.resume)
    seed = next((one["seed"] for one in journal.entries if "seed" in one), asked.seed)
    if asked.seed not in (None, seed):
        raise click.UsageError(f"--seed is {asked.seed}; {asked.journal} was begun with {seed}")
    asked.seed = int(f"{datetime.date.today():%Y%m%d}") if seed is None else seed
    journal.write({"seed": asked.seed})
    if asked.block is not None:
        asked.jobs = 1
    return [runner.CampaignRun(name, asked, journal) for name in dict.fromkeys(names)]


def _run(asked):
    """Run the campaigns one after the other and return the exit status."""
    runs = _planned(asked)
    click.echo(f"seed {asked.seed}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end = time.monotonic() + asked.seconds
    status = 0
    try:
        for number, run in enumerate(runs):
            run.run(max(0.0, end - time.monotonic()) / (len(runs) - number))
        for run in runs:
            run.report(asked.minimise)
    except KeyboardInterrupt:
        status = 130
        click.echo("interrupted")
    for run in runs:
        run.report(0)  # what is not reported yet
    reports = [text for run in runs for text in run.reports.values()]
    click.echo("\n".join([*reports, *(line for run in runs for line in run.summary())]))
    return 1 if reports else status


if __name__ == "__main__":
    main()
