"""Operands, addend and destination of any strides and offset, with guards around each."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from tests.support.buffers import GuardedArray, Layout
from tests.support.checks import COLUMN, ROW, STRIDED, check_gemm
from tests.support.configs import DIRECT_CONFIGS, GEMV_CONFIGS
from tests.support.reference import assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

SIZES = (23, 35, 41)

BACKWARDS = Layout(flip_rows=True)
MIRRORED = Layout(flip_rows=True, flip_columns=True)
REPEATED = Layout("broadcast")

#: The one index of these layouts that steps by one keeps doing so, whatever the gap.
PLAIN_LAYOUTS = st.builds(
    Layout,
    order=st.sampled_from(["row", "column"]),
    gap=st.integers(0, 9),
    flip_rows=st.just(False),
)

#: Element types and options of `check_gemm`.
PRODUCTS = [
    *(
        ("float32", {"a": a, "b": b, "out": out})
        for a, b, out in (
            (STRIDED, ROW, ROW),
            (ROW, STRIDED, ROW),
            (ROW, ROW, STRIDED),
            (STRIDED, STRIDED, STRIDED),
            (BACKWARDS, ROW, ROW),
            (ROW, BACKWARDS, ROW),
            (ROW, ROW, BACKWARDS),
            (MIRRORED, MIRRORED, MIRRORED),
            (COLUMN, MIRRORED, COLUMN),
            (REPEATED, ROW, ROW),
            (ROW, REPEATED, ROW),
            *((Layout(alignment=alignment),) * 3 for alignment in (1, 2, 4, 8, 16)),
        )
    ),
    *(
        (dtype, {"a": STRIDED, "b": MIRRORED, "out": STRIDED, "in_place": True, "alpha": 0.5,
                 "beta": 2.0})
        for dtype in ("float16", "float64", "complex64")
    ),
    ("float32", {"c": MIRRORED, "out": STRIDED, "alpha": -1.0, "beta": 0.5}),
    ("float32", {"in_place": True, "out": STRIDED, "alpha": -1.0, "beta": 0.5}),
    ("float32", {"c": REPEATED, "beta": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "options"), PRODUCTS)
def test_strided_matrices(queue, require, dtype, options):
    require(dtype)
    check_gemm(queue, SIZES, dtype, **options)


@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    layouts=st.tuples(*[PLAIN_LAYOUTS] * 3),
    backwards=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_leading_dimension(queue, sizes, layouts, backwards, seed):
    def turned(layout):
        leading = {"row": "flip_rows", "column": "flip_columns"}[layout.order]
        return Layout(layout.order, layout.gap, **{leading: backwards})

    a, b, out = map(turned, layouts)
    check_gemm(queue, sizes, a=a, b=b, out=out, seed=seed)


@given(data=st.data(), sizes=st.tuples(*[st.integers(2, 50)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_strides(queue, data, sizes, seed):
    m, n, k = sizes
    rng = np.random.default_rng(seed)

    def draw(rows, columns, name):
        column_stride = data.draw(st.integers(2, 5), label=f"{name}'s column stride")
        gap = data.draw(st.integers(0, 7), label=f"{name}'s gap")
        signs = data.draw(st.tuples(*[st.sampled_from([1, -1])] * 2), label=f"{name}'s signs")
        lead = data.draw(st.integers(64, 80), label=f"{name}'s offset")
        strides = (signs[0] * (columns * column_stride + gap), signs[1] * column_stride)
        values = None if name == "out" else random_array(rng, (rows, columns), "float32")
        return GuardedArray(queue, (rows, columns), "float32", strides, lead=lead, values=values)

    a, b, c, out = draw(m, k, "a"), draw(k, n, "b"), draw(m, n, "c"), draw(m, n, "out")
    pyclgemm.gemm(queue, a.array, b.array, c.array, beta=0.5, out=out.array)
    assert_close(out.get(), expected_gemm(a.initial, b.initial, c.initial, beta=0.5))


@pytest.mark.parametrize(
    "config",
    [DIRECT_CONFIGS["wide vectors"], GEMV_CONFIGS["wide vectors"]],
    ids=["direct", "gemv"],
)
def test_the_same_strides_at_another_offset(queue, rng, config):
    """Kernels that read whole vectors of aligned rows do not serve rows at odd offsets."""
    a, b = (random_array(rng, (32, 32), "float32") for _ in range(2))
    for lead in (64, 65):
        left, right, out = (
            GuardedArray(queue, (32, 32), "float32", (48, 1), lead=lead, values=values)
            for values in (a, b, None)
        )
        pyclgemm.gemm(queue, left.array, right.array, out=out.array, config=config)
        assert_close(out.get(), expected_gemm(a, b))


VIEWS = {
    "T": lambda x: x.T,
    "slice": lambda x: x[3:, 5:],
    "steps": lambda x: x[::2, ::2],
    "rows reversed": lambda x: x[::-1],
    "columns reversed, T": lambda x: x[:, ::-1].T,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_that_pyopencl_makes(queue, rng, view):
    host = random_array(rng, (40, 40), "float32")
    base = cl_array.to_device(queue, host)
    got = pyclgemm.gemm(queue, view(base), view(base).T)
    assert_close(got.get(), expected_gemm(view(host), view(host).T))


def test_view_as_destination_through_its_parent(queue, rng):
    host = random_array(rng, (30, 30), "float32")
    parent = cl_array.to_device(queue, np.zeros((50, 50), np.float32))
    operand = cl_array.to_device(queue, host)
    pyclgemm.gemm(queue, operand, operand, out=parent[10:40, 15:45].T)
    after = parent.get()
    assert_close(after[10:40, 15:45].T, expected_gemm(host, host))
    after[10:40, 15:45] = 0
    assert not after.any()


@pytest.mark.parametrize("is_row", [True, False], ids=["row vector", "column vector"])
@pytest.mark.parametrize("unused", [0, 1, 7, -3, 1000])
def test_strides_that_no_second_entry_uses(queue, rng, is_row, unused):
    # The stride of an index of extent 1 may be anything, also zero or one that would overlap.
    values = random_array(rng, (1, 33) if is_row else (33, 1), "float32")
    strides = (unused, 1) if is_row else (1, unused)
    view = GuardedArray(queue, values.shape, "float32", strides, values=values)
    out = GuardedArray(queue, (1, 1), "float32", (unused, unused))
    options = {"trans_b": True} if is_row else {"trans_a": True}
    pyclgemm.gemm(queue, view.array, view.array, out=out.array, **options)
    assert_close(out.get(), expected_gemm(values, values, **options))


# Operands that share a buffer


def test_interleaved_columns_of_one_buffer(queue, rng):
    host = random_array(rng, (24, 72), "float32")
    base = cl_array.to_device(queue, host)
    pyclgemm.gemm(queue, base[:, 0::3], base[:, 1::3], out=base[:, 2::3])
    after = base.get()
    assert_close(after[:, 2::3], expected_gemm(host[:, 0::3], host[:, 1::3]))
    np.testing.assert_array_equal(after[:, 0::3], host[:, 0::3])
    np.testing.assert_array_equal(after[:, 1::3], host[:, 1::3])


def test_neighbouring_blocks_of_one_buffer(queue, rng):
    host = random_array(rng, (24, 72), "float32")
    base = cl_array.to_device(queue, host)
    pyclgemm.gemm(queue, base[:, :24], base[:, 24:48], out=base[:, 48:])
    assert_close(base.get()[:, 48:], expected_gemm(host[:, :24], host[:, 24:48]))


def test_one_array_as_both_operands_and_addend(queue, rng):
    host = random_array(rng, (25, 25), "float32")
    x = cl_array.to_device(queue, host)
    got = pyclgemm.gemm(queue, x, x, x, beta=1, trans_b=True)
    assert_close(got.get(), expected_gemm(host, host, host, beta=1, trans_b=True))


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("first", [0, 7], ids=["same", "corner"])
def test_destination_over_an_operand_is_refused(queue, operand, first):
    base = cl_array.zeros(queue, (16, 16), np.float32)
    other = cl_array.zeros(queue, (8, 8), np.float32)
    arrays = {"a": other, "b": other, operand: base[:8, :8]}
    out = base[first : first + 8, first : first + 8]
    with pytest.raises(pyclgemm.ArgumentError, match=rf"(?s)out.*\b{operand}\b|\b{operand}\b.*out"):
        pyclgemm.gemm(queue, **arrays, out=out)


def test_addend_that_half_overlaps_the_destination_is_refused(queue):
    base = cl_array.zeros(queue, (16, 16), np.float32)
    other = cl_array.zeros(queue, (8, 8), np.float32)
    with pytest.raises(pyclgemm.ArgumentError, match=r"\bc\b"):
        pyclgemm.gemm(queue, other, other, base[:8, :8], beta=1, out=base[1:9, :8])


def test_destination_whose_entries_coincide_is_refused(queue):
    out = GuardedArray(queue, (8, 8), "float32", (0, 1))
    other = cl_array.zeros(queue, (8, 8), np.float32)
    with pytest.raises(pyclgemm.ArgumentError, match=r"out.*share"):
        pyclgemm.gemm(queue, other, other, out=out.array)
