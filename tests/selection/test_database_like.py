"""Entries that are like another of their file: what they borrow, what is refused, what is saved."""

import json
from dataclasses import replace

import pytest

from pyclgemm.errors import DatabaseError
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.candidates import attempts_for
from pyclgemm.selection.database import Database, read_file, save_file
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Entry, Record, Threshold
from pyclgemm.selection.select import select
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.results import make_file, save_result
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult
from tests.support.databases import DIRECT, SM_90, a_database, file_of
from tests.support.facts import gpu, recorded

HALF, BRAIN = ("float16", "F16_F16_F32"), ("bfloat16", "BF16_BF16_F32")
H100 = gpu(fence_options="-cl-std=CL3.0", local_memory_bytes=229440, wgmma=True)

WGMMA = WgmmaConfig(128, 256, STAGES=3)
MATRIX = MatrixConfig(128, 256, 32, 2, 4, STAGES=4)
GEMV = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=4)
LARGE, MIDDLE, LITTLE = (GemmShape(size, size, size) for size in (4096, 512, 32))
LENT = (Record(LARGE, WGMMA, 7e5), Record(LARGE, MATRIX, 3e5), Record(LITTLE, DIRECT, 20.0))
LENDER = Entry(*HALF, LENT)


def borrower(*own, **changes):
    return Entry(*BRAIN, own, like=LENDER, **changes)


def without_speed(*records):
    return tuple(replace(record, gflops=None) for record in records)


def a_file(path, *entries):
    return file_of(list(entries), SM_90, name=path, kind="measured")


def entry_of(file, name):
    (entry,) = [entry for entry in file.entries if entry.name == name]
    return entry


def document(likes):
    """A file as JSON reads it: entries by name, like what they are given; float16's has records."""
    entries = [Entry(*name, LENT if name == HALF else ()) for name in likes]
    whole = a_file("x", *entries).document
    for entry, like in zip(whole["entries"], likes.values(), strict=True):
        if like:
            entry["like"] = dict(zip(("dtype", "precision"), like, strict=False))
    return whole


def written(tmp_path, content):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    return path


# -------------------------------------------------------------------------- what is borrowed


def test_an_entry_without_records_has_those_of_another_without_their_speed(tmp_path):
    read = read_file(written(tmp_path, document({BRAIN: HALF, HALF: None})))
    assert entry_of(read, HALF).records == entry_of(read, HALF).own == LENT
    assert entry_of(read, HALF).borrowed == ()
    entry = entry_of(read, BRAIN)
    assert entry.own == ()
    assert entry.records == entry.borrowed == without_speed(*LENT)


REPEATED = Record(LITTLE, replace(DIRECT, GROUP_M=4), 21.0)
FEW, MANY = (Record(replace(MIDDLE, batch=batch), DIRECT, 9.0) for batch in (2, 64))
EIGHTS = recorded("8x8x8", SmallConfig(4, 4, 128), 9.0), recorded("8x8x8", DIRECT, 1.0)
OTHER_EIGHTS = replace(EIGHTS[0], config=SmallConfig(2, 2, 128))


@pytest.mark.parametrize(
    ("own", "lent", "borrowed"),
    [
        # Own records hide those of the same place and path.
        ((Record(MIDDLE, DIRECT, 5.0), REPEATED), LENT, LENT[:2]),
        ((replace(LENT[2], shape=MIDDLE),), LENT, LENT),
        ((replace(LENT[2], shape=replace(LITTLE, layout="NT")),), LENT, LENT),
        ((replace(LENT[2], alignment=1),), LENT, LENT),
        ((replace(LENT[2], shape=replace(LITTLE, batch=64)),), LENT, LENT),
        # Batches of the same number; a record for any number by its like alone.
        ((replace(MANY, gflops=8.0),), (FEW, MANY), (FEW,)),
        ((OTHER_EIGHTS,), EIGHTS, EIGHTS[1:]),
    ],
)
def test_own_records_come_first_and_hide_those_of_the_same_place_and_path(own, lent, borrowed):
    assert Entry(*BRAIN, own, like=Entry(*HALF, lent)).records == (*own, *without_speed(*borrowed))


def test_what_stands_in_for_a_refused_path_is_borrowed_behind_an_own_record_of_that_path():
    newer = replace(WGMMA, GROUP_M=4)
    entry = borrower(Record(LARGE, newer, 8e5))
    assert entry.records == (Record(LARGE, newer, 8e5), *without_speed(*LENT[1:]))
    database = Database(((a_file("mine", entry, LENDER),),))
    problem = LARGE.problem(*BRAIN)
    refused = replace(H100, wgmma=False, wgmma_refusal="a test")
    assert select(problem, H100, database).config == newer
    assert select(problem, refused, database).config == MATRIX


def test_an_own_record_of_another_path_is_taken_before_a_borrowed_one_of_its_place():
    entry = borrower(Record(LARGE, MATRIX, 8e5))
    database = Database(((a_file("mine", LENDER, entry),),))
    assert select(LARGE.problem(*BRAIN), H100, database).config == MATRIX
    assert select(LARGE.problem(*HALF), H100, database).config == WGMMA


