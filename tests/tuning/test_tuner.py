"""The tuner's decisions, with a measuring process that only pretends, and once with a real one."""

import math
from dataclasses import replace

import pytest

from pyclgemm.errors import ArgumentError, DtypeError
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database
from pyclgemm.selection.records import Entry
from pyclgemm.selection.select import select
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.results import make_file
from pyclgemm.tuning.session import Standing, nearest
from pyclgemm.tuning.tuner import tune
from tests.support.databases import FLOAT32, a_database, file_of
from tests.support.facts import cpu, problem, recorded
from tests.support.tuner_fakes import (
    CPU_DATABASE,
    GOAL,
    KNOWN,
    OTHER,
    SHAPES,
    Pretender,
    cpu_seconds,
    on_cpu,
    pretended_run,
)

pytest.importorskip("optuna")


@pytest.fixture
def run(monkeypatch, tmp_path):
    return pretended_run(monkeypatch, tmp_path)


def test_it_finds_something_better(run):
    result = run(on_cpu())
    for standing in result.standings:
        assert cpu_seconds(standing.shape, standing.best) < 0.85 * cpu_seconds(
            standing.shape, KNOWN
        )
        assert standing.gain == pytest.approx(
            cpu_seconds(standing.shape, standing.baseline)
            / cpu_seconds(standing.shape, standing.best)
        )
    assert [standing.shape.sizes for standing in result.standings] == SHAPES
    assert not result.interrupted


def test_a_slow_machine_does_not_mislead_it(run):
    """Scores are relative, so the drift of 1 % a trial leaves the order as it is."""
    (standing,) = run(on_cpu(), shapes=[(256, 256, 256)]).standings
    scores = {config: score for config, score in standing.scores.items() if score}
    truth = {config: cpu_seconds(standing.shape, config) for config in scores}
    assert sorted(scores, key=scores.get)[0] == min(truth, key=truth.get)
    assert scores[KNOWN] / scores[standing.best] == pytest.approx(
        truth[KNOWN] / truth[standing.best], rel=0.1
    )


@pytest.mark.parametrize("budget", [10.0, 30.0, 100.0])
def test_the_budget_is_kept(run, budget):
    process = on_cpu()
    result = run(process, budget=budget)
    assert process.now <= budget + process.cost
    assert result.seconds == pytest.approx(process.now)
    assert process.now >= 0.9 * budget


def test_what_is_known_comes_first(run):
    process = on_cpu()
    run(process)
    first = [(trial.shape.sizes, trial.config) for trial in process.trials[:6]]
    baselines = [((64, 64, 64), OTHER), ((256, 256, 256), KNOWN), ((1024, 1024, 1024), KNOWN)]
    assert first[0][1] == select(problem(64, 64, 64), cpu(), CPU_DATABASE).config
    assert [shape for shape, _ in first[:3]] == [shape for shape, _ in baselines]
    assert {config for _, config in first} == {KNOWN, OTHER}


@pytest.mark.parametrize("kind", ["measured", "default"])
def test_what_was_measured_with_other_types_is_tried(run, kind):
    """Adapted to the type: float64 has vectors of half as many elements."""
    wide = Entry(*FLOAT32, (recorded("16x16x16", OTHER),))
    narrow = replace(GOAL, VW=8, NR=24)
    half = Entry("float64", "F64_F64_F64", (recorded("256x256x256", replace(narrow, VW=2, NR=6)),))
    process = on_cpu()
    run(process, database=a_database(file_of([wide, half], "cpu", kind=kind)))
    tried = [trial.config for trial in process.trials[:4]]
    assert tried[:3] == [OTHER] * 3  # the shapes, as the library has them today
    assert (tried[3] == narrow) == (kind == "measured")


def test_nothing_is_known(run):
    for standing in run(on_cpu(), database=Database(())).standings:
        assert standing.baseline is None
        assert standing.gain is None
        assert cpu_seconds(standing.shape, standing.best) < 0.85 * cpu_seconds(
            standing.shape, KNOWN
        )


def test_a_budget_that_ends_at_once_keeps_what_stood(run):
    result = run(on_cpu(), budget=1.4)
    assert [standing.best for standing in result.standings] == [None, select(
        problem(64, 64, 64), cpu(), CPU_DATABASE).config, None]  # fmt: skip


