"""Loads past the first-level cache: on devices that lack them in plain C, elsewhere as they are."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from pyclgemm.device.traits import has_cache_hints
from pyclgemm.families.registry import make_schedule
from pyclgemm.problem.shape import GemmShape
from tests.support.buffers import Layout
from tests.support.checks import COLUMN_ALIGNED, ROW_ALIGNED, check_gemm
from tests.support.configs import GEMV
from tests.support.emulation.ptx import STREAMED, emulated_async_copies
from tests.support.facts import gpu

pytestmark = pytest.mark.any_runtime

STREAMING = replace(GEMV, VW=4, STREAMB=1)


@pytest.fixture
def streams(traits):
    if has_cache_hints(traits):
        yield
    else:
        with emulated_async_copies():
            yield


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("b", [ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=1)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("float32", 1),
        ("float32", 4),
        ("float16", 4),
        ("float16", 8),
        ("bfloat16", 2),
        ("int8", 4),
        ("int8", 16),
        ("float64", 2),
        ("complex64", 1),
        ("complex128", 1),
    ],
)
def test_every_type_and_layout(queue, require, dtype, width, b):
    """With columns that no vector fills, and where rows are at odd places by single elements."""
    if dtype not in ("bfloat16", "int8"):
        require(dtype)
    config = replace(STREAMING, VW=width)
    with patch("pyclgemm.api.prepare.check_supported"):
        for sizes in ((3, 37, 50), (1, 64, 128)):
            check_gemm(queue, sizes, dtype, b=b, config=config, alpha=2, c=ROW_ALIGNED, beta=-1)


@pytest.mark.usefixtures("streams")
def test_conjugates(queue):
    config = replace(STREAMING, VW=2)
    check_gemm(queue, (3, 37, 50), "complex64", config=config, b=ROW_ALIGNED, trans_b="C")


# The text, without a device


def _text(dtype: str, config: Any) -> str:
    traits = gpu(architecture="sm_90")
    schedule = make_schedule(GemmShape(1, 64, 64).product(dtype), config, traits)
    return schedule.launches[-1].source.text


@pytest.mark.parametrize(
    ("dtype", "width", "load"),
    [("float32", 1, ".u32 %0"), ("float16", 4, ".v2.u32 {%0, %1}"),
     ("float64", 2, ".v4.u32 {%0, %1, %2, %3}")],
)  # fmt: skip
def test_a_load_has_the_words_of_a_vector(dtype, width, load):
    text = _text(dtype, replace(STREAMING, VW=width))
    assert len(STREAMED.findall(text)) == 1
    assert f"L2::128B{load}, [%" in text
    # Of B alone: A is read by all groups.
    assert "load_streamed(b + " in text and "load_streamed(a" not in text


def test_without_it_there_is_no_inline_ptx():
    assert "asm" not in _text("float32", replace(STREAMING, STREAMB=0))
