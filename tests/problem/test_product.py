"""Rows and columns exchanged: C^T = B^T A^T, with whatever belongs to the product."""

from typing import Any

import pytest

from pyclgemm import CpuConfig, GemvConfig, XgemmDirectConfig
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import oriented, problem_on
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.product import Product, make_product
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.select import select
from tests.support.checks import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm

pytestmark = pytest.mark.any_runtime

GEMV = GemvConfig(MR=2, WGS=32, LANES_N=4, VW=4, KWI=2)
ONE_ROW = GemvConfig(MR=1, WGS=16, LANES_N=1, VW=2)
CPU = CpuConfig(MR=2, NR=8, KC=32, VW=4)
CPU_IN_PLACE = CpuConfig(MR=3, NR=8, KC=32, VW=4, PACKB=0)
GPU, AVX512, AVX2 = map(typical_traits, ("sm_90", "x86-64-v4", "x86-64-v3"))
DIRECT = XgemmDirectConfig(
    WGD=16, MDIMCD=8, NDIMCD=4, MDIMAD=8, NDIMBD=4, KWID=2, VWMD=2, VWND=2, PADA=2, PADB=2
)


def _product(m: int, n: int, k: int, *, column_major: bool = False, **changes: Any) -> Product:
    matrices: dict[str, Any] = {
        "a": Matrix(m, k, k + 4, 1, 8, conjugate=True),
        "b": Matrix(k, n, 1, k + 3, 5),
        "out": Matrix(m, n, 1, m, 0) if column_major else Matrix(m, n, n, 1, 0),
        "c": Matrix(m, n, 3 * n, 3, 7),
    }
    facts: dict[str, Any] = {
        "dtype": "complex64", "precision": resolve_precision(None, "complex64"), "bias_stride": 2
    }  # fmt: skip
    return make_product(**(matrices | facts | changes))


def test_transposed_exchanges_everything_that_has_a_side():
    product = _product(40, 3, 17)
    other = product.transposed
    assert (other.problem.m, other.problem.n, other.problem.k) == (3, 40, 17)
    assert (other.a.rows, other.a.columns) == (3, 17)
    assert (other.b.rows, other.b.columns) == (17, 40)
    assert (other.a.row_stride, other.a.column_stride, other.a.offset) == (20, 1, 5)
    assert (other.b.row_stride, other.b.column_stride, other.b.offset) == (1, 21, 8)
    assert other.b.conjugate
    assert not other.a.conjugate
    assert (other.problem.a.order, other.problem.b.order) == ("row", "column")
    assert other.problem.b.conjugate
    assert (other.out.row_stride, other.out.column_stride) == (1, 3)
    assert other.problem.out.order == "column"
    assert other.c is not None
    assert (other.c.row_stride, other.c.column_stride, other.c.offset) == (3, 9, 7)
    assert (product.problem.bias, other.problem.bias) == ("column", "row")
    assert other.bias_stride == 2
    assert (product.swapped, other.swapped) == (False, True)


@pytest.mark.parametrize("column_major", [False, True])
def test_transposed_twice_is_the_same(column_major):
    product = _product(40, 3, 17, column_major=column_major)
    assert product.swapped == column_major
    assert product.transposed.transposed == product


def test_a_product_without_addend_and_bias():
    other = _product(4, 3, 2, c=None, bias_stride=None).transposed
    assert other.c is None
    assert other.problem.c is None
    assert other.problem.bias is None


@pytest.mark.parametrize(
    ("m", "n", "exchanged"), [(40, 3, True), (3, 40, False), (5, 5, False), (6, 5, True)]
)
def test_gemv_takes_few_rows(m, n, exchanged):
    product = _product(m, n, 7)
    turned = oriented(product, GEMV, GPU)
    assert turned == (product.transposed if exchanged else product)
    assert turned.problem.m <= turned.problem.n


def test_a_column_major_result_is_not_exchanged_for_nothing():
    # Its canonical form already has few rows: back to the caller's would be wrong.
    product = _product(40, 3, 7, column_major=True)
    assert product.problem.m == 3
    assert oriented(product, GEMV, GPU) == product


