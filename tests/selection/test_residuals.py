"""Errors of predicted times, beside equations that are set up pair by pair and solved exactly."""

import math

import numpy as np
import pytest

from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import WorkTable, shares, total
from pyclgemm.families.registry import family_of, problem_on
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection import residuals
from pyclgemm.selection.database import load_database
from pyclgemm.selection.features import Sample, extents, samples_of
from pyclgemm.selection.residuals import Residuals

H100 = typical_traits("sm_90")
TYPES = "float64", "F64_F64_F64"
#: Times of the families that are taken: more and fewer than a block of the factor has columns.
COUNTS = {"matrix": residuals._BLOCK + 44, "gemv": 40}


def a_table(samples):
    """The table of predicted times of some samples, on a typical H100."""
    ceilings, families = typical_ceilings(H100), [family_of(one.config) for one in samples]
    works = [
        family.work(one.config, problem_on(one.problem, H100), H100, ceilings)
        for family, one in zip(families, samples, strict=True)
    ]
    return WorkTable(works, [family.coefficients for family in families], H100.compute_units)


@pytest.fixture(scope="module")
def learnt():
    """Errors of recorded times, with the parts of each predicted time as shares."""
    entries = [entry for _, entry in load_database().lookup(H100, *TYPES)]
    recorded = [one for entry in entries for one in samples_of(entry.own, *TYPES)]
    samples = []
    for family, count in sorted(COUNTS.items()):
        samples += [one for one in recorded if one.config.family == family][:count]
    table = a_table(samples)
    parts = table.parts(*np.array([extents(one.problem) for one in samples], float).T)
    errors = np.log([one.seconds for one in samples] / total(parts))
    found = Residuals(samples, table, [0] * len(samples), "gpu")
    return found, errors, shares(parts, total(parts))


def layout_factor(one, other):
    factor = 1.0
    for a, b in ((one.a, other.a), (one.b, other.b)):
        octaves = math.log2(min(a.alignment, 8)) - math.log2(min(b.alignment, 8))
        factor *= residuals._OTHER_ALIGNMENT ** abs(octaves)
        factor *= residuals._OTHER_ORDER if a.order != b.order else 1
    differs = (one.out.alignment >= 8) != (other.out.alignment >= 8)
    return factor * (residuals._OTHER_ROWS if differs else 1)


def shared_variance(problems, features, *, same):
    """The covariance of two times of a family, but for the trend and the noise."""
    one, other = (np.log2(extents(problem)) for problem in problems)
    apart = np.sum((features[0] - features[1]) ** 2)
    alike = residuals._ALIKE * math.exp(-apart / (2 * residuals._LIKE**2))
    near = 1 + np.sum((one - other) ** 2) / (2 * residuals._REACH**2)
    shared = (residuals._OWN * same + alike + residuals._FAMILY) / near
    return shared * layout_factor(*problems)


def covariance_of(found, of_parts, times):
    """The covariance of the times of a family, pair by pair, without the noise."""
    samples = found.samples[times]
    features = np.column_stack([found.features, found.packs])[times]
    matrix = np.empty([len(samples)] * 2)
    for i, one in enumerate(samples):
        for j, other in enumerate(samples):
            pair, same = (one.problem, other.problem), one.config == other.config
            matrix[i, j] = shared_variance(pair, (features[i], features[j]), same=same)
    trend = of_parts[:, times]
    return matrix + residuals._TREND * trend.T @ trend


@pytest.mark.parametrize("family", COUNTS)
def test_weights_and_left_out_errors_are_those_of_the_equations(learnt, family):
    found, all_errors, of_parts = learnt
    times = found.families[family]
    errors, covariance = all_errors[times], covariance_of(found, of_parts, times)
    noisy = covariance + residuals._NOISE["gpu"] * np.eye(len(errors))
    # Equations in float32: a relative error of some 2^-24 times the condition of the matrix.
    bound = 2.0**-22 * np.linalg.cond(noisy) * np.abs(errors).max()
    weights = np.linalg.solve(noisy, errors)
    np.testing.assert_allclose(covariance @ found.weights[times], covariance @ weights, atol=bound)
    slopes = residuals._TREND * of_parts[:, times] @ weights
    np.testing.assert_allclose(found.slopes[family], slopes, atol=bound)
    left_out = []
    for one in range(len(errors)):
        others = np.arange(len(errors)) != one
        rest = np.linalg.solve(noisy[np.ix_(others, others)], errors[others])
        left_out.append(errors[one] - covariance[one, others] @ rest)
    prior, count = residuals._TYPICAL**2, residuals._PRIOR_TIMES
    squares = count * prior + np.sum(np.square(left_out))
    expected = math.sqrt(squares / (count + len(errors)))
    assert found.spread(family) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("text", ["1000x600x700", "8x3000x512:TN", "77x79x4001"])
