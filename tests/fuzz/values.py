"""Elements of operands, of the sorts that find different faults."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tests.support.reference import COMPLEX_DTYPES

#: Sorts of elements, with how often each is drawn.
SORTS = {"uniform": 8, "integers": 6, "wide": 3, "special": 4, "large": 2, "tiny": 2}


def drawn_values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, sort: str, depth: int
) -> np.ndarray:
    """Elements of a sort; `depth` is how many products are summed."""
    if np.dtype(dtype).kind == "i":
        if sort == "integers":
            return rng.integers(-4, 5, shape).astype(dtype)
        return rng.integers(-128, 128, shape).astype(dtype)
    if dtype in COMPLEX_DTYPES:
        part = {"complex64": "float32", "complex128": "float64"}[dtype]
        values = np.empty(shape, dtype)
        values.real = _real_values(rng, shape, part, sort, depth)
        values.imag = _real_values(rng, shape, part, sort, depth)
        return values
    return _real_values(rng, shape, dtype, sort, depth)


def _real_values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, sort: str, depth: int
) -> np.ndarray:
    info = ml_dtypes.finfo(dtype)
    if sort == "integers":
        return rng.integers(-4, 5, shape).astype(dtype)
    values = rng.uniform(-1, 1, shape)
    if sort == "wide":
        reach = min(20, info.maxexp // 4)
        values = values * 2.0 ** rng.integers(-reach, reach + 1, shape)
    elif sort == "large":
        values = values * math.sqrt(float(info.max) / (8 * max(1, depth)))
    elif sort == "tiny":
        values = values * math.sqrt(float(info.tiny)) * 2.0 ** rng.integers(-2, 12, shape)
    with np.errstate(over="ignore"):
        found = values.astype(dtype)
    if sort == "special" and found.size:
        extremes = [
            math.nan, math.inf, -math.inf, -0.0, 0.0, float(info.smallest_subnormal),
            float(info.tiny), -float(info.max), float(info.max), float(info.eps),
        ]  # fmt: skip
        flat = found.reshape(-1)
        for place in rng.integers(0, flat.size, rng.integers(0, 4)):
            flat[place] = extremes[rng.integers(len(extremes))]
    return found
