"""Which record a batch takes, and which a single product."""

from pyclgemm.device.traits import typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Entry, Threshold
from pyclgemm.selection.select import packed_layout, select
from tests.support.databases import (
    CPU_FILE,
    DIRECT,
    FLOAT16,
    GENERIC,
    INDIRECT,
    LARGE,
    NARROW,
    ROWS,
    SMALL,
    SQUARE,
    a_database,
    file_of,
    made_file,
    measured,
)
from tests.support.facts import cpu, gpu, problem, recorded


def test_a_batch_takes_the_record_of_a_batch_and_a_single_product_never_does():
    """Whatever lies nearer, and in whichever order they stand."""
    alone, own = recorded("128x128x128", INDIRECT), recorded("128x128x128*256", DIRECT)
    filling = recorded("2048x2048x128", LARGE)
    for records in ([alone, own, filling], [filling, own, alone]):
        database = a_database(measured(records), GENERIC)
        single = select(problem(128, 128, 128), gpu(), database)
        assert (single.config, "record is for 128x128x128" in single.reason) == (INDIRECT, True)
        for count in (100, 256, 5000):
            choice = select(problem(128, 128, 128, batch=count), gpu(), database)
            assert choice.config == DIRECT
            assert choice.reason == (
                "a batch near it was tuned, the nearest record is for 128x128x128*256"
            )
        # A few of them fill no device, as 256 of them do.
        few = select(problem(128, 128, 128, batch=2), gpu(), database)
        assert few.config == INDIRECT
        assert few.reason.endswith("the nearest record is for 128x128x128, a single product")
        far = select(problem(600, 600, 600, batch=256), gpu(), database)
        assert far.config == LARGE
    only = a_database(measured([own]), GENERIC)
    assert select(problem(128, 128, 128), gpu(), only).level == "generic"


def test_a_batch_of_another_layout_is_left_to_single_products_where_operands_are_read_in_place():
    shape = GemmShape(128, 128, 128, "NT", batch=256).problem("float32")
    for record, level in ((DIRECT, "generic"), (INDIRECT, "device")):
        own = measured([recorded("128x128x128*256", record)])
        assert select(shape, gpu(), a_database(own, GENERIC)).level == level


def test_a_batch_that_was_measured_needs_no_threshold_and_leaves_that_of_single_products():
    own = measured(
        [recorded("64x64x64", LARGE), recorded("128x128x128*256", LARGE)],
        Threshold(mnk=10**9),
    )
    database = a_database(own, GENERIC)
    assert select(problem(120, 128, 128, batch=256), gpu(), database).config == LARGE
    assert select(problem(120, 128, 128), gpu(), database).path == "direct"


def test_a_cpus_batches_take_their_own_records_too():
    own = measured([recorded("1024x1024x1024*50", NARROW)], traits=cpu())
    database = a_database(own, CPU_FILE)
    assert select(problem(1000, 1024, 1024, batch=40), cpu(), database).config == NARROW
    assert select(problem(1024, 1024, 1024), cpu(), database).config == SQUARE
    alone = select(problem(4, 1024, 1024, batch=40), cpu(), database)
    assert (alone.config, alone.level) == (ROWS, "generic")
    assert select(problem(0, 1024, 1024, batch=40), cpu(), database).config == ROWS


def test_batches_by_matrix_units_and_by_a_path_that_is_asked_for():
    single, several = MatrixConfig(64, 64, 32, 2, 2), MatrixConfig(64, 128, 32, 2, 2)
    records = [
        recorded("256x256x256", single), recorded("256x256x256*99", several),
        recorded("16x16x16", DIRECT), recorded("256x256x256*99", SMALL),
    ]  # fmt: skip
    entries = [
        Entry("float32", precision, tuple(one for one in records if one.config.family == path))
        for precision, path in (("TF32_TF32_F32", "matrix"), ("F32_F32_F32", "direct"))
    ]
    own = file_of(entries, "gpu")
    database, traits = a_database(own), typical_traits("sm_90")
    one, batch = GemmShape(256, 256, 256), GemmShape(256, 256, 256, batch=50)
    for shape, config, direct in ((one, single, DIRECT), (batch, several, SMALL)):
        assert select(shape.problem("float32", "TF32_TF32_F32"), traits, database).config == config
        plain = shape.problem("float32")
        assert choose(plain, traits, database, "direct").config == direct


def test_matrices_packed_for_single_products_know_of_no_batch():
    own = measured([recorded("4096x64x64", DIRECT), recorded("4096x64x64*9", LARGE)])
    precision = resolve_precision(None, "float32")
    layouts = [
        packed_layout(64, 64, "float32", precision, gpu(), Database(groups))
        for groups in (((GENERIC,),), ((own, GENERIC),))
    ]
    assert layouts[0] == layouts[1]


def test_small_products_take_matrix_units_where_those_were_faster():
    """Tuned at a size near enough, in whatever number."""
    units, small = MatrixConfig(32, 32, 32, 1, 1, STAGES=2), SmallConfig(MWI=4, NWI=4, WGS=64)
    records = [recorded("64x64x64", small), recorded("64x64x64*10000", units)]
    tuned = made_file(records, kind="measured", types=FLOAT16)

    def taken(size, batch):
        wanted = problem(size, size, size, "float16", batch=batch)
        return select(wanted, typical_traits("sm_90"), a_database(tuned)).config

    assert [taken(64, 10_000), taken(56, 5000)] == [units, units]
    assert [taken(16, 10_000), taken(64, 32)] == [small, small]
