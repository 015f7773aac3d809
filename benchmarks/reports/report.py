"""The measurements as pandas tables: a long one for the CSV file, and short ones to read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from benchmarks.contenders.contenders import (
    CLBLAST,
    CUBLAS,
    CUBLAS_LAYER,
    CUBLAS_STREAM,
    GEMM,
    LAYER,
    NAMES,
    NUMPY,
    PLAN,
)
from benchmarks.session.session import Record

#: Contenders with which pyclgemm is compared.
REFERENCES = (CLBLAST, NUMPY, CUBLAS, CUBLAS_STREAM)

#: Shapes with ratios below these are counted.
LEVELS = (0.5, 0.95)

_QUANTILES = {
    "least": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "most": 1.0,
}  # fmt: skip


def to_frame(records: Sequence[Record], facts: Mapping[str, str]) -> pd.DataFrame:
    """Make one row for each record, with the facts of `benchmarks.session.environment` in it.

    Times are seconds per call; ``gflops`` follows from their median. ``clock`` is "host", or
    "queue filled" if the time does not include the host's.
    """
    rows = []
    for record in records:
        case, timing, arithmetic = record.case, record.timing, record.arithmetic
        rows.append(
            {
                "suite": case.suite,
                "case": str(case),
                **{name: getattr(case, name) for name in ("m", "n", "k", "layout", "padding")},
                "dtype": arithmetic.dtype,
                "precision": arithmetic.precision.name,
                "result": arithmetic.result_dtype,
                "contender": record.contender,
                "gflops": case.flops(arithmetic.dtype) / timing.median / 1e9,
                "seconds": timing.median,
                "seconds_25": np.quantile(timing.samples, 0.25),
                "seconds_75": np.quantile(timing.samples, 0.75),
                "seconds_min": min(timing.samples),
                "bursts": len(timing.samples),
                "calls_per_burst": timing.calls,
                "clock": timing.clock_name,
                "sets": record.sets,
                "error_of_bound": record.error,
                "error": record.relative_error,
                **facts,
            }
        )
    return pd.DataFrame(rows)


def speed_table(frame: pd.DataFrame, suite: str) -> pd.DataFrame:
    """Tabulate the GFLOPS of each contender on a suite of a `to_frame`, and their ratios.

    The table has one row for each case, in the order of measuring. ``x CLBlast`` is pyclgemm's
    speed over CLBlast's, ``layer / plan`` the time of a DenseLayer with bias and ReLU over that of
    a plan's plain product, and ``layer x cuBLAS.layer`` the DenseLayer's speed over that of cuBLAS
    with the same epilogue.
    """
    rows = frame[frame["suite"] == suite]
    speeds = rows.pivot_table(
        index="case", columns="contender", values="gflops", aggfunc="median", sort=False
    )
    speeds = speeds.reindex(
        index=rows["case"].unique(), columns=[name for name in NAMES if name in speeds]
    )
    table = speeds.copy()
    own = own_column(speeds)
    if own is not None:
        for reference in REFERENCES:
            if reference in speeds:
                table[f"x {reference}"] = speeds[own] / speeds[reference]
    if LAYER in speeds:
        for name, label in ((PLAN, "plan"), (GEMM, "gemm")):
            if name in speeds:
                table[f"layer / {label}"] = speeds[name] / speeds[LAYER]
        if CUBLAS_LAYER in speeds:
            table[f"layer x {CUBLAS_LAYER}"] = speeds[LAYER] / speeds[CUBLAS_LAYER]
    spread = (rows["seconds_75"] - rows["seconds_25"]) / (2 * rows["seconds"])
    table["spread %"] = 100 * spread.groupby(rows["case"]).max()
    table.columns.name = table.index.name = None
    return table


def ratio_ranges(frame: pd.DataFrame, suite: str) -> pd.DataFrame:
    """Tabulate pyclgemm's speed over that of each reference, with the spread of both.

    Columns: case, reference, ratio (of the medians), low and high. `low` has the reference's lower
    and pyclgemm's upper quartile of the times, `high` the reverse.
    """
    rows = frame[frame["suite"] == suite]
    times = rows.pivot_table(
        index="case", columns="contender", values=["seconds", "seconds_25", "seconds_75"],
        aggfunc="median", sort=False,
    )  # fmt: skip
    own = own_column(times["seconds"])
    parts = [
        pd.DataFrame(
            {
                "reference": reference,
                "ratio": times["seconds", reference] / times["seconds", own],
                "low": times["seconds_25", reference] / times["seconds_75", own],
                "high": times["seconds_75", reference] / times["seconds_25", own],
            }
        )
        for reference in REFERENCES
        if own is not None and reference in times["seconds"]
    ]
    if not parts:
        return pd.DataFrame(columns=["case", "reference", "ratio", "low", "high"])
    return pd.concat(parts).dropna().reset_index()


def own_column(table: pd.DataFrame) -> str | None:
    """Name the column of this library's plain product; None if it was not measured."""
    return next((name for name in (PLAN, GEMM) if name in table), None)


