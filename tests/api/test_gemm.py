"""gemm: types, layouts, sizes, factors, NaN, views, and arrays of the host and of the device."""

from unittest.mock import Mock

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given, strategies as st

import pyclgemm
from tests.support import buffers
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.buffers import COLUMN, ROW, Layout
from tests.support.cases import LAYOUTS, all_pairs
from tests.support.checks import cases, check_gemm
from tests.support.reference import DTYPES, random_array

pytestmark = pytest.mark.any_runtime

BACKWARDS = Layout(flip_rows=True)
MIRRORED = Layout(flip_rows=True, flip_columns=True)
VIEWS = (*LAYOUTS, BACKWARDS, MIRRORED)
OPERANDS = (*VIEWS, Layout("broadcast"))
SIZES = [
    (37, 29, 53), (64, 48, 80), (1, 1, 1), (1, 257, 100), (257, 1, 100), (1, 1, 3000), (5, 37, 600),
    (300, 200, 1), (19, 23, 0), (0, 5, 4), (5, 0, 4), (0, 0, 0), (0, 5, 0), (5, 0, 0),
]  # fmt: skip
#: Options of `check_gemm`.
PRODUCTS = [
    *all_pairs(dtype=DTYPES, sizes=SIZES, a=OPERANDS, b=OPERANDS, out=VIEWS, pack=(False, True)),
    {"sizes": (21, 35, 24), "dtype": "float16", "precision": "F16_F16_F16"},
    *cases(trans_a=(False, True, np.True_), trans_b=(False, True)),
    # A column-major result is computed as the transposed product: B conjugated comes first.
    *cases(dtype=["complex64"], out=[COLUMN], trans_a="TC", trans_b="TC", pack=(False, True)),
    # Beyond every tile and block. Workspace for all rows (or columns) of an operand at once would
    # take gigabytes.
    *cases(sizes=[(3, 5, 2500), (301, 523, 1031), (1_500_000, 3, 4), (3, 1_500_000, 4)]),
    # More rows than any kernel packs.
    {"sizes": (20_001, 5, 1100), "dtype": "float16", "c": ROW, "beta": 0.5},
    # Partial sums that were rounded to float16 between blocks of k would miss the bound.
    *cases(sizes=[(9, 35, 2100)], dtype=DTYPES),
    {"sizes": (11, 37, 2100), "in_place": True, "alpha": 0.5, "beta": 2.0},
    *(
        {"c": ROW, "alpha": one, "beta": one}
        for one in (np.float32(0.5), np.float64(0.5), np.int64(2), 2, 2.0)
    ),
    {"beta": 0},  # without an addend
    # Matrices whose factor is zero are NaN: they must not be read.
    *cases([{"c": ROW}, {"in_place": True}], beta=(0, 0.0, -0.0, np.float32(0))),
    *cases([{}, {"c": ROW, "beta": 2}], alpha=[0]),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", PRODUCTS)
def test_products(queue, require, options):
    require(options.get("dtype", "float32"), options.get("precision"))
    check_gemm(queue, **{"sizes": (37, 29, 53)} | options)


@given(alpha=st.floats(-4, 4, width=32), beta=st.floats(-4, 4, width=32), in_place=st.booleans())
def test_any_alpha_and_beta(queue, alpha, beta, in_place):
    c = None if in_place else ROW
    check_gemm(queue, (13, 35, 21), c=c, in_place=in_place, alpha=alpha, beta=beta)


ANY_LAYOUT = st.builds(
    Layout,
    order=st.sampled_from(["row", "column", "strided"]),
    gap=st.integers(0, 9),
    alignment=st.sampled_from([1, 2, 4, 8, 16]),
    flip_rows=st.booleans(),
    flip_columns=st.booleans(),
)


@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    layouts=st.fixed_dictionaries(dict.fromkeys(("a", "b", "c", "out"), ANY_LAYOUT)),
    pack=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_strides(queue, sizes, layouts, pack, seed):
    check_gemm(queue, sizes, beta=0.5, pack=pack, seed=seed, **layouts)


@pytest.mark.parametrize("is_row", [True, False], ids=["row vector", "column vector"])
@pytest.mark.parametrize("unused", [0, 1, 7, -3, 1000])
def test_strides_of_an_index_of_extent_1(queue, rng, is_row, unused):
    # They may be anything: zero, or strides by which entries would overlap.
    values = random_array(rng, (1, 33) if is_row else (33, 1), "float32")
    strides = (unused, 1) if is_row else (1, unused)
    view = buffers.GuardedArray(queue, values, strides)
    out = buffers.GuardedArray(queue, buffers.blank((1, 1), "float32"), (unused, unused))
    options = {"trans_b": True} if is_row else {"trans_a": True}
    pyclgemm.gemm(queue, view.array, view.array, out=out.array, **options)
    assert_gemm(out.get(), values, values, **options)


@pytest.mark.parametrize("sizes", [(0, 5, 4), (5, 0, 4), (5, 4, 0)], ids=str)
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_a_new_result_that_is_empty_or_of_no_depth(queue, sizes, on_device):
    m, n, k = sizes
    operands = np.empty((m, k), np.float32), np.empty((k, n), np.float32)
    given = upload(queue, *operands) if on_device else operands
    out, event = pyclgemm.gemm(queue, *given, return_event=True)
    event.wait()
    assert_gemm(out, *operands)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_non_finite_values_spread_as_in_numpy(queue, rng, operand, value):
    arrays = draw(rng, (37, 53), (53, 29), (37, 29))
    arrays[operand][17, 11] = value
    assert_gemm(pyclgemm.gemm(queue, *arrays, beta=1), *arrays, beta=1)


def test_infinite_elements_and_results_beyond_the_largest_number(queue):
    inf = np.inf
    for dtype, a, b, expected in (
        ("float32", [[inf, 1], [1, 1]], [[0, 1], [1, 1]], [[np.nan, inf], [1, 2]]),
        # 40000 + 40000 exceeds float16, the sum of all three products does not.
        ("float16", [[200, 200, 200]], [[200], [200], [-200]], [[40000]]),
        ("float16", [[200, 200, 200]], [[200], [200], [200]], [[inf]]),
    ):
        got = pyclgemm.gemm(queue, np.array(a, dtype), np.array(b, dtype))
        np.testing.assert_array_equal(got, expected)


def test_a_new_result_is_row_major_and_in_memory_of_the_allocator(queue):
    memory = cl_array.cl.mem_flags.READ_WRITE
    allocate = Mock(side_effect=lambda size: cl_array.cl.Buffer(queue.context, memory, size))
    a, b = upload(queue, np.ones((9, 8), np.float32), np.ones((8, 10), np.float32))
    for allocator in (None, allocate):
        out = pyclgemm.gemm(queue, a, b, allocator=allocator)
        assert isinstance(out, cl_array.Array)
        assert out.shape == (9, 10) and out.flags.c_contiguous and out.queue == queue
        np.testing.assert_array_equal(out.get(), np.full((9, 10), 8))
    assert any(call.args[0] >= 360 for call in allocate.mock_calls)


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_calls_agree_bit_for_bit(queue, require, rng, dtype):
    require(dtype)
    a, b = draw(rng, (61, 200), (200, 67), dtype=dtype)
    first = pyclgemm.gemm(queue, a, b)
    default = {"float16": "F16_F16_F32", "float64": "F64_F64_F64", "complex128": "F64_F64_F64"}
    for precision in (None, None, default.get(dtype, "F32_F32_F32")):
        np.testing.assert_array_equal(pyclgemm.gemm(queue, a, b, precision=precision), first)


VIEWS = {
    "T": ("float16", lambda x: x.T),
    "rows reversed": ("float64", lambda x: x[::-1]),
    "columns reversed": ("float32", lambda x: x[:, ::-1]),
    "columns reversed, T": ("complex64", lambda x: x[:, ::-1].T),
    "steps": ("float32", lambda x: x[::2, ::3]),
    "Fortran": ("complex128", lambda x: x.T.copy().T),
    "slice": ("float32", lambda x: x[3:, 5:]),
}


@pytest.mark.parametrize(("dtype", "view"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_views(queue, require, rng, dtype, view, on_device):
    require(dtype)
    host = random_array(rng, (40, 40), dtype)
    base = upload(queue, host)[0] if on_device else host
    got = pyclgemm.gemm(queue, view(base), view(base).T)
    assert type(got) is type(base) and got.dtype == host.dtype
    assert_gemm(got, view(host), view(host).T)


#: Two operands and a destination in one matrix.
SHARES = {
    "interleaved columns": lambda x: (x[:, 0::3], x[:, 1::3], x[:, 2::3]),
    "inner block, transposed": lambda x: (x[:20, :20], x[:20, 20:40], x[2:22, 45:65].T),
}


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
def test_operands_and_destination_of_one_buffer(queue, rng, share):
    host = random_array(rng, (24, 72), "float32")
    (base,) = upload(queue, host)
    a, b, out = share(base)
    pyclgemm.gemm(queue, a, b, out=out)
    after = base.get()
    left, right, before = share(host)
    assert_gemm(share(after)[2], left, right)
    share(after)[2][...] = before
    np.testing.assert_array_equal(after, host)


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_numpy_out_is_filled_and_returned(queue, rng, order):
    a, b = draw(rng, (37, 53), (53, 29))
    base = np.full((74, 87), np.nan, np.float32)
    out = base[::2, ::3] if order == "strided" else np.full((37, 29), np.nan, np.float32, order)
    assert pyclgemm.gemm(queue, a, b, out=out) is out
    assert_gemm(out, a, b)
    if order == "strided":
        assert np.isnan(base).sum() == base.size - out.size


def test_numpy_c_in_place_and_a_destination_over_an_operand(queue, rng):
    a, b, c = draw(rng, *[(20, 20)] * 3)
    before = c.copy()
    assert pyclgemm.gemm(queue, a, b, c, beta=1, out=c) is c
    assert_gemm(c, a, b, before, beta=1)
    # As in NumPy, a destination may overlap an operand: operands are copied to the device first.
    for operand in "ab":
        ones, shared = np.ones((4, 4), np.float32), np.ones((6, 4), np.float32)
        pyclgemm.gemm(queue, **{"a": ones, "b": ones, operand: shared[:4]}, out=shared[1:5])
        np.testing.assert_array_equal(shared[1:5], 4 * ones)


@pytest.mark.parametrize("on_device", ["a", "b", "out", "a b"])
def test_arrays_of_the_host_and_of_the_device_together(queue, rng, on_device):
    a, b, out = draw(rng, (20, 30), (30, 20), (20, 20))
    given = {"a": a, "b": b, "out": out}
    given |= {name: cl_array.to_device(queue, given[name]) for name in on_device.split()}
    assert pyclgemm.gemm(queue, **given) is given["out"]
    assert_gemm(given["out"], a, b)
    del given["out"]
    assert_gemm(pyclgemm.gemm(queue, **given), a, b)
