"""Database files: errors, the order of files, saving, and entries that borrow records by `like`."""

import json
import multiprocessing
import os
import time
from dataclasses import replace
from unittest.mock import patch

import pytest

from pyclgemm.errors import DatabaseError, DatabaseWarning
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.host.files import MOST_BYTES
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection import database as database_module
from pyclgemm.selection.database import Database, DatabaseFile, load_database, open_file, read_file
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Entry, Match, Record, Threshold
from pyclgemm.selection.select import alternatives, select
from pyclgemm.tuning.tuner import save_result
from tests.support import databases as db
from tests.support.databases import DIRECT, FLOAT32, TILE, a_database, document, result, written
from tests.support.facts import HOPPER, cpu, gpu, recorded, smallest_gpu
from tests.support.typical_configs import GEMV


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.json"


@pytest.fixture
def user_folders(tmp_path, monkeypatch):
    """Empty folders for the environment variable and the user's data, and no file in the cache."""
    environment, user = tmp_path / "environment", tmp_path / "user"
    environment.mkdir()
    user.mkdir()
    monkeypatch.setenv("PYCLGEMM_DATABASES", str(environment))
    monkeypatch.setattr(database_module, "user_database_folder", lambda: user)
    load_database.cache_clear()
    yield environment, user
    load_database.cache_clear()


def first_source(types=FLOAT32):
    """The source of the first file for a CPU."""
    return load_database().lookup(cpu(), *types)[0][0].source.text


HALF, BRAIN = db.FLOAT16, ("bfloat16", "BF16_BF16_F32")
LARGE, MIDDLE, LITTLE = (GemmShape(size, size, size) for size in (4096, 512, 32))
LENT = (Record(LARGE, db.WGMMA, 7e5), Record(LARGE, db.MATRIX, 3e5), Record(LITTLE, DIRECT, 20.0))
LENDER = Entry(*HALF, LENT)


def borrower(*own):
    return Entry(*BRAIN, own, like=LENDER)


def without_speed(*records):
    return tuple(replace(record, gflops=None) for record in records)


def a_file(path, *entries):
    return db.file_of(entries, db.SM_90, name=path, kind="measured")


def with_likes(likes):
    """A file of entries without records, by name, with the `like` of each."""
    content = a_file("x", *(Entry(*name, ()) for name in likes)).document
    for entry, like in zip(content["entries"], likes.values(), strict=True):
        if like:
            entry["like"] = dict(zip(("dtype", "precision", "layout"), like, strict=False))
    return content


def with_entry(**changes):
    """A valid file with changes to its entry."""
    return document(entries=[document()["entries"][0] | changes])


BAD = [{"shape": [1e308, 1, 1]}, {"config": TILE.as_dict() | {"MR": 2**40}}, {"gflops": -1}]

