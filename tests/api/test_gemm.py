"""gemm: element types, transposition, order, alpha and beta, zero sizes, NaN, NumPy in and out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from tests.support.buffers import guarded_matrix, guarded_vector
from tests.support.checks import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.reference import (
    COMPLEX_DTYPES,
    DTYPES,
    assert_close,
    expected_gemm,
    random_array,
)

pytestmark = pytest.mark.any_runtime

SIZES = (37, 29, 53)


def scalars(dtype):
    alpha, beta = (0.75 - 0.5j, -1.5 + 0.25j) if dtype in COMPLEX_DTYPES else (0.75, -1.5)
    return {"alpha": alpha, "beta": beta}


#: What products are like: sizes, element type, and options of `check_gemm`, by name.
PRODUCTS = {
    **{
        f"{dtype} {a}{b}": (SIZES, dtype, {"trans_a": a, "trans_b": b})
        for dtype, a, b in product(DTYPES, "NTC", "NTC")
    },
    # The row-major swap exchanges the operands, and what is conjugated with them.
    **{
        f"swapped {a}{b}": (SIZES, "complex64", {"out": COLUMN, "trans_a": a, "trans_b": b})
        for a, b in ("CT", "TC", "CC")
    },
    **{
        f"orders {a.order} {b.order} {out.order}": (SIZES, "float32", {"a": a, "b": b, "out": out})
        for a, b, out in product((ROW, COLUMN), repeat=3)
    },
    **{
        f"aligned {a.order} {b.order} {out.order} {sizes}": (
            sizes, "float32", {"a": a, "b": b, "out": out},
        )
        for a, b, out in (
            (ROW_ALIGNED, ROW_ALIGNED, ROW_ALIGNED),
            (COLUMN_ALIGNED, COLUMN_ALIGNED, ROW_ALIGNED),
            (ROW_ALIGNED, COLUMN_ALIGNED, COLUMN_ALIGNED),
        )
        for sizes in ((64, 48, 80), (65, 47, 81))
    },
    **{
        f"sizes {sizes}": (sizes, "float32", {})
        for sizes in (
            (1, 1, 1), (1, 257, 100), (257, 1, 100), (1, 1, 3000), (300, 200, 1), (3, 5, 2500),
            (301, 523, 1031),  # beyond every tile and block
            # Workspace for all rows (or columns) of an operand at once would take gigabytes here.
            (1_500_000, 3, 4), (3, 1_500_000, 4),
        )
    },
    "more rows than any kernel packs": ((20_001, 5, 1100), "float16", {"c": ROW, "beta": 0.5}),
    # A float16 result that went through memory as float16 between blocks would miss the bound.
    **{f"several blocks of {dtype}": ((9, 35, 2100), dtype, {}) for dtype in DTYPES},
    "half arithmetic": ((21, 35, 24), "float16", {"precision": "F16_F16_F16"}),
    **{f"alpha, beta {dtype}": (SIZES, dtype, {"c": ROW, **scalars(dtype)}) for dtype in DTYPES},
    **{
        f"in place {dtype}": (SIZES, dtype, {"in_place": True, **scalars(dtype)})
        for dtype in ("float16", "float32", "complex128")
    },
    "in place, several blocks": (
        (11, 37, 2100), "float32", {"in_place": True, "alpha": 0.5, "beta": 2.0},
    ),
    **{
        f"c {c.order}, out {out.order}": (
            SIZES, "float32", {"c": c, "out": out, "alpha": -1.0, "beta": 0.5},
        )
        for c, out in product((ROW, COLUMN, STRIDED), (ROW, COLUMN))
    },
    **{
        f"scalars {one!r}": (SIZES, "float32", {"c": ROW, "alpha": one, "beta": one})
        for one in (np.float32(0.5), np.float64(0.5), np.int64(2), 2, 2.0)
    },
    "real alpha, complex operands": (SIZES, "complex64", {"alpha": 0.5}),
    # Without depth the result is the epilogue of beta C, or zeros.
    **{
        f"no depth, {out.order}{' bias' * bias} {activation}": (
            (19, 23, 0), "float32",
            {"c": ROW, "beta": -0.5, "out": out, "bias": bias, "activation": activation},
        )
        for out, bias, activation in product((ROW, COLUMN), (False, True), (None, "sigmoid"))
    },
    **{f"no depth, {dtype}": ((19, 23, 0), dtype, {}) for dtype in DTYPES},
    **{
        f"no depth, in place, {beta}": ((19, 23, 0), "float32", {"in_place": True, "beta": beta})
        for beta in (1.0, 2.0)
    },
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("sizes", "dtype", "options"), PRODUCTS.values(), ids=PRODUCTS)
def test_products(queue, require, sizes, dtype, options):
    require(dtype, options.get("precision"))
    check_gemm(queue, sizes, dtype, **options)


@given(
    sizes=st.tuples(*[st.integers(1, 150)] * 3),
    transposed=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(queue, sizes, transposed, seed):
    check_gemm(queue, sizes, trans_a=transposed, trans_b=transposed, seed=seed)


@given(alpha=st.floats(-4, 4, width=32), beta=st.floats(-4, 4, width=32), in_place=st.booleans())
def test_any_alpha_and_beta(queue, alpha, beta, in_place):
    c = None if in_place else ROW
    check_gemm(queue, (13, 35, 21), c=c, in_place=in_place, alpha=alpha, beta=beta)


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True, np.True_])
def test_transposition_by_bool(queue, trans_a, trans_b):
    a = np.arange(6, dtype=np.float32).reshape((3, 2) if trans_a else (2, 3))
    b = np.arange(12, dtype=np.float32).reshape((4, 3) if trans_b else (3, 4))
    got = pyclgemm.gemm(queue, a, b, trans_a=trans_a, trans_b=trans_b)
    np.testing.assert_array_equal(got, (a.T if trans_a else a) @ (b.T if trans_b else b))


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float16", "F16_F16_F32"), ("float32", "F32_F32_F32"), ("float64", "F64_F64_F64"),
        ("complex64", "F32_F32_F32"), ("complex128", "F64_F64_F64"),
    ],
)  # fmt: skip
def test_default_precision_by_name_is_the_default(queue, require, rng, dtype, precision):
    require(dtype)
    a, b = random_array(rng, (5, 7), dtype), random_array(rng, (7, 6), dtype)
    np.testing.assert_array_equal(
        pyclgemm.gemm(queue, a, b), pyclgemm.gemm(queue, a, b, precision=precision)
    )


# What is read


def test_out_differs_from_c_and_c_is_left_alone(queue, rng):
    a, b, c = (random_array(rng, (8, 8), "float32") for _ in range(3))
    addend = cl_array.to_device(queue, c)
    out = pyclgemm.gemm(queue, *(cl_array.to_device(queue, x) for x in (a, b)), addend, beta=1)
    assert out is not addend
    assert_close(out.get(), expected_gemm(a, b, c, beta=1))
    np.testing.assert_array_equal(addend.get(), c)


@pytest.mark.parametrize("in_place", [False, True], ids=["own out", "in place"])
@pytest.mark.parametrize("beta", [0, 0.0, -0.0, np.float32(0)])
def test_zero_beta_never_reads_c(queue, rng, beta, in_place):
    a, b = random_array(rng, SIZES[::2], "float32"), random_array(rng, SIZES[:0:-1], "float32")
    c = guarded_matrix(queue, np.full(SIZES[:2], np.nan, np.float32), "float32", ROW)
    out = c if in_place else guarded_matrix(queue, SIZES[:2], "float32", ROW)
    operands = (guarded_matrix(queue, x, "float32", ROW).array for x in (a, b))
    pyclgemm.gemm(queue, *operands, c.array, beta=beta, out=out.array)
    assert_close(out.get(), expected_gemm(a, b))


def test_zero_beta_without_c_is_no_error(queue):
    ones = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(pyclgemm.gemm(queue, ones, ones, beta=0), 2 * ones)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_zero_alpha_reads_neither_a_nor_b(queue, rng, dtype):
    poison = np.full((9, 9), np.nan, dtype)
    c = random_array(rng, (9, 9), dtype)
    got = pyclgemm.gemm(queue, poison, poison, c, alpha=0, beta=2)
    assert_close(got, expected_gemm(poison, poison, c, alpha=0, beta=2))
    np.testing.assert_array_equal(pyclgemm.gemm(queue, poison, poison, alpha=0), 0 * c)


@pytest.mark.parametrize("sizes", [(0, 5, 4), (5, 0, 4), (0, 0, 0), (0, 5, 0), (5, 0, 0)], ids=str)
@pytest.mark.parametrize("with_c", [False, True], ids=["plain", "with c"])
def test_empty_result(queue, sizes, with_c):
    m, n, k = sizes
    a, b, c = (np.empty(shape, np.float32) for shape in [(m, k), (k, n), (m, n)])
    extra = {"c": c, "beta": 1.0} if with_c else {}
    assert pyclgemm.gemm(queue, a, b, **extra).shape == (m, n)
    on_device = [cl_array.empty(queue, x.shape, x.dtype) for x in (a, b)]
    out, event = pyclgemm.gemm(queue, *on_device, return_event=True)
    event.wait()
    assert out.shape == (m, n)
    given_out = cl_array.empty(queue, (m, n), np.float32)
    assert pyclgemm.gemm(queue, *on_device, out=given_out) is given_out


# NaN and infinity


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_non_finite_values_go_where_numpy_takes_them(queue, rng, operand, value):
    arrays = [random_array(rng, shape, "float32") for shape in ((37, 53), (53, 29), (37, 29))]
    arrays[operand][17, 11] = value
    got = pyclgemm.gemm(queue, *arrays, beta=1)
    assert_close(got, expected_gemm(*arrays, beta=1))


def test_infinity_times_zero_is_nan(queue):
    a = np.array([[np.inf, 1], [1, 1]], np.float32)
    b = np.array([[0, 1], [1, 1]], np.float32)
    np.testing.assert_array_equal(pyclgemm.gemm(queue, a, b), [[np.nan, np.inf], [1, 2]])


def test_float16_overflows_to_infinity_only_when_stored(queue):
    # 40000 + 40000 is beyond float16, the sum of all three products is not.
    a = np.array([[200, 200, 200]], np.float16)
    b = np.array([[200], [200], [-200]], np.float16)
    np.testing.assert_array_equal(pyclgemm.gemm(queue, a, b), [[40000]])
    np.testing.assert_array_equal(pyclgemm.gemm(queue, a, abs(b)), [[np.inf]])


# NumPy arrays


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_in_numpy_out(queue, require, rng, dtype):
    require(dtype)
    a, b = random_array(rng, (37, 53), dtype), random_array(rng, (53, 29), dtype)
    got = pyclgemm.gemm(queue, a, b)
    assert type(got) is np.ndarray
    assert got.dtype == a.dtype
    assert_close(got, expected_gemm(a, b))


VIEWS = {
    "T": lambda x: x.T,
    "rows reversed": lambda x: x[::-1],
    "columns reversed": lambda x: x[:, ::-1],
    "steps": lambda x: x[::2, ::3],
    "Fortran": np.asfortranarray,
    "slice": lambda x: x[1:, 2:],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_numpy_views(queue, rng, view):
    a = view(random_array(rng, (36, 36), "float32"))
    b = view(random_array(rng, (36, 36), "float32")).T
    assert_close(pyclgemm.gemm(queue, a, b), expected_gemm(a, b))


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_numpy_out_is_filled_and_returned(queue, rng, order):
    a, b = random_array(rng, (37, 53), "float32"), random_array(rng, (53, 29), "float32")
    base = np.full((74, 87), np.nan, np.float32)
    out = base[::2, ::3] if order == "strided" else np.full((37, 29), np.nan, np.float32, order)
    assert pyclgemm.gemm(queue, a, b, out=out) is out
    assert_close(out, expected_gemm(a, b))
    if order == "strided":
        assert np.isnan(base).sum() == base.size - out.size


def test_numpy_c_in_place(queue, rng):
    a, b, c = (random_array(rng, (20, 20), "float32") for _ in range(3))
    expected = expected_gemm(a, b, c, beta=1)
    assert pyclgemm.gemm(queue, a, b, c, beta=1, out=c) is c
    assert_close(c, expected)


def test_numpy_operands_with_device_out(queue, rng):
    a, b = random_array(rng, (20, 30), "float32"), random_array(rng, (30, 20), "float32")
    out = cl_array.empty(queue, (20, 20), np.float32)
    assert pyclgemm.gemm(queue, a, b, out=out) is out
    assert_close(out.get(), expected_gemm(a, b))


@pytest.mark.parametrize("on_device", [0, 1])
def test_numpy_and_device_operands_mix(queue, rng, on_device):
    arrays = [random_array(rng, (9, 9), "float32") for _ in range(2)]
    expected = expected_gemm(*arrays)
    arrays[on_device] = cl_array.to_device(queue, arrays[on_device])
    got = pyclgemm.gemm(queue, *arrays)
    assert_close(got if isinstance(got, np.ndarray) else got.get(), expected)


# What a call leaves behind


def test_new_result_is_row_major_on_the_queue(queue):
    a, b = (cl_array.zeros(queue, shape, np.float32) for shape in ((3, 4), (4, 5)))
    out = pyclgemm.gemm(queue, a, b)
    assert isinstance(out, cl_array.Array)
    assert out.shape == (3, 5) and out.flags.c_contiguous and out.queue == queue


def test_inputs_stay_as_they_were(queue, rng):
    views = [
        guarded_matrix(queue, random_array(rng, (21, 21), "float32"), "float32", layout)
        for layout in (ROW, COLUMN, STRIDED)
    ]
    bias = guarded_vector(queue, random_array(rng, (21,), "float32"))
    arrays = (view.array for view in views)
    pyclgemm.gemm(queue, *arrays, beta=1, epilogue=pyclgemm.Epilogue(bias=bias.array)).get()
    for view in (*views, bias):
        np.testing.assert_array_equal(view.get(), view.initial)


def test_allocator_provides_the_result(queue):
    requested = []

    def allocate(size):
        requested.append(size)
        return cl_array.cl.Buffer(queue.context, cl_array.cl.mem_flags.READ_WRITE, size)

    a = cl_array.to_device(queue, np.ones((8, 8), np.float32))
    out = pyclgemm.gemm(queue, a, a, allocator=allocate)
    np.testing.assert_array_equal(out.get(), np.full((8, 8), 8))
    assert any(size >= 256 for size in requested)


def test_repeated_calls_agree_bit_for_bit(queue, rng):
    a, b = random_array(rng, (61, 200), "float32"), random_array(rng, (200, 67), "float32")
    first = pyclgemm.gemm(queue, a, b)
    for _ in range(3):
        np.testing.assert_array_equal(pyclgemm.gemm(queue, a, b), first)
