"""Calibration: which kernels are timed, fitted coefficients, and what is kept."""

from dataclasses import astuple, replace
from itertools import accumulate
from operator import or_
from unittest.mock import Mock

import numpy as np
import pytest

import pyclgemm
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import Coefficients, WorkTable
from pyclgemm.families.registry import FAMILIES, family_of
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.selection.database import Database, load_database, read_file, reload_database
from pyclgemm.selection.model import basis_for, knowledge
from pyclgemm.selection.records import Model
from pyclgemm.selection.saving import user_file
from pyclgemm.tuning import calibrate
from pyclgemm.tuning.calibrate import Calibrator, kernels_in_turn, timed
from pyclgemm.tuning.fit import Sample, fit_coefficients, times_by_family
from tests.support import configs
from tests.support.bench_fakes import FakeTime
from tests.support.checks import raises
from tests.support.databases import FLOAT32, predict, save_records
from tests.support.facts import cpu, recorded

pytest.importorskip("scipy")

#: Coefficients in seconds, which a fit does not change.
LATENCIES = {"slab", "tile", "launch", "pack_launch", "split", "descriptors"}
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


#: Four standard deviations of a coefficient's logarithm, where least squares of the noise in 400
#: times have less than 0.6. About the others these times say little.
BOUNDS = {"multiply": 0.05, "store": 0.06, "memory": 0.12, "cache": 0.4, "join": 0.4}


@pytest.mark.parametrize("seed", [1, 2])
def test_coefficients_are_recovered_from_noisy_times(seed):
    rng = np.random.default_rng(seed)
    cases = products(rng, 400)
    found = fitted(cases, noisy(cases, rng))
    assert found.times == 400
    # The median of the absolute value of normal noise is 0.67 of its deviation.
    assert found.error == pytest.approx(0.67 * NOISE, rel=0.2)
    for name, bound in BOUNDS.items():
        error = np.log(getattr(found.coefficients, name) / getattr(TRUE, name))
        assert abs(error) < bound, name
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
        drawn = products(np.random.default_rng(seed), 50)
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
            problem = GemmShape(2, 8192, 8192).problem()  # which memory bounds
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


@pytest.mark.parametrize("name", ["sm_61", "sm_80", "sm_90", "gfx1030", "gfx1100", "x86-64-v3"])
def test_types_and_families_take_turns_and_few_kernels_are_built_for_many_times(name):
    traits = typical_traits(name)
    kernels = list(kernels_in_turn(traits, load_database()))
    assert len(set(kernels)) == len(kernels)
    of_types, configs = {}, {}
    for number, (config, problem) in enumerate((one.config, one.problem) for one in kernels):
        of_types.setdefault(problem.dtype, []).append(number)
        configs.setdefault((problem.dtype, config.family), []).append(config)
        assert not family_of(config).refusal(config, problem, traits)
    assert of_types.keys() == {"float32", "float64", *["float16"] * (traits.type == "gpu")}
    for end in range(min(numbers[-1] for numbers in of_types.values())):
        counts = [sum(number <= end for number in numbers) for numbers in of_types.values()]
        assert max(counts) - min(counts) <= 1
    for numbers in of_types.values():
        families = [kernels[number].config.family for number in numbers]
        assert set(families[: len(set(families))]) == set(families)
    for family in {"sm_80": ["matrix"], "sm_90": ["matrix", "wgmma"]}.get(name, []):
        assert ("float16", family) in configs
    for timed_configs in configs.values():
        first = list(dict.fromkeys(timed_configs))[:6]
        count = sum(config in first for config in timed_configs)
        assert set(timed_configs[:count]) == set(first) and count >= min(8, 2 * len(first))


def run_until(until, build, each, first=0.0):
    """The kernels that are timed between seconds `first` and `until`, and when the last ends."""
    time, built = FakeTime(), set()
    time.seconds = first
    kernels = kernels_in_turn(typical_traits("sm_80"), load_database())

    def seconds_of(kernel):
        key = kernel.problem.dtype, kernel.config
        time.seconds += each if key in built else build
        built.add(key)
        return 1e-3

    times = timed(kernels, seconds_of, time.clock(), until, lambda what: None)
    return [kernel for kernel, _ in times], time.seconds


@pytest.mark.parametrize("build", [0.1, 0.4, 3.0])
@pytest.mark.parametrize("until", [2.0, 8.0, 18.0])
def test_slow_builds_do_not_overrun_the_time(build, until):
    done, end = run_until(until, build, 0.05)
    # The duration of the first build is not known before.
    assert end <= max(until, build)
    assert len(done) >= min(until / build, 3)


def test_kernels_that_are_built_use_the_time_that_is_too_short_for_another_build():
    done, _ = run_until(8.0, 3.0, 0.1)
    assert len({(one.problem.dtype, one.config) for one in done}) == 2
    assert len(done) > 4
    for left in (0.0, 0.3):
        assert run_until(5.0, 0.1, 0.1, first=5.0 - left) == ([], 5.0 - left)


def predicted_time(kernel, traits, database):
    return float(predict([kernel.config], kernel.problem, traits, database)[0])


def truth(kernel, traits):
    """The time of a kernel on the imagined device: twice the time of an unknown device."""
    return 2 * predicted_time(kernel, traits, Database(()))


@pytest.fixture(params=["x86-64-v3", "sm_80"])
def traits(request, monkeypatch):
    """The traits of a CPU and of a GPU, which the machine need not have."""
    imagined = typical_traits(request.param)
    monkeypatch.setattr(calibrate, "traits_of", lambda device: imagined)
    return imagined


