"""Entries with `like`: which records they borrow, what is refused, what is saved."""

from dataclasses import replace

import pytest

from pyclgemm.errors import DatabaseError
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, read_file, save_file
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Entry, Record, Threshold
from pyclgemm.selection.select import alternatives, select
from pyclgemm.tuning.tuner import save_result
from tests.support.databases import DIRECT, MATRIX, SM_90, WGMMA, a_database, file_of, written
from tests.support.facts import HOPPER, recorded
from tests.support.tuner_fakes import result

HALF, BRAIN = ("float16", "F16_F16_F32"), ("bfloat16", "BF16_BF16_F32")
GEMV = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=4)
LARGE, MIDDLE, LITTLE = (GemmShape(size, size, size) for size in (4096, 512, 32))
LENT = (Record(LARGE, WGMMA, 7e5), Record(LARGE, MATRIX, 3e5), Record(LITTLE, DIRECT, 20.0))
LENDER = Entry(*HALF, LENT)


def borrower(*own):
    return Entry(*BRAIN, own, like=LENDER)


def without_speed(*records):
    return tuple(replace(record, gflops=None) for record in records)


def a_file(path, *entries):
    return file_of(entries, SM_90, name=path, kind="measured")


def entry_of(file, name):
    (entry,) = [entry for entry in file.entries if entry.name == name]
    return entry


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.json"


def written_likes(path, likes):
    """A file of entries, by name, with the `like` of each; only the one of float16 has records."""
    document = a_file("x", *(Entry(*name, LENT if name == HALF else ()) for name in likes)).document
    for entry, like in zip(document["entries"], likes.values(), strict=True):
        if like:
            entry["like"] = dict(zip(("dtype", "precision", "layout"), like, strict=False))
    return written(path, document)


def test_an_entry_without_records_has_those_of_another_without_their_speed(path):
    double = ("float64", "F64_F64_F64")
    file = read_file(written_likes(path, {BRAIN: HALF, HALF: None, double: HALF}))
    lender, entry = entry_of(file, HALF), entry_of(file, BRAIN)
    assert (lender.records, lender.own, lender.borrowed) == (LENT, LENT, ())
    assert entry.own == ()
    assert entry.records == entry.borrowed == without_speed(*LENT)
    # Warpgroup units multiply no float64; the others do.
    assert entry_of(file, double).records == without_speed(*LENT[1:])


REPEATED = Record(LITTLE, replace(DIRECT, GROUP_M=4), 21.0)
FEW, MANY = (Record(replace(MIDDLE, batch=batch), DIRECT, 9.0) for batch in (2, 64))
EIGHTS = recorded("8x8x8", SmallConfig(4, 4, 128), 9.0), recorded("8x8x8", DIRECT, 1.0)
OTHER_EIGHTS = replace(EIGHTS[0], config=SmallConfig(2, 2, 128))


@pytest.mark.parametrize(
    ("own", "lent", "borrowed"),
    [
        # An own record hides a lent one of the same product and path.
        ((Record(MIDDLE, DIRECT, 5.0), REPEATED), LENT, LENT[:2]),
        ((replace(LENT[2], shape=MIDDLE),), LENT, LENT),
        ((replace(LENT[2], shape=replace(LITTLE, layout="NT")),), LENT, LENT),
        ((replace(LENT[2], alignment=1),), LENT, LENT),
        ((replace(LENT[2], shape=replace(LITTLE, batch=64)),), LENT, LENT),
        # A batch hides one of the same count; only a record for any count hides another such.
        ((replace(MANY, gflops=8.0),), (FEW, MANY), (FEW,)),
        ((OTHER_EIGHTS,), EIGHTS, EIGHTS[1:]),
    ],
)
def test_own_records_come_first_and_hide_those_of_the_same_product_and_path(own, lent, borrowed):
    assert Entry(*BRAIN, own, like=Entry(*HALF, lent)).records == (*own, *without_speed(*borrowed))


NEWER = replace(WGMMA, GROUP_M=4)


def test_an_own_record_is_taken_before_a_borrowed_one_of_the_same_product():
    without_units = replace(HOPPER, wgmma=False, wgmma_refusal="a test")
    # Where the driver refuses an own record's path, the borrowed record of another path is taken.
    for config in (NEWER, MATRIX):
        database = a_database(a_file("mine", LENDER, borrower(Record(LARGE, config, 8e5))))
        assert select(LARGE.problem(*BRAIN), HOPPER, database).config == config
        assert select(LARGE.problem(*BRAIN), without_units, database).config == MATRIX
        assert select(LARGE.problem(*HALF), HOPPER, database).config == WGMMA


def test_a_borrowed_record_is_chosen_and_ranked_and_its_path_may_be_asked_for():
    database = a_database(a_file("mine", borrower(Record(MIDDLE, GEMV, 5.0)), LENDER))
    choice = select(LITTLE.problem(*BRAIN), HOPPER, database)
    assert choice.config == DIRECT
    assert choice.reason == "measured on this product in float16 by F16_F16_F32"
    other = GemmShape(2048, 2048, 2048).problem(*BRAIN)
    offered = {one.config for one in alternatives(other, HOPPER, database)}
    assert {GEMV, WGMMA, MATRIX, DIRECT} <= offered
    assert choose(other, HOPPER, database, "wgmma").config == WGMMA


