"""How near a record is: sizes, then layouts and alignment, and what each family feels of them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.problem.problem import MatrixLayout
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.selection.distance import (
    Features,
    distance,
    features_of,
    features_of_record,
    record_for,
)
from pyclgemm.selection.records import ALIGNED, Record
from tests.support.facts import by_distance, problem, recorded

TILE = CpuConfig(MR=4, NR=8, KC=256, VW=4)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=2
)
SCALAR = replace(DIRECT, VWMD=1, VWND=1)
INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)
GEMV = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=2)
UNITS = MatrixConfig(32, 32, 32, 1, 1, STAGES=2)
UNALIGNED = replace(UNITS, UNALIGNED=1)
SIZES = (64, 128, 256)


def traits(text, dtype="float32"):
    return features_of(GemmShape.parse(text).problem(dtype))


# -------------------------------------------------------------------------- sizes

shapes = st.tuples(*[st.integers(0, 2**20)] * 3)
measured = st.builds(GemmShape, *[st.integers(1, 2**20)] * 3)


def octaves_between(one, other):
    return math.dist(*([math.log2(max(1, size)) for size in sizes] for sizes in (one, other)))


@given(st.lists(measured, min_size=1, max_size=8), shapes)
def test_nearest_sizes_against_brute_force(known, wanted):
    found = by_distance([Record(shape, TILE) for shape in known], Features(wanted))
    distances = [octaves_between(record.shape.sizes, wanted) for record in found]
    assert distances == pytest.approx(
        sorted(octaves_between(shape.sizes, wanted) for shape in known)
    )


def test_ties_keep_their_order():
    records = [recorded("2x1x1", TILE), recorded("1x2x1", TILE), recorded("2x1x1", TILE)]
    found = by_distance(records, Features((1, 1, 0)))
    assert [id(record) for record in found] == list(map(id, records))


# -------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("wanted", LAYOUTS)
@pytest.mark.parametrize("known", LAYOUTS)
def test_each_operand_of_another_order_counts(wanted, known):
    differing = sum(one != other for one, other in zip(wanted, known, strict=True))
    record = Record(GemmShape(*SIZES, layout=known), DIRECT)
    product = traits(f"64x128x256:{wanted}")
    assert distance(product, features_of_record(record), DIRECT) == 1.5 * differing
    assert distance(product, features_of_record(record), INDIRECT) == 0.5 * differing


def test_a_strided_operand_is_like_no_record():
    wanted = replace(problem(*SIZES), a=MatrixLayout("strided"))
    for layout in LAYOUTS:
        record = Record(GemmShape(*SIZES, layout=layout), SCALAR)
        assert distance(features_of(wanted), features_of_record(record), SCALAR) >= 1.5


def test_a_vector_has_no_order():
    """Of a row or a column, whichever index is called the one with unit stride."""
    for a, b in LAYOUTS:
        row = Record(GemmShape(1, 128, 256, a + b), SCALAR)
        expected = 1.5 if b == "T" else 0.0
        assert distance(traits("1x128x256"), features_of_record(row), SCALAR) == expected
        outer = Record(GemmShape(64, 128, 1, a + b), SCALAR)
        assert distance(traits("64x128x1"), features_of_record(outer), SCALAR) == 0.0


def test_a_matrix_by_a_vector_is_a_row_by_the_transpose():
    assert traits("64x1x256") == Features((1, 64, 256), None, "column", ALIGNED, 4)
    assert traits("64x1x256") == traits("1x64x256:NT")


def test_the_same_layout_wins_within_a_factor_of_two_and_a_half():
    plain, laid_out = recorded("800x800x800", DIRECT), recorded("2000x800x800:NT", SCALAR)
    assert by_distance([plain, laid_out], traits("800x800x800:NT"))[0] is laid_out
    far = recorded("2400x800x800:NT", SCALAR)
    assert by_distance([plain, far], traits("800x800x800:NT"))[0] is plain


def test_a_column_major_result_is_looked_up_as_the_swapped_product():
    """C^T = B^T A^T: m and n, and the operands with their orders, change places."""
    from pyclgemm.problem.matrix import Matrix
    from pyclgemm.problem.precision import resolve_precision
    from pyclgemm.problem.product import make_product

    m, n, k = 96, 32, 64
    a, b = Matrix(m, k, 1, m, 0), Matrix(k, n, n, 1, 0)  # TN
    out = Matrix(m, n, 1, m, 0)
    swapped = make_product(
        a, b, out, None, dtype="float32", precision=resolve_precision(None, "float32")
    ).problem
    found = features_of(swapped)
    assert found == Features((n, m, k), "column", "row", ALIGNED, 4)
    assert found == traits("32x96x64:TN")


# -------------------------------------------------------------------------- alignment


@pytest.mark.parametrize(
    ("text", "dtype", "alignment"),
    [
        ("64x128x256", "float32", ALIGNED),
        ("64x128x36", "float32", ALIGNED),  # 4 elements are 16 bytes
        ("64x128x38", "float32", 2),
        ("64x128x37", "float32", 1),
        ("64x127x256", "float32", 1),
        ("64x128x37:TN", "float32", ALIGNED),
        ("63x128x64:TN", "float32", 1),
        ("64x128x256+6", "float32", 2),
        ("64x128x36", "float16", 4),
        ("64x128x38", "float64", ALIGNED),
        ("64x127x37", "complex128", ALIGNED),
    ],
)
def test_the_least_alignment_of_the_rows_counts_up_to_the_widest_access(text, dtype, alignment):
    assert traits(text, dtype).alignment == alignment


@pytest.mark.parametrize(
    ("config", "alignment", "octaves"),
    [
        (DIRECT, 4, 0.0),
        (DIRECT, 2, 1.5),
        (SCALAR, 1, 0.0),
        (GEMV, 2, 0.0),
        (GEMV, 1, 1.5),
        (INDIRECT, 2, 0.5),
        (UNITS, 8, 0.5),
        (TILE, 1, 0.0),
    ],
)
def test_rows_too_narrow_for_the_kernels_vectors_count(config, alignment, octaves):
    known = features_of_record(Record(GemmShape(*SIZES), config))
    assert distance(Features(SIZES, alignment=alignment), known, config) == octaves


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("text", [
    "64x128x256", "82x6626x1085", "82x6626x1085:NT", "82x6626x1084:NT", "82x6627x1084:TN",
    "82x6627x1084:TT", "81x6626x1084:TT", "5x1x300", "1x300x5:NT", "1x300x5:TN", "7x9x1",
    "1x1x1", "1000x1000x1000+7", "1001x1001x1001+7", "64x64x64:NT+2", "300x300x300+4",
])  # fmt: skip
def test_the_record_of_a_product_stands_for_that_product(text, dtype):
    product = traits(text, dtype)
    record = record_for(product, DIRECT)
    known = features_of_record(record)
    assert (known.sizes, known.order_a, known.order_b) == (
        product.sizes, product.order_a, product.order_b
    )  # fmt: skip
    assert distance(product, known) == 0.0
    assert record.alignment is None or "+" in text


def test_older_records_stand_for_contiguous_matrices():
    """Of 40x5x2500, no row could start at a multiple of 2 elements."""
    odd, even = recorded("40x5x2500", GEMV), recorded("40x8x2500", GEMV)
    assert by_distance([even, odd], traits("40x7x2500"))[0] is odd
    assert by_distance([odd, even], traits("40x12x2500"))[0] is even


def test_a_cpu_feels_no_alignment():
    for record in (
        Record(GemmShape(*SIZES), TILE),
        Record(GemmShape(*SIZES), TILE, alignment=1),
    ):
        for alignment in (1, 2, ALIGNED):
            wanted = Features(SIZES, alignment=alignment)
            assert distance(wanted, features_of_record(record), TILE) == 0.0


def test_of_two_records_for_one_shape_the_alignment_decides():
    wide, narrow = (
        Record(GemmShape(*SIZES), DIRECT),
        Record(GemmShape(*SIZES), SCALAR, alignment=1),
    )
    for records in ([wide, narrow], [narrow, wide]):
        assert by_distance(records, Features(SIZES))[0] is wide
        assert by_distance(records, Features(SIZES, alignment=1))[0] is narrow
        assert by_distance(records, Features(SIZES, alignment=2))[0] is narrow


@pytest.mark.parametrize(("alignment", "octaves"), [(1, 0.0), (4, 0.0), (ALIGNED, 1.0)])
def test_kernels_that_read_any_alignment_lose_where_nothing_need_be_packed(alignment, octaves):
    known = features_of_record(recorded("63x127x255", UNALIGNED))
    wanted = Features(known.sizes, alignment=1, operand_alignment=alignment)
    assert distance(wanted, known, UNALIGNED) == octaves


def test_b_that_a_cpu_reads_in_place_the_other_way_is_another_kernel():
    in_place = replace(TILE, PACKB=0)
    by_columns, by_rows = traits("1x4000x900:NT"), traits("1x4000x900:NN")
    far = recorded("1x1024x1024:NT", in_place)
    near = recorded("1x4000x900", in_place)
    assert by_distance([near, far], by_columns)[0] is far
    assert by_distance([near, far], by_rows)[0] is near
    packed = replace(near, config=TILE)
    assert by_distance([packed, far], by_columns)[0] is packed
    # A vector lies one way as well as the other.
    assert distance(traits("4x1x900"), traits("4x1x900:NT"), in_place) == 0


def test_dot_products_of_few_vectors_are_passed_over():
    """TILE's vectors have 4 elements: 16 of k are enough."""
    dots, packed = replace(TILE, PACKB=0), replace(TILE, MR=2)
    records = [recorded("8x4096x16:NT", dots), recorded("16x2048x32", packed)]

    def chosen(text):
        return by_distance(records, traits(text))[0].config

    assert (chosen("8x4096x16:NT"), chosen("8x4096x15:NT")) == (dots, packed)
    assert distance(traits("8x4096x15"), traits("8x4096x15"), dots) == 0


