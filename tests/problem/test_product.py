"""Products and their types: shapes, exchanged rows and columns, valid types and results."""

import math
from contextlib import nullcontext
from dataclasses import asdict

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given, strategies as st

import pyclgemm
from pyclgemm import CpuConfig, GemvConfig
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import family_of, oriented, problem_on
from pyclgemm.problem.matrix import (
    Matrix,
    check_dtype,
    check_scalar,
    check_writable,
    matrix_of,
    result_dtype,
)
from pyclgemm.problem.precision import DTYPES, UNIT_DTYPES, resolve_precision, result_dtypes
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.product import make_product
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.runtime.arrays import View
from pyclgemm.selection.database import load_database
from pyclgemm.selection.select import select
from tests.support.arrays import assert_gemm, draw, fetched, upload
from tests.support.cases import all_pairs
from tests.support.checks import check_gemm, raises
from tests.support.configs import BASES, DIRECT
from tests.support.facts import cpu, product_of
from tests.support.families import imagined_traits

SHAPES = "1x2x3 64x3072x768:NT 9x9x9:TT+7 9x9x9+1 1x1x1:TN 8x8x8*2 8x9x10+3*10000"
INVALID = (
    "1x2 0x2x3 1x2x3:N 1x2x3:CN 1x2x3+ 1x2x3+-1 1x2x3x4 1x2x3:nt 1x2x3* 1x2x3*0 1x2x3*1 "
    "1x2x3*-2 1x2x3*5+7 1x2x3*5*5"
)


def test_a_valid_text_is_read_as_a_shape_and_written_unchanged():
    assert [str(GemmShape.parse(text)) for text in SHAPES.split()] == SHAPES.split()
    assert not any(map(GemmShape.parse, ["", *INVALID.split()]))
    assert GemmShape.parse("3x4x5:NN+0") == GemmShape(3, 4, 5)
    plain = [GemmShape.parse(f"3x4x5{options}").plain for options in ("", ":NT", "+1", "*2")]
    assert plain == [True, False, False, False]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GemmShape.of((1, 2)), r"shape is \(1, 2\); a GemmShape or \(m, n, k\)"),
        (lambda: GemmShape.of("1x2x3"), "shape is '1x2x3'"),
        (lambda: GemmShape.of((0, 2, 3)), "m is 0; an integer of 1 to 10000000000"),
        (lambda: GemmShape.of((1, 2.0, 3)), "n is 2.0; an integer"),
        (lambda: GemmShape(1, 2, 3, layout="NC"), "layout is 'NC'; one of NN, NT"),
        (lambda: GemmShape(1, 2, 3, padding=-1), "padding is -1"),
        (lambda: GemmShape(1, 2, 3, batch=1), "batch is 1; an integer of 2 to 1000000000"),
        (lambda: GemmShape(1, 2, 3, batch=2.5), "batch is 2.5"),
    ],
)
def test_an_invalid_shape_is_refused(make, words):
    with pytest.raises(pyclgemm.ArgumentError, match=words):
        make()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("batch", [None, 9])
def test_a_shape_has_the_problem_of_its_arrays(layout, dtype, batch):
    shape = GemmShape(7, 5, 3, layout, batch=batch)
    options = {"reads_c": True, "bias": True, "activation": "relu"}
    for trans in ("T", "C"):
        a, b = (letter.replace("T", trans) for letter in layout)
        expected = product_of(7, 5, 3, dtype, trans_a=a, trans_b=b, batch=batch, **options)
        conjugate = "a" * (a == "C") + "b" * (b == "C")
        assert shape.product(dtype, conjugate=conjugate, **options) == expected
        assert shape.problem(dtype, conjugate=conjugate, **options) == expected.problem
        if trans == "T" or dtype == "complex64":
            assert (expected.a.transposition, expected.b.transposition) == (a, b)
    assert (np.prod(shape.stored_a[-2:]), np.prod(shape.stored_b[-2:])) == (21, 15)