def test_a_correction_is_the_sum_over_all_times(learnt, text):
    found, _, _ = learnt
    problem = problem_on(GemmShape.parse(text).problem("float64"), H100)
    configs = sorted({one.config for one in found.samples}, key=lambda one: one.family)
    table = a_table([Sample(problem, config, 1.0) for config in configs])
    packs = table.packs.astype(int)
    parts = table.parts(*extents(problem))
    weights = residuals.Weights(found, configs, table)
    corrections = residuals.Corrections(weights, problem, packs)
    errors, _ = corrections.at(extents(problem), parts, total(parts))
    measured = np.column_stack([found.features, found.packs])
    wanted = np.column_stack([residuals._features(table), packs])
    of_parts = shares(parts, total(parts))
    for number, config in enumerate(configs):
        expected = found.slopes[config.family] @ of_parts[:, number]
        for time, sample in enumerate(found.samples):
            if sample.config.family == config.family:
                pair, features = (problem, sample.problem), (wanted[number], measured[time])
                shared = shared_variance(pair, features, same=sample.config == config)
                expected += found.weights[time] * shared
        # Beside the terms that are left out, sums in float32.
        bound = residuals._NEGLIGIBLE + 2.0**-20 * np.abs(found.weights).sum()
        assert errors[number] == pytest.approx(expected, abs=bound)


def test_factors_leave_out_what_changes_errors_little():
    rng = np.random.default_rng(5)
    features, products = rng.random((60, 3)), rng.random((400, 3))
    apart = np.sum((features[:, None] - products) ** 2, axis=-1)
    weights = (rng.standard_normal(400) * np.exp(-apart / 2)).reshape(2, 30, 400)
    left, right = residuals._factored(weights)
    assert len(right) < 30
    for near in (np.ones(400), rng.random(400), np.eye(400)[7]):
        found = left @ (right @ near)
        bound = residuals._NEGLIGIBLE + 2.0**-20 * np.abs(weights).sum(-1).max()
        np.testing.assert_allclose(found, weights @ near, atol=bound)
    # Small weights of one sign, or none at all.
    for sum_of_weights in (2 * residuals._NEGLIGIBLE, 0):
        left, right = residuals._factored(np.full((1, 1, 400), sum_of_weights / 400))
        assert left @ (right @ np.ones(400)) == pytest.approx(sum_of_weights)


def test_of_many_times_an_even_selection_is_left_out():
    rng, count = np.random.default_rng(3), residuals._LEFT_OUT + 100
    half = rng.standard_normal((count, 20)) / 5
    covariance, errors = half @ half.T + 0.1 * np.eye(count), rng.standard_normal(count)
    exact = np.linalg.inv(covariance)
    expected = exact @ errors / np.diag(exact)
    root = residuals._Root(covariance.astype(np.float32))
    found = residuals._left_out(root, exact @ errors)
    assert len(found) == residuals._LEFT_OUT
    # Each is the error of one of the times, in their order, from the first to the last.
    apart = np.abs(found[:, None] - expected)
    assert apart.min(1).max() < 2.0**-22 * np.linalg.cond(covariance) * np.abs(errors).max()
    at = apart.argmin(1)
    assert (at[0], at[-1]) == (0, count - 1)
    assert set(np.diff(at)) == {1, 2}


def test_a_family_without_times_has_the_typical_error(learnt):
    found, _, _ = learnt
    assert found.spread("small") == residuals._TYPICAL