@pytest.mark.parametrize(
    ("sizes", "column_major", "traits", "exchanged"),
    [
        ((160, 20, 7), False, AVX512, True), ((168, 21, 7), False, AVX512, False),
        ((159, 20, 7), False, AVX512, False), ((160, 20, 6), False, AVX512, False),
        ((3, 160, 7), False, AVX512, False), ((160, 0, 7), False, AVX512, False),
        ((160, 20, 7), True, AVX512, True), ((160, 20, 6), True, AVX512, False),
        ((128, 4, 6), False, AVX2, True), ((128, 5, 6), False, AVX2, False),
        ((160, 20, 7), True, AVX2, True), ((160, 20, 7), False, GPU, False),
    ],
)  # fmt: skip
def test_a_cpu_exchanges_rows_and_columns_of_narrow_results(sizes, column_major, traits, exchanged):
    """Of complex64: 20 columns are 160 bytes, and 4 a vector of AVX2."""
    m, _, k = sizes
    changes = {"a": Matrix(m, k, 1, m, 0)} if column_major else {}
    product = _product(*sizes, **changes)
    turned = oriented(product, CPU, traits)
    assert turned == (product.transposed if exchanged else product)
    assert oriented(turned, CPU, traits) == turned
    packed = _product(*sizes, packed=PackedLayout("panels", depth_block=8, width=16), **changes)
    assert oriented(packed, CPU, traits) is packed


def test_small_products_of_a_batch_are_left_alone():
    batches = [GemmShape(m, 4, 60, batch=100).problem("float32") for m in (64, 65)]
    assert [problem_on(batch, AVX512) != batch for batch in batches] == [False, True]


def test_a_record_for_few_rows_is_taken_for_as_few_columns():
    traits, database = typical_traits("x86-64-v4"), load_database()
    narrow = GemmShape(2000, 4, 500).problem("float32")
    chosen, few = (select(one, traits, database) for one in (narrow, narrow.transposed))
    assert chosen.config == few.config
    assert "rows and columns are exchanged" in chosen.reason
    assert "exchanged" not in few.reason
    assert isinstance(chosen.config, CpuConfig)
    assert not chosen.config.PACKB, "a block of few rows reads the other operand in place"


def test_other_families_and_a_packed_b_are_left_alone():
    product = _product(40, 3, 7)
    assert oriented(product, DIRECT, GPU) is product
    packed = _product(40, 3, 7, packed=PackedLayout("padded", depth_block=8, width=16))
    assert oriented(packed, GEMV, GPU) is packed


# On devices: tall and flat, with everything on

EVERY_GEMV = pytest.mark.parametrize("config", [GEMV, ONE_ROW], ids=["plain", "one row"])
EVERY_CONFIG = pytest.mark.parametrize(
    "config", [GEMV, ONE_ROW, CPU, CPU_IN_PLACE], ids=["plain", "one row", "cpu", "cpu in place"]
)
SIZES = [(130, 1, 37), (65, 3, 64), (1, 130, 37), (3, 64, 5)]


@EVERY_CONFIG
@pytest.mark.parametrize("out", [ROW, COLUMN, STRIDED], ids=["row", "column", "strided"])
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
def test_whole_epilogue(queue, config, out, in_place):
    for sizes in SIZES:
        check_gemm(
            queue, sizes, config=config, out=out, c=None if in_place else COLUMN,
            in_place=in_place, alpha=0.5, beta=-2.0, bias=True, activation="silu",
        )  # fmt: skip


@EVERY_CONFIG
@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("trans_a", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("operands", [ROW, ROW_ALIGNED, COLUMN_ALIGNED, STRIDED],
                         ids=["row", "aligned", "column", "strided"])  # fmt: skip
def test_every_layout(queue, config, operands, trans_a, trans_b):
    for sizes in SIZES:
        check_gemm(
            queue, sizes, config=config, trans_a=trans_a, trans_b=trans_b, a=operands, b=operands,
            bias=True,
        )  # fmt: skip


@EVERY_CONFIG
def test_conjugates(queue, config):
    for sizes in SIZES:
        for trans_a, trans_b in [("C", "N"), ("N", "C"), ("C", "C")]:
            check_gemm(
                queue, sizes, "complex64", config=config, a=ROW_ALIGNED, b=ROW_ALIGNED,
                trans_a=trans_a, trans_b=trans_b, alpha=0.5 - 1j, c=ROW, beta=2j, bias=True,
            )  # fmt: skip


@EVERY_GEMV
@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
def test_a_packed_b(queue, config, trans_b):
    layout = PackedLayout("padded", depth_block=32, width=64)
    for sizes in SIZES:
        check_gemm(
            queue, sizes, config=config, pack=layout, trans_b=trans_b, c=ROW, alpha=0.5,
            beta=-2.0, bias=True, activation="relu",
        )  # fmt: skip


@EVERY_CONFIG
def test_alpha_or_depth_of_zero_leaves_the_addend(queue, config):
    for m, n in [(130, 2), (2, 130)]:
        for k, alpha in [(0, 1.0), (9, 0.0)]:
            check_gemm(
                queue, (m, n, k), config=config, alpha=alpha, beta=0.5, c=ROW, bias=True
            )  # fmt: skip
