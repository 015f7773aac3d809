"""Which record a product takes: by sizes, layouts, alignment, tiles and numbers of products."""

from dataclasses import replace

import pytest

from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.small.codegen import SmallConfig
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import MatrixLayout
from pyclgemm.problem.product import make_product
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.distance import features_of, features_of_record, record_for
from pyclgemm.selection.records import ALIGNED
from pyclgemm.selection.select import select
from tests.support.databases import DIRECT as SCALAR
from tests.support.databases import INDIRECT, a_database, measured
from tests.support.facts import cpu, gpu, problem, recorded
from tests.support.typical_configs import DIRECT

LITTLE, WIDE = replace(SCALAR, WGD=16), replace(SCALAR, WGD=64)
SHARED = replace(SCALAR, FILL=2)
TILE = CpuConfig(MR=4, NR=8, KC=256, VW=4)
IN_PLACE = replace(TILE, PACKB=0)
GEMV = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=2)
TWO_ROWS = replace(GEMV, MR=2)
UNALIGNED = MatrixConfig(32, 32, 32, 1, 1, STAGES=2, UNALIGNED=1)
SMALL = SmallConfig(MWI=4, NWI=4, WGS=64)
GPU = gpu(compute_units=100, fence_options="-cl-std=CL3.0")


def asked(text, dtype="float32"):
    return GemmShape.parse(text).problem(dtype)


def choice_of(wanted, records, traits):
    types = wanted.dtype, wanted.precision.name
    return select(wanted, traits, a_database(measured(records, traits=traits, types=types)))


# fmt: off
@pytest.mark.parametrize(
    ("wanted", "nearer", "farther"),
    [
        # Sizes, by their ratios.
        ("90x90x90", (SCALAR, "64x64x64"), (SCALAR, "256x64x64")),
        ("90x90x90", (SCALAR, "128x64x128"), (SCALAR, "64x64x32")),
        # An operand of another order weighs more where it is read in place.
        ("800x800x800:NT", (SCALAR, "2000x800x800:NT"), (DIRECT, "800x800x800")),
        ("800x800x800:NT", (DIRECT, "800x800x800"), (SCALAR, "2400x800x800:NT")),
        ("800x800x800:NT", (INDIRECT, "800x800x800"), (INDIRECT, "1200x800x800:NT")),
        ("800x800x800:TT", (SCALAR, "800x800x800:TN"), (SCALAR, "800x800x800")),
        # A row or a column has no order.
        ("1x128x256", (SCALAR, "1x128x256:TN"), (SCALAR, "1x160x256")),
        ("64x128x1", (SCALAR, "64x128x1:TT"), (SCALAR, "64x160x1")),
        ("4x1x900", (IN_PLACE, "4x1x900:NT"), (IN_PLACE, "4x1x1200")),
        # Vectors that are wider than the rows are aligned, and those that might be wider.
        ("800x800x800", (DIRECT, "800x800x800"), (SCALAR, "1600x800x800")),
        ("800x800x800+2", (SCALAR, "1600x800x800"), (DIRECT, "800x800x800")),
        ("800x800x800+1", (GEMV, "800x1600x800+1"), (GEMV, "800x800x800")),
        ("800x800x800+2", (GEMV, "800x800x800"), (GEMV, "800x1600x800+2")),
        ("800x800x800+2", (INDIRECT, "800x800x800"), (SCALAR, "1200x800x800")),
        ("800x800x800", (DIRECT, "1200x800x800"), (SCALAR, "800x800x800+1")),
        ("64x128x256+2", (SCALAR, "64x128x256+1"), (DIRECT, "64x128x256")),
        ("40x7x2500", (DIRECT, "40x5x2500"), (DIRECT, "40x8x2500")),
        ("64x128x256+1", (TILE, "64x128x256"), (TILE, "80x128x255")),
        # B that a CPU reads in place: by rows, or by dot products where they are long enough.
        ("1x4000x900:NT", (IN_PLACE, "1x1024x1024:NT"), (IN_PLACE, "1x4000x900")),
        ("1x4000x900", (IN_PLACE, "1x4000x900"), (IN_PLACE, "1x1024x1024:NT")),
        ("1x4000x900:NT", (TILE, "1x4000x900"), (IN_PLACE, "1x1024x1024:NT")),
        ("8x4096x16:NT", (IN_PLACE, "8x4096x16:NT"), (TILE, "16x2048x32")),
        ("8x4096x15:NT", (TILE, "16x2048x32"), (IN_PLACE, "8x4096x16:NT")),
        ("8x4096x15", (IN_PLACE, "8x4096x16"), (TILE, "16x2048x32")),
        # Tiles: edges, and compute units that are idle, beyond those at the record.
        ("8000x66x512", (LITTLE, "8000x34x512"), (WIDE, "8000x132x512")),
        ("128x512x512", (LITTLE, "64x512x512"), (WIDE, "256x512x512")),
        ("32x32x4096", (SHARED, "320x320x4096"), (SCALAR, "320x320x4096")),
        ("3x8192x512", (GEMV, "6x8192x512"), (TWO_ROWS, "6x8192x512")),
        ("40x40x40", (SCALAR, "40x40x40"), (LITTLE, "160x160x160")),
        # Batches: of single products those that fill a device alike, but for a CPU.
        ("128x128x128*256", (INDIRECT, "2048x2048x128"), (SCALAR, "128x128x128")),
        ("128x128x128", (SCALAR, "128x128x128"), (INDIRECT, "2048x2048x128")),
        ("128x128x128*256", (TILE, "128x128x128"), (TILE, "2048x2048x128")),
        ("1x512x512*16", (SCALAR, "1x8192x512"), (SCALAR, "4x2048x512")),
        # Numbers of products count until they fill the device, and then less than sizes.
        ("128x128x128*10000", (SCALAR, "128x128x128*9000"), (SCALAR, "128x128x128*64")),
        ("128x128x128*256", (SCALAR, "128x128x128*64"), (SCALAR, "128x128x128*10000")),
        ("128x128x128*256", (SCALAR, "128x128x128*4096"), (SCALAR, "64x128x128*256")),
        # A batch too far away leaves it to single products.
        ("128x128x128*10000", (SCALAR, "128x128x128*64"), (INDIRECT, "2048x2048x128")),
        ("128x128x128*10000", (INDIRECT, "2048x2048x128"), (SCALAR, "128x128x128*2")),
        ("128x128x128*9", (INDIRECT, "2048x2048x128"), (SCALAR, "128x128x128*66")),
        ("8x8x8*10000", (SMALL, "8x8x8"), (SMALL, "8x8x8*100")),
    ],
)
# fmt: on
def test_the_nearer_of_two_records_is_taken(wanted, nearer, farther):
    records = [record_for(features_of(asked(text)), config) for config, text in (nearer, farther)]
    traits = cpu() if nearer[0].family == "cpu" else GPU
    for order in (records, records[::-1]):
        choice = choice_of(asked(wanted), order, traits)
        assert choice.config == nearer[0]
        assert f"the nearest record is for {records[0]}," in f"{choice.reason},"


