"""Saving what was found: records by shape and number, and nothing that stood gets lost."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ArgumentError, DatabaseError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, read_file, save_file
from pyclgemm.selection.records import Entry, Match, Threshold
from pyclgemm.selection.select import select
from pyclgemm.tuning import results
from pyclgemm.tuning.results import make_file, save_result
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
from tests.support.facts import cpu, gpu, recorded
from tests.support.tuner_fakes import BEST, LARGE, SHIPPED, SMALL, laid_out, result

EPYC = Match("device", "cpu", device="AMD EPYC")
NOTHING = Database(())
SMALL_BATCH = SmallCpuConfig(MR=6, NR=16, VW=8)
BEST_BATCH = SmallCpuConfig(MR=4, NR=32, VW=16)
SHIPPED_BOTH = a_database(
    made_file(
        [recorded("1x64x1024", SMALL, 9.0), recorded("512x512x512", LARGE, 99.0),
         recorded("8x8x8", SMALL_BATCH, 1.0), recorded("64x64x64", SMALL_BATCH, 9.0)],
        "cpu",
    )
)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.json"


def pairs(file):
    """What the records of a file's first entry are for, and their configurations."""
    return [(str(record), record.config) for record in file.entries[0].records]


def records(file):
    return dict(pairs(file))


def used(text, traits, *groups):
    """What is chosen where a user's file stands before what ships."""
    return select(GemmShape.parse(text).problem("float32"), traits, Database(groups))


def test_a_record_for_each_shape_with_its_speed(path):
    made = make_file(result(), path, SHIPPED)
    # What was not tuned is carried over without its speed.
    assert made.entries[0].records == (
        recorded("1x64x1024", SMALL), recorded("512x512x512", BEST, 268.4)
    )  # fmt: skip
    assert made.match == Match("device", "cpu", "amd", device="AMD EPYC")
    assert made.source.kind == "measured"
    assert made.source.text.startswith("tuned on AMD EPYC, Portable Computing Language 580.0, 20")
    assert "records without a speed are older ones" in made.source.text
    choice = used("2x64x1000", cpu(), (made, *SHIPPED.groups[0]))
    assert (choice.config, choice.level) == (SMALL, "device")


def test_the_slowest_product_has_a_speed_that_can_be_saved(path):
    save_result(result(shape=(1, 1, 1)), SHIPPED, path)
    assert read_file(path).entries[0].records[0].gflops == 2e-6


def test_what_ships_and_was_measured_is_not_copied_to_the_users_file(path):
    match = Match("architecture", "cpu", architecture="x86-64-v4")
    made = made_file([recorded("1x64x1024", SMALL, 9.0)], match, kind="measured")
    shipped = replace(made, built_in=True)
    assert list(records(make_file(result(), path, a_database(shipped)))) == ["512x512x512"]
    # A user's other files may go, and what is contributed is to stand in the place of what ships.
    for one, level in ((made, "device"), (shipped, "architecture")):
        kept = make_file(result(), path, a_database(one), level)
        assert list(records(kept)) == ["1x64x1024", "512x512x512"]


def test_only_what_the_library_uses_is_carried_over(path):
    """Of a file with a threshold, the records of the path that is taken at their shape."""
    known = {"64x64x64": DIRECT, "32x32x32": INDIRECT, "4096x4096x4096": INDIRECT,
             "2048x64x2048": DIRECT}  # fmt: skip
    shipped = made_file([recorded(*one) for one in known.items()], threshold=Threshold(mnk=10**7))
    made = make_file(result(INDIRECT, traits=gpu()), path, a_database(shipped))
    expected = {"64x64x64": DIRECT, "512x512x512": INDIRECT, "4096x4096x4096": INDIRECT}
    assert records(made) == expected


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("512x512x512:NT", "512x512x512:NT"),
        ("500x512x510:TN", "500x512x510:TN"),
        ("500x512x510:TT", "500x512x510:TT"),
        ("512x512x512+7", "512x512x512 with rows aligned to 1"),
        ("509x509x509+3", "509x509x509 with rows aligned to 16"),
        # In canonical form, as the library looks them up.
        ("512x1x512", "1x512x512:NT"),
        ("1x512x512:TN", "1x512x512"),
    ],
)
def test_a_record_tells_its_layout_and_alignment(path, text, record):
    made = make_file(laid_out(text), path, NOTHING)
    assert records(made) == {record: BEST}
    choice = used(text, cpu(), (made, *SHIPPED.groups[0]))
    assert (choice.config, choice.level) == (BEST, "device")


