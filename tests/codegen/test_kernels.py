"""What kernels consist of: text like C written by hand, and elements as they load and pack them."""

import math
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, strategies as st

from pyclgemm.codegen.element import ElementType
from pyclgemm.codegen.launch import Schedule
from pyclgemm.codegen.matrix_units import unit_multiplying
from pyclgemm.codegen.pack import PackedForm, pack_launch
from pyclgemm.codegen.source import divided, minus, modulo, plus, times
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import DtypeError
from pyclgemm.families.registry import family_of, make_schedule, oriented, violations
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import PART_TYPES, resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.runtime.launcher import LaunchSequence
from pyclgemm.runtime.queue_state import queue_state
from tests.support.arrays import upload
from tests.support.buffers import blank
from tests.support.configs import CPU, DIRECT, EVERY_CONFIG
from tests.support.facts import HOPPER, product_of

GPU = replace(HOPPER, shuffle="shfl.sync", sub_group_sizes=(32,))
PRODUCTS = [
    GemmShape(33, 31, 9).product(),
    GemmShape(64, 64, 64, "TT").product(),
    product_of(64, 30, 0, reads_c=True),
    GemmShape(5, 36, 20).product(reads_c=True, bias=True, activation="gelu"),
    GemmShape(130, 3, 20).product(reads_c=True, bias=True, activation="relu"),
    GemmShape(33, 32, 10).product("float16", bias=True),
    GemmShape(33, 32, 10).product("bfloat16"),
    GemmShape(33, 32, 10, "TT").product("complex64", conjugate="ab", reads_c=True),
]


@pytest.fixture(scope="module", params=EVERY_CONFIG)
def config(request):
    return request.param


@pytest.fixture(scope="module")
def texts(config):
    """All kernels of a configuration, for the types that it is valid for."""
    found = [
        launch.source.text
        for product in PRODUCTS
        if not violations(config, product.problem.dtype, GPU)
        for launch in make_schedule(oriented(product, config, GPU), config, GPU).launches
    ]
    assert found
    return found


@pytest.fixture(scope="module")
def codes(texts):
    """The texts without comments."""
    return [re.sub(r"//.*", "", text) for text in texts]


def test_lines_are_indented_by_their_braces(codes):
    for text in codes:
        depth, parentheses, continued = 0, 0, False
        for line in text.splitlines():
            code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).strip()
            if code and not line.startswith("#") and not continued:
                closing = len(code) - len(code.lstrip("}"))
                indent = len(line) - len(line.lstrip())
                assert indent == 4 * (depth - closing + (parentheses > 0)), line
            depth += code.count("{") - code.count("}")
            parentheses += code.count("(") - code.count(")")
            continued = line.endswith("\\")
        assert depth == 0


#: Traces of the template in a text, and code without an effect.
TRACES = re.compile(
    r"\$\{|<%|</%|\b(?:None|True|False)\b|UNDEFINED|^\s*(?:%|##)|[ \t]+$|\n\n\n", re.MULTILINE
)
IDLE = re.compile(
    r"\bif \((?:true|false|[01])\)|\{\s*\}|^\s*;"
    r"|[*/%] 1\b(?![.x])|\b0 [*+] |[*+] 0\b(?![.x])|(?<![\w.])1 \* ",
    re.MULTILINE,
)


def test_no_traces_of_the_template_and_no_code_without_an_effect(config, texts, codes):
    for text, code in zip(texts, codes, strict=True):
        assert not TRACES.search(text)
        assert not IDLE.search(code)
        assert text.endswith("}\n")
        formula, parameters = text.splitlines()[:2]
        if formula.startswith("// out = "):  # which packing kernels lack
            assert parameters == f"// {config.family}: {config}"


DECLARED = re.compile(r"\s*(?:const )?(?:int|extent|long|bool|uint|element) (\w+)(?:\[.*\])* ?[=;]")


