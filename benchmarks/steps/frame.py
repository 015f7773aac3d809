"""What was measured and compiled of the ladder, as one table: a row for each step and rival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import CLBLAST, CUBLAS, NUMPY
from benchmarks.session.session import Record
from benchmarks.steps.compiled import COLUMNS
from benchmarks.steps.step import Step

#: Names of rows beside the steps.
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
    """Join what was measured and what was compiled of each step.

    Parameters
    ----------
    steps : sequence of Step
        From bottom to top.
    beside : mapping
        Titles of other contenders by name, in the order of rows.
    records : sequence of Record
        What was measured.
    compiled : mapping
        By step, the figures of `benchmarks.amd.rows` for the architecture that was asked for.

    Returns
    -------
    DataFrame
        Indexed by name: title, seconds, gflops, percent (of the vendor's library), speedup (over
        the step before; of the library's choice over the last step), error (as a part of what
        rounding allows), config, and `benchmarks.steps.compiled.COLUMNS`. Unknown values are
        missing.
    """
    titles = {step.name: step.title for step in steps} | dict(beside)
    frame = pd.DataFrame({"title": titles})
    known = {record.contender: record for record in records}
    for name, record in known.items():
        seconds = record.timing.median
        frame.loc[name, "seconds"] = seconds
        frame.loc[name, "gflops"] = record.case.flops(record.arithmetic.dtype) / seconds / 1e9
        frame.loc[name, "seconds_25"] = np.quantile(record.timing.samples, 0.25)
        frame.loc[name, "seconds_75"] = np.quantile(record.timing.samples, 0.75)
        frame.loc[name, "bursts"] = len(record.timing.samples)
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
        for one, column in COLUMNS.items():
            frame.loc[name, column] = figures[one]
    frame.index.name = "step"
    return frame


def vendor_of(frame: pd.DataFrame) -> str | None:
    """The vendor's library among those that were measured, for a CPU what NumPy calls."""
    measured = frame.index[frame["gflops"].notna()]
    return next((name for name in VENDORS if name in measured), None)


def measured_columns(frame: pd.DataFrame) -> bool:
    """Whether anything was timed."""
    return bool(frame["gflops"].notna().any())


def compiled_columns(frame: pd.DataFrame) -> bool:
    """Whether anything was compiled for an architecture."""
    return bool(frame["vgprs"].notna().any())
