"""Whether a computed product is right, against float64, before a time of it counts.

The bound is that of N. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1: rounding errors that are independent
and have mean zero add up to at most ``lambda sqrt(k) u |A| |B|``, but for a chance of
``2 k exp(-lambda^2 / 2)`` per element (below 1e-16 for lambda = 10 and k up to 1e5). The bound
that always holds, ``k u |A| |B|``, would not see a missing slab of a long k. Where elements are
rounded to parts, the error of a product (`pyclgemm.problem.precision.Precision.product_error`) is
added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem.precision import Precision, is_complex, real_part_name

_LAMBDA = 10.0

#: Multiply-adds up to which the whole result is checked; of larger ones some rows and columns.
_WHOLE = 1 << 27
#: Rows, and columns, that are checked then: the first, the last, and random ones.
_SAMPLED = 6
#: Products of a batch that are checked, at most; of large ones as few as `_SAMPLED`.
_MOST_PRODUCTS = 64
#: Columns of B that are widened to float64 at a time.
_BLOCK = 1024


#: Of real types: the distance from 1 to the next number, and the smallest normal number.
#: (NumPy itself does not know bfloat16.)
_FLOATING: dict[str, tuple[float, float]] = {
    "float16": (2.0**-10, 2.0**-14),
    "bfloat16": (2.0**-7, 2.0**-126),
    "float32": (2.0**-23, 2.0**-126),
    "float64": (2.0**-52, 2.0**-1022),
}


@dataclass(frozen=True)
class Rounding:
    """How far a right product may be from the exact one; all zero where integers are multiplied.

    Attributes
    ----------
    sums : float
        Of the sums, as a part of ``|A| |B|``.
    storing : float
        Of rounding a sum to a narrower type, as a part of the sum itself.
    floor : float
        What may be flushed to zero.
    """

    sums: float
    storing: float
    floor: float

    def bound(self, value: NDArray[Any], magnitude: NDArray[Any]) -> NDArray[np.float64]:
        """How far elements may lie from `value`, where ``|A| |B|`` is `magnitude`."""
        total = self.sums * magnitude + self.storing * np.abs(value) + self.floor
        return np.asarray(total, np.float64)


def rounding_of(
    dtype: str, k: int, precision: Precision, result_dtype: str | None = None
) -> Rounding:
    """What rounding may do to a product, by the law that this module names.

    Parameters
    ----------
    dtype : str
        NumPy name of the operands' element type.
    k : int
        Length of the sums.
    precision : Precision
        The arithmetic.
    result_dtype : str, optional
        NumPy name of the element type of the result; by default `dtype`.

    Examples
    --------
    >>> from pyclgemm.problem.precision import resolve_precision
    >>> fast = resolve_precision("TF32_TF32_F32", "float32")
    >>> rounding = rounding_of("float32", 1024, fast)
    >>> fast.product_error < rounding.sums < 1.02 * fast.product_error, rounding.storing
    (True, 0.0)
    """
    if precision.arithmetic not in _FLOATING:
        return Rounding(0.0, 0.0, 0.0)
    eps, tiny = _FLOATING[precision.arithmetic]
    terms = (2 * k if is_complex(dtype) else k) * precision.terms
    # A float64 reference errs by as much where float64 is checked; ten roundings on top are
    # those of alpha, of the conversion and of short sums, for which no law of numbers holds.
    sums = (_LAMBDA * math.sqrt(terms) + 10) * eps / 2 * (math.sqrt(2) if is_complex(dtype) else 1)
    if precision.arithmetic == "float64":
        sums *= 2
    stored_eps, stored_tiny = _FLOATING[real_part_name(result_dtype or dtype)]
    storing = stored_eps if stored_eps > eps else 0.0
    return Rounding(sums + precision.product_error, storing, 2 * max(stored_tiny, tiny))


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
    product : int or None
        Of a batch: of which product.
    """

    axis: int
    indices: NDArray[np.intp]
    value: NDArray[Any]
    bound: NDArray[np.float64]
    product: int | None = None

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
        if self.product is not None:
            where.insert(0, self.product)
        return (
            f"{int(wrong.sum())} of {wrong.size} elements that were checked; at {tuple(where)} it "
            f"is {got[first]:.6g}, {self.value[first]:.6g} within {self.bound[first]:.1g} is right"
        )