# -------------------------------------------------------------------------- batches


def batch(size, products):
    return Features((size, size, size), widest=4, products=products)


def test_a_batch_is_near_what_fills_a_device_as_it_does():
    alone, filling = recorded("128x128x128", DIRECT), recorded("2048x2048x128", INDIRECT)
    assert by_distance([filling, alone], Features((128, 128, 128)))[0] is alone
    assert by_distance([alone, filling], batch(128, 256))[0] is filling
    assert Features((1, 512, 512), products=16).filling_sizes == (1, 8192, 512)
    # A CPU's core computes one product after the other.
    small, large = recorded("128x128x128", TILE), recorded("2048x2048x128", TILE)
    assert by_distance([large, small], batch(128, 256))[0] is small


@given(shapes, shapes, st.integers(2, 10**6), st.integers(2, 10**6))
def test_the_number_of_products_is_a_fourth_size(one, other, products, others):
    wanted, known = Features(one, products=products), Features(other, products=others)
    octaves = octaves_between((*one, products), (*other, others))
    assert distance(wanted, known) == pytest.approx(octaves)
    assert distance(known, wanted) == pytest.approx(distance(wanted, known))
    # A full device takes away from that, and nothing else.
    plain = distance(Features(one), Features(other))
    assert plain <= distance(wanted, known, full=100) <= distance(wanted, known) + 1e-9


