"""pack: a constant operand laid out once, accepted wherever b is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from pyclgemm.problem.problem import PackedLayout
from tests.support.buffers import guarded_matrix
from tests.support.checks import COLUMN, ROW, STRIDED, check_gemm
from tests.support.configs import CPU, DIRECT, INDIRECT
from tests.support.reference import DTYPES, assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

SIZES = (37, 41, 53)
LAYOUTS = (ROW, COLUMN, STRIDED)

#: Sizes, element type and options of `check_gemm`.
PRODUCTS = [
    *((SIZES, dtype, {"c": ROW, "alpha": 0.5, "beta": 2.0, "bias": True}) for dtype in DTYPES),
    *(
        (SIZES, "complex64", {"b": layout, "trans_b": trans_b})
        for layout, trans_b in product(LAYOUTS, "NTC")
    ),
    *(
        (SIZES, "float32", {"out": out, "trans_a": trans_a})
        for out, trans_a in product(LAYOUTS, (False, True))
    ),
    *(
        (sizes, "float32", {})
        for sizes in ((1, 1, 1), (1, 300, 40), (3, 64, 600), (64, 64, 64), (5, 7, 0), (0, 7, 5))
    ),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("sizes", "dtype", "options"), PRODUCTS)
def test_products(queue, require, sizes, dtype, options):
    require(dtype)
    check_gemm(queue, sizes, dtype, pack=True, **options)


@given(sizes=st.tuples(*[st.integers(1, 120)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size(queue, sizes, seed):
    check_gemm(queue, sizes, seed=seed, pack=True)


PADDED = PackedLayout("padded", depth_block=32, width=64)
PANELS = PackedLayout("panels", depth_block=CPU.KC, width=CPU.NR)


@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
@pytest.mark.parametrize(
    ("layout", "config"),
    [
        (PADDED, INDIRECT),
        (PADDED, replace(INDIRECT, SB=0)),
        (PADDED, replace(INDIRECT, NWG=48, NDIMC=8, NDIMB=8)),
        (PADDED, DIRECT),
        (PANELS, CPU),
    ],
    ids=["indirect", "indirect through caches", "tiles that do not divide it", "direct", "cpu"],
)
def test_every_family_reads_its_packed_form(queue, layout, config, trans_b):
    for sizes in [(1, 1, 1), (32, 32, 32), (33, 31, 70), (20, 100, 33)]:
        check_gemm(queue, sizes, config=config, pack=layout, trans_b=trans_b)


@pytest.mark.parametrize(
    ("layout", "config"), [(PADDED, CPU), (PANELS, INDIRECT), (PANELS, DIRECT)]
)
def test_family_that_cannot_read_the_packed_form(queue, layout, config):
    with pytest.raises(pyclgemm.ConfigError, match="packed"):
        check_gemm(queue, (8, 8, 8), config=config, pack=layout)


@pytest.fixture
def b(rng):
    return random_array(rng, (53, 41), "float32")


def test_packed_once_used_with_any_number_of_rows(queue, rng, b):
    packed = pyclgemm.pack(queue, cl_array.to_device(queue, b))
    assert isinstance(packed, pyclgemm.PackedMatrix)
    for m in (1, 2, 17, 64, 200):
        a = random_array(rng, (m, 53), "float32")
        got = pyclgemm.gemm(queue, cl_array.to_device(queue, a), packed)
        assert_close(got.get(), expected_gemm(a, b))


def test_packed_matrix_is_a_copy(queue, rng):
    b = random_array(rng, (16, 16), "float32")
    source = cl_array.to_device(queue, b)
    packed = pyclgemm.pack(queue, source)
    source.set(np.full_like(b, np.nan))
    a = np.eye(16, dtype=np.float32)
    np.testing.assert_array_equal(pyclgemm.gemm(queue, a, packed), b)


def test_packing_leaves_its_source_alone(queue, rng):
    source = guarded_matrix(queue, random_array(rng, (33, 35), "float32"), "float32", ROW)
    pyclgemm.pack(queue, source.array)
    queue.finish()
    np.testing.assert_array_equal(source.get(), source.initial)


def test_packed_from_numpy_in_every_function(queue, rng, b):
    a = random_array(rng, (37, 53), "float32")
    on_device = cl_array.to_device(queue, a)
    packed = pyclgemm.pack(queue, b)
    expected = expected_gemm(a, b)
    assert_close(pyclgemm.gemm(queue, a, packed), expected)
    assert_close(pyclgemm.plan(queue, on_device, packed)(on_device, packed).get(), expected)
    config = pyclgemm.explain(queue, on_device, packed).config
    assert_close(pyclgemm.gemm(queue, a, packed, config=config), expected)


def test_packed_matrix_knows_its_shape_and_type(queue, b):
    packed = pyclgemm.pack(queue, b)
    assert packed.shape == (53, 41)
    assert packed.dtype == np.float32
    assert pyclgemm.pack(queue, b, trans_b=True).shape == (41, 53)


# What is refused

ONES = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"a": ONES[:3, :4], "b": np.zeros((5, 6), np.float32)}, pyclgemm.ShapeError,
            r"a is \(3, 4\) and b is \(5, 6\): a's columns \(4\) must equal b's rows \(5\)",
        ),
        ({"a": np.zeros((3, 4))}, pyclgemm.DtypeError, "float64.*float32|float32.*float64"),
        *(({"trans_b": one}, pyclgemm.PyclgemmError, "trans_b") for one in (True, "T", "C")),
    ],
)  # fmt: skip
def test_packed_matrix_that_does_not_fit(queue, arguments, error, message):
    given = {"a": ONES, "b": ONES} | arguments
    given["b"] = pyclgemm.pack(queue, given["b"])
    with pytest.raises(error, match=message):
        pyclgemm.gemm(queue, **given)


@pytest.mark.parametrize("name", ["a", "c", "out"])
def test_packed_matrix_in_another_role_is_refused(queue, name):
    arrays = {"a": ONES, "b": ONES, name: pyclgemm.pack(queue, ONES)}
    if name == "c":
        arrays["beta"] = 1
    with pytest.raises(pyclgemm.DtypeError, match=rf"{name} is a PackedMatrix"):
        pyclgemm.gemm(queue, **arrays)


def test_packing_what_is_no_matrix_is_refused(queue):
    with pytest.raises(pyclgemm.ShapeError, match=r"\bb\b.*\(4,\)"):
        pyclgemm.pack(queue, np.zeros(4, np.float32))
    with pytest.raises(pyclgemm.DtypeError, match=r"\bb\b.*int64"):
        pyclgemm.pack(queue, np.zeros((4, 4), np.int64))
