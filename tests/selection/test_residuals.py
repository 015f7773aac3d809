"""Errors of predicted times, beside equations that are set up pair by pair and solved exactly."""

import math

import numpy as np
import pytest

from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import WorkTable, shares, total
from pyclgemm.families.registry import family_of, problem_on
from pyclgemm.selection import residuals
from pyclgemm.selection.database import load_database
from pyclgemm.selection.features import extents, samples_of
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


def covariance_of(found, of_parts, times):
    """The covariance of the times of a family, pair by pair, without the noise."""
    samples = found.samples[times]
    features = np.column_stack([found.features, found.packs])[times]
    octaves = np.log2([extents(one.problem) for one in samples])
    matrix = np.empty([len(samples)] * 2)
    for i, one in enumerate(samples):
        for j, other in enumerate(samples):
            apart = np.sum((features[i] - features[j]) ** 2)
            alike = residuals._ALIKE * math.exp(-apart / (2 * residuals._LIKE**2))
            own = residuals._OWN if one.config == other.config else 0
            near = 1 + np.sum((octaves[i] - octaves[j]) ** 2) / (2 * residuals._REACH**2)
            shared = (own + alike + residuals._FAMILY) / near
            matrix[i, j] = shared * layout_factor(one.problem, other.problem)
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