#: Files that are refused, as text or as JSON documents, each with the message.
FILES = [
    (document(schema=2), r"\$\.schema is 2: 1 was expected"),
    ([], r"\$ is \[\]: \[\] is not of type 'object'"),
    (document(match={"level": "galaxy", "type": "cpu"}),
     r"\$\.match\.level is 'galaxy': 'galaxy' is not one of \['device', 'architecture'"),
    (document(match={"level": "device", "type": "cpu"}),
     r"\$\.match is .*'device' is a required property"),
    (document(match={"level": "vendor", "type": "gpu"}), "'vendor' is a required property"),
    (document(match={"level": "architecture", "type": "gpu"}),
     "'architecture' is a required property"),
    (document(comment="mine"), r"\('comment' was unexpected\)"),
    (document(source={"kind": "default", "text": "x" * 2001}), r"source\.text is 'xxx.*\.\.\."),
    (with_entry(dtype="float8"), r"\$\.entries\[0\]\.dtype is 'float8': 'float8' is not one"),
    (with_entry(precision="F32"), r"\$\.entries\[0\]\.precision is 'F32': 'F32' is not one of"),
    (with_entry(indirect_from={"mnk": 10**31}),
     r"indirect_from\.mnk is 1000.*greater than the maximum of 1000"),
    (with_entry(records=[7]), r"\$\.entries\[0\]\.records\[0\] is 7: an object"),
    ("[" * 500 + "]" * 500, "nested more than 32 deep"),
    ('{"schema":' * 100_000, "nested more than 32 deep"),
    (document({"gflops": float("nan")}), "NaN is no number of JSON"),
    (json.dumps(document({"gflops": 1e308})).replace("1e+308", "1e309"), "1e309 is too large"),
    (json.dumps(document())[:-1] + ', "schema": 1}', "has the key 'schema' twice"),
    (document(source={"kind": "default", "text": "\ud800"}), "surrogates"),
    ("[" + "1" * 5000 + "]", "4300 digits"),
    ("\xff", "is not JSON in UTF-8"),
    ("{'schema': 1}", "is not JSON.*line 1 column 2"),
    (" " * MOST_BYTES + json.dumps(document()), f"more than {MOST_BYTES} bytes"),
    (document(*BAD, {}), r"records\[0\]\.shape is .* \(and 2 more records\)"),
]  # fmt: skip
#: Changes to a record, each with the message.
RECORDS = [
    ({"shape": [1, 2]}, r"\.shape is \[1, 2\]: a list of m, n and k, each"),
    ({"shape": [1, 2, 0]}, r"\.shape is \[1, 2, 0\]: .* an integer of 1 to 10000000000"),
    ({"layout": "CN"}, r"\.layout is 'CN': one of NN, NT, TN, TT"),
    ({"alignment": 3}, r"\.alignment is 3: one of 1, 2, 4, 8, 16"),
    ({"sample": False}, r"\.sample is False: true is wanted"),
    ({"batch": 1}, r"\.batch is 1: an integer of 2 to 1000000000"),
    ({"gflops": 0}, r"\.gflops is 0: a number of 1e-12 to 1e\+09"),
    ({"gflops": None}, r"\.gflops is None: a number"),
    ({"speed": 1}, r" has 'speed': known are path, shape, config, layout"),
    ({"path": "fast"}, r"\.path is 'fast': one of indirect, direct"),
    ({"config": []}, r"\.config is \[\]: an object with parameters"),
    ({"config": TILE.as_dict() | {"KC": 2**30}},
     r"\.config.*KC must be an integer of 1 to 4096: KC is 1073741824"),
    ({"config": {"MR": 6}}, r"\.config: CpuConfig lacks a parameter"),
    ({"config": TILE.as_dict() | {"NR": 9}},
     r"\.config is MR=4 NR=9 KC=256 VW=4 .*: NR must be a multiple of VW: NR is 9, VW is 4"),
]  # fmt: skip
#: The `like` of each entry, with the message.
LIKES = [
    ({HALF: None, BRAIN: ("float32", "F32_F32_F32")},
     r"\$\.entries\[1\]\.like is float32 by F32_F32_F32, of which the file has no entry; "
     r"wanted is another entry of the file that has no like: float16 by F16_F16_F32$"),
    # Type and arithmetic must both agree.
    ({HALF: None, BRAIN: ("float16", "F16_F16_F16")},
     r"\$\.entries\[1\]\.like is float16 by F16_F16_F16, of which the file has no entry"),
    ({HALF: None, BRAIN: BRAIN},
     r"\$\.entries\[1\]\.like is bfloat16 by .*, the entry itself; .*: float16 by F16_F16_F32$"),
    ({BRAIN: BRAIN}, r"\$\.entries\[0\]\.like is .*, the entry itself; .*: it has none$"),
    ({BRAIN: HALF, HALF: ("int8", "I8_I8_I32"), ("int8", "I8_I8_I32"): None},
     r"\$\.entries\[0\]\.like is .*, which is like another itself; .*: int8 by I8_I8_I32$"),
    ({HALF: None, BRAIN: ("float16",)},
     r"\$\.entries\[1\]\.like is .*'precision' is a required property"),
    ({HALF: None, BRAIN: ("float8", "F16_F16_F32")},
     r"\$\.entries\[1\]\.like\.dtype is 'float8': 'float8' is not one of"),
    ({HALF: None, BRAIN: (*HALF, "NT")}, r"\$.*\.like is .*\('layout' was unexpected\)"),
]  # fmt: skip
REFUSED = [
    *FILES,
    *((document(one), rf"\$\.entries\[0\]\.records\[0\]{words}") for one, words in RECORDS),
    *((with_likes(one), rf"mine\.json: {words}") for one, words in LIKES),
    (
        a_file("x", Entry(*HALF, LENT), Entry(*BRAIN, ()), Entry(*HALF, LENT)).document,
        r"\$\.entries\[2\] is a second entry for float16 by F16_F16_F32; one entry",
    ),
]


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=range(len(REFUSED)))
def test_the_error_of_a_malformed_file_names_the_file_and_the_value(path, content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DatabaseError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(DatabaseError, match=r"none\.json cannot be read: No such file"):
        read_file(tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(DatabaseError, match="not a regular file"):
        open_file(tmp_path / "pipe.json")


@pytest.mark.parametrize("group", range(3), ids=["environment", "user", "built-in"])
def test_only_invalid_records_are_left_out(user_folders, tmp_path, monkeypatch, group):
    if group == 2:
        monkeypatch.setattr(database_module, "resource_folder", lambda name: tmp_path)
    path = written((*user_folders, tmp_path)[group] / "mine.json", document(*BAD, {}))
    with pytest.warns(DatabaseWarning) as warned:
        hits = database_module.reload_database().lookup(cpu(), *FLOAT32)
    [(file, entry)] = [hit for hit in hits if hit[0].path == path]
    assert [str(record.shape) for record in entry.records] == ["1024x1024x1024"]
    values = ["shape is [1e+308, 1, 1]", "MR is 1099511627776", "-1"]
    for index, (warning, value) in enumerate(zip(warned, values, strict=True)):
        assert f"{path}: $.entries[0].records[{index}]" in str(warning.message)
        assert value in str(warning.message)
    assert len(file.refused) == len(BAD)


def test_at_most_ten_invalid_records_are_named(path):
    file = open_file(written(path, document(*[{"gflops": -1}] * 30, {})))
    with pytest.warns(DatabaseWarning) as warned:
        [entry] = file.entries
    assert (len(entry.records), len(warned)) == (1, 11)
    assert "20 more records" in str(warned[-1].message)


def test_errors_in_a_users_files_are_raised_on_load(user_folders, monkeypatch):
    written(user_folders[1] / "mine.json", document(schema=0))
    with pytest.raises(DatabaseError, match=r"mine\.json: \$\.schema is 0"):
        load_database()
    monkeypatch.setenv("PYCLGEMM_DATABASES", "/nowhere/at/all")
    with pytest.raises(DatabaseError, match="PYCLGEMM_DATABASES names /nowhere/at/all, which does"):
        load_database()


DEVICE, GENERIC = Match("device", "gpu", device="NVIDIA H100"), Match("generic", "gpu")
MATCHES = [
    GENERIC, Match("vendor", "gpu", "nvidia"), Match("device", "gpu", device="NVIDIA A100"),
    Match("architecture", "gpu", None, "sm_80"), Match("vendor", "gpu", "amd"),
    Match("vendor", "cpu", "nvidia"), Match("architecture", "gpu", "amd", "sm_90"),
    Match("generic", "cpu"), Match("architecture", "gpu", None, "sm_90"), DEVICE,
    Match("architecture", "cpu", "amd", "x86-64-v4"),
    Match("architecture", "cpu", "amd", "x86-64-v4", core="zen5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("traits", "precision", "found"),
    [
        (gpu(name="NVIDIA H100"), "F32_F32_F32", "NVIDIA H100, gpu/sm_90, nvidia/gpu, generic/gpu"),
        (gpu(name="H200"), "F32_F32_F32", "gpu/sm_90, nvidia/gpu, generic/gpu"),
        (gpu(vendor="amd"), "F32_F32_F32", "amd/sm_90, gpu/sm_90, amd/gpu, generic/gpu"),
        (gpu(architecture="sm_86"), "F32_F32_F32", "nvidia/gpu, generic/gpu"),
        (smallest_gpu(), "F32_F32_F32", "generic/gpu"),
        (replace(smallest_gpu(), type="accelerator"), "F32_F32_F32", "generic/gpu"),
        (cpu(), "F32_F32_F32", "amd/x86-64-v4, generic/cpu"),
        (cpu(core="zen5"), "F32_F32_F32",
         "amd/x86-64-v4 (zen5), amd/x86-64-v4, generic/cpu"),
        (cpu(core="zen5", architecture="x86-64-v3"), "F32_F32_F32", "generic/cpu"),
        (gpu(), "F16_F16_F16", ""),
    ],
)  # fmt: skip
def test_files_are_ordered_from_the_most_to_the_least_specific(traits, precision, found):
    database = a_database(*(db.made_file([], match) for match in MATCHES))
    hits = database.lookup(traits, "float32", precision)
    assert ", ".join(str(file.match) for file, _ in hits) == found


def test_all_levels_of_a_group_come_before_the_next_group():
    first, second = (db.made_file([], match, name="mine") for match in (GENERIC, DEVICE))
    found = Database(((first,), (second,))).files_for(gpu(name="NVIDIA H100"))
    assert found == [first, second]
    assert str(first) == "generic/gpu in mine (a test)"
    assert str(replace(first, built_in=True)) == "generic/gpu (a test)"


def test_the_environment_comes_before_the_user_and_the_user_before_built_in_files(user_folders):
    environment, user = user_folders
    assert "measured on a test" not in first_source()
    written(user / "a.json", document(source={"kind": "default", "text": "user"}))
    assert "user" not in first_source(), "files are read once a process"
    database_module.reload_database()
    assert first_source() == "user"
    written(environment / "a.json", document())
    database_module.reload_database()
    assert first_source() == "measured on a test"
    assert "user" not in first_source(("float64", "F64_F64_F64"))


def test_of_built_in_files_those_for_other_devices_are_not_read(user_folders):
    built_in = load_database().groups[-1]
    with patch.object(database_module, "_read_json", wraps=database_module._read_json) as read:
        load_database().lookup(cpu(), *FLOAT32)
    fitting = {file.path for file in built_in if file.match.fits(cpu())}
    assert {call.args[0] for call in read.mock_calls} == fitting
    assert 0 < len(fitting) < len(built_in)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_built_in_file_is_the_same_whatever_its_form(indent, path):
    """The head is found in the form in which files are saved; others are read as a whole."""
    for file in load_database().groups[-1]:
        content = json.loads(file.path.read_text(encoding="utf-8"))
        assert dict(file.document) == content
        path.write_text(json.dumps(content, indent=indent))
        again = DatabaseFile(path, database_module._BuiltIn(path), built_in=True)
        assert (again.match, again.source) == (file.match, file.source)
        assert again.ceilings == file.ceilings


def test_a_damaged_built_in_file_is_an_error(path):
    for content in ("", '{\n "match": {},\n "entries": [\n'):
        path.write_text(content)
        file = DatabaseFile(path, database_module._BuiltIn(path), built_in=True)
        with pytest.raises(DatabaseError, match="mine.json is not JSON"):
            file.source  # noqa: B018


def test_the_environment_takes_files_and_folders(user_folders, tmp_path, monkeypatch):
    environment, _ = user_folders
    single = written(tmp_path / "single.txt", document())
    written(environment / "b.json", document())
    (environment / "notes.txt").write_text("not read")
    monkeypatch.setenv("PYCLGEMM_DATABASES", os.pathsep.join([str(single), "", str(environment)]))
    assert [file.path.name for file in load_database().groups[0]] == ["single.txt", "b.json"]


def test_a_saved_file_is_read_unchanged(tmp_path):
    batch = recorded("64x64x64:NT*100", db.INDIRECT, 1.0, alignment=2)
    records = recorded("64x64x64", db.INDIRECT, 3.5), batch
    entries = [Entry(*FLOAT32, records, Threshold(mnk=9)), Entry("complex64", "F32_F32_F32", ())]
    match = Match("device", "gpu", device='Größe "1"')
    file = db.file_of(entries, match, name=tmp_path / "deep" / "mine.json")
    database_module.save_file(file)
    again = read_file(file.path)
    assert again == file
    assert again.entries == tuple(entries)
    assert [path.name for path in file.path.parent.iterdir()] == ["mine.json"]
    first, _ = file.document["entries"][0]["records"]
    assert first.keys() == {"path", "shape", "gflops", "config"}
    assert str(batch) == "64x64x64:NT*100 with rows aligned to 2"


def test_an_invalid_file_is_not_saved_and_the_old_one_stays(path):
    path.write_text("old")
    for file, message in (
        (DatabaseFile(path, document({"config": TILE.as_dict() | {"VW": 3}})), "VW must be one of"),
        (a_file(path, borrower()), "like is float16 by F16_F16_F32, of which the file"),
    ):
        with pytest.raises(DatabaseError, match=message):
            database_module.save_file(file)
    assert path.read_text() == "old"


def test_a_file_too_large_to_be_read_again_is_not_saved(path, monkeypatch):
    path.write_text("old")
    file = DatabaseFile(path, document({}))
    monkeypatch.setattr(database_module, "MOST_BYTES", 100)
    with pytest.raises(DatabaseError, match=r"would have \d+ bytes; at most 100 are read: remove"):
        database_module.save_file(file)
    assert path.read_text() == "old"


def save_slowly(path, name, barrier):
    """Save a record, with time for another process to save between the reading and the writing."""
    save = database_module.save_file

    def write(file):
        time.sleep(0.5)
        save(file)

    with patch.object(database_module, "save_file", write):
        barrier.wait(60)
        db.save_records(path, cpu(), FLOAT32, [recorded(name, TILE)])


def test_records_that_two_processes_save_at_once_are_both_kept(path):
    names = ["64x64x64", "65x65x65"]
    spawning = multiprocessing.get_context("spawn")
    barrier = spawning.Barrier(2)
    saving = [spawning.Process(target=save_slowly, args=(path, one, barrier)) for one in names]
    for process in saving:
        process.start()
    for process in saving:
        process.join(120)
        assert process.exitcode == 0
    (entry,) = read_file(path).entries
    assert [str(record.shape) for record in entry.own] == names


def test_an_entry_without_records_has_those_of_another_without_their_speed():
    double = Entry("float64", "F64_F64_F64", (), like=LENDER)
    entry, lender, double = a_file("mine", borrower(), LENDER, double).entries
    assert (lender.records, lender.own, lender.borrowed) == (LENT, LENT, ())
    assert entry.own == ()
    assert entry.records == entry.borrowed == without_speed(*LENT)
    # Warpgroup units multiply no float64; the others do.
    assert double.records == without_speed(*LENT[1:])


REPEATED = Record(LITTLE, replace(DIRECT, GROUP_M=4), 21.0)
BATCH_2, BATCH_64 = (Record(replace(MIDDLE, batch=batch), DIRECT, 9.0) for batch in (2, 64))
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
        ((replace(BATCH_64, gflops=8.0),), (BATCH_2, BATCH_64), (BATCH_2,)),
        ((OTHER_EIGHTS,), EIGHTS, EIGHTS[1:]),
    ],
)
def test_own_records_come_first_and_hide_those_of_the_same_product_and_path(own, lent, borrowed):
    assert Entry(*BRAIN, own, like=Entry(*HALF, lent)).records == (*own, *without_speed(*borrowed))


def test_an_own_record_is_taken_before_a_borrowed_one_of_the_same_product():
    without_units = replace(HOPPER, wgmma=False, wgmma_refusal="a test")
    # Where the driver refuses an own record's path, the borrowed record of another path is taken.
    for config in (replace(db.WGMMA, GROUP_M=4), db.MATRIX):
        database = a_database(a_file("mine", LENDER, borrower(Record(LARGE, config, 8e5))))
        assert select(LARGE.problem(*BRAIN), HOPPER, database).config == config
        assert select(LARGE.problem(*BRAIN), without_units, database).config == db.MATRIX
        assert select(LARGE.problem(*HALF), HOPPER, database).config == db.WGMMA


def test_a_borrowed_record_is_chosen_and_ranked_and_its_path_may_be_asked_for():
    database = a_database(a_file("mine", borrower(Record(MIDDLE, GEMV, 5.0)), LENDER))
    choice = select(LITTLE.problem(*BRAIN), HOPPER, database)
    assert choice.config == DIRECT
    assert choice.reason == "measured on this product in float16 by F16_F16_F32"
    other = GemmShape(2048, 2048, 2048).problem(*BRAIN)
    offered = {one.config for one in alternatives(other, HOPPER, database)}
    assert {GEMV, db.WGMMA, db.MATRIX, DIRECT} <= offered
    assert choose(other, HOPPER, database, "wgmma").config == db.WGMMA


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
        (db.WGMMA, LARGE, (), (Record(LARGE, db.WGMMA, 137400.0),), LENT[1:]),
        (DIRECT, BATCH, OLDER[:1], (OLDER[0], Record(BATCH, DIRECT, 17180.0)), LENT),
    ],
)
def test_the_tuner_adds_own_records_and_keeps_like(path, best, shape, before, after, borrowed):
    database_module.save_file(a_file(path, LENDER, borrower(*before)))
    save_result(result(best, shape, HOPPER, BRAIN), path)
    entry, lender = read_file(path).entries  # the changed one comes first
    assert entry.like == lender == LENDER
    assert entry.own == after
    assert entry.records == (*after, *without_speed(*borrowed))