@pytest.mark.parametrize(
    ("known", "found", "database", "kept"),
    [
        ([], [("600x500x512", BEST)], SHIPPED, [("1x64x1024", SMALL), ("600x500x512", BEST)]),
        # Another layout or alignment supersedes nothing.
        ([], [("512x512x512:NT", BEST), ("512x512x512+7", BEST), ("512x512x512+2", BEST),
              ("500x530x510:NT", BEST)], SHIPPED,
         [("1x64x1024", SMALL), ("500x530x510:NT", BEST),
          ("512x512x512 with rows aligned to 1", BEST),
          ("512x512x512 with rows aligned to 2", BEST), ("512x512x512", LARGE),
          ("512x512x512:NT", BEST)]),
        ([], [("512x512x512:NT", BEST), ("512x512x512+7", BEST), ("600x500x512:NT", SMALL)],
         SHIPPED,
         [("1x64x1024", SMALL), ("512x512x512 with rows aligned to 1", BEST),
          ("512x512x512", LARGE), ("600x500x512:NT", SMALL)]),
        # Without an alignment, a record is that of contiguous matrices.
        ([("511x511x511", LARGE)], [("511x511x511", BEST)], NOTHING, [("511x511x511", BEST)]),
        # Batches and single products, and batches of numbers that are far apart.
        ([], [("8x8x8*10000", SMALL_BATCH), ("8x8x8", SMALL), ("512x512x512", LARGE),
              ("500x512x512*60", BEST), ("512x512x512*256", SMALL), ("512x512x512*64", LARGE),
              ("9x8x8*9000", BEST_BATCH)], SHIPPED,
         [("1x64x1024", SMALL), ("8x8x8", SMALL), ("512x512x512", LARGE),
          ("512x512x512*64", LARGE), ("512x512x512*256", SMALL), ("9x8x8*9000", BEST_BATCH)]),
        # A record for batches of any number is superseded by one that tells it.
        ([("8x8x8", SMALL_BATCH), ("32x8x8", SMALL_BATCH)], [("8x8x8*100", BEST_BATCH)], NOTHING,
         [("8x8x8*100", BEST_BATCH), ("32x8x8", SMALL_BATCH)]),
        # Different kernels for one batch do not displace each other.
        ([], [("8x8x8*100", BEST), ("8x8x8*100", BEST_BATCH)], NOTHING,
         [("8x8x8*100", BEST), ("8x8x8*100", BEST_BATCH)]),
        # What other files say about batches is carried over, as of single products.
        ([("512x512x512*64", BEST)], [("2x64x1000*9", SMALL)], NOTHING,
         [("2x64x1000*9", SMALL), ("512x512x512*64", BEST)]),
    ],
)  # fmt: skip
def test_what_is_found_supersedes_what_is_near_and_nothing_else(path, known, found, database, kept):
    if known:
        save_file(made_file([recorded(*one) for one in known], EPYC, name=path))
    for one in found:
        save_file(make_file(laid_out(*one), path, database))
    assert pairs(read_file(path)) == kept


def together(*results):
    standings = tuple(standing for one in results for standing in one.standings)
    return TuningResult(cpu(), *FLOAT32, standings)


def test_of_two_shapes_of_one_product_the_faster_counts(path):
    one, other = laid_out("512x1x512"), laid_out("1x512x512:NT", SMALL)
    other.standings[0].seconds[SMALL] /= 2
    for both in (together(one, other), together(other, one)):
        assert list(records(make_file(both, path, NOTHING)).values()) == [SMALL]


def test_batches_of_different_numbers_have_a_record_each(path):
    configs = {"8x8x8*100": BEST_BATCH, "8x8x8*10000": BEST_BATCH, "300x300x300*4": BEST,
               "300x300x300*4000": BEST}  # fmt: skip
    found = together(*(laid_out(*one) for one in configs.items()))
    assert records(make_file(found, path, NOTHING)) == configs


@pytest.mark.parametrize(
    ("text", "config", "kept", "taken", "not_taken"),
    [
        ("8x8x8*10000", BEST_BATCH, {"8x8x8*10000": BEST_BATCH, "64x64x64": SMALL_BATCH},
         {"8x8x8*32": BEST_BATCH, "64x64x60*500": SMALL_BATCH},
         ["8x8x8", "500x500x500", "2x64x1000", "8x8x8*31", "128x128x128*64"]),
        ("512x512x512*64", BEST, {"512x512x512*64": BEST},
         {"512x512x512*64": BEST, "512x512x512*900": BEST, "500x512x600*64": BEST},
         ["512x512x512", "64x64x64*64", "8x512x512*64", "512x512x512:NT*2", "1x64x1024"]),
    ],
)  # fmt: skip
def test_a_batch_has_a_record_that_batches_alone_take(path, text, config, kept, taken, not_taken):
    made = make_file(laid_out(text, config), path, SHIPPED_BOTH)
    assert records(made) == kept
    for wanted, expected in taken.items():
        choice = used(wanted, cpu(), (made,), *SHIPPED_BOTH.groups)
        assert choice.config == expected
    for wanted in not_taken:
        choice = used(wanted, cpu(), (made,), *SHIPPED_BOTH.groups)
        assert choice.config == used(wanted, cpu(), *SHIPPED_BOTH.groups).config


SHIPPED_PATHS = [recorded("1024x1024x1024", INDIRECT), recorded("32x32x32", DIRECT),
                 recorded("32x32x32", INDIRECT)]  # fmt: skip


