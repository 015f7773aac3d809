"""Compare measurements with the targets of the suites ``limit`` and ``matrix``."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import CUBLAS
from benchmarks.products.arithmetic import Arithmetic
from benchmarks.products.case import Case
from benchmarks.products.shapes import limit_targets
from benchmarks.reports.report import own_column
from benchmarks.session.matrix_suite import SUITE, MatrixTarget, cpu_targets, gpu_targets

#: The bandwidth of products of at most as many rows is shown.
FEW_ROWS = 32


def add_targets(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Add bandwidths and targets to the `speed_table` of the suite ``limit``.

    The columns are ``GB/s`` (bytes of A, B and C over the time, up to `FEW_ROWS` rows), ``of
    memory`` (its ratio to ``read_gb_s`` of the `to_frame`), ``wanted`` and ``met``.
    """
    is_own = frame["contender"] == own_column(table)
    rows = frame[(frame["suite"] == "limit") & is_own].set_index("case")
    added = table.copy()
    for case, target in limit_targets().items():
        label = str(case)
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


def matrix_table(frame: pd.DataFrame, *, on_cpu: bool) -> pd.DataFrame:
    """Compare the suite ``matrix`` of a `to_frame` with the targets of a CPU or a GPU.

    The table has one row for each measured target and arithmetic: product, types, contender and
    reference, their TFLOPS (TOPS of integers), the ratio, the target, and whether it was reached.
    """
    rows = frame[frame["suite"] == SUITE]
    known = {
        (row["case"], row["contender"], row["dtype"], row["precision"], row["result"]): row
        for _, row in rows.iterrows()
    }
    targets = cpu_targets() if on_cpu else gpu_targets()
    return pd.DataFrame([line for target in targets for line in _lines(target, known)])


_Key = tuple[str, str, str, str, str]


def _key(case: Case, contender: str, arithmetic: Arithmetic) -> _Key:
    types = (arithmetic.dtype, arithmetic.precision.name, arithmetic.result_dtype)
    return (str(case), contender, *types)


def _lines(target: MatrixTarget, known: dict[_Key, pd.Series]) -> list[dict[str, str]]:
    """Make a line for each measured arithmetic of a target; it is enough that one reaches it."""
    lines = []
    for arithmetic in target.arithmetics:
        row = known.get(_key(target.case, target.contender, arithmetic))
        if row is None:
            continue
        other = target.reference_arithmetic or arithmetic
        reference = known.get(_key(target.case, target.reference, other))
        speed, rival, verdict = row["gflops"] / 1e3, np.nan, "?"
        if reference is not None:
            rival = reference["gflops"] / 1e3
            exact = not target.as_exact or row["error"] <= reference["error"]
            verdict = "reached" if exact and speed >= target.ratio * rival else "missed"
        line = {
            "product": str(target.case),
            "types": str(arithmetic),
            "contender": target.contender,
            "tera/s": f"{speed:.3g}",
            "reference": target.reference + f" {other.precision.name}" * (other != arithmetic),
            "its tera/s": "-" if reference is None else f"{rival:.3g}",
            "error": f"{row['error']:.1e}",
            "value": f"{speed / rival:.2f}",
            "wanted": f"{target.ratio:.2f}" + ", as exact" * target.as_exact,
            "": verdict,
        }
        lines.append(line)
    if any(line[""] == "reached" for line in lines):
        for line in lines:
            line[""] = line[""].replace("missed", "missed, but not by all")
    return lines
