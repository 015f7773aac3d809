"""What a result must be for inputs of any kind: which elements are told, and within what bound.

`tests.support.reference` has the product in float64 and the bound of Higham's model, fl(x op y) =
(x op y)(1 + d), |d| <= u (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002,
sections 2.2 and 3.5), derived there step by step. It holds while nothing overflows or underflows.
This module adds what other inputs need:

1. Underflow. The model becomes (x op y)(1 + d) + e with |e| at most the smallest normal number t,
   for results and operands below it may be flushed to zero (Higham, section 2.8, has e for gradual
   underflow, which is smaller). A product of a and b is then off by at most
   t (1 + |a| + |b|) and t^2 more, a sum by t; over k terms, times alpha, that is
   ``|alpha| t (|A| 1 + 1 |B| + 2 k)``, with ``|A| 1`` the sums of a row. Alpha and beta themselves
   may be flushed: ``t (|A| |B| + |C|)``; so may what they are multiplied by, and the bias:
   ``t (|alpha| + |beta| + 4)``. All is doubled. Complex products have twice the terms.
2. Overflow. Where ``|alpha| |A| |B| + |beta| |C| + |bias|``, or ``|A| |B|``, or what is added to
   it, comes near the largest number of the arithmetic, an intermediate sum may overflow in one
   order and not in another: nothing is told. Nor where the result comes near that of its type,
   nor where rounding an operand of float32 to TF32 or bfloat16 comes to infinity.
3. Infinities and NaN among the inputs that an element depends on. Real sums: it is NaN, or the
   infinity that IEEE 754 gives in any order; then it must be just that. An infinity goes through
   "relu" and no activation; through others, only a NaN is told. Complex products with infinities
   differ with the formula that is used: nothing is told of the elements that depend on one.
4. Small integers. Where all partial sums, of any order, are integers below 2^p, p the bits of the
   arithmetic's significand, every operation is exact: the result must be that integer, rounded at
   most once to the type of the result.
"""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.reference import (
    COMPLEX_DTYPES,
    Expected,
    arithmetic_of,
    expected_gemm,
    transposed,
)

#: The largest numbers that do not become infinity as they are rounded for a matrix unit.
_LARGEST_OPERANDS = {
    "TF32": (2 - 2.0**-10) * 2.0**127,
    "BF16": float(ml_dtypes.finfo("bfloat16").max),
}

#: Activations that hand infinities on as they are.
_KEEPS_INFINITIES = (None, "relu")


@dataclass(frozen=True)
class Wanted(Expected):
    """A right result, and the elements of which something is promised."""

    told: np.ndarray


@dataclass(frozen=True)
class Scalars:
    """The numbers and names of a product, as `pyclgemm.gemm` takes them."""

    alpha: complex = 1.0
    beta: complex | None = None
    trans_a: str = "N"
    trans_b: str = "N"
    activation: str | None = None
    precision: str | None = None


def wanted_product(
    a: np.ndarray, b: np.ndarray, c: Any, bias: Any, scalars: Scalars, result: str
) -> Wanted:
    """The result of one product of arrays as they are stored; `result` is its element type."""
    dtype = a.dtype.name
    with np.errstate(all="ignore"):
        reference = expected_gemm(
            a, b, c, alpha=scalars.alpha, beta=scalars.beta, trans_a=scalars.trans_a,
            trans_b=scalars.trans_b, bias=bias, activation=scalars.activation,
            precision=scalars.precision, result=result,
        )  # fmt: skip
        if dtype == "int8":
            told = np.ones(reference.value.shape, bool)
            return Wanted(reference.value, reference.bound, told)
        return _with_limits(reference.value, reference.bound, a, b, c, bias, scalars, result)


