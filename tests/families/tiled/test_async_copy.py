"""Copies past the registers: on devices that lack them in plain C, elsewhere as they are."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclgemm.device.traits import has_async_copy
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.problem.shape import GemmShape
from tests.support.buffers import Layout
from tests.support.checks import (
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_gemm,
    skip_if_refused,
    spoil_workspace,
)
from tests.support.configs import DIRECT, DIRECT_CONFIGS, INDIRECT, INDIRECT_CONFIGS, TELLING_SIZES
from tests.support.emulation.ptx import (
    COPY,
    END_OF_GROUP,
    WAIT,
    emulated_async_copies,
    in_plain_c,
)
from tests.support.facts import gpu, product_of

pytestmark = pytest.mark.any_runtime

H100 = gpu(fence_options="-cl-std=CL3.0")
PLAIN = replace(DIRECT, ASYNC=1, STAGES=2)
CONFIGS = {
    "indirect: three stages": INDIRECT_CONFIGS["past the registers"],
    "indirect: all at once": INDIRECT_CONFIGS["all at once, past the registers"],
    "indirect: two stages, fragments": replace(INDIRECT, ASYNC=1, STAGES=2, FRAGMENTS=2),
    "direct: two stages": PLAIN,
    "direct: three stages": DIRECT_CONFIGS["past the registers"],
    "direct: all at once": DIRECT_CONFIGS["all at once, past the registers"],
    "direct: 16 bytes": replace(
        DIRECT, WGD=32, VWMD=4, VWND=4, PADA=4, PADB=4, NDIMBD=8, ASYNC=1, STAGES=4
    ),
}


@pytest.fixture
def async_copies(traits, queue):
    skip_if_refused(queue, DIRECT)
    if has_async_copy(traits):
        yield
    else:
        with emulated_async_copies():
            yield


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("async_copies")
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_configuration(queue, config):
    spoil_workspace(queue, config=config)
    for sizes in TELLING_SIZES:
        check_gemm(queue, sizes, config=config)


@pytest.mark.usefixtures("async_copies")
@pytest.mark.parametrize("operands", [ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=2)],
                         ids=["row", "column", "row by twos"])  # fmt: skip
@pytest.mark.parametrize("name", ["direct: two stages", "direct: 16 bytes"])
def test_vectors_that_the_edge_cuts(queue, name, operands):
    # Of n = 31 and m = 33 the last vector is cut, of 36 it is whole, of 64 there is no edge.
    for sizes in [(33, 31, 9), (36, 36, 36), (64, 64, 64), (62, 34, 18)]:
        check_gemm(queue, sizes, config=CONFIGS[name], a=operands, b=operands)


@pytest.mark.usefixtures("async_copies")
@pytest.mark.parametrize("a", [ROW, COLUMN, STRIDED], ids=["row", "column", "strided"])
@pytest.mark.parametrize("b", [ROW, COLUMN, STRIDED], ids=["row", "column", "strided"])
def test_every_layout(queue, a, b):
    check_gemm(queue, (37, 41, 19), config=PLAIN, a=a, b=b, out=ROW)


@pytest.mark.usefixtures("async_copies")
@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_every_type_and_conjugates(queue, require, dtype):
    require(dtype)
    width = 1 if dtype == "complex128" else 2
    config = replace(PLAIN, VWMD=width, VWND=width)
    options = {"trans_a": "C", "trans_b": "C"} if dtype.startswith("complex") else {}
    check_gemm(queue, (37, 41, 19), dtype, config=config, **options)
    check_gemm(
        queue, (37, 41, 19), dtype, config=replace(config, FRAGMENTS=2), a=COLUMN_ALIGNED,
        b=COLUMN_ALIGNED, **options,
    )  # fmt: skip


@pytest.mark.usefixtures("async_copies")
@settings(max_examples=15)
@given(sizes=st.tuples(*[st.integers(1, 80)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size(queue, sizes, seed):
    check_gemm(queue, sizes, config=CONFIGS["direct: all at once"], seed=seed)


@pytest.mark.usefixtures("async_copies")
def test_zero_sizes(queue):
    for sizes in [(0, 5, 3), (5, 0, 3), (5, 7, 0)]:
        for config in CONFIGS.values():
            check_gemm(queue, sizes, config=config)


# The text, without a device


def _text(config: Any, *sizes: int, dtype: str = "float32", **options: Any) -> str:
    assert violations(config, dtype, H100) == []
    schedule = make_schedule(product_of(*sizes, dtype, **options), config, H100)
    return schedule.launches[-1].source.text


TRANSPOSITIONS = pytest.mark.parametrize(
    ("trans_a", "trans_b"), [(a, b) for a in "NT" for b in "NT"], ids="".join
)


@TRANSPOSITIONS
def test_each_copy_says_how_many_bytes_are_valid(trans_a, trans_b):
    text = _text(PLAIN, 37, 41, 19, trans_a=trans_a, trans_b=trans_b)
    copies = list(COPY.finditer(text))
    # One of A and one of B, in the functions that the first slabs and the loop call.
    assert len(copies) == text.count("cp.async.ca") + text.count("cp.async.cg") == 2
    assert text.count("copy_a(") == text.count("copy_b(") == 3
    for copy in copies:
        # None is copied unchecked, for none of the three sizes is of whole tiles or slabs.
        assert "< k" in copy["valid"]
        assert "< m" in copy["valid"] or "< n" in copy["valid"] or "clamp(" in copy["valid"]


@TRANSPOSITIONS
def test_whole_tiles_and_slabs_are_copied_without_checks(trans_a, trans_b):
    text = _text(PLAIN, 64, 32, 48, trans_a=trans_a, trans_b=trans_b)
    for copy in COPY.finditer(text):
        assert copy["valid"] == copy["count"]


@TRANSPOSITIONS
@pytest.mark.parametrize("sizes", [(64, 32, 47), (64, 32, 40), (63, 31, 48)])
def test_the_direct_family_checks_each_copy_unless_sizes_divide(sizes, trans_a, trans_b):
    text = _text(PLAIN, *sizes, trans_a=trans_a, trans_b=trans_b)
    for copy in COPY.finditer(text):
        assert copy["valid"] != copy["count"]


def test_of_a_vector_that_the_edge_cuts_the_part_inside_is_copied():
    # Rows of 35 elements that start 36 apart: the last vector of two goes over the edge.
    product = GemmShape(64, 35, 64, "TN").product()
    padded = replace(product.problem.b, alignment=4)
    product = replace(product, problem=replace(product.problem, b=padded))
    text = make_schedule(product, PLAIN, H100).launches[-1].source.text
    inside = re.compile(r"\(int\)clamp\(n - b_tile - \w+, \(extent\)0, \(extent\)2\) \* 4")
    assert [bool(inside.search(copy["valid"])) for copy in COPY.finditer(text)] == [False, True]


def test_the_indirect_family_pads_and_never_checks():
    for sizes in [(33, 31, 9), (64, 32, 48), (5, 5, 0)]:
        copies = list(COPY.finditer(_text(CONFIGS["indirect: three stages"], *sizes)))
        assert len(copies) == 2
        assert all(copy["valid"] == copy["count"] for copy in copies)


@pytest.mark.parametrize(
    ("dtype", "width", "trans_a", "count", "cache"),
    [
        ("float32", 1, "T", 4, "ca"),
        ("float32", 2, "T", 8, "ca"),
        ("float32", 4, "T", 16, "cg"),
        ("float32", 4, "N", 4, "ca"),  # along k: turned around element by element
        ("float64", 2, "T", 16, "cg"),
        ("complex128", 1, "T", 16, "cg"),
        ("complex128", 1, "N", 16, "cg"),
    ],
)
def test_bytes_of_a_copy_and_the_cache_that_it_passes(dtype, width, trans_a, count, cache):
    # cp.async.cg takes 16 bytes only, and .ca any of 4, 8 and 16 (PTX ISA).
    config = replace(PLAIN, WGD=32, VWMD=width, VWND=width, PADA=4, PADB=4)
    copy = next(COPY.finditer(_text(config, 64, 64, 64, dtype=dtype, trans_a=trans_a)))
    assert (int(copy["count"]), copy["cache"]) == (count, cache)


@pytest.mark.parametrize("name", CONFIGS)
def test_copies_are_grouped_and_waited_for(name):
    config = CONFIGS[name]
    text = _text(config, 64, 64, 64)
    stages = config.STAGES
    assert {int(wait["pending"]) for wait in WAIT.finditer(text)} == {stages - 2}
    # One group for each slab that is sent ahead, and one in every turn of the loop.
    assert text.count(END_OF_GROUP) == 2
    assert (f"stage < {stages - 1}; ++stage" in text) == (stages > 2)
    assert f"a_local[{stages} * KWG * A_PITCH]" in text
    # A barrier follows each wait, before anybody reads what others copied.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if WAIT.match(line):
            assert lines[number + 1] == "barrier(CLK_LOCAL_MEM_FENCE);"


def test_without_it_there_is_no_inline_ptx():
    for config in (INDIRECT, DIRECT, replace(DIRECT, STAGES=2, FRAGMENTS=2, FILL=2)):
        text = _text(config, 33, 31, 9)
        assert in_plain_c(text) == text
