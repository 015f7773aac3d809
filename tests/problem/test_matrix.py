"""A result whose entries share memory is refused, and no other."""

from contextlib import nullcontext

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from pyclgemm.errors import ShapeError
from pyclgemm.problem.matrix import check_writable
from pyclgemm.runtime.arrays import View

extents, strides = st.integers(0, 5), st.integers(-7, 7)


@given(extents, extents, strides, strides)
def test_a_result_is_refused_where_two_entries_share_memory(rows, columns, row, column):
    addresses = {i * row + j * column for i in range(rows) for j in range(columns)}
    is_shared = len(addresses) < rows * columns
    with pytest.raises(ShapeError, match="share memory") if is_shared else nullcontext():
        check_writable(View((rows, columns), (row * 2, column * 2), np.dtype(np.float16), 0))


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_result_may_have_any_strides(queue, sizes):
    m, n = sizes
    a, b = (cl_array.empty(queue, shape, np.float32) for shape in ((m, 3), (3, n)))
    out = cl_array.Array(queue, sizes, np.float32, strides=(0, 0))
    assert pyclgemm.gemm(queue, a, b, out=out) is out
