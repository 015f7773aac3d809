"""The command line: ``python -m pyclgemm``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import click
import pyopencl as cl
from rich.console import Console
from rich.text import Text

from ..analysis.tables import FittedTable, new_table
from ..device.discovery import FoundDevice, choose_device, find_devices, working_devices
from ..device.threads import place_threads
from ..device.traits import DeviceTraits
from ..errors import PyclgemmError, printable
from ..host.process import ended_as_by_hand
from ..resources import library_version
from .options import device_option, examples, open_console

if TYPE_CHECKING:
    from ..selection.basis import Basis


def device_table(devices: Sequence[FoundDevice]) -> FittedTable:
    """Tabulate devices in the order of `find_devices`."""
    table = new_table(
        "OpenCL devices, best first",
        ">rank", "device, platform and driver*", "architecture", ">units", "beside float32",
        "kernels", groups=[(0,), (1,), (2, 3), (4, 5)], show_lines=True,
    )  # fmt: skip
    for rank, one in enumerate(devices):
        traits = one.traits
        if traits is None:
            lines = _lines(one.name, one.platform, f"skipped: {one.reason}")
            table.add_row("-", lines, style="dim")
            continue
        supported = {"float16": traits.float16, "float64": traits.float64}
        table.add_row(
            str(rank),
            _lines(traits.name, f"{traits.platform} {traits.driver}", one.reason),
            _lines(traits.type, traits.architecture or "unknown"),
            str(traits.compute_units),
            _lines(*(name if has else f"no {name}" for name, has in supported.items())),
            _basis(traits).short,
        )
    return table


def _basis(traits: DeviceTraits) -> Basis:
    """What the choices on a device rest on."""
    # Imported late: most commands do not need databases and the model.
    from ..selection.database import load_database
    from ..selection.model import basis_for

    return basis_for(load_database(), traits)


def _lines(*lines: str) -> Text:
    """The lines that are not empty, as one cell."""
    return Text("\n".join(filter(None, lines)))


#: The modules of commands that are imported on demand: importing the tuner and the analysis takes
#: longer than the rest of the command line.
_MODULES = {
    **dict.fromkeys(("ab", "explain", "precision", "profile", "source"), "analysis"),
    **dict.fromkeys(("calibrate", "tune"), "tune"),
    "doctor": "doctor",
}


class _Group(click.Group):
    """A group whose commands show the library's errors in one line, and end at SIGTERM."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return super().get_command(ctx, name)
        module = importlib.import_module(f".{_MODULES[name]}", __package__)
        return cast(click.Command, getattr(module, name))

    def main(self, *args: Any, **options: Any) -> Any:
        with ended_as_by_hand():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PyclgemmError as error:
            raise click.ClickException(printable(str(error), lines=True)) from error


@click.group(
    cls=_Group,
    epilog=examples("devices", "demo", "explain 1024x1024x1024"),
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(library_version())
def main() -> None:
    """Matrix products on OpenCL devices."""


def _show_devices() -> Console:
    console = open_console()
    with console.status("building a kernel on every device"):
        devices = find_devices()
    console.print(device_table(devices))
    for one in devices:
        if one.device and one.traits and one.traits.type == "cpu":
            placement = place_threads(cl.Context([one.device]), one.device)
            console.print(f"Threads of {one.platform}: {placement}.")
    for rank, one in enumerate(devices):
        if one.traits and (advice := _basis(one.traits).advice(device=f" --device {rank}")):
            console.print(f"{rank}, {one.name}: {advice}.", highlight=False)
    return console


@main.command(epilog=examples("devices"))
def devices() -> None:
    """List every OpenCL device, what it can do, or why it is skipped.

    A device is used only if it builds and runs a kernel here. The option `--device` of other
    subcommands takes the rank; rank 0 is the default. Kernels are chosen by measurements on the
    device or a relative, by a calibration, or by estimates; what may help is said below the table.
    """
    _show_devices()
    if not working_devices():
        choose_device("0")  # raises an error that says how to install a runtime


@main.command(epilog=examples("demo", "demo --device pocl"))
@device_option
def demo(device: str | None) -> None:
    """Run a digit classifier and a table of speeds.

    Results of the classifier are compared with those of scikit-learn, which trained it; speeds
    are compared with NumPy's. The demo takes less than two minutes. The exit code is 1 if results
    are wrong.
    """
    from .demo import run_demo

    console = _show_devices()
    chosen = choose_device(device)
    console.print(f"Used here: {chosen.name} ({chosen.platform}); --device takes another.\n")
    if not run_demo(console, chosen):
        raise click.ClickException("results were wrong: see above")
