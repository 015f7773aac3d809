"""Element types: valid combinations, and results of another type than the operands."""

import math

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.api.prepare import check_supported
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import family_of
from pyclgemm.problem.matrix import check_dtype, check_scalar, result_dtype
from pyclgemm.problem.precision import DTYPES, UNIT_DTYPES, resolve_precision, result_dtypes
from pyclgemm.problem.shape import GemmShape
from tests.support.arrays import assert_gemm, draw, fetched, upload
from tests.support.buffers import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED
from tests.support.checks import check_gemm
from tests.support.configs import CPU, DIRECT, EVERY_FAMILY_AND_MORE
from tests.support.facts import problem


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
    assert problem(4, 4, 4, dtype).types == {"int8": "int8 -> int32"}.get(dtype, dtype)


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
    (lambda: check_dtype("a", np.dtype("int32")), "a is int32; element types taken are .*int8"),
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
    check_dtype("out", np.dtype(np.int32))  # valid for a result, not for an operand
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
@pytest.mark.parametrize("architecture", ["sm_70", "x86-64-v4", "gfx1030"])
def test_types_of_units_are_refused_on_architectures_without_them(dtype, architecture):
    precision = resolve_precision(None, dtype)
    assert precision.needs_matrix_unit
    with pytest.raises(pyclgemm.UnsupportedError, match=f"(?=.*{dtype})(?=.*{architecture})"):
        check_supported(dtype, precision, typical_traits(architecture))


@pytest.mark.parametrize("dtype", UNIT_DTYPES)
def test_a_device_without_units_refuses_their_types(queue, traits, dtype):
    x = np.ones((4, 4), dtype)
    try:
        check_supported(dtype, resolve_precision(None, dtype), traits)
        pytest.skip(f"{traits.name} has units")
    except pyclgemm.UnsupportedError:
        for function in (pyclgemm.gemm, pyclgemm.plan, pyclgemm.explain, pyclgemm.pack):
            operands = [x] if function is pyclgemm.pack else [x, x]
            with pytest.raises(pyclgemm.UnsupportedError, match=f"the operands are {dtype}"):
                function(queue, *operands)


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


@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize(
    "options",
    [
        {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED, "in_place": True, "bias": True,
         "activation": "tanh"},
        {"a": COLUMN_ALIGNED, "b": COLUMN, "out": COLUMN, "c": ROW},
        {"a": STRIDED, "b": ROW, "out": STRIDED, "c": STRIDED, "bias": True},
    ],
    ids=["aligned, in place", "column", "strided"],
)  # fmt: skip
def test_a_float32_result_of_float16_operands(queue, config, options):
    """The bound is that of float32: rounding to float16 anywhere would exceed it."""
    sizes = (37, 41, 70)  # more than one block of k, so that sums wait in memory
    options = options | {"result": "float32", "alpha": 0.3, "beta": -1.7}
    check_gemm(queue, sizes, "float16", config=config, **options)


@pytest.mark.parametrize("config", [DIRECT, CPU], ids=lambda config: config.family)
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
    assert "float16" not in str(pyclgemm.explain(queue, a, b))
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
