"""Fitted coefficients: recovered from noisy times, and unchanged where times say nothing."""

from dataclasses import astuple, fields, replace

import numpy as np
import pytest

from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import Coefficients, WorkTable
from pyclgemm.families.registry import FAMILIES
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.tuning.fit import Sample, fit_coefficients, times_by_family
from tests.support.facts import cpu

pytest.importorskip("scipy")

#: Coefficients in seconds, which a fit does not change.
LATENCIES = {"slab", "tile", "launch", "pack_launch", "split", "descriptors"}
NAMES = [field.name for field in fields(Coefficients) if field.name not in LATENCIES]
TRAITS = typical_traits("gfx1030")
CEILINGS = typical_ceilings(TRAITS)
PRECISION = resolve_precision(None, "float32")
#: Far from the assumed coefficients.
TRUE = Coefficients(multiply=2.0, memory=1.8, store=1.6)
NOISE = 0.05
ASSUMED = FAMILIES["direct"].coefficients


def products(rng, count):
    """Random products, half of them small, each with a configuration of a menu in turn."""
    menu, cases = FAMILIES["direct"].menu("float32", TRAITS, PRECISION), []
    for number in range(count):
        # Some k are short, so that memory bounds the product.
        sizes = np.exp2(rng.uniform((4, 4, 1), 8 if number % 2 else 12)).astype(int)
        shape = GemmShape(*map(int, sizes), LAYOUTS[number % 4])
        cases.append((shape.problem(), menu[number % len(menu)]))
    return cases


def predicted(cases, coefficients):
    work = [FAMILIES[one.family].work(one, wanted, TRAITS, CEILINGS) for wanted, one in cases]
    sizes = np.array([(wanted.m, wanted.n, wanted.k) for wanted, _ in cases], float).T
    return WorkTable(work, [coefficients] * len(work), TRAITS.compute_units).seconds(*sizes, 1)


def noisy(cases, rng):
    return predicted(cases, TRUE) * np.exp(NOISE * rng.standard_normal(len(cases)))


def sampled(cases, times):
    return [Sample(*case, float(time)) for case, time in zip(cases, times, strict=True)]


def fitted(cases, times):
    return fit_coefficients(sampled(cases, times), TRAITS, CEILINGS)["direct"]


def deviations(cases):
    """The standard deviation of each coefficient's logarithm, by least squares of the noise."""
    right = predicted(cases, TRUE)
    nearby = (replace(TRUE, **{name: getattr(TRUE, name) * np.exp(1e-4)}) for name in NAMES)
    slopes = np.array([np.log(predicted(cases, one) / right) / 1e-4 for one in nearby])
    # A coefficient about which the times say nothing is known to a factor of e^100.
    information = slopes @ slopes.T / NOISE**2 + 1e-4 * np.eye(len(NAMES))
    return np.sqrt(np.diag(np.linalg.inv(information)))


@pytest.mark.parametrize("seed", [1, 2])
def test_coefficients_are_recovered_from_noisy_times(seed):
    rng = np.random.default_rng(seed)
    cases = products(rng, 400)
    found = fitted(cases, noisy(cases, rng))
    assert found.times == 400
    # The median of the absolute value of normal noise is 0.67 of its deviation.
    assert found.error == pytest.approx(0.67 * NOISE, rel=0.2)
    known = set()
    for name, deviation in zip(NAMES, deviations(cases), strict=True):
        if deviation < 0.15:
            known.add(name)
            error = np.log(getattr(found.coefficients, name) / getattr(TRUE, name))
            assert abs(error) < 4 * deviation, name
    assert {"multiply", "memory"} <= known
    for name in LATENCIES:
        assert getattr(found.coefficients, name) == pytest.approx(getattr(TRUE, name)), name
    # Predictions for other products: 15 coefficients share the noise of 400 times.
    others = products(rng, 100)
    ratios = np.log(predicted(others, found.coefficients) / predicted(others, TRUE))
    assert np.sqrt(np.mean(ratios**2)) < 2 * NOISE * np.sqrt(15 / 400)


def test_a_few_wrong_times_change_a_fit_little():
    rng = np.random.default_rng(3)
    cases = products(rng, 300)
    times = noisy(cases, rng)
    times[::20] *= 10
    ratios = np.log(predicted(cases, fitted(cases, times).coefficients) / predicted(cases, TRUE))
    # Least squares would be off by a twentieth of log(10), which is 0.115.
    assert abs(np.mean(ratios)) < 0.03
    assert np.sqrt(np.mean(ratios**2)) < 0.06


