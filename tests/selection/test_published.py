"""Files for GPUs that were not at hand: valid there, found first, and as published."""

import itertools
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pyclgemm.cli.main import main
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.resources import resource_folder
from pyclgemm.selection.database import SCHEMA_FILE, load_database, read_file
from pyclgemm.selection.records import Threshold
from pyclgemm.selection.select import select
from tests.support.facts import gpu, problem, smallest_gpu
from tests.support.reference import DTYPES

FOLDER = resource_folder("databases")
FILES = [read_file(path) for path in sorted(FOLDER.glob("*.json")) if path.name != SCHEMA_FILE]
GPU_FILES = [file for file in FILES if file.match.type == "gpu"]
ARCHITECTURES = sorted({file.match.architecture for file in GPU_FILES} - {None})
NO_ARCHITECTURE = ["intel_gpu", "apple_gpu", "qualcomm_gpu", "arm_gpu"]
PUBLISHED = [file for file in GPU_FILES if file.source.kind == "published"]
# What these devices report where it is more than the least of their vendor's.
WORK_GROUPS = {"intel_arc_a770_graphics": 1024, "intel_iris_xe_graphics": 512}

SHAPES = [
    (64, 64, 64), (1000, 1000, 1000), (4096, 4096, 4096),  # square
    (64, 3072, 768), (128, 768, 3072), (8192, 128, 128),  # dense layers
    (1, 4096, 4096), (4096, 1, 4096), (16, 16, 100_000), (5124, 700, 1),  # skinny
]  # fmt: skip


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


@pytest.mark.parametrize("file", GPU_FILES, ids=lambda file: file.path.stem)
def test_every_configuration_is_valid_on_the_device_that_it_is_for(file):
    traits = device_of(file)
    # What older ones lack is passed over there, and the next level's taken.
    newer = replace(traits, architecture="sm_80") if traits.vendor == "nvidia" else traits
    for entry in file.entries:
        for record in entry.records:
            stated = violations(record.config, entry.dtype, traits)
            assert all("compute capability" in one or "mma.sync" in one for one in stated)
            assert violations(record.config, entry.dtype, newer) == []


@pytest.mark.parametrize("file", GPU_FILES, ids=lambda file: file.path.stem)
def test_a_device_of_every_file_has_a_configuration_for_every_product(file):
    traits = device_of(file)
    for dtype, (m, n, k) in itertools.product(DTYPES, SHAPES):
        choice = select(problem(m, n, k, dtype), traits, load_database())
        assert choice.path in ("direct", "indirect", "gemv", "gemv_unit", "matrix", "wgmma")
        assert violations(choice.config, dtype, traits) == []


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.path.stem)
def test_what_was_published_is_found_first_and_says_so(file):
    for entry in file.entries:
        asked = problem(1024, 1024, 1024, entry.dtype, precision=entry.precision)
        hits = load_database().lookup(device_of(file), asked.dtype, asked.precision.name)
        assert hits[0][0].path == file.path
        assert "not measured here" in str(hits[0][0])


@pytest.mark.parametrize("architecture", ARCHITECTURES + NO_ARCHITECTURE)
def test_a_typical_device_is_explained(architecture):
    arguments = ["explain", "1024x1024x1024", "--architecture", architecture]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    vendor = typical_traits(architecture).vendor
    level = "vendor" if architecture in NO_ARCHITECTURE else "architecture"
    named = f"{vendor}/gpu" if level == "vendor" else f"{vendor}/{architecture}"
    assert f"{named} (" in result.output
    assert f"(level {level})" in result.output


# What CLBlast's files say, in its names; A and B, m and n change places (databases/README.md).
RX_6900_XT = {
    "KWG": 32, "KWI": 2, "MDIMA": 16, "MDIMC": 16, "MWG": 128, "NDIMB": 16, "NDIMC": 8, "NWG": 64,
    "SA": 1, "SB": 1, "STRM": 1, "STRN": 0, "VWM": 4, "VWN": 1,
}  # fmt: skip
RX_7900_XTX = {
    "KWG": 32, "KWI": 2, "MDIMA": 16, "MDIMC": 16, "MWG": 64, "NDIMB": 8, "NDIMC": 8, "NWG": 32,
    "SA": 0, "SB": 1, "STRM": 1, "STRN": 0, "VWM": 4, "VWN": 4,
}  # fmt: skip
EXCHANGED = {
    "MWG": "NWG", "MDIMC": "NDIMC", "MDIMA": "NDIMB", "SA": "SB", "STRM": "STRN", "VWM": "VWN",
    "KWG": "KWG", "KWI": "KWI",
}  # fmt: skip
EXCHANGED |= {theirs: ours for ours, theirs in EXCHANGED.items()}


def float32_entry(stem):
    return next(file for file in GPU_FILES if file.path.stem == stem).entries[0]


@pytest.mark.parametrize(
    ("stem", "theirs", "least_size"),
    [("amd_gfx1030", RX_6900_XT, 512), ("amd_gfx1100", RX_7900_XTX, 576)],
)
def test_the_published_values_of_the_indirect_path(stem, theirs, least_size):
    entry = float32_entry(stem)
    ours = entry.records[0].config.as_dict()
    assert {EXCHANGED[name]: value for name, value in theirs.items()}.items() <= ours.items()
    # Neighbouring work-items lie along the unit-stride index of the result, as they do there.
    assert (ours["LANES_M"], ours["LANES_N"]) == (1, theirs["MDIMC"])
    assert (ours["PADA"], ours["PADB"], ours["STAGES"]) == (0, 0, 1)
    assert entry.indirect_from == Threshold(mnk=least_size**3)


def test_the_published_values_of_the_direct_path():
    # KWID 2, MDIMAD 8, MDIMCD 8, NDIMBD 16, NDIMCD 16, PADA 1, PADB 1, VWMD 4, VWND 2, WGD 32
    ours = float32_entry("amd_gfx1032").records[1].config.as_dict()
    expected = {
        "WGD": 32, "KWGD": 32, "KWID": 2, "MDIMCD": 16, "NDIMCD": 8, "MDIMAD": 16, "NDIMBD": 8,
        "VWMD": 2, "VWND": 4, "PADA": 2, "PADB": 4, "LANES_M": 1, "LANES_N": 8,
    }  # fmt: skip
    assert expected.items() <= ours.items()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_relative_lends_its_values_but_not_its_name(dtype):
    precision = resolve_precision("F16_F16_F16" if dtype == "float16" else None, dtype).name
    for architecture in ("gfx90a", "gfx942"):
        file, entry = load_database().lookup(typical_traits(architecture), dtype, precision)[0]
        assert file.source.kind == "default"
        assert "gfx906" in file.source.text
        assert file.match.architecture == architecture
        assert entry.records
