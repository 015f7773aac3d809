"""Products whose B was packed ahead: which layout it gets, and which record reads it."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.select import packed_layout, select
from tests.support.databases import (
    CPU_FILE,
    DATABASE,
    DIRECT,
    GENERIC,
    INDIRECT,
    LARGE,
    NARROW,
    SMALL,
    SQUARE,
    a_database,
    devices,
    made_file,
    measured,
    sizes,
)
from tests.support.facts import cpu, gpu, problem, recorded
from tests.support.reference import DTYPES

panels, padded = (partial(PackedLayout, form) for form in ("panels", "padded"))


@pytest.mark.parametrize(
    ("traits", "sizes", "packed", "config"),
    [
        # The nearest record that reads it, or the nearest with its panels.
        (cpu(), (12, 1024, 1024), panels(512, 64), SQUARE),
        (cpu(), (12, 1024, 1024), panels(512, 32), NARROW),
        (cpu(), (1, 1024, 1024), panels(128, 48), CpuConfig(MR=1, NR=48, KC=128, VW=16)),
        # The same where the tile would have more rows than there are.
        (cpu(), (1, 1024, 1024), panels(512, 64), CpuConfig(MR=1, NR=64, KC=512, VW=16)),
        # Every configuration of a GPU reads what is padded.
        (gpu(), (4000, 4000, 4000), padded(16, 64), LARGE),
        (gpu(), (4, 4, 4), padded(16, 64), SMALL),
    ],
)
def test_the_record_that_reads_a_packed_b(traits, sizes, packed, config):
    assert select(problem(*sizes, packed=packed), traits, DATABASE).config == config


@pytest.mark.parametrize(
    ("traits", "packed", "words"),
    [
        (cpu(), panels(128, 40), "NR must be a multiple of VW: NR is 40, VW is 16"),
        (cpu(), padded(16, 64), "packed for a GPU, and 'AMD EPYC' is a CPU"),
        (gpu(), panels(16, 64), "packed for a CPU, and 'NVIDIA H100"),
    ],
)
def test_a_packed_b_that_nothing_reads(traits, packed, words):
    with pytest.raises(UnsupportedError, match=words):
        select(problem(1, 9, 9, packed=packed), traits, DATABASE)


TILE_OF_96 = replace(INDIRECT, NWG=96, NDIMB=8, KWG=24, MDIMA=8)
OWN_CPU = measured([recorded("64x64x64", CpuConfig(MR=6, NR=32, KC=64, VW=16))], traits=cpu())
OWN_BATCH = measured([recorded("4096x64x64", DIRECT), recorded("4096x64x64*9", LARGE)])


def layout(n, k, traits, database=DATABASE):
    return packed_layout(n, k, "float32", resolve_precision(None, "float32"), traits, database)


@pytest.mark.parametrize(
    ("files", "traits", "n", "k", "expected"),
    [
        # For a CPU that of many rows.
        ([CPU_FILE], cpu(), 1024, 1024, panels(512, 64)),
        ([CPU_FILE], cpu(), 30, 1024, panels(512, 32)),
        # For a GPU what suits all tiles where padding is cheap.
        ([GENERIC], gpu(), 4096, 4096, padded(32, 128)),
        ([GENERIC], gpu(), 1000, 1000, padded(32, 128)),
        ([GENERIC], gpu(), 64, 16, padded(16, 64)),
        ([GENERIC], gpu(), 10, 10, padded(16, 64)),
        ([GENERIC], gpu(), 65, 33, padded(16, 128)),
        ([GENERIC], gpu(), 0, 0, padded(32, 128)),
        # But for what the device cannot run, and records of batches.
        ([GENERIC], gpu(local_memory_bytes=16 * 1024), 4096, 4096, padded(16, 64)),
        ([OWN_BATCH, GENERIC], gpu(), 64, 64, layout(64, 64, gpu())),
        ([made_file([recorded("64x64x64", TILE_OF_96)])], gpu(), 4096, 4096, padded(24, 96)),
    ],
)
def test_how_b_is_packed(files, traits, n, k, expected):
    assert layout(n, k, traits, a_database(*files)) == expected


def test_of_two_measured_files_the_nearer_record_tells_how_b_is_packed():
    large = CpuConfig(MR=6, NR=64, KC=512, VW=16)
    shipped = made_file([recorded("2048x2048x2048", large)], "cpu", kind="measured")
    assert layout(2048, 2048, cpu(), Database(((OWN_CPU,), (shipped,)))) == panels(512, 64)


def test_no_layout_without_a_record():
    with pytest.raises(UnsupportedError, match="no database has a record of the indirect path"):
        layout(64, 64, gpu(), a_database(CPU_FILE))


@pytest.mark.parametrize(
    ("architecture", "dtype", "precision", "along_k"),
    [
        ("sm_90", "float16", None, False),
        ("sm_90", "bfloat16", None, False),  # ldmatrix transposes elements of two bytes
        ("sm_90", "int8", None, True),
        ("sm_90", "float32", None, False),
        ("sm_90", "float32", "TF32_TF32_F32", True),
        ("sm_90", "float64", None, False),
        ("sm_70", "float16", None, False),
        ("gfx1100", "float16", None, True),
        ("gfx1100", "bfloat16", None, True),
        ("gfx90a", "float64", None, False),
        ("gfx1030", "float16", None, False),
    ],
)
def test_k_is_contiguous_where_units_want_it(architecture, dtype, precision, along_k):
    precision = resolve_precision(precision, dtype)
    found = packed_layout(512, 512, dtype, precision, typical_traits(architecture), load_database())
    assert found.along_k == along_k


@pytest.mark.parametrize(
    ("config", "packed", "message"),
    [
        (replace(SQUARE, NR=32), panels(512, 64),
         "which cannot read b as it was packed: panels that want a CpuConfig with NR=64 and KC=51"),
        (LARGE, panels(512, 64), "panels that want a CpuConfig"),
        (SQUARE, padded(512, 64), "a padded row-major matrix, which wants an XgemmConfig"),
    ],
)  # fmt: skip
def test_a_callers_configuration_that_cannot_read_the_packed_b(config, packed, message):
    with pytest.raises(ConfigError, match=message):
        select(problem(64, 64, 64, packed=packed), cpu(), DATABASE, config)


def test_a_callers_configuration_that_can():
    for traits, packed, config in (
        (cpu(), panels(512, 64), SQUARE),
        (gpu(), padded(512, 64), DIRECT),
    ):
        assert select(problem(64, 64, 64, packed=packed), traits, DATABASE, config).config == config


@given(st.integers(1, 20_000), sizes, sizes, st.sampled_from(DTYPES), devices)
def test_what_is_packed_can_be_read_by_the_choice(m, n, k, dtype, traits):
    database = Database(load_database().groups[-1:])
    precision = resolve_precision(None, dtype)
    ahead = packed_layout(n, k, dtype, precision, traits, database)
    choice = select(problem(m, n, k, dtype, packed=ahead), traits, database)
    if traits.type == "cpu":
        assert ahead == panels(choice.config.KC, choice.config.NR)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_few_rows_of_a_packed_b_take_a_small_register_tile(m):
    database = Database(load_database().groups[-1:])
    ahead = layout(3072, 768, cpu(), database)
    config = select(problem(m, 3072, 768, packed=ahead), cpu(), database).config
    assert (m, ahead.width, ahead.depth_block) == (config.MR, config.NR, config.KC)
