"""The subcommand ``profile``: what limits a product on a device, as a table and a plot."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from .cli_product import product_options
from .figure_file import PLOT
from .inquiry import Inquiry
from .user_files import check_writable

#: Columns for a table that goes to a file or a pipe.
_FILE_WIDTH = 120

_EXAMPLES = """\b
Examples:
  python -m pyclgemm profile 1024x1024x1024
  python -m pyclgemm profile 64x3072x768 --bias --activation relu --plot roofline.png
  python -m pyclgemm profile 4096x4096x4096 --path indirect --config KWG=32
"""


@click.command(epilog=_EXAMPLES)
@product_options
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the roofline to this file; its suffix, such as .png, is the format.",
)
@click.option("--remeasure", is_flag=True, help="Measure the device's ceilings again.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Bursts of about 10 ms that are timed; their median counts.",
)
def profile(
    inquiry: Inquiry,
    path: str | None,
    parameters: dict[str, int],
    device: str | None,
    plot: Path | None,
    remeasure: bool,
    rounds: int,
) -> None:
    """Measure a product and say what limits it.

    It is the product of an (M, K) and a (K, N) matrix. The ceilings of the device
    (arithmetic, memory, launches) are measured once and kept in the user's folder. Nothing
    else should run on the device meanwhile.
    """
    import pyopencl as cl

    from .ceilings_cache import ceilings_of
    from .discovery import choose_device
    from .profile import profile as profile_product
    from .profile_table import profile_table

    if plot is not None:
        check_writable(plot, PLOT)
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False)
    with console.status("looking for devices") as status:

        def report(what: str) -> None:
            status.update(f"measuring: {what}")

        context = cl.Context([choose_device(device).device])
        queue = cl.CommandQueue(context)
        ceilings = ceilings_of(queue, remeasure=remeasure, report=report)
        result = profile_product(
            queue, inquiry, path=path, parameters=parameters, ceilings=ceilings, rounds=rounds,
            report=report,
        )  # fmt: skip
    console.print(profile_table(result))
    if plot is not None:
        from .profile_plot import plot_roofline

        plot_roofline(result, plot)
        console.print(f"roofline: {plot}")
