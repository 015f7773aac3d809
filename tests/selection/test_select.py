"""The choice of path, configuration and packed layout: measured, predicted, or the caller's."""

import itertools
import re
from dataclasses import replace
from functools import partial

import pytest

from pyclgemm import CpuConfig
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.registry import families_with, family_of
from pyclgemm.problem.precision import UNIT_DTYPES, resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Threshold
from pyclgemm.selection.select import alternatives, packed_layout, select
from tests.support import databases as db
from tests.support.checks import raises
from tests.support.databases import DIRECT, LARGE, SMALL, SQUARE, a_database, measured
from tests.support.facts import cpu, gpu, problem, problem_of, recorded

GENERIC = db.made_file(
    [recorded("64x64x64", db.INDIRECT), recorded("4096x4096x4096", LARGE),
     recorded("512x512x512", DIRECT), recorded("16x16x16", SMALL)],
    threshold=Threshold(mnk=10**6),
)  # fmt: skip
CPU_FILE = db.made_file(
    [recorded("1x1024x1024", db.ROWS), recorded("1024x1024x1024", SQUARE),
     recorded("1024x32x1024", db.NARROW)],
    "cpu",
)  # fmt: skip
DATABASE = a_database(GENERIC, CPU_FILE)
BOTH = Threshold(mnk=10**6, m_or_n=448)


@pytest.mark.parametrize(
    ("threshold", "sizes", "path", "reason"),
    [
        (Threshold(mnk=10**6), (100, 100, 99), "direct", "m*n*k = 9.9e5 is below 1.0e6"),
        (Threshold(mnk=10**6), (100, 100, 100), "indirect", "m*n*k = 1000000 is at least 1000000"),
        (Threshold(mnk=10**6), (100, 100, 500), "indirect", "m*n*k = 5.0e6 is at least 1.0e6"),
        (Threshold(m_or_n=448), (447, 447, 7), "direct", "max(m, n) = 447 is below 448"),
        (Threshold(m_or_n=448), (448, 5, 7), "indirect", "max(m, n) = 448 is at least 448"),
        (Threshold(m_or_n=448), (5, 448, 7), "indirect", "max(m, n) = 448 is at least 448"),
        (BOTH, (448, 5, 1), "indirect", "max(m, n) = 448 is at least 448"),
        (BOTH, (10, 10, 10), "direct",
         "m*n*k = 1000 is below 1.0e6 and max(m, n) = 10 is below 448"),
        # Of other paths the predicted time decides.
        (Threshold(m_or_n=448), (1, 4096, 4096), "gemv", "max(m, n) = 4096 is at least 448"),
    ],
)  # fmt: skip
def test_a_threshold_decides_and_the_reason_names_it(threshold, sizes, path, reason):
    records = [recorded("1024x1024x1024", db.INDIRECT), recorded("256x256x256", DIRECT)]
    published = db.made_file(records, db.NVIDIA, threshold, kind="published")
    choice = select(problem(*sizes), gpu(), a_database(published, GENERIC))
    assert choice.path == choice.config.family == path
    assert choice.reason.startswith(f"{reason}, ")
    assert path == "gemv" or choice.config in (db.INDIRECT, DIRECT)
    # The path that it decides against comes last.
    assert choice.alternatives[-1].config == (DIRECT if "at least" in reason else db.INDIRECT)


def test_a_threshold_takes_paths_of_other_files_and_gives_way_to_measured_files():
    records = [recorded("1024x1024x1024", db.INDIRECT)]
    published = db.made_file(records, db.NVIDIA, Threshold(mnk=10**6))
    assert select(problem(64, 64, 64), gpu(), a_database(published, GENERIC)).path == "direct"
    own = measured([recorded("64x64x64", LARGE)])
    choice = select(problem_of("64x64x64"), gpu(), a_database(own, GENERIC))
    assert choice.config == LARGE and "at least" not in choice.reason


@pytest.mark.parametrize(
    ("record", "text"),
    [
        *((one, one) for one in ("50x70x64", "50x70x64:NT", "128x128x128*256", "64x64x65536")),
        ("1x700x64", "1x700x64:TN"),  # a single row is the same memory in both layouts
    ],
)
def test_the_configuration_that_was_measured_on_a_product_is_taken(record, text):
    # Predictions would take neither: a tile of 16 x 16 for a large product, one of 128 for a row.
    for config in (SMALL, LARGE):
        own = measured([recorded(record, config, 12.5), recorded("2048x2048x2048", DIRECT, 1e4)])
        choice = select(problem_of(text), gpu(), a_database(own, GENERIC))
        assert (choice.config, choice.level) == (config, "device")
        assert choice.reason == "measured on this very product: 12.5 GFLOPS"
        assert choice.seconds == pytest.approx(problem_of(text).flops / 12.5e9)