def test_a_configuration_that_breaks_a_constraint_for_the_type_is_not_borrowed(tmp_path):
    read = read_file(written(tmp_path, document({HALF: None, ("float64", "F64_F64_F64"): HALF})))
    entry = entry_of(read, ("float64", "F64_F64_F64"))
    # Warpgroup units multiply no float64; the others do.
    assert entry.records == without_speed(*LENT[1:])


def test_a_threshold_is_not_borrowed():
    lender = replace(LENDER, indirect_from=Threshold(mnk=9))
    assert Entry(*BRAIN, (), like=lender).indirect_from is None


# -------------------------------------------------------------------------- who sees them


def test_what_is_borrowed_is_chosen_ranked_and_asked_for_by_path():
    file = a_file("mine", borrower(Record(MIDDLE, GEMV, 5.0)), LENDER)
    database = a_database(file)
    problem = LITTLE.problem(*BRAIN)
    choice = select(problem, H100, database)
    assert choice.config == DIRECT
    assert "the nearest record is for 32x32x32" in choice.reason
    assert choose(problem, H100, database, "matrix").config == MATRIX
    alone = Database(((a_file("mine", borrower(), LENDER),),))
    [attempt] = attempts_for(problem, H100, alone.lookup(H100, *BRAIN))[:1]
    assert "timed against each other" in attempt.reason


# -------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("likes", "message"),
    [
        ({HALF: None, BRAIN: ("float32", "F32_F32_F32")},
         r"\$\.entries\[1\]\.like is float32 by F32_F32_F32, of which the file has no entry; "
         r"wanted is another entry of the file that has no like: float16 by F16_F16_F32$"),
        # As it is named, both ways: the type alone does not do.
        ({HALF: None, BRAIN: ("float16", "F16_F16_F16")},
         r"\$\.entries\[1\]\.like is float16 by F16_F16_F16, of which the file has no entry"),
        ({HALF: None, BRAIN: BRAIN},
         r"\$\.entries\[1\]\.like is bfloat16 by BF16_BF16_F32, the entry itself; wanted is "
         r"another entry of the file that has no like: float16 by F16_F16_F32$"),
        ({BRAIN: BRAIN}, r"\$\.entries\[0\]\.like is .*, the entry itself; .*: it has none$"),
        ({BRAIN: HALF, HALF: ("int8", "I8_I8_I32"), ("int8", "I8_I8_I32"): None},
         r"\$\.entries\[0\]\.like is float16 by F16_F16_F32, which is like another itself; "
         r"wanted is another entry of the file that has no like: int8 by I8_I8_I32$"),
        ({BRAIN: HALF, HALF: BRAIN}, r"\$\.entries\[0\]\.like is .*, which is like another itself"),
        ({HALF: None, BRAIN: ("float16",)},
         r"\$\.entries\[1\]\.like is .*'precision' is a required property"),
        ({HALF: None, BRAIN: ("float8", "F16_F16_F32")},
         r"\$\.entries\[1\]\.like\.dtype is 'float8': 'float8' is not one of"),
        ({HALF: None, BRAIN: ("float16", "F16")},
         r"\$\.entries\[1\]\.like\.precision is 'F16': 'F16' is not one of"),
    ],
)  # fmt: skip
def test_what_an_entry_cannot_be_like_is_refused_by_file_place_and_value(tmp_path, likes, message):
    path = written(tmp_path, document(likes))
    with pytest.raises(DatabaseError, match=message) as caught:
        read_file(path)
    assert str(caught.value).startswith(f"{path}: $")


def test_an_unknown_name_in_like_is_refused(tmp_path):
    content = document({HALF: None, BRAIN: HALF})
    content["entries"][1]["like"]["layout"] = "NT"
    with pytest.raises(DatabaseError, match=r"\.like is .*\('layout' was unexpected\)"):
        read_file(written(tmp_path, content))


def test_an_entry_whose_lender_is_missing_is_not_saved(tmp_path):
    path = tmp_path / "mine.json"
    with pytest.raises(DatabaseError, match="like is float16 by F16_F16_F32, of which the file"):
        save_file(a_file(path, borrower()))
    assert not path.exists()


# -------------------------------------------------------------------------- what is saved


def test_what_is_borrowed_is_not_written(tmp_path):
    path = tmp_path / "mine.json"
    entries = borrower(Record(LITTLE, DIRECT, 21.0)), LENDER
    save_file(a_file(path, *entries))
    assert read_file(path).entries == entries
    first, second = json.loads(path.read_text())["entries"]
    assert list(first) == ["dtype", "precision", "like", "records"]
    assert first["like"] == {"dtype": "float16", "precision": "F16_F16_F32"}
    assert [record["gflops"] for record in first["records"]] == [21.0]
    assert "like" not in second
    assert len(second["records"]) == 3