def test_batches_that_fill_the_device_are_near_each_other_and_the_nearer_one_wins():
    """On 16 compute units, with tiles of 32 x 32: four products of 128^3 are 64 groups."""
    records = [Record(GemmShape(128, 128, 128, batch=count), DIRECT) for count in (2, 64, 10_000)]
    two, some, many = records
    assert by_distance(records, batch(128, 10_000), units=16) == [many, some, two]
    assert by_distance(records, batch(128, 256), units=16) == [some, many, two]
    assert by_distance(records, batch(128, 10_000), units=16, reach=1.5) == [many, some]
    # Without filling it, counts are as far apart as sizes.
    assert by_distance(records, batch(128, 10_000), units=0, reach=1.0) == [many]
    assert by_distance(records, batch(128, 64), units=2000, reach=1.0) == [some]
    assert distance(batch(128, 64), batch(128, 4096), DIRECT, full=4) == pytest.approx(6 / 8)


def test_units_that_a_batch_leaves_idle_count_beyond_those_at_its_record():
    """66 products of 16 tiles keep 132 units busy eight times; 9 of them twice, not quite."""
    record = recorded("128x128x128*66", DIRECT)
    full = 4 * 132 / 16
    apart = math.log2(full) + math.log2(66 / full) / 8 - math.log2(9)
    octaves = apart + math.log2(2 * 132 / (9 * 16)) / 2
    for reach, found in ((octaves - 0.01, []), (octaves + 0.01, [record])):
        assert by_distance([record], batch(128, 9), units=132, reach=reach) == found