@pytest.mark.parametrize("text", ["50x70x65", "50x70x64:TT", "50x70x64*2", "50x70x64+1"])
def test_for_another_product_a_measured_configuration_is_one_of_many(text):
    own = measured([recorded("50x70x64", LARGE, 12.5)])
    choice = select(problem_of(text), gpu(), a_database(own, GENERIC))
    assert "measured" not in choice.reason and choice.config != LARGE


def test_the_users_own_record_comes_before_one_that_ships():
    records = (recorded("64x64x64", SMALL, 5.0), recorded("64x64x64", LARGE, 500.0))
    groups = tuple((measured([record]),) for record in records)
    assert select(problem_of("64x64x64"), gpu(), Database(groups)).config == SMALL


@pytest.mark.parametrize("architecture", ["sm_90", "sm_80", "gfx1100", "intel_gpu", "x86-64-v3"])
@pytest.mark.parametrize("text", ["1x4096x4096", "1024x1024x1024", "4096x24x512:TT"])
def test_alternatives_are_in_the_order_of_their_predicted_times(architecture, text):
    wanted, traits, database = problem_of(text), typical_traits(architecture), load_database()
    choice = select(wanted, traits, database)
    predicted = [one for one in choice.alternatives if "measured" not in one.reason]
    assert len({one.config for one in choice.alternatives}) == len(choice.alternatives) > 10
    # Doubt about configurations that were not measured nearby may exchange neighbours.
    times = [one.seconds for one in predicted]
    assert all(after > 0.8 * max(times[: i + 1]) for i, after in enumerate(times))
    assert alternatives(wanted, traits, database, 1) == [choice]
    # Only the configuration of the least predicted time claims it.
    least = min(one.seconds for one in [choice, *predicted] if "predicted" in one.reason)
    numbers = []
    for one in predicted:
        assert one.seconds == least or "the least of" not in one.reason
        numbers += map(int, re.findall(r"predicted, number (\d+) with doubts", one.reason))
    assert numbers == sorted(set(numbers)) and len(numbers) >= len(predicted) - 1


@pytest.mark.parametrize(
    ("architecture", "dtype", "text", "families"),
    [
        ("gfx1030", "float32", "1x4096x4096", {"gemv"}),
        ("gfx1030", "float32", "4096x1x4096:TT", {"gemv"}),
        ("gfx1030", "float32", "4096x4096x4096", {"direct", "indirect"}),
        ("sm_80", "float16", "1x4096x4096", {"gemv", "gemv_unit"}),
        ("sm_80", "float16", "4096x4096x4096", {"matrix"}),
        ("gfx1100", "bfloat16", "2048x2048x2048", {"matrix"}),
        ("sm_90", "float16", "8192x8192x8192", {"wgmma"}),
        ("sm_90", "float32", "16x16x16*20000", {"small"}),
        ("x86-64-v3", "float32", "8x8x8*20000", {"small_cpu"}),
        *((name, dtype, text, families) for name in ("sm_80", "sm_90", "gfx1100", "gfx942")
          for dtype in UNIT_DTYPES for text, families in (
              ("4096x4096x4096", {"matrix", "wgmma"}),
              # Unaligned elements, which units read after they were packed.
              ("3x5x7:TN", {"direct", "gemv"}), ("8x8x8*20000", {"small"}))),
        *((name, *row) for name in ("gfx1100", "gfx1200", "gfx90a", "gfx942") for row in (
            ("float16", "1024x1024x1024", {"matrix"}), ("float16", "8x8x8", {"direct", "gemv"}),
            # Units compute no float32 unless a precision asks for it.
            ("float32", "1024x1024x1024", {"direct", "indirect"}))),
    ],
)  # fmt: skip
def test_a_product_gets_a_family_that_suits_it(architecture, dtype, text, families):
    choice = select(problem_of(text, dtype), typical_traits(architecture), load_database())
    assert choice.path in families


def test_streamed_loads_are_candidates_only_where_the_device_has_them():
    for architecture, values in (("sm_70", {0}), ("sm_75", {0, 1})):
        traits = typical_traits(architecture)
        found = alternatives(problem_of("1x4096x4096"), traits, load_database())
        assert {one.config.STREAMB for one in found if one.path == "gemv"} == values