@pytest.fixture
def run(home, traits, monkeypatch):
    """A calibration whose measurements are invented and take time on a clock of their own."""
    typical, time = typical_ceilings(traits), FakeTime()
    figures = [
        {"arithmetic": {"float32": 0.5 * typical.arithmetic["float32"]}},
        {"global_memory": 0.7 * typical.global_memory, "date": "2026-11-23"},
        {"launch_seconds": 7e-6},
    ]

    def in_turn(queue, report):
        for known in accumulate(figures, or_):
            report("a ceiling")
            time.seconds += 1.0
            yield known

    def calibrated(budget, *, stop=0, seconds_of=truth):
        told = []

        def tell(what, part):
            told.append(what)
            assert 0 <= part <= 1
            if len(told) == stop:
                raise KeyboardInterrupt

        def seconds(kernel):
            time.seconds += 0.2
            return seconds_of(kernel, traits)

        monkeypatch.setattr(calibrate, "ceilings_in_turn", in_turn)
        monkeypatch.setattr(calibrate, "KernelTimer", lambda queue: Mock(seconds=seconds))
        time.seconds = 0.0
        found = Calibrator(Mock(), budget, tell, time.clock()).run()
        assert found.seconds == time.seconds <= budget
        assert found.path == user_file(traits)
        file = read_file(found.path)
        assert file.ceilings == found.ceilings
        return found, file, told

    return calibrated


def missed(traits, database):
    """The deviation of predictions from the truth, by type: the mean of the logarithm."""
    errors = {}
    for one in kernels_in_turn(traits, database):
        ratio = predicted_time(one, traits, database) / truth(one, traits)
        errors.setdefault(one.problem.dtype, []).append(abs(np.log(ratio)))
    return {dtype: np.mean(logarithms) for dtype, logarithms in errors.items()}


def test_predictions_follow_the_measurements_of_every_type(run, traits):
    before = missed(traits, load_database())
    found, file, _ = run(60.0)
    after = missed(traits, load_database())  # `run` has loaded it again
    assert found.ceilings.launch_seconds == 7e-6 and not found.interrupted
    assert found.fits.keys() == after.keys()
    assert {entry.dtype for entry in file.entries} == after.keys()
    for dtype, wrong in after.items():
        assert wrong < 0.6 * before[dtype] and wrong < 0.35, (before, after)


@pytest.mark.parametrize("budget", [1.0, 2.0])
def test_a_small_budget_keeps_the_ceilings_for_every_type(run, traits, budget):
    found, file, told = run(budget)
    assert told.count("a ceiling") == 1
    assert found.fits == {} and file.entries == ()
    for name in (FLOAT32, ("float64", "F64_F64_F64"), ("int8", "I8_I8_I32")):
        assert knowledge(load_database(), traits, *name).ceilings == found.ceilings
    # A ceiling for which no time was left is estimated.
    assert found.ceilings.launch_seconds == typical_ceilings(traits).launch_seconds
    assert basis_for(load_database(), traits).standing == "calibrated"


@pytest.mark.parametrize(("stop", "is_fitted"), [(2, False), (3, False), (5, False), (75, True)])
def test_ctrl_c_keeps_the_measurements_before_it(run, stop, is_fitted):
    found, file, told = run(60.0, stop=stop)
    assert len(told) == stop and found.interrupted
    assert bool(file.entries) == bool(found.fits) == is_fitted


def test_nothing_is_kept_where_nothing_was_measured(run, traits):
    with pytest.raises(KeyboardInterrupt):
        run(60.0, stop=1)
    with pytest.raises(pyclgemm.UnsupportedError, match="no kernel could be timed"):
        run(60.0, seconds_of=lambda kernel, traits: None)
    assert not user_file(traits).exists()


def test_a_fit_that_predicts_other_kernels_badly_is_not_kept(run):
    """Kernels of a family are in turn as fast as predicted, slower and faster."""
    known, numbers = load_database(), {}

    def seconds_of(kernel, traits):
        of_family = numbers.setdefault((kernel.problem.dtype, kernel.config.family), {})
        number = of_family.setdefault(kernel.config, len(of_family))
        return predicted_time(kernel, traits, known) * (1.0, 16.0, 1 / 16)[number % 3]

    found, _, _ = run(60.0, seconds_of=seconds_of)
    assert found.fits == {}


def test_the_tuners_records_stay_and_its_models_if_they_are_about_the_same_ceilings(run, traits):
    path, config = user_file(traits), configs.CPU if traits.type == "cpu" else configs.DIRECT
    known = recorded("512x512x512", config, 50.0)
    model = Model("tuned", "2026-01-01", {config.family: Coefficients(tile=3e-6)})
    name = "complex64", "F32_F32_F32"
    for is_about_them in (False, True):
        save_records(path, traits, name, [known], model=model)
        reload_database()
        _, file, _ = run(60.0)
        (entry,) = (one for one in file.entries if one.name == name)
        assert entry.own == (known,)
        assert (entry.fitted is not None) == is_about_them
    assert file.source.text.startswith("tuned on")


@pytest.mark.parametrize("seconds", [0.5, 0, -1, 4000, np.nan, np.inf, "20", None, True])
def test_seconds_that_are_refused(seconds):
    with raises(pyclgemm.ArgumentError, "seconds", repr(seconds), "wanted"):
        pyclgemm.calibrate(None, seconds)