def test_every_name_is_used_and_declared_once_in_a_block(codes):
    for code in codes:
        names = re.findall(r"#define (\w+)", code)
        names += re.findall(r"^static inline \w+ (\w+)\(", code, re.MULTILINE)
        blocks = [set()]
        for line in code.splitlines():
            if declared := DECLARED.match(line):
                names.append(declared[1])
                assert declared[1] not in blocks[-1]
                blocks[-1].add(declared[1])
            for brace in re.findall(r"[{}]", line):
                blocks.append(set()) if brace == "{" else blocks.pop()
        words = re.findall(r"\w+", code)
        assert not {name for name in names if words.count(name) < 2}


NUMBERS = st.integers(0, 40)
TERMS = st.one_of(NUMBERS, st.sampled_from(["i", "j", "i + 1", "i % 3", "i / 2", "(i + j)"]))


@given(terms=st.tuples(TERMS, TERMS, TERMS), divisor=st.integers(1, 9), i=NUMBERS, j=NUMBERS)
def test_expressions_are_in_parentheses_where_needed(terms, divisor, i, j):
    def value(expression):
        """The value in C of an expression of numbers that are not negative."""
        return int(eval(str(expression).replace("/", "//"), {"i": i, "j": j}))

    first, second, third = terms
    a, b, c = map(value, terms)
    assert value(plus(first, second, third)) == a + b + c
    assert value(times(first, second, third)) == a * b * c
    assert value(times(plus(first, second), third)) == (a + b) * c
    assert value(plus(first, times(second, third))) == a + b * c
    assert value(minus("99", first, plus(second, third))) == 99 - a - b - c
    for one in (first, plus(first, second), times(first, second)):
        assert value(divided(one, divisor)) == value(one) // divisor
        assert value(modulo(one, divisor)) == value(one) % divisor
        assert value(times(third, modulo(one, divisor))) == c * (value(one) % divisor)


MMA = "mma.sync.aligned"


@pytest.mark.parametrize(
    ("architecture", "multiplied", "sums", "wanted"),
    [
        ("sm_90", "int8", "int32", (f"{MMA}.m16n8k32.row.col.s32.s8.s8.s32", 32)),
        ("sm_80", "float64", "float64", (f"{MMA}.m8n8k4.row.col.f64.f64.f64.f64", 32)),
        ("sm_90", "float64", "float64", (f"{MMA}.m16n8k4.row.col.f64.f64.f64.f64", 32)),
        ("gfx90a", "float64", "float64", ("__builtin_amdgcn_mfma_f64_16x16x4f64", 64)),
        ("gfx1100", "int8", "int32", ("__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32", 32)),
        ("gfx1200", "float16", "float32", ("__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12", 32)),
        ("gfx1100", "float64", "float64", None),
        ("sm_70", "float16", "float32", None),
    ],
)
def test_the_unit_of_an_architecture(architecture, multiplied, sums, wanted):
    unit = unit_multiplying(multiplied, sums, typical_traits(architecture))
    assert (unit and (unit.instruction.partition("(")[0], unit.lanes)) == wanted


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SINGLE = ElementType("float32", "float32")
#: Elements of a vector, and whether vectors are aligned.
ACCESSES = [(1, True), (2, True), (2, False), (16, True), (16, False)]
HALVES = (2, 4, 8)


def test_bfloat16_operands_are_multiplied_without_rounding():
    rounded = resolve_precision("BF16_BF16_F32", "float32")
    stored = resolve_precision(None, "bfloat16")
    assert stored.name == rounded.name and stored != rounded
    assert (stored.product_error, rounded.product_error) == (0.0, 2 * 2.0**-8 + 2.0**-16)
    for parts in (3, 6, 9):
        with pytest.raises(DtypeError, match="multiplies float32; the operands are bfloat16"):
            resolve_precision(f"BF16_BF16_F32_X{parts}", "bfloat16")


