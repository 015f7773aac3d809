"""Copies past the registers, and loads past the first-level cache: in plain C where a device lacks
them, elsewhere as they are.
"""

import re
from dataclasses import replace
from unittest.mock import patch

import pytest

from pyclgemm.device.traits import has_async_copy, has_cache_hints
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
    spoil_workspace,
)
from tests.support.configs import (
    DIRECT,
    DIRECT_CONFIGS,
    GEMV,
    INDIRECT,
    INDIRECT_CONFIGS,
    TELLING_SIZES,
)
from tests.support.emulation.async_copy import (
    COPY,
    END_OF_GROUP,
    STREAMED,
    WAIT,
    emulated_async_copies,
    in_plain_c,
)
from tests.support.facts import gpu
from tests.support.products import product_of

pytestmark = pytest.mark.any_runtime

H100 = gpu(fence_options="-cl-std=CL3.0")
PLAIN = replace(DIRECT, ASYNC=1, STAGES=2)
BY_16_BYTES = replace(DIRECT, WGD=32, VWMD=4, VWND=4, PADA=4, PADB=4, NDIMBD=8, ASYNC=1, STAGES=4)
CONFIGS = {
    "indirect: three stages": INDIRECT_CONFIGS["past the registers"],
    "indirect: all at once": INDIRECT_CONFIGS["all at once, past the registers"],
    "indirect: two stages, fragments": replace(INDIRECT, ASYNC=1, STAGES=2, FRAGMENTS=2),
    "direct: two stages": PLAIN,
    "direct: three stages": DIRECT_CONFIGS["past the registers"],
    "direct: all at once": DIRECT_CONFIGS["all at once, past the registers"],
    "direct: 16 bytes": BY_16_BYTES,
}
STREAMING = replace(GEMV, VW=4, STREAMB=1)


@pytest.fixture
def copies(traits):
    if has_async_copy(traits) and has_cache_hints(traits):
        yield
    else:
        with emulated_async_copies():
            yield


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_configuration(queue, config):
    spoil_workspace(queue, config=config)
    for sizes in TELLING_SIZES:
        check_gemm(queue, sizes, config=config)


TWOS = replace(PLAIN, VWMD=2, VWND=2)
OPTIONS = [
    # Of n = 31 and m = 33 the last vector is cut, of 36 it is whole, of 64 there is no edge.
    *({"sizes": sizes, "config": config, "a": operands, "b": operands}
      for config in (PLAIN, BY_16_BYTES)
      for operands in (ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=2))
      for sizes in ((33, 31, 9), (36, 36, 36), (64, 64, 64), (62, 34, 18))),
    *({"a": a, "b": b} for a in (ROW, COLUMN, STRIDED) for b in (ROW, COLUMN, STRIDED)),
    *({"dtype": dtype, "config": replace(config, FRAGMENTS=fragments), "a": operands,
       "b": operands, "trans_a": transposed, "trans_b": transposed}
      for dtype, config, transposed in (
          ("float64", TWOS, "N"), ("complex64", TWOS, "C"),
          ("complex128", replace(PLAIN, VWMD=1, VWND=1), "C"))
      for fragments, operands in ((1, ROW), (2, COLUMN_ALIGNED))),
    *({"sizes": sizes, "config": config}
      for config in CONFIGS.values() for sizes in ((0, 5, 3), (5, 0, 3), (5, 7, 0))),
    {"sizes": (3, 37, 50), "dtype": "complex64", "config": replace(STREAMING, VW=2),
     "b": ROW_ALIGNED, "trans_b": "C"},
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("options", OPTIONS)
def test_edges_and_layouts_and_types(queue, require, options):
    given = {"sizes": (37, 41, 19), "dtype": "float32", "config": PLAIN} | options
    require(given["dtype"])
    check_gemm(queue, **given)


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("b", [ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=1)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "width"),
    [("float32", 1), ("float32", 4), ("float16", 4), ("float16", 8), ("bfloat16", 2), ("int8", 4),
     ("int8", 16), ("float64", 2), ("complex64", 1), ("complex128", 1)],
)  # fmt: skip
def test_streamed_loads(queue, require, dtype, width, b):
    """With columns that no vector fills, and where rows are at odd places by single elements."""
    require(dtype)
    config = replace(STREAMING, VW=width)
    with patch("pyclgemm.api.prepare.check_supported"):
        for sizes in ((3, 37, 50), (1, 64, 128)):
            check_gemm(queue, sizes, dtype, b=b, config=config, alpha=2, c=ROW_ALIGNED, beta=-1)


# ------------------------------------------------------------------ the text, without a device


def text_of(config, *sizes, dtype="float32", **options):
    assert violations(config, dtype, H100) == []
    schedule = make_schedule(product_of(*sizes, dtype, **options), config, H100)
    return schedule.launches[-1].source.text


@pytest.mark.parametrize(("trans_a", "trans_b"), [(a, b) for a in "NT" for b in "NT"], ids="".join)
def test_copies_are_checked_unless_tiles_and_slabs_are_whole(trans_a, trans_b):
    for sizes in [(64, 32, 48), (37, 41, 19), (64, 32, 47), (64, 32, 40), (63, 31, 48)]:
        text = text_of(PLAIN, *sizes, trans_a=trans_a, trans_b=trans_b)
        copies = list(COPY.finditer(text))
        # One of A and one of B, in the functions that the first slabs and the loop call.
        assert len(copies) == text.count("cp.async.ca") + text.count("cp.async.cg") == 2
        assert text.count("copy_a(") == text.count("copy_b(") == 3
        for copy in copies:
            assert (copy["valid"] == copy["count"]) == (sizes == (64, 32, 48))
            if sizes == (37, 41, 19):
                valid = copy["valid"]
                assert "< k" in valid
                assert "< m" in valid or "< n" in valid or "clamp(" in valid


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
        copies = list(COPY.finditer(text_of(CONFIGS["indirect: three stages"], *sizes)))
        assert len(copies) == 2
        assert all(copy["valid"] == copy["count"] for copy in copies)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_copies_are_grouped_and_waited_for(config):
    text = text_of(config, 64, 64, 64)
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


@pytest.mark.parametrize(
    ("dtype", "width", "load"),
    [
        ("float32", 1, ".u32 %0"),
        ("float16", 4, ".v2.u32 {%0, %1}"),
        ("float64", 2, ".v4.u32 {%0, %1, %2, %3}"),
    ],
)
def test_a_streamed_load_has_the_words_of_a_vector(dtype, width, load):
    text = text_of(replace(STREAMING, VW=width), 1, 64, 64, dtype=dtype)
    assert len(STREAMED.findall(text)) == 1
    assert f"L2::128B{load}, [%" in text
    # Of B alone: A is read by all groups.
    assert "load_streamed(b + " in text and "load_streamed(a" not in text


def test_without_them_there_is_no_inline_ptx():
    overlapped = replace(DIRECT, STAGES=2, FRAGMENTS=2, FILL=2)
    for config in (INDIRECT, DIRECT, overlapped, replace(STREAMING, STREAMB=0)):
        text = text_of(config, 33, 31, 9)
        assert in_plain_c(text) == text
