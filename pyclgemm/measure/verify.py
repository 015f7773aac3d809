"""Check a computed product against float64, before its time counts.

The bound is that of N. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1: independent rounding errors of mean zero
sum to at most ``lambda sqrt(k) u |A| |B|``, except with a probability of
``2 k exp(-lambda^2 / 2)`` per element (below 1e-16 for lambda = 10 and k up to 1e5). The worst-case
bound ``k u |A| |B|`` would miss a missing block of a long k. If elements are split into terms,
`pyclgemm.problem.precision.Precision.product_error` is added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..problem.precision import Precision, is_complex, real_part_name

_LAMBDA = 10.0
#: Most multiply-adds for which the whole result is checked; else some rows and columns are.
_WHOLE = 1 << 27
#: The least number of sampled rows or columns: the first, the last, and random ones.
_SAMPLED = 6
#: A product of a batch counts as at least this many: NumPy multiplies small matrices slowly.
_PRODUCT = 1 << 21
#: Columns of B that are converted to float64 at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class Rounding:
    """The largest rounding errors of a right product; all zero for integers."""

    sums: float  # error of the sums, relative to |A| |B|
    storing: float  # error of the conversion to a narrower type, relative to the sum
    floor: float  # the largest value that may be flushed to zero

    def bound(self, value: NDArray[Any], magnitude: NDArray[Any]) -> NDArray[np.float64]:
        """The largest distance of elements from `value`, where ``|A| |B|`` is `magnitude`."""
        total = self.sums * magnitude + self.storing * np.abs(value) + self.floor
        return np.asarray(total, np.float64)


def rounding_of(
    dtype: str, k: int, precision: Precision, result_dtype: str | None = None
) -> Rounding:
    """The rounding errors of a product with sums of length k, by the bound named above."""
    if np.dtype(precision.arithmetic).kind in "iu":
        return Rounding(0.0, 0.0, 0.0)
    eps, tiny = _spacing(precision.arithmetic)
    terms = (2 * k if is_complex(dtype) else k) * precision.terms
    # Ten further roundings allow for alpha, the conversion, and sums too short for statistics.
    sums = (_LAMBDA * math.sqrt(terms) + 10) * eps / 2 * (math.sqrt(2) if is_complex(dtype) else 1)
    if dtype == "complex128":
        sums *= 2  # the reference has as large an error
    stored_eps, stored_tiny = _spacing(real_part_name(result_dtype or dtype))
    storing = stored_eps if stored_eps > eps else 0.0
    return Rounding(sums + precision.product_error, storing, 2 * max(stored_tiny, tiny))


def _spacing(dtype: str) -> tuple[float, float]:
    """The spacing of numbers at 1, and the smallest normal number, of a real type."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # NumPy lacks bfloat16
    return float(info.eps), float(info.smallest_normal)


@dataclass(frozen=True)
class Part:
    """A part of the exact result: all of it, or some rows, columns or products of a batch."""

    axes: tuple[NDArray[np.intp], ...]  # indices along each axis of the result
    value: NDArray[Any]  # A B at these indices, in float64 or complex128
    magnitude: NDArray[np.float64]  # |A| |B|
    rest: NDArray[np.float64]  # what `value` lacks of A B; zeros where float64 has bits to spare