def test_padding_offsets_and_batches_lower_the_alignment():
    for offset, alignment in ((0, 16), (8, 8), (6, 2), (3, 1)):
        view = View((4, 8), (64, 4), np.dtype(np.float32), 4 * offset)
        assert matrix_of("a", view).layout.alignment == alignment
    padded = GemmShape(16, 16, 16, "NT", padding=4).problem()
    assert (padded.a.alignment, padded.b.alignment, padded.out.alignment) == (4, 4, 4)
    # Rows of a: only the batch's next matrix starts 9 elements behind the first.
    batch = GemmShape(1, 8, 9, batch=4).problem()
    assert (batch.a.alignment, batch.b.alignment) == (1, 8)
    assert (batch.batch, batch.flops) == (4, 4 * 2 * 8 * 9)


GEMV = GemvConfig(MR=2, WGS=32, LANES_N=4, VW=4, KWI=2)
ONE_ROW = GemvConfig(MR=1, WGS=16, LANES_N=1, VW=2)
CPU = CpuConfig(MR=2, NR=8, KC=32, VW=4)
CPU_IN_PLACE = CpuConfig(MR=3, NR=8, KC=32, VW=4, PACKB=0)
GPU, AVX512, AVX2 = map(typical_traits, ("sm_90", "x86-64-v4", "x86-64-v3"))
PANELS = PackedLayout("panels", depth_block=8, width=16)


def made_product(m, n, k, *, column_major=False, **changes):
    facts = {
        "a": Matrix(m, k, k + 4, 1, 8, conjugate=True),
        "b": Matrix(k, n, 1, k + 3, 5),
        "out": Matrix(m, n, 1, m, 0) if column_major else Matrix(m, n, n, 1, 0),
        "c": Matrix(m, n, 3 * n, 3, 7),
        "dtype": "complex64",
        "precision": resolve_precision(None, "complex64"),
        "bias_stride": 2,
    }
    return make_product(**(facts | changes))


def test_a_transposed_product_exchanges_operands_strides_and_bias():
    product = made_product(40, 3, 17)
    other = product.transposed
    problem = other.problem
    assert (problem.m, problem.n, problem.k) == (3, 40, 17)
    assert other.a == Matrix(3, 17, 20, 1, 5)
    assert other.b == Matrix(17, 40, 1, 21, 8, conjugate=True)
    assert (other.out, other.c) == (Matrix(3, 40, 1, 3, 0), Matrix(3, 40, 3, 9, 7))
    orders = problem.a.order, problem.b.order, problem.out.order
    assert orders == ("row", "column", "column") and problem.b.conjugate
    assert (product.problem.bias, problem.bias, other.bias_stride) == ("column", "row", 2)
    assert (product.swapped, other.swapped) == (False, True)


def test_column_major_results_missing_operands_and_small_batches():
    for column_major in (False, True):
        product = made_product(40, 3, 17, column_major=column_major)
        assert product.swapped == column_major
        assert product.transposed.transposed == product
    # Its canonical form already has few rows, and stays.
    assert product.problem.m == 3
    assert oriented(product, GEMV, GPU) == product
    other = made_product(4, 3, 2, c=None, bias_stride=None).transposed
    assert (other.c, other.problem.c, other.problem.bias) == (None, None, None)
    # Rows and columns of a batch of small products are not exchanged.
    batches = [GemmShape(m, 4, 60, batch=100).problem("float32") for m in (64, 65)]
    assert [problem_on(batch, AVX512) != batch for batch in batches] == [False, True]


@pytest.mark.parametrize(
    ("config", "sizes", "transposed", "traits", "exchanged"),
    [
        # Few rows, at least as many columns.
        (GEMV, (40, 3, 7), False, GPU, True), (GEMV, (3, 40, 7), False, GPU, False),
        (GEMV, (5, 5, 7), False, GPU, False), (GEMV, (6, 5, 7), False, GPU, True),
        # Narrow results of complex64: 20 columns are 160 bytes, and 4 a vector of AVX2.
        (CPU, (160, 20, 7), False, AVX512, True), (CPU, (168, 21, 7), False, AVX512, False),
        (CPU, (159, 20, 7), False, AVX512, False), (CPU, (160, 20, 6), False, AVX512, False),
        (CPU, (3, 160, 7), False, AVX512, False), (CPU, (160, 0, 7), False, AVX512, False),
        (CPU, (160, 20, 7), True, AVX512, True), (CPU, (160, 20, 6), True, AVX512, False),
        (CPU, (128, 4, 6), False, AVX2, True), (CPU, (128, 5, 6), False, AVX2, False),
        (CPU, (160, 20, 7), True, AVX2, True), (CPU, (160, 20, 7), False, GPU, False),
        (DIRECT, (40, 3, 7), False, GPU, False),
    ],
)  # fmt: skip
def test_families_exchange_rows_and_columns(config, sizes, transposed, traits, exchanged):
    m, _, k = sizes
    changes = {"a": Matrix(m, k, 1, m, 0)} if transposed else {}
    product = made_product(*sizes, **changes)
    result = oriented(product, config, traits)
    assert result == (product.transposed if exchanged else product)
    assert oriented(result, config, traits) == result
    packed = made_product(*sizes, packed=PANELS, **changes)
    assert oriented(packed, config, traits) is packed


