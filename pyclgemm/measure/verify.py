"""Whether a computed product is right, against float64, before a time of it counts.

The bound is that of N. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1: rounding errors that are independent
and have mean zero add up to at most ``lambda sqrt(k) u |A| |B|``, but for a chance of
``2 k exp(-lambda^2 / 2)`` per element (below 1e-16 for lambda = 10 and k up to 1e5). The bound
that always holds, ``k u |A| |B|``, would not see a missing block of a long k. Where elements are
split into terms, the error of a product (`pyclgemm.problem.precision.Precision.product_error`) is
added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..problem.precision import Precision, is_complex, real_part_name

_LAMBDA = 10.0

#: Multiply-adds up to which the whole result is checked; of larger ones some rows and columns.
_WHOLE = 1 << 27
#: Rows, and columns, that are checked then: the first, the last, and random ones.
_SAMPLED = 6
#: Multiply-adds that a product of a batch counts for, at least: NumPy multiplies small matrices
#: slowly. Of large products as few as `_SAMPLED` are checked.
_PRODUCT = 1 << 21
#: Columns of B that are widened to float64 at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class Rounding:
    """How far a right product may be from the exact one; all zero where integers are multiplied."""

    sums: float  # of the sums, as a part of |A| |B|
    storing: float  # of rounding a sum to a narrower type, as a part of the sum itself
    floor: float  # what may be flushed to zero

    def bound(self, value: NDArray[Any], magnitude: NDArray[Any]) -> NDArray[np.float64]:
        """How far elements may lie from `value`, where ``|A| |B|`` is `magnitude`."""
        total = self.sums * magnitude + self.storing * np.abs(value) + self.floor
        return np.asarray(total, np.float64)


def rounding_of(
    dtype: str, k: int, precision: Precision, result_dtype: str | None = None
) -> Rounding:
    """What rounding may do to a product with sums of length k, by the law named above."""
    if np.dtype(precision.arithmetic).kind == "i":
        return Rounding(0.0, 0.0, 0.0)
    eps, tiny = _spacing(precision.arithmetic)
    terms = (2 * k if is_complex(dtype) else k) * precision.terms
    # A float64 reference errs by as much where float64 is checked; ten roundings on top are
    # those of alpha, of the conversion and of short sums, for which no law of numbers holds.
    sums = (_LAMBDA * math.sqrt(terms) + 10) * eps / 2 * (math.sqrt(2) if is_complex(dtype) else 1)
    if precision.arithmetic == "float64":
        sums *= 2
    stored_eps, stored_tiny = _spacing(real_part_name(result_dtype or dtype))
    storing = stored_eps if stored_eps > eps else 0.0
    return Rounding(sums + precision.product_error, storing, 2 * max(stored_tiny, tiny))


def _spacing(dtype: str) -> tuple[float, float]:
    """The distance from 1 to the next number, and the smallest normal number, of a real type."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # NumPy lacks bfloat16
    return float(info.eps), float(info.smallest_normal)


@dataclass(frozen=True)
class Part:
    """A part of a result as it must be: whole, or some rows, columns or products of a batch."""

    axes: tuple[NDArray[np.intp], ...]  # indices along each axis of the result
    value: NDArray[Any]  # A B there, in float64 or complex128
    magnitude: NDArray[np.float64]  # |A| |B|


