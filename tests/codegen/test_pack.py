"""Packed operands as matrix units take them: k contiguous, in parts."""

import math
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.codegen.pack import PackedForm, pack_launch
from pyclgemm.device.traits import traits_of
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import PART_TYPES
from pyclgemm.runtime.build import build_kernel

DEEP = PackedForm(along_k=True)


def packed(queue, matrix, name, data, padded, form=DEEP):
    """What the launch writes, as (part, row, along the row); the padding of rows is 0xff."""
    launch = pack_launch(
        "b", "out", matrix, name, data.dtype.name, padded, traits_of(queue.device), form
    )
    inner, outer = reversed(padded) if form.along_k else padded
    stored = {"float": "f4", "ushort": "u2"}[form.split.stored] if form.split else data.dtype
    result = np.full((form.terms, outer, inner + form.padding), 0xFF, np.uint8).astype(stored)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {
        "source": cl.Buffer(queue.context, flags, hostbuf=data),
        "destination": cl.Buffer(queue.context, flags, hostbuf=result),
    }
    kernel = build_kernel(queue.context, queue.device, launch.source)
    scalars = {"int": np.int32, "long": np.int64}
    for number, argument in enumerate(launch.source.arguments):
        value = buffers.get(argument.name)
        if value is None:
            value = scalars[argument.kind](launch.values.get(argument.name, matrix.offset))
        kernel.set_arg(number, value)
    cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.source.local_size)
    cl.enqueue_copy(queue, result, buffers["destination"])
    return result


def matrix_of(rows, columns, strides, offset=5):
    """A matrix, and its entries' places in a buffer."""
    places = np.add.outer(np.arange(rows) * strides[0], np.arange(columns) * strides[1])
    return Matrix(rows, columns, *strides, offset=offset), offset + places


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(("order", "along_k"), [("row", False), ("column", True)])
@pytest.mark.parametrize("aligned", [False, True])
def test_narrow_elements_are_turned_by_fours(queue, dtype, order, along_k, aligned):
    # More than a tile of 128 elements each way, and edges that cut a block of four.
    positions, depth, padded = 150, 134, (152, 144)
    lead = (152 if order == "column" else 136) + (not aligned)
    strides = (lead, 1) if order == "row" else (1, lead)
    matrix, places = matrix_of(positions, depth, strides, offset=8 if aligned else 5)
    data = (np.arange(places.max() + 1) % 113 - 50).astype(dtype)
    expected = np.zeros(padded, dtype)
    expected[:positions, :depth] = data[places]
    result = packed(queue, matrix, "a", data, padded, PackedForm(along_k=along_k))
    np.testing.assert_array_equal(result[0], expected if along_k else expected.T)


def test_rows_along_k_may_be_padded_apart(queue):
    matrix, places = matrix_of(20, 9, (1, 21))
    data = np.arange(1, 700, dtype=np.float64)
    result = packed(queue, matrix, "b", data, (12, 24), replace(DEEP, padding=3))
    np.testing.assert_array_equal(result[0, :9, :20], data[places].T)
    assert not result[0, 9:, :24].any()
    assert (result[..., 24:] == 0xFF).all()


def nearest(x, part):
    """Round float32 to the bits of a part, ties to even, in float64 and by NumPy's rint."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(fraction * 2.0**part.kept), exponent - part.kept)


@pytest.mark.parametrize("name", PART_TYPES)
def test_parts_add_up_to_the_element(queue, rng, name):
    part = PART_TYPES[name]
    parts = math.ceil(24 / part.kept) if name == "bfloat16" else 2
    data = (rng.standard_normal(3000) * 2.0 ** rng.integers(-60, 60, 3000)).astype(np.float32)
    data[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(np.float32).max, 1 + 2.0**-9, 1.0]
    matrix = Matrix(50, 60, 60, 1, 0)
    form = PackedForm(along_k=True, split=part, terms=parts)
    result = packed(queue, matrix, "a", data, (50, 64), form)
    if part.stored == "ushort":
        result = (result.astype(np.uint32) << 16).view(np.float32)
    assert not result[..., 60:].any()
    result = result[..., :60].reshape(parts, -1)
    finite = np.isfinite(data)
    ordinary = finite & (np.abs(data) < 1e38)
    np.testing.assert_array_equal(result[0, ordinary], nearest(data[ordinary], part))
    assert np.isfinite(result[:, finite]).all()
    np.testing.assert_array_equal(result[0, ~finite], data[~finite])
    # Rounded to nearest, a part leaves half of its last bit; with the parts' signs, three times
    # eight bits are all of a float32's.
    left = np.abs(result[:, finite].astype(np.float64).sum(axis=0) - data[finite])
    bound = 2.0 ** (-parts * part.kept) * np.abs(data[finite])
    assert (left <= (0.0 if name == "bfloat16" else bound)).all()
