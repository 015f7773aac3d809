"""The files that ship: whole, valid on the devices that they are for, found first, as published."""

import itertools
import json
from dataclasses import replace

import pytest

import pyclgemm.selection.database
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import UnsupportedError
from pyclgemm.families.registry import violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.resources import resource_folder
from pyclgemm.selection.database import SCHEMA_FILE, Database, load_database, read_file
from pyclgemm.selection.records import Threshold
from pyclgemm.selection.select import select
from tests.support.facts import cpu, gpu, problem, smallest_gpu
from tests.support.families import UNIT_FAMILIES
from tests.support.reference import DTYPES
from tests.support.system import output_of

FOLDER = resource_folder("databases")
FILES = [read_file(path) for path in sorted(FOLDER.glob("*.json")) if path.name != SCHEMA_FILE]
BY_STEM = {file.path.stem: file for file in FILES}
GPU_FILES = [file for file in FILES if file.match.type == "gpu"]
ARCHITECTURES = sorted({file.match.architecture for file in GPU_FILES} - {None})
NO_ARCHITECTURE = ["intel_gpu", "apple_gpu", "qualcomm_gpu", "arm_gpu"]
TYPES = [(dtype, resolve_precision(None, dtype).name) for dtype in DTYPES]
TYPES.append(("float16", "F16_F16_F16"))
# What these devices report where it is more than the least of their vendor's.
WORK_GROUPS = {"intel_arc_a770_graphics": 1024, "intel_iris_xe_graphics": 512}
H100 = gpu(fence_options="-cl-std=CL3.0", local_memory_bytes=229440, wgmma=True)
WORDS = {
    "measured": ("measured on ", "tuned on "),
    "published": ("not measured here",),
    "default": ("not measured",),
}

SHAPES = [
    (64, 64, 64), (1000, 1000, 1000), (4096, 4096, 4096),  # square
    (64, 3072, 768), (128, 768, 3072), (8192, 128, 128),  # dense layers
    (1, 4096, 4096), (4096, 1, 4096), (16, 16, 100_000), (5124, 700, 1),  # skinny
]  # fmt: skip

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.path.stem)
each_gpu_file = pytest.mark.parametrize("file", GPU_FILES, ids=lambda file: file.path.stem)


def device_of(file):
    """A device that the file is for, with the least of the limits that such devices have."""
    match = file.match
    if match.architecture:
        return typical_traits(match.architecture)
    if match.level == "generic":
        return smallest_gpu()
    own = {"nvidia": gpu(name="typical NVIDIA", architecture=""), "amd": typical_traits("gfx900")}
    traits = own.get(match.vendor) or typical_traits(f"{match.vendor}_gpu")
    items = WORK_GROUPS.get(file.path.stem, traits.max_work_group_size)
    return replace(traits, name=match.device or traits.name, max_work_group_size=items)


@each_file
def test_a_file_names_what_it_holds_and_is_written_as_save_would(file):
    assert file.match.level != "device" or file.match.device
    assert any(words in file.source.text for words in WORDS[file.source.kind])
    for entry in file.entries:
        assert resolve_precision(entry.precision, entry.dtype).name == entry.precision
        assert entry.records
        on_gpu = {"indirect", "direct", "gemv", "small", *UNIT_FAMILIES}
        expected = {"cpu", "small_cpu"} if file.match.type == "cpu" else on_gpu
        assert {record.config.family for record in entry.records} <= expected
    text = file.path.read_text()
    assert pyclgemm.selection.database._to_text(json.loads(text)) == text


@each_file
def test_no_record_is_repeated_and_the_first_of_a_product_is_the_fastest(file):
    for entry in file.entries:
        # What was measured for its own type has a speed.
        lent = {replace(record, gflops=None) for record in entry.like.own} if entry.like else set()
        assert not set(entry.own) & lent, entry.name
        products = {}
        for record in entry.own:
            products.setdefault((record.shape, record.alignment), []).append(record)
        for records in products.values():
            configs = [record.config for record in records]
            assert len(set(configs)) == len(configs), records
            speeds = [record.gflops for record in records if record.gflops]
            assert not speeds or records[0].gflops in (None, max(speeds)), records


def test_an_h100_runs_bfloat16_by_the_records_of_float16():
    entries = {entry.name: entry for entry in BY_STEM["nvidia_sm_90"].entries}
    half, brain = entries["float16", "F16_F16_F32"], entries["bfloat16", "BF16_BF16_F32"]
    assert brain.like == half
    assert len(brain.own) < len(brain.borrowed)
    for text in ("4096x4096x4096", "1x1024x1024", "128x768x3072", "101x101x101"):
        wanted = [GemmShape.parse(text).problem(*entry.name) for entry in (half, brain)]
        one, other = (select(problem, H100, load_database()) for problem in wanted)
        # Small ones are corrected by bfloat16's own records.
        assert one.path == other.path or text == "101x101x101"
        assert other.config in {record.config for record in brain.records}


