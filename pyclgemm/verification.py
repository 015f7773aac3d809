"""Whether a computed product is right, against float64, before a time of it counts.

The bound is that of N. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1: rounding errors that are independent
and have mean zero add up to at most ``lambda sqrt(k) u |A| |B|``, but for a chance of
``2 k exp(-lambda^2 / 2)`` per element (below 1e-16 for lambda = 10 and k up to 1e5). The bound
that always holds, ``k u |A| |B|``, would not see a missing slab of a long k. Where elements are
rounded to parts, the error of a product (`pyclgemm.precision.Precision.product_error`) is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .precision import Precision, is_complex

_LAMBDA = 10.0

#: Multiply-adds up to which the whole result is checked; of larger ones some rows and columns.
_WHOLE = 1 << 27
#: Rows, and columns, that are checked then: the first, the last, and random ones.
_SAMPLED = 6
#: Columns of B that are widened to float64 at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class Part:
    """Some rows or some columns of a result, as they must be.

    Attributes
    ----------
    axis : int
        0 for rows, 1 for columns.
    indices : numpy.ndarray
        Which.
    value, bound : numpy.ndarray
        In float64 or complex128, as ``result.take(indices, axis)`` must be, and how far from
        it each element may lie.
    """

    axis: int
    indices: NDArray[np.intp]
    value: NDArray[Any]
    bound: NDArray[np.float64]

    def fault(self, got: NDArray[Any]) -> str | None:
        """Say what is wrong with these rows or columns; None if nothing is.

        Parameters
        ----------
        got : numpy.ndarray
            As `value`, in the type of the result.
        """
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(got.astype(self.value.dtype) - self.value) <= self.bound)
        if not wrong.any():
            return None
        first = tuple(int(index) for index in np.argwhere(wrong)[0])
        where = list(first)
        where[self.axis] = int(self.indices[first[self.axis]])
        return (
            f"{int(wrong.sum())} of {wrong.size} elements that were checked; at {tuple(where)} it "
            f"is {got[first]:.6g}, {self.value[first]:.6g} within {self.bound[first]:.1g} is right"
        )


def reference_parts(
    a: NDArray[Any], b: NDArray[Any], precision: Precision, rng: np.random.Generator
) -> tuple[Part, ...]:
    """Compute what the product of `a` and `b` must be: all of it, or some rows and columns.

    Parameters
    ----------
    a, b : numpy.ndarray
        (m, k) and (k, n), of the type in which they are stored.
    precision : Precision
        The arithmetic that is checked.
    rng : numpy.random.Generator
        Picks rows and columns.

    Examples
    --------
    >>> import numpy as np
    >>> from pyclgemm.precision import resolve_precision
    >>> one = np.eye(2, dtype=np.float32)
    >>> parts = reference_parts(
    ...     one, one, resolve_precision(None, "float32"), np.random.default_rng(0)
    ... )
    >>> parts[0].fault(one) is None
    True
    >>> parts[0].fault(2 * one)
    '2 of 4 elements that were checked; at (0, 0) it is 2, 1 within 1e-06 is right'
    """
    m, k = a.shape
    n = b.shape[1]
    bound_of = _bound_of(a.dtype.name, k, precision)
    if m * n * k <= _WHOLE:
        return (_part(a, b, 0, np.arange(m), bound_of),)
    rows, columns = _sample(m, rng), _sample(n, rng)
    turned = _part(b[:, columns].T, a.T, 0, np.arange(len(columns)), bound_of)
    return (
        _part(a[rows], b, 0, rows, bound_of),
        Part(1, columns, turned.value.T, turned.bound.T),
    )


def _part(
    left: NDArray[Any],
    right: NDArray[Any],
    axis: int,
    indices: NDArray[np.intp],
    bound_of: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]],
) -> Part:
    wide: Any = np.complex128 if is_complex(left.dtype.name) else np.float64
    left = left.astype(wide)
    values, bounds = [], []
    for start in range(0, right.shape[1], _BLOCK):
        block = right[:, start : start + _BLOCK].astype(wide)
        value = left @ block
        values.append(value)
        bounds.append(bound_of(value, np.abs(left) @ np.abs(block)))
    return Part(axis, indices, np.concatenate(values, 1), np.concatenate(bounds, 1))


def _bound_of(
    dtype: str, k: int, precision: Precision
) -> Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]:
    arithmetic = np.finfo(precision.arithmetic)
    stored = np.finfo(np.empty(0, dtype).real.dtype)
    unit = float(arithmetic.eps) / 2
    terms = (2 * k if is_complex(dtype) else k) * precision.terms
    # A float64 reference errs by as much where float64 is checked; ten roundings on top are
    # those of alpha, of the conversion and of short sums, for which no law of numbers holds.
    roundings = (
        (_LAMBDA * math.sqrt(terms) + 10) * unit * (math.sqrt(2) if is_complex(dtype) else 1)
    )
    if arithmetic.bits == 64:
        roundings *= 2
    roundings += precision.product_error
    narrowing = float(stored.eps) if stored.bits < arithmetic.bits else 0.0
    floor = 2 * float(max(stored.tiny, arithmetic.tiny))

    def bound(value: NDArray[Any], magnitude: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(roundings * magnitude + narrowing * np.abs(value) + floor, np.float64)

    return bound


def _sample(extent: int, rng: np.random.Generator) -> NDArray[np.intp]:
    drawn = rng.integers(0, extent, _SAMPLED - 2)
    return np.unique(np.concatenate([[0, extent - 1], drawn])).astype(np.intp)
