"""What a benchmark records: facts of a run, and times of contenders."""

import numpy as np

from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.session.session import Record
from pyclgemm.measure.bench import Timing

FLOAT32 = arithmetic_of("float32")

FACTS = {
    "device": "Some Device",
    "platform": "Some Platform",
    "driver": "1.2",
    "date": "2026-01-02T03:04:05+00:00",
}


def records_of(case, times, arithmetic=FLOAT32, error=1e-7):
    """Records of contenders on a case; `times` has the seconds of a sample, or of several."""
    timings = {name: Timing(3, tuple(np.atleast_1d(seconds))) for name, seconds in times.items()}
    return [Record(case, arithmetic, name, timings[name], 1, 0.1, error) for name in timings]
