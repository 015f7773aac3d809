"""Elements as kernels load, store and pack them: bfloat16, k contiguous, in split terms."""

import math

import ml_dtypes
import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.codegen.element import ElementType
from pyclgemm.codegen.launch import Schedule
from pyclgemm.codegen.pack import PackedForm, pack_launch
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import DtypeError
from pyclgemm.families.registry import family_of
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import PART_TYPES, resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.runtime.launcher import LaunchSequence
from pyclgemm.runtime.queue_state import queue_state
from tests.support.arrays import upload
from tests.support.buffers import blank
from tests.support.configs import DIRECT

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SINGLE = ElementType("float32", "float32")
STORED = ElementType("bfloat16", "float32")
#: Elements of a vector, and whether vectors are aligned.
ACCESSES = [(1, True), (2, True), (2, False), (16, True), (16, False)]


def test_bfloat16_operands_are_multiplied_without_rounding():
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
    problem = GemmShape(8, 8, 8).problem("bfloat16")
    gemm = family_of(DIRECT).source(problem, DIRECT, typical_traits("sm_90")).text
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


def check(queue, program, name, width, values, right):
    """Run a kernel; NaN stays NaN, and everything else must be right to the last bit."""
    source, result = upload(queue, values, blank(right.shape, right.dtype))
    kernel = cl.Kernel(program, name)
    kernel(queue, (values.size // width,), None, source.base_data, result.base_data)
    got, is_nan = result.get(), np.isnan(right)
    assert (np.isnan(got) == is_nan).all()
    assert got[~is_nan].tobytes() == right[~is_nan].tobytes()


@pytest.mark.parametrize(("width", "aligned"), ACCESSES)
def test_bfloat16_is_loaded_exactly_and_stored_to_nearest_even(queue, conversions, width, aligned):
    every = np.arange(2**16, dtype=np.uint16).view(BFLOAT16)
    check(queue, conversions, f"load{width}_{aligned:d}", width, every, every.astype(np.float32))
    # After each value: numbers before, at and after the middle to the next one.
    upper = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = np.ravel(upper | lower).view(np.float32)
    with np.errstate(all="ignore"):
        right = values.astype(BFLOAT16)
    check(queue, conversions, f"store{width}_{aligned:d}", width, values, right)


def packed(queue, matrix, name, data, padded, form):
    """The packed operand as (term, row, along the row); the padding of rows stays NaN."""
    traits = traits_of(queue.device)
    launch = pack_launch("b", "out", matrix, name, data.dtype.name, padded, traits, form)
    inner, outer = reversed(padded) if form.along_k else padded
    stored = {"float": "f4", "ushort": "u2"}[form.split.stored] if form.split else data.dtype
    shape = form.terms, outer, inner + form.padding
    source, result = upload(queue, data, blank(shape, stored))
    sequence = LaunchSequence(queue_state(queue), Schedule((launch,)), {"b": "b", "out": "out"})
    sequence.enqueue([source[matrix.offset :], result])
    return result.get()


def matrix_of(rows, columns, strides, offset=5):
    """A matrix, and the indices of its entries in a buffer."""
    indices = np.add.outer(np.arange(rows) * strides[0], np.arange(columns) * strides[1])
    return Matrix(rows, columns, *strides, offset=offset), offset + indices


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(("order", "along_k"), [("row", False), ("column", True)])
@pytest.mark.parametrize("aligned", [False, True])
def test_narrow_elements_are_transposed_by_fours(queue, dtype, order, along_k, aligned):
    # More than a tile of 128 elements each way, and edges that cut a block of four.
    positions, depth, padded = 150, 134, (152, 144)
    lead = (152 if order == "column" else 136) + (not aligned)
    strides = (lead, 1) if order == "row" else (1, lead)
    matrix, indices = matrix_of(positions, depth, strides, offset=8 if aligned else 5)
    data = (np.arange(indices.max() + 1) % 113 - 50).astype(dtype)
    expected = np.zeros(padded, dtype)
    expected[:positions, :depth] = data[indices]
    result = packed(queue, matrix, "a", data, padded, PackedForm(along_k=along_k))
    np.testing.assert_array_equal(result[0], expected if along_k else expected.T)


def test_rows_along_k_may_be_padded(queue):
    matrix, indices = matrix_of(20, 9, (1, 21))
    data = np.arange(1, 700, dtype=np.float64)
    result = packed(queue, matrix, "b", data, (12, 24), PackedForm(along_k=True, padding=3))
    np.testing.assert_array_equal(result[0, :9, :20], data[indices].T)
    assert not result[0, 9:, :24].any()
    assert np.isnan(result[..., 24:]).all()


def nearest(x, part):
    """Round float32 to the bits of a part type, ties to even."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(fraction * 2.0**part.kept), exponent - part.kept)


@pytest.mark.parametrize("name", PART_TYPES)
def test_split_terms_add_up_to_the_element(queue, rng, name):
    part = PART_TYPES[name]
    terms = math.ceil(24 / part.kept) if name == "bfloat16" else 2
    data = (rng.standard_normal(3000) * 2.0 ** rng.integers(-60, 60, 3000)).astype(np.float32)
    data[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(np.float32).max, 1 + 2.0**-9, 1.0]
    matrix = Matrix(50, 60, 60, 1, 0)
    form = PackedForm(along_k=True, split=part, terms=terms)
    result = packed(queue, matrix, "a", data, (50, 64), form)
    if part.stored == "ushort":
        result = (result.astype(np.uint32) << 16).view(np.float32)
    assert not result[..., 60:].any()
    result = result[..., :60].reshape(terms, -1)
    finite = np.isfinite(data)
    ordinary = finite & (np.abs(data) < 1e38)
    np.testing.assert_array_equal(result[0, ordinary], nearest(data[ordinary], part))
    assert np.isfinite(result[:, finite]).all()
    np.testing.assert_array_equal(result[0, ~finite], data[~finite])
    # Rounding to nearest leaves at most half of a term's last bit. Three bfloat16 terms, which have
    # signs, hold all 24 bits of a float32.
    error = np.abs(result[:, finite].astype(np.float64).sum(axis=0) - data[finite])
    bound = 2.0 ** (-terms * part.kept) * np.abs(data[finite])
    assert (error <= (0.0 if name == "bfloat16" else bound)).all()
