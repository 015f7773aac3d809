"""The files that ship: complete, valid on the devices that they are for, as published."""

import itertools
from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import UnsupportedError
from pyclgemm.families.registry import family_of, violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.resources import resource_folder
from pyclgemm.selection.database import SCHEMA_FILE, Database, load_database, read_file, save_file
from pyclgemm.selection.records import Threshold
from pyclgemm.selection.select import packed_layout, select
from tests.support.facts import HOPPER, cpu, gpu, problem, problem_of, smallest_gpu
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
# The largest work-group of devices that allow more than the typical one of their vendor.
WORK_GROUPS = {"intel_arc_a770_graphics": 1024, "intel_iris_xe_graphics": 512}
#: By the kind of a source, one of these must be in its text.
WORDS = {
    "measured": ["measured on ", "tuned on "], "published": ["not measured here"],
    "default": ["not measured"],
}  # fmt: skip
SHAPES = [
    (64, 64, 64), (1000, 1000, 1000), (4096, 4096, 4096),  # square
    (64, 3072, 768), (128, 768, 3072), (8192, 128, 128),  # dense layers
    (1, 4096, 4096), (4096, 1, 4096), (16, 16, 100_000), (5124, 700, 1), (0, 5, 7),  # skinny
]  # fmt: skip


def each(files):
    return pytest.mark.parametrize("file", files, ids=lambda file: file.path.stem)


def device_of(file):
    """A device that the file is for, with the smallest limits of such devices."""
    match = file.match
    if match.type == "cpu":
        return cpu(architecture=match.architecture or "")
    if match.architecture:
        return typical_traits(match.architecture)
    if match.level == "generic":
        return smallest_gpu()
    own = {"nvidia": gpu(name="typical NVIDIA", architecture=""), "amd": typical_traits("gfx900")}
    traits = own.get(match.vendor) or typical_traits(f"{match.vendor}_gpu")
    items = WORK_GROUPS.get(file.path.stem, traits.max_work_group_size)
    return replace(traits, name=match.device or traits.name, max_work_group_size=items)


@each(FILES)
def test_a_file_names_its_devices_and_its_source_and_is_written_as_save_would(file, tmp_path):
    assert file.match.level != "device" or file.match.device
    assert any(words in file.source.text for words in WORDS[file.source.kind])
    for entry in file.entries:
        assert resolve_precision(entry.precision, entry.dtype).name == entry.precision
        families = {family_of(record.config) for record in entry.records}
        assert {family.on_cpu for family in families} == {file.match.type == "cpu"}
    saved = replace(file, path=tmp_path / "saved.json")
    save_file(saved)
    assert saved.path.read_text() == file.path.read_text()


@each(FILES)
def test_no_record_is_repeated_and_the_first_of_a_product_is_the_fastest(file):
    for entry in file.entries:
        # A record that was measured for the entry's own type has a speed.
        lent = {replace(record, gflops=None) for record in entry.like.own} if entry.like else set()
        assert not set(entry.own) & lent, entry.name
        products = {}
        for record in entry.own:
            products.setdefault((record.shape, record.alignment), []).append(record)
        for records in products.values():
            configs = [record.config for record in records]
            assert len(set(configs)) == len(configs), records
            deciding = [record for record in records if not record.sample]
            speeds = [record.gflops for record in deciding if record.gflops]
            assert not speeds or deciding[0].gflops in (None, max(speeds)), records


def test_an_h100_runs_bfloat16_by_the_records_of_float16():
    entries = {entry.name: entry for entry in BY_STEM["nvidia_sm_90"].entries}
    half, brain = entries["float16", "F16_F16_F32"], entries["bfloat16", "BF16_BF16_F32"]
    assert brain.like == half
    assert sum(not record.sample for record in brain.own) < len(brain.borrowed)
    for text in ("4096x4096x4096", "1x1024x1024", "128x768x3072", "101x101x101"):
        wanted = [problem_of(text, *entry.name) for entry in (half, brain)]
        one, other = (select(one, HOPPER, load_database()) for one in wanted)
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
        found = database.lookup(cpu(architecture=architecture), dtype, precision)
        assert found[0][0].match.architecture == (architecture or None)
        configs = [record.config for _, entry in found for record in entry.records]
        assert {config.family for config in configs} == {"cpu"} | small


