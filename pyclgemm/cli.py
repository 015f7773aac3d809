"""The command line: ``python -m pyclgemm``."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

import click
from rich.console import Console

from .cli_ab import ab
from .cli_precision import precision
from .cli_product import device_option, explain, source
from .cli_profile import profile
from .cli_tune import tune
from .discovery import choose_device, find_devices, working_devices
from .errors import PyclgemmError
from .interruption import ended_as_by_hand
from .printable import printable
from .tables import device_table

#: Columns for tables that go to a file or a pipe, where nobody's terminal is too narrow.
_FILE_WIDTH = 120


class _Group(click.Group):
    """A group whose commands end with one clear line, not a traceback, on the library's errors.

    SIGTERM ends them as Ctrl-C does.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        with ended_as_by_hand():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PyclgemmError as error:
            raise click.ClickException(printable(str(error), lines=True)) from error


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False)


def _version() -> str:
    try:
        return importlib.metadata.version("pyclgemm")
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree that is not installed"


_EXAMPLES = """\b
Examples:
  python -m pyclgemm devices
  python -m pyclgemm demo
  python -m pyclgemm explain 1024x1024x1024
"""


@click.group(cls=_Group, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version())
def main() -> None:
    """Matrix products on OpenCL devices."""


@main.command(epilog="\b\nExample:\n  python -m pyclgemm devices")
def devices() -> None:
    """List every OpenCL device, what it can do, or why it is skipped.

    A device is used only if it builds and runs a kernel here. The rank is what `--device`
    of other subcommands takes; rank 0 is used where no device is named.
    """
    console = _console()
    with console.status("building a kernel on every device"):
        found = find_devices()
    console.print(device_table(found))
    if not working_devices():
        choose_device(None)  # raises what says how to install a runtime


_DEMO_EXAMPLES = """\b
Examples:
  python -m pyclgemm demo
  python -m pyclgemm demo --device pocl
"""


@main.command(epilog=_DEMO_EXAMPLES)
@device_option
def demo(device: str | None) -> None:
    """Run a digit classifier and a table of speeds.

    The classifier was trained by scikit-learn, whose results are compared; the speeds are
    compared with NumPy's. It takes less than two minutes. The exit code is 1 if results
    are wrong.
    """
    from .demo import run_demo  # only here: the other subcommands need none of it

    console = _console()
    with console.status("building a kernel on every device"):
        found = find_devices()
    console.print(device_table(found))
    chosen = choose_device(device)
    console.print(f"Used here: {chosen.name} ({chosen.platform}); --device takes another.\n")
    if not run_demo(console, chosen):
        raise click.ClickException("results were wrong: see above")


main.add_command(source)
main.add_command(explain)
main.add_command(profile)
main.add_command(precision)
main.add_command(ab)
main.add_command(tune)
