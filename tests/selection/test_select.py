"""Path and configuration: thresholds, levels, what is passed over, packed operands, a caller's."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.registry import violations
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.records import Threshold
from pyclgemm.selection.select import select
from tests.support.databases import (
    CPU_FILE,
    DATABASE,
    DIRECT,
    GENERIC,
    INDIRECT,
    LARGE,
    NARROW,
    NVIDIA,
    ROWS,
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

# -------------------------------------------------------------------------- path


@pytest.mark.parametrize(
    ("k", "path", "reason"),
    [
        (99, "direct", "m*n*k = 9.9e5 is below 1.0e6"),
        (100, "indirect", "m*n*k = 1000000 is at least 1000000"),
        (500, "indirect", "m*n*k = 5.0e6 is at least 1.0e6"),
    ],
)
def test_the_threshold_decides(k, path, reason):
    choice = select(problem(100, 100, k), gpu(), DATABASE)
    assert choice.path == choice.config.family == path
    assert choice.reason.startswith(reason)


@pytest.mark.parametrize(("m", "n", "path"), [(447, 447, "direct"), (448, 1, "indirect"),
                                              (1, 448, "indirect")])  # fmt: skip
def test_a_threshold_on_the_larger_of_m_and_n(m, n, path):
    published = made_file([], NVIDIA, Threshold(m_or_n=448))
    choice = select(problem(m, n, 7), gpu(), a_database(published, GENERIC))
    assert choice.path == path
    side = "at least" if path == "indirect" else "below"
    assert choice.reason.startswith(f"max(m, n) = {max(m, n)} is {side} 448")


def test_of_two_thresholds_the_reason_names_what_decided():
    both = made_file([], NVIDIA, Threshold(mnk=10**6, m_or_n=448))
    database = a_database(both, GENERIC)
    assert select(problem(448, 1, 1), gpu(), database).reason.startswith("max(m, n) = 448 is at")
    below = select(problem(10, 10, 10), gpu(), database).reason
    assert below.startswith("m*n*k = 1000 is below 1.0e6 and max(m, n) = 10 is below 448")


def test_a_cpu_takes_the_cpu_path():
    choice = select(problem(2000, 2000, 2000), cpu(), DATABASE)
    assert (choice.path, choice.config, choice.level) == ("cpu", SQUARE, "generic")
    assert "a CPU takes the cpu path" in choice.reason


@pytest.mark.parametrize(
    ("m", "n", "config"),
    [(1, 1024, ROWS), (2, 700, ROWS), (900, 3000, SQUARE), (900, 50, NARROW), (900, 2, ROWS)],
)
def test_the_nearest_record_of_the_path_for_what_is_computed(m, n, config):
    assert select(problem(m, n, 1000), cpu(), DATABASE).config == config


@pytest.mark.parametrize("sizes", [(0, 5000, 5000), (5000, 0, 5000), (5000, 5000, 0), (0, 0, 0)])
def test_nothing_to_multiply_takes_the_smallest_direct_tile(sizes):
    choice = select(problem(*sizes), gpu(), DATABASE)
    assert (choice.path, choice.config) == ("direct", SMALL)
    assert choice.reason.endswith("needs no products, the smallest record is for 16x16x16")
    assert select(problem(*sizes), cpu(), DATABASE).config == ROWS


def test_without_a_threshold_the_direct_path_is_taken():
    silent = made_file([recorded("64x64x64", DIRECT)])
    choice = select(problem(10**4, 10**4, 10**4), gpu(), a_database(silent))
    assert choice.path == "direct"
    assert "no threshold of the indirect path is known" in choice.reason


TUNED = measured(
    [
        recorded("64x64x64", DIRECT),
        recorded("512x512x512", INDIRECT),
        recorded("4096x4096x4096", SMALL),
        recorded("64x64x65536", LARGE),
    ]
)


@pytest.mark.parametrize(
    ("sizes", "config", "shape"),
    [
        ((50, 70, 64), DIRECT, "64x64x64"),
        ((400, 700, 512), INDIRECT, "512x512x512"),
        ((5000, 3000, 4096), SMALL, "4096x4096x4096"),
        ((32, 64, 100_000), LARGE, "64x64x65536"),
    ],
)
def test_the_nearest_record_decides_where_the_paths_were_compared(sizes, config, shape):
    choice = select(problem(*sizes), gpu(), a_database(TUNED, GENERIC))
    assert (choice.path, choice.config, choice.level) == (config.family, config, "device")
    assert choice.reason == (
        f"the paths were timed against each other by shape, the nearest record is for {shape}"
    )


@pytest.mark.parametrize(
    ("text", "config", "record"),
    [
        ("90x5000x1085:NT", SMALL, "82x6626x1085:NT"),
        ("90x5000x1085", DIRECT, "82x6626x1085"),
        ("90x5000x1088", INDIRECT, "82x6626x1085 with rows aligned to 16"),
        ("90x5001x1088", DIRECT, "82x6626x1085"),
        ("5000x90x1085:TT", LARGE, "6626x82x1085:TT"),
    ],
)
def test_the_record_of_the_same_layout_and_alignment_is_the_nearest(text, config, record):
    tuned = measured(
        [
            recorded("82x6626x1085", INDIRECT, alignment=16),
            recorded("82x6626x1085:NT", SMALL),
            recorded("82x6626x1085", DIRECT),
            recorded("6626x82x1085:TT", LARGE),
        ]
    )
    wanted = GemmShape.parse(text).problem("float32")
    choice = select(wanted, gpu(), a_database(tuned, GENERIC))
    assert choice.config == config
    assert choice.reason.endswith(f", the nearest record is for {record}")


def test_a_threshold_in_the_file_itself_still_decides():
    own = measured([recorded("64x64x64", DIRECT), recorded("65x65x65", LARGE)], Threshold(mnk=1))
    choice = select(problem(64, 64, 64), gpu(), a_database(own, GENERIC))
    assert (choice.path, choice.reason.split(",")[0]) == (
        "indirect",
        "m*n*k = 2.6e5 is at least 1",
    )


def test_what_was_compared_but_does_not_fit_leaves_it_to_the_threshold_below():
    traits = gpu(local_memory_bytes=5000)
    own = measured([recorded("4096x4096x4096", LARGE)])
    choice = select(problem(4096, 4096, 4096), traits, a_database(own, GENERIC))
    assert (choice.config, choice.level) == (DIRECT, "generic")
    assert "m*n*k = 6.9e10 is at least 1.0e6" in choice.reason
    assert "passed over: NVIDIA H100 80GB HBM3's indirect for 4096x4096x4096" in choice.reason


def test_a_measured_file_for_a_cpu_changes_no_path():
    records = [recorded("9x9x9", DIRECT), recorded("1x1x1", NARROW)]
    own = measured(records, traits=cpu())
    choice = select(problem(9, 9, 9), cpu(), a_database(own, CPU_FILE))
    assert (choice.path, choice.config) == ("cpu", NARROW)


def test_nothing_to_multiply_takes_the_smallest_direct_tile_in_a_compared_file_too():
    choice = select(problem(0, 9, 9), gpu(), a_database(TUNED, GENERIC))
    assert (choice.path, choice.config) == ("direct", SMALL)


# -------------------------------------------------------------------------- levels


def test_a_level_without_a_record_of_the_path_leaves_it_to_the_next():
    vendor = made_file([recorded("1x1x1", DIRECT)], NVIDIA)
    database = a_database(vendor, GENERIC)
    large, small = problem(4000, 4000, 4000), problem(20, 20, 20)
    assert select(large, gpu(), database).level == "generic"
    choice = select(small, gpu(), database)
    assert (choice.level, choice.source) == ("vendor", "nvidia/gpu in db (a test)")


def test_the_choice_reads_as_a_sentence():
    choice = select(problem(4096, 4096, 4096), gpu(), DATABASE)
    assert str(choice) == (
        f"indirect, {LARGE}, from generic/gpu in db (a test), "
        "m*n*k = 6.9e10 is at least 1.0e6, the nearest record is for 4096x4096x4096"
    )


def test_what_the_device_cannot_run_is_passed_over_for_the_next_nearest():
    choice = select(problem(4096, 4096, 4096), gpu(local_memory_bytes=16 * 1024), DATABASE)
    assert choice.config == INDIRECT
    assert choice.reason.endswith(
        "passed over: generic/gpu's indirect for 4096x4096x4096 (the staged slabs must fit the "
        "device's local memory: 32768 bytes, limit 16384)"
    )


def test_then_for_the_next_level():
    vendor = made_file(
        [recorded("1x1x1", replace(LARGE, MDIMC=32, NDIMC=32))],
        NVIDIA,
        Threshold(mnk=1),
    )
    traits = gpu(max_work_group_size=256)
    choice = select(problem(64, 64, 64), traits, a_database(vendor, GENERIC))
    assert (choice.config, choice.level) == (INDIRECT, "generic")
    assert "1024 work-items, limit 256" in choice.reason


def test_then_for_the_other_path():
    choice = select(problem(4096, 4096, 4096), gpu(local_memory_bytes=5000), DATABASE)
    assert (choice.path, choice.config) == ("direct", DIRECT)
    assert "no configuration of the indirect path fits" in choice.reason


def test_nothing_fits_says_what_was_tried():
    with pytest.raises(UnsupportedError) as caught:
        select(problem(64, 64, 64), gpu(local_memory_bytes=100), DATABASE)
    message = str(caught.value)
    assert "no configuration for float32 by F32_F32_F32 fits 'NVIDIA H100 80GB HBM3'" in message
    assert message.count("limit 100") == 4


def test_no_entry_for_the_type():
    with pytest.raises(UnsupportedError, match=r"no database has an entry for this type \(cpu\)"):
        select(problem(64, 64, 64, "float64"), cpu(), DATABASE)


# -------------------------------------------------------------------------- a caller's config


@pytest.mark.parametrize("config", [SMALL, LARGE, SQUARE], ids=lambda config: config.family)
@pytest.mark.parametrize("traits", [gpu(), cpu()], ids=["gpu", "cpu"])
def test_a_callers_configuration_decides(config, traits):
    choice = select(problem(64, 64, 64), traits, DATABASE, config)
    assert (choice.path, choice.config, choice.level) == (config.family, config, "caller")
    as_dict = {"path": config.family, **config.as_dict()}
    assert select(problem(64, 64, 64), traits, DATABASE, as_dict) == choice
    assert str(choice).endswith("from the caller, as the argument config asks")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"MR": 6}, "a mapping with 'path'"),
        ({"path": "gpu"}, "path is 'gpu'; known paths are"),
        ({"path": "cpu", "MR": 6}, "CpuConfig lacks a parameter"),
        ("cpu", "config is 'cpu'; one of XgemmConfig, XgemmDirectConfig"),
        (replace(SQUARE, NR=40), "NR must be a multiple of VW: NR is 40, VW is 16"),
        (replace(LARGE, STAGES=2), "65536 bytes, limit 49152"),
    ],
)
def test_a_callers_bad_configuration(config, message):
    with pytest.raises(ConfigError, match=message):
        select(problem(64, 64, 64), gpu(), DATABASE, config)


# ------------------------------------------------------------------- few rows, not measured


@pytest.mark.parametrize(
    ("architecture", "dtype", "shape", "path"),
    [
        ("gfx1030", "float32", "1x4096x4096", "gemv"),
        ("gfx1030", "float32", "4096x3x512:TT", "gemv"),
        ("gfx1030", "float32", "5x4096x4096", "direct"),
        ("gfx1030", "float32", "1x4096x63", "direct"),  # too short for work-items along k
        ("sm_80", "float16", "1x4096x4096", "gemv_unit"),
        ("sm_80", "float16", "32x4096x4096:NT", "gemv_unit"),
        ("sm_80", "float16", "4096x8x4096", "gemv_unit"),
        ("sm_80", "float16", "3x4095x4095", "gemv"),  # no vectors of the larger operand
        ("sm_80", "float16", "9x4095x4095", "direct"),
        ("sm_80", "float16", "33x4096x4096", "matrix"),
        ("sm_80", "float64", "2x4096x4096", "gemv"),
        ("gfx1100", "bfloat16", "2x4096x4096", "gemv"),
    ],
)
def test_few_rows_where_nobody_compared_kernels(architecture, dtype, shape, path):
    choice = select(
        GemmShape.parse(shape).problem(dtype), typical_traits(architecture), load_database()
    )
    assert choice.path == path
    if path.startswith("gemv"):
        assert "the larger operand is read once" in choice.reason


def test_streamed_loads_are_passed_over_where_there_are_none():
    chosen = {
        name: select(
            GemmShape(1, 4096, 4096).problem("float32"), typical_traits(name), load_database()
        )
        for name in ("sm_70", "sm_75")
    }
    assert [choice.config.STREAMB for choice in chosen.values()] == [0, 1]
    assert "need NVIDIA's compute capability 7.5" in chosen["sm_70"].reason


# -------------------------------------------------------------------------- what ships


@given(sizes, sizes, sizes, st.sampled_from(DTYPES), devices)
def test_what_ships_gives_a_valid_choice_for_every_problem(m, n, k, dtype, traits):
    database = Database(load_database().groups[-1:])
    choice = select(problem(m, n, k, dtype), traits, database)
    assert violations(choice.config, dtype, traits) == []
    assert choice.path == choice.config.family
    assert (choice.path == "cpu") == (traits.type == "cpu")