def test_coefficients_about_which_times_say_nothing_stay_as_assumed():
    cases = [case for case in products(np.random.default_rng(4), 100) if not case[1].tiles.FILL]
    found = fitted(cases, predicted(cases, TRUE)).coefficients
    for name in ("split", "join", "pack_launch", "packing", "descriptors"):
        assert getattr(found, name) == pytest.approx(getattr(ASSUMED, name), rel=1e-3)


def test_one_configuration_alone_changes_no_coefficient():
    cases = products(np.random.default_rng(7), 40)
    alone = [(problem, cases[0][1]) for problem, _ in cases]
    found = fitted(alone, predicted(alone, TRUE)).coefficients
    assert astuple(found) == pytest.approx(astuple(ASSUMED))
    # Only one configuration divides slabs, so Stream-K's coefficient stays; the others change.
    plain = [case for case in cases if not case[1].tiles.FILL]
    dividing = next(config for _, config in cases if config.tiles.FILL)
    mixed = plain + [(problem, dividing) for problem, _ in plain[:9]]
    found = fitted(mixed, predicted(mixed, replace(TRUE, join=5.0))).coefficients
    assert found.join == pytest.approx(ASSUMED.join)
    assert found.multiply > 1.2 * ASSUMED.multiply


@pytest.mark.parametrize(("spread", "is_better"), [(0.0, True), (0.8, False)])
def test_the_error_for_unseen_configurations_shows_whether_a_fit_helps(spread, is_better):
    """The times follow from coefficients, or each configuration has a factor of its own."""
    rng, wins = np.random.default_rng(8), 0
    for _ in range(5):
        cases = products(rng, 24)
        factors = {config: np.exp(spread * rng.standard_normal()) for _, config in cases}
        times = predicted(cases, ASSUMED if spread else TRUE)
        times = times * [factors[config] for _, config in cases]
        by_family = times_by_family(sampled(cases, times), TRAITS, CEILINGS)
        before = np.abs(np.log(predicted(cases, ASSUMED) / times)).mean()
        wins += by_family["direct"].error_of_unseen() < before
    assert wins == 5 if is_better else wins <= 2


@pytest.mark.parametrize(("configs", "least", "most"), [(99, 0.85, 1.0), (3, 0.1, 0.5)])
def test_assumed_coefficients_count_little_beside_many_configurations(configs, least, most):
    """The coefficient of memory covers a part of the way from the assumed to the true value."""
    covered = []
    for seed in range(5):
        drawn = products(np.random.default_rng(seed), 40)
        few = list(dict.fromkeys(config for _, config in drawn))[:configs]
        cases = [(problem, few[number % len(few)]) for number, (problem, _) in enumerate(drawn)]
        found = fitted(cases, predicted(cases, TRUE)).coefficients.memory
        covered.append(np.log(found / ASSUMED.memory) / np.log(TRUE.memory / ASSUMED.memory))
    assert least < np.mean(covered) < most


def test_too_few_times_are_not_fitted_and_one_configuration_predicts_no_other():
    for number in (0, 7):
        cases = products(np.random.default_rng(6), number)
        assert fit_coefficients(sampled(cases, number * [1e-3]), TRAITS, CEILINGS) == {}
    cases = 9 * products(np.random.default_rng(9), 1)
    times = times_by_family(sampled(cases, 9 * [1e-3]), TRAITS, CEILINGS)
    assert times["direct"].error_of_unseen() == np.inf


def test_families_are_fitted_separately_and_those_without_a_prediction_are_not():
    samples, traits = [], typical_traits("sm_80")
    for number, family in enumerate(("direct", "gemv")):
        for config in FAMILIES[family].menu("float32", traits, PRECISION) * 2:
            problem = GemmShape(2, 2048, 2048).problem()
            samples.append(Sample(problem, config, 1e-3 * (1 + 9 * number)))
    found = fit_coefficients(samples, traits, typical_ceilings(traits))
    assert found.keys() == {"direct", "gemv"}
    assert sum(fit.times for fit in found.values()) == len(samples)
    one, other = (found[name].coefficients for name in ("direct", "gemv"))
    assert other.memory > 2 * one.memory
    # Nothing is predicted for float64 on a device without it.
    processor = cpu(float64=False)
    menu = FAMILIES["cpu"].menu("float32", processor, PRECISION)
    lacking = [Sample(GemmShape(9, 9, 9).problem("float64"), one, 1e-3) for one in menu * 2]
    assert fit_coefficients(lacking, processor, typical_ceilings(processor)) == {}
