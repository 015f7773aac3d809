"""Elements as kernels load, store and pack them: bfloat16, k contiguous, in split terms."""

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.element import ElementType
from pyclgemm.codegen.pack import PackedForm, pack_launch
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import DtypeError
from pyclgemm.families.registry import family_of
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import PART_TYPES, resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.runtime.build import build_kernel
from tests.support.configs import BASES

# ------------------------------------------------------------------ bfloat16

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

SINGLE = ElementType("float32", "float32")
STORED = ElementType("bfloat16", "float32")
#: Elements at a time, and whether they are aligned to so many.
ACCESSES = [(1, True), (2, True), (2, False), (16, True), (16, False)]


def test_bfloat16_operands_are_multiplied_as_they_are():
    rounded = resolve_precision("BF16_BF16_F32", "float32")
    stored = resolve_precision(None, "bfloat16")
    assert stored.name == rounded.name and stored != rounded
    assert (stored.product_error, rounded.product_error) == (0.0, 2 * 2.0**-8 + 2.0**-16)
    for parts in (3, 6, 9):
        with pytest.raises(DtypeError, match="multiplies float32; the operands are bfloat16"):
            resolve_precision(f"BF16_BF16_F32_X{parts}", "bfloat16")


@pytest.fixture(scope="session")
def conversions(context):
    """A program with a kernel for each kind of load and of store."""
    product = GemmShape(8, 8, 8).product("bfloat16")
    config = BASES["direct"]
    gemm = family_of(config).source(product.problem, config, typical_traits("sm_90")).text
    function = gemm[gemm.index("static inline ushort bfloat16_of") :]
    kernels = [function[: function.index("\n}\n") + 3]]
    for width, aligned in ACCESSES:
        for kind, source, target in (("load", STORED, SINGLE), ("store", SINGLE, STORED)):
            position = f"get_global_id(0) * {width}"
            value = source.load(f"from + {position}", width, aligned=aligned)
            kernels.append(
                f"__kernel void {kind}{width}_{aligned:d}(\n"
                f"    const __global {source.stored} *from, __global {target.stored} *to)\n{{\n"
                f"    const {source.vector(width)} x = {value};\n"
                f"    {target.store('x', f'to + {position}', width, aligned=aligned)}\n}}\n"
            )
    return cl.Program(context, "\n".join(kernels)).build()


def check(queue, program, name, width, given, right):
    """Run a kernel; NaN stays NaN, and everything else must be right to the last bit."""
    device_in = cl_array.to_device(queue, given)
    device_out = cl_array.empty(queue, given.shape, right.dtype)
    kernel = cl.Kernel(program, name)
    kernel(queue, (given.size // width,), None, device_in.base_data, device_out.base_data)
    got = device_out.get()
    is_nan = np.isnan(right)
    assert (np.isnan(got) == is_nan).all()
    assert got[~is_nan].tobytes() == right[~is_nan].tobytes()


@pytest.mark.parametrize(("width", "aligned"), ACCESSES)
def test_it_is_loaded_exactly_and_stored_to_nearest_even(queue, conversions, width, aligned):
    given = np.arange(2**16, dtype=np.uint16).view(BFLOAT16)  # every one
    check(queue, conversions, f"load{width}_{aligned:d}", width, given, given.astype(np.float32))
    # Behind each, what lies before, at and after the middle to the next one.
    upper = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    given = np.ravel(upper | lower).view(np.float32)
    with np.errstate(all="ignore"):
        right = given.astype(BFLOAT16)
    check(queue, conversions, f"store{width}_{aligned:d}", width, given, right)


# ------------------------------------------------------------------ packed operands

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
