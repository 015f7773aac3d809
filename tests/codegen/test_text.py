"""The text of kernels reads like C written by hand; the instructions of matrix units."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.codegen.matrix_units import unit_multiplying
from pyclgemm.codegen.source import divided, modulo, plus, times
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import make_schedule, oriented, violations
from pyclgemm.problem.shape import GemmShape
from tests.support.configs import EVERY_CONFIG
from tests.support.facts import HOPPER, product_of

GPU = replace(HOPPER, shuffle="shfl.sync", sub_group_sizes=(32,))
PRODUCTS = [
    GemmShape(33, 31, 9).product(),
    GemmShape(64, 64, 64, "TT").product(),
    product_of(64, 30, 0, reads_c=True),
    GemmShape(5, 36, 20).product(reads_c=True, bias=True, activation="gelu"),
    GemmShape(130, 3, 20).product(reads_c=True, bias=True, activation="relu"),
    GemmShape(33, 32, 10).product("float16", bias=True),
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


def test_every_name_is_used(codes):
    declared = r"^\s*(?:const )?(?:int|extent|long|bool|uint) (\w+) = "
    for code in codes:
        words = re.findall(r"\w+", code)
        names = re.findall(r"#define (\w+)", code) + re.findall(declared, code, re.MULTILINE)
        names += re.findall(r"^static inline \w+ (\w+)\(", code, re.MULTILINE)
        assert not {name for name in names if words.count(name) < 2}


def test_a_local_name_is_not_declared_twice_in_a_block(codes):
    declared = re.compile(r"\s*(?:const )?(?:int|extent|long|bool|element) (\w+)(?:\[.*\])* ?[=;]")
    for code in codes:
        blocks = [set()]
        for line in code.splitlines():
            if found := declared.match(line):
                assert found[1] not in blocks[-1]
                blocks[-1].add(found[1])
            for brace in re.findall(r"[{}]", line):
                blocks.append(set()) if brace == "{" else blocks.pop()


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
