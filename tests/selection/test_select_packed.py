"""Products whose B was packed ahead: which layout it gets, and which record reads it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.registry import violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.select import packed_layout, select
from tests.support.databases import (
    CPU_FILE,
    DATABASE,
    DIRECT,
    INDIRECT,
    LARGE,
    NARROW,
    SQUARE,
    a_database,
    devices,
    made_file,
    sizes,
)
from tests.support.facts import cpu, gpu, problem, recorded
from tests.support.reference import DTYPES


def packed(form, depth_block, width):
    return PackedLayout(form, depth_block=depth_block, width=width)


def test_a_packed_b_takes_the_nearest_record_that_reads_it():
    wanted = problem(12, 1024, 1024, packed=packed("panels", 512, 64))
    assert select(wanted, cpu(), DATABASE).config == SQUARE
    wanted = problem(12, 1024, 1024, packed=packed("panels", 512, 32))
    assert select(wanted, cpu(), DATABASE).config == NARROW


def test_or_the_nearest_record_with_its_panels():
    wanted = problem(1, 1024, 1024, packed=packed("panels", 128, 48))
    assert select(wanted, cpu(), DATABASE).config == CpuConfig(MR=1, NR=48, KC=128, VW=16)


def test_or_such_a_record_where_the_tile_would_have_more_rows_than_there_are():
    wanted = problem(1, 1024, 1024, packed=packed("panels", 512, 64))
    assert select(wanted, cpu(), DATABASE).config == CpuConfig(MR=1, NR=64, KC=512, VW=16)


def test_panels_that_no_vector_divides():
    with pytest.raises(UnsupportedError, match="NR must be a multiple of VW: NR is 40, VW is 16"):
        select(problem(1, 9, 9, packed=packed("panels", 128, 40)), cpu(), DATABASE)


def test_every_gpu_configuration_reads_a_padded_b():
    large = select(problem(4000, 4000, 4000, packed=packed("padded", 16, 64)), gpu(), DATABASE)
    small = select(problem(4, 4, 4, packed=packed("padded", 16, 64)), gpu(), DATABASE)
    assert (large.path, small.path) == ("indirect", "direct")


@pytest.mark.parametrize(("traits", "form", "words"),
                         [(cpu(), "padded", "packed for a GPU, and 'AMD EPYC' is a CPU"),
                          (gpu(), "panels", "packed for a CPU, and 'NVIDIA H100")])  # fmt: skip
def test_packed_for_another_type_of_device(traits, form, words):
    with pytest.raises(UnsupportedError, match=words):
        select(problem(9, 9, 9, packed=packed(form, 16, 64)), traits, DATABASE)


def layout(n, k, traits, database=DATABASE):
    return packed_layout(n, k, "float32", resolve_precision(None, "float32"), traits, database)


def test_the_layout_for_a_cpu_is_that_of_many_rows():
    assert layout(1024, 1024, cpu()) == packed("panels", 512, 64)
    assert layout(30, 1024, cpu()) == packed("panels", 512, 32)


@pytest.mark.parametrize(("n", "k", "depth", "width"), [
    (4096, 4096, 32, 128), (1000, 1000, 32, 128), (64, 16, 16, 64), (10, 10, 16, 64),
    (65, 33, 16, 128), (0, 0, 32, 128),
])  # fmt: skip
def test_the_layout_for_a_gpu_suits_all_tiles_where_padding_is_cheap(n, k, depth, width):
    assert layout(n, k, gpu()) == packed("padded", depth, width)


def test_the_layout_leaves_out_what_the_device_cannot_run():
    assert layout(4096, 4096, gpu(local_memory_bytes=16 * 1024)) == packed("padded", 16, 64)


def test_tiles_that_are_no_powers_of_two():
    tile = replace(INDIRECT, NWG=96, NDIMB=8, KWG=24, MDIMA=8)
    assert violations(tile, "float32") == []
    odd = made_file([recorded("64x64x64", tile)])
    assert layout(4096, 4096, gpu(), a_database(odd)) == packed("padded", 24, 96)


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
)  # fmt: skip
def test_k_is_contiguous_where_units_want_it(architecture, dtype, precision, along_k):
    precision = resolve_precision(precision, dtype)
    found = packed_layout(512, 512, dtype, precision, typical_traits(architecture), load_database())
    assert found.along_k == along_k


@pytest.mark.parametrize(
    ("config", "form", "message"),
    [
        (replace(SQUARE, NR=32), "panels", "which cannot read b as it was packed: panels that want "
         "a CpuConfig with NR=64 and KC=512"),
        (LARGE, "panels", "panels that want a CpuConfig"),
        (SQUARE, "padded", "a padded row-major matrix, which wants an XgemmConfig"),
    ],
)  # fmt: skip
def test_a_callers_configuration_that_cannot_read_the_packed_b(config, form, message):
    wanted = problem(64, 64, 64, packed=packed(form, 512, 64))
    with pytest.raises(ConfigError, match=message):
        select(wanted, cpu(), DATABASE, config)


def test_a_callers_configuration_that_can():
    wanted = problem(64, 64, 64, packed=packed("panels", 512, 64))
    assert select(wanted, cpu(), DATABASE, SQUARE).config == SQUARE
    wanted = problem(64, 64, 64, packed=packed("padded", 512, 64))
    assert select(wanted, gpu(), DATABASE, DIRECT).config == DIRECT


@given(st.integers(1, 20_000), sizes, sizes, st.sampled_from(DTYPES), devices)
def test_what_is_packed_can_be_read_by_the_choice(m, n, k, dtype, traits):
    database = Database(load_database().groups[-1:])
    precision = resolve_precision(None, dtype)
    ahead = packed_layout(n, k, dtype, precision, traits, database)
    choice = select(problem(m, n, k, dtype, packed=ahead), traits, database)
    if traits.type == "cpu":
        assert ahead == PackedLayout("panels", choice.config.KC, choice.config.NR)


def test_few_rows_of_a_packed_b_take_a_small_register_tile():
    database = Database(load_database().groups[-1:])
    for m in (1, 2, 4):
        ahead = layout(3072, 768, cpu(), database)
        config = select(problem(m, 3072, 768, packed=ahead), cpu(), database).config
        assert (m, ahead.width, ahead.depth_block) == (config.MR, config.NR, config.KC)