@each(GPU_FILES)
def test_every_configuration_is_valid_on_the_device_that_it_is_for(file):
    traits = device_of(file)
    # Older devices pass over configurations for newer ones and take those of the next level.
    newer = replace(traits, architecture="sm_80") if traits.vendor == "nvidia" else traits
    for entry in file.entries:
        for record in entry.records:
            stated = violations(record.config, entry.dtype, traits)
            assert all("compute capability" in one or "mma.sync" in one for one in stated)
            assert violations(record.config, entry.dtype, newer) == []


@each(FILES)
def test_a_device_of_every_file_has_a_configuration_for_every_product(file):
    traits, database = device_of(file), load_database()
    for dtype, sizes in itertools.product(DTYPES, SHAPES):
        if dtype in ("float64", "complex128") and not traits.float64:
            with pytest.raises(UnsupportedError, match="nothing is known of float64 arithmetic"):
                select(problem(*sizes, dtype), traits, database)
            continue
        packed = packed_layout(*sizes[1:], dtype, resolve_precision(None, dtype), traits, database)
        for layout in (None, packed):
            choice = select(problem(*sizes, dtype, packed=layout), traits, database)
            assert choice.path == choice.config.family
            assert family_of(choice.config).on_cpu == (traits.type == "cpu")
            assert violations(choice.config, dtype, traits) == []
        if traits.type == "cpu":
            assert packed == PackedLayout("panels", choice.config.KC, choice.config.NR)


@pytest.mark.parametrize("architecture", ARCHITECTURES + NO_ARCHITECTURE)
def test_a_typical_device_is_explained(architecture):
    output = output_of("explain", "1024x1024x1024", "--architecture", architecture)
    traits = typical_traits(architecture)
    assert f"device   {traits.name} (" in output
    assert "us are predicted" in output or "measured on this" in output
    file, _ = load_database().lookup(traits, "float32", "F32_F32_F32")[0]
    assert file.match.level == ("vendor" if architecture in NO_ARCHITECTURE else "architecture")


@pytest.mark.parametrize(
    ("stem", "number", "values"),
    [
        # RX 6900 XT
        ("amd_gfx1030", 0,
         "MWG=64 NWG=128 KWG=32 KWI=2 MDIMA=16 NDIMB=16 MDIMC=8 NDIMC=16 SA=1 SB=1 STRM=0 STRN=1 "
         "VWM=1 VWN=4 LANES_M=1 LANES_N=16 PADA=0 PADB=0 STAGES=1"),
        ("amd_gfx1032", 1,
         "WGD=32 KWGD=32 KWID=2 MDIMCD=16 NDIMCD=8 MDIMAD=16 NDIMBD=8 VWMD=2 VWND=4 PADA=2 PADB=4 "
         "LANES_M=1 LANES_N=8"),
        ("amd_gfx1012", 0, "MWG=64 NWG=64 KWG=16 KWI=2 VWM=4 VWN=4 SA=1 SB=1 PADA=4 PADB=4"),
    ],
)  # fmt: skip
def test_configurations_of_clblast_are_those_that_it_published(stem, number, values):
    """A and B, m and n change places, as the README of the databases says.

    Neighbouring work-items lie along the unit-stride index of the result, as they do there.
    """
    file = BY_STEM[stem]
    assert set(values.split()) <= set(str(file.entries[0].records[number].config).split())
    assert file.source.kind == "published"
    assert stem != "amd_gfx1012" or file.entries[0].indirect_from == Threshold(m_or_n=448)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("vendor", ["intel", "amd"])
@pytest.mark.parametrize("architecture", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_a_tile_for_panels_has_no_rows_to_spare(architecture, vendor, rows):
    traits, database = replace(typical_traits(architecture), vendor=vendor), load_database()
    precision = resolve_precision(None, "float32")
    for n, k in ((3072, 768), (768, 3072), (1000, 1000)):
        packed = packed_layout(n, k, "float32", precision, traits, database)
        tile_rows = select(problem(rows, n, k, packed=packed), traits, database).config.MR
        assert tile_rows <= rows