def test_a_short_budget_never_ends_worse(run):
    for budget in (3.0, 5.0, 8.0):
        for standing in run(on_cpu(), budget=budget).standings:
            if standing.best is not None:
                assert cpu_seconds(standing.shape, standing.best) <= cpu_seconds(
                    standing.shape, standing.baseline
                )


def test_shapes_share_the_time(run):
    spent = [standing.spent for standing in run(on_cpu(), budget=100.0).standings]
    assert max(spent) < 1.5 * min(spent)


def test_a_winner_by_chance_gives_way_to_what_stood(run):
    def seconds(shape, config):
        return 1.0 if config == KNOWN else 1.5

    process = Pretender(cpu(), seconds)
    fair = process.run

    def lucky(trial, timeout):
        outcome = fair(trial, timeout)
        if trial.config != KNOWN and trial.rival == KNOWN and len(process.trials) < 20:
            return Outcome("fine", 0.5, 1.0)
        return outcome

    process.run = lucky
    (standing,) = run(process, shapes=[(256, 256, 256)], budget=30.0).standings
    assert (standing.best, standing.gain) == (KNOWN, 1.0)


def test_what_comes_close_is_tried_on_the_nearest_shapes(run):
    events = []
    process = on_cpu()
    run(process, progress=events.append)
    seen, again = {KNOWN, OTHER}, 0
    for trial, event in zip(process.trials, events, strict=True):
        if event.stage == "search":
            again += trial.config in seen
        seen.add(trial.config)
    assert again > 5


def test_a_winner_is_tried_on_the_other_shapes(run):
    result = run(on_cpu(), budget=100.0)
    for standing in result.standings:
        for other in result.standings:
            assert other.best in standing.scores


def bad(status):
    def accident(trial):
        return Outcome(status, reason=f"{status}!") if trial.config.MR in (1, 3, 5, 7) else None

    return accident


@pytest.mark.parametrize("status", ["unbuildable", "unlaunchable", "wrong", "crash"])
def test_failures_are_counted_and_passed_over(run, status):
    process = on_cpu(accident=bad(status))
    result = run(process)
    assert result.outcomes[status] == sum(
        trial.config.MR in (1, 3, 5, 7) for trial in process.trials
    )
    assert result.outcomes[status] > 0
    assert result.examples[status].endswith(f"{status}!")
    assert result.examples[status].startswith("cpu MR=")
    for standing in result.standings:
        assert standing.best.MR not in (1, 3, 5, 7)
        tried = [trial.config for trial in process.trials if trial.shape == standing.shape]
        failed = [config for config in tried if config.MR in (1, 3, 5, 7)]
        assert len(set(failed)) == len(failed)


def test_a_hang_is_counted_unless_the_budget_ended_it(run):
    def accident(trial):
        return Outcome("timeout", reason="no answer") if trial.config == OTHER else None

    assert run(on_cpu(accident=accident), budget=200.0).outcomes["timeout"] == 3
    process = on_cpu(accident=lambda trial: Outcome("timeout", reason="no answer"))
    result = run(process, shapes=[(2048, 2048, 2048)], budget=4.0)
    assert "timeout" not in result.outcomes
    assert process.now <= 4.0 + 2.0 + process.cost


def test_a_baseline_that_fails(run):
    def accident(trial):
        return Outcome("wrong") if trial.config in (KNOWN, OTHER) else None

    result = run(on_cpu(accident=accident))
    assert all(standing.best not in (None, KNOWN, OTHER) for standing in result.standings)


def test_ctrl_c_keeps_what_was_found(run):
    process = on_cpu()
    process.accident = lambda trial: "interrupt" if len(process.trials) > 30 else None
    result = run(process)
    assert result.interrupted
    assert all(standing.best is not None for standing in result.standings)


def test_a_second_run_resumes(run):
    first = on_cpu()
    before = run(first, budget=40.0)
    second = on_cpu()
    after = run(second, budget=40.0)
    assert any("resumed with" in remark for remark in after.remarks)
    known = {(trial.shape, trial.config) for trial in first.trials}
    again = [trial for trial in second.trials if (trial.shape, trial.config) in known]
    # What the library takes, the three best of each shape, and the confirmation of the winner.
    assert len(again) <= 3 * (1 + 3 + 2)
    assert len(second.trials) - len(again) > 30
    for old, new in zip(before.standings, after.standings, strict=True):
        assert cpu_seconds(new.shape, new.best) <= 1.001 * cpu_seconds(old.shape, old.best)


