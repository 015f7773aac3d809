"""Path, configuration and packed layout: which record decides, and what a caller decides."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import violations
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.candidates import groups_of
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Threshold
from pyclgemm.selection.select import packed_layout, select
from tests.support.databases import (
    CPU_FILE,
    DATABASE,
    DIRECT,
    FLOAT16,
    FLOAT32,
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


def asked(text, types=("float32",)):
    return GemmShape.parse(text).problem(*types)


# -------------------------------------------------------------------------- path

BOTH = Threshold(mnk=10**6, m_or_n=448)


@pytest.mark.parametrize(
    ("threshold", "sizes", "path", "reason"),
    [
        (Threshold(mnk=10**6), (100, 100, 99), "direct", "m*n*k = 9.9e5 is below 1.0e6"),
        (Threshold(mnk=10**6), (100, 100, 100), "indirect", "m*n*k = 1000000 is at least 1000000"),
        (Threshold(mnk=10**6), (100, 100, 500), "indirect", "m*n*k = 5.0e6 is at least 1.0e6"),
        (Threshold(m_or_n=448), (447, 447, 7), "direct", "max(m, n) = 447 is below 448"),
        (Threshold(m_or_n=448), (448, 1, 7), "indirect", "max(m, n) = 448 is at least 448"),
        (Threshold(m_or_n=448), (1, 448, 7), "indirect", "max(m, n) = 448 is at least 448"),
        (BOTH, (448, 1, 1), "indirect", "max(m, n) = 448 is at least 448"),
        (BOTH, (10, 10, 10), "direct",
         "m*n*k = 1000 is below 1.0e6 and max(m, n) = 10 is below 448"),
        (Threshold(), (10**6, 10**6, 10**6), "direct", ""),
    ],
)  # fmt: skip
def test_a_threshold_decides_and_the_reason_names_what_did(threshold, sizes, path, reason):
    published = made_file([], NVIDIA, threshold)
    choice = select(problem(*sizes), gpu(), a_database(published, GENERIC))
    assert choice.path == choice.config.family == path
    assert choice.reason.startswith(f"{reason}, the nearest")


TUNED = measured(
    [
        recorded("64x64x64", DIRECT),
        recorded("512x512x512", INDIRECT),
        recorded("4096x4096x4096", SMALL),
        recorded("64x64x65536", LARGE),
    ]
)
VENDOR = made_file([recorded("1x1x1", DIRECT)], NVIDIA)
SILENT = made_file([recorded("64x64x64", DIRECT)])
OWN_CPU = measured([recorded("9x9x9", DIRECT), recorded("1x1x1", NARROW)], traits=cpu())
OWN_THRESHOLD = measured(
    [recorded("64x64x64", DIRECT), recorded("65x65x65", LARGE)], Threshold(mnk=1)
)
TOO_LARGE = measured([recorded("4096x4096x4096", LARGE)])
WIDE_GROUPS = made_file(
    [recorded("1x1x1", replace(LARGE, MDIMC=32, NDIMC=32))], NVIDIA, Threshold(mnk=1)
)
FOUR = "4096x4096x4096"
EMPTY = "needs no products, the smallest record is for 16x16x16"
COMPARED = "the paths were timed against each other by shape, the nearest record is for"


@pytest.mark.parametrize(
    ("files", "traits", "sizes", "config", "level", "words"),
    [
        # The nearest record of a CPU's path, for what is computed: narrow results' transposes.
        ([CPU_FILE], cpu(), "2000x2000x2000", SQUARE, "generic", "a CPU takes the cpu path"),
        ([CPU_FILE], cpu(), "1x1024x1000", ROWS, "generic", ""),
        ([CPU_FILE], cpu(), "2x700x1000", ROWS, "generic", ""),
        ([CPU_FILE], cpu(), "900x3000x1000", SQUARE, "generic", ""),
        ([CPU_FILE], cpu(), "900x50x1000", NARROW, "generic", ""),
        ([CPU_FILE], cpu(), "900x2x1000", ROWS, "generic", "rows and columns are exchanged"),
        ([OWN_CPU, CPU_FILE], cpu(), "9x9x9", NARROW, "device", ""),
        ([CPU_FILE], cpu(), (0, 5000, 5000), ROWS, "generic", ""),
        ([CPU_FILE], cpu(), (5000, 5000, 0), ROWS, "generic", ""),
        # Nothing to multiply.
        ([GENERIC], gpu(), (0, 5000, 5000), SMALL, "generic", EMPTY),
        ([GENERIC], gpu(), (5000, 0, 5000), SMALL, "generic", EMPTY),
        ([GENERIC], gpu(), (5000, 5000, 0), SMALL, "generic", EMPTY),
        ([TUNED, GENERIC], gpu(), (0, 9, 9), SMALL, "device", ""),
        # Levels; whose paths were compared decides by record.
        ([SILENT], gpu(), "9999x9999x9999", DIRECT, "generic",
         "no threshold of the indirect path is known"),
        ([VENDOR, GENERIC], gpu(), "4000x4000x4000", LARGE, "generic", ""),
        ([VENDOR, GENERIC], gpu(), "20x20x20", DIRECT, "vendor", "from nvidia/gpu in db (a test)"),
        ([TUNED, GENERIC], gpu(), "50x70x64", DIRECT, "device", f"{COMPARED} 64x64x64"),
        ([TUNED, GENERIC], gpu(), "400x700x512", INDIRECT, "device", f"{COMPARED} 512x512x512"),
        ([TUNED, GENERIC], gpu(), "5000x3000x4096", SMALL, "device", f"{COMPARED} {FOUR}"),
        ([TUNED, GENERIC], gpu(), "32x64x100000", LARGE, "device", f"{COMPARED} 64x64x65536"),
        ([OWN_THRESHOLD, GENERIC], gpu(), "64x64x64", LARGE, "device",
         "m*n*k = 2.6e5 is at least 1,"),
        # What the device cannot run is passed over for the next nearest, level or path.
        ([GENERIC], gpu(local_memory_bytes=16 * 1024), FOUR, INDIRECT, "generic",
         "passed over: generic/gpu's indirect for 4096x4096x4096 (the staged slabs must fit the "
         "device's local memory: 32768 bytes, limit 16384)"),
        ([WIDE_GROUPS, GENERIC], gpu(max_work_group_size=256), "64x64x64", INDIRECT, "generic",
         "1024 work-items, limit 256"),
        ([GENERIC], gpu(local_memory_bytes=5000), FOUR, DIRECT, "generic",
         "no configuration of the indirect path fits"),
        ([TOO_LARGE, GENERIC], gpu(local_memory_bytes=5000), FOUR, DIRECT, "generic",
         "m*n*k = 6.9e10 is at least 1.0e6"),
        ([TOO_LARGE, GENERIC], gpu(local_memory_bytes=5000), FOUR, DIRECT, "generic",
         "passed over: NVIDIA H100 80GB HBM3's indirect for 4096x4096x4096"),
    ],
)  # fmt: skip
def test_what_is_taken_and_why(files, traits, sizes, config, level, words):
    wanted = asked(sizes) if isinstance(sizes, str) else problem(*sizes)
    choice = select(wanted, traits, a_database(*files))
    assert (choice.path, choice.config, choice.level) == (config.family, config, level)
    assert words in str(choice)
    assert choice.reason == words or not words.startswith(COMPARED)


def test_the_choice_reads_as_a_sentence():
    choice = select(problem(4096, 4096, 4096), gpu(), DATABASE)
    assert str(choice) == (
        f"indirect, {LARGE}, from generic/gpu in db (a test), "
        "m*n*k = 6.9e10 is at least 1.0e6, the nearest record is for 4096x4096x4096"
    )


def test_nothing_fits_says_what_was_tried():
    with pytest.raises(UnsupportedError) as caught:
        select(problem(64, 64, 64), gpu(local_memory_bytes=100), DATABASE)
    message = str(caught.value)
    assert "no configuration for float32 by F32_F32_F32 fits 'NVIDIA H100 80GB HBM3'" in message
    assert message.count("limit 100") == 4
    with pytest.raises(UnsupportedError, match=r"no database has an entry for this type \(cpu\)"):
        select(problem(64, 64, 64, "float64"), cpu(), DATABASE)


# -------------------------------------------------------------------------- whose record

MINE, SHIPPED = DIRECT, replace(DIRECT, KWID=4)
GEMV, FEW = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=1), GemvConfig(MR=1, WGS=128, LANES_N=8, VW=1)
UNITS, OTHER_UNITS = (MatrixConfig(32, 32, 16, 1, 1, STAGES=stages) for stages in (2, 3))
TF32 = ("float32", "TF32_TF32_F32")
CPU_SMALL, CPU_LARGE = (
    CpuConfig(MR=6, NR=32, KC=64, VW=16), CpuConfig(MR=6, NR=64, KC=512, VW=16)
)  # fmt: skip
SHIPPED_RECORDS = [
    ("1024x1024x1024", SHIPPED), ("1500x1500x1024", SHIPPED), ("2048x2048x2048", SHIPPED),
    ("1x2000x2000", GEMV),
]  # fmt: skip
SQUARES = [("8x64x64", MINE), ("1024x1024x1024", MINE)]
ROW = [("1x64x64", GEMV), ("1024x1024x1024", MINE)]


@pytest.mark.parametrize(
    ("text", "config", "kinds", "mine", "theirs"),
    [
        # Who tuned one shape takes for others what ships, unless that is an octave off.
        ("1024x1024x1024", MINE, "measured", SQUARES[1:], SHIPPED_RECORDS),
        ("1500x1500x1024", MINE, "measured", SQUARES[1:], SHIPPED_RECORDS),
        ("2048x2048x2048", SHIPPED, "measured", SQUARES[1:], SHIPPED_RECORDS),
        ("1x4096x4096", GEMV, "measured", SQUARES[1:], SHIPPED_RECORDS),
        ("8192x8192x8192", SHIPPED, "measured", SQUARES[1:], SHIPPED_RECORDS),
        # Files that were not measured are asked one after the other.
        ("2048x2048x2048", MINE, "measured default", SQUARES[:1], SHIPPED_RECORDS),
        ("2048x2048x2048", MINE, "published default", SQUARES[:1], SHIPPED_RECORDS),
        # Who tuned squares alone takes kernels for few rows, far from what was measured.
        ("1x4096x4096", FEW, "measured default", SQUARES, [("1x1024x1024", FEW)]),
        ("4x700x700", FEW, "measured default", SQUARES, [("1x1024x1024", FEW)]),
        ("5x700x700", MINE, "measured default", SQUARES, [("1x1024x1024", FEW)]),
        ("4x64x64", MINE, "measured default", SQUARES, [("1x1024x1024", FEW)]),
        ("4x700x63", MINE, "measured default", SQUARES, [("1x1024x1024", FEW)]),
        ("4x4096x4096", GEMV, "measured default", ROW, [("4x4096x4096", FEW)]),
    ],
)  # fmt: skip
def test_whose_record_is_taken(text, config, kinds, mine, theirs):
    own, other = (
        made_file([recorded(*record) for record in records], name=kind, kind=kind)
        for kind, records in zip((kinds + " measured").split(), (mine, theirs), strict=False)
    )
    assert select(asked(text), gpu(), Database(((own,), (other,)))).config == config


@pytest.mark.parametrize(
    ("types", "traits", "mine", "theirs"),
    [
        (FLOAT32, gpu(), MINE, SHIPPED),
        (TF32, typical_traits("sm_80"), UNITS, OTHER_UNITS),
        (FLOAT32, cpu(), CPU_SMALL, CPU_LARGE),
    ],
)
def test_what_ships_is_taken_beside_a_users_own_in_every_family(types, traits, mine, theirs):
    configs = {"64x64x64": mine, "2048x2048x2048": theirs}
    groups = [
        (made_file([recorded(text, config)], traits.type, kind="measured", types=types),)
        for text, config in configs.items()
    ]
    for text, config in configs.items():
        wanted, database = asked(text, types), Database(tuple(groups))
        assert select(wanted, traits, database).config == config
        assert choose(wanted, traits, database, config.family).config == config


def test_groups_end_where_paths_were_not_compared():
    records = [recorded("64x64x64", MINE)]
    own, shipped = (made_file(records, name=name, kind="measured") for name in "ab")
    threshold = made_file(records, threshold=Threshold(mnk=1), kind="measured")
    files = (own, shipped, threshold, shipped, made_file(records))
    hits = [(one, one.entries[0]) for one in files]
    assert groups_of(hits) == [hits[:2], hits[2:3], hits[3:4], hits[4:]]
    assert groups_of(hits[4:]) == [hits[4:]]
    assert groups_of([]) == []


# -------------------------------------------------------------------------- batches

ALONE, OWN = recorded("128x128x128", INDIRECT), recorded("128x128x128*256", DIRECT)
FILLING = recorded("2048x2048x128", LARGE)
WITH_THRESHOLD = [recorded("64x64x64", LARGE), recorded("128x128x128*256", LARGE)]
SMALL_BATCH = SmallConfig(MWI=4, NWI=4, WGS=64)
TUNED_SMALL = made_file(
    [recorded("64x64x64", SMALL_BATCH), recorded("64x64x64*10000", UNITS)],
    kind="measured", types=FLOAT16,
)  # fmt: skip
OF_UNITS = [recorded("256x256x256", UNITS), recorded("256x256x256*99", OTHER_UNITS)]
CPU_BATCH = measured([recorded("1024x1024x1024*50", NARROW)], traits=cpu())
BOTH_KINDS = [measured([ALONE, OWN, FILLING]), GENERIC]
A_BATCH = "a batch near it was tuned, the nearest record is for 128x128x128*256"


@pytest.mark.parametrize(
    ("files", "traits", "text", "config", "words"),
    [
        # A batch takes the record of a batch, and a single product never does.
        (BOTH_KINDS, gpu(), "128x128x128", INDIRECT, "record is for 128x128x128"),
        (BOTH_KINDS, gpu(), "128x128x128*100", DIRECT, A_BATCH),
        (BOTH_KINDS, gpu(), "128x128x128*5000", DIRECT, A_BATCH),
        # A few of them fill no device.
        (BOTH_KINDS, gpu(), "128x128x128*2", INDIRECT,
         "record is for 128x128x128, a single product"),
        (BOTH_KINDS, gpu(), "600x600x600*256", LARGE, ""),
        ([measured([OWN]), GENERIC], gpu(), "128x128x128", INDIRECT, "from generic/gpu"),
        # Of another layout, only where operands are packed.
        ([measured([OWN]), GENERIC], gpu(), "128x128x128:NT*256", LARGE, "from generic/gpu"),
        ([measured([recorded("128x128x128*256", INDIRECT)]), GENERIC], gpu(),
         "128x128x128:NT*256", INDIRECT, "from NVIDIA"),
        # It needs no threshold, and leaves that of single products.
        ([measured(WITH_THRESHOLD, Threshold(mnk=10**9)), GENERIC], gpu(), "120x128x128*256",
         LARGE, "128x128x128*256"),
        ([measured(WITH_THRESHOLD, Threshold(mnk=10**9)), GENERIC], gpu(), "120x128x128",
         DIRECT, "is below 1.0e9"),
        ([CPU_BATCH, CPU_FILE], cpu(), "1000x1024x1024*40", NARROW, ""),
        ([CPU_BATCH, CPU_FILE], cpu(), "1024x1024x1024", SQUARE, ""),
        ([CPU_BATCH, CPU_FILE], cpu(), "4x1024x1024*40", ROWS, "from generic/cpu"),
        # Small products take matrix units where those were faster at a size near enough.
        ([TUNED_SMALL], typical_traits("sm_90"), "64x64x64*10000", UNITS, ""),
        ([TUNED_SMALL], typical_traits("sm_90"), "56x56x56*5000", UNITS, ""),
        ([TUNED_SMALL], typical_traits("sm_90"), "16x16x16*10000", SMALL_BATCH, ""),
        ([TUNED_SMALL], typical_traits("sm_90"), "64x64x64*32", SMALL_BATCH, ""),
        ([made_file(OF_UNITS, types=TF32)], typical_traits("sm_90"), "256x256x256", UNITS, ""),
        ([made_file(OF_UNITS, types=TF32)], typical_traits("sm_90"), "256x256x256*50",
         OTHER_UNITS, ""),
    ],
)  # fmt: skip
def test_batches_take_their_own_records_first(files, traits, text, config, words):
    (types,) = {entry.name for file in files[:1] for entry in file.entries}
    choice = select(asked(text, types), traits, a_database(*files))
    assert choice.config == config
    assert words in str(choice)


def test_a_batch_takes_records_of_batches_by_a_path_that_is_asked_for_too():
    records = [recorded("16x16x16", DIRECT), recorded("256x256x256*99", SMALL)]
    for text, config in (("256x256x256", DIRECT), ("256x256x256*50", SMALL)):
        database = a_database(made_file(records))
        assert choose(asked(text), typical_traits("sm_90"), database, "direct").config == config


# -------------------------------------------------------------------------- a caller's config


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


@pytest.mark.parametrize(
    ("config", "packed", "message"),
    [
        ({"MR": 6}, None, "a mapping with 'path'"),
        ({"path": "gpu"}, None, "path is 'gpu'; known paths are"),
        ({"path": "cpu", "MR": 6}, None, "CpuConfig lacks a parameter"),
        ("cpu", None, "config is 'cpu'; one of XgemmConfig, XgemmDirectConfig"),
        (replace(SQUARE, NR=40), None, "NR must be a multiple of VW: NR is 40, VW is 16"),
        (replace(LARGE, STAGES=2), None, "65536 bytes, limit 49152"),
        # One that cannot read the packed b.
        (replace(SQUARE, NR=32), panels(512, 64),
         "which cannot read b as it was packed: panels that want a CpuConfig with NR=64 and KC=51"),
        (LARGE, panels(512, 64), "panels that want a CpuConfig"),
        (SQUARE, padded(512, 64), "a padded row-major matrix, which wants an XgemmConfig"),
    ],
)  # fmt: skip
def test_a_callers_bad_configuration(config, packed, message):
    with pytest.raises(ConfigError, match=message):
        select(problem(64, 64, 64, packed=packed), gpu(), DATABASE, config)


# -------------------------------------------------------------------------- what ships


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
    choice = select(asked(shape, (dtype,)), typical_traits(architecture), load_database())
    assert choice.path == path
    assert not path.startswith("gemv") or "the larger operand is read once" in choice.reason


@pytest.mark.parametrize(
    ("architecture", "streamed", "words"),
    [("sm_70", 0, "need NVIDIA's compute capability 7.5"), ("sm_75", 1, "")],
)
def test_streamed_loads_are_passed_over_where_there_are_none(architecture, streamed, words):
    choice = select(asked("1x4096x4096"), typical_traits(architecture), load_database())
    assert streamed == choice.config.STREAMB
    assert words in choice.reason


@given(sizes, sizes, sizes, st.sampled_from(DTYPES), devices)
def test_what_ships_gives_a_valid_choice_for_every_problem(m, n, k, dtype, traits):
    database = Database(load_database().groups[-1:])
    choice = select(problem(m, n, k, dtype), traits, database)
    assert violations(choice.config, dtype, traits) == []
    assert choice.path == choice.config.family
    assert (choice.path == "cpu") == (traits.type == "cpu")


# -------------------------------------------------------------------------- b that is packed


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
    own, shipped = (
        made_file([recorded(text, config)], "cpu", kind="measured")
        for text, config in (("64x64x64", CPU_SMALL), ("2048x2048x2048", CPU_LARGE))
    )
    assert layout(2048, 2048, cpu(), Database(((own,), (shipped,)))) == panels(512, 64)


def test_no_layout_without_a_record():
    with pytest.raises(UnsupportedError, match="no database has a record of the indirect path"):
        layout(64, 64, gpu(), a_database(CPU_FILE))


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
def test_k_is_contiguous_where_units_want_it(architecture, dtype, precision, along_k):
    precision = resolve_precision(precision, dtype)
    found = packed_layout(512, 512, dtype, precision, typical_traits(architecture), load_database())
    assert found.along_k == along_k


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
