"""The benchmarks' products: suites, and shapes given as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.products import shapes
from benchmarks.products.case import parse_shapes
from benchmarks.products.limit import Target, limit_targets
from benchmarks.products.shapes import suite_cases
from pyclgemm.measure.suites import SUITES as TUNED


def test_square_doubles_from_64_to_8192() -> None:
    sizes = [case.m for case in suite_cases("square")]
    assert sizes == [64, 128, 256, 512, 1024, 2048, 4096, 8192]


def test_every_suite_names_itself_and_all_is_their_union() -> None:
    parts = [case for suite in shapes.SUITES for case in suite_cases(suite)]
    assert parts == suite_cases("all")
    assert {case.suite for case in parts} == set(shapes.SUITES)
    assert len(set(parts)) == len(parts)
    assert all(case.dense == (case.suite == "dense") for case in parts)


@pytest.mark.parametrize("suite", shapes.SUITES)
def test_labels_are_unique_and_can_be_given_as_shapes(suite: str) -> None:
    cases = suite_cases(suite)
    again = parse_shapes(",".join(str(case) for case in cases))
    assert [replace(case, suite="shapes", dense=False) for case in cases] == again
    assert len({str(case) for case in cases}) == len(cases)


def test_random_shapes_are_repeatable_and_within_bounds() -> None:
    cases = suite_cases("random", count=50, seed=3)
    assert cases == suite_cases("random", count=50, seed=3)
    assert cases != suite_cases("random", count=50, seed=4)
    assert all(1 <= size <= 8192 for case in cases for size in (case.m, case.n, case.k))
    assert {case.layout for case in cases} == {"NN", "NT", "TN", "TT"}


@pytest.mark.parametrize("text", ["", "12x3", "4x0x4", "4x4x4:XY", "axbxc", "4x4x4+"])
def test_a_bad_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted MxNxK"):
        parse_shapes(text)


def test_stored_shapes_and_work_of_a_case() -> None:
    (case,) = parse_shapes("2x3x5:TN+4")
    assert (case.stored_a, case.stored_b, case.stack) == ((5, 2), (5, 3), ())
    assert case.bytes("float64") == 8 * (5 * 6 + 5 * 7 + 2 * 7)
    assert (case.flops("float32"), case.flops("complex64")) == (60, 240)


def test_a_batch_is_a_case() -> None:
    (case,) = parse_shapes("2x3x5:TN+4*7")
    assert (case.stored_a, case.stored_b, case.stack) == ((5, 2), (5, 3), (7,))
    assert case.bytes("float64") == 7 * 8 * (5 * 6 + 5 * 7 + 2 * 7)
    assert case.flops("float32") == 7 * 60
    for text in ("2x3x5*", "2x3x5*0", "2x3x5*x"):
        with pytest.raises(ValueError, match="wanted MxNxK.*a batch"):
            parse_shapes(text)
    suite = suite_cases("batched")
    again = parse_shapes(",".join(str(case) for case in suite), suite="batched")
    assert again == suite and {case.batch for case in suite} == {256, 10000}


def test_what_is_tuned_for_is_measured() -> None:
    for suite in ("dense", "skinny"):
        measured = {(case.m, case.n, case.k) for case in suite_cases(suite)}
        assert {shape.sizes for shape in TUNED[suite]} <= measured, suite


def test_limit_has_each_product_once_with_a_target() -> None:
    targets = limit_targets()
    assert suite_cases("limit") == list(targets)
    labels = [str(case) for case in targets]
    assert len(set(labels)) == len(labels) == 29
    wanted = {str(case): (target.ratio, target.bandwidth) for case, target in targets.items()}
    assert wanted["4096x4096x4096"] == (0.97, None)
    assert wanted["1000x1000x1000+7"] == (1.0, None)
    assert wanted["16x16x100000"] == (0.9, None)
    assert wanted["32x1024x1024"] == (1.0, 0.85)
    assert wanted["35x8457x2560"] == (0.95, None)


@pytest.mark.parametrize(
    ("ratio", "bandwidth", "met"),
    [(1.0, 0.1, True), (0.9, 0.85, True), (0.99, 0.84, False), (float("nan"), 0.9, True)],
)
def test_one_of_two_targets_is_enough(ratio: float, bandwidth: float, met: bool) -> None:
    assert Target(1.0, 0.85).is_met(ratio, bandwidth) == met


def test_an_unknown_suite_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="'round'; known are square.*limit, random, all"):
        suite_cases("round")
