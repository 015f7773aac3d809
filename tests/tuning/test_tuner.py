"""The tuner's decisions, with a measuring process whose times are computed."""

import math
import re
import statistics
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import permutations, product
from unittest.mock import Mock

import pytest

from pyclgemm import CpuConfig
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.errors import ArgumentError, DatabaseError, DtypeError
from pyclgemm.families.registry import violations
from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, read_file, save_file
from pyclgemm.selection.features import features_of, features_of_record
from pyclgemm.selection.records import Entry, Match, Threshold
from pyclgemm.selection.select import select
from pyclgemm.tuning import search, survey, tuner
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.session import Standing, nearest
from pyclgemm.tuning.tuner import save_result, tune
from tests.support.databases import DIRECT, FLOAT32, INDIRECT, a_database, file_of, made_file
from tests.support.facts import cpu, gpu, recorded

pytest.importorskip("optuna")

KNOWN = CpuConfig(MR=4, NR=32, KC=256, VW=16)
OTHER = CpuConfig(MR=2, NR=32, KC=256, VW=16)
GOAL = CpuConfig(MR=12, NR=48, KC=512, VW=16)
SHAPES = [(256, 256, 256), (64, 64, 64), (1024, 1024, 1024)]

CPU_RECORDS = [recorded("64x64x64", OTHER), recorded("256x256x256", KNOWN)]
CPU_RECORDS.append(recorded("1024x1024x1024", KNOWN))
CPU_DATABASE = a_database(made_file(CPU_RECORDS, "cpu", kind="measured"))
#: Seconds that a trial takes.
COST = 0.5


def cpu_seconds(shape, config):
    """Best at GOAL, whatever the shape."""
    ratios = (getattr(config, name) / getattr(GOAL, name) for name in ("MR", "NR", "KC", "VW"))
    slower = sum(abs(math.log2(ratio)) for ratio in ratios)
    return math.prod(shape.sizes) * 1e-11 * (1 + slower / 4)


class Pretender(AbstractContextManager):
    """A measuring process whose times are computed, on a clock of its own."""

    def __init__(self, traits, seconds, accident=lambda trial: None):
        self.traits, self.seconds, self.accident = traits, seconds, accident
        self.now, self.drift = 0.0, 1.0
        self.trials, self.prepared, self.closed = [], [], False

    def __call__(self, device, dtype, precision):
        self.now += 1.0
        return self

    def __exit__(self, *details):
        self.closed = True

    def prepare(self, trials, timeout):
        self.prepared.append(trials)

    def run(self, trial, timeout):
        assert violations(trial.config, "float32", self.traits) == []
        assert trial.rival != trial.config
        self.trials.append(trial)
        outcome = self.accident(trial)
        self.now += min(timeout, 60.0) if outcome and outcome.status == "timeout" else COST
        if outcome is not None:
            return outcome
        self.drift *= 1.01  # the machine grows slower as it runs
        seconds = self.seconds(trial.shape, trial.config) * self.drift
        rival = trial.rival and self.seconds(trial.shape, trial.rival) * self.drift
        return Outcome("fine", seconds, rival)


def on_cpu(**options):
    return Pretender(cpu(), cpu_seconds, **options)