@pytest.mark.parametrize(("dtype", "precision"), TYPES)
def test_every_device_has_an_entry_for_every_type(dtype, precision):
    database = Database(load_database().groups[-1:])
    [(file, entry)] = database.lookup(smallest_gpu(), dtype, precision)
    assert str(file.match) == "generic/gpu"
    families = {record.config.family for record in entry.records}
    assert families == {"indirect", "direct", "gemv", "small"}
    small = set() if dtype.startswith("complex") else {"small_cpu"}
    for architecture in ("x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64", ""):
        file, entry = database.lookup(cpu(architecture=architecture), dtype, precision)[0]
        assert file.match.architecture == (architecture or None)
        assert {record.config.family for record in entry.records} == {"cpu"} | small


@each_gpu_file
def test_every_configuration_is_valid_on_the_device_that_it_is_for(file):
    traits = device_of(file)
    # What older ones lack is passed over there, and the next level's taken.
    newer = replace(traits, architecture="sm_80") if traits.vendor == "nvidia" else traits
    for entry in file.entries:
        for record in entry.records:
            stated = violations(record.config, entry.dtype, traits)
            assert all("compute capability" in one or "mma.sync" in one for one in stated)
            assert violations(record.config, entry.dtype, newer) == []


@each_gpu_file
def test_a_device_of_every_file_has_a_configuration_for_every_product(file):
    traits, on_gpu = device_of(file), ("direct", "indirect", "gemv", *UNIT_FAMILIES)
    for dtype, sizes in itertools.product(DTYPES, SHAPES):
        wanted = problem(*sizes, dtype)
        if dtype in ("float64", "complex128") and not traits.float64:
            with pytest.raises(UnsupportedError, match="nothing is known of float64 arithmetic"):
                select(wanted, traits, load_database())
        else:
            choice = select(wanted, traits, load_database())
            assert choice.path in on_gpu and violations(choice.config, dtype, traits) == []


@each_gpu_file
def test_what_was_published_is_found_first_and_says_so(file):
    for entry in file.entries if file.source.kind == "published" else ():
        hits = load_database().lookup(device_of(file), *entry.name)
        assert hits[0][0].path == file.path
        assert "not measured here" in str(hits[0][0])


@pytest.mark.parametrize("architecture", ARCHITECTURES + NO_ARCHITECTURE)
def test_a_typical_device_is_explained(architecture):
    output = output_of("explain", "1024x1024x1024", "--architecture", architecture)
    traits = typical_traits(architecture)
    assert f"device   {traits.name} (" in output
    assert "us are predicted" in output or "measured on this" in output
    file, _ = load_database().lookup(traits, "float32", "F32_F32_F32")[0]
    assert file.match.level == ("vendor" if architecture in NO_ARCHITECTURE else "architecture")


#: What CLBlast's files say, by file and record; A and B, m and n change places as the README there
#: says. Neighbouring work-items lie along the unit-stride index of the result, as they do there.
PUBLISHED = {
    ("amd_gfx1030", 0): {  # RX 6900 XT
        "MWG": 64, "NWG": 128, "KWG": 32, "KWI": 2, "MDIMA": 16, "NDIMB": 16, "MDIMC": 8,
        "NDIMC": 16, "SA": 1, "SB": 1, "STRM": 0, "STRN": 1, "VWM": 1, "VWN": 4, "LANES_M": 1,
        "LANES_N": 16, "PADA": 0, "PADB": 0, "STAGES": 1,
    },
    ("amd_gfx1032", 1): {
        "WGD": 32, "KWGD": 32, "KWID": 2, "MDIMCD": 16, "NDIMCD": 8, "MDIMAD": 16, "NDIMBD": 8,
        "VWMD": 2, "VWND": 4, "PADA": 2, "PADB": 4, "LANES_M": 1, "LANES_N": 8,
    },
    ("amd_gfx1012", 0): {
        "MWG": 64, "NWG": 64, "KWG": 16, "KWI": 2, "VWM": 4, "VWN": 4, "SA": 1, "SB": 1,
        "PADA": 4, "PADB": 4,
    },
}  # fmt: skip


@pytest.mark.parametrize("stem_and_record", PUBLISHED, ids=str)
def test_the_published_values(stem_and_record):
    stem, number = stem_and_record
    file = BY_STEM[stem]
    values = file.entries[0].records[number].config.as_dict()
    assert PUBLISHED[stem_and_record].items() <= values.items()
    assert file.source.kind == "published"
    assert stem != "amd_gfx1012" or file.entries[0].indirect_from == Threshold(m_or_n=448)
