"""The check of a result: right ones pass, and each kind of mistake is caught."""

import numpy as np
import pytest

from pyclgemm.measure import verify as verification
from pyclgemm.measure.verify import fault_of, reference, rounding_of
from pyclgemm.problem.precision import resolve_precision
from tests.support.reference import DTYPES, random_array


def fault(a, b, result, dtype="float32", precision=None):
    parts = reference(a, b, np.random.default_rng(5))
    rounding = rounding_of(dtype, a.shape[-1], resolve_precision(precision, dtype))
    return fault_of(result, parts, rounding)


def operands(m, n, k, dtype="float32", stack=()):
    rng = np.random.default_rng(7)
    return random_array(rng, (*stack, m, k), dtype), random_array(rng, (*stack, k, n), dtype)


def summed(a, b, dtype):
    """The product with sums in the arithmetic of the type."""
    wide = np.float32 if dtype == "float16" else a.dtype
    return (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


@pytest.fixture(params=[False, True], ids=["whole", "sampled"])
def sampled(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(verification, "_WHOLE", 0)
        monkeypatch.setattr(verification, "_BLOCK", 16)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(40, 50, 30), (1, 1, 1), (5, 7, 3000), (33, 1, 2)])
def test_a_right_result_passes(sampled, dtype, sizes):
    a, b = operands(*sizes, dtype)
    assert fault(a, b, summed(a, b, dtype), dtype) is None


def test_the_least_exact_arithmetic_that_is_right_passes():
    a, b = operands(20, 20, 200, "float16")
    result = np.zeros((20, 20), np.float16)
    for i in range(200):
        result = (result + np.outer(a[:, i], b[i]).astype(np.float16)).astype(np.float16)
    assert fault(a, b, result, "float16", "F16_F16_F16") is None
    assert fault(a, b, result, "float16")


def test_a_split_precision_is_held_to_its_own_error():
    a, b = operands(40, 50, 30)
    rounded = [
        (x.view(np.uint32) + 0x1000 & 0xFFFFE000).astype(np.uint32).view(np.float32) for x in (a, b)
    ]
    result = rounded[0] @ rounded[1]  # as of tf32
    assert fault(a, b, result, "float32", "TF32_TF32_F32") is None
    assert fault(a, b, result, "float32", "TF32_TF32_F32_X3")
    assert fault(a, b, a @ b, "float32", "TF32_TF32_F32_X3") is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", [(0, 3), (39, 20), (17, 0), (11, 49)])
def test_an_element_on_an_edge_is_caught(sampled, dtype, where):
    a, b = operands(40, 50, 30, dtype)
    result = summed(a, b, dtype)
    result[where] = result[where] * 1.1 + 0.1
    assert str(where) in fault(a, b, result, dtype)


def test_an_element_that_was_not_written_is_caught(sampled):
    a, b = operands(40, 50, 30)
    result = summed(a, b, "float32")
    result[0, 0] = np.nan
    assert fault(a, b, result) == "1 elements are no finite numbers"


def test_a_missing_slab_of_a_long_sum_is_caught(sampled):
    a, b = operands(16, 16, 60_000)
    result = a[:, 16:] @ b[16:]
    assert fault(a, b, result)


def test_a_wrong_tile_is_caught_by_the_sample(monkeypatch):
    monkeypatch.setattr(verification, "_WHOLE", 0)
    a, b = operands(300, 300, 20)
    result = summed(a, b, "float32")
    result[128:256] = np.roll(result[128:256], 1, 0)
    assert fault(a, b, result)


@pytest.mark.parametrize("product", [0, 69])
def test_a_wrong_product_of_a_batch_is_caught(sampled, product):
    a, b = operands(40, 9, 30, stack=(70,))
    result = a @ b
    assert fault(a, b, result) is None
    result[product] = 1000
    assert f"at ({product}, 0, 0) it is 1000" in fault(a, b, result)
