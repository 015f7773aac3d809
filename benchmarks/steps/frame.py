"""The measured and compiled figures of the ladder in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import CLBLAST, CUBLAS, NUMPY
from benchmarks.session.session import Record
from benchmarks.steps.compiled import COLUMNS
from benchmarks.steps.step import Step

#: Names of rows that are not steps.
CHOICE = "choice"
UNITS = "units"
OWN_RIVALS = (CHOICE, UNITS)

#: The vendor's library is the first of these that took part.
VENDORS = (CUBLAS, NUMPY, CLBLAST)


def ladder_frame(
    steps: Sequence[Step],
    beside: Mapping[str, str],
    records: Sequence[Record],
    compiled: Mapping[str, Mapping[str, str | int | float]],
) -> pd.DataFrame:
    """Join the measured and the compiled figures with a row for each step, then each rival.

    `beside` has the titles of the rivals by name, and `compiled` the figures of
    `benchmarks.amd.rows` by step. The columns are title, seconds, gflops, percent (of the vendor's
    library), speedup (over the previous step; of the library's choice over the last step), error
    (over its bound), config, and `COLUMNS`. Unknown values are missing.
    """
    titles = {step.name: step.title for step in steps} | dict(beside)
    frame = pd.DataFrame({"title": titles})
    known = {record.contender: record for record in records}
    for name, record in known.items():
        seconds, samples = record.timing.median, record.timing.samples
        frame.loc[name, "seconds"] = seconds
        frame.loc[name, "gflops"] = record.case.flops(record.arithmetic.dtype) / seconds / 1e9
        frame.loc[name, ["seconds_25", "seconds_75"]] = np.quantile(samples, (0.25, 0.75))
        frame.loc[name, "bursts"] = len(samples)
        frame.loc[name, "error"] = record.error
    for column in ("seconds", "gflops", "percent", "speedup", "vgprs"):
        if column not in frame:
            frame[column] = float("nan")
    if (vendor := vendor_of(frame)) is not None:
        frame["percent"] = 100 * frame["gflops"] / frame.loc[vendor, "gflops"]
    climb = [step.name for step in steps] + [CHOICE] * (CHOICE in beside)
    gflops = frame.loc[climb, "gflops"]
    frame.loc[climb, "speedup"] = gflops / gflops.shift()
    for step in steps:
        frame.loc[step.name, "config"] = str(step.config)
    for name, figures in compiled.items():
        for figure, column in COLUMNS.items():
            frame.loc[name, column] = figures[figure]
    frame.index.name = "step"
    return frame


def vendor_of(frame: pd.DataFrame) -> str | None:
    """Name the measured library of the vendor, or NumPy for a CPU."""
    measured = frame.index[frame["gflops"].notna()]
    return next((name for name in VENDORS if name in measured), None)


def has_column(frame: pd.DataFrame, column: str) -> bool:
    """Say whether any row has a value: of "gflops" if it was timed, of "vgprs" if compiled."""
    return bool(frame[column].notna().any())
