"""The benchmarks' products: suites, random shapes, shapes as text, targets."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest

from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case, parse_shapes
from benchmarks.products.shapes import SUITES, suite_cases, unseen_cases
from pyclgemm.cli.options import SUITES as TUNED
from pyclgemm.errors import PyclgemmError


def test_every_case_has_its_suite_and_all_is_their_union():
    parts = [case for suite in SUITES for case in suite_cases(suite)]
    assert parts == suite_cases("all")
    assert {case.suite for case in parts} == set(SUITES)
    assert all(case.dense == (case.suite == "dense") for case in parts)
    assert [case.m for case in suite_cases("square")] == [2**power for power in range(6, 14)]


@pytest.mark.parametrize("suite", [*SUITES, "batched", "limit"])
def test_cases_are_unique_as_text_and_read_from_it(suite):
    cases = suite_cases(suite)
    read = parse_shapes(",".join(map(str, cases)), suite=suite)
    assert [replace(case, dense=False) for case in cases] == read
    assert len({str(case) for case in cases}) == len(cases)


def test_random_shapes_are_repeatable_and_within_bounds():
    cases, again, others = (suite_cases("random", count=50, seed=seed) for seed in (3, 3, 4))
    assert cases == again and cases != others
    assert all(1 <= size <= 8192 for case in cases for size in case.sizes)
    assert {case.layout for case in cases} == {"NN", "NT", "TN", "TT"}


@pytest.mark.parametrize(("batched", "largest"), [(False, 8192), (True, 1024)])
def test_unseen_shapes_are_spread_over_sizes_layouts_and_alignments(batched, largest):
    rng = np.random.default_rng(3)
    cases = list(islice(unseen_cases(rng, batched=batched), 3000))
    sizes = np.array([case.sizes for case in cases])
    assert sizes.min() == 8 and largest / 1.1 < sizes.max() <= largest
    # Log-uniform: half of the sizes lie below the geometric mean of the bounds.
    assert np.mean(sizes < np.sqrt(8 * largest)) == pytest.approx(0.5, abs=0.03)
    assert np.mean(sizes % 8 > 0) == pytest.approx(1 / 3, abs=0.03)
    layouts = [case.layout for case in cases]
    assert {layouts.count(one) > 600 for one in ("NN", "NT", "TN", "TT")} == {True}
    batches = {case.batch for case in cases}
    assert (min(batches) == 2 and 3000 < max(batches) <= 4096) if batched else batches == {None}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(parse_shapes, " ,"), "shapes is empty; wanted MxNxK"),
        (partial(parse_shapes, "1x2x3,12x3"), "'12x3'; wanted MxNxK.*a batch"),
        (partial(suite_cases, "round"), "'round'; known are square.*limit, random, all"),
        (partial(Case, 1, 2, 3, dense=True, alpha=2.0), r"alpha is 2\.0 and beta is 0\.0"),
        (partial(Case, 1, 2, 3, batch=4, beta=0.5), r"alpha is 1\.0 and beta is 0\.5"),
        (partial(arithmetic_of, "float64", "TF32_TF32_F32"), "TF32_TF32_F32"),
        (partial(arithmetic_of, "float32", None, "float16"),
         "result of float32 operands is float32, not float16"),
    ],
)  # fmt: skip
def test_wrong_products_are_named(make, message):
    with pytest.raises((ValueError, PyclgemmError), match=message):
        make()


@pytest.mark.parametrize(("batch", "stack", "count"), [("", (), 1), ("*7", (7,), 7)])
def test_bytes_and_work_of_a_case(batch, stack, count):
    (case,) = parse_shapes(f"2x3x5:TN+4{batch}")
    assert (case.stored_a, case.stored_b, case.stack) == ((5, 2), (5, 3), stack)
    assert case.bytes("float64") == count * 8 * (5 * 6 + 5 * 7 + 2 * 7)
    assert (case.flops("float32"), case.flops("complex64")) == (count * 60, count * 240)


def test_shapes_of_the_tuner_are_measured():
    for suite in ("dense", "skinny"):
        measured = {case.sizes for case in suite_cases(suite)}
        assert {shape.sizes for shape in TUNED[suite]} <= measured, suite