def steadily(trial):
    """The outcome on a CPU that keeps its speed."""
    rival = trial.rival and cpu_seconds(trial.shape, trial.rival)
    return Outcome("fine", cpu_seconds(trial.shape, trial.config), rival)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that tunes on the clock of a pretender."""

    def run(process, shapes=SHAPES, database=CPU_DATABASE, budget=60.0, **options):
        process.now = 0.0
        monkeypatch.setattr(tuner.time, "monotonic", lambda: process.now)
        options |= {"budget": budget, "database": database, "log_folder": tmp_path}
        result = tune(shapes, open_process=process, **options)
        assert process.closed
        return result

    return run


def choices(result, database, folder):
    """Save a result; returns its standings, each with the choice for its shape."""
    mine = read_file(save_result(result, folder / "mine.json"))
    with_own = Database(((mine,), *database.groups))
    return [(one, select(one.problem, result.traits, with_own)) for one in result.standings]


@pytest.mark.parametrize("database", [CPU_DATABASE, Database(())], ids=["known", "none"])
def test_the_winner_is_faster_than_the_baseline(run, database):
    result = run(on_cpu(), database=database)
    for standing in result.standings:
        best = cpu_seconds(standing.shape, standing.best)
        assert best < 0.85 * cpu_seconds(standing.shape, KNOWN)
        assert (standing.baseline is None) == (database is not CPU_DATABASE)
        gain = standing.baseline and cpu_seconds(standing.shape, standing.baseline) / best
        assert standing.gain == (gain and pytest.approx(gain))
        # Scores are relative, so the drift of 1 % a trial does not change their ratios.
        for config, score in standing.scores.items():
            truth = cpu_seconds(standing.shape, config) / best
            assert score / standing.scores[standing.best] == pytest.approx(truth, rel=0.1)
    assert [standing.shape.sizes for standing in result.standings] == SHAPES
    assert not result.interrupted


def test_a_choice_that_lost_is_recorded_too(run):
    result = run(on_cpu())
    records = tuner.tuned_records(result)
    for standing in result.standings:
        here = [one for one in records if one.shape == standing.shape]
        assert [one.config for one in here if not one.sample] == [standing.best]
        lost = next(one for one in here if one.config == standing.baseline)
        assert lost.sample and here[0].gflops > 1.1 * lost.gflops
        assert len({one.config for one in here}) == len(here)


@pytest.mark.parametrize("budget", [10.0, 30.0, 100.0])
def test_the_budget_is_kept_and_shared_by_the_shapes(run, budget):
    process = on_cpu()
    result = run(process, budget=budget)
    assert 0.9 * budget <= process.now <= budget + COST
    assert result.seconds == pytest.approx(process.now)
    if budget < 100.0:
        return
    spent = [standing.spent for standing in result.standings]
    assert max(spent) < 1.5 * min(spent)
    # A winner is tried on the other shapes.
    for standing, other in product(result.standings, repeat=2):
        assert other.best in standing.scores


def test_known_configurations_come_first_and_good_ones_are_tried_on_the_nearest_shapes(run):
    events, process = [], on_cpu()
    run(process, progress=events.append)
    first = [(trial.shape.sizes, trial.config) for trial in process.trials[:6]]
    assert first[:3] == [((64, 64, 64), OTHER), ((256, 256, 256), KNOWN), ((1024,) * 3, KNOWN)]
    assert {config for _, config in first} == {KNOWN, OTHER}
    seen, again = {KNOWN, OTHER}, 0
    for trial, event in zip(process.trials, events, strict=True):
        again += event.stage == "search" and trial.config in seen
        seen.add(trial.config)
    assert again > 5


@pytest.mark.parametrize("kind", ["measured", "default"])
def test_configurations_of_other_types_are_adapted_and_tried(run, kind):
    """Vectors of float64 have half as many elements as those of float32."""
    wide = Entry(*FLOAT32, (recorded("16x16x16", OTHER),))
    narrow = replace(GOAL, VW=8, NR=24)
    half = Entry("float64", "F64_F64_F64", (recorded("256x256x256", replace(narrow, VW=2, NR=6)),))
    process = on_cpu()
    run(process, database=a_database(file_of([wide, half], "cpu", kind=kind)))
    # On each shape the baseline is first, then both.
    assert {OTHER, narrow} <= {trial.config for trial in process.trials[: 3 * len(SHAPES)]}


@pytest.mark.parametrize("budget", [1.4, 3.0, 5.0, 8.0])
def test_after_a_short_budget_no_winner_is_slower_than_the_baseline(run, budget):
    standings = run(on_cpu(), budget=budget).standings
    for one in filter(lambda one: one.best, standings):
        assert cpu_seconds(one.shape, one.best) <= cpu_seconds(one.shape, one.baseline)
    if budget == 1.4:
        assert [standing.best for standing in standings] == [None, OTHER, None]


def test_a_winner_by_chance_gives_way_to_the_baseline(run):
    def lucky(trial):
        is_lucky = trial.config != KNOWN and trial.rival == KNOWN and len(process.trials) < 20
        return Outcome("fine", 0.5, 1.0) if is_lucky else None

    process = Pretender(cpu(), lambda shape, config: 1.0 if config == KNOWN else 1.5, lucky)
    (standing,) = run(process, shapes=[(256, 256, 256)], budget=30.0).standings
    assert (standing.best, standing.gain) == (KNOWN, 1.0)


@pytest.mark.parametrize("status", ["unbuildable", "unlaunchable", "wrong", "crash"])
def test_failures_are_counted_and_passed_over(run, status):
    def fails(trial):
        return trial.config.MR % 2 == 1

    failure = Outcome(status, reason=f"{status}!")
    process = on_cpu(accident=lambda trial: failure if fails(trial) else None)
    result = run(process)
    assert result.outcomes[status] == sum(map(fails, process.trials)) > 0
    assert result.examples[status].startswith("cpu MR=")
    assert result.examples[status].endswith(f"{status}!")
    assert all(standing.best.MR % 2 == 0 for standing in result.standings)
    failed = [(trial.shape, trial.config) for trial in process.trials if fails(trial)]
    assert len(set(failed)) == len(failed)


def test_a_timeout_is_counted_unless_the_budget_caused_it(run):
    hang = Outcome("timeout", reason="no answer")
    process = on_cpu(accident=lambda trial: hang if trial.config == OTHER else None)
    assert run(process, SHAPES[1:2]).outcomes["timeout"] == 1
    process = on_cpu(accident=lambda trial: hang)
    result = run(process, shapes=[(2048, 2048, 2048)], budget=4.0)
    assert "timeout" not in result.outcomes
    assert process.now <= 4.0 + 2.0 + COST


def test_a_failing_baseline_and_ctrl_c_leave_every_shape_a_winner(run):
    wrong = Outcome("wrong")
    process = on_cpu(accident=lambda trial: wrong if trial.config in (KNOWN, OTHER) else None)
    assert all(one.best not in (None, KNOWN, OTHER) for one in run(process).standings)
    interrupted = Mock(side_effect=[*30 * [None], KeyboardInterrupt])
    result = run(Pretender(cpu(driver="another"), cpu_seconds, interrupted))
    assert result.interrupted and all(one.best is not None for one in result.standings)


def test_a_second_run_resumes(run):
    first, second = on_cpu(), on_cpu()
    before, after = run(first, budget=40.0), run(second, budget=40.0)
    assert any("resumed with" in remark for remark in after.remarks)
    known = {(trial.shape, trial.config) for trial in first.trials}
    again = [trial for trial in second.trials if (trial.shape, trial.config) in known]
    # The baseline, the three best of each shape, and the confirmation of the winner.
    assert len(again) <= 3 * (1 + 3 + 2)
    assert len(second.trials) - len(again) > 30
    for old, new in zip(before.standings, after.standings, strict=True):
        assert cpu_seconds(new.shape, new.best) <= 1.001 * cpu_seconds(old.shape, old.best)
    # A short run measures every baseline; another driver has a log of its own.
    for standing in run(on_cpu(), budget=6.0).standings:
        assert standing.best is not None
        assert standing.baseline in standing.seconds
    other = Pretender(cpu(driver="581.0"), cpu_seconds)
    assert not any("resumed" in remark for remark in run(other, budget=10.0).remarks)


def test_only_products_that_take_too_long_are_left_out_and_named(run):
    def seconds(shape, config):
        return math.prod(shape.sizes) * (1e-11 if shape.m == 1 else 1e-14)

    # A large product may be faster than a small one.
    shapes = [(1, 512, 512), (8192, 8192, 8192)]
    result = run(Pretender(cpu(), seconds), shapes, budget=40.0)
    assert all(standing.scores for standing in result.standings)
    result = run(on_cpu(), [(64, 64, 64), (100_000, 100_000, 10_000)])
    assert [bool(standing.scores) for standing in result.standings] == [True, False]
    assert result.standings[1].best is None
    (remark,) = result.remarks
    assert "100000x100000x10000 was left out: a product takes about" in remark


def test_each_layout_is_tuned_and_saved_separately(run, tmp_path):
    """Wide panels are best for b, narrow ones for its transpose, also in a second run."""

    def seconds(shape, config):
        return 1e-3 * (1 + abs(math.log2(config.NR / (16 if shape.layout == "NT" else 64))))

    shapes = [GemmShape(64, 64, 64), GemmShape(64, 64, 64, "NT"), (64, 64, 64)]
    for result in (run(Pretender(cpu(), seconds), shapes) for _ in range(2)):
        widths = {str(standing.shape): standing.best.NR for standing in result.standings}
        assert widths == {"64x64x64": 64, "64x64x64:NT": 16}
        for standing, choice in choices(result, CPU_DATABASE, tmp_path):
            assert choice.config == standing.best


def test_the_nearest_shape_has_the_same_layout_and_is_a_batch_for_a_batch():
    for texts in (
        "64x64x64:NT 160x64x64:NT 64x64x64 64x64x65",
        "8x8x8*10000 64x64x64*99 8x8x8",
        "512x512x512*64 4000x4000x512 64x64x64*99",
    ):
        shapes = map(GemmShape.parse, texts.split())
        wanted, *others = (Standing(shape, shape.problem()) for shape in shapes)
        for order in permutations(others):
            assert nearest(wanted, order)[0] is others[0]


def gpu_seconds(shape, config):
    """The direct path wins below 100^3, the indirect one above; 64 x 64 is the best tile."""
    wins = (config.family == "direct") == (math.prod(shape.sizes) < 10**6)
    slower = abs(math.log2(config.tiles.MWG * config.tiles.NWG / 64**2))
    return math.prod(shape.sizes) * 1e-13 * (1.0 if wins else 3.0) * (1 + slower / 10)


def on_gpu():
    return Pretender(gpu(local_memory_bytes=2**17), gpu_seconds)


GPU_RECORDS = [recorded("256x256x256", INDIRECT), recorded("64x64x64", DIRECT)]
GPU_DATABASE = a_database(made_file(GPU_RECORDS, threshold=Threshold(mnk=10**6)))
GPU_OPTIONS = {"database": GPU_DATABASE, "families": ("direct", "indirect")}


def test_the_fastest_path_of_each_shape_is_found_and_chosen(run, tmp_path):
    result = run(on_gpu(), [(64, 64, 64), (256, 256, 256)], **GPU_OPTIONS)
    assert [standing.best.family for standing in result.standings] == ["direct", "indirect"]
    for standing, choice in choices(result, GPU_DATABASE, tmp_path):
        assert {config.family for config in standing.scores} == {"direct", "indirect"}
        assert (choice.config, choice.level) == (standing.best, "architecture")


def test_the_slower_path_gets_fewer_trials_and_candidates_are_built_in_batches(run):
    process = on_gpu()
    run(process, [(256, 256, 256)], budget=100.0, **GPU_OPTIONS)
    families = [trial.config.family for trial in process.trials]
    assert 6 < 2 * families.count("direct") < families.count("indirect")
    assert max(map(len, process.prepared)) > 1
    ran = {trial.config for trial in process.trials}
    unused = [trial for batch in process.prepared for trial in batch if trial.config not in ran]
    # Each of the two searches may end within a batch.
    assert len(unused) <= 2 * (tuner._BATCH - 1)


def test_a_family_that_the_device_cannot_run_is_named(run, monkeypatch):
    monkeypatch.setattr(search, "_TRIES", 2)  # no point can be repaired, however many are tried
    wrong = cpu(platform="Portable Computing Language", driver="5.0+debian")
    result = run(Pretender(wrong, cpu_seconds), SHAPES[:1], families=["indirect"])
    assert not result.standings[0].scores
    told = "256x256x256: no configuration of the indirect family fits the device"
    assert result.remarks == (told,)


def batch_seconds(shape, config):
    if config.family == "cpu":
        return cpu_seconds(shape, config)
    slower = abs(math.log2(config.MR / 8)) + abs(math.log2(config.NR / 32))
    return math.prod(shape.sizes) * shape.batch * 1e-11 * (1 + slower / 4)


def test_families_for_small_products_are_searched_for_their_batches_alone(run, tmp_path):
    texts = ["64x64x64", "8x8x8*10000", "16x16x16*10000", "128x128x128*64"]
    small = SmallCpuConfig(MR=1, NR=16, VW=16)
    known = {"64x64x64": KNOWN, "8x8x8": small, "16x16x16": small}
    records = [recorded(*one) for one in known.items()]
    database = a_database(made_file(records, "cpu", kind="measured"))
    process = Pretender(cpu(), batch_seconds)
    found = run(process, list(map(GemmShape.parse, texts)), database, budget=100.0)
    for trial in process.trials:
        assert (trial.config.family == "small_cpu") == (str(trial.shape) in texts[1:3])
    for standing in found.standings[1:3]:
        assert standing.baseline == small and standing.gain > 1.2
    for standing, choice in choices(found, database, tmp_path):
        assert choice.config == standing.best
        assert choice.reason.startswith("measured on this very product")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shapes": []}, ArgumentError, "shapes is empty"),
        ({"shapes": [(1, 2)]}, ArgumentError, "shape is .1, 2.; a GemmShape or"),
        ({"shapes": [(1, 2, 0)]}, ArgumentError, "k is 0; an integer of 1 to 10000000000"),
        ({"budget": 0}, ArgumentError, "budget is 0; a positive number"),
        ({"budget": math.nan}, ArgumentError, "budget is nan"),
        ({"families": ["fast"]}, ArgumentError, "families has 'fast'; known are"),
        ({"precision": "F64_F64_F64"}, DtypeError, "the operands are float32"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        tune(**({"shapes": SHAPES} | arguments))


@pytest.mark.parametrize("contributes", [False, True])
def test_a_contributed_model_is_fitted_to_estimated_ceilings(run, contributes, tmp_path):
    ceilings = replace(typical_ceilings(cpu()), global_memory=1.0, date="2026-01-01")
    (file,) = CPU_DATABASE.groups[0]
    of_device = file_of(file.entries, "cpu", kind="measured", ceilings=ceilings)
    contribute = tmp_path / "file.json" if contributes else None
    options = {"survey": 1.0, "contribute": contribute, "budget": 30.0}
    result = run(on_cpu(), database=a_database(of_device), **options)
    assert result.survey.model is not None
    assert result.survey.ceilings == (None if contributes else ceilings)


def test_a_file_for_other_devices_is_refused_before_the_search(run, tmp_path):
    path, process = tmp_path / "file.json", on_cpu()
    match = Match("architecture", "cpu", "another vendor", "another architecture")
    save_file(made_file([], match, name=path))
    with pytest.raises(DatabaseError, match="is for another vendor/another architecture, and the"):
        run(process, contribute=path)
    assert not process.trials


def test_a_survey_learns_nothing_from_the_products_that_test_it(run, monkeypatch):
    fit, extend = (Mock(side_effect=one) for one in (survey.fit_coefficients, survey.extended_file))
    monkeypatch.setattr(survey, "fit_coefficients", fit)
    monkeypatch.setattr(survey, "extended_file", extend)
    result = run(on_cpu(), survey=1.0, budget=300.0, families=["cpu"])
    # The test products are the first that it measures.
    count = int(re.search(r"on (\d+) others", result.survey.report)[1])
    judged, others = (
        {features_of(one.problem) for one in some}
        for some in (result.survey.standings[:count], result.survey.standings[count:])
    )
    fitted = {features_of(one.problem) for call in fit.mock_calls for one in call.args[0]}
    assert len(fitted & others) >= len(others) - 2  # the last may have come too late
    records = [one for call in extend.mock_calls for one in call.args[3]]
    kept, missed = (
        {features_of_record(one, *FLOAT32) for one in some}
        for some in (records, result.survey.missed)
    )
    assert others & kept and others & missed
    assert count == 16 and not judged & (fitted | kept | missed)


def test_a_survey_goes_on_from_the_known_configurations(run, monkeypatch):
    monkeypatch.setattr(survey, "_POOL", 0)  # no points of the space far from these
    result = run(on_cpu(accident=steadily), survey=1.0, budget=300.0, families=["cpu"])
    found = {one.best for one in result.survey.standings if one.best}
    slowness = [cpu_seconds(GemmShape(9, 9, 9), config) for config in (GOAL, KNOWN, *found)]
    assert slowness[1] > 1.7 * slowness[0]
    assert min(slowness[2:]) < 1.3 * slowness[0]


def test_losses_before_and_after_a_survey_are_against_the_same_best(run):
    result = run(on_cpu(accident=steadily), survey=1.0, budget=300.0, families=["cpu"])
    report = result.survey.report
    lost = re.findall(r"choices lost ([\d.]+)%", report)
    judged = result.survey.standings[: int(re.search(r"on (\d+) others", report)[1])]
    # The first that was timed on a product was the choice.
    losses = [next(iter(one.seconds.values())) / min(one.seconds.values()) for one in judged]
    before, after = (float(one) / 100 for one in lost)
    assert 1 + before == pytest.approx(statistics.geometric_mean(losses), abs=0.001)
    assert after < before


def test_a_surprising_time_on_a_gpu_is_measured_again(run):
    disturbed = []

    def hold_up(trial):
        if disturbed:
            return None
        disturbed.append(trial)
        return Outcome("fine", 50 * gpu_seconds(trial.shape, trial.config))

    process = Pretender(gpu(local_memory_bytes=2**17), gpu_seconds, accident=hold_up)
    result = run(process, [(64, 64, 64)], survey=1.0, **GPU_OPTIONS)
    (trial,) = disturbed
    (standing,) = (one for one in result.survey.standings if one.shape == trial.shape)
    truth = gpu_seconds(trial.shape, trial.config)
    assert standing.seconds[trial.config] == pytest.approx(truth, rel=0.1)
