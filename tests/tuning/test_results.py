"""Saving a tuner's result: one record for each product, and the rest of the file is kept."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ArgumentError, DatabaseError
from pyclgemm.families.cost import Coefficients
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.selection import saving
from pyclgemm.selection.database import read_file, save_file
from pyclgemm.selection.records import Entry, Match, Model, Threshold
from pyclgemm.selection.select import select
from pyclgemm.tuning.survey import Surveyed
from pyclgemm.tuning.tuner import TuningResult, save_result
from tests.support import databases as db
from tests.support.databases import DIRECT, FLOAT32, SM_90, a_database, file_of, made_file, result
from tests.support.facts import CEILINGS, cpu, gpu, problem_of, recorded

BEST, OTHER, LARGE = db.NARROW, db.ROWS, db.SQUARE
EPYC = Match("device", "cpu", device="AMD EPYC")
SMALL_BATCH = SmallCpuConfig(MR=6, NR=16, VW=8)
BEST_BATCH = SmallCpuConfig(MR=4, NR=32, VW=16)
COUNTS = [(f"300x300x300*{count}", BEST) for count in (4, 4000)]
COUNTS += [(f"8x8x8*{count}", BEST_BATCH) for count in (100, 10000)]
OF_A_DEVICE = Model("a test", "2026-01-01", {"cpu": Coefficients(multiply=1.5)})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.json"


def saved(found, path):
    """What decides for its product."""
    save_result(found, path)
    records = read_file(path).entries[0].own
    return [(str(record), record.config) for record in records if not record.sample]


def together(*results):
    standings = tuple(standing for one in results for standing in one.standings)
    return TuningResult(cpu(), *FLOAT32, standings)


def pairs(path):
    """The products and configurations of the first entry's records."""
    return [(str(record), record.config) for record in read_file(path).entries[0].records]


def test_a_record_for_each_shape_with_its_speed(path):
    save_file(made_file([recorded("1x64x1024", OTHER)], EPYC, name=path))
    save_result(result(), path)
    file = read_file(path)
    older, found = recorded("1x64x1024", OTHER), recorded("512x512x512", BEST, 268.4)
    assert (file.entries[0].records, file.source.kind) == ((older, found), "measured")
    assert file.source.text.startswith("tuned on AMD EPYC, Portable Computing Language 580.0, 20")
    assert "records without a speed are older ones" in file.source.text
    # The speed of the slowest product can be saved too.
    save_result(result(BEST, "1x1x1"), path)
    assert read_file(path).entries[0].records[0].gflops == 2e-6


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("512x512x512:NT", "512x512x512:NT"),
        ("500x512x510:TN", "500x512x510:TN"),
        ("500x512x510:TT", "500x512x510:TT"),
        ("512x512x512+7", "512x512x512 with rows aligned to 1"),
        ("509x509x509+3", "509x509x509 with rows aligned to 16"),
        ("512x512x512*64", "512x512x512*64"),
        # In canonical form, as the library looks products up.
        ("512x1x512", "1x512x512:NT"),
        ("1x512x512:TN", "1x512x512"),
    ],
)
def test_a_record_names_its_product_and_is_taken_for_it(path, text, record):
    assert saved(result(BEST, text), path) == [(record, BEST)]
    choice = select(problem_of(text), cpu(), a_database(read_file(path)))
    assert choice.config == BEST
    assert choice.reason.startswith("measured on this very product")


