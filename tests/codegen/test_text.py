"""The text of kernels, without a device: laid out like C written by hand, and nothing in vain."""

import re
from typing import Any

import pytest

from pyclgemm.families.registry import make_schedule, oriented, violations
from pyclgemm.problem.shape import GemmShape
from tests.support.configs import CPU_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, INDIRECT_CONFIGS
from tests.support.facts import gpu, product_of

GPU = gpu(
    fence_options="-cl-std=CL3.0",
    local_memory_bytes=2**17,
    shuffle="shfl.sync",
    sub_group_sizes=(32,),
)
EVERY_CONFIG = pytest.mark.parametrize(
    "config",
    [
        pytest.param(config, id=f"{config.family}: {name}")
        for configs in (INDIRECT_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, CPU_CONFIGS)
        for name, config in configs.items()
    ],
)
PRODUCTS = [
    GemmShape(33, 31, 9).product(),
    GemmShape(64, 64, 64, "TT").product(),
    product_of(64, 30, 0, reads_c=True),
    GemmShape(5, 36, 20).product(reads_c=True, bias=True, activation="gelu"),
    GemmShape(130, 3, 20).product(reads_c=True, bias=True, activation="relu"),
    GemmShape(33, 32, 10).product("float16", bias=True),
    GemmShape(33, 32, 10, "TT").product("complex64", conjugate="ab", reads_c=True),
]


def texts_of(config: Any) -> list[str]:
    """All kernels of a configuration, as far as it is valid for the type."""
    texts = []
    for product in PRODUCTS:
        if not violations(config, product.problem.dtype, GPU):
            launches = make_schedule(oriented(product, config, GPU), config, GPU).launches
            texts += [launch.source.text for launch in launches]
    assert texts
    return texts


def _code(text: str) -> str:
    return re.sub(r"//.*", "", text)


@EVERY_CONFIG
def test_indented_by_its_braces(config):
    for text in texts_of(config):
        depth = 0
        parentheses = 0
        continued = False
        for line in text.splitlines():
            code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', _code(line)).strip()
            if code and not line.startswith("#") and not continued:
                closing = len(code) - len(code.lstrip("}"))
                indent = len(line) - len(line.lstrip())
                assert indent == 4 * (depth - closing + (parentheses > 0)), line
            depth += code.count("{") - code.count("}")
            parentheses += code.count("(") - code.count(")")
            continued = line.endswith("\\")
        assert depth == 0


@EVERY_CONFIG
def test_without_traces_of_the_template(config):
    for text in texts_of(config):
        assert not re.search(r"\$\{|<%|</%|\bNone\b|\bTrue\b|\bFalse\b|UNDEFINED", text)
        assert not re.search(r"^\s*(%|##)", text, re.MULTILINE)
        assert not re.search(r"[ \t]+$", text, re.MULTILINE)
        assert "\n\n\n" not in text
        assert text.endswith("}\n")


@EVERY_CONFIG
def test_every_name_is_used(config):
    declared = r"^\s*(?:const )?(?:int|extent|long|bool|uint) (\w+) = "
    for text in texts_of(config):
        code = _code(text)
        words = re.findall(r"\w+", code)
        names = re.findall(r"#define (\w+)", code) + re.findall(declared, code, re.MULTILINE)
        names += re.findall(r"^static inline \w+ (\w+)\(", code, re.MULTILINE)
        unused = {name for name in names if words.count(name) < 2}
        assert not unused


@EVERY_CONFIG
def test_no_condition_is_decided_beforehand(config):
    for text in texts_of(config):
        code = _code(text)
        assert not re.search(r"\bif \((?:true|false|[01])\)|\belse \{\s*\}", code)
        assert not re.search(r"\{\s*\}", code), "a block without statements"
        assert not re.search(r"^\s*;", code, re.MULTILINE), "a statement of nothing"


@EVERY_CONFIG
def test_the_head_names_formula_and_configuration(config):
    for text in texts_of(config):
        formula, parameters = text.splitlines()[:2]
        if formula.startswith("// out = "):  # and no packing
            assert parameters == f"// {config.family}: {config}"


def test_a_local_name_is_not_declared_twice_in_a_block():
    # C would accept a shadow in an inner block; a reader would not.
    for configs in (INDIRECT_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS):
        for config in configs.values():
            for text in texts_of(config):
                blocks: list[set[str]] = [set()]
                for line in _code(text).splitlines():
                    found = re.match(
                        r"\s*(?:const )?(?:int|extent|long|bool|element) (\w+)(?:\[.*\])* ?[=;]",
                        line,
                    )
                    if found:
                        assert found[1] not in blocks[-1]
                        blocks[-1].add(found[1])
                    for brace in re.findall(r"[{}]", line):
                        blocks.append(set()) if brace == "{" else blocks.pop()
