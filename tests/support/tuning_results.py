"""What a tuner found, and databases that it may be added to."""

from __future__ import annotations

from pathlib import Path

from pyclgemm import CpuConfig, XgemmConfig, XgemmDirectConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, DatabaseFile
from pyclgemm.selection.records import Entry, Match, Source
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult
from tests.support.facts import cpu, recorded

SMALL = CpuConfig(MR=2, NR=32, KC=256, VW=16)
LARGE = CpuConfig(MR=6, NR=64, KC=512, VW=16)
BEST = CpuConfig(MR=12, NR=32, KC=512, VW=16)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
)
INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)


def file(kind, records, threshold=None, match=None, path="shipped"):
    entry = Entry("float32", "F32_F32_F32", tuple(records), threshold)
    match = match or Match("generic", kind)
    return DatabaseFile.make(Path(path), match, Source("default", "a test"), [entry])


SHIPPED = Database(
    ((file("cpu", [recorded("1x64x1024", SMALL, 9.0), recorded("512x512x512", LARGE, 99.0)]),),)
)


def result(best=BEST, shape=(512, 512, 512), traits=None, **changes):
    shape = GemmShape.of(shape)
    standing = Standing(shape, shape.problem("float32"))
    if best is not None:
        standing.note(best, Outcome("fine", 1e-3))
    return TuningResult(traits or cpu(), "float32", "F32_F32_F32", (standing,), **changes)


def laid_out(text, best=BEST):
    return result(best, GemmShape.parse(text))