def conversions(context, stored, texts, accesses):
    """A program with a kernel for each kind of load and of store, with the functions of `texts`."""
    function = re.compile(
        r"^static inline \w+ (?:bfloat16|halves|floats)_of.*?^}$", re.DOTALL | re.MULTILINE
    )
    kernels = list(dict.fromkeys(one for text in texts for one in function.findall(text)))
    for width, aligned in accesses:
        for kind, source, target in (("load", stored, SINGLE), ("store", SINGLE, stored)):
            position = f"get_global_id(0) * {width}"
            value = source.load(f"from + {position}", width, aligned=aligned)
            kernels.append(
                f"__kernel void {kind}{width}_{aligned:d}(\n"
                f"    const __global {source.stored} *from, __global {target.stored} *to)\n{{\n"
                f"    const {source.vector(width)} x = {value};\n"
                f"    {target.store('x', f'to + {position}', width, aligned=aligned)}\n}}\n"
            )
    return cl.Program(context, "\n".join(kernels)).build()


@pytest.fixture(scope="session")
def bfloat16_conversions(context):
    problem, traits = GemmShape(17, 33, 8).problem("bfloat16"), typical_traits("x86-64-v4")
    configs = [replace(CPU, VW=width, NR=16) for width in {width for width, _ in ACCESSES}]
    texts = [family_of(CPU).source(problem, config, traits).text for config in configs]
    return conversions(context, ElementType("bfloat16", "float32"), texts, ACCESSES)


@pytest.fixture(scope="session")
def half_conversions(context):
    """As on NVIDIA's devices, where vectors of halves are moved as words."""
    problem = GemmShape(64, 64, 64).problem("float16")
    configs = [
        replace(DIRECT, WGD=64, KWGD=8, VWMD=width, VWND=width, PADA=width, PADB=width)
        for width in HALVES
    ]
    texts = [family_of(DIRECT).source(problem, config, HOPPER).text for config in configs]
    stored = ElementType("float16", "float32", in_words=True)
    return conversions(context, stored, texts, [(width, True) for width in HALVES])


