"""Is a product right? Compared with float64 before any time of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.case import Case
from benchmarks.operands import Operands

#: Multiply-adds that a reference may cost; a larger product is compared in some rows.
_MOST_WORK = 1 << 35


@dataclass(frozen=True)
class Reference:
    """What a right result of a case is.

    Attributes
    ----------
    k : int
        Length of the sums.
    rows : ndarray
        Rows of the result that are compared: all, or of a large one the first, the last
        and one at random out of each run of neighbours, so that no wrong tile escapes.
    expected : ndarray
        These rows of the product, in float64.
    magnitude : ndarray
        These rows of ``|A| |B|``, to which an error is compared.
    """

    k: int
    rows: NDArray[Any]
    expected: NDArray[Any]
    magnitude: NDArray[Any]


def _wide(matrix: NDArray[Any]) -> NDArray[Any]:
    return matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64, copy=False)


def sampled_rows(case: Case, rng: np.random.Generator) -> NDArray[Any]:
    """Pick the rows to compare: all, unless that is too much work."""
    rows = max(1, min(case.m, _MOST_WORK // (case.n * case.k)))
    edges = np.linspace(0, case.m, rows + 1).astype(int)
    return np.unique([0, case.m - 1, *rng.integers(edges[:-1], edges[1:])])


def make_reference(operands: Operands, rng: np.random.Generator) -> Reference:
    """Compute in float64 what the first set of operands must give.

    Parameters
    ----------
    operands : Operands
        The matrices.
    rng : numpy.random.Generator
        Picks rows of a large case.
    """
    case, first = operands.case, operands.sets[0]
    a = first.a.host.T if case.trans_a else first.a.host
    b = first.b.host.T if case.trans_b else first.b.host
    rows = sampled_rows(case, rng)
    a = a[rows]
    # A sum of positive numbers is exact enough in float32 for a bound.
    magnitude = np.abs(a).astype(np.float32) @ np.abs(b).astype(np.float32)
    return Reference(case.k, rows, _wide(a) @ _wide(b), magnitude)


def error_ratio(
    result: NDArray[Any],
    reference: Reference,
    arithmetic: str,
    bias: NDArray[Any] | None = None,
) -> float:
    """Largest error as a part of what is allowed: right up to 1.

    Allowed is ``(k + 10) eps |A| |B|`` for each element, eps that of the arithmetic, and
    one rounding to the type of the result where that is coarser.

    Parameters
    ----------
    result : ndarray
        (m, n), from the device.
    reference : Reference
        Of the same case.
    arithmetic : str
        NumPy name of the type in which products are summed.
    bias : ndarray, optional
        (n,); the result is then ``relu(A B + bias)``.

    Returns
    -------
    float
        Infinity if an element, whether compared or not, is not a finite number.
    """
    if not np.isfinite(result).all():
        return float("inf")
    eps = float(np.finfo(arithmetic).eps)
    storage = float(np.finfo(result.dtype).eps) if result.dtype.itemsize == 2 else 0.0
    expected, magnitude = reference.expected, reference.magnitude
    if bias is not None:
        expected = np.maximum(expected + _wide(bias), 0.0)
        magnitude = magnitude + np.abs(bias)
    allowed = (reference.k + 10) * eps * magnitude + storage * np.abs(expected)
    error = np.abs(_wide(result[reference.rows]) - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0.0, 0.0, error / allowed)
    return float(np.max(ratio, initial=0.0))