def reference(
    a: NDArray[Any], b: NDArray[Any], rng: np.random.Generator, most_work: int | None = None
) -> tuple[Part, ...]:
    """Compute the product of `a` and `b`, or parts of it, in float64.

    At most `most_work` multiply-adds are spent on rows, and on products of a batch. A larger one
    has the first, the last and random rows, and a few columns, or likewise some products.
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
    value, magnitude, rest = (
        x.swapaxes(-1, -2) for x in (turned.value, turned.magnitude, turned.rest)
    )
    return _rows(a, b, stack, rows), Part((*stack, np.arange(m), columns), value, magnitude, rest)


def _rows(
    left: NDArray[Any],
    right: NDArray[Any],
    stack: tuple[NDArray[np.intp], ...],
    rows: NDArray[np.intp],
) -> Part:
    wide: Any = np.complex128 if is_complex(left.dtype.name) else np.float64
    is_exact = left.dtype == np.float64
    left = left[..., rows, :].astype(wide)
    columns = right.shape[-1]
    value = np.empty((*left.shape[:-1], columns), wide)
    magnitude = np.empty(value.shape, np.float64)
    rest = np.zeros(value.shape, np.float64)
    for start in range(0, columns, _BLOCK):
        block = right[..., start : start + _BLOCK].astype(wide)
        here = (..., slice(start, start + _BLOCK))
        if is_exact:
            value[here], rest[here] = _exact_product(left, block)
        else:
            np.matmul(left, block, out=value[here])
        np.matmul(np.abs(left), np.abs(block), out=magnitude[here])
    return Part((*stack, rows, np.arange(columns)), value, magnitude, rest)


#: Slices of a float64 matrix; what they leave out is far below a rounding of the product.
_SLICES = 4


def _exact_product(left: NDArray[Any], right: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The product of float64 matrices as a float64 matrix, and the rest that this lacks.

    The matrices are cut into slices of so few bits that NumPy multiplies two without rounding
    (K. Ozaki et al., "Error-free transformations of matrix multiplication", Numer. Algorithms 59,
    2012); the products are summed with their rounding errors.
    """
    bits = (53 - math.ceil(math.log2(max(2, left.shape[-1])))) // 2
    total, rest = np.zeros((2, *left.shape[:-1], right.shape[-1]))
    rights = _slices(right, -2, bits)
    for first in _slices(left, -1, bits):
        for second in rights:
            term = first @ second
            summed = total + term
            kept = summed - total
            rest += (total - (summed - kept)) + (term - kept)  # the rounding error (Knuth)
            total = summed
    return total, rest


def _slices(matrix: NDArray[Any], axis: int, bits: int) -> list[NDArray[Any]]:
    """Cut a matrix into matrices of few bits, whose units are powers of two along an axis."""
    largest = np.abs(matrix).max(axis=axis, keepdims=True, initial=0.0)
    unit = np.ldexp(1.0, np.frexp(largest)[1] - bits)
    slices = []
    for _ in range(_SLICES):
        slices.append(np.rint(matrix / unit) * unit)
        matrix = matrix - slices[-1]
        unit = unit * 2.0**-bits
    return slices


def _sample(extent: int, rng: np.random.Generator, count: int = 0) -> NDArray[np.intp]:
    """The first index, the last, and a random one of each of `count` equal intervals."""
    count = min(extent, max(_SAMPLED, count))
    edges = np.linspace(0, extent, count + 1).astype(int)
    return np.unique([0, extent - 1, *rng.integers(edges[:-1], edges[1:])]).astype(np.intp)


@dataclass(frozen=True)
class MeasuredError:
    """The error of a result over |A| |B|; infinite if an element is not finite."""

    largest: float  # of the elements that were compared
    root_mean_square: float
    bound: float  # of the error if nothing cancels, with the rounding of the result
    ratio: float  # largest error of an element over its bound
    fault: str | None = None  # what is wrong with the result

    @property
    def held(self) -> bool:
        """Whether every element that was compared is within its bound."""
        return self.ratio <= 1


def measure_error(result: NDArray[Any], parts: Sequence[Part], rounding: Rounding) -> MeasuredError:
    """Compare a result with the `parts` of the exact one."""
    allowed = rounding.sums + rounding.storing
    if lost := result.size - int(np.isfinite(result).sum()):
        not_finite = f"{lost} elements are no finite numbers"
        return MeasuredError(math.inf, math.inf, allowed, math.inf, not_finite)
    errors, ratios, fault = [], [], None
    for part in parts:
        bound = rounding.bound(part.value, part.magnitude)
        with np.errstate(all="ignore"):
            got = result[np.ix_(*part.axes)].astype(part.value.dtype)
            error = np.abs((got - part.value) - part.rest)
            relative, ratio = (
                np.where(error == 0, 0.0, error / of)  # 0, not NaN, if `of` is 0 as well
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
