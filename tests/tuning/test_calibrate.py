"""Calibration: which kernels are timed, when it ends, and what it keeps."""

from itertools import accumulate
from operator import or_
from unittest.mock import Mock

import numpy as np
import pytest

import pyclgemm
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import Coefficients
from pyclgemm.families.registry import family_of
from pyclgemm.selection.database import Database, load_database, read_file, reload_database
from pyclgemm.selection.model import knowledge, standing
from pyclgemm.selection.records import Model
from pyclgemm.selection.saving import user_file
from pyclgemm.tuning import calibrate
from pyclgemm.tuning.calibrate import Calibrator, kernels_in_turn, timed
from tests.support import configs
from tests.support.bench_fakes import FakeTime
from tests.support.checks import raises
from tests.support.databases import FLOAT32, predict, save_records
from tests.support.facts import recorded

pytest.importorskip("scipy")


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
        built = len(set(timed_configs))
        assert built <= 6 and len(timed_configs) >= min(8, 2 * built)


def run_until(until, build, each, first=0.0):
    """The kernels that are timed from second `first` on, and the second of the end.

    A build takes `build` seconds, a timing `each`.
    """
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


def truth(kernel, traits):
    """The time of a kernel on the imagined device: twice the time of an unknown device."""
    return 2 * float(predict([kernel.config], kernel.problem, traits, Database(()))[0])


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
        return found, told

    return calibrated


def missed(traits, database):
    """The deviation of predictions from the truth, by type: the mean of the logarithm."""
    found = {}
    for one in kernels_in_turn(traits, database):
        (expected,) = predict([one.config], one.problem, traits, database)
        found.setdefault(one.problem.dtype, []).append(np.log(expected / truth(one, traits)))
    return {dtype: np.mean(np.abs(logarithms)) for dtype, logarithms in found.items()}


def test_predictions_follow_the_measurements_of_every_type(run, traits):
    before = missed(traits, load_database())
    found, _ = run(60.0)
    after = missed(traits, load_database())  # `run` has loaded it again
    file = read_file(found.path)
    assert file.ceilings == found.ceilings
    assert found.ceilings.launch_seconds == 7e-6 and not found.interrupted
    assert found.fits.keys() == after.keys()
    assert {entry.dtype for entry in file.entries} == after.keys()
    for dtype, wrong in after.items():
        assert wrong < 0.6 * before[dtype] and wrong < 0.35, (before, after)


@pytest.mark.parametrize("budget", [1.0, 2.0])
def test_a_small_budget_keeps_the_ceilings_for_every_type(run, traits, budget):
    found, told = run(budget)
    assert told.count("a ceiling") == 1 and found.fits == {}
    file = read_file(found.path)
    assert file.ceilings == found.ceilings and file.entries == ()
    for name in (FLOAT32, ("float64", "F64_F64_F64"), ("int8", "I8_I8_I32")):
        assert knowledge(load_database(), traits, *name).ceilings == found.ceilings
    # A ceiling for which no time was left is estimated.
    assert found.ceilings.launch_seconds == typical_ceilings(traits).launch_seconds
    assert standing(load_database(), traits) in ("calibrated", "measured")


@pytest.mark.parametrize("stop", [2, 3, 5, 40])
def test_ctrl_c_keeps_the_measurements_before_it(run, traits, stop):
    is_late = stop == 40
    if is_late and traits.type != "cpu":
        stop = 150  # more families take turns
    found, told = run(60.0, stop=stop)
    assert len(told) == stop and found.interrupted
    file = read_file(found.path)
    assert file.ceilings == found.ceilings
    assert bool(file.entries) == bool(found.fits) == is_late


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
        (expected,) = predict([kernel.config], kernel.problem, traits, known)
        return float(expected) * (1.0, 16.0, 1 / 16)[number % 3]

    found, _ = run(60.0, seconds_of=seconds_of)
    assert found.fits == {}
    assert read_file(found.path).ceilings == found.ceilings


def test_the_tuners_records_stay_and_its_models_if_they_are_about_the_same_ceilings(run, traits):
    path, config = user_file(traits), configs.CPU if traits.type == "cpu" else configs.DIRECT
    known = recorded("512x512x512", config, 50.0)
    model = Model("tuned", "2026-01-01", {config.family: Coefficients(tile=3e-6)})
    name = "complex64", "F32_F32_F32"
    for is_about_them in (False, True):
        save_records(path, traits, name, [known], model=model)
        reload_database()
        found, _ = run(60.0)
        (entry,) = (one for one in read_file(path).entries if one.name == name)
        assert entry.own == (known,)
        assert (entry.fitted is not None) == is_about_them
    assert read_file(path).source.text.startswith("tuned on")


@pytest.mark.parametrize("seconds", [0.5, 0, -1, 4000, np.nan, np.inf, "20", None, True])
def test_seconds_that_are_refused(seconds):
    with raises(pyclgemm.ArgumentError, "seconds", repr(seconds), "wanted"):
        pyclgemm.calibrate(None, seconds)
