"""Databases, devices and sizes for the tests of selection."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.selection.database import Database, DatabaseFile
from pyclgemm.selection.records import Entry, Match, Record, Source, Threshold
from tests.support.facts import cpu, gpu

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
        Record((64, 64, 64), INDIRECT),
        Record((4096, 4096, 4096), LARGE),
        Record((512, 512, 512), DIRECT),
        Record((16, 16, 16), SMALL),
    ],
    Threshold(mnk=10**6),
    "generic",
)
CPU_FILE = file(
    Match("generic", "cpu"),
    [
        Record((1, 1024, 1024), ROWS),
        Record((1024, 1024, 1024), SQUARE),
        Record((1024, 32, 1024), NARROW),
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