@pytest.mark.parametrize(
    ("known", "found", "kept"),
    [
        ([("512x512x512", LARGE)], [("600x500x512", BEST)],
         [("512x512x512", LARGE), ("600x500x512", BEST)]),
        # A record of another layout or alignment replaces nothing.
        ([("512x512x512", LARGE)],
         [("512x512x512:NT", BEST), ("512x512x512+7", BEST), ("512x512x512+2", BEST)],
         [("512x512x512", LARGE), ("512x512x512 with rows aligned to 1", BEST),
          ("512x512x512 with rows aligned to 2", BEST), ("512x512x512:NT", BEST)]),
        # A record without an alignment is one of contiguous matrices.
        ([("511x511x511", LARGE)], [("511x511x511", BEST)], [("511x511x511", BEST)]),
        # A record of a batch replaces only those of the same count.
        ([], COUNTS, COUNTS),
        ([("512x512x512*256", OTHER), ("8x8x8", SMALL_BATCH)],
         [("512x512x512*64", LARGE), ("8x8x8", OTHER), ("8x8x8*100", BEST_BATCH)],
         [("8x8x8", OTHER), ("512x512x512*64", LARGE), ("512x512x512*256", OTHER),
          ("8x8x8", SMALL_BATCH), ("8x8x8*100", BEST_BATCH)]),
        ([("8x8x8*100", BEST)], [("8x8x8*100", BEST_BATCH)], [("8x8x8*100", BEST_BATCH)]),
    ],
)  # fmt: skip
def test_a_result_replaces_the_records_of_its_product_alone(path, known, found, kept):
    save_file(made_file([recorded(*one) for one in known], EPYC, name=path))
    save_result(together(*(result(config, text) for text, config in found)), path)
    assert pairs(path) == kept


def test_of_two_shapes_of_one_product_the_faster_counts(path):
    one, other = result(BEST, "512x1x512"), result(OTHER, "1x512x512:NT")
    other.standings[0].seconds[OTHER] /= 2
    for both in (together(one, other), together(other, one)):
        assert saved(both, path) == [("1x512x512:NT", OTHER)]


def test_samples_stand_beside_the_record_that_decides(path):
    text = "512x512x512"
    save_file(made_file([recorded(text, LARGE, 300.0)], EPYC, name=path))

    def add(config, gflops, **changes):
        """The records after another one was added, with their speeds."""
        new = [recorded(text, config, gflops, **changes)]
        save_file(saving.extended_file(path, cpu(), FLOAT32, new))
        records = read_file(path).entries[0].own
        return [(one.config, one.gflops, one.sample) for one in records]

    decisive = (LARGE, 300.0, False)
    assert add(OTHER, 100.0, sample=True) == [decisive, (OTHER, 100.0, True)]
    # A newer time of the same configuration replaces it, one of another does not.
    assert add(OTHER, 150.0, sample=True) == [decisive, (OTHER, 150.0, True)]
    assert set(add(BEST, 200.0, sample=True)[1:]) == {(OTHER, 150.0, True), (BEST, 200.0, True)}
    # As a configuration becomes the fastest one, it is no sample any more.
    after = add(BEST, 400.0)
    assert after == [(BEST, 400.0, False), (OTHER, 150.0, True)]


def test_a_contribution_keeps_the_devices_of_a_file(path):
    def contribute(name, vendor="AMD"):
        """The devices that the file covers, and those of its source, after another one's record."""
        traits = cpu(name=name, architecture="x86-64-v4", vendor=vendor)
        new = [recorded("512x512x512", BEST, 100.0)]
        save_file(saving.extended_file(path, traits, FLOAT32, new, level="architecture"))
        file = read_file(path)
        return file.match, file.source.text.split(",")[0]

    match = Match("architecture", "cpu", "AMD", "x86-64-v4")
    save_file(made_file([recorded("8x8x8", LARGE)], match, kind="measured", name=path))
    assert contribute("AMD EPYC") == (match, "tuned on AMD EPYC")
    for name in ("AMD Ryzen", "AMD EPYC"):
        assert contribute(name) == (match, "tuned on AMD EPYC and AMD Ryzen")
    before = path.read_text()
    with pytest.raises(DatabaseError, match="is for AMD/x86-64-v4, and the records are of 'Xeon'"):
        contribute("Xeon", "Intel")
    assert path.read_text() == before


def test_the_configurations_that_follow_the_fastest_one_are_samples(path):
    found = result(BEST, "512x512x512")
    seconds = found.standings[0].seconds
    seconds |= {OTHER: 2 * seconds[BEST], LARGE: 3 * seconds[BEST]}
    save_result(found, path)
    first, *others = read_file(path).entries[0].own
    assert (first.config, first.sample) == (BEST, False)
    assert {one.config: one.sample for one in others} == {OTHER: True, LARGE: True}
    assert {one.config: round(first.gflops / one.gflops) for one in others} == {OTHER: 2, LARGE: 3}


