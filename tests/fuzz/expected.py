"""The right result for inputs of any kind: which elements are predictable, and within what bound.

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
   order and not in another, so the element is not predictable. Nor is it if the result comes near
   the largest number of its type, or if an operand of float32 rounds to infinity in TF32 or
   bfloat16.
3. Infinities and NaN among the inputs that an element depends on. A real sum is NaN, or the
   infinity that IEEE 754 gives in any order, and must be just that. "relu" and no activation keep
   an infinity; with others, only a NaN is predictable. The result of a complex product with an
   infinity depends on the formula, so elements that depend on one are not predictable.
4. Small integers. If all partial sums, in any order, are integers below 2^p, p the bits of the
   arithmetic's significand, every operation is exact: the result must be that integer, rounded at
   most once to the type of the result.
"""

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.support import reference

#: The largest numbers that a matrix unit's type does not round to infinity.
_LARGEST_OPERANDS = {
    "TF32": (2 - 2.0**-10) * 2.0**127,
    "BF16": float(ml_dtypes.finfo("bfloat16").max),
}

#: Activations that keep infinities.
_KEEPS_INFINITIES = (None, "relu")


@dataclass(frozen=True)
class Wanted(reference.Expected):
    """A right result, and the mask of predictable elements."""

    predictable: np.ndarray


def _sums(arrays, numbers):
    """``|A| |B|``, and the complete sum, from the absolute values of all terms of a result."""
    left, right, addend, offset = arrays
    alpha, beta = numbers
    products = left @ right
    return products, alpha * products + beta * addend + offset


@np.errstate(all="ignore")
def wanted_product(
    a, b, c, bias, result, *, trans_a="N", trans_b="N", alpha=1.0, beta=None, activation=None,
    precision=None,
):  # fmt: skip
    """The right result of a product of arrays as stored; `result` is its element type."""
    a, b = reference.transposed(a, trans_a), reference.transposed(b, trans_b)
    options = {"bias": bias, "alpha": alpha, "beta": beta, "precision": precision, "result": result}
    expected = reference.expected_gemm(a, b, c, activation=activation, **options)
    value, bound = expected.value, expected.bound
    if a.dtype.name == "int8":
        return Wanted(value, bound, np.ones(value.shape, bool))
    is_complex = a.dtype.name in reference.COMPLEX_DTYPES
    arithmetic = reference.arithmetic_of(a.dtype.name, precision)
    stored = ml_dtypes.finfo(result)
    nothing = np.zeros(value.shape)
    read = (
        *((a, b) if alpha else (a[:, :0], b[:0])),
        c if c is not None and beta else nothing,
        nothing[:1] if bias is None else bias,
    )
    wide = np.complex128 if is_complex else np.float64
    arrays = left, right, addend, _ = [abs(one.astype(wide)) for one in read]
    numbers = [abs(alpha), abs(beta or 0.0)]
    products, whole = _sums(arrays, numbers)

    depth = left.shape[1] * (2 if is_complex else 1)
    rows, columns = left.sum(1, keepdims=True), right.sum(0, keepdims=True)
    slope = 1.13 if activation else 1.0
    flushed = abs(alpha) * (rows + columns + 2 * depth) + products + addend
    flushed += sum(numbers) + 4
    bound = bound + 2 * slope * float(arithmetic.tiny) * flushed

    largest = 0.25 * float(arithmetic.max)
    fits = np.isfinite(whole) & (whole < largest) & (products < largest)
    fits &= abs(value) + bound < 0.99 * float(stored.max)
    predictable = fits
    if not is_complex:
        # An overflow of finite terms could change an infinity to NaN.
        finite = [np.isfinite(one) for one in arrays]
        is_finite = finite[0].all(1, keepdims=True) & finite[1].all(0, keepdims=True)
        infinite = ~(is_finite & finite[2] & finite[3] & np.isfinite(numbers).all())
        parts = map(np.where, finite, arrays, [0.0] * 4)
        for sums in _sums(parts, [one if math.isfinite(one) else 1.0 for one in numbers]):
            infinite &= sums < largest
        if activation not in _KEEPS_INFINITIES:
            # A NaN before the activation stays NaN.
            before = reference.expected_gemm(a, b, c, **options)
            infinite &= np.isnan(before.value) & np.isnan(value)
        predictable = fits | (infinite & ~np.isfinite(value))
    # The name of a precision begins with the type of the rounded operands.
    most = _LARGEST_OPERANDS.get((precision or "").split("_")[0], math.inf)
    overflows = (left > most).any(1, keepdims=True) | (right > most).any(0, keepdims=True)
    predictable = predictable & ~overflows

    if activation in _KEEPS_INFINITIES and precision in (None, "F16_F16_F16"):
        numbers = np.array([alpha, beta or 0])
        read = (a, b, bias, numbers, c if beta else None)
        is_exact = not numbers.imag.any() and all(map(_are_integers, read))
        exact = fits & (whole < 2.0 ** (arithmetic.nmant + 1)) & is_exact
        rounded = np.where(abs(value) < 2.0 ** (stored.nmant + 1), 0.0, float(stored.eps))
        bound = np.where(exact, rounded * abs(value), bound)
    return Wanted(value, bound, predictable)


def _are_integers(array):
    if array is None:
        return True
    wide = array.astype(np.complex128)
    return bool(np.isfinite(wide).all() and (wide == np.rint(wide)).all())