@pytest.mark.parametrize("sizes", [(0, 5000, 5000), (5000, 0, 5000), (5000, 5000, 0)])
def test_a_product_without_multiplications_takes_a_small_tile(sizes):
    choice = select(problem(*sizes), gpu(), DATABASE)
    assert "needs no products" in choice.reason
    taken, small = (family_of(one).tile(one) for one in (choice.config, SMALL))
    assert taken.rows * taken.columns <= small.rows * small.columns


def test_the_error_where_nothing_fits_names_what_was_tried():
    with raises(UnsupportedError, "limit 16", "no configuration for float32 by F32_F32_F32 fits",
                "'NVIDIA H100 80GB HBM3'"):  # fmt: skip
        tiny = gpu(local_memory_bytes=16, max_work_group_size=1)
        select(problem(64, 64, 64), tiny, DATABASE)
    with raises(UnsupportedError, "no database has an entry for this type (cpu)"):
        select(problem(64, 64, 64, "float64"), cpu(), DATABASE)


def test_a_product_that_a_configuration_refuses_takes_the_next():
    text, traits = "1024x1024x1024*64", gpu(max_allocation_bytes=2**20)
    # A packed operand of the batch exceeds a buffer.
    database = a_database(measured([recorded(text, LARGE, 1.0)]), GENERIC)
    assert select(problem_of(text), traits, database).path != "indirect"


panels, padded = (partial(PackedLayout, form) for form in ("panels", "padded"))


@pytest.mark.parametrize(
    ("config", "traits", "packed"),
    [
        *itertools.product([SMALL, LARGE, SQUARE], [gpu(), cpu()], [None]),
        (SQUARE, cpu(), panels(512, 64)),
        (DIRECT, gpu(), padded(512, 64)),
    ],
)
def test_a_callers_configuration_decides(config, traits, packed):
    wanted = problem(64, 64, 64, packed=packed)
    choice = select(wanted, traits, DATABASE, config)
    assert (choice.path, choice.config, choice.level) == (config.family, config, "caller")
    as_dict = {"path": config.family, **config.as_dict()}
    assert select(wanted, traits, DATABASE, as_dict) == choice
    assert str(choice).endswith("from the caller, as the argument config asks")
    assert choice.alternatives == ()


@pytest.mark.parametrize(
    ("config", "packed", "message"),
    [
        ({"MR": 6}, None, "a mapping with 'path'"),
        ({"path": "gpu"}, None, "path is 'gpu'; known paths are"),
        ({"path": "cpu", "MR": 6}, None, "CpuConfig lacks a parameter"),
        ("cpu", None, "config is 'cpu'; one of XgemmConfig, XgemmDirectConfig"),
        (replace(SQUARE, NR=40), None, "NR must be a multiple of VW: NR is 40, VW is 16"),
        (replace(LARGE, STAGES=2), None, "65536 bytes, limit 49152"),
        # Configurations that cannot read the packed b.
        (replace(SQUARE, NR=32), panels(512, 64),
         "which cannot read b as it was packed: panels that want a CpuConfig with NR=64 and KC=51"),
        (LARGE, panels(512, 64), "panels that want a CpuConfig"),
        (SQUARE, padded(512, 64), "a padded row-major matrix, which wants an XgemmConfig"),
    ],
)  # fmt: skip
def test_a_callers_bad_configuration(config, packed, message):
    with pytest.raises(ConfigError, match=message):
        select(problem(64, 64, 64, packed=packed), gpu(), DATABASE, config)


@pytest.mark.parametrize("family", [family.name for family in families_with()])
def test_a_path_that_is_asked_for_is_taken(family):
    types = ("float16",) if "unit" in family or family in ("matrix", "wgmma") else ("float32",)
    wanted = problem_of("64x64x64*99", *types)
    assert choose(wanted, typical_traits("sm_90"), load_database(), family).path == family


@pytest.mark.parametrize("config", [SMALL, DIRECT])
def test_a_path_that_is_asked_for_takes_its_measured_configuration(config):
    own = measured([recorded("512x512x512", LARGE, 9.0), recorded("512x512x512", config, 5.0)])
    choice = choose(problem_of("512x512x512"), gpu(), a_database(own, GENERIC), "direct")
    assert choice.config == config


ON_CPU = measured([recorded("9x9x9", one) for one in (SQUARE, db.NARROW, db.ROWS)], None, cpu())


