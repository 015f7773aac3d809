"""The targets of the suites ``limit`` and ``matrix``, and what was reached of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from benchmarks.contenders.contenders import CUBLAS, GEMM, PLAN
from benchmarks.products.arithmetic import Arithmetic
from benchmarks.products.case import Case
from benchmarks.products.shapes import limit_targets
from benchmarks.session.matrix_suite import SUITE, MatrixTarget, cpu_targets, gpu_targets

#: Rows up to which the bandwidth of a product is shown.
FEW_ROWS = 32


def add_targets(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Add to the speeds of the suite ``limit`` the bandwidth, and whether targets are met.

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
    """The targets of the suite, and the figures that were reached.

    Parameters
    ----------
    frame : DataFrame
        From `benchmarks.reports.report.to_frame`.
    on_cpu : bool
        Whether it is of a CPU device.

    Returns
    -------
    DataFrame
        One row a target and arithmetic, as far as measured: product, types and algorithm, the
        contender and the reference, TFLOPS (of integers TOPS) of both, their ratio, what is
        wanted, and whether it was reached. Without rows if the suite is not in `frame`.
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


def _lines(target: MatrixTarget, known: dict[_Key, pd.Series]) -> Iterator[dict[str, object]]:
    measured = []
    for arithmetic in target.arithmetics:
        row = known.get(_key(target.case, target.contender, arithmetic))
        other = target.reference_arithmetic or arithmetic
        reference = known.get(_key(target.case, target.reference, other))
        if row is not None:
            measured.append((arithmetic, other, row, reference))
    reached = [_reaches(target, row, reference) for _, _, row, reference in measured]
    for (arithmetic, other, row, reference), met in zip(measured, reached, strict=True):
        speed = row["gflops"] / 1e3
        rival = np.nan if reference is None else reference["gflops"] / 1e3
        against = target.reference
        if other != arithmetic:
            against += f" {other.precision.name}"
        yield {
            "product": str(target.case),
            "types": str(arithmetic),
            "contender": target.contender,
            "tera/s": f"{speed:.3g}",
            "reference": against,
            "its tera/s": "-" if reference is None else f"{rival:.3g}",
            "error": f"{row['error']:.1e}",
            "value": f"{speed / rival:.2f}",
            "wanted": f"{target.ratio:.2f}" + (", as exact" if target.as_exact else ""),
            "": _verdict(met, reached),
        }


def _reaches(target: MatrixTarget, row: pd.Series, reference: pd.Series | None) -> bool | None:
    """Whether a row reaches the target; None where there is nothing to compare it with."""
    if reference is None:
        return None
    exact = not target.as_exact or row["error"] <= reference["error"]
    return bool(exact and row["gflops"] >= target.ratio * reference["gflops"])


def _verdict(met: bool | None, all_met: Sequence[bool | None]) -> str:
    """Of several arithmetics, one that reaches the target is enough."""
    if met is None:
        return "?"
    if met:
        return "reached"
    return "missed, but not by all" if any(all_met) else "missed"