def test_the_size_of_a_batch_decides_before_its_count_does():
    near, far = (
        recorded("128x128x128*4096", DIRECT),
        recorded("64x128x128*256", DIRECT),
    )
    assert by_distance([far, near], batch(128, 256), units=16)[0] is near


def test_a_batch_and_a_single_product_of_its_sizes_are_of_two_kinds():
    alone, filling, own = (
        recorded("128x128x128", DIRECT),
        recorded("2048x2048x128", DIRECT),
        recorded("128x128x128*256", DIRECT),
    )
    for records in ([alone, filling, own], [own, filling, alone]):
        assert by_distance(records, batch(128, 256), units=132) == [own, filling, alone]
        assert by_distance(records, batch(128, 200), units=132)[0] is own
        assert by_distance(records, batch(128, 1), units=132)[0] is alone
        # What it fills, less than what it is.
        assert by_distance(records, Features((2048, 2048, 128)), units=132) == [
            filling, own, alone
        ]  # fmt: skip
    for sizes in ((128, 128, 128), (8, 8, 8), (1, 4096, 4096)):
        single, several = Features(sizes), Features(sizes, products=2)
        assert min(distance(single, several), distance(several, single)) >= 1.0
        assert distance(single, several, TILE) == distance(several, single, TILE) == 1.0


def test_a_record_for_batches_of_any_number():
    """Those of small products, where the record tells none."""
    small = SmallConfig(MWI=4, NWI=4, WGS=64)
    any_number, told = recorded("8x8x8", small), recorded("8x8x8*100", small)
    for products in (32, 10_000, 10**6):
        known = features_of_record(any_number)
        assert distance(batch(8, products), known, small) == 0.0
    assert distance(batch(8, 200), features_of_record(told), small) == 1.0
    assert by_distance([told, any_number], batch(8, 100)) == [told, any_number]
    assert by_distance([told, any_number], batch(8, 10_000)) == [any_number, told]


@pytest.mark.parametrize("text", ["128x128x128*256", "1x64x64:NT*7", "100x90x70+3*2"])
def test_the_record_of_a_batch_stands_for_that_batch(text):
    product = traits(text)
    record = record_for(product, DIRECT)
    assert record.shape.batch == GemmShape.parse(text).batch
    assert str(record.shape) in str(record)
    assert distance(product, features_of_record(record)) == 0.0
    single = replace(record, shape=replace(record.shape, batch=None))
    assert (record.kind, single.kind) == ("batch", "single")
