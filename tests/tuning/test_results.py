"""Saving what was found: records by shape, and nothing that stood gets lost."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ArgumentError, DatabaseError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, read_file, save_file
from pyclgemm.selection.records import Entry, Match, Record, Threshold
from pyclgemm.selection.select import select
from pyclgemm.tuning import results as tuning_result
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.results import make_file, save_result
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult
from tests.support.databases import (
    DIRECT,
    FLOAT16,
    FLOAT32,
    INDIRECT,
    SM_90,
    a_database,
    file_of,
    made_file,
)
from tests.support.facts import cpu, gpu, problem, recorded
from tests.support.tuner_fakes import (
    BEST,
    LARGE,
    SHIPPED,
    SMALL,
    laid_out,
    result,
)


def records(file, dtype="float32"):
    (entry,) = [entry for entry in file.entries if entry.dtype == dtype]
    return {record.shape.sizes: record for record in entry.records}


def test_a_record_for_each_shape_with_its_speed(tmp_path):
    made = make_file(result(), tmp_path / "mine.json", SHIPPED)
    assert records(made)[512, 512, 512] == recorded("512x512x512", BEST, 268.4)
    assert made.match == Match("device", "cpu", "amd", device="AMD EPYC")
    assert made.source.kind == "measured"
    assert made.source.text.startswith("tuned on AMD EPYC, Portable Computing Language 580.0, 20")


def test_the_slowest_product_has_a_speed_that_can_be_saved(tmp_path):
    path = save_result(result(shape=(1, 1, 1)), SHIPPED, tmp_path / "mine.json")
    assert records(read_file(path))[1, 1, 1].gflops == 2e-6


def test_what_was_not_tuned_is_carried_over_without_its_speed(tmp_path):
    made = make_file(result(), tmp_path / "mine.json", SHIPPED)
    assert records(made)[1, 64, 1024] == recorded("1x64x1024", SMALL)
    assert len(records(made)) == 2
    assert "records without a speed are older ones" in made.source.text
    choice = select(problem(2, 64, 1000), cpu(), a_database(made, *SHIPPED.groups[0]))
    assert (choice.config, choice.level) == (SMALL, "device")


def test_what_ships_and_was_measured_is_not_copied_to_the_users_file(tmp_path):
    match = Match("architecture", "cpu", architecture="x86-64-v4")
    record = recorded("1x64x1024", SMALL, 9.0)
    made = made_file([record], match, name="cpu_x86-64-v4.json", kind="measured")
    shipped = replace(made, built_in=True)
    path = tmp_path / "mine.json"
    assert set(records(make_file(result(), path, a_database(shipped)))) == {(512, 512, 512)}
    # A user's other files may go, and what is contributed is to stand in the place of what ships.
    for one, level in ((made, "device"), (shipped, "architecture")):
        kept = make_file(result(), path, a_database(one), level)
        assert set(records(kept)) == {(512, 512, 512), (1, 64, 1024)}


def test_only_what_the_library_uses_is_carried_over(tmp_path):
    """Of a file with a threshold, the records of the path that is taken at their shape."""
    shapes = {
        (64,) * 3: DIRECT,
        (32,) * 3: INDIRECT,
        (4096,) * 3: INDIRECT,
        (2048, 64, 2048): DIRECT,
    }
    records_of_both = [Record(GemmShape(*shape), config) for shape, config in shapes.items()]
    shipped = a_database(made_file(records_of_both, threshold=Threshold(mnk=10**7)))
    made = make_file(result(INDIRECT, traits=gpu()), tmp_path / "mine.json", shipped)
    assert {shape: record.config for shape, record in records(made).items()} == {
        (64, 64, 64): DIRECT,
        (512, 512, 512): INDIRECT,
        (4096, 4096, 4096): INDIRECT,
    }


def test_a_near_shape_is_superseded(tmp_path):
    made = make_file(result(shape=(600, 500, 512)), tmp_path / "mine.json", SHIPPED)
    assert set(records(made)) == {(600, 500, 512), (1, 64, 1024)}


def places(file):
    """Shape, layout and alignment of all records."""
    (entry,) = file.entries
    return [(record.shape.sizes, record.shape.layout, record.alignment) for record in entry.records]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("512x512x512:NT", ((512, 512, 512), "NT", None)),
        ("500x512x510:TN", ((500, 512, 510), "TN", None)),
        ("500x512x510:TT", ((500, 512, 510), "TT", None)),
        ("512x512x512+7", ((512, 512, 512), "NN", 1)),
        ("509x509x509+3", ((509, 509, 509), "NN", 16)),
        # In canonical form, as the library looks them up.
        ("512x1x512", ((1, 512, 512), "NT", None)),
        ("1x512x512:TN", ((1, 512, 512), "NN", None)),
    ],
)
def test_a_record_tells_its_layout_and_alignment(tmp_path, text, place):
    made = make_file(laid_out(text), tmp_path / "mine.json", Database(()))
    assert places(made) == [place]
    wanted = GemmShape.parse(text).problem("float32")
    choice = select(wanted, cpu(), a_database(made, *SHIPPED.groups[0]))
    assert (choice.config, choice.level) == (BEST, "device")


def test_another_layout_or_alignment_supersedes_nothing(tmp_path):
    path = tmp_path / "mine.json"
    for text in ("512x512x512:NT", "512x512x512+7", "512x512x512+2", "500x530x510:NT"):
        save_file(make_file(laid_out(text), path, SHIPPED))
    kept = [record for record in read_file(path).entries[0].records if record.gflops]
    assert [(record.shape.sizes, record.shape.layout, record.alignment) for record in kept] == [
        ((500, 530, 510), "NT", None),
        ((512, 512, 512), "NN", 1),
        ((512, 512, 512), "NN", 2),
        ((512, 512, 512), "NT", None),
    ]
    assert ((512, 512, 512), "NN", None) in places(read_file(path))  # what shipped
    save_file(make_file(laid_out("600x500x512:NT", SMALL), path, SHIPPED))
    assert ((512, 512, 512), "NT", None) not in places(read_file(path))
    assert ((512, 512, 512), "NN", 1) in places(read_file(path))


def test_an_older_record_without_alignment_is_that_of_contiguous_matrices(tmp_path):
    path = tmp_path / "mine.json"
    match = Match("device", "cpu", device="AMD EPYC")
    save_file(made_file([recorded("511x511x511", LARGE, 9.0)], match, name=path))
    save_file(make_file(laid_out("511x511x511"), path, Database(())))
    assert places(read_file(path)) == [((511, 511, 511), "NN", None)]
    assert read_file(path).entries[0].records[0].config == BEST


def test_of_two_shapes_of_one_product_the_faster_counts(tmp_path):
    one, other = laid_out("512x1x512"), laid_out("1x512x512:NT", SMALL)
    other.standings[0].seconds[SMALL] /= 2
    for standings in (one.standings + other.standings, other.standings + one.standings):
        both = TuningResult(cpu(), "float32", "F32_F32_F32", standings)
        made = make_file(both, tmp_path / "mine.json", Database(()))
        assert [record.config for record in made.entries[0].records] == [SMALL]


def test_what_stands_in_where_a_driver_refuses_wgmma_stays_behind_it(tmp_path):
    hopper, square = typical_traits("sm_90"), (4096, 4096, 4096)
    older, stand_in = WgmmaConfig(128, 256, STAGES=3), MatrixConfig(128, 256, 32, 2, 4, STAGES=4)
    path = tmp_path / "sm_90.json"
    known = [Record(GemmShape(*square), stand_in), Record(GemmShape(*square), older, 7e5)]
    save_file(made_file(known, SM_90, name=path, types=FLOAT16))

    def made(best):
        standing = Standing(GemmShape(*square), GemmShape(*square).problem(*FLOAT16))
        standing.note(best, Outcome("fine", 1e-4))
        found = TuningResult(hopper, *FLOAT16, (standing,))
        file = make_file(found, path, SHIPPED, "architecture")
        database = a_database(file)
        chosen = select(standing.problem, hopper, database).config
        refused = replace(hopper, wgmma=False, wgmma_refusal="a test")
        return (
            chosen,
            select(standing.problem, refused, database).config,
            len(file.entries[0].records),
        )

    newer = replace(older, GROUP_M=4)
    assert made(newer) == (newer, stand_in, 2)
    faster = replace(stand_in, GROUP_M=4)
    assert made(faster) == (faster, faster, 1)


def test_other_entries_of_the_file_stay(tmp_path):
    path = tmp_path / "mine.json"
    double = Entry("float64", "F64_F64_F64", (recorded("8x8x8", SMALL, 5.0),))
    known = (recorded("2048x2048x2048", LARGE, 333.0), recorded("512x512x512", LARGE, 99.0))
    match = Match("device", "cpu", device="AMD EPYC")
    save_file(file_of([double, Entry(*FLOAT32, known)], match, name=path, kind="measured"))
    made = make_file(result(), path, Database(((read_file(path),), SHIPPED.groups[0])))
    assert records(made, "float64") == {(8, 8, 8): recorded("8x8x8", SMALL, 5.0)}
    assert records(made)[2048, 2048, 2048].gflops == 333.0
    assert records(made)[512, 512, 512].config == BEST


def test_a_contribution_is_for_the_architecture(tmp_path):
    path = tmp_path / "contributed.json"
    assert save_result(result(DIRECT, traits=gpu()), Database(()), path) == path
    assert read_file(path).match == SM_90
    path = tmp_path / "cpu.json"
    save_result(result(), SHIPPED, path)
    assert read_file(path).match == Match("architecture", "cpu", None, "x86-64-v4")


def test_a_contribution_for_a_device_of_no_known_architecture(tmp_path):
    path = tmp_path / "contributed.json"
    save_result(result(DIRECT, traits=gpu(architecture="", vendor="arm")), Database(()), path)
    assert read_file(path).match.level == "device"


def test_a_second_contribution_extends_the_first(tmp_path):
    path = tmp_path / "contributed.json"
    save_result(result(), SHIPPED, path)
    save_result(result(LARGE, shape=(8, 1024, 1024)), SHIPPED, path)
    found = records(read_file(path))
    assert found[512, 512, 512] == recorded("512x512x512", BEST, 268.4)
    assert found[8, 1024, 1024].config == LARGE


def test_a_file_with_a_threshold_is_brought_to_records_by_shape(tmp_path):
    path = tmp_path / "contributed.json"
    both = [Record(GemmShape(*shape), config) for shape in ((1024, 1024, 1024), (32, 32, 32))
            for config in (DIRECT, INDIRECT)]  # fmt: skip
    save_file(made_file(both, SM_90, Threshold(mnk=10**6), name=path))
    save_result(result(INDIRECT, traits=gpu(), shape=(8, 8, 8192)), Database(()), path)
    (entry,) = read_file(path).entries
    assert entry.indirect_from is None
    assert {record.shape.sizes: record.config.family for record in entry.records} == {
        (1024, 1024, 1024): "indirect",
        (32, 32, 32): "direct",
        (8, 8, 8192): "indirect",
    }


def test_the_users_own_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning_result, "user_database_folder", lambda: tmp_path / "databases")
    path = save_result(result(), SHIPPED)
    assert path == tmp_path / "databases" / "amd-epyc.json"
    assert records(read_file(path))[512, 512, 512].config == BEST


def test_nothing_measured(tmp_path):
    with pytest.raises(ArgumentError, match="nothing was measured"):
        make_file(result(None), tmp_path / "mine.json", SHIPPED)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_used_is_left_alone(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("not JSON")
    with pytest.raises(DatabaseError, match="is not JSON"):
        save_result(result(), SHIPPED, path)
    assert path.read_text() == "not JSON"
