"""Databases, devices and sizes for the tests of selection."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.selection.database import Database, DatabaseFile
from pyclgemm.selection.records import Entry, Match, Source, Threshold
from tests.support.facts import cpu, gpu, recorded

SMALL = XgemmDirectConfig(
    WGD=16, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
)
INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)
LARGE = XgemmConfig(
    MWG=128, NWG=128, KWG=32, MDIMC=16, NDIMC=16, MDIMA=32, NDIMB=32, KWI=2, VWM=4, VWN=4
)
ROWS = CpuConfig(MR=1, NR=64, KC=256, VW=16)
SQUARE = CpuConfig(MR=6, NR=64, KC=512, VW=16)
NARROW = CpuConfig(MR=12, NR=32, KC=512, VW=16)


def file(match, records, threshold=None, text="a test", precision="F32_F32_F32"):
    entry = Entry("float32", precision, tuple(records), threshold)
    return DatabaseFile.make(Path(text), match, Source("default", text), [entry])


GENERIC = file(
    Match("generic", "gpu"),
    [
        recorded("64x64x64", INDIRECT),
        recorded("4096x4096x4096", LARGE),
        recorded("512x512x512", DIRECT),
        recorded("16x16x16", SMALL),
    ],
    Threshold(mnk=10**6),
    "generic",
)
CPU_FILE = file(
    Match("generic", "cpu"),
    [
        recorded("1x1024x1024", ROWS),
        recorded("1024x1024x1024", SQUARE),
        recorded("1024x32x1024", NARROW),
    ],
)
DATABASE = Database(((GENERIC, CPU_FILE),))


def measured(records, threshold=None):
    """A file of the device's own, whose paths were timed against each other."""
    entry = Entry("float32", "F32_F32_F32", tuple(records), threshold)
    match = Match("device", "gpu", device=gpu().name)
    return DatabaseFile.make(Path("mine"), match, Source("measured", "tuned here"), [entry])


sizes = st.integers(0, 20_000)
devices = st.sampled_from(
    [gpu(), gpu(vendor="amd", architecture="gfx1012", name="RX 5500 XT"), cpu(),
     cpu(architecture="aarch64"), cpu(architecture=""), gpu(type="accelerator", vendor="altera")]
)  # fmt: skip
