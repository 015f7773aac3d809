"""Results are checked against float64: right ones pass, and each mistake is caught."""

import operator
from fractions import Fraction

import numpy as np
import pytest

from pyclgemm.measure import verify
from pyclgemm.measure.verify import MeasuredError, Rounding, measure_error, reference, rounding_of
from pyclgemm.problem.precision import resolve_precision
from tests.support.reference import DTYPES, random_array

EXACT = Rounding(0.0, 0.0, 0.0)


def fault_of(a, b, result, precision=None):
    dtype = a.dtype.name
    parts = reference(a, b, np.random.default_rng(5))
    rounding = rounding_of(dtype, a.shape[-1], resolve_precision(precision, dtype))
    return measure_error(result, parts, rounding).fault


def numbers(m, n, k, dtype="float32", stack=()):
    """Operands, and their product with sums in the arithmetic of the type."""
    rng = np.random.default_rng(7)
    a, b = (random_array(rng, (*stack, *shape), dtype) for shape in ((m, k), (k, n)))
    wide = np.float32 if a.dtype.itemsize == 2 else a.dtype
    return a, b, (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


@pytest.fixture(params=[False, True], ids=["whole", "sampled"])
def sampled(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(verify, "_WHOLE", 0)
        monkeypatch.setattr(verify, "_BLOCK", 16)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("sizes", [(40, 50, 30), (1, 1, 1), (5, 7, 3000), (33, 1, 2)])
def test_a_right_result_passes(sampled, dtype, sizes):
    assert fault_of(*numbers(*sizes, dtype)) is None


def test_the_least_exact_arithmetic_that_is_right_passes():
    a, b, _ = numbers(20, 20, 200, "float16")
    result = np.zeros((20, 20), np.float16)
    for i in range(200):
        result = (result + np.outer(a[:, i], b[i]).astype(np.float16)).astype(np.float16)
    assert fault_of(a, b, result, "F16_F16_F16") is None
    assert fault_of(a, b, result)


@pytest.mark.parametrize("sizes", [(9, 8, 300), (3, 70, 1), (2, 3, 5000)])
def test_the_error_of_float64_is_measured_against_the_exact_product(sampled, sizes):
    a, b, result = numbers(*sizes, "float64")
    a *= 2.0 ** np.random.default_rng(1).integers(-40, 1, a.shape)
    result = a @ b
    exact = [
        [sum(map(operator.mul, map(Fraction, row), map(Fraction, column)), start=Fraction())
         for column in b.T.tolist()]
        for row in a.tolist()
    ]  # fmt: skip
    magnitude = np.abs(a) @ np.abs(b)
    errors = [
        [float(abs(Fraction(float(result[i, j])) - exact[i][j])) for j in range(len(b.T))]
        for i in range(len(a))
    ]
    (part, *_) = reference(a, b, np.random.default_rng(5))
    rounding = rounding_of("float64", sizes[-1], resolve_precision(None, "float64"))
    found = measure_error(result, [part], rounding)
    wanted = (np.array(errors) / magnitude)[np.ix_(*part.axes)]
    assert found.held and found.largest == pytest.approx(wanted.max(), rel=1e-6)
    assert found.largest > 0 or sizes[-1] == 1


def test_a_split_precision_is_held_to_its_own_error():
    a, b, right = numbers(40, 50, 30)
    rounded = [
        (x.view(np.uint32) + 0x1000 & 0xFFFFE000).astype(np.uint32).view(np.float32) for x in (a, b)
    ]
    result = rounded[0] @ rounded[1]  # as of tf32
    assert fault_of(a, b, result, "TF32_TF32_F32") is None
    assert fault_of(a, b, result, "TF32_TF32_F32_X3")
    assert fault_of(a, b, right, "TF32_TF32_F32_X3") is None


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("where", [(0, 3), (39, 20), (17, 0), (11, 49)])
def test_a_wrong_element_on_an_edge_is_caught(sampled, dtype, where):
    a, b, result = numbers(40, 50, 30, dtype)
    result[where] = result[where] * 1.1 + 0.1
    assert str(where) in fault_of(a, b, result)
    result[20, 20] = np.nan  # a NaN is found outside the sample, too
    assert fault_of(a, b, result) == "1 elements are no finite numbers"


@pytest.mark.parametrize("product", [0, 69])
def test_a_wrong_product_of_a_batch_is_caught(sampled, product):
    a, b, result = numbers(40, 9, 30, stack=(70,))
    assert fault_of(a, b, result) is None
    result[product] = 1000
    assert f"at ({product}, 0, 0) it is 1000" in fault_of(a, b, result)


def test_a_missing_slab_of_a_long_sum_and_a_wrong_tile_are_caught(sampled):
    a, b, _ = numbers(16, 16, 60_000)
    assert fault_of(a, b, a[:, 16:] @ b[16:])
    a, b, result = numbers(300, 300, 20)
    result[128:256] = np.roll(result[128:256], 1, 0)
    assert fault_of(a, b, result)


def test_integers_are_exact_and_a_sample_has_the_first_and_the_last_row(rng):
    a, b = (random_array(rng, shape, "int8") for shape in ((50, 70), (70, 30)))
    parts = rows, _ = reference(a, b, rng, most_work=10 * 30 * 70)
    assert {0, 49} <= set(rows.axes[0]) and len(rows.axes[0]) <= 12
    exact = a.astype(np.int64) @ b.astype(np.int64)
    magnitude = np.abs(a.astype(int)) @ np.abs(b.astype(int))
    for part in parts:
        assert (part.value == exact[np.ix_(*part.axes)]).all()
        assert (part.magnitude == magnitude[np.ix_(*part.axes)]).all()
    right = measure_error(exact.astype(np.int32), parts, EXACT)
    assert right == MeasuredError(0.0, 0.0, 0.0, 0.0) and right.held
    exact[rows.axes[0][3], 7] += 1
    wrong = measure_error(exact.astype(np.int32), parts, EXACT)
    assert not wrong.held and wrong.largest > 0


def test_errors_are_relative_to_the_sums_of_magnitudes(rng):
    a, b = rng.standard_normal((3, 8)), rng.standard_normal((8, 4))
    parts = reference(a, b, rng)
    result = a @ b + 0.125 * parts[0].magnitude
    error = measure_error(result, parts, Rounding(0.1, 0.0, 0.0))
    assert error.largest == pytest.approx(0.125) == error.root_mean_square
    assert (error.bound, error.held, error.ratio) == (0.1, False, pytest.approx(1.25))
    assert measure_error(result, parts, Rounding(0.13, 0.0, 0.0)).held
    result[1, 2] = np.nan
    error = measure_error(result, parts, Rounding(1.0, 0.0, 0.0))
    assert error.largest == np.inf and not error.held


def test_a_result_in_the_type_of_the_sums_is_not_rounded_once_more():
    half = resolve_precision("F16_F16_F32", "float16")
    stores = [rounding_of("float16", 64, half, *result).storing for result in ([], ["float32"])]
    assert stores == [2.0**-10, 0]
