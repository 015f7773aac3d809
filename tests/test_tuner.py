"""The tuner's decisions, with a measuring process that only pretends, and once with a real one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from facts import cpu, gpu, problem

from pyclgemm import CpuConfig, XgemmConfig, XgemmDirectConfig, tuner, tuning_stages
from pyclgemm.config import SmallCpuConfig
from pyclgemm.constraints import violations
from pyclgemm.database import Database
from pyclgemm.errors import ArgumentError, DtypeError
from pyclgemm.gemm_shape import GemmShape
from pyclgemm.records import DatabaseFile, Entry, Match, Record, Source, Threshold
from pyclgemm.select import select
from pyclgemm.trial import Outcome
from pyclgemm.tuner import tune
from pyclgemm.tuning_result import make_file
from pyclgemm.tuning_state import Standing, nearest

pytest.importorskip("optuna")

KNOWN = CpuConfig(MR=4, NR=32, KC=256, VW=16)
OTHER = CpuConfig(MR=2, NR=32, KC=256, VW=16)
GOAL = CpuConfig(MR=12, NR=48, KC=512, VW=16)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
)
INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)
SHAPES = [(256, 256, 256), (64, 64, 64), (1024, 1024, 1024)]


def file(kind, records, threshold=None):
    entry = Entry("float32", "F32_F32_F32", tuple(records), threshold)
    return DatabaseFile.make(
        Path("db"), Match("generic", kind), Source("default", "a test"), [entry]
    )


CPU_DATABASE = Database(
    ((file("cpu", [Record((256, 256, 256), KNOWN), Record((16, 16, 16), OTHER)]),),)
)
GPU_DATABASE = Database(
    (
        (
            file(
                "gpu",
                [Record((256, 256, 256), INDIRECT), Record((64, 64, 64), DIRECT)],
                Threshold(mnk=10**6),
            ),
        ),
    )
)


def cpu_seconds(shape, config):
    """Best at GOAL, whatever the shape."""
    slower = sum(
        abs(math.log2(getattr(config, name) / getattr(GOAL, name)))
        for name in ("MR", "NR", "KC", "VW")
    )
    return math.prod(shape.sizes) * 1e-11 * (1 + slower / 4)


class Pretender:
    """A measuring process whose times are computed, on a clock of its own."""

    def __init__(self, traits, seconds, *, cost=0.5, accident=None):
        self.traits, self.seconds, self.cost, self.accident = traits, seconds, cost, accident
        self.now = 0.0
        self.trials, self.prepared, self.closed = [], [], False
        self.drift = 1.0

    def __call__(self, device, dtype, precision):
        self.now += 1.0
        return self

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.closed = True

    def prepare(self, trials, timeout):
        self.prepared.append(trials)

    def run(self, trial, timeout):
        assert violations(trial.config, "float32", self.traits) == []
        assert trial.rival != trial.config
        self.trials.append(trial)
        outcome = self.accident(trial) if self.accident else None
        if outcome == "interrupt":
            raise KeyboardInterrupt
        if outcome is not None:
            self.now += min(timeout, 60.0) if outcome.status == "timeout" else self.cost
            return outcome
        self.now += self.cost
        self.drift *= 1.01  # the machine grows slower as it runs
        seconds = self.seconds(trial.shape, trial.config) * self.drift
        rival = trial.rival and self.seconds(trial.shape, trial.rival) * self.drift
        return Outcome("fine", seconds, rival)


@pytest.fixture
def run(monkeypatch, tmp_path):
    def run(process, shapes=SHAPES, database=CPU_DATABASE, budget=60.0, **options):
        process.now = 0.0
        monkeypatch.setattr(tuner.time, "monotonic", lambda: process.now)
        result = tune(
            shapes, budget=budget, database=database, log_folder=tmp_path, open_process=process,
            **options,
        )  # fmt: skip
        assert process.closed
        return result

    return run


def on_cpu(**options):
    return Pretender(cpu(), cpu_seconds, **options)


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


# -------------------------------------------------------------------------- paths of a GPU


def gpu_seconds(shape, config):
    """The direct path wins below 100^3, the indirect one above; small tiles are slow."""
    wins = (config.family == "direct") == (math.prod(shape.sizes) < 10**6)
    tiles = config.tiles
    slower = abs(math.log2(tiles.MWG * tiles.NWG / 64**2))
    return math.prod(shape.sizes) * 1e-13 * (1.0 if wins else 3.0) * (1 + slower / 10)


def on_gpu(**options):
    return Pretender(replace(gpu(), local_memory_bytes=2**17), gpu_seconds, **options)


def test_the_boundary_between_the_paths_is_measured_and_followed(run, tmp_path):
    shapes = [(64, 64, 64), (256, 256, 256)]
    process = on_gpu()
    result = run(process, shapes, GPU_DATABASE, families=("direct", "indirect"))
    assert [standing.best.family for standing in result.standings] == ["direct", "indirect"]
    for standing in result.standings:
        assert {config.family for config in standing.scores} == {"direct", "indirect"}
    tuned = make_file(result, tmp_path / "mine.json", GPU_DATABASE)
    database = Database(((tuned,), GPU_DATABASE.groups[0]))
    for standing in result.standings:
        choice = select(standing.problem, process.traits, database)
        assert (choice.config, choice.level) == (standing.best, "device")


def test_the_slower_path_gets_fewer_trials(run):
    process = on_gpu()
    run(process, [(256, 256, 256)], GPU_DATABASE, budget=100.0, families=("direct", "indirect"))
    families = [trial.config.family for trial in process.trials]
    assert 2 * families.count("direct") < families.count("indirect")
    assert families.count("direct") > 3


def test_candidates_for_a_gpu_are_built_side_by_side(run):
    process = on_gpu()
    run(process, [(256, 256, 256)], GPU_DATABASE, families=("direct", "indirect"))
    assert max(map(len, process.prepared)) > 1
    ran = {trial.config for trial in process.trials}
    built = [trial.config for batch in process.prepared for trial in batch]
    # Each of the two searches may end in the middle of a batch.
    assert len([config for config in built if config not in ran]) <= 2 * (tuning_stages._BATCH - 1)


# ---------------------------------------------------------------------------- batches

BATCH = GemmShape(8, 8, 8, batch=10_000)
SMALL_KNOWN = SmallCpuConfig(MR=1, NR=16, VW=16)


def batch_seconds(shape, config):
    if config.family == "cpu":
        return cpu_seconds(shape, config)
    slower = abs(math.log2(config.MR / 8)) + abs(math.log2(config.NR / 32))
    return math.prod(shape.sizes) * shape.batch * 1e-11 * (1 + slower / 4)


def test_kernels_for_small_products_are_searched_for_batches_alone(run, tmp_path):
    shapes = [(64, 64, 64), BATCH, GemmShape(16, 16, 16, batch=10_000)]
    large = GemmShape(128, 128, 128, batch=64)
    known = [*CPU_DATABASE.groups[0][0].entries[0].records, Record((32, 32, 32), SMALL_KNOWN)]
    database = Database(((file("cpu", known),),))
    process = Pretender(cpu(), batch_seconds)
    found = run(process, [*shapes, large], database, budget=100.0)
    for trial in process.trials:
        small = trial.shape.batch is not None and trial.shape != large
        assert (trial.config.family == "small_cpu") == small
    for standing in found.standings[1:3]:
        assert standing.baseline == SMALL_KNOWN
        assert standing.gain > 1.2
    made = make_file(found, tmp_path / "mine.json", database)
    for standing in found.standings[:3]:
        choice = select(standing.problem, cpu(), Database(((made,), *database.groups)))
        assert choice.config == standing.best


def test_the_nearest_of_batches_are_other_batches():
    shapes = [BATCH, GemmShape(8, 8, 8), GemmShape(64, 64, 64, batch=99),
              GemmShape(512, 512, 512, batch=64), GemmShape(4000, 4000, 512)]  # fmt: skip
    batch, single, other, large, filled = (
        Standing(shape, shape.problem("float32")) for shape in shapes
    )
    standings = [batch, single, other, large, filled]
    assert nearest(batch, standings)[:2] == [other, single]
    assert nearest(large, standings)[0] is filled


def test_batches_on_a_real_device(device, traits, tmp_path):
    events = []

    def stop_after_three(event):
        events.append(event)
        if len(events) == 3:
            raise KeyboardInterrupt

    (standing,) = tune(
        [GemmShape(8, 8, 8, batch=500)], traits.platform, budget=300, log_folder=tmp_path,
        progress=stop_after_three,
    ).standings  # fmt: skip
    assert {config.family for config in standing.scores} <= {"small", "small_cpu"}
    assert standing.gflops > 0


# -------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shapes": []}, ArgumentError, "shapes is empty"),
        ({"shapes": [(1, 2)]}, ArgumentError, "shape is .1, 2.; a GemmShape or"),
        ({"shapes": [(1, 2, 0)]}, ArgumentError, "k is 0; an integer of at least 1"),
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