def test_what_was_found_of_batches_for_a_gpu_changes_no_single_product(path):
    shipped = a_database(made_file(SHIPPED_PATHS, threshold=Threshold(mnk=10**6)))
    batch = "128x128x128*256"
    made = make_file(result(DIRECT, GemmShape.parse(batch), gpu()), path, shipped)
    assert records(made) == {batch: DIRECT}
    for text in ("128x128x128", "32x32x32", "700x700x9"):
        choices = [
            used(text, gpu(), *files) for files in (((made,), *shipped.groups), shipped.groups)
        ]
        assert choices[0].config == choices[1].config
    assert used(batch, gpu(), (made,), *shipped.groups).config == DIRECT
    assert used(batch, gpu(), *shipped.groups).config == INDIRECT


def test_batches_alone_leave_a_threshold_as_it_is(path):
    save_file(made_file(SHIPPED_PATHS, SM_90, Threshold(mnk=10**6), name=path))
    best, large = SmallConfig(4, 4, 128), replace(DIRECT, WGD=64)
    save_result(result(best, GemmShape(16, 16, 16, batch=100), gpu()), NOTHING, path)
    save_result(result(large, GemmShape(400, 400, 400, batch=100), gpu()), NOTHING, path)
    (entry,) = read_file(path).entries
    assert entry.indirect_from == Threshold(mnk=10**6)
    assert {record.config for record in entry.records} == {INDIRECT, DIRECT, best, large}
    assert len(entry.records) == 5
    # A single product brings it to records by shape, of the path that was taken there.
    save_result(result(INDIRECT, (8, 8, 8192), gpu()), NOTHING, path)
    (entry,) = read_file(path).entries
    assert entry.indirect_from is None
    assert records(read_file(path)) == {
        "8x8x8192": INDIRECT, "32x32x32": DIRECT, "1024x1024x1024": INDIRECT,
        "16x16x16*100": best, "400x400x400*100": large,
    }  # fmt: skip


def test_what_stands_in_where_a_driver_refuses_wgmma_stays_behind_it(path):
    hopper, square = typical_traits("sm_90"), "4096x4096x4096"
    refused = replace(hopper, wgmma=False, wgmma_refusal="a test")
    older, stand_in = WgmmaConfig(128, 256, STAGES=3), MatrixConfig(128, 256, 32, 2, 4, STAGES=4)
    newer, faster = replace(older, GROUP_M=4), replace(stand_in, GROUP_M=4)
    known = [recorded(square, stand_in), recorded(square, older, 7e5)]
    save_file(made_file(known, SM_90, name=path, types=FLOAT16))
    for best, expected in ((newer, [newer, stand_in]), (faster, [faster])):
        found = result(best, GemmShape.parse(square), hopper, FLOAT16)
        file = make_file(found, path, SHIPPED, "architecture")
        wanted = found.standings[0].problem
        assert select(wanted, hopper, a_database(file)).config == expected[0]
        assert select(wanted, refused, a_database(file)).config == expected[-1]
        assert len(file.entries[0].records) == len(expected)


def test_other_entries_of_the_file_stay(path):
    double = Entry("float64", "F64_F64_F64", (recorded("8x8x8", SMALL, 5.0),))
    known = (recorded("2048x2048x2048", LARGE, 333.0), recorded("512x512x512", LARGE, 99.0))
    save_file(file_of([double, Entry(*FLOAT32, known)], EPYC, name=path, kind="measured"))
    made = make_file(result(), path, Database(((read_file(path),), SHIPPED.groups[0])))
    assert made.entries[1:] == (double,)
    assert known[0] in made.entries[0].records
    assert records(made)["512x512x512"] == BEST


@pytest.mark.parametrize(
    ("found", "match"),
    [
        (result(DIRECT, traits=gpu()), SM_90),
        (result(), Match("architecture", "cpu", None, "x86-64-v4")),
        # Of no known architecture.
        (result(DIRECT, traits=gpu(architecture="", vendor="arm")),
         Match("device", "gpu", "arm", device=gpu().name)),
    ],
)  # fmt: skip
def test_a_contribution_is_for_the_architecture(path, found, match):
    assert save_result(found, NOTHING, path) == path
    assert read_file(path).match == match


def test_the_users_own_file(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "user_database_folder", lambda: tmp_path / "databases")
    path = save_result(result(), SHIPPED)
    assert path == tmp_path / "databases" / "amd-epyc.json"
    assert records(read_file(path))["512x512x512"] == BEST


def test_nothing_measured(path):
    with pytest.raises(ArgumentError, match="nothing was measured"):
        make_file(result(None), path, SHIPPED)
    assert not path.exists()


def test_a_file_that_cannot_be_used_is_left_alone(path):
    path.write_text("not JSON")
    with pytest.raises(DatabaseError, match="is not JSON"):
        save_result(result(), SHIPPED, path)
    assert path.read_text() == "not JSON"