def test_a_record_a_line_and_none_for_an_entry_without(tmp_path):
    save_file(a_file(tmp_path / "mine.json", borrower(), Entry(*HALF, LENT[:1])))
    lines = (tmp_path / "mine.json").read_text().splitlines()
    assert lines[5:7] == [
        '  {"dtype": "bfloat16", "precision": "BF16_BF16_F32", '
        '"like": {"dtype": "float16", "precision": "F16_F16_F32"}, "records": []},',
        '  {"dtype": "float16", "precision": "F16_F16_F32", "records": [',
    ]
    assert lines[7].startswith('   {"path": "wgmma"')


def found(name, shape, config):
    """What the tuner returns for one product."""
    shape = GemmShape.of(shape)
    standing = Standing(shape, shape.problem(*name))
    standing.note(config, Outcome("fine", 1e-3))
    return TuningResult(H100, *name, (standing,))


def test_the_tuner_writes_what_it_measured_and_leaves_like_as_it_is(tmp_path):
    path = tmp_path / "sm_90.json"
    older = Record(MIDDLE, DIRECT, 5.0), recorded("64x512x512", DIRECT, 6.0)
    save_file(a_file(path, LENDER, borrower(*older)))
    faster = replace(DIRECT, GROUP_M=4)
    database = a_database(read_file(path))
    assert save_result(found(BRAIN, LITTLE, faster), database, path) == path
    entry = entry_of(read_file(path), BRAIN)
    assert entry.like == entry_of(read_file(path), HALF) == LENDER
    tuned = Record(LITTLE, faster, 0.06554)
    assert entry.own == (tuned, older[1], older[0])
    assert entry.records == (*entry.own, *without_speed(*LENT[:2]))
    made = json.loads(path.read_text())["entries"]
    assert [len(one["records"]) for one in made] == [3, 3]
    # What was found anew supersedes own records nearby.
    save_result(found(BRAIN, (520, 512, 512), DIRECT), a_database(read_file(path)), path)
    shapes = [str(record.shape) for record in entry_of(read_file(path), BRAIN).own]
    assert shapes == ["32x32x32", "64x512x512", "520x512x512"]


def test_the_tuner_keeps_what_is_borrowed_behind_the_same_record_of_its_own(tmp_path):
    """Measured for this type, it has a speed, and stays whatever the other entry becomes."""
    path = tmp_path / "sm_90.json"
    save_file(a_file(path, LENDER, borrower()))
    save_result(found(BRAIN, LARGE, WGMMA), a_database(read_file(path)), path)
    entry = entry_of(read_file(path), BRAIN)
    assert entry.own == (Record(LARGE, WGMMA, 137400.0),)
    assert entry.records == (*entry.own, *without_speed(*LENT[1:]))


def test_batches_that_the_tuner_found_leave_like_as_it_is(tmp_path):
    path = tmp_path / "sm_90.json"
    single = Record(MIDDLE, DIRECT, 5.0)
    save_file(a_file(path, LENDER, borrower(single)))
    batch = replace(MIDDLE, batch=64)
    save_result(found(BRAIN, batch, DIRECT), a_database(read_file(path)), path)
    entry = entry_of(read_file(path), BRAIN)
    assert entry.like == LENDER
    assert entry.own == (single, Record(replace(MIDDLE, batch=64), DIRECT, 17180.0))


def test_what_the_tuner_finds_for_an_entry_counts_for_those_that_are_like_it(tmp_path):
    path = tmp_path / "sm_90.json"
    save_file(a_file(path, LENDER, borrower()))
    newer = replace(WGMMA, GROUP_M=4)
    save_result(found(HALF, LARGE, newer), a_database(read_file(path)), path)
    read = read_file(path)
    assert entry_of(read, HALF).own == (
        Record(LITTLE, DIRECT, 20.0), Record(LARGE, newer, 137400.0), Record(LARGE, MATRIX, 3e5)
    )  # fmt: skip
    assert entry_of(read, BRAIN).own == ()
    assert entry_of(read, BRAIN).records == without_speed(*entry_of(read, HALF).own)


def test_a_users_own_file_has_what_the_library_borrows_today(tmp_path):
    """It hides the other file, and is like nothing itself."""
    shipped = Database(((a_file("shipped", LENDER, borrower()),),))
    made = make_file(found(BRAIN, MIDDLE, DIRECT), tmp_path / "mine.json", shipped)
    (entry,) = made.entries
    assert entry.like is None
    assert entry.own == (
        Record(LITTLE, DIRECT), Record(MIDDLE, DIRECT, 268.4), Record(LARGE, WGMMA)
    )  # fmt: skip


def test_an_entry_that_loses_its_threshold_owns_the_records_of_the_path_that_was_taken(tmp_path):
    path = tmp_path / "sm_90.json"
    threshold = Threshold(mnk=10**6)
    lender = Entry(*HALF, (Record(LARGE, DIRECT), Record(LITTLE, DIRECT)), threshold)
    save_file(a_file(path, lender, Entry(*BRAIN, (), threshold, lender)))
    save_result(found(BRAIN, (1, 8, 8), DIRECT), Database(()), path)
    entry = entry_of(read_file(path), BRAIN)
    assert (entry.like, entry.indirect_from) == (None, None)
    assert [record.shape for record in entry.own] == [GemmShape(1, 8, 8), LITTLE]
