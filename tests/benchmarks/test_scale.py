"""The estimate on paper of benchmarks/scale.py, and the page that shows it."""

import re

import pytest

from benchmarks import scale
from benchmarks.documents.figures import ROOT
from tests.support.system import output_of

PAGE = (ROOT / "docs" / "how-to" / "dask.md").read_text("utf-8")


def predicted(*options):
    """What `predict` prints: its first line, and its numbers by name."""
    first, *lines = output_of(*options, command=scale.main).splitlines()
    pairs = (line.rsplit(None, 1) for line in lines)
    return first, {name.strip(): float(number) for name, number in pairs}


def test_the_page_has_what_its_commands_print():
    command = re.search(r"`python benchmarks/scale.py (predict [^`]+)`", PAGE)[1].split()
    rows = re.findall(r"\| [^|]*?(?:\(`(--[^`]+)`\))?" + 4 * r" \| (\d+)" + r" \|\n", PAGE)
    assert [options for options, *_ in rows] == ["", "--receive 4", "--receive 4 --copy 8"]
    for options, *shown in rows:
        _, found = predicted(*command, *options.split())
        names = ("link_seconds", "copy_seconds", "product_seconds", "seconds")
        assert list(map(int, shown)) == [round(found[name]) for name in names]
    first, found = predicted(*command)
    grid, idle, devices, tiles, most = re.findall(r"\d+ x \d+|\d+", first)
    pr, pc = map(int, grid.split(" x "))
    blocks, tiles_of_one = 4e12 * (1 / pr + 1 / pc), 4e12 / (pr * pc)
    for part in (
        f"The grid is {grid}", f"{int(tiles):,} tiles", f"{idle} of the {devices} devices",
        f"has {most} tiles", f"receives {(blocks - 2 * tiles_of_one) / 1e9:.0f} GB",
        f"keeps {(blocks + tiles_of_one) / 1e9:.0f} GB", f"receives {found['received, GB']:.0f} GB",
        f"keeps {found['held, GB']:.0f} GB",
    ):  # fmt: skip
        assert part in " ".join(PAGE.split()), part


def test_a_process_receives_at_the_slower_of_two_rates():
    command = ("predict", "--size", 8192, "--chunk", 1024, "--machines", 2, "--devices", 2)
    seconds = [
        predicted(*command, "--link", link, "--receive", receive)[1]["link_seconds"]
        for link, receive in ((0.2, 9), (9, 0.1), (0.4, 0.1))
    ]
    assert seconds == [pytest.approx(4 * 8192**2 / 2 / 1e8, abs=0.05)] * 3


def test_devices_without_tiles_are_told():
    first, _ = predicted("predict", "--size", 40, "--chunk", 10, "--machines", 3, "--devices", 3)
    assert first == "grid 2 x 4, 1 of 9 devices idle; 16 tiles, at most 2 x 1 of a process"


@pytest.mark.parametrize("rate", ["link", "receive", "copy", "product", "memory"])
def test_rates_are_positive(rate):
    assert f"--{rate}" in output_of("predict", f"--{rate}", 0, code=2, command=scale.main)