def _with_limits(
    value: np.ndarray, bound: np.ndarray, a: np.ndarray, b: np.ndarray, c: Any, bias: Any,
    scalars: Scalars, result: str,
) -> Wanted:  # fmt: skip
    dtype = a.dtype.name
    is_complex = dtype in COMPLEX_DTYPES
    wide = np.complex128 if is_complex else np.float64
    arithmetic = arithmetic_of(dtype, scalars.precision)
    stored = ml_dtypes.finfo(result)
    alpha, beta = abs(scalars.alpha), abs(scalars.beta or 0.0)
    uses_c = c is not None and scalars.beta not in (None, 0)
    left, right = transposed(a, scalars.trans_a), transposed(b, scalars.trans_b)
    left, right = abs(left.astype(wide)), abs(right.astype(wide))
    if scalars.alpha == 0:
        left, right = left[:, :0], right[:0]
    depth = left.shape[1] * (2 if is_complex else 1)
    rows, columns = left.sum(1, keepdims=True), right.sum(0, keepdims=True)
    products = left @ right
    addend = abs(c.astype(wide)) if uses_c else np.zeros(value.shape)
    offset = abs(bias.astype(wide)) if bias is not None else np.zeros(value.shape[1])
    whole = alpha * products + beta * addend + offset

    tiny = float(arithmetic.tiny)
    slope = 1.13 if scalars.activation else 1.0
    flushed = alpha * (rows + columns + 2 * depth) + products + addend + alpha + beta + 4
    bound = bound + 2 * slope * tiny * flushed

    finite = np.isfinite(whole)
    largest = 0.25 * float(arithmetic.max)
    fits = finite & (whole < largest) & (products < largest)
    fits &= abs(value) + bound < 0.99 * float(stored.max)
    infinite = _infinite_inputs(left, right, addend, offset, scalars)
    told = fits | (infinite & ~_nearly_overflows(left, right, addend, offset, largest, scalars))
    if is_complex:
        told = fits
    else:
        if scalars.activation not in _KEEPS_INFINITIES:
            told &= fits | _must_be_nan(value, scalars.activation, a, b, c, bias, scalars)
        told &= fits | np.isnan(value) | np.isinf(value)
    # The name of a precision begins with what operands are rounded to.
    most = _LARGEST_OPERANDS.get((scalars.precision or "").split("_")[0], math.inf)
    told &= ~((left > most).any(1, keepdims=True) | (right > most).any(0, keepdims=True))

    if scalars.activation in _KEEPS_INFINITIES and scalars.precision in (None, "F16_F16_F16"):
        digits = 2.0 ** (arithmetic.nmant + 1)
        exact = fits & (whole < digits) & _all_integers(a, b, c if uses_c else None, bias, scalars)
        rounded = np.where(abs(value) < 2.0 ** (stored.nmant + 1), 0.0, float(stored.eps))
        bound = np.where(exact, rounded * abs(value), bound)
    return Wanted(value, bound, told)


def _all_integers(a: Any, b: Any, c: Any, bias: Any, scalars: Scalars) -> bool:
    numbers = (scalars.alpha, scalars.beta or 0)
    if any(complex(one).imag or not complex(one).real.is_integer() for one in numbers):
        return False
    for array in (a, b, c, bias):
        if array is not None and array.size:
            parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
            for part in parts:
                part = part.astype(np.float64)
                if not (np.isfinite(part).all() and (part == np.rint(part)).all()):
                    return False
    return True


def _infinite_inputs(
    left: np.ndarray, right: np.ndarray, addend: np.ndarray, offset: np.ndarray, scalars: Scalars
) -> np.ndarray:
    """Elements that depend on a NaN or an infinity."""
    row = ~np.isfinite(left).all(1, keepdims=True)
    column = ~np.isfinite(right).all(0, keepdims=True)
    numbers = not all(math.isfinite(abs(one or 0)) for one in (scalars.alpha, scalars.beta))
    found: np.ndarray = row | column | ~np.isfinite(addend) | ~np.isfinite(offset)
    return found | numbers


def _nearly_overflows(
    left: np.ndarray, right: np.ndarray, addend: np.ndarray, offset: np.ndarray, largest: float,
    scalars: Scalars,
) -> np.ndarray:  # fmt: skip
    """Elements whose finite parts alone may overflow, which could change an infinity to NaN."""
    parts = [np.where(np.isfinite(one), one, 0.0) for one in (left, right, addend, offset)]
    alpha, beta = (abs(one or 0) for one in (scalars.alpha, scalars.beta))
    alpha, beta = (one if math.isfinite(one) else 1.0 for one in (alpha, beta))
    products = parts[0] @ parts[1]
    whole = alpha * products + beta * parts[2] + parts[3]
    return ~((products < largest) & (whole < largest))


def _must_be_nan(
    value: np.ndarray, activation: Any, a: Any, b: Any, c: Any, bias: Any, scalars: Scalars
) -> np.ndarray:
    """Elements that are NaN before the activation: those stay so."""
    plain = expected_gemm(
        a, b, c, alpha=scalars.alpha, beta=scalars.beta, trans_a=scalars.trans_a,
        trans_b=scalars.trans_b, bias=bias, precision=scalars.precision,
    )  # fmt: skip
    return np.isnan(plain.value) & np.isnan(value)
