"""What the scripts' command lines share: options, the device and its queue, facts, progress."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
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

#: Folder of the results where none is named.
RESULTS = Path(__file__).resolve().parent.parent / "results"

device_option = click.option(
    "--device", help="Rank or part of the name, as `python -m pyclgemm devices` lists."
)


def output_option(files: str) -> Callable[[Any], Any]:
    """The option for the folder of the results; `files` says which they are."""
    return click.option(
        "--output", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
        help=f"Folder for {files}. [default: benchmarks/results]",
    )  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A device, its queue (in order, without profiling), and the facts about both."""

    device: cl.Device
    #: Held here, for on Intel's runtime a queue does not keep its context alive.
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


def as_typed(script: str) -> str:
    """The command that runs now, to be written into results."""
    return shlex.join(["python", f"benchmarks/{script}", *sys.argv[1:]])


def print_facts(facts: Mapping[str, str], console: Console) -> None:
    """Print facts, a line each, their names aligned."""
    for name, value in facts.items():
        console.print(f"[bold]{name:>13}[/]  {value}", highlight=False, soft_wrap=True)


def progress_bar(console: Console) -> Progress:
    """A bar with the part that is done, and the time that is left."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=console,
    )  # fmt: skip


def warn(console: Console, text: str) -> None:
    """Print a sentence about what is left out, or goes wrong."""
    console.print(text, style="yellow", markup=False, soft_wrap=True)
