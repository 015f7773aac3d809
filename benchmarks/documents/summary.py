"""Mean speeds beside other libraries, by device and type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.documents.figures import geometric_mean, load, ratios


class Mean(NamedTuple):
    """The geometric mean of the speed over another library's."""

    device: str
    reference: str
    type: str
    count: int
    mean: float
    low: float  # the lower quartile
    high: float


def _mean(device: str, reference: str, kind: str, values: pd.Series) -> Mean:
    low, high = np.quantile(values, [0.25, 0.75])
    return Mean(device, reference, kind, len(values), geometric_mean(values), low, high)


def _unseen(name: str, device: str, reference: str, platform: str = "") -> Iterator[Mean]:
    """Yield a mean for each arithmetic of single products for which the database has records."""
    frame = load(name)
    frame = frame[frame["hidden"].isna() & frame["batch"].isna() & frame["ratio"].notna()]
    if platform:
        frame = frame[frame["platform"] == platform]
    for arithmetic, part in frame.groupby("arithmetic"):
        if arithmetic != "float32, TF32_TF32_F32_X3":  # over another precision
            yield _mean(device, reference, str(arithmetic), part["ratio"])


def summary() -> list[Mean]:
    """Return the means, sorted by device, reference and speed.

    Beside the vendor's library they are those of random shapes that no database knew.
    """
    means = [
        *_unseen("h200/2026-12-01-unseen", "H200", "cuBLAS"),
        *_unseen("h100/2026-11-28-unseen", "H100", "cuBLAS"),
        *_unseen("xeon/2026-11-24-unseen", "Xeon, Intel's runtime", "OpenBLAS", "Intel(R) OpenCL"),
        *_unseen("xeon/2026-11-24-unseen", "Xeon, pocl", "OpenBLAS", "Portable Computing Language"),
    ]
    later = load("h100/2026-11-22-random")
    for dtype in ("float32", "bfloat16"):
        part = later[(later["dtype"] == dtype) & (later["precision"] != "TF32_TF32_F32")]
        means.append(_mean("H100", "cuBLAS", dtype, ratios(part, "cuBLAS")))
    means += _clblast()
    return sorted(means, key=lambda mean: (mean.device, mean.reference, -mean.mean))


def _clblast() -> Iterator[Mean]:
    """Yield the means of all products that were measured beside CLBlast."""
    for device, batches, ladder in (
        ("H100", "h100/2026-11-22-batches", "h100/2026-11-22-ladder"),
        ("H200", "h200/2026-11-22-large", None),
        ("Xeon, Intel's runtime", None, "xeon/2026-11-21-ladder"),
    ):
        parts = []
        if batches:
            frame = load(batches)
            parts.append(ratios(frame[frame["dtype"] == "float32"], "CLBlast"))
        if ladder:
            steps = load(ladder).set_index("step")["gflops"]
            parts.append(pd.Series([steps["8"] / steps["CLBlast"]]))
        yield _mean(device, "CLBlast", "float32", pd.concat(parts))
