"""Matrices, and how far a result is from the exact one: it is checked before it is timed."""

import numpy as np
import pytest

from benchmarks.contenders.contenders import NumpyContender, gemm_contender, plan_contender
from benchmarks.products import operands
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.operands import make_operands
from pyclgemm.errors import PyclgemmError
from tests.support.benchmark_fakes import FLOAT32, KINDS, call_once, make_float32


def test_types_that_do_not_go_together_are_named():
    with pytest.raises(PyclgemmError, match="TF32_TF32_F32"):
        arithmetic_of("float64", "TF32_TF32_F32")
    with pytest.raises(ValueError, match="result of float32 operands is float32, not float16"):
        arithmetic_of("float32", None, "float16")


@pytest.mark.parametrize("kind", [*KINDS, ("float32", None, None), ("complex64", None, None)])
def test_each_arithmetic_is_held_to_its_own_bound(queue, rng, kind):
    how = arithmetic_of(*kind)
    made = make_operands(Case(33, 34, 128, padding=3), how, queue, rng)
    assert made.sets[0][2].dtype.name == how.result_dtype
    a, b = (matrix.astype(complex) for matrix in made.host)
    exact = a @ b if how.dtype == "complex64" else (a @ b).real
    right = exact.astype(how.result_dtype)
    assert made.error(right, how.precision).ratio < 1
    exact[17, 11] += 3 if how.dtype == "int8" else 0.5 * (np.abs(a) @ np.abs(b))[17, 11]
    wrong = made.error(exact.astype(how.result_dtype), how.precision)
    assert wrong.ratio > 1
    if how.dtype == "int8":
        assert made.error(right, how.precision).ratio == 0
        return
    assert wrong.largest == pytest.approx(0.5, rel=0.02)
    right[17, 11] = np.nan
    assert made.error(right, how.precision).ratio == np.inf


def test_one_rounding_to_tf32_is_allowed_where_it_was_asked_for(queue):
    made = make_float32(queue, Case(8, 9, 16))
    [whole] = made.parts
    off = (whole.value + 2e-4 * whole.magnitude).astype(np.float32)
    assert made.error(off, FLOAT32.precision).ratio > 1
    assert made.error(off, arithmetic_of("float32", "TF32_TF32_F32").precision).ratio < 1


def test_of_a_large_product_no_wrong_tile_escapes(queue, monkeypatch):
    monkeypatch.setattr(operands, "_MOST_WORK", 16 * 70 * 5)
    made = make_float32(queue, Case(64, 70, 5))
    rows = made.parts[0].axes[0]
    assert len(rows) <= 18 and {0, 63} <= set(rows)
    right = made.host[0] @ made.host[1]
    assert made.error(right, FLOAT32.precision).ratio < 1
    for start in range(57):
        wrong = right.copy()
        wrong[start : start + 7, 60:] += 1
        assert made.error(wrong, FLOAT32.precision).ratio > 1
    unwritten = right.copy()
    unwritten[np.setdiff1d(np.arange(64), rows)[0], 3] = np.nan
    assert made.error(unwritten, FLOAT32.precision).ratio == np.inf


def test_bias_and_relu_are_checked(queue):
    made = make_float32(queue, Case(9, 8, 7, "NT"))
    product = made.host[0] @ made.host[1].T
    activated = np.maximum(product + made.bias, 0)
    assert made.error(activated, FLOAT32.precision, made.bias).ratio < 1
    assert made.error(product + made.bias, FLOAT32.precision, made.bias).ratio > 1


def test_a_wrong_product_of_a_batch_is_found(queue, monkeypatch):
    case = Case(4, 5, 6, "NT", padding=1, batch=50)
    made = make_float32(queue, case)
    right = made.host[0] @ made.host[1].swapaxes(1, 2)
    wrong = right.copy()
    wrong[17, 2, 3] += 1
    assert made.error(right, FLOAT32.precision).ratio < 1
    assert made.error(wrong, FLOAT32.precision).ratio > 1
    monkeypatch.setattr(operands, "_MOST_WORK", 10 * 4 * 5 * 6)
    made = make_float32(queue, case)
    assert len(made.parts[0].axes[0]) <= 12 and made.error(right, FLOAT32.precision).ratio < 1
    for contender in (plan_contender(made), gemm_contender(made), NumpyContender(made)):
        assert call_once(contender, made).ratio < 1


def test_the_result_is_poisoned_before_a_check(queue):
    made = make_float32(queue, Case(4, 3, 2, padding=1))
    assert call_once(plan_contender(made), made).held
    made.poison()
    assert np.isnan(made.result()).all()
    assert made.result().shape == (4, 3)


def test_every_set_has_buffers_of_its_own_with_the_same_numbers(queue):
    for case in (Case(5, 6, 7), Case(5, 6, 7, padding=2)):
        made = make_float32(queue, case, sets=3)
        buffers = {array.base_data.int_ptr for one in made.sets for array in one}
        assert len(buffers) == 9
        for one in made.sets:
            for array, host in zip(one, made.host, strict=False):
                base = operands.with_padding(queue, array)
                np.testing.assert_array_equal(base[:, : host.shape[1]], host)


def test_sets_are_as_many_as_asked_for_or_more_than_caches_hold(queue):
    counts = [len(make_float32(queue, Case(64, 64, 64), sets=sets).sets) for sets in (1, 2, None)]
    assert counts == [1, 2, 64]
