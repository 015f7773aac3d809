"""Databases: the built-in files, the schema's messages, ranks, nearest shapes, saving."""

import json
import os
from pathlib import Path

import pytest

import pyclgemm.selection.database
from pyclgemm.errors import DatabaseError, DatabaseWarning
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.registry import violations
from pyclgemm.families.tiled.config import XgemmConfig
from pyclgemm.host.json_text import MOST_BYTES
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.resources import resource_folder
from pyclgemm.selection.database import (
    SCHEMA_FILE,
    Database,
    DatabaseFile,
    load_database,
    open_file,
    read_file,
    reload_database,
    save_file,
)
from pyclgemm.selection.records import Entry, Match, Source, Threshold
from tests.support.databases import FLOAT32, a_database, file_of
from tests.support.facts import cpu, gpu, recorded, smallest_gpu
from tests.support.families import UNIT_FAMILIES
from tests.support.reference import DTYPES

BUILT_IN = sorted(
    path for path in resource_folder("databases").glob("*.json") if path.name != SCHEMA_FILE
)
TYPES = [(dtype, resolve_precision(None, dtype).name) for dtype in DTYPES]
TYPES.append(("float16", "F16_F16_F16"))

TILE = CpuConfig(MR=4, NR=8, KC=256, VW=4)


def document(**changes):
    """A valid file for CPUs, as JSON reads it."""
    record = {"path": "cpu", "shape": [1024, 1024, 1024], "config": TILE.as_dict(), "gflops": 12.5}
    entry = {"dtype": "float32", "precision": "F32_F32_F32", "records": [record]}
    return {
        "schema": 1,
        "match": {"level": "generic", "type": "cpu"},
        "source": {"kind": "measured", "text": "measured on a test"},
        "entries": [entry],
    } | changes


def with_record(**changes):
    """That file with changes to its record."""
    whole = document()
    whole["entries"][0]["records"][0] |= changes
    return whole


@pytest.fixture
def user_folders(tmp_path, monkeypatch):
    """Empty folders for the environment variable and the user's data, and a fresh cache."""
    environment, user = tmp_path / "environment", tmp_path / "user"
    environment.mkdir()
    user.mkdir()
    monkeypatch.setenv("PYCLGEMM_DATABASES", str(environment))
    monkeypatch.setattr(pyclgemm.selection.database, "user_database_folder", lambda: user)
    load_database.cache_clear()
    yield environment, user
    load_database.cache_clear()


def first_source(traits, dtype="float32", precision="F32_F32_F32"):
    """The text of the best file for a device."""
    file, _ = load_database().lookup(traits, dtype, precision)[0]
    return file.source.text


# -------------------------------------------------------------------------- built-in files


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
def test_a_built_in_file_is_valid_and_names_what_it_holds(path):
    file = read_file(path)
    assert file.match.level != "device" or file.match.device
    kinds = {
        "measured": ("measured on ", "tuned on "),
        "published": ("not measured here",),
        "default": ("not measured",),
    }
    assert any(words in file.source.text for words in kinds[file.source.kind])
    for entry in file.entries:
        assert resolve_precision(entry.precision, entry.dtype).name == entry.precision
        assert entry.records
        gpu = {"indirect", "direct", "gemv", "small", *UNIT_FAMILIES}
        expected = {"cpu", "small_cpu"} if file.match.type == "cpu" else gpu
        assert {record.config.family for record in entry.records} <= expected


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
def test_what_a_driver_may_refuse_comes_before_what_stands_in_for_it(path):
    """Records at the same distance keep their order."""
    for entry in read_file(path).entries:
        seen = set()
        for record in entry.own:
            key = record.shape, record.alignment
            assert record.config.family != "wgmma" or key not in seen, record
            seen.add(key)


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
def test_a_built_in_file_is_written_as_save_would(path):
    assert pyclgemm.selection.database._to_text(json.loads(path.read_text())) == path.read_text()


@pytest.mark.parametrize(("dtype", "precision"), TYPES)
def test_generic_entries_run_on_the_smallest_device(dtype, precision):
    database = Database(load_database().groups[-1:])
    [(file, entry)] = database.lookup(smallest_gpu(), dtype, precision)
    assert str(file.match) == "generic/gpu"
    assert entry.indirect_from is not None
    families = {record.config.family for record in entry.records}
    assert families == {"indirect", "direct", "gemv", "small"}
    for record in entry.records:
        assert violations(record.config, dtype, smallest_gpu()) == []


