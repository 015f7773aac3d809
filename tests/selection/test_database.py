"""Files of databases: what is refused and in which words, ranks, saving."""

import json
import multiprocessing
import os
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from pyclgemm.errors import DatabaseError, DatabaseWarning
from pyclgemm.host.files import MOST_BYTES
from pyclgemm.selection import database as database_module
from pyclgemm.selection.database import Database, DatabaseFile, load_database, open_file, read_file
from pyclgemm.selection.records import Entry, Match, Source, Threshold
from tests.support.databases import (
    FLOAT32,
    INDIRECT,
    TILE,
    a_database,
    document,
    file_of,
    save_records,
)
from tests.support.facts import cpu, gpu, recorded, smallest_gpu


def with_entry(**changes):
    """That file with changes to its entry."""
    return document(entries=[document()["entries"][0] | changes])


@pytest.fixture
def mine(tmp_path):
    """A function that writes a file of a user's."""

    def write(content, path=tmp_path / "mine.json"):
        path.write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def user_folders(tmp_path, monkeypatch):
    """Empty folders for the environment variable and the user's data, and a fresh cache."""
    environment, user = tmp_path / "environment", tmp_path / "user"
    environment.mkdir()
    user.mkdir()
    monkeypatch.setenv("PYCLGEMM_DATABASES", str(environment))
    monkeypatch.setattr(database_module, "user_database_folder", lambda: user)
    load_database.cache_clear()
    yield environment, user
    load_database.cache_clear()


def first_source(*types):
    """The text of the best file for a CPU."""
    file, _ = load_database().lookup(cpu(), *(types or FLOAT32))[0]
    return file.source.text


