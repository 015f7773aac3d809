"""What the suite ``limit`` reached, beside what it must reach."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import CUBLAS, GEMM, PLAN
from benchmarks.products.limit import limit_targets

#: Up to so many rows a product's bandwidth is told.
FEW_ROWS = 32


def add_targets(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Put beside the speeds of the suite what memory gave, and whether targets are met.

    Parameters
    ----------
    table : DataFrame
        Of the suite, from `benchmarks.reports.report.speed_table`.
    frame : DataFrame
        From `benchmarks.reports.report.to_frame`; ``read_gb_s`` is the bandwidth measured,
        in GB/s.

    Returns
    -------
    DataFrame
        `table` with columns ``GB/s`` (bytes of A, B and C once, over the time; only up to
        `FEW_ROWS` rows), ``of memory`` (its part of the bandwidth), ``wanted`` and ``met``.
    """
    own = next((name for name in (PLAN, GEMM) if name in table), None)
    rows = frame[(frame["suite"] == "limit") & (frame["contender"] == own)].set_index("case")
    added = table.copy()
    for case, target in limit_targets().items():
        label = case.label
        if label not in rows.index:
            continue
        row = rows.loc[label]
        ratio, part = table.loc[label].get(f"x {CUBLAS}", np.nan), np.nan
        if case.m <= FEW_ROWS:
            speed = case.bytes(row["dtype"]) / row["seconds"] / 1e9
            part = speed / float(row["read_gb_s"])
            added.loc[label, ["GB/s", "of memory"]] = speed, part
        unknown = np.isnan(ratio) and not target.is_met(ratio, part)
        added.loc[label, "wanted"] = str(target)
        added.loc[label, "met"] = "?" if unknown else "yes" if target.is_met(ratio, part) else "NO"
    return added
