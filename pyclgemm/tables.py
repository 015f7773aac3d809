"""What the command line shows about devices."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from .discovery import FoundDevice


def device_table(found: Sequence[FoundDevice]) -> Table:
    """Tabulate devices in the order of `found`; those that work are ranked from 0.

    Several facts share a cell, each on its line, so that 80 columns suffice.

    Parameters
    ----------
    found : sequence of FoundDevice
        As `pyclgemm.discovery.find_devices` gives them: the working ones first.
    """
    table = Table(title="OpenCL devices, best first", title_justify="left", show_lines=True)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("device, platform and driver", overflow="fold", ratio=1)
    table.add_column("architecture", no_wrap=True)
    table.add_column("units", justify="right", no_wrap=True)
    table.add_column("beside float32", no_wrap=True)
    for rank, one in enumerate(found):
        traits = one.traits
        if traits is None:
            names = filter(None, (one.name, one.platform))
            table.add_row("-", _lines(*names, f"skipped: {one.reason}"), style="dim")
            continue
        supported = {"float16": traits.float16, "float64": traits.float64}
        table.add_row(
            str(rank),
            _lines(traits.name, f"{traits.platform} {traits.driver}", one.reason),
            _lines(traits.type, traits.architecture or "unknown"),
            str(traits.compute_units),
            _lines(*(name if has else f"no {name}" for name, has in supported.items())),
        )
    return table


def _lines(*lines: str) -> Text:
    return Text("\n".join(filter(None, lines)))
