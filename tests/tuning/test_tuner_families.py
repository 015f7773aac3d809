"""The tuner where several families compete: on a GPU, and for batches of small products."""

import math
from dataclasses import replace

import pytest

from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database
from pyclgemm.selection.select import select
from pyclgemm.tuning import search
from pyclgemm.tuning import tuner as tuning_stages
from pyclgemm.tuning.results import make_file
from pyclgemm.tuning.session import Standing, nearest
from pyclgemm.tuning.tuner import tune
from tests.support.databases import a_database, made_file
from tests.support.facts import cpu, gpu, recorded
from tests.support.tuner_fakes import (
    CPU_DATABASE,
    GPU_DATABASE,
    SHAPES,
    Pretender,
    cpu_seconds,
    pretended_run,
)

pytest.importorskip("optuna")


@pytest.fixture
def run(monkeypatch, tmp_path):
    return pretended_run(monkeypatch, tmp_path)


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


def test_a_family_that_the_device_cannot_run_is_named(run, monkeypatch):
    monkeypatch.setattr(search, "_TRIES", 2)  # of many points, none of which can be repaired
    wrong = cpu(platform="Portable Computing Language", driver="5.0+debian")
    result = run(Pretender(wrong, cpu_seconds), SHAPES[:1], families=["indirect"])
    assert not result.standings[0].scores
    told = "256x256x256: no configuration of the indirect family fits the device"
    assert result.remarks == (told,)


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
    known = [*CPU_DATABASE.groups[0][0].entries[0].records, recorded("32x32x32", SMALL_KNOWN)]
    database = a_database(made_file(known, "cpu"))
    process = Pretender(cpu(), batch_seconds)
    found = run(process, [*shapes, large], database, budget=100.0)
    for trial in process.trials:
        small = trial.shape.batch is not None and trial.shape != large
        assert (trial.config.family == "small_cpu") == small
    for standing in found.standings[1:3]:
        assert standing.baseline == SMALL_KNOWN
        assert standing.gain > 1.2
    made = make_file(found, tmp_path / "mine.json", database)
    for standing in found.standings:
        choice = select(standing.problem, cpu(), Database(((made,), *database.groups)))
        assert choice.config == standing.best
        assert choice.reason.endswith(f"the nearest record is for {standing.shape}")


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