def ratio_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Select the columns of a `speed_table` that compare with a reference."""
    return table[[column for column in table.columns if column.startswith("x ")]]


def ratio_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Describe the ratios of a `speed_table` with one row for each reference.

    The columns are quantiles, the number of shapes below each of `LEVELS`, and the number of all
    shapes. A shape without the reference is not counted.

    Examples
    --------
    >>> table = pd.DataFrame({"x cuBLAS": [0.4, 0.9, 1.1, None]})
    >>> summary = ratio_summary(table).loc["x cuBLAS"]
    >>> [float(summary[name]) for name in ("median", "under 0.5", "under 0.95", "shapes")]
    [0.9, 1.0, 2.0, 3.0]
    """
    ratios = ratio_columns(table)
    summary = ratios.quantile(list(_QUANTILES.values())).set_axis(list(_QUANTILES)).T
    for level in LEVELS:
        summary[f"under {level:g}"] = (ratios < level).sum()
    summary["shapes"] = ratios.count()
    return summary


def worst_cases(frame: pd.DataFrame, suite: str, reference: str, count: int = 10) -> pd.DataFrame:
    """List the `count` shapes with the least speed over a reference's, the worst first.

    The columns are the median microseconds of both, and the ratio. There are no rows if one of the
    two was not measured.
    """
    rows = frame[frame["suite"] == suite]
    times = rows.pivot_table(index="case", columns="contender", values="seconds", aggfunc="median")
    own = own_column(times)
    if own is None or reference not in times:
        return pd.DataFrame()
    worst = pd.DataFrame(
        {
            f"{own}, us": 1e6 * times[own],
            f"{reference}, us": 1e6 * times[reference],
            f"x {reference}": times[reference] / times[own],
        }
    )
    worst = worst.dropna().nsmallest(count, f"x {reference}")
    worst.index.name = None
    return worst


def speed_text(value: float) -> str:
    """Write a speed as a whole number, or below 100 with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_table(table: pd.DataFrame) -> str:
    """Render a `speed_table` as text."""
    formatters: dict[Any, Any] = {
        column: speed_text if column in (*NAMES, "GB/s") else "{:.2f}".format
        for column in table.columns
        if is_numeric_dtype(table[column])
    }
    return str(table.to_string(formatters=formatters, na_rep="-"))


def file_stem(facts: Mapping[str, str], dtype: str) -> str:
    """Return the beginning of file names: device, platform, dtype and date.

    Examples
    --------
    >>> facts = {"device": "Xeon(R) X", "platform": "Intel(R)", "date": "2026-01-02T03:04:05+00:00"}
    >>> file_stem(facts, "float32")
    'xeon-x-intel-float32-2026-01-02t030405'
    """
    text = f"{facts['device']} {facts['platform']} {dtype} {facts['date'][:19]}"
    text = re.sub(r"\([RTM]+\)|:", "", text, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