@pytest.mark.parametrize("m", [1, 12, 1000])
@pytest.mark.parametrize("packed", [panels(512, 64), panels(512, 32), panels(128, 48)])
def test_the_choice_reads_panels_as_they_were_packed(m, packed):
    database = a_database(ON_CPU, CPU_FILE)
    config = select(problem(m, 1024, 1024, packed=packed), cpu(), database).config
    assert (packed.width, packed.depth_block) == (config.NR, config.KC)


def test_a_measured_configuration_that_is_adapted_to_other_panels_was_not_measured():
    wide = CpuConfig(MR=6, NR=64, KC=512, VW=16)
    narrow = CpuConfig(MR=6, NR=32, KC=512, VW=8)  # with 64 columns its sums want 48 registers
    own = measured([recorded("64x640x640", narrow, 99.0), recorded("9x9x9", wide)], None, cpu())
    plain = problem_of("64x640x640")

    def choice(packed):
        return select(replace(plain, packed=packed), cpu(), a_database(own))

    other, its_own = choice(panels(512, 64)), choice(panels(512, 32))
    assert other.config == wide and "predicted" in other.reason
    assert its_own.config == narrow and "measured on this very product" in its_own.reason


def test_few_rows_of_a_packed_b_take_few_rows_of_a_tile():
    tall, flat = CpuConfig(MR=8, NR=64, KC=512, VW=16), CpuConfig(MR=1, NR=32, KC=64, VW=16)
    database = a_database(measured([recorded("9x9x9", one) for one in (tall, flat)], None, cpu()))
    rows = {
        m: select(problem(m, 640, 640, packed=panels(512, 64)), cpu(), database).config.MR
        for m in (1, 640)
    }
    assert rows[1] == 1 and rows[640] >= 6


def test_a_packed_b_that_no_configuration_reads_is_refused():
    only = db.made_file([recorded("1x1x1", SQUARE)], "cpu")
    configs = [CpuConfig(MR=rows, NR=64, KC=256, VW=16) for rows in range(1, 17)]
    many = measured([recorded("9x9x9", config) for config in configs], None, cpu())
    for traits, packed, words in (
        (cpu(), panels(128, 40), "NR must be a multiple of VW: NR is 40, VW is 16"),
        (cpu(), padded(16, 64), "packed for a GPU, and 'AMD EPYC' is a CPU"),
        (gpu(), panels(16, 64), "packed for a CPU, and 'NVIDIA H100"),
    ):
        with raises(UnsupportedError, words):
            select(problem(1, 9, 9, packed=packed), traits, a_database(many, only, GENERIC))


def layout(n, k, traits, database=DATABASE):
    return packed_layout(n, k, "float32", resolve_precision(None, "float32"), traits, database)


def test_b_is_packed_as_products_with_many_rows_read_it():
    database = a_database(ON_CPU, CPU_FILE)
    wanted = select(problem(4096, 1024, 1024), cpu(), database).config
    assert layout(1024, 1024, cpu(), database) == panels(wanted.KC, wanted.NR)
    with pytest.raises(UnsupportedError, match="no database has a record of the indirect path"):
        layout(64, 64, gpu(), a_database(CPU_FILE))


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (1000, 1000), (64, 16), (65, 33), (0, 0)])
def test_padding_is_to_powers_of_two_and_costs_at_most_an_eighth(n, k):
    found = layout(n, k, gpu())
    for extent, block in ((n, found.width), (k, found.depth_block)):
        assert block & (block - 1) == 0
        assert -(-extent // block) * block <= 1.125 * (extent + 16)


@pytest.mark.parametrize(
    ("architecture", "dtype", "precision", "along_k"),
    [
        ("sm_90", "float16", None, False), ("sm_90", "float32", None, False),
        ("sm_90", "bfloat16", None, False),  # ldmatrix transposes elements of two bytes
        ("sm_90", "float64", None, False), ("sm_90", "float32", "TF32_TF32_F32", True),
        ("sm_90", "int8", None, True), ("sm_70", "float16", None, False),
        ("gfx1100", "float16", None, True), ("gfx1100", "bfloat16", None, True),
        ("gfx90a", "float64", None, False), ("gfx1030", "float16", None, False),
    ],
)  # fmt: skip
def test_packed_rows_lie_along_k_where_units_read_along_k(architecture, dtype, precision, along_k):
    precision = resolve_precision(precision, dtype)
    found = packed_layout(512, 512, dtype, precision, typical_traits(architecture), load_database())
    assert found.along_k == along_k
