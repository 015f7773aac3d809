"""What a transform of tensors must be, and how far a right one may be from it.

The reference contracts one dimension after the other in extended precision; where NumPy has none
(some platforms), in float64. u is the unit roundoff of the arithmetic that is tested.

A sum of K products in any order, with or without fma, is off by at most ``gamma(K) |A| |B|``,
``gamma(K) = K u / (1 - K u)`` (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002,
section 3.5). Three contractions in a row, in any order of the dimensions, multiply that: off by at
most ``gamma(3 K)`` times the transform of the absolute values (lemma 3.3). The Kronecker product
rounds each of its elements twice, and is summed over K^3: ``gamma(K^3 + 2)``. The reference's own
error, in float64 of the same order, is covered by twice that.
"""

import numpy as np

EXTENDED = np.longdouble


def transformed(tensors, matrix):
    """Each dimension of every tensor contracted with the rows of the matrix."""
    result = tensors.astype(EXTENDED)
    wide = matrix.astype(EXTENDED)
    for axis in (1, 2, 3):
        result = np.moveaxis(np.tensordot(result, wide, axes=(axis, 0)), -1, axis)
    return result


def assert_transformed(got, tensors, matrix, level=None):
    """Hold a result against the reference, element by element."""
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
