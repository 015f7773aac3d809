"""What the command lines of the scripts share: options, device and queue, progress, results."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.session.environment import describe
from pyclgemm.device.discovery import choose_device
from pyclgemm.errors import PyclgemmError
from pyclgemm.host.files import Purpose, write_whole

#: Default folder of the results.
RESULTS = Path(__file__).resolve().parent.parent / "results"

_PURPOSE = Purpose("the results", "name another place for them on the command line")

device_option = click.option(
    "--device", help="Rank or part of the name, as `python -m pyclgemm devices` lists."
)
clblast_option = click.option(
    "--clblast", "clblast_path", metavar="PATH", help="CLBlast's shared library."
)
rounds_option = click.option(
    "--rounds", type=click.IntRange(1), default=7, show_default=True,
    help="Bursts of each contender; fewer, at least 3, if they are long.",
)  # fmt: skip


def output_option(files: str) -> Callable[[Any], Any]:
    """Make the option for the folder of the results; `files` says which files they are."""
    return click.option(
        "--output", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
        help=f"Folder for {files}. [default: benchmarks/results]",
    )  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A device, its queue (in order, without profiling), and facts about device and host."""

    device: cl.Device
    #: Kept because on Intel's runtime a queue does not keep its context alive.
    context: cl.Context
    queue: cl.CommandQueue
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether the device is the host's processor."""
        return bool(self.device.type & cl.device_type.CPU)


def open_machine(name: str | None) -> Machine:
    """Open the device that ``--device`` names, or end the command with the reason."""
    try:
        device = choose_device(name).device
    except PyclgemmError as error:
        raise click.ClickException(str(error)) from None
    assert device is not None
    context = cl.Context([device])
    return Machine(device, context, cl.CommandQueue(context), describe(device))


#: Options that name the files of a run; nobody needs them to repeat it.
_FILES = ("--csv", "--output", "--plot")


def as_typed(script: str) -> str:
    """Return the running command without its files, to be written into the results."""
    words: list[str] = []
    for word, before in zip(sys.argv[1:], sys.argv, strict=False):
        name, _, _ = word.partition("=")
        if name not in _FILES and before not in _FILES:
            words.append(word)
    return shlex.join(["python", f"benchmarks/{script}", *words])


def print_facts(facts: Mapping[str, str], console: Console) -> None:
    """Print each fact on a line, with aligned names."""
    for name, value in facts.items():
        console.print(f"[bold]{name:>13}[/]  {value}", highlight=False, soft_wrap=True)


def progress_bar(console: Console) -> Progress:
    """Make a bar with the finished part and the remaining time."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=console,
    )  # fmt: skip


def warn(console: Console, text: str) -> None:
    """Print a sentence about something that is left out or fails."""
    console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def interruptible(console: Console, facts: dict[str, str] | None = None) -> Iterator[None]:
    """Let Ctrl-C end the measurements in the block; say so, also in the facts of the results."""
    try:
        yield
    except KeyboardInterrupt:
        warn(console, "Interrupted: the results so far follow.")
        if facts is not None:
            facts["interrupted"] = "the user ended the run: bursts are fewer"


def check_measured(measured: object, failures: Sequence[str]) -> None:
    """End the command with its failures if nothing was measured."""
    if not measured:
        raise click.ClickException("\n".join(["nothing was measured", *failures]))


def write(path: Path, text: str) -> None:
    """Write a file of results as a whole, or end with an error that says how to choose another."""
    write_whole(path, text, _PURPOSE)


def finish(console: Console, written: Sequence[Path], failures: Sequence[str] = ()) -> None:
    """Print the files that were written, and end the command with an error if anything failed."""
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    if failures:
        raise click.ClickException("\n".join(failures))