@pytest.mark.parametrize("architecture", ["x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64", ""])
@pytest.mark.parametrize(("dtype", "precision"), TYPES)
def test_every_cpu_has_an_entry_for_every_type(architecture, dtype, precision):
    database = Database(load_database().groups[-1:])
    file, entry = database.lookup(cpu(architecture=architecture), dtype, precision)[0]
    assert file.match.architecture == (architecture or None)
    small = set() if dtype.startswith("complex") else {"small_cpu"}
    assert {record.config.family for record in entry.records} == {"cpu"} | small


def test_the_published_values_for_gfx1012():
    file = read_file(resource_folder("databases") / "amd_gfx1012.json")
    [entry] = file.entries
    [record] = entry.records
    published = {
        "MWG": 64, "NWG": 64, "KWG": 16, "KWI": 2, "VWM": 4, "VWN": 4, "SA": 1, "SB": 1,
        "PADA": 4, "PADB": 4,
    }  # fmt: skip
    assert published.items() <= record.config.as_dict().items()
    assert entry.indirect_from == Threshold(m_or_n=448)
    assert file.source.kind == "published"


# -------------------------------------------------------------------------- malformed files


@pytest.mark.parametrize(
    ("content", "message"),
    [
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
        (document(entries=[{"dtype": "float8", "precision": "F32_F32_F32", "records": []}]),
         r"\$\.entries\[0\]\.dtype is 'float8': 'float8' is not one of"),
        (document(entries=[{"dtype": "float32", "precision": "F32", "records": []}]),
         r"\$\.entries\[0\]\.precision is 'F32': 'F32' is not one of"),
        (document(entries=[{"dtype": "float32", "precision": "F32_F32_F32", "records": [],
                            "indirect_from": {"mnk": 10**31}}]),
         r"indirect_from\.mnk is 1000.*greater than the maximum of 1000"),
        (document(source={"kind": "default", "text": "x" * 2001}), r"source\.text is 'xxx.*\.\.\."),
        (with_record(shape=[1, 2]),
         r"\$\.entries\[0\]\.records\[0\]\.shape is \[1, 2\]: a list of m, n and k, each"),
        (with_record(shape=[1, 2, 0]), r"shape is \[1, 2, 0\]: .* an integer of 1 to 10000000000"),
        (with_record(shape=[1e308, 1, 1]), r"shape is \[1e\+308, 1, 1\]: .* an integer"),
        (with_record(shape=[10**11, 1, 1]), r"shape is \[100000000000, 1, 1\]"),
        (with_record(shape="abc"), r"shape is 'abc': a list of m, n and k"),
        (with_record(layout="CN"), r"records\[0\]\.layout is 'CN': one of NN, NT, TN, TT"),
        (with_record(layout=["NN"]), r"records\[0\]\.layout is \['NN'\]: one of NN"),
        (with_record(alignment=3), r"records\[0\]\.alignment is 3: one of 1, 2, 4, 8, 16"),
        (with_record(alignment=True), r"records\[0\]\.alignment is True: one of 1, 2"),
        (with_record(batch=1), r"records\[0\]\.batch is 1: an integer of 2 to 1000000000"),
        (with_record(batch="all"), r"records\[0\]\.batch is 'all': an integer of 2"),
        (with_record(gflops=0), r"records\[0\]\.gflops is 0: a number of 1e-12 to 1e\+09"),
        (with_record(gflops=1e308), r"records\[0\]\.gflops is 1e\+308: a number"),
        (with_record(gflops=None), r"records\[0\]\.gflops is None: a number"),
        (with_record(speed=1), r"records\[0\] has 'speed': known are path, shape, config, layout"),
        (with_record(path="fast"), r"records\[0\]\.path is 'fast': one of indirect, direct"),
        (with_record(path=["cpu"]), r"records\[0\]\.path is \['cpu'\]: one of indirect, direct"),
        (with_record(config=[]), r"records\[0\]\.config is \[\]: an object with parameters"),
        (with_record(config={"MR": "6"}),
         r"records\[0\]\.config: MR is '6'; a configuration parameter is an integer"),
        (with_record(config=TILE.as_dict() | {"KC": 2**30}),
         r"KC must be an integer of 1 to 4096: KC is 1073741824"),
        (document(entries=[{"dtype": "float32", "precision": "F32_F32_F32", "records": [7]}]),
         r"\$\.entries\[0\]\.records\[0\] is 7: an object"),
        (with_record(config={"MR": 6}),
         r"\$\.entries\[0\]\.records\[0\]\.config: CpuConfig lacks a parameter"),
        (with_record(config=TILE.as_dict() | {"UNROLL": 4}),
         r"records\[0\]\.config: CpuConfig has no parameter UNROLL"),
        (with_record(config=TILE.as_dict() | {"NR": 9}),
         r"\.config is MR=4 NR=9 KC=256 VW=4 .*: NR must be a multiple of VW: NR is 9, VW is 4"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_by_name_place_and_value(tmp_path, content, message):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DatabaseError, match=message) as caught:
        read_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 500 + "]" * 500, "nested more than 32 deep"),
        ('{"schema":' * 100_000, "nested more than 32 deep"),
        (json.dumps(with_record(gflops=float("nan"))), "NaN is no number of JSON"),
        (json.dumps(with_record(gflops=float("inf"))), "Infinity is no number of JSON"),
        (json.dumps(with_record(gflops=1e308)).replace("1e+308", "1e309"), "1e309 is too large"),
        (json.dumps(document())[:-1] + ', "schema": 1}', "has the key 'schema' twice"),
        (json.dumps(document(source={"kind": "default", "text": "\ud800"})), "surrogates"),
        ("[" + "1" * 5000 + "]", "4300 digits"),
        ("\xff", "is not JSON in UTF-8"),
    ],
    ids=range(9),
)
def test_a_file_of_wild_json_is_refused(tmp_path, text, message):
    path = tmp_path / "mine.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DatabaseError, match=message) as caught:
        open_file(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_too_large_or_no_file_is_refused(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(" " * MOST_BYTES + json.dumps(document()))
    with pytest.raises(DatabaseError, match=f"more than {MOST_BYTES} bytes"):
        open_file(path)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(DatabaseError, match="not a regular file"):
        open_file(pipe)


def with_records(*changes):
    """A file whose records have these changes, and one that is sound."""
    whole = document()
    [record] = whole["entries"][0]["records"]
    whole["entries"][0]["records"] = [*(record | change for change in changes), record]
    return whole


BAD = [{"shape": [1e308, 1, 1]}, {"config": TILE.as_dict() | {"MR": 2**40}}, {"gflops": -1}]


@pytest.mark.parametrize("where", ["environment", "user", "built-in"])
def test_a_record_that_cannot_be_used_is_left_out_alone(user_folders, tmp_path, monkeypatch, where):
    folder = dict(zip(("environment", "user"), user_folders, strict=True)).get(where, tmp_path)
    if where == "built-in":
        monkeypatch.setattr(
            pyclgemm.selection.database,
            "resource_folder",
            lambda name: tmp_path if name == "databases" else None,
        )
    path = folder / "mine.json"
    path.write_text(json.dumps(with_records(*BAD)))
    with pytest.warns(DatabaseWarning) as warned:
        reload_database()
        [(file, entry)] = [
            hit for hit in load_database().lookup(cpu(), "float32", "F32_F32_F32")
            if hit[0].path == path
        ]  # fmt: skip
    assert [str(record.shape) for record in entry.records] == ["1024x1024x1024"]
    stated = [str(one.message) for one in warned]
    assert len(stated) == len(BAD)
    assert all(str(path) in one for one in stated)
    for index, words in enumerate(["shape is [1e+308, 1, 1]", "MR is 1099511627776", "-1"]):
        assert f"$.entries[0].records[{index}]" in stated[index]
        assert words in stated[index]
    assert len(file.refused) == len(BAD)


def test_of_many_records_that_cannot_be_used_some_are_told(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(with_records(*[{"gflops": -1}] * 30)))
    file = open_file(path)
    with pytest.warns(DatabaseWarning) as warned:
        [entry] = file.entries
    assert len(entry.records) == 1
    assert len(warned) == 11
    assert "20 more records" in str(warned[-1].message)


def test_a_file_that_is_extended_must_not_lose_a_record(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(with_records(*BAD)))
    with pytest.raises(DatabaseError, match=r"records\[0\]\.shape is .* \(and 2 more records\)"):
        read_file(path)
    assert json.loads(path.read_text()) == with_records(*BAD)


def test_a_file_that_is_not_json(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("{'schema': 1}")
    with pytest.raises(DatabaseError, match=r"mine\.json is not JSON.*line 1 column 2"):
        read_file(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DatabaseError, match=r"none\.json cannot be read: No such file"):
        read_file(tmp_path / "none.json")


def test_a_path_of_the_environment_that_does_not_exist(user_folders, monkeypatch):
    monkeypatch.setenv("PYCLGEMM_DATABASES", "/nowhere/at/all")
    with pytest.raises(DatabaseError, match="PYCLGEMM_DATABASES names /nowhere/at/all, which does"):
        load_database()


def test_a_users_malformed_file_is_found_on_load(user_folders):
    _, user = user_folders
    (user / "mine.json").write_text(json.dumps(document(schema=0)))
    with pytest.raises(DatabaseError, match=r"mine\.json: \$\.schema is 0"):
        load_database()


# -------------------------------------------------------------------------- ranks


def made_file(level, text, **names):
    match = Match(level, names.pop("type", "gpu"), **names)
    entry = Entry("float32", "F32_F32_F32", ())
    return DatabaseFile.make(Path(text), match, Source("default", text), [entry])


DEVICE = made_file("device", "device", device="NVIDIA H100 80GB HBM3")
ARCHITECTURE = made_file("architecture", "architecture", architecture="sm_90")
VENDOR = made_file("vendor", "vendor", vendor="nvidia")
GENERIC = made_file("generic", "generic")
OTHERS = (
    made_file("device", "x", device="NVIDIA A100"),
    made_file("architecture", "x", architecture="sm_80"),
    made_file("architecture", "x", architecture="sm_90", vendor="amd"),
    made_file("vendor", "x", vendor="amd"),
    made_file("vendor", "x", vendor="nvidia", type="cpu"),
    made_file("generic", "x", type="cpu"),
)


def found(database, traits, precision="F32_F32_F32"):
    return [file.source.text for file, _ in database.lookup(traits, "float32", precision)]


def test_levels_from_the_most_to_the_least_specific():
    database = a_database(GENERIC, VENDOR, *OTHERS, ARCHITECTURE, DEVICE)
    assert found(database, gpu()) == ["device", "architecture", "vendor", "generic"]
    assert found(database, gpu(name="H200")) == ["architecture", "vendor", "generic"]
    assert found(database, gpu(name="A10", architecture="sm_86")) == ["vendor", "generic"]
    assert found(database, smallest_gpu()) == ["generic"]
    assert found(database, gpu(), precision="F16_F16_F16") == []


def test_an_accelerator_counts_as_a_gpu_and_a_cpu_does_not():
    database = Database(((GENERIC, made_file("generic", "cpu", type="cpu")),))
    assert found(database, gpu(type="accelerator")) == ["generic"]
    assert found(database, cpu()) == ["cpu"]


def test_all_levels_of_a_group_come_before_the_next_group():
    database = Database(((GENERIC,), (DEVICE,)))
    assert found(database, gpu()) == ["generic", "device"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (DEVICE, "NVIDIA H100 80GB HBM3"),
        (ARCHITECTURE, "gpu/sm_90"),
        (OTHERS[2], "amd/sm_90"),
        (VENDOR, "nvidia/gpu"),
        (GENERIC, "generic/gpu"),
    ],
)
def test_a_file_is_named_by_what_it_is_for(file, name):
    assert str(file.match) == name


def test_what_is_printed_of_a_file_tells_a_users_from_a_built_in_one():
    built_in = DatabaseFile(GENERIC.path, GENERIC.document, built_in=True)
    assert str(built_in) == "generic/gpu (generic)"
    assert str(GENERIC) == "generic/gpu in generic (generic)"


def test_environment_before_user_before_built_in(user_folders):
    environment, user = user_folders
    assert "measured on a test" not in first_source(cpu())
    (user / "a.json").write_text(json.dumps(document(source={"kind": "default", "text": "user"})))
    assert "user" not in first_source(cpu()), "files are read once a process"
    reload_database()
    assert first_source(cpu()) == "user"
    (environment / "a.json").write_text(json.dumps(document()))
    reload_database()
    assert first_source(cpu()) == "measured on a test"
    assert "user" not in first_source(cpu(), "float64", "F64_F64_F64")


def test_the_environment_takes_files_and_folders(user_folders, tmp_path, monkeypatch):
    environment, _ = user_folders
    single = tmp_path / "single.txt"
    single.write_text(json.dumps(document()))
    (environment / "b.json").write_text(json.dumps(document()))
    (environment / "notes.txt").write_text("not read")
    monkeypatch.setenv("PYCLGEMM_DATABASES", os.pathsep.join([str(single), "", str(environment)]))
    assert [file.path.name for file in load_database().groups[0]] == ["single.txt", "b.json"]


# -------------------------------------------------------------------------- thresholds, saving


@pytest.mark.parametrize(
    ("threshold", "sizes", "reached"),
    [
        (Threshold(mnk=1000), (10, 10, 10), True),
        (Threshold(mnk=1000), (10, 10, 9), False),
        (Threshold(m_or_n=448), (448, 1, 1), True),
        (Threshold(m_or_n=448), (1, 448, 1), True),
        (Threshold(m_or_n=448), (447, 447, 10**6), False),
        (Threshold(mnk=1000, m_or_n=448), (448, 1, 1), True),
        (Threshold(), (10**6, 10**6, 10**6), False),
    ],
)
def test_thresholds(threshold, sizes, reached):
    assert threshold.reached(*sizes) is reached


def a_file(path, **parameters):
    indirect = XgemmConfig(**({
        "MWG": 64, "NWG": 64, "KWG": 16, "MDIMC": 8, "NDIMC": 8, "MDIMA": 16, "NDIMB": 16,
        "KWI": 2, "VWM": 4, "VWN": 4,
    } | parameters))  # fmt: skip
    entries = [
        Entry("float32", "F32_F32_F32", (recorded("64x64x64", indirect, 3.5),), Threshold(mnk=9)),
        Entry("complex64", "F32_F32_F32", ()),
    ]
    match = Match("device", "gpu", device='Größe "1"')
    return DatabaseFile.make(path, match, Source("measured", "measured on a test"), entries)


def test_save_and_read_give_the_same_file(tmp_path):
    file = a_file(tmp_path / "deep" / "mine.json")
    save_file(file)
    again = read_file(file.path)
    assert again == file
    assert (again.match, again.source, again.entries) == (file.match, file.source, file.entries)
    assert [path.name for path in file.path.parent.iterdir()] == ["mine.json"]


def test_a_record_keeps_its_layout_alignment_and_batch_and_plain_ones_do_not_mention_them(tmp_path):
    plain = recorded("64x64x64", TILE, 2.0)
    laid_out = recorded("64x64x64:NT*100", TILE, 1.0, alignment=2)
    file = file_of([Entry(*FLOAT32, (plain, laid_out))], "cpu", name=tmp_path / "mine.json")
    save_file(file)
    (entry,) = read_file(file.path).entries
    assert entry.records == (plain, laid_out)
    first, second = file.document["entries"][0]["records"]
    assert first.keys() == {"path", "shape", "gflops", "config"}
    assert (second["layout"], second["alignment"], second["batch"]) == ("NT", 2, 100)
    assert [str(record) for record in entry.records] == [
        "64x64x64", "64x64x64:NT*100 with rows aligned to 2"
    ]  # fmt: skip


def test_a_bad_file_is_not_saved_and_the_old_one_stays(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("old")
    with pytest.raises(DatabaseError, match="VWM must be one of"):
        save_file(a_file(path, VWM=3))
    assert path.read_text() == "old"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "mine.json"
    path.write_text("old")

    def fail(document):
        raise KeyboardInterrupt

    monkeypatch.setattr(pyclgemm.selection.database, "_to_text", fail)
    with pytest.raises(KeyboardInterrupt):
        save_file(a_file(path))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
