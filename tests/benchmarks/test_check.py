"""Results are checked before they are timed, and a wrong one is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.contenders.contenders import NumpyContender, gemm_contender, plan_contender
from benchmarks.products import check
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.check import Reference, error_ratio, make_reference
from benchmarks.products.operands import make_operands


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_check_passes_a_right_result_and_finds_one_wrong_element(
    queue: Any, dtype: str, rng: np.random.Generator
) -> None:
    operands = make_operands(Case(33, 34, 35, padding=3), arithmetic_of(dtype), queue, rng)
    one = operands.sets[0]
    reference = make_reference(operands, rng)
    right = one.a.host @ one.b.host
    assert 0 < error_ratio(right, reference, arithmetic_of(dtype).precision) < 1
    for spoiled in (right[17, 11] + 1, np.nan):
        wrong = right.copy()
        wrong[17, 11] = spoiled
        assert error_ratio(wrong, reference, arithmetic_of(dtype).precision) > 1


def test_of_a_large_product_no_wrong_tile_escapes(
    queue: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_MOST_WORK", 16 * 70 * 5)
    operands = make_operands(Case(64, 70, 5), arithmetic_of("float32"), queue, rng)
    reference = make_reference(operands, rng)
    assert len(reference.rows) <= 18 and {0, 63} <= set(reference.rows)
    right = operands.sets[0].a.host @ operands.sets[0].b.host
    assert error_ratio(right, reference, arithmetic_of("float32").precision) < 1
    for start in range(57):
        wrong = right.copy()
        wrong[start : start + 7, 60:] += 1
        assert error_ratio(wrong, reference, arithmetic_of("float32").precision) > 1
    unwritten = right.copy()
    unwritten[np.setdiff1d(np.arange(64), reference.rows)[0], 3] = np.nan
    assert error_ratio(unwritten, reference, arithmetic_of("float32").precision) == np.inf


def test_the_check_adds_bias_and_relu(queue: Any, rng: np.random.Generator) -> None:
    operands = make_operands(Case(9, 8, 7, trans_b=True), arithmetic_of("float32"), queue, rng)
    one, bias = operands.sets[0], operands.bias.host[0]
    reference = make_reference(operands, rng)
    product = one.a.host @ one.b.host.T
    assert (
        error_ratio(
            np.maximum(product + bias, 0), reference, arithmetic_of("float32").precision, bias
        )
        < 1
    )
    assert error_ratio(product + bias, reference, arithmetic_of("float32").precision, bias) > 1


def test_a_wrong_product_of_a_batch_is_found(
    queue: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = make_operands(
        Case(4, 5, 6, trans_b=True, padding=1, batch=50), arithmetic_of("float32"), queue, rng
    )
    one = operands.sets[0]
    right = one.a.host @ one.b.host.swapaxes(1, 2)
    precision = arithmetic_of("float32").precision
    wrong = right.copy()
    wrong[17, 2, 3] += 1
    reference = make_reference(operands, rng)
    assert error_ratio(right, reference, precision) < 1 < error_ratio(wrong, reference, precision)
    monkeypatch.setattr(check, "_MOST_PRODUCTS", 10)
    reference = make_reference(operands, rng)
    assert len(reference.rows) <= 12 and error_ratio(right, reference, precision) < 1
    contenders = [plan_contender(operands), gemm_contender(operands), NumpyContender(operands)]
    for contender in contenders:
        contender.poison()
        contender.enqueue(1)
        contender.finish()
        assert error_ratio(contender.result(), reference, precision) < 1


def test_the_result_is_poisoned_before_a_check(queue: Any, rng: np.random.Generator) -> None:
    operands = make_operands(Case(4, 3, 2, padding=1), arithmetic_of("float32"), queue, rng)
    assert not np.isnan(operands.result()).any()
    operands.poison()
    assert np.isnan(operands.result()).all()
    assert operands.result().shape == (4, 3)


def test_rounding_among_the_smallest_float16_numbers_is_allowed_and_no_more(
    rng: np.random.Generator,
) -> None:
    exact = rng.uniform(-(2.0**-18), 2.0**-18, (50, 60))  # below 2**-14 the least distance rules
    reference = Reference(1, np.arange(50), exact, np.abs(exact).astype(np.float32))
    precision = arithmetic_of("float16").precision
    right = exact.astype(np.float16)
    assert 0.4 < error_ratio(right, reference, precision) < 0.6
    assert error_ratio(right + np.float16(2.0**-23), reference, precision) > 1
