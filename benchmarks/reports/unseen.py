"""Tables of the measurements on shapes that nobody tuned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import PLAN
from benchmarks.session.session import Record
from pyclgemm.selection.select import Choice

#: Name of the library's true float32, with which split precisions are compared.
TRUE_FLOAT32 = "pyclgemm.float32"

#: Number of the worst shapes of a type that are listed.
_LISTED = 5


def unseen_row(records: Sequence[Record], choices: Mapping[str, Choice]) -> dict[str, Any]:
    """Describe a product in one row: the choice, its time in us, other times, and ratios.

    `choices` are the choices of this library's contenders by name. Ratios to times that were not
    measured are NaN.
    """
    by_name = {record.contender: record for record in records}
    own, choice = by_name[PLAN], choices[PLAN]
    case, arithmetic = own.case, own.arithmetic
    size = case.bytes(arithmetic.dtype, arithmetic.result_dtype)
    times = {name: 1e6 * record.timing.median for name, record in by_name.items()}
    vendor = next((name for name in times if name not in choices), "")
    known = {name: times[name] for name in choices if name in times and name != TRUE_FLOAT32}
    best = min(known, key=lambda name: known[name])
    return {
        "arithmetic": str(arithmetic),
        "case": str(case),
        **{name: getattr(case, name) for name in ("m", "n", "k", "layout", "batch")},
        "intensity": case.flops(arithmetic.dtype) / size,
        "path": choice.path,
        "config": str(choice.config),
        "level": choice.level,
        "predicted_us": np.nan if choice.seconds is None else 1e6 * choice.seconds,
        "us": times[PLAN],
        "vendor": vendor,
        "vendor_us": times.get(vendor, np.nan),
        "ratio": times.get(vendor, np.nan) / times[PLAN],
        "timed": len(known),
        "best_us": times[best],
        "best_path": choices[best].path,
        "best_config": str(choices[best].config),
        "lost": times[PLAN] / times[best] if len(known) > 1 else np.nan,
        "over_float32": times.get(TRUE_FLOAT32, np.nan) / times[PLAN],
        "clock": own.timing.clock_name,
        "vendor_clock": by_name[vendor].timing.clock_name if vendor else "",
        "sets": own.sets,
        "error_of_bound": own.error,
    }


def unseen_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Summarise rows of `unseen_row` in one row for each type.

    The columns are the number of shapes; the geometric mean, tenth percentile, minimum and worst
    shape of the ratio to the vendor's library; the geometric mean and maximum of the time of the
    choice over that of the best known one; the geometric mean and minimum of the ratio to float32.
    """
    rows = {}
    for name, part in frame.groupby("arithmetic", sort=False):
        ratio = part["ratio"]
        worst = part.loc[ratio.idxmin()] if ratio.notna().any() else None
        rows[name] = {
            "shapes": len(part),
            "vendor": next(filter(None, part["vendor"]), "-"),
            "compared": int(ratio.count()),
            "mean": _mean(ratio),
            "10 %": ratio.quantile(0.1),
            "worst": ratio.min(),
            "where": "-" if worst is None else f"{worst['case']} {worst['path']}",
            "lost": _mean(part["lost"]),
            "lost most": part["lost"].max(),
            "x float32": _mean(part["over_float32"]),
            "least": part["over_float32"].min(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis=1, how="all")


def _mean(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean()))


def worst_lines(frame: pd.DataFrame) -> Iterator[str]:
    """Yield lines on the worst shapes of each type: choice, times, and the best known choice."""
    for name, part in frame.groupby("arithmetic", sort=False):
        yield f"the worst of {name}"
        # Without another library: the shapes with the worst choice.
        order = part["ratio"] if part["ratio"].notna().any() else 1 / part["lost"]
        for index in order.nsmallest(_LISTED).index:
            row = part.loc[index]
            vendor = f", {row['vendor']} {row['vendor_us']:.3g}" if row["vendor"] else ""
            yield (
                f"  {order[index]:.3f} {row['case']}: {row['us']:.4g} us "
                f"({row['predicted_us']:.3g} predicted){vendor}; {row['path']} {row['config']}"
            )
            if row["lost"] > 1:
                yield (
                    f"        best known, {row['lost']:.2f} times as fast: {row['best_path']} "
                    f"{row['best_config']}"
                )
