"""Random matrices fill [-1, 1) in every type, in both parts of a complex number."""

from __future__ import annotations

import numpy as np
import pytest

from pyclgemm.measure.operands import uniform


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_numbers_spread_over_the_interval(rng, dtype):
    numbers = uniform(rng, (40, 50), dtype)
    assert numbers.shape == (40, 50)
    assert numbers.dtype == dtype
    assert numbers.flags.c_contiguous
    parts = (numbers.real, numbers.imag) if numbers.dtype.kind == "c" else (numbers,)
    for part in parts:
        assert -1 <= part.min() < -0.9
        assert 0.9 < part.max() <= 1  # float16 rounds up to 1
        assert len(np.unique(part)) > 1000
    assert abs(np.corrcoef(np.ravel(parts[0]), np.ravel(parts[-1]))[0, 1]) < 0.2 or len(parts) == 1