@pytest.mark.parametrize(
    ("likes", "message"),
    [
        ({HALF: None, BRAIN: ("float32", "F32_F32_F32")},
         r"\$\.entries\[1\]\.like is float32 by F32_F32_F32, of which the file has no entry; "
         r"wanted is another entry of the file that has no like: float16 by F16_F16_F32$"),
        # Type and arithmetic must both agree.
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
        ({HALF: None, BRAIN: (*HALF, "NT")}, r"\.like is .*\('layout' was unexpected\)"),
    ],
)  # fmt: skip
def test_a_like_that_is_no_entry_with_records_is_refused(path, likes, message):
    written_likes(path, likes)
    with pytest.raises(DatabaseError, match=message) as caught:
        read_file(path)
    assert str(caught.value).startswith(f"{path}: $")


def test_an_entry_whose_lender_is_missing_is_not_saved(path):
    with pytest.raises(DatabaseError, match="like is float16 by F16_F16_F32, of which the file"):
        save_file(a_file(path, borrower()))
    assert not path.exists()


def test_borrowed_records_are_not_written(path):
    lender = Entry(*HALF, LENT[:1])
    save_file(a_file(path, borrower(), lender))
    assert read_file(path).entries == (Entry(*BRAIN, (), like=lender), lender)
    lines = path.read_text().splitlines()
    assert lines[5:7] == [
        '  {"dtype": "bfloat16", "precision": "BF16_BF16_F32", '
        '"like": {"dtype": "float16", "precision": "F16_F16_F32"}, "records": []},',
        '  {"dtype": "float16", "precision": "F16_F16_F32", "records": [',
    ]


@pytest.fixture
def tune(path):
    """A function that adds a tuner's result to a file and returns the file's two entries."""

    def add(best, shape, *entries, types=BRAIN):
        save_file(a_file(path, *entries))
        assert save_result(result(best, shape, HOPPER, types), path) == path
        file = read_file(path)
        return entry_of(file, HALF), entry_of(file, BRAIN)

    return add


FASTER = replace(DIRECT, GROUP_M=4)
OLDER = Record(MIDDLE, DIRECT, 5.0), recorded("64x512x512", DIRECT, 6.0)
BATCH = replace(MIDDLE, batch=64)


@pytest.mark.parametrize(
    ("best", "shape", "before", "after", "borrowed"),
    [
        (FASTER, LITTLE, OLDER, (Record(LITTLE, FASTER, 0.06554), *OLDER[::-1]), LENT[:2]),
        # A new record replaces own records of the same product.
        (FASTER, MIDDLE, OLDER, (OLDER[1], Record(MIDDLE, FASTER, 268.4)), LENT),
        # The best record of the lender, measured for this type too, becomes its own.
        (WGMMA, LARGE, (), (Record(LARGE, WGMMA, 137400.0),), LENT[1:]),
        (DIRECT, BATCH, OLDER[:1], (OLDER[0], Record(BATCH, DIRECT, 17180.0)), LENT),
    ],
)
def test_the_tuner_adds_own_records_and_keeps_like(tune, best, shape, before, after, borrowed):
    lender, entry = tune(best, shape, LENDER, borrower(*before))
    assert entry.like == lender == LENDER
    assert entry.own == after
    assert entry.records == (*after, *without_speed(*borrowed))


def test_a_record_that_the_tuner_adds_to_a_lender_is_borrowed(tune):
    lender, entry = tune(NEWER, LARGE, LENDER, borrower(), types=HALF)
    assert lender.own == (LENT[2], Record(LARGE, NEWER, 137400.0), LENT[1])
    assert (entry.own, entry.records) == ((), without_speed(*lender.own))


def test_a_users_own_file_leaves_the_borrowed_records_of_the_library(path):
    shipped = a_file("shipped", LENDER, borrower())
    save_result(result(DIRECT, MIDDLE, HOPPER, BRAIN), path)
    mine = read_file(path)
    assert mine.entries == (Entry(*BRAIN, (Record(MIDDLE, DIRECT, 268.4),)),)
    both = Database(((mine,), (shipped,)))
    for shape, config in ((MIDDLE, DIRECT), (LARGE, WGMMA)):
        assert select(shape.problem(*BRAIN), HOPPER, both).config == config


def test_a_threshold_is_not_borrowed_and_is_dropped_once_a_product_is_tuned(tune):
    lender = Entry(*HALF, (Record(LARGE, DIRECT), Record(LITTLE, DIRECT)), Threshold(mnk=10**6))
    assert Entry(*BRAIN, (), like=lender).indirect_from is None
    borrowing = Entry(*BRAIN, (), lender.indirect_from, lender)
    _, entry = tune(DIRECT, GemmShape(1, 8, 8), lender, borrowing)
    assert (entry.like, entry.indirect_from) == (lender, None)
    assert [record.shape for record in entry.own] == [GemmShape(1, 8, 8)]
