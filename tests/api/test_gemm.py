"""gemm: types, layouts, sizes, numbers, NaN, views, and arrays of the host and of the device."""

from itertools import product
from unittest.mock import Mock

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from tests.support import buffers
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.buffers import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, Layout
from tests.support.checks import check_gemm
from tests.support.reference import COMPLEX_DTYPES, DTYPES, random_array

pytestmark = pytest.mark.any_runtime

BACKWARDS = Layout(flip_rows=True)
MIRRORED = Layout(flip_rows=True, flip_columns=True)


def scalars(dtype):
    alpha, beta = (0.75 - 0.5j, -1.5 + 0.25j) if dtype in COMPLEX_DTYPES else (0.75, -1.5)
    return {"dtype": dtype, "alpha": alpha, "beta": beta}


#: What products are like: options of `check_gemm`.
PRODUCTS = [
    *({"dtype": name, "trans_a": a, "trans_b": b} for name, a, b in product(DTYPES, "NTC", "NTC")),
    *({"trans_a": a, "trans_b": b} for a, b in product((False, True, np.True_), (False, True))),
    # The row-major swap exchanges the operands, and what is conjugated with them.
    *(
        {"dtype": "complex64", "out": COLUMN, "trans_a": a, "trans_b": b}
        for a, b in ("CT", "TC", "CC")
    ),
    *({"a": a, "b": b, "out": out} for a, b, out in product((ROW, COLUMN), repeat=3)),
    *(
        {"sizes": sizes, "a": a, "b": b, "out": out}
        for a, b, out in (
            (ROW_ALIGNED, ROW_ALIGNED, ROW_ALIGNED), (COLUMN_ALIGNED, COLUMN_ALIGNED, ROW_ALIGNED),
            (ROW_ALIGNED, COLUMN_ALIGNED, COLUMN_ALIGNED),
        )
        for sizes in ((64, 48, 80), (65, 47, 81))
    ),
    *(
        {"sizes": sizes}
        for sizes in (
            (1, 1, 1), (1, 257, 100), (257, 1, 100), (1, 1, 3000), (300, 200, 1), (3, 5, 2500),
            (301, 523, 1031),  # beyond every tile and block
            # Workspace for all rows (or columns) of an operand at once would take gigabytes here.
            (1_500_000, 3, 4), (3, 1_500_000, 4),
        )
    ),
    # More rows than any kernel packs.
    {"sizes": (20_001, 5, 1100), "dtype": "float16", "c": ROW, "beta": 0.5},
    # A float16 result that went through memory as float16 between blocks would miss the bound.
    *({"sizes": (9, 35, 2100), "dtype": dtype} for dtype in DTYPES),
    {"sizes": (21, 35, 24), "dtype": "float16", "precision": "F16_F16_F16"},
    *({"c": ROW, **scalars(dtype)} for dtype in DTYPES),
    *({"in_place": True, **scalars(dtype)} for dtype in ("float16", "float32", "complex128")),
    {"sizes": (11, 37, 2100), "in_place": True, "alpha": 0.5, "beta": 2.0},
    *(
        {"c": c, "out": out, "alpha": -1.0, "beta": 0.5}
        for c, out in product((ROW, COLUMN, STRIDED), (ROW, COLUMN))
    ),
    *(
        {"c": ROW, "alpha": one, "beta": one}
        for one in (np.float32(0.5), np.float64(0.5), np.int64(2), 2, 2.0)
    ),
    {"dtype": "complex64", "alpha": 0.5},
    {"beta": 0},  # without an addend
    # What a factor of zero leaves unread is NaN.
    *(
        {"beta": zero, **addend}
        for zero in (0, 0.0, -0.0, np.float32(0))
        for addend in ({"c": ROW}, {"in_place": True})
    ),
    *(
        {"dtype": dtype, "alpha": 0, **addend}
        for dtype in ("float32", "complex64")
        for addend in ({}, {"c": ROW, "beta": 2})
    ),
    # Without depth the result is the epilogue of beta C, or zeros.
    *(
        {"sizes": (19, 23, 0), "c": ROW, "beta": -0.5, "out": out, "bias": bias, "activation": name}
        for out, bias, name in product((ROW, COLUMN), (False, True), (None, "sigmoid"))
    ),
    *({"sizes": (19, 23, 0), "dtype": dtype} for dtype in DTYPES),
    *({"sizes": (19, 23, 0), "in_place": True, "beta": beta} for beta in (1.0, 2.0)),
    # Any strides and offset.
    *(
        {"a": a, "b": b, "out": out}
        for one in (STRIDED, BACKWARDS, MIRRORED)
        for a, b, out in ((one, ROW, ROW), (ROW, one, ROW), (ROW, ROW, one), (one, one, one))
    ),
    {"a": COLUMN, "b": MIRRORED, "out": COLUMN},
    *({name: Layout("broadcast"), "c": ROW, "beta": 1.0} for name in "abc"),
    *(
        dict.fromkeys(("a", "b", "out"), Layout(alignment=alignment))
        for alignment in (1, 2, 4, 8, 16)
    ),
    *(
        {"a": STRIDED, "b": MIRRORED, "out": STRIDED, "in_place": True, **scalars(dtype)}
        for dtype in ("float16", "float32", "float64", "complex64")
    ),
    {"c": MIRRORED, "out": STRIDED, "alpha": -1.0, "beta": 0.5},
    # A constant operand that was packed before.
    *({"pack": True, "c": ROW, "bias": True, **scalars(dtype)} for dtype in DTYPES),
    *(
        {"pack": True, "dtype": "complex64", "b": layout, "trans_b": trans_b}
        for layout, trans_b in product((ROW, COLUMN, STRIDED), "NTC")
    ),
    *(
        {"pack": True, "out": out, "trans_a": trans_a}
        for out, trans_a in product((ROW, COLUMN, STRIDED), (False, True))
    ),
    *(
        {"pack": True, "sizes": sizes}
        for sizes in ((1, 1, 1), (1, 300, 40), (3, 64, 600), (64, 64, 64), (5, 7, 0), (0, 7, 5))
    ),
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
def test_strides_that_no_second_entry_uses(queue, rng, is_row, unused):
    # The stride of an index of extent 1 may be anything, also zero or one that would overlap.
    values = random_array(rng, (1, 33) if is_row else (33, 1), "float32")
    strides = (unused, 1) if is_row else (1, unused)
    view = buffers.GuardedArray(queue, values, strides)
    out = buffers.GuardedArray(queue, buffers.blank((1, 1), "float32"), (unused, unused))
    options = {"trans_b": True} if is_row else {"trans_a": True}
    pyclgemm.gemm(queue, view.array, view.array, out=out.array, **options)
    assert_gemm(out.get(), values, values, **options)


@pytest.mark.parametrize(
    "sizes", [(0, 5, 4), (5, 0, 4), (0, 0, 0), (0, 5, 0), (5, 0, 0), (5, 4, 0)], ids=str
)
@pytest.mark.parametrize("beta", [None, 1.0], ids=["plain", "with c"])
def test_empty_result_or_depth(queue, sizes, beta):
    m, n, k = sizes
    a, b, c = (np.empty(shape, np.float32) for shape in [(m, k), (k, n), (m, n)])
    assert pyclgemm.gemm(queue, a, b, c if beta else None, beta=beta).shape == (m, n)
    *operands, given_out = (cl_array.empty(queue, x.shape, x.dtype) for x in (a, b, c))
    out, event = pyclgemm.gemm(queue, *operands, return_event=True)
    event.wait()
    assert out.shape == (m, n)
    assert pyclgemm.gemm(queue, *operands, out=given_out) is given_out


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_non_finite_values_go_where_numpy_takes_them(queue, rng, operand, value):
    arrays = draw(rng, (37, 53), (53, 29), (37, 29))
    arrays[operand][17, 11] = value
    assert_gemm(pyclgemm.gemm(queue, *arrays, beta=1), *arrays, beta=1)


def test_infinity_comes_of_what_is_infinite_or_stored(queue):
    inf = np.inf
    for dtype, a, b, expected in (
        ("float32", [[inf, 1], [1, 1]], [[0, 1], [1, 1]], [[np.nan, inf], [1, 2]]),
        # 40000 + 40000 is beyond float16, the sum of all three products is not.
        ("float16", [[200, 200, 200]], [[200], [200], [-200]], [[40000]]),
        ("float16", [[200, 200, 200]], [[200], [200], [200]], [[inf]]),
    ):
        got = pyclgemm.gemm(queue, np.array(a, dtype), np.array(b, dtype))
        np.testing.assert_array_equal(got, expected)


def test_a_result_is_row_major_on_the_queue_in_memory_of_the_allocator(queue):
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
    """Also with the default precision by its name."""
    require(dtype)
    a, b = draw(rng, (61, 200), (200, 67), dtype=dtype)
    first = pyclgemm.gemm(queue, a, b)
    bits = {"float16": "F16_F16_F32", "float64": "F64_F64_F64", "complex128": "F64_F64_F64"}
    for one in (None, None, bits.get(dtype, "F32_F32_F32")):
        np.testing.assert_array_equal(pyclgemm.gemm(queue, a, b, precision=one), first)


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
    # As in NumPy: the operands are copied to the device before anything is written.
    for operand in "ab":
        ones, shared = np.ones((4, 4), np.float32), np.ones((6, 4), np.float32)
        pyclgemm.gemm(queue, **{"a": ones, "b": ones, operand: shared[:4]}, out=shared[1:5])
        np.testing.assert_array_equal(shared[1:5], 4 * ones)


@pytest.mark.parametrize("there", [["a"], ["b"], ["out"], ["a", "b"]], ids=str)
def test_arrays_of_host_and_device_mix(queue, rng, there):
    given = dict(zip(("a", "b", "out"), draw(rng, (20, 30), (30, 20), (20, 20)), strict=True))
    a, b = given["a"], given["b"]
    given |= {name: cl_array.to_device(queue, given[name]) for name in there}
    assert pyclgemm.gemm(queue, **given) is given["out"]
    assert_gemm(given["out"], a, b)
    del given["out"]
    assert_gemm(pyclgemm.gemm(queue, **given), a, b)
