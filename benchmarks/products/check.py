"""Is a product right? Compared with float64 before any time of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.products.case import Case
from benchmarks.products.operands import Operands, turned
from pyclgemm.problem.precision import Precision, real_part_name

#: Multiply-adds that a reference may cost; a larger product is compared in some rows.
_MOST_WORK = 1 << 35

#: Products of a batch that are compared, at most: NumPy multiplies small matrices slowly.
_MOST_PRODUCTS = 2000


#: From 1 to the next number of a type; sums of integers are exact.
_EPS = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
    "int32": 0.0,
}  # fmt: skip

#: From 0 to the next number: what rounding below the normal numbers may cost.
_STEP = {
    "float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074,
    "int32": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """What a right result of a case is.

    Attributes
    ----------
    k : int
        Length of the sums.
    rows : ndarray
        Rows of the result that are compared: all, or of a large one the first, the last
        and one at random out of each run of neighbours, so that no wrong tile escapes. Of a
        batch the products, in the same way.
    expected : ndarray
        These rows of ``alpha A B + beta C``, in float64.
    magnitude : ndarray
        These rows of ``|alpha| |A| |B| + |beta| |C|``, to which an error is compared.
    """

    k: int
    rows: NDArray[Any]
    expected: NDArray[Any]
    magnitude: NDArray[Any]


def _wide(matrix: NDArray[Any]) -> NDArray[Any]:
    return matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64, copy=False)


def _magnitude(matrix: NDArray[Any]) -> NDArray[np.float32]:
    wide = matrix if matrix.dtype.kind == "c" else matrix.astype(np.float32)
    return np.abs(wide).astype(np.float32)


def sampled_rows(case: Case, rng: np.random.Generator) -> NDArray[Any]:
    """Pick the rows, or of a batch the products, to compare: all, unless that is too much work."""
    count, work = case.m, case.n * case.k
    if case.batch is not None:
        count, work = case.batch, case.m * work
    picked = max(1, min(count, _MOST_WORK // work))
    if case.batch is not None:
        picked = min(picked, _MOST_PRODUCTS)
    edges = np.linspace(0, count, picked + 1).astype(int)
    return np.unique([0, count - 1, *rng.integers(edges[:-1], edges[1:])])


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
    a = turned(first.a.host, case.trans_a)
    b = turned(first.b.host, case.trans_b)
    rows = sampled_rows(case, rng)
    a = a[rows]
    if case.batch is not None:
        b = b[rows]
    # A sum of positive numbers is exact enough in float32 for a bound.
    magnitude = _magnitude(a) @ _magnitude(b)
    expected = _wide(a) @ _wide(b)
    if case.is_scaled:
        c = first.out.host[rows]
        expected = case.alpha * expected + case.beta * _wide(c)
        magnitude = abs(case.alpha) * magnitude + abs(case.beta) * _magnitude(c)
    return Reference(case.k, rows, expected, magnitude)


def error_ratio(
    result: NDArray[Any],
    reference: Reference,
    precision: Precision,
    bias: NDArray[Any] | None = None,
) -> float:
    """Largest error as a part of what is allowed: right up to 1.

    Allowed is ``(t k + 10) eps + p`` times ``|A| |B|`` for each element, eps that of the type
    that sums, t the terms and p the error of a product (`Precision.product_error`), and one
    rounding to the type of the result where that is coarser, where small numbers have a least
    distance. Sums of integers must be exact.

    Parameters
    ----------
    result : ndarray
        (m, n), from the device.
    reference : Reference
        Of the same case.
    precision : Precision
        How the contender multiplies.
    bias : ndarray, optional
        (n,); the result is then ``relu(A B + bias)``.

    Returns
    -------
    float
        Infinity if an element, whether compared or not, is not a finite number.
    """
    if not np.isfinite(result).all():
        return float("inf")
    expected, magnitude = _expected(reference, bias)
    eps = _EPS[precision.arithmetic]
    stored = real_part_name(result.dtype.name)
    storage = _EPS[stored]
    relative = (precision.terms * reference.k + 10) * eps + precision.product_error if eps else 0.0
    allowed = relative * magnitude + _STEP[stored]
    if storage > eps:
        allowed = allowed + storage * np.abs(expected)
    return _largest(np.abs(_wide(result[reference.rows]) - expected), allowed)


def relative_error(
    result: NDArray[Any], reference: Reference, bias: NDArray[Any] | None = None
) -> float:
    """Largest error as a part of ``|A| |B|``; parameters as for `error_ratio`."""
    expected, magnitude = _expected(reference, bias)
    return _largest(np.abs(_wide(result[reference.rows]) - expected), magnitude)


def _expected(reference: Reference, bias: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """What must come out, and to what an error is compared."""
    if bias is None:
        return reference.expected, reference.magnitude
    total = np.maximum(reference.expected + _wide(bias), 0.0)
    return total, reference.magnitude + np.abs(_wide(bias))


def _largest(error: NDArray[Any], allowed: NDArray[Any]) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0.0, 0.0, error / allowed)
    return float(np.max(ratio, initial=0.0))
