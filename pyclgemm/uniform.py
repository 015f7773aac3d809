"""Random matrices for products that are timed and checked: zeros would run too fast."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Random numbers in [-1, 1), real and imaginary part each; all integers of an integer type.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the numbers.
    shape : tuple of int
        In elements.
    dtype : str
        NumPy name of a floating, complex or integer type.

    Examples
    --------
    >>> import numpy as np
    >>> uniform(np.random.default_rng(0), (2, 3), "complex64").dtype
    dtype('complex64')
    """
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    real = np.float64 if kind.itemsize // (2 if kind.kind == "c" else 1) == 8 else np.float32
    if kind.kind == "c":
        return uniform(rng, (*shape, 2), np.dtype(real).name).view(kind)[..., 0]
    numbers = rng.random(shape, dtype=real)
    numbers *= 2
    numbers -= 1
    return numbers.astype(kind, copy=False)
