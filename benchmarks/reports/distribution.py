"""How the ratios to other libraries are distributed over the shapes of a suite."""

from __future__ import annotations

import pandas as pd

from benchmarks.contenders.contenders import GEMM, PLAN

#: Ratios under which shapes are counted.
LEVELS = (0.5, 0.95)

_QUANTILES = {
    "least": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "most": 1.0,
}  # fmt: skip


def ratio_columns(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a `speed_table` that compare with a reference."""
    return table[[column for column in table.columns if column.startswith("x ")]]


def ratio_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Describe the ratios of a `speed_table`: one row a reference.

    The columns are quantiles, the number of shapes below each of `LEVELS`, and that of all; a
    shape without the reference counts in none.

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
    """The `count` shapes on which pyclgemm does worst against a reference, the worst first.

    The columns are the median microseconds of both, and how many times as fast pyclgemm is. Where
    one of the two was not measured there are no rows.
    """
    rows = frame[frame["suite"] == suite]
    times = rows.pivot_table(index="case", columns="contender", values="seconds", aggfunc="median")
    own = next((name for name in (PLAN, GEMM) if name in times), None)
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