@pytest.mark.parametrize(
    ("wanted", "sizes"), [("64x128x256+4", "63x127x255"), ("64x128x256", "96x128x256")]
)
def test_units_that_read_any_alignment_lose_where_none_is_needed(wanted, sizes):
    records = [recorded(text, UNALIGNED) for text in ("63x127x255", "96x128x256")]
    ampere = gpu(architecture="sm_80", local_memory_bytes=2**17, fence_options="")
    choice = choice_of(asked(wanted, "float16"), records, ampere)
    assert f"the nearest record is for {sizes}" in choice.reason


@pytest.mark.parametrize("layouts", [("NN", "TN"), ("TN", "NN")])
def test_a_strided_operand_is_like_no_record(layouts):
    wanted = replace(problem(64, 128, 256), a=MatrixLayout("strided"))
    records = [recorded(f"64x128x256:{layout}", SCALAR) for layout in layouts]
    assert f"is for {records[0]}" in choice_of(wanted, records, gpu()).reason


def test_a_column_major_result_is_looked_up_as_the_swapped_product():
    """C^T = B^T A^T: m and n, and the operands with their orders, change places."""
    m, n, k = 96, 32, 64
    a, b, out = Matrix(m, k, 1, m, 0), Matrix(k, n, n, 1, 0), Matrix(m, n, 1, m, 0)  # TN
    precision = resolve_precision(None, "float32")
    product = make_product(a, b, out, None, dtype="float32", precision=precision)
    assert features_of(product.problem) == features_of(asked("32x96x64:TN"))


@pytest.mark.parametrize(
    ("text", "dtype", "alignment"),
    [
        ("64x128x36", "float32", ALIGNED),  # 4 elements are 16 bytes
        ("64x128x38", "float32", 2), ("64x128x37", "float32", 1), ("64x127x256", "float32", 1),
        ("64x128x37:TN", "float32", ALIGNED), ("63x128x64:TN", "float32", 1),
        ("64x128x256+6", "float32", 2), ("64x128x36", "float16", 4),
        ("64x128x38", "float64", ALIGNED), ("64x127x37", "complex128", ALIGNED),
    ],
)  # fmt: skip
def test_the_least_alignment_of_the_rows_counts_up_to_the_widest_access(text, dtype, alignment):
    assert features_of(asked(text, dtype)).alignment == alignment


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("text", [
    "64x128x256", "82x6626x1085", "82x6626x1085:NT", "82x6626x1084:NT", "82x6627x1084:TN",
    "82x6627x1084:TT", "81x6626x1084:TT", "5x1x300", "1x300x5:NT", "1x300x5:TN", "7x9x1",
    "1x1x1", "1000x1000x1000+7", "1001x1001x1001+7", "64x64x64:NT+2", "300x300x300+4",
    "128x128x128*256", "1x64x64:NT*7", "100x90x70+3*2",
])  # fmt: skip
def test_the_record_of_a_product_stands_for_that_product(text, dtype):
    wanted = features_of(asked(text, dtype))
    record = record_for(wanted, SCALAR)
    known = features_of_record(record)
    assert (known.sizes, known.order_a, known.order_b) == (
        wanted.sizes, wanted.order_a, wanted.order_b
    )  # fmt: skip
    assert min(known.alignment, wanted.widest) == min(wanted.alignment, wanted.widest)
    assert record.alignment is None or "+" in text
    assert known.products == (GemmShape.parse(text).batch or 1)
    assert record.kind == ("batch" if "*" in text else "single")