def test_a_record_for_few_rows_is_taken_for_few_columns():
    narrow = GemmShape(2000, 4, 500).problem("float32")
    chosen, few = (select(one, AVX512, load_database()) for one in (narrow, narrow.transposed))
    assert chosen.config == few.config
    assert "rows and columns are exchanged" in chosen.reason and "exchanged" not in few.reason
    assert not chosen.config.PACKB, "a block of few rows reads the other operand in place"


TALL_AND_FLAT = all_pairs(
    cpu(),
    config=[GEMV, ONE_ROW, CPU, CPU_IN_PLACE],
    sizes=[(130, 1, 37), (65, 3, 64), (1, 130, 37), (3, 64, 5), (130, 2, 0), (2, 130, 0)],
    dtype=["float32", "complex64"],
)


@pytest.mark.one_in(2)
@pytest.mark.any_runtime
@pytest.mark.parametrize("options", TALL_AND_FLAT)
def test_tall_and_flat_products(queue, options):
    check_gemm(queue, **options)


extents, strides = st.integers(0, 5), st.integers(-7, 7)


@given(extents, extents, strides, strides)
def test_a_result_is_refused_where_two_entries_share_memory(rows, columns, row, column):
    addresses = {i * row + j * column for i in range(rows) for j in range(columns)}
    is_shared = len(addresses) < rows * columns
    with pytest.raises(pyclgemm.ShapeError, match="share memory") if is_shared else nullcontext():
        check_writable(View((rows, columns), (row * 2, column * 2), np.dtype(np.float16), 0))


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_result_may_have_any_strides(queue, sizes):
    m, n = sizes
    a, b = (cl_array.empty(queue, shape, np.float32) for shape in ((m, 3), (3, n)))
    out = cl_array.Array(queue, sizes, np.float32, strides=(0, 0))
    assert pyclgemm.gemm(queue, a, b, out=out) is out


def result(dtype, **types):
    """The type of the result for `out`, `c` and `bias` of these types."""
    arrays = {name: np.empty((2, 2), types[name]) for name in types}
    return result_dtype(dtype, **dict.fromkeys(("out", "c", "bias")) | arrays)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_type_of_a_result_is_that_of_its_operands_or_of_a_given_array(dtype):
    own = "int32" if dtype == "int8" else dtype
    assert result(dtype) == result_dtypes(dtype)[0] == result(dtype, c=own) == own
    for name in ("out", "c", "bias") if dtype in ("float16", "bfloat16") else ():
        assert result(dtype, **{name: "float32"}) == "float32"
    assert GemmShape(4, 4, 4).problem(dtype).types == {"int8": "int8 -> int32"}.get(dtype, dtype)