def check(queue, program, name, width, values, right):
    """Run a kernel; NaN stays NaN, and everything else must be right to the last bit."""
    source, result = upload(queue, values, blank(right.shape, right.dtype))
    kernel = cl.Kernel(program, name)
    kernel(queue, (values.size // width,), None, source.base_data, result.base_data)
    got, is_nan = result.get(), np.isnan(right)
    assert (np.isnan(got) == is_nan).all()
    assert got[~is_nan].tobytes() == right[~is_nan].tobytes()


@pytest.mark.parametrize(("width", "aligned"), ACCESSES)
def test_bfloat16_is_loaded_exactly_and_stored_to_nearest_even(
    queue, bfloat16_conversions, width, aligned
):
    access = f"{width}_{aligned:d}"
    every = np.arange(2**16, dtype=np.uint16).view(BFLOAT16)
    check(queue, bfloat16_conversions, f"load{access}", width, every, every.astype(np.float32))
    # After each value: numbers before, at and after the middle to the next one.
    upper = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = np.ravel(upper | lower).view(np.float32)
    with np.errstate(all="ignore"):
        right = values.astype(BFLOAT16)
    check(queue, bfloat16_conversions, f"store{access}", width, values, right)


@pytest.mark.parametrize("width", HALVES)
def test_halves_are_loaded_exactly_and_stored_to_nearest_even(queue, half_conversions, width):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    check(queue, half_conversions, f"load{width}_1", width, every, every.astype(np.float32))
    # Numbers before, at and after the middle to the next half, denormal ones and infinity too.
    middle = every.astype(np.float32).view(np.uint32)[:, None]
    lower = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    values = np.ravel(middle | lower).view(np.float32)
    with np.errstate(all="ignore"):
        right = values.astype(np.float16)
    check(queue, half_conversions, f"store{width}_1", width, values, right)


def packed(queue, matrix, name, data, padded, form, **facts):
    """The packed operand as (term, row, along the row); the padding of rows stays NaN.

    `facts` replace traits of the device.
    """
    traits = replace(traits_of(queue.device), **facts)
    launch = pack_launch("b", "out", matrix, name, data.dtype.name, padded, traits, form)
    inner, outer = reversed(padded) if form.along_k else padded
    stored = {"float": "f4", "ushort": "u2"}[form.split.stored] if form.split else data.dtype
    shape = form.terms, outer, inner + form.padding
    source, result = upload(queue, data, blank(shape, stored))
    sequence = LaunchSequence(queue_state(queue), Schedule((launch,)), {"b": "b", "out": "out"})
    sequence.enqueue([source[matrix.offset :], result])
    return result.get()


def matrix_of(rows, columns, strides, offset=5):
    """A matrix, and the indices of its entries in a buffer."""
    indices = np.add.outer(np.arange(rows) * strides[0], np.arange(columns) * strides[1])
    return Matrix(rows, columns, *strides, offset=offset), offset + indices


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(("order", "along_k"), [("row", False), ("column", True)])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("items", [100, 1024])
def test_narrow_elements_are_transposed_by_fours(queue, dtype, order, along_k, aligned, items):
    # More than two tiles of 64 elements each way, and edges that cut a block of four.
    positions, depth, padded = 150, 134, (152, 144)
    lead = (152 if order == "column" else 136) + (not aligned)
    strides = (lead, 1) if order == "row" else (1, lead)
    matrix, indices = matrix_of(positions, depth, strides, offset=8 if aligned else 5)
    data = (np.arange(indices.max() + 1) % 113 - 50).astype(dtype)
    expected = np.zeros(padded, dtype)
    expected[:positions, :depth] = data[indices]
    form = PackedForm(along_k=along_k)
    result = packed(queue, matrix, "a", data, padded, form, max_work_group_size=items)
    np.testing.assert_array_equal(result[0], expected if along_k else expected.T)


def test_rows_along_k_may_be_padded(queue):
    matrix, indices = matrix_of(20, 9, (1, 21))
    data = np.arange(1, 700, dtype=np.float64)
    result = packed(queue, matrix, "b", data, (12, 24), PackedForm(along_k=True, padding=3))
    np.testing.assert_array_equal(result[0, :9, :20], data[indices].T)
    assert not result[0, 9:, :24].any()
    assert np.isnan(result[..., 24:]).all()


def nearest(x, part):
    """Round float32 to the bits of a part type, ties to even."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(fraction * 2.0**part.kept), exponent - part.kept)


@pytest.mark.parametrize("name", PART_TYPES)
def test_split_terms_add_up_to_the_element(queue, rng, name):
    part = PART_TYPES[name]
    terms = math.ceil(24 / part.kept) if name == "bfloat16" else 2
    data = (rng.standard_normal(3000) * 2.0 ** rng.integers(-60, 60, 3000)).astype(np.float32)
    data[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(np.float32).max, 1 + 2.0**-9, 1.0]
    matrix = Matrix(50, 60, 60, 1, 0)
    form = PackedForm(along_k=True, split=part, terms=terms)
    result = packed(queue, matrix, "a", data, (50, 64), form)
    if part.stored == "ushort":
        result = (result.astype(np.uint32) << 16).view(np.float32)
    assert not result[..., 60:].any()
    result = result[..., :60].reshape(terms, -1)
    finite = np.isfinite(data)
    ordinary = finite & (np.abs(data) < 1e38)
    np.testing.assert_array_equal(result[0, ordinary], nearest(data[ordinary], part))
    assert np.isfinite(result[:, finite]).all()
    np.testing.assert_array_equal(result[0, ~finite], data[~finite])
    # Rounding to nearest leaves at most half of a term's last bit. Three bfloat16 terms, which have
    # signs, hold all 24 bits of a float32.
    error = np.abs(result[:, finite].astype(np.float64).sum(axis=0) - data[finite])
    bound = 2.0 ** (-terms * part.kept) * np.abs(data[finite])
    assert (error <= (0.0 if name == "bfloat16" else bound)).all()
