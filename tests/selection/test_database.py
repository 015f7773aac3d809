"""Database files: errors in files and records, the order of files, saving."""

import json
import multiprocessing
import os
import time
from dataclasses import replace
from unittest.mock import patch

import pytest

from pyclgemm.errors import DatabaseError, DatabaseWarning
from pyclgemm.host.files import MOST_BYTES
from pyclgemm.selection import database as database_module
from pyclgemm.selection.database import Database, DatabaseFile, load_database, open_file, read_file
from pyclgemm.selection.records import Entry, Match, Threshold
from tests.support import databases as db
from tests.support.databases import FLOAT32, TILE, a_database, document, written
from tests.support.facts import cpu, gpu, recorded, smallest_gpu


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
    (document({"gflops": float("inf")}), "Infinity is no number of JSON"),
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
    ({"shape": [1e308, 1, 1]}, r"\.shape is \[1e\+308, 1, 1\]: .* an integer"),
    ({"layout": "CN"}, r"\.layout is 'CN': one of NN, NT, TN, TT"),
    ({"alignment": 3}, r"\.alignment is 3: one of 1, 2, 4, 8, 16"),
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
REFUSED = FILES + [
    (document(changes), rf"\$\.entries\[0\]\.records\[0\]{words}") for changes, words in RECORDS
]


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=range(len(REFUSED)))
def test_the_error_of_a_malformed_file_names_the_file_and_the_value(tmp_path, content, message):
    path = tmp_path / "mine.json"
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
def test_only_the_invalid_records_of_a_file_are_left_out(
    user_folders, tmp_path, monkeypatch, group
):
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


def test_at_most_ten_invalid_records_are_named(tmp_path):
    file = open_file(written(tmp_path / "mine.json", document(*[{"gflops": -1}] * 30, {})))
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


def ranked_file(level, text, type="gpu", **names):
    return db.made_file([], Match(level, type, **names), name=text)


DEVICE = ranked_file("device", "device", device="NVIDIA H100 80GB HBM3")
ARCHITECTURE = ranked_file("architecture", "architecture", architecture="sm_90")
VENDOR = ranked_file("vendor", "vendor", vendor="nvidia")
GENERIC = ranked_file("generic", "generic")
AMD_SM_90 = ranked_file("architecture", "x", architecture="sm_90", vendor="amd")
GENERIC_CPU = ranked_file("generic", "cpu", type="cpu")
OTHERS = (
    ranked_file("device", "x", device="NVIDIA A100"),
    ranked_file("architecture", "x", architecture="sm_80"),
    ranked_file("vendor", "x", vendor="amd"),
    ranked_file("vendor", "x", vendor="nvidia", type="cpu"),
)
MANY = a_database(GENERIC, VENDOR, *OTHERS, AMD_SM_90, GENERIC_CPU, ARCHITECTURE, DEVICE)


@pytest.mark.parametrize(
    ("database", "traits", "precision", "names"),
    [
        (MANY, gpu(), "F32_F32_F32", "device architecture vendor generic"),
        (MANY, gpu(name="H200"), "F32_F32_F32", "architecture vendor generic"),
        (MANY, gpu(name="A10", architecture="sm_86"), "F32_F32_F32", "vendor generic"),
        (MANY, smallest_gpu(), "F32_F32_F32", "generic"),
        (MANY, gpu(), "F16_F16_F16", ""),
        (a_database(GENERIC, GENERIC_CPU), gpu(type="accelerator"), "F32_F32_F32", "generic"),
        (MANY, cpu(), "F32_F32_F32", "cpu"),
        # All levels of a group come before the next group.
        (Database(((GENERIC,), (DEVICE,))), gpu(), "F32_F32_F32", "generic device"),
    ],
)
def test_files_are_ordered_from_the_most_to_the_least_specific(database, traits, precision, names):
    hits = database.lookup(traits, "float32", precision)
    assert [file.path.name for file, _ in hits] == names.split()


def test_the_text_of_a_file_names_its_devices_and_its_source():
    files = DEVICE, ARCHITECTURE, AMD_SM_90, VENDOR, GENERIC
    assert [str(file.match) for file in files] == [
        "NVIDIA H100 80GB HBM3", "gpu/sm_90", "amd/sm_90", "nvidia/gpu", "generic/gpu"
    ]  # fmt: skip
    assert str(replace(GENERIC, built_in=True)) == "generic/gpu (a test)"
    assert str(GENERIC) == "generic/gpu in generic (a test)"


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
    assert (again.match, again.source) == (match, file.source)
    assert again.entries == tuple(entries)
    assert [path.name for path in file.path.parent.iterdir()] == ["mine.json"]
    first, second = file.document["entries"][0]["records"]
    assert first.keys() == {"path", "shape", "gflops", "config"}
    assert (second["layout"], second["alignment"], second["batch"]) == ("NT", 2, 100)
    assert str(batch) == "64x64x64:NT*100 with rows aligned to 2"


def test_an_invalid_file_is_not_saved_and_the_old_one_stays(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("old")
    bad = DatabaseFile(path, document({"config": TILE.as_dict() | {"VW": 3}}))
    with pytest.raises(DatabaseError, match="VW must be one of"):
        database_module.save_file(bad)
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


def test_records_that_two_processes_save_at_once_are_both_kept(tmp_path):
    path, names = tmp_path / "mine.json", ["64x64x64", "65x65x65"]
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
