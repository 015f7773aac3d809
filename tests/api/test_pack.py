"""pack: a constant operand laid out once, accepted wherever b is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(queue: Any, require: Any, dtype: str) -> None:
    require(dtype)
    check_gemm(queue, SIZES, dtype, pack=True, c=ROW, alpha=0.5, beta=2.0, bias=True)


@pytest.mark.parametrize("layout", [ROW, COLUMN, STRIDED], ids=["row", "column", "strided"])
@pytest.mark.parametrize("trans_b", ["N", "T", "C"])
def test_every_order_and_transposition(queue: Any, layout: Any, trans_b: str) -> None:
    check_gemm(queue, SIZES, "complex64", b=layout, trans_b=trans_b, pack=True)


@pytest.mark.parametrize("out", [ROW, COLUMN, STRIDED], ids=["row", "column", "strided"])
@pytest.mark.parametrize("trans_a", [False, True], ids=["N", "T"])
def test_every_destination(queue: Any, out: Any, trans_a: bool) -> None:
    check_gemm(queue, SIZES, out=out, trans_a=trans_a, pack=True)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 300, 40), (3, 64, 600), (64, 64, 64), (5, 7, 0), (0, 7, 5)], ids=str
)
def test_telling_sizes(queue: Any, sizes: Any) -> None:
    check_gemm(queue, sizes, pack=True)


@given(sizes=st.tuples(*[st.integers(1, 120)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size(queue: Any, sizes: Any, seed: int) -> None:
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
def test_every_family_reads_its_packed_form(
    queue: Any, layout: Any, config: Any, trans_b: bool
) -> None:
    for sizes in [(1, 1, 1), (32, 32, 32), (33, 31, 70), (20, 100, 33)]:
        check_gemm(queue, sizes, config=config, pack=layout, trans_b=trans_b)


@pytest.mark.parametrize(
    ("layout", "config"), [(PADDED, CPU), (PANELS, INDIRECT), (PANELS, DIRECT)]
)
def test_family_that_cannot_read_the_packed_form(queue: Any, layout: Any, config: Any) -> None:
    with pytest.raises(pyclgemm.ConfigError, match="packed"):
        check_gemm(queue, (8, 8, 8), config=config, pack=layout)


def test_packed_once_used_with_any_number_of_rows(queue: Any, rng: Any) -> None:
    b = random_array(rng, (53, 41), "float32")
    packed = pyclgemm.pack(queue, cl_array.to_device(queue, b))
    assert isinstance(packed, pyclgemm.PackedMatrix)
    for m in (1, 2, 17, 64, 200):
        a = random_array(rng, (m, 53), "float32")
        got = pyclgemm.gemm(queue, cl_array.to_device(queue, a), packed)
        assert_close(got.get(), expected_gemm(a, b))


def test_packed_matrix_is_a_copy(queue: Any, rng: Any) -> None:
    b = random_array(rng, (16, 16), "float32")
    source = cl_array.to_device(queue, b)
    packed = pyclgemm.pack(queue, source)
    source.set(np.full_like(b, np.nan))
    a = np.eye(16, dtype=np.float32)
    np.testing.assert_array_equal(pyclgemm.gemm(queue, a, packed), b)


def test_packing_leaves_its_source_alone(queue: Any, rng: Any) -> None:
    source = guarded_matrix(queue, random_array(rng, (33, 35), "float32"), "float32", ROW)
    pyclgemm.pack(queue, source.array)
    queue.finish()
    np.testing.assert_array_equal(source.get(), source.initial)


def test_packed_from_numpy(queue: Any, rng: Any) -> None:
    a, b = random_array(rng, (37, 53), "float32"), random_array(rng, (53, 41), "float32")
    packed = pyclgemm.pack(queue, b)
    assert_close(pyclgemm.gemm(queue, a, packed), expected_gemm(a, b))


def test_packed_in_every_function(queue: Any, rng: Any) -> None:
    a, b = random_array(rng, (37, 53), "float32"), random_array(rng, (53, 41), "float32")
    on_device = cl_array.to_device(queue, a)
    packed = pyclgemm.pack(queue, b)
    expected = expected_gemm(a, b)
    assert_close(pyclgemm.plan(queue, on_device, packed)(on_device, packed).get(), expected)
    config = pyclgemm.explain(queue, on_device, packed).config
    assert_close(pyclgemm.gemm(queue, a, packed, config=config), expected)


def test_packed_matrix_knows_its_shape_and_type(queue: Any) -> None:
    packed = pyclgemm.pack(queue, np.zeros((53, 41), np.float32))
    assert packed.shape == (53, 41)
    assert packed.dtype == np.float32
    assert pyclgemm.pack(queue, np.zeros((53, 41), np.float32), trans_b=True).shape == (41, 53)


def test_packed_matrix_of_another_depth_is_refused(queue: Any) -> None:
    packed = pyclgemm.pack(queue, np.zeros((5, 6), np.float32))
    message = r"a is \(3, 4\) and b is \(5, 6\): a's columns \(4\) must equal b's rows \(5\)"
    with pytest.raises(pyclgemm.ShapeError, match=message):
        pyclgemm.gemm(queue, np.zeros((3, 4), np.float32), packed)


def test_packed_matrix_of_another_type_is_refused(queue: Any) -> None:
    packed = pyclgemm.pack(queue, np.zeros((4, 6), np.float32))
    with pytest.raises(pyclgemm.DtypeError, match=r"float64.*float32|float32.*float64"):
        pyclgemm.gemm(queue, np.zeros((3, 4)), packed)


@pytest.mark.parametrize("name", ["a", "c", "out"])
def test_packed_matrix_in_another_place_is_refused(queue: Any, name: str) -> None:
    ones = np.ones((4, 4), np.float32)
    arrays: dict[str, Any] = {"a": ones, "b": ones, name: pyclgemm.pack(queue, ones)}
    if name == "c":
        arrays["beta"] = 1
    with pytest.raises(pyclgemm.DtypeError, match=rf"{name} is a PackedMatrix"):
        pyclgemm.gemm(queue, **arrays)


@pytest.mark.parametrize("trans_b", [True, "T", "C"])
def test_transposing_a_packed_matrix_is_refused(queue: Any, trans_b: Any) -> None:
    packed = pyclgemm.pack(queue, np.zeros((4, 4), np.float32))
    with pytest.raises(pyclgemm.PyclgemmError, match="trans_b"):
        pyclgemm.gemm(queue, np.zeros((4, 4), np.float32), packed, trans_b=trans_b)


def test_packing_what_is_no_matrix_is_refused(queue: Any) -> None:
    with pytest.raises(pyclgemm.ShapeError, match=r"\bb\b.*\(4,\)"):
        pyclgemm.pack(queue, np.zeros(4, np.float32))
    with pytest.raises(pyclgemm.DtypeError, match=r"\bb\b.*int64"):
        pyclgemm.pack(queue, np.zeros((4, 4), np.int64))
