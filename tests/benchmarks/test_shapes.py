"""The benchmarks' products: suites, and shapes given as text."""

from dataclasses import replace

import pytest

from benchmarks.products.case import Case, parse_shapes
from benchmarks.products.shapes import SUITES, Target, limit_targets, suite_cases
from pyclgemm.measure.suites import SUITES as TUNED


def test_square_doubles_from_64_to_8192():
    sizes = [case.m for case in suite_cases("square")]
    assert sizes == [64, 128, 256, 512, 1024, 2048, 4096, 8192]


def test_every_suite_names_itself_and_all_is_their_union():
    parts = [case for suite in SUITES for case in suite_cases(suite)]
    assert parts == suite_cases("all")
    assert {case.suite for case in parts} == set(SUITES)
    assert len(set(parts)) == len(parts)
    assert all(case.dense == (case.suite == "dense") for case in parts)
    with pytest.raises(ValueError, match="'round'; known are square.*limit, random, all"):
        suite_cases("round")


@pytest.mark.parametrize("suite", [*SUITES, "batched"])
def test_cases_are_unique_as_text_and_can_be_given_as_shapes(suite):
    cases = suite_cases(suite)
    again = parse_shapes(",".join(map(str, cases)), suite=suite)
    assert [replace(case, dense=False) for case in cases] == again
    assert len({str(case) for case in cases}) == len(cases)


def test_random_shapes_are_repeatable_and_within_bounds():
    cases = suite_cases("random", count=50, seed=3)
    assert cases == suite_cases("random", count=50, seed=3)
    assert cases != suite_cases("random", count=50, seed=4)
    assert all(1 <= size <= 8192 for case in cases for size in case.sizes)
    assert {case.layout for case in cases} == {"NN", "NT", "TN", "TT"}


@pytest.mark.parametrize(
    "text", ["", "12x3", "4x0x4", "4x4x4:XY", "axbxc", "4x4x4+", "2x3x5*", "2x3x5*0", "2x3x5*x"]
)
def test_a_bad_shape_is_refused(text):
    with pytest.raises(ValueError, match="wanted MxNxK.*a batch" if "*" in text else "wanted MxN"):
        parse_shapes(text)


@pytest.mark.parametrize(("batch", "stack", "count"), [("", (), 1), ("*7", (7,), 7)])
def test_bytes_and_work_of_a_case(batch, stack, count):
    (case,) = parse_shapes(f"2x3x5:TN+4{batch}")
    assert (case.stored_a, case.stored_b, case.stack) == ((5, 2), (5, 3), stack)
    assert case.bytes("float64") == count * 8 * (5 * 6 + 5 * 7 + 2 * 7)
    assert (case.flops("float32"), case.flops("complex64")) == (count * 60, count * 240)


def test_dense_layers_and_batches_have_no_factors():
    with pytest.raises(ValueError, match=r"alpha is 2\.0 and beta is 0\.0"):
        Case(1, 2, 3, dense=True, alpha=2.0)
    with pytest.raises(ValueError, match=r"alpha is 1\.0 and beta is 0\.5"):
        Case(1, 2, 3, batch=4, beta=0.5)


def test_what_is_tuned_for_is_measured():
    for suite in ("dense", "skinny"):
        measured = {case.sizes for case in suite_cases(suite)}
        assert {shape.sizes for shape in TUNED[suite]} <= measured, suite
    assert {case.batch for case in suite_cases("batched")} == {256, 10000}


def test_limit_has_each_product_once_with_a_target():
    targets = {str(case): target for case, target in limit_targets().items()}
    assert list(map(str, suite_cases("limit"))) == list(targets)
    assert len(limit_targets()) == len(targets) == 29
    wanted = {
        "4096x4096x4096": (0.97, None), "1000x1000x1000+7": (1.0, None),
        "16x16x100000": (0.9, None), "32x1024x1024": (1.0, 0.85), "35x8457x2560": (0.95, None),
    }  # fmt: skip
    assert {name: (targets[name].ratio, targets[name].bandwidth) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("ratio", "bandwidth", "met"),
    [(1.0, 0.1, True), (0.9, 0.85, True), (0.99, 0.84, False), (float("nan"), 0.9, True)],
)
def test_one_of_two_targets_is_enough(ratio, bandwidth, met):
    assert Target(1.0, 0.85).is_met(ratio, bandwidth) == met