def reference(
    a: NDArray[Any], b: NDArray[Any], rng: np.random.Generator, most_work: int | None = None
) -> tuple[Part, ...]:
    """Compute in float64 what the product of `a` and `b` must be, or what parts of it must be.

    Of a large product the first row, the last, and one at random out of each run of neighbours
    are computed, and a few columns; of a batch some products in the same way. `most_work` are the
    multiply-adds that all rows may cost, and the products of a batch.
    """
    most_work = _WHOLE if most_work is None else most_work
    (m, k), n = a.shape[-2:], b.shape[-1]
    work = m * n * k
    stack: tuple[NDArray[np.intp], ...] = ()
    if a.ndim == 3:
        products = _sample(len(a), rng, most_work // max(work, _PRODUCT))
        stack, a, b = (products,), a[products], b[products]
    if work <= most_work:
        return (_rows(a, b, stack, np.arange(m)),)
    rows, columns = _sample(m, rng, most_work // (n * k)), _sample(n, rng)
    turned = _rows(b.swapaxes(-1, -2), a.swapaxes(-1, -2), stack, columns)
    value, magnitude = (x.swapaxes(-1, -2) for x in (turned.value, turned.magnitude))
    return _rows(a, b, stack, rows), Part((*stack, np.arange(m), columns), value, magnitude)


def _rows(
    left: NDArray[Any],
    right: NDArray[Any],
    stack: tuple[NDArray[np.intp], ...],
    rows: NDArray[np.intp],
) -> Part:
    wide: Any = np.complex128 if is_complex(left.dtype.name) else np.float64
    left = left[..., rows, :].astype(wide)
    columns = right.shape[-1]
    value = np.empty((*left.shape[:-1], columns), wide)
    magnitude = np.empty(value.shape, np.float64)
    for start in range(0, columns, _BLOCK):
        block = right[..., start : start + _BLOCK].astype(wide)
        np.matmul(left, block, out=value[..., start : start + _BLOCK])
        np.matmul(np.abs(left), np.abs(block), out=magnitude[..., start : start + _BLOCK])
    return Part((*stack, rows, np.arange(columns)), value, magnitude)


def _sample(extent: int, rng: np.random.Generator, count: int = 0) -> NDArray[np.intp]:
    """The first index, the last, and one at random out of each run of neighbours."""
    count = min(extent, max(_SAMPLED, count))
    edges = np.linspace(0, extent, count + 1).astype(int)
    return np.unique([0, extent - 1, *rng.integers(edges[:-1], edges[1:])]).astype(np.intp)


@dataclass(frozen=True)
class MeasuredError:
    """How far a result is from the exact one; infinitely if an element is no finite number."""

    largest: float  # of the elements that were compared, as parts of |A| |B|
    root_mean_square: float
    bound: float  # what is allowed where nothing cancels, rounding of the result included
    ratio: float  # largest error of an element over its own bound
    fault: str | None = None  # what is wrong with the result

    @property
    def held(self) -> bool:
        """Whether every element that was compared is within its own bound."""
        return self.ratio <= 1


def measure_error(result: NDArray[Any], parts: Sequence[Part], rounding: Rounding) -> MeasuredError:
    """Measure how far a result is from `parts`, which are what it must be."""
    allowed = rounding.sums + rounding.storing
    if lost := result.size - int(np.isfinite(result).sum()):
        said = f"{lost} elements are no finite numbers"
        return MeasuredError(math.inf, math.inf, allowed, math.inf, said)
    errors, ratios, fault = [], [], None
    for part in parts:
        bound = rounding.bound(part.value, part.magnitude)
        with np.errstate(all="ignore"):
            got = result[np.ix_(*part.axes)].astype(part.value.dtype)
            error = np.abs(got - part.value)
            relative, ratio = (
                np.where(error == 0, 0.0, error / of)  # no error is 0 of nothing
                for of in (part.magnitude, bound)
            )
        errors.append(relative.ravel())
        ratios.append(float(ratio.max()))
        if fault is None and (wrong := ~(ratio <= 1)).any():
            first = tuple(np.argwhere(wrong)[0])
            where = tuple(int(axis[index]) for axis, index in zip(part.axes, first, strict=True))
            fault = (
                f"{int(wrong.sum())} of {wrong.size} elements that were checked; at {where} it is "
                f"{result[where]:.6g}, {part.value[first]:.6g} within {bound[first]:.1g} is right"
            )
    compared = np.concatenate(errors)
    rms = float(np.sqrt(np.square(compared).mean()))
    return MeasuredError(float(compared.max()), rms, allowed, max(ratios), fault)