#: Calls that are refused, each with the message.
REFUSED = [
    *(
        (lambda dtype=dtype, out=out: result(dtype, out=out),
         f"out is {out} and a is {dtype}; the result .* is {' or '.join(result_dtypes(dtype))}")
        for dtype, out in (
            ("float16", "bfloat16"), ("float16", "float64"), ("bfloat16", "float16"),
            ("float32", "float16"), ("float64", "float32"), ("complex64", "complex128"),
            ("int8", "int8"), ("int8", "float32"), ("float32", "int32"),
        )
    ),
    (lambda: result("float16", out="float32", c="float16"), "c is float16 and out is float32"),
    (lambda: result("float16", c="float16", bias="float32"), "bias is float32 and c is float16"),
    (lambda: check_dtype("a", np.dtype("int64")), "a is int64; element types taken are .*int8"),
    (lambda: check_dtype("bias", np.dtype("int8")), "bias is int8; element types taken"),
    (lambda: resolve_precision("BF16_BF16_F32", "float16"),
     "multiplies float32 or bfloat16; .* float16"),
    (lambda: resolve_precision("I8_I8_I32", "float32"), "multiplies int8; .* are float32"),
    *(
        (lambda value=value: check_scalar("beta", value, "int8"),
         "beta is .* operands are int8; an integer")
        for value in (0.5, math.inf, math.nan, 2**31, -(2**31) - 1, 1e300, np.float16(0.1))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_invalid_types_and_numbers_are_refused(call, words):
    check_dtype("out", np.dtype(np.int32))
    with pytest.raises(pyclgemm.DtypeError, match=words):
        call()


def test_sources_name_both_types_and_avoid_read_only_loads_of_halves_on_nvidia():
    for precision, architecture, wanted in (
        ("F16_F16_F16", "gfx1030", "half *restrict a"),
        # NVIDIA's compiler has no read-only load of four halves.
        ("F16_F16_F16", "sm_75", "half *a"),
        ("F16_F16_F32", "sm_75", "half *restrict a"),
    ):
        problem = GemmShape(8, 8, 8).problem("float16", precision, result_dtype="float32")
        text = family_of(DIRECT).source(problem, DIRECT, typical_traits(architecture)).text
        assert f"float16 -> float32, {precision}" in text.splitlines()[0]
        assert f"const __global {wanted}" in text and "__global float *out" in text


def test_the_stated_error_of_tf32_is_that_of_elements_that_are_cut_off():
    a = np.nextafter(np.float32(1 + 2.0**-10), np.float32(0))  # all bits that are cut off are 1
    cut = (np.array([a]).view(np.uint32) & 0xFFFFE000).view(np.float32)[0]
    error = 1 - float(cut) ** 2 / float(a) ** 2
    stated = resolve_precision("TF32_TF32_F32", "float32").product_error
    assert 0.99 * stated < error + 4 * 2.0**-20 and error <= stated


@pytest.mark.parametrize("dtype", UNIT_DTYPES)
def test_a_gpu_without_units_refuses_their_types(queue, traits, dtype):
    gpu, x = typical_traits("gfx1030"), np.ones((4, 4), dtype)
    with imagined_traits(**asdict(gpu)):
        for function in (pyclgemm.gemm, pyclgemm.plan, pyclgemm.explain, pyclgemm.pack):
            operands = [x] if function is pyclgemm.pack else [x, x]
            with raises(pyclgemm.UnsupportedError, f"the operands are {dtype}", repr(gpu.name)):
                function(queue, *operands)


@pytest.mark.parametrize("dtype", UNIT_DTYPES)
def test_cpus_compute_the_types_of_units(queue, traits, rng, dtype):
    if traits.type != "cpu":
        pytest.skip("other devices compute them by units")
    a, b, bias = draw(rng, (37, 301), (301, 41), (41,), dtype=dtype)
    bias = bias.astype(np.int32 if dtype == "int8" else dtype)
    if dtype == "int8":
        a[0], b[:, 0] = -128, -128  # the largest product, in every term of a sum
    for operand in (b, pyclgemm.pack(queue, b)):
        assert_gemm(pyclgemm.gemm(queue, a, operand), a, b)
    layer = pyclgemm.DenseLayer(queue, b, bias, "relu")
    for rows in (1, 37):
        assert_gemm(layer(a[:rows]), a[:rows], b, bias=bias, activation="relu")
    for size in (8, 37):
        stacks = np.stack([a[:size, :size]] * 5), np.stack([b[:size, :size]] * 5)
        assert_gemm(pyclgemm.gemm_batched(queue, *stacks), *stacks)


def test_integer_products_take_integer_factors_and_relu_alone(queue):
    for value in (3, -2.0, np.int64(7), np.float32(5), -(2**31), 2**31 - 1):
        found = check_scalar("alpha", value, "int8")
        assert type(found) is int and found == value
    (x,) = upload(queue, np.ones((4, 4), np.int8))
    gelu = pyclgemm.Epilogue(activation="gelu")
    for function in (pyclgemm.gemm, pyclgemm.plan, pyclgemm.explain):
        with pytest.raises(pyclgemm.DtypeError, match="alpha is 0.5 and the operands are int8"):
            function(queue, x, x, alpha=0.5)
        with pytest.raises(pyclgemm.UnsupportedError, match="activation is 'gelu'.*int8.*relu"):
            function(queue, x, x, epilogue=gelu)


@pytest.mark.parametrize("config", [DIRECT, BASES["cpu"]], ids=lambda config: config.family)
def test_a_float32_result_of_half_arithmetic(queue, traits, require, config):
    require("float16", "F16_F16_F16")
    if config.family == "cpu" and traits.type != "cpu":
        pytest.skip("the cpu family takes vectors of halves, which GPU compilers may lack")
    x, y = np.full((5, 3), 2.0**-7, np.float16), np.ones((3, 4), np.float16)
    out = np.zeros((5, 4), np.float32)
    # The sum 3 * 2^-7 is exact in half, a third of it is not.
    pyclgemm.gemm(queue, x, y, alpha=1 / 3, out=out, precision="F16_F16_F16", config=config)
    np.testing.assert_allclose(out, 2.0**-7, rtol=2.0**-22)


@pytest.fixture
def halves(rng):
    return draw(rng, (9, 12), (12, 7), dtype="float16")


def test_an_array_of_float32_makes_the_result_float32(queue, halves, rng):
    c, bias = draw(rng, (9, 7), (7,))
    out = np.empty((9, 7), np.float32)
    for options, operations in (
        ({"out": out}, {}),
        ({"c": c, "beta": 2.0}, {"beta": 2.0}),
        ({"epilogue": pyclgemm.Epilogue(bias)}, {"bias": bias}),
        # An addend that is not read still has the result's type.
        ({"c": np.full_like(c, np.nan), "beta": 0.0}, {}),
    ):
        got = pyclgemm.gemm(queue, *halves, **options)
        assert got.dtype == np.float32
        operands = [*halves, c] if "beta" in operations else halves
        assert_gemm(got, *operands, result="float32", **operations)
    assert pyclgemm.gemm(queue, *halves).dtype == np.float16


def test_plans_layers_and_matmul_take_float32_results_of_halves(queue, halves):
    a, b = upload(queue, *halves)
    host = np.empty((9, 7), np.float32)
    out = cl_array.empty(queue, (9, 7), np.float32)
    ready, layer = pyclgemm.plan(queue, a, b, out=out), pyclgemm.DenseLayer(queue, b)
    assert "float16 -> float32" in str(ready.choice)
    assert "float16 ->" not in str(pyclgemm.explain(queue, a, b))
    with pytest.raises(pyclgemm.DtypeError, match="out is float16; this plan was made for float32"):
        ready(a, b, out=cl_array.empty(queue, (9, 7), np.float16))
    with pytest.raises(pyclgemm.DtypeError, match="out is float64 and a is float16"):
        pyclgemm.matmul(*halves, queue=queue, out=host.astype(np.float64))
    assert layer(a).dtype == np.float16
    for got in (
        ready(a, b), layer(a, out=out), pyclgemm.matmul(a, b, out=cl_array.empty_like(out)),
        pyclgemm.matmul(*halves, queue=queue, out=host),
    ):  # fmt: skip
        assert fetched(got).dtype == np.float32
        assert_gemm(got, *halves, result="float32")


UNITS = MatrixConfig(MWG=32, NWG=32, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2)


@pytest.mark.parametrize("dtype", UNIT_DTYPES)
def test_arrays_of_the_host_are_multiplied_in_types_of_units(units, queue, rng, dtype):
    own = "int32" if dtype == "int8" else dtype
    a, b = draw(rng, (9, 33), (33, 7), dtype=dtype)
    c, bias = draw(rng, (9, 7), (7,), dtype=own)
    options = {"epilogue": pyclgemm.Epilogue(bias, "relu"), "config": UNITS}
    got = pyclgemm.gemm(queue, a, b, c, alpha=3.0, beta=-2, **options)
    assert got.dtype == own
    assert_gemm(got, a, b, c, alpha=3, beta=-2, bias=bias, activation="relu")
    assert (got == 0).any()