def test_what_is_resumed_leaves_every_shape_its_baseline(run):
    run(on_cpu(), budget=60.0)
    result = run(on_cpu(), budget=6.0)
    assert all(standing.best is not None for standing in result.standings)
    assert all(standing.baseline in standing.seconds for standing in result.standings)


def test_the_log_of_another_driver_is_not_resumed(run):
    run(on_cpu(), budget=10.0)
    other = Pretender(replace(cpu(), driver="581.0"), cpu_seconds)
    assert not any("resumed" in remark for remark in run(other, budget=10.0).remarks)


def test_a_large_product_may_be_faster_than_a_small_one(run):
    def seconds(shape, config):
        return math.prod(shape.sizes) * (1e-11 if shape.m == 1 else 1e-14)

    process = Pretender(cpu(), seconds)
    run(process, shapes=[(1, 512, 512), (8192, 8192, 8192)], budget=200.0)
    assert {trial.shape.sizes for trial in process.trials} == {(1, 512, 512), (8192, 8192, 8192)}


def test_a_shape_that_is_too_large_is_left_out_and_named(run):
    process = on_cpu()
    result = run(process, shapes=[(64, 64, 64), (100_000, 100_000, 10_000)], budget=60.0)
    assert {trial.shape.sizes for trial in process.trials} == {(64, 64, 64)}
    assert result.standings[1].best is None
    (remark,) = result.remarks
    assert "100000x100000x10000 was left out: a product takes about" in remark


def test_each_layout_is_tuned_and_remembered_by_itself(run, tmp_path):
    """Wide panels for b as it is, narrow ones for its transpose; a second run tells them apart."""

    def seconds(shape, config):
        return 1e-3 * (1 + abs(math.log2(config.NR / (16 if shape.layout == "NT" else 64))))

    shapes = [GemmShape(64, 64, 64), GemmShape(64, 64, 64, "NT"), (64, 64, 64)]
    result = run(Pretender(cpu(), seconds), shapes)
    assert [str(standing.shape) for standing in result.standings] == ["64x64x64", "64x64x64:NT"]
    assert [standing.best.NR for standing in result.standings] == [64, 16]
    made = make_file(result, tmp_path / "mine.json", CPU_DATABASE)
    database = Database(((made,), CPU_DATABASE.groups[0]))
    for standing in result.standings:
        assert select(standing.problem, cpu(), database).config == standing.best
    second = Pretender(cpu(), seconds)
    again = run(second, shapes)
    assert [standing.best.NR for standing in again.standings] == [64, 16]


def test_a_winner_travels_to_the_same_layout_first():
    shapes = [GemmShape(64, 64, 64), GemmShape(160, 64, 64, "NT"), GemmShape(64, 64, 65)]
    standings = [Standing(shape, shape.problem("float32")) for shape in shapes]
    wanted = GemmShape(64, 64, 64, "NT")
    one = Standing(wanted, wanted.problem("float32"))
    assert nearest(one, standings)[0].shape.layout == "NT"


# -------------------------------------------------------------------------- arguments


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
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        tune(**({"shapes": SHAPES} | arguments))


def test_on_a_real_device(device, traits, tmp_path):
    events = []

    def stop_after_three(event):
        events.append(event)
        if len(events) == 3:
            raise KeyboardInterrupt

    result = tune(
        [(64, 64, 64)], traits.platform, budget=300, log_folder=tmp_path, progress=stop_after_three
    )
    (standing,) = result.standings
    # Pocl takes this limit from the memory that the system states as a process starts: of two
    # processes each may be told another.
    limit = result.traits.max_allocation_bytes
    assert result.traits == replace(traits, max_allocation_bytes=limit)
    assert standing.best is not None
    assert standing.gflops > 0
    assert events[-1].trials == sum(result.outcomes.values())
    assert result.outcomes.keys() <= {"fine", "timeout", "unbuildable", "unlaunchable"}