def test_a_threshold_is_dropped_once_a_single_product_was_tuned(path):
    threshold = Threshold(mnk=10**6)
    save_file(made_file([recorded("32x32x32", DIRECT)], SM_90, threshold, name=path))
    save_result(result(SmallConfig(4, 4, 128), "16x16x16*100", gpu()), path)
    assert read_file(path).entries[0].indirect_from == threshold
    save_result(result(db.INDIRECT, "8x8x8192", gpu()), path)
    assert read_file(path).entries[0].indirect_from is None


def test_the_substitute_for_wgmma_stays_behind_it(path):
    hopper, square = typical_traits("sm_90"), "4096x4096x4096"
    refusing = replace(hopper, wgmma=False, wgmma_refusal="a test")
    newer, faster = replace(db.WGMMA, GROUP_M=4), replace(db.MATRIX, GROUP_M=4)
    known = [recorded(square, db.MATRIX), recorded(square, db.WGMMA, 7e5)]
    for best, expected in ((newer, [newer, db.MATRIX]), (faster, [faster])):
        save_file(made_file(known, SM_90, name=path, types=db.FLOAT16))
        assert len(saved(result(best, square, hopper, db.FLOAT16), path)) == len(expected)
        wanted, database = problem_of(square, *db.FLOAT16), a_database(read_file(path))
        assert select(wanted, hopper, database).config == expected[0]
        assert select(wanted, refusing, database).config == expected[-1]


def test_other_records_entries_and_models_of_the_file_are_kept(path):
    double = Entry("float64", "F64_F64_F64", (recorded("8x8x8", OTHER, 5.0),))
    known = recorded("512x512x512", LARGE, 99.0), recorded("2048x2048x2048", LARGE, 333.0)
    save_file(file_of([Entry(*FLOAT32, known, fitted=OF_A_DEVICE), double], EPYC, name=path))
    save_result(result(), path)
    records = recorded("512x512x512", BEST, 268.4), known[1]
    assert read_file(path).entries == (Entry(*FLOAT32, records, fitted=OF_A_DEVICE), double)


def test_a_contribution_is_for_the_architecture(tmp_path):
    unknown = gpu(architecture="", vendor="arm")
    for number, (found, match) in enumerate((
        (result(DIRECT, traits=gpu()), SM_90),
        (result(), Match("architecture", "cpu", None, "x86-64-v4")),
        (result(traits=cpu(core="zen5")),
         Match("architecture", "cpu", "amd", "x86-64-v4", core="zen5")),
        (result(DIRECT, traits=unknown), Match("device", "gpu", "arm", device=gpu().name)),
    )):  # fmt: skip
        path = save_result(found, tmp_path / f"{number}.json")
        assert read_file(path).match == match


def test_a_contribution_has_no_ceilings_of_a_device(path):
    other = Entry("float64", "F64_F64_F64", (recorded("8x8x8", OTHER, 5.0),), fitted=OF_A_DEVICE)
    save_file(file_of([other], EPYC, name=path, ceilings=CEILINGS))
    model = replace(OF_A_DEVICE, source="about estimated ceilings")
    save_result(replace(result(), survey=Surveyed(model=model, ceilings=CEILINGS)), path)
    file = read_file(path)
    assert file.ceilings is None
    # A model that was fitted to them is dropped too.
    assert [entry.fitted for entry in file.entries] == [model, None]


def test_the_users_own_file_is_for_the_device(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "user_database_folder", lambda: tmp_path / "databases")
    for found in (replace(result(), survey=Surveyed(ceilings=CEILINGS)), result()):
        path = save_result(found)
        assert read_file(path).ceilings == CEILINGS
    assert path == tmp_path / "databases" / "amd-epyc.json"
    assert read_file(path).match == Match("device", "cpu", "amd", device="AMD EPYC")
    assert pairs(path) == [("512x512x512", BEST)]


def test_a_result_without_measurements_and_an_invalid_file_are_refused(path):
    with pytest.raises(ArgumentError, match="nothing was measured"):
        save_result(result(None), path)
    assert not path.exists()
    path.write_text("not JSON")
    with pytest.raises(DatabaseError, match="is not JSON"):
        save_result(result(), path)
    assert path.read_text() == "not JSON"
