"""What the commands share: the console, progress bars, the queue, options, errors of arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..device.discovery import choose_device
from ..errors import ArgumentError
from ..problem.precision import DTYPES

Parsed = TypeVar("Parsed")
Command = TypeVar("Command", bound=Callable[..., Any])


def open_console(file_width: int = 120, **options: Any) -> Console:
    """A console as wide as the terminal, or of `file_width` columns in a file or a pipe.

    Text is printed as it is: square brackets in names of devices are no markup.
    """
    width = None if sys.stdout.isatty() else file_width
    return Console(width=width, markup=False, **options)


def open_progress(console: Console) -> Progress:
    """Progress bars; each task shows its field ``current``."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[current]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def open_queue(device: str | None) -> tuple[cl.Context, cl.CommandQueue]:
    """A queue on the device that the user named, with its context.

    The caller holds the context: on Intel's runtime a queue does not keep it alive.
    """
    context = cl.Context([choose_device(device).device])
    return context, cl.CommandQueue(context)


def parsed(parse: Callable[[str], Parsed], text: str, option: str | None = None) -> Parsed:
    """Parse an argument; an `ArgumentError` becomes click's error of usage, which names it."""
    try:
        return parse(text)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def file_option(
    name: str, text: str, *, metavar: str = "FILE", exists: bool = False
) -> Callable[[Command], Command]:
    """An option that names a file; `text` is its help."""
    kind = click.Path(exists=exists, dir_okay=False, path_type=Path)
    return click.option(name, type=kind, metavar=metavar, help=text)


device_option = click.option(
    "--device",
    metavar="RANK|NAME",
    help="A rank from `devices`, or a part of the name of a device or platform.",
)
dtype_option = click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True
)
precision_option = click.option(
    "--precision", help="JAX's name of the arithmetic, such as F32_F32_F32."
)
