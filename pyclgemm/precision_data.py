"""Random operands on which algorithms differ, and what their product must be, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .verification import Rounding

#: Multiply-adds that a reference may cost; a larger product is compared in some rows.
_MOST_WORK = 1 << 29
#: Rows that are compared at least.
_LEAST_ROWS = 8
#: Columns of B that are widened to float64 at a time.
_BLOCK = 1024

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
    for start in range(0, n, _BLOCK):
        block = b[:, start : start + _BLOCK].astype(np.float64)
        value[:, start : start + _BLOCK] = left @ block
        magnitude[:, start : start + _BLOCK] = np.abs(left) @ np.abs(block)
    return SampledProduct(rows, value, magnitude)


@dataclass(frozen=True)
class MeasuredError:
    """How far a result is from the exact one, as parts of ``|A| |B|``.

    Attributes
    ----------
    largest, root_mean_square : float
        Over the elements that were compared; infinite if any of the result is no finite number.
    bound : float
        What `pyclgemm.verification.rounding_of` allows where nothing cancels, rounding to the
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
