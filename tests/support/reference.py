"""What a product must be, computed in float64, and how far a right one may be from it.

The bound, for each element of ``out = activation(alpha A B + beta C + bias)``. Let u be
the unit roundoff of the arithmetic and eps = 2 u; |X| takes absolute values per element.

1. A sum of k products in any order, with or without fma, is off by at most
   ``gamma(k) |A| |B|``, ``gamma(k) = k u / (1 - k u)`` (N. Higham, "Accuracy and Stability
   of Numerical Algorithms", 2002, section 3.5). The float64 reference errs by as much
   when float64 is what is tested: k u twice is k eps.
2. Rounding alpha to its type, multiplying by it, adding beta C and adding the bias are
   four more roundings of that sum. With those of the reference, of the slack in gamma and
   of the final conversion they are covered by 10 eps: ``(k + 10) eps |alpha| |A| |B|``.
3. beta C: rounding beta, the product, two additions, here and in the reference: at most
   ``4 eps |beta| |C|``. The bias: one addition on each side, and a conversion: ``2 eps |bias|``.
4. Complex: the real part is a sum of 2 k real products, and ``|a_r b_r| + |a_i b_i| <=
   |a| |b|``; the same holds for the imaginary part, so the modulus of the error is at most
   ``sqrt(2) (2 k + 10) eps |alpha| |A| |B|``. The multiplications by alpha and beta gain the
   same factor.
5. Activation f with Lipschitz constant L: an error e before it is at most L e after it.
   Its own evaluation adds at most 16 ulp of a factor below 1 (OpenCL allows ``erf`` 16,
   ``tanh`` 5, ``exp`` 3, a quotient 2.5), times |x| where f multiplies by x. `relu` adds none.
   Kernels of NVIDIA's units approximate to less than that, but for results of 16 bits: to half of
   what 7 allows for, since rounding to nearest takes the other half.
6. A precision that rounds elements to parts (of 11 bits in TF32, 8 in BF16; u_p = 2^-11, 2^-8)
   and adds t products of parts for each product: the sum has t k terms, and each product of
   elements is off by ``2 u_p + u_p^2`` with one part (TF32 may cut it off instead of rounding,
   which leaves 2 u_p of each element: ``4 u_p + 4 u_p^2``); with two by ``3 u_p^2 + 4 u_p^3``
   (u_p^2 of each element, and the product of the second parts, which is left out); with three
   parts of BF16, which hold all 24 bits, by the products that X6 leaves out: ``2 u_p^3 + u_p^4``.
   Elements that are bfloat16 in memory are multiplied as they are.
7. A result stored in a narrower type than that of the arithmetic (float16 from float32) is
   rounded once more: ``eps_stored |out|``. Below the smallest normal number, of either
   type, results may be flushed to zero.
8. Integers are exact: sums are those of int32, modulo 2^32. So are small integers among the
   floating-point numbers: if all partial sums, in any order, are integers below 2^p, p the bits of
   the significand, the result is that integer, rounded at most once to the type of the result.
9. Underflow. Numbers below the smallest normal number t may be flushed to zero, so each operation
   may be off by t more (Higham, section 2.8, has less for gradual underflow). A product of a and b
   is then off by at most t (1 + |a| + |b|) and t^2 more, a sum by t; over k terms, times alpha,
   that is ``|alpha| t (|A| 1 + 1 |B| + 2 k)``, with ``|A| 1`` the sums of a row. Alpha and beta
   themselves may be flushed: ``t (|A| |B| + |C|)``; so may what they are multiplied by, and the
   bias: ``t (|alpha| + |beta| + 4)``. All is doubled. Complex products have twice the terms.

Some elements are not predictable:

10. Where ``|alpha| |A| |B| + |beta| |C| + |bias|``, or ``|A| |B|``, comes near the largest number
    of the arithmetic, a partial sum may overflow in one order and not in another. The result may
    also come near the largest number of its type, and an operand of float32 may round to infinity
    in TF32 or bfloat16.
11. Infinities and NaN among the inputs that an element depends on: a real sum is NaN, or the
    infinity that IEEE 754 gives in any order, and must be just that, unless its finite terms may
    overflow. "relu" and no activation keep an infinity; with others, only a NaN is predictable. The
    result of a complex product with an infinity depends on the formula.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

REAL_DTYPES = ("float16", "float32", "float64")
COMPLEX_DTYPES = ("complex64", "complex128")
DTYPES = REAL_DTYPES + COMPLEX_DTYPES

#: By the precision's name: terms of a product, and its largest relative error.
_PARTS = {
    "TF32_TF32_F32": (1, 4 * 2**-11 + 4 * 2**-22),
    "TF32_TF32_F32_X3": (3, 3 * 2**-22 + 4 * 2**-33),
    "BF16_BF16_F32": (1, 2 * 2**-8 + 2**-16),
    "BF16_BF16_F32_X3": (3, 3 * 2**-16 + 4 * 2**-24),
    "BF16_BF16_F32_X6": (6, 2 * 2**-24 + 2**-32),
    "BF16_BF16_F32_X9": (9, 0.0),
}
#: By the first word of a precision: the largest number that does not round to infinity.
_LARGEST_OPERANDS = {
    "TF32": (2 - 2.0**-10) * 2.0**127,
    "BF16": float(ml_dtypes.finfo("bfloat16").max),
}


def _gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x):
    # tanh does not overflow where exp(-x) would.
    return 0.5 * (1 + np.tanh(0.5 * x))


@dataclass(frozen=True)
class Activation:
    """An activation, its Lipschitz constant, and its evaluation error in eps of max(1, |x|)."""

    function: Callable[[np.ndarray], np.ndarray]
    lipschitz: float
    evaluation: float


ACTIVATIONS = {
    "relu": Activation(lambda x: np.maximum(x, 0), 1.0, 0.0),
    "gelu": Activation(_gelu, 1.13, 16.0),
    "gelu_tanh": Activation(_gelu_tanh, 1.13, 16.0),
    "silu": Activation(lambda x: x * _sigmoid(x), 1.1, 16.0),
    "sigmoid": Activation(_sigmoid, 0.25, 16.0),
    "tanh": Activation(np.tanh, 1.0, 16.0),
}
#: Activations that keep infinities and integers.
_EXACT = (None, "relu")


@dataclass(frozen=True)
class Expected:
    """The result in float64 or complex128, and the largest error allowed at each element.

    `predictable` is the mask of elements that have but one right value, within that bound.
    """

    value: np.ndarray
    bound: np.ndarray
    predictable: Any = True


def transposed(matrix, trans):
    """op(matrix) for a `trans` of the contract."""
    if trans in (False, "N"):
        return matrix
    return matrix.T.conj() if trans == "C" else matrix.T


def arithmetic_of(dtype, precision=None):
    """The floating-point type that sums products."""
    if precision == "F16_F16_F16":
        return np.finfo(np.float16)
    return np.finfo(np.float64 if dtype in ("float64", "complex128") else np.float32)


@np.errstate(all="ignore")
def expected_gemm(
    a, b, c=None, *, alpha=1.0, beta=None, trans_a=False, trans_b=False, bias=None,
    activation=None, precision=None, result=None,
):  # fmt: skip
    """The product of arrays as they are stored, with its bound (see the module's text).

    `result` is the element type of the result, where it is not that of the operands.
    """
    dtype = a.dtype.name
    left, right = transposed(a, trans_a), transposed(b, trans_b)
    if dtype == "int8":
        return _expected_of_integers(left, right, c, alpha, beta, bias, activation)
    is_complex = dtype in COMPLEX_DTYPES
    wide = np.complex128 if is_complex else np.float64
    beta = beta or 0.0
    if alpha == 0:  # the operands are not read
        left, right = left[:, :0], right[:0]
    addend = np.zeros((1, 1)) if c is None or beta == 0 else c
    offset = np.zeros(1) if bias is None else bias
    terms = left, right, addend, offset = [
        one.astype(wide) for one in (left, right, addend, offset)
    ]
    before = alpha * (left @ right) + beta * addend + offset
    value = before if activation is None else ACTIVATIONS[activation].function(before)

    arithmetic, stored = arithmetic_of(dtype, precision), ml_dtypes.finfo(result or a.dtype)
    eps, tiny = float(arithmetic.eps), float(arithmetic.tiny)
    sizes, factors = [abs(one) for one in terms], (abs(alpha), abs(beta))
    products, whole = _sums(*sizes, *factors)
    rows, columns = sizes[0].sum(1, keepdims=True), sizes[1].sum(0, keepdims=True)
    factor, depth = (math.sqrt(2), 2 * left.shape[1]) if is_complex else (1, left.shape[1])
    split = precision if dtype == "float32" else None
    parts, product_error = _PARTS.get(split or "", (1, 0.0))
    relative = factor * (parts * depth + 10) * eps + product_error
    bound = relative * factors[0] * products
    bound += factor * eps * (4 * factors[1] * sizes[2] + 2 * sizes[3])
    flushed = factors[0] * (rows + columns + 2 * depth) + products + sizes[2] + sum(factors) + 4
    bound += 2 * tiny * flushed
    if activation is not None:
        bound *= ACTIVATIONS[activation].lipschitz
        bound += ACTIVATIONS[activation].evaluation * eps * np.maximum(1, abs(before))
    if float(stored.eps) > eps:
        bound += float(stored.eps) * abs(value)
    bound += 2 * max(float(stored.tiny), tiny)

    special = ~np.isfinite(value) & (np.isnan(before) | (activation in _EXACT)) & (not is_complex)
    fits = abs(value) + bound < 0.99 * float(stored.max)
    predictable = np.where(np.isfinite(before), fits, special)
    finite = [np.where(np.isfinite(one), abs(one), 0.0) for one in terms]
    for sums in _sums(*finite, *(one if math.isfinite(one) else 1.0 for one in factors)):
        predictable &= sums < 0.25 * float(arithmetic.max)
    most = _LARGEST_OPERANDS.get((precision or "").split("_")[0], math.inf)
    predictable &= ~(sizes[0] > most).any(1, keepdims=True)
    predictable &= ~(sizes[1] > most).any(0, keepdims=True)

    if activation in _EXACT and split not in _PARTS and _are_integers(*terms, alpha, beta):
        rounded = np.where(abs(value) < 2.0 ** (stored.nmant + 1), 0.0, float(stored.eps))
        bound = np.where(whole < 2.0 ** (arithmetic.nmant + 1), rounded * abs(value), bound)
    return Expected(value, bound, predictable)


def _sums(left, right, addend, offset, alpha, beta):
    """``|A| |B|``, and the complete sum, from the absolute values of all terms of a result."""
    products = left @ right
    return products, alpha * products + beta * addend + offset


def _are_integers(*arrays):
    return all((one == np.rint(one)).all() for one in arrays)


def _expected_of_integers(left, right, c, alpha, beta, bias, activation):
    value = int(alpha) * (left.astype(np.int64) @ right.astype(np.int64))
    if c is not None and beta:
        value = value + int(beta) * c.astype(np.int64)
    if bias is not None:
        value = value + bias
    value = value.astype(np.int32).astype(np.float64)  # wraps around, as sums of int32 do
    if activation is not None:
        value = ACTIVATIONS[activation].function(value)
    return Expected(value, np.zeros(value.shape))


def expected_einsum(subscripts, *operands, result=None):
    """`numpy.einsum` of arrays in float64, with the bound for any order of the sums and products.

    Contracting pair by pair takes at most two sums and one product for each operand, and a copy of
    each. Of every term of the whole sum, the number of roundings is then at most the number of
    terms, for additions, and 10 for each of these 4 steps, as in item 2 above: with S steps and K
    terms the error is at most ``(K + 10 S) eps`` of the sum of the absolute values (items 1 and 4).
    What lies between the steps may be stored in the narrower type of the operands: ``S eps_stored``
    more. A number that is flushed to zero on the way is multiplied by at most K terms, of factors
    that are at most 1 here.
    """
    dtype = operands[0].dtype.name
    shapes = [one.shape for one in operands]
    if dtype == "int8":
        value = np.asarray(np.einsum(subscripts, *[one.astype(np.int64) for one in operands]))
        value = value.astype(np.int32).astype(np.float64)
        return Expected(value, np.zeros(value.shape))
    is_complex = dtype in COMPLEX_DTYPES
    wide = [one.astype(np.complex128 if is_complex else np.float64) for one in operands]
    value = np.asarray(np.einsum(subscripts, *wide))
    sizes = np.asarray(np.einsum(subscripts, *map(abs, wide)))
    terms = max(1, math.prod(map(math.prod, shapes)) // max(1, value.size))
    arithmetic, between = arithmetic_of(dtype), ml_dtypes.finfo(operands[0].dtype)
    stored = ml_dtypes.finfo(result or operands[0].dtype)
    steps = 4 * len(operands)
    factor, depth = (math.sqrt(2), 2 * terms) if is_complex else (1, terms)
    relative = factor * (depth + 10 * steps) * float(arithmetic.eps)
    for finfo, count in ((between, steps), (stored, 1)):
        if float(finfo.eps) > float(arithmetic.eps):
            relative += count * float(finfo.eps)
    tiny = max(float(one.tiny) for one in (arithmetic, between, stored))
    return Expected(value, relative * sizes + 2 * steps * depth * tiny)


def expected_network(x, layers, precision=None):
    """What layers give one after the other: each a weight, a bias or None, an activation or None.

    Let a layer's input be off by e. Its result is off by ``L e |W|`` more, L the Lipschitz constant
    of its activation, and its own bound, which is linear in the input, grows by less than a
    hundredth of that. The reference rounds its input to the type that is stored, which is part of
    e.
    """
    value, error = x, np.zeros(x.shape)
    for weight, bias, activation in layers:
        stored = value.astype(weight.dtype)
        error = error + abs(stored.astype(np.float64) - value)
        result = None if bias is None else bias.dtype
        one = expected_gemm(
            stored, weight, bias=bias, activation=activation, precision=precision, result=result
        )
        lipschitz = ACTIVATIONS[activation].lipschitz if activation else 1.0
        carried = lipschitz * (error @ abs(weight.astype(np.float64)))
        value, error = one.value, one.bound + 1.01 * carried
    return Expected(value, error)


def fault_of(got, expected, told=True):
    """What is wrong with a result at the elements of the mask `told`; empty if it is right."""
    value, bound = expected.value, expected.bound
    if got.shape != value.shape:
        return f"the result is {got.shape}, and {value.shape} is wanted"
    wide = got.astype(value.dtype)
    with np.errstate(all="ignore"):
        near = np.abs(wide - value) <= bound  # a NaN in the result is wrong too
        same = (wide == value) | (np.isnan(wide) & np.isnan(value))
    wrong = told & ~np.where(np.isfinite(value), near, same)
    rows = [
        f"  {tuple(int(i) for i in index)}: got {wide[tuple(index)]}, "
        f"wanted {value[tuple(index)]} within {bound[tuple(index)]:.3g}"
        for index in np.argwhere(wrong)[:5]
    ]
    heading = f"{int(wrong.sum())} of {wrong.size} elements of a {got.shape} {got.dtype} result are"
    return "\n".join([f"{heading} wrong:", *rows]) if rows else ""


def assert_close(got, expected):
    """Each element within its bound; NaN and infinities exactly where they belong."""
    fault = fault_of(got, expected)
    assert not fault, fault


def random_array(rng, shape, dtype):
    """Values in (-1, 1), no two of them related, so that a misplaced element shows.

    Of integers all that an int8 has, and as many of an int32.
    """
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128, 128, shape).astype(dtype)
    values = rng.uniform(-1, 1, shape)
    if dtype in COMPLEX_DTYPES:
        values = values + 1j * rng.uniform(-1, 1, shape)
    return values.astype(dtype)


EXTENDED = np.longdouble


def transformed(tensors, matrix):
    """Each dimension of every tensor contracted with the rows of the matrix."""
    result = tensors.astype(EXTENDED)
    wide = matrix.astype(EXTENDED)
    for axis in (1, 2, 3):
        result = np.moveaxis(np.tensordot(result, wide, axes=(axis, 0)), -1, axis)
    return result


def assert_transformed(got, tensors, matrix, level=None):
    """Hold a transform of tensors against the reference, element by element.

    The reference contracts one dimension after the other in extended precision, or in float64 where
    NumPy has none. Three contractions in a row, in any order of the dimensions, are off by at most
    ``gamma(3 K)`` times the transform of the absolute values (Higham, lemma 3.3). The Kronecker
    product rounds each of its elements twice, and is summed over K^3: ``gamma(K^3 + 2)``. The
    reference's own error, in float64 of the same order, is covered by twice that.
    """
    assert got.shape == tensors.shape and got.dtype == tensors.dtype
    k = matrix.shape[0]
    steps = k**3 + 2 if level == "L6" else 3 * k
    unit = np.finfo(tensors.dtype).eps / 2
    bound = 2 * steps * unit / (1 - steps * unit) * transformed(abs(tensors), abs(matrix))
    error = np.abs(got.astype(EXTENDED) - transformed(tensors, matrix))
    # Below the smallest normal number results may be flushed to zero.
    worst = np.argmax(error - bound) if error.size else 0
    assert not error.size or (error <= bound + np.finfo(tensors.dtype).tiny).all(), (
        f"element {np.unravel_index(worst, error.shape)} is off by {error.flat[worst]:.3g}, at "
        f"most {bound.flat[worst]:.3g} is right; {np.isnan(got).sum()} of {got.size} are NaN"
    )
