"""What the command line prints, as text, and devices as it names them."""

import io

from rich.console import Console

from pyclgemm.device.discovery import working_devices


def text_of(table, width=160):
    """What is printed of a table."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def rank_of(device):
    """The number by which ``--device`` names a device."""
    return str([one.device for one in working_devices()].index(device))
