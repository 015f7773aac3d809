"""Configurations, databases and a tuner's results for tests that need no device."""

import json
from dataclasses import replace
from pathlib import Path

from pyclgemm import CpuConfig, WgmmaConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.tiled.config import XgemmConfig
from pyclgemm.problem.precision import DTYPES, resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, DatabaseFile, update_file
from pyclgemm.selection.model import known_of
from pyclgemm.selection.records import Entry, Match, Source
from pyclgemm.selection.saving import extended_file
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult
from tests.support import typical_configs
from tests.support.configs import FLOAT32_PRECISIONS
from tests.support.facts import cpu, gpu

INDIRECT, SQUARE = typical_configs.INDIRECT, typical_configs.CPU
DIRECT = replace(typical_configs.DIRECT, VWMD=1, VWND=1, PADA=1, PADB=1)
SMALL = replace(DIRECT, WGD=16)
LARGE = XgemmConfig(
    MWG=128, NWG=128, KWG=32, MDIMC=16, NDIMC=16, MDIMA=32, NDIMB=32, KWI=2, VWM=4, VWN=4
)
ROWS = CpuConfig(MR=1, NR=64, KC=256, VW=16)
NARROW = CpuConfig(MR=12, NR=32, KC=512, VW=16)
#: The fastest path of an H100, and what is taken where a driver refuses it.
WGMMA = WgmmaConfig(128, 256, STAGES=3)
MATRIX = MatrixConfig(128, 256, 32, 2, 4, STAGES=4)

FLOAT32, FLOAT16 = ("float32", "F32_F32_F32"), ("float16", "F16_F16_F32")
NVIDIA = Match("vendor", "gpu", "nvidia")
SM_90 = Match("architecture", "gpu", "nvidia", "sm_90")


def made_file(records, match="gpu", threshold=None, *, name="db", kind="default", types=FLOAT32):
    """A file with one entry; `match` may be a type of devices."""
    entry = Entry(*types, tuple(records), threshold)
    return file_of([entry], match, name=name, kind=kind)


def file_of(entries, match, *, name="db", kind="default", ceilings=None):
    match = Match("generic", match) if isinstance(match, str) else match
    return DatabaseFile.make(Path(name), match, Source(kind, "a test"), entries, ceilings)


TILE = CpuConfig(MR=4, NR=8, KC=256, VW=4)
RECORD = {"path": "cpu", "shape": [1024, 1024, 1024], "config": TILE.as_dict(), "gflops": 12.5}


def document(*records, **changes):
    """A valid file for CPUs, as JSON reads it, with changes to the file or to its records."""
    records = [RECORD | record for record in records or [{}]]
    return {
        "schema": 1,
        "match": {"level": "generic", "type": "cpu"},
        "source": {"kind": "measured", "text": "measured on a test"},
        "entries": [{"dtype": "float32", "precision": "F32_F32_F32", "records": records}],
    } | changes


def written(path, content):
    path.write_text(json.dumps(content))
    return path


def a_database(*files):
    return Database((files,))


#: Every type in its own arithmetic, and float32 in each of its other ones.
TYPES = [(dtype, resolve_precision(None, dtype).name) for dtype in DTYPES]
TYPES += [("float32", precision) for precision in FLOAT32_PRECISIONS]
_EMPTY = [Entry(*types, ()) for types in TYPES]
#: A database without records: all candidates come from menus.
BLANK = a_database(file_of(_EMPTY, "gpu"), file_of(_EMPTY, "cpu"))


def predict(configs, problem, traits, database):
    return known_of(problem, traits, database).predict(configs, problem)


def save_records(path, traits, name, records, **options):
    update_file(path, lambda: extended_file(path, traits, name, records, **options))


def measured(records, threshold=None, traits=None):
    """A file of the device's own, whose paths were timed against each other."""
    traits = traits or gpu()
    match = Match("device", traits.type, device=traits.name)
    return made_file(records, match, threshold, kind="measured")


def result(best=NARROW, shape="512x512x512", traits=None, types=FLOAT32):
    """The tuner's result for one product, which took a millisecond."""
    shape = GemmShape.parse(shape) if isinstance(shape, str) else shape
    standing = Standing(shape, shape.problem(*types))
    if best is not None:
        standing.note(best, Outcome("fine", 1e-3))
    return TuningResult(traits or cpu(), *types, (standing,))