#: Files, as text or as JSON reads them, and records, and why each is refused.
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
]  # fmt: skip
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
def test_a_malformed_file_is_refused_by_name_place_and_value(tmp_path, content, message):
    path = tmp_path / "mine.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DatabaseError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(DatabaseError, match=r"none\.json cannot be read: No such file"):
        read_file(tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(DatabaseError, match="not a regular file"):
        open_file(tmp_path / "pipe.json")


BAD = [{"shape": [1e308, 1, 1]}, {"config": TILE.as_dict() | {"MR": 2**40}}, {"gflops": -1}]


@pytest.mark.parametrize("where", ["environment", "user", "built-in"])
def test_a_record_that_cannot_be_used_is_left_out_alone(
    user_folders, tmp_path, mine, monkeypatch, where
):
    folder = dict(zip(("environment", "user"), user_folders, strict=True)).get(where, tmp_path)
    if where == "built-in":
        monkeypatch.setattr(database_module, "resource_folder", lambda name: tmp_path)
    path = mine(document(*BAD, {}), folder / "mine.json")
    with pytest.warns(DatabaseWarning) as warned:
        hits = database_module.reload_database().lookup(cpu(), *FLOAT32)
    [(file, entry)] = [hit for hit in hits if hit[0].path == path]
    assert [str(record.shape) for record in entry.records] == ["1024x1024x1024"]
    stated = [str(one.message) for one in warned]
    wrong = ["shape is [1e+308, 1, 1]", "MR is 1099511627776", "-1"]
    for index, (one, words) in enumerate(zip(stated, wrong, strict=True)):
        assert f"{path}: $.entries[0].records[{index}]" in one
        assert words in one
    assert len(file.refused) == len(BAD)


def test_of_many_records_that_cannot_be_used_some_are_told(mine):
    file = open_file(mine(document(*[{"gflops": -1}] * 30, {})))
    with pytest.warns(DatabaseWarning) as warned:
        [entry] = file.entries
    assert (len(entry.records), len(warned)) == (1, 11)
    assert "20 more records" in str(warned[-1].message)


def test_a_file_that_is_extended_must_not_lose_a_record(mine):
    path = mine(document(*BAD, {}))
    with pytest.raises(DatabaseError, match=r"records\[0\]\.shape is .* \(and 2 more records\)"):
        read_file(path)
    assert json.loads(path.read_text()) == document(*BAD, {})


def test_what_is_wrong_with_a_users_files_is_found_on_load(user_folders, mine, monkeypatch):
    mine(document(schema=0), user_folders[1] / "mine.json")
    with pytest.raises(DatabaseError, match=r"mine\.json: \$\.schema is 0"):
        load_database()
    monkeypatch.setenv("PYCLGEMM_DATABASES", "/nowhere/at/all")
    with pytest.raises(DatabaseError, match="PYCLGEMM_DATABASES names /nowhere/at/all, which does"):
        load_database()


def ranked_file(level, text, type="gpu", **names):
    source = Source("default", text)
    return DatabaseFile.make(Path(text), Match(level, type, **names), source, [Entry(*FLOAT32, ())])


DEVICE = ranked_file("device", "device", device="NVIDIA H100 80GB HBM3")
ARCHITECTURE = ranked_file("architecture", "architecture", architecture="sm_90")
VENDOR = ranked_file("vendor", "vendor", vendor="nvidia")
GENERIC = ranked_file("generic", "generic")
OTHERS = (
    ranked_file("device", "x", device="NVIDIA A100"),
    ranked_file("architecture", "x", architecture="sm_80"),
    ranked_file("architecture", "x", architecture="sm_90", vendor="amd"),
    ranked_file("vendor", "x", vendor="amd"),
    ranked_file("vendor", "x", vendor="nvidia", type="cpu"),
    ranked_file("generic", "cpu", type="cpu"),
)
MANY = a_database(GENERIC, VENDOR, *OTHERS, ARCHITECTURE, DEVICE)


@pytest.mark.parametrize(
    ("database", "traits", "precision", "names"),
    [
        (MANY, gpu(), "F32_F32_F32", "device architecture vendor generic"),
        (MANY, gpu(name="H200"), "F32_F32_F32", "architecture vendor generic"),
        (MANY, gpu(name="A10", architecture="sm_86"), "F32_F32_F32", "vendor generic"),
        (MANY, smallest_gpu(), "F32_F32_F32", "generic"),
        (MANY, gpu(), "F16_F16_F16", ""),
        (a_database(GENERIC, OTHERS[-1]), gpu(type="accelerator"), "F32_F32_F32", "generic"),
        (MANY, cpu(), "F32_F32_F32", "cpu"),
        # All levels of a group come before the next group.
        (Database(((GENERIC,), (DEVICE,))), gpu(), "F32_F32_F32", "generic device"),
    ],
)
def test_levels_from_the_most_to_the_least_specific(database, traits, precision, names):
    found = database.lookup(traits, "float32", precision)
    assert [file.source.text for file, _ in found] == names.split()


def test_what_is_printed_of_a_file():
    files = DEVICE, ARCHITECTURE, OTHERS[2], VENDOR, GENERIC
    assert [str(file.match) for file in files] == [
        "NVIDIA H100 80GB HBM3", "gpu/sm_90", "amd/sm_90", "nvidia/gpu", "generic/gpu"
    ]  # fmt: skip
    built_in = DatabaseFile(GENERIC.path, GENERIC.document, built_in=True)
    assert str(built_in) == "generic/gpu (generic)"
    assert str(GENERIC) == "generic/gpu in generic (generic)"


def test_environment_before_user_before_built_in(user_folders, mine):
    environment, user = user_folders
    assert "measured on a test" not in first_source()
    mine(document(source={"kind": "default", "text": "user"}), user / "a.json")
    assert "user" not in first_source(), "files are read once a process"
    database_module.reload_database()
    assert first_source() == "user"
    mine(document(), environment / "a.json")
    database_module.reload_database()
    assert first_source() == "measured on a test"
    assert "user" not in first_source("float64", "F64_F64_F64")


def test_the_environment_takes_files_and_folders(user_folders, mine, tmp_path, monkeypatch):
    environment, _ = user_folders
    single = mine(document(), tmp_path / "single.txt")
    mine(document(), environment / "b.json")
    (environment / "notes.txt").write_text("not read")
    monkeypatch.setenv("PYCLGEMM_DATABASES", os.pathsep.join([str(single), "", str(environment)]))
    assert [file.path.name for file in load_database().groups[0]] == ["single.txt", "b.json"]


def test_save_and_read_give_the_same_file(tmp_path):
    records = (
        recorded("64x64x64", INDIRECT, 3.5), recorded("64x64x64:NT*100", INDIRECT, 1.0, alignment=2)
    )  # fmt: skip
    entries = [Entry(*FLOAT32, records, Threshold(mnk=9)), Entry("complex64", "F32_F32_F32", ())]
    match = Match("device", "gpu", device='Größe "1"')
    file = file_of(entries, match, name=tmp_path / "deep" / "mine.json")
    database_module.save_file(file)
    again = read_file(file.path)
    assert again == file
    assert (again.match, again.source) == (match, file.source)
    assert again.entries == tuple(entries)
    assert [path.name for path in file.path.parent.iterdir()] == ["mine.json"]
    first, second = file.document["entries"][0]["records"]
    assert first.keys() == {"path", "shape", "gflops", "config"}
    assert (second["layout"], second["alignment"], second["batch"]) == ("NT", 2, 100)
    assert str(records[1]) == "64x64x64:NT*100 with rows aligned to 2"


def test_a_bad_file_is_not_saved_and_the_old_one_stays(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("old")
    bad = DatabaseFile(path, document({"config": TILE.as_dict() | {"VW": 3}}))
    with pytest.raises(DatabaseError, match="VW must be one of"):
        database_module.save_file(bad)
    assert path.read_text() == "old"


def save_slowly(path, name, together):
    """Save a record; another process has time to do so between the reading and the writing."""

    save = database_module.save_file

    def write(file):
        time.sleep(0.5)
        save(file)

    with patch("pyclgemm.selection.database.save_file", write):
        together.wait(60)
        save_records(path, cpu(), FLOAT32, [recorded(name, TILE)])


def test_records_that_two_processes_save_at_once_are_both_kept(tmp_path):
    path, names = tmp_path / "mine.json", ["64x64x64", "65x65x65"]
    spawning = multiprocessing.get_context("spawn")
    together = spawning.Barrier(2)
    processes = [
        spawning.Process(target=save_slowly, args=(path, name, together)) for name in names
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    (entry,) = read_file(path).entries
    assert [str(record.shape) for record in entry.own] == names
