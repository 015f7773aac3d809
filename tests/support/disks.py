"""Small disks in memory, to fill them up or to make them read-only."""

import subprocess
from contextlib import contextmanager

import pytest


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
