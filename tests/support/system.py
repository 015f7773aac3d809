"""Processes that tests start, disks that they fill, and what the command line prints."""

import io
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from pyclgemm.device.discovery import working_devices

#: The folder of the source tree.
ROOT = Path(__file__).resolve().parents[2]


def tree_first(environment=os.environ):
    """An environment whose Python imports this tree, and then what this process can."""
    path = (str(ROOT), environment.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def is_running(pid):
    """Whether a process still runs; one that has ended may be left for init to collect."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Disk:
    """A folder on which file systems in memory are mounted."""

    def __init__(self, folder):
        self.folder = folder
        self.is_mounted = False

    def __call__(self, options):
        """Mount with options such as "size=64k" or "remount,ro"; skip the test if that fails."""
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(self.folder)]
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("the system has no mount command, or does not permit mounting")
        self.is_mounted = True
        return self.folder


@contextmanager
def mounted_disk(folder):
    """A new folder for disks, which are unmounted at the end."""
    folder.mkdir()
    disk = Disk(folder)
    try:
        yield disk
    finally:
        while disk.is_mounted:
            done = subprocess.run(["umount", str(folder)], capture_output=True)
            disk.is_mounted = done.returncode == 0


def text_of(table, width=160):
    """What is printed of a table."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def rank_of(device):
    """The number by which ``--device`` names a device."""
    return str([one.device for one in working_devices()].index(device))