def reference_parts(
    a: NDArray[Any],
    b: NDArray[Any],
    precision: Precision,
    rng: np.random.Generator,
    result_dtype: str | None = None,
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
    result_dtype : str, optional
        NumPy name of the element type of the result, where it is not that of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyclgemm.problem.precision import resolve_precision
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
    rounding = rounding_of(a.dtype.name, k, precision, result_dtype)
    if m * n * k <= _WHOLE:
        return (_part(a, b, 0, np.arange(m), rounding),)
    rows, columns = _sample(m, rng), _sample(n, rng)
    turned = _part(b[:, columns].T, a.T, 0, np.arange(len(columns)), rounding)
    return (
        _part(a[rows], b, 0, rows, rounding),
        Part(1, columns, turned.value.T, turned.bound.T),
    )


def batch_parts(
    a: NDArray[Any],
    b: NDArray[Any],
    precision: Precision,
    rng: np.random.Generator,
    result_dtype: str | None = None,
) -> tuple[Part, ...]:
    """Compute what some products of a batch must be: the first, the last, and random ones.

    Parameters
    ----------
    a, b : numpy.ndarray
        (batch, m, k) and (batch, k, n).
    precision, rng, result_dtype
        As for `reference_parts`, which tells what is computed of each product.

    Examples
    --------
    >>> import numpy as np
    >>> from pyclgemm.problem.precision import resolve_precision
    >>> ones = np.ones((3, 2, 2), np.float32)
    >>> parts = batch_parts(
    ...     ones, ones, resolve_precision(None, "float32"), np.random.default_rng(0)
    ... )
    >>> parts[-1].product, parts[-1].fault(ones[2] @ ones[2]) is None
    (2, True)
    """
    work = a.shape[1] * a.shape[2] * b.shape[2]
    count = min(_MOST_PRODUCTS, max(_SAMPLED, _WHOLE // work))
    return tuple(
        replace(part, product=product)
        for product in map(int, _sample(len(a), rng, count))
        for part in reference_parts(a[product], b[product], precision, rng, result_dtype)
    )


def _part(
    left: NDArray[Any],
    right: NDArray[Any],
    axis: int,
    indices: NDArray[np.intp],
    rounding: Rounding,
) -> Part:
    wide: Any = np.complex128 if is_complex(left.dtype.name) else np.float64
    left = left.astype(wide)
    values, bounds = [], []
    for start in range(0, right.shape[1], _BLOCK):
        block = right[:, start : start + _BLOCK].astype(wide)
        value = left @ block
        values.append(value)
        bounds.append(rounding.bound(value, np.abs(left) @ np.abs(block)))
    return Part(axis, indices, np.concatenate(values, 1), np.concatenate(bounds, 1))


def _sample(extent: int, rng: np.random.Generator, count: int = _SAMPLED) -> NDArray[np.intp]:
    drawn = rng.integers(0, extent, count - 2)
    return np.unique(np.concatenate([[0, extent - 1], drawn])).astype(np.intp)


# --------------------------------------------------------------------------------------
# Random operands on which algorithms differ, and what their product must be, in float64.
# --------------------------------------------------------------------------------------

#: Multiply-adds that a reference may cost; a larger product is compared in some rows.
_MOST_WORK = 1 << 29
#: Rows that are compared at least.
_LEAST_ROWS = 8
#: Columns of B that are widened to float64 at a time.
_DATA_BLOCK = 1024

#: The smallest power of two by which badly scaled elements are multiplied, by type: products
#: of two of them stay normal numbers, except in float16.
_LEAST_EXPONENT = {"float16": -10, "int8": -6}
_LEAST_EXPONENT_OF_OTHERS = -40

_Pair = tuple[NDArray[Any], NDArray[Any]]


def _uniform(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> _Pair:
    return rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))


def _normal(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> _Pair:
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def _badly_scaled(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> _Pair:
    """Normal numbers, each times a power of two of its own: few terms make up a sum."""
    least = _LEAST_EXPONENT.get(dtype, _LEAST_EXPONENT_OF_OTHERS)
    a, b = _normal(rng, m, n, k, dtype)
    for matrix in (a, b):
        matrix *= 2.0 ** rng.integers(least, 1, matrix.shape)
    return a, b


def _cancelling(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> _Pair:
    """The second half of each sum takes away nearly all that the first half gave."""
    a, b = _normal(rng, m, n, k, dtype)
    half = k // 2
    a[:, half : 2 * half] = a[:, :half]
    b[half : 2 * half] = -b[:half] * (1 + 2.0**-6 * rng.standard_normal((half, n)))
    return a, b


#: Makes A (m, k) and B (k, n) for an element type, in float64.
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int, int, str], _Pair]] = {
    "normal": _normal,
    "uniform": _uniform,
    "badly-scaled": _badly_scaled,
    "cancelling": _cancelling,
}


def random_operands(
    rng: np.random.Generator, m: int, n: int, k: int, dtype: str, data: str
) -> _Pair:
    """Random operands of a product.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the numbers.
    m, n, k : int
        Sizes in elements.
    dtype : str
        NumPy name of a real element type. Integers are the numbers scaled to their whole range.
    data : str
        One of `DISTRIBUTIONS`.

    Returns
    -------
    a, b : numpy.ndarray
        (m, k) and (k, n), of type `dtype`.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = random_operands(np.random.default_rng(0), 2, 3, 4, "int8", "normal")
    >>> a.dtype.name, int(np.abs(b).max())
    ('int8', 127)
    """
    kind = np.dtype(dtype)
    pair = DISTRIBUTIONS[data](rng, m, n, k, dtype)
    if kind.kind == "i":
        most = np.iinfo(kind).max
        pair = tuple(np.rint(x * (most / np.abs(x).max())) for x in pair)
    a, b = pair
    return a.astype(kind), b.astype(kind)


@dataclass(frozen=True)
class SampledProduct:
    """Some rows of a product, as they must be.

    Attributes
    ----------
    rows : numpy.ndarray
        Which: all, or of a large product the first, the last and one at random out of each run
        of neighbours.
    value, magnitude : numpy.ndarray
        These rows of ``A B`` and of ``|A| |B|``, in float64. Sums of integers are exact.
    """

    rows: NDArray[np.intp]
    value: NDArray[np.float64]
    magnitude: NDArray[np.float64]


def sample_product(
    a: NDArray[Any], b: NDArray[Any], rng: np.random.Generator, most_work: int = _MOST_WORK
) -> SampledProduct:
    """Compute some rows of a product in float64.

    Parameters
    ----------
    a, b : numpy.ndarray
        (m, k) and (k, n), as they are stored.
    rng : numpy.random.Generator
        Picks rows.
    most_work : int
        Multiply-adds that it may cost, beyond a few rows.
    """
    (m, k), n = a.shape, b.shape[1]
    count = min(m, max(_LEAST_ROWS, most_work // (n * k)))
    edges = np.linspace(0, m, count + 1).astype(int)
    rows = np.unique([0, m - 1, *rng.integers(edges[:-1], edges[1:])]).astype(np.intp)
    left = a[rows].astype(np.float64)
    value, magnitude = (np.empty((len(rows), n)) for _ in range(2))
    for start in range(0, n, _DATA_BLOCK):
        block = b[:, start : start + _DATA_BLOCK].astype(np.float64)
        value[:, start : start + _DATA_BLOCK] = left @ block
        magnitude[:, start : start + _DATA_BLOCK] = np.abs(left) @ np.abs(block)
    return SampledProduct(rows, value, magnitude)


@dataclass(frozen=True)
class MeasuredError:
    """How far a result is from the exact one, as parts of ``|A| |B|``.

    Attributes
    ----------
    largest, root_mean_square : float
        Over the elements that were compared; infinite if any of the result is no finite number.
    bound : float
        What `pyclgemm.measure.verify.rounding_of` allows where nothing cancels, rounding to the
        result's type included.
    held : bool
        Whether every element that was compared is within its own bound.
    """

    largest: float
    root_mean_square: float
    bound: float
    held: bool


def measure_error(
    result: NDArray[Any], expected: SampledProduct, rounding: Rounding
) -> MeasuredError:
    """Compare a result with what it must be.

    Parameters
    ----------
    result : numpy.ndarray
        All of it, (m, n), in the type in which it was stored.
    expected : SampledProduct
        Some rows of it.
    rounding : Rounding
        What is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.eye(2)
    >>> expected = sample_product(one, one, np.random.default_rng(0))
    >>> measure_error(one, expected, Rounding(0.0, 0.0, 0.0))
    MeasuredError(largest=0.0, root_mean_square=0.0, bound=0.0, held=True)
    """
    bound = rounding.sums + rounding.storing
    with np.errstate(invalid="ignore"):
        if not np.isfinite(result.astype(np.float64, copy=False)).all():
            return MeasuredError(float("inf"), float("inf"), bound, held=False)
    error = np.abs(result[expected.rows].astype(np.float64) - expected.value)
    held = bool((error <= rounding.bound(expected.value, expected.magnitude)).all())
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(error == 0, 0.0, error / expected.magnitude)
    return MeasuredError(
        float(relative.max()), float(np.sqrt(np.square(relative).mean())), bound, held
    )
