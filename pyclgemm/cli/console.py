"""What the commands share: the console, progress bars, the queue, and errors of arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..device.discovery import choose_device
from ..errors import ArgumentError

#: Columns of tables that go to a file or a pipe, where no terminal is too narrow.
FILE_WIDTH = 120

Parsed = TypeVar("Parsed")


def open_console(file_width: int = FILE_WIDTH, **options: Any) -> Console:
    """A console as wide as the terminal, or `file_width` columns in a file or a pipe.

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
