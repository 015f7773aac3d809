"""Fragments passed by shuffles: as the device has them, and as NVIDIA's devices do, everywhere."""

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.device.probe import INTEL_SHUFFLE, KHR_SHUFFLE, SHFL
from pyclgemm.device.traits import has_async_copy
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.families.tiled.slab import part_start, part_width
from tests.support.checks import COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.configs import DIRECT_CONFIGS, INDIRECT, INDIRECT_CONFIGS
from tests.support.emulation.ptx import (
    PTX,
    USE,
    by_sub_group_shuffle,
    emulated_async_copies,
    emulated_shuffles,
    through_local_memory,
)
from tests.support.facts import gpu, product_of

pytestmark = pytest.mark.any_runtime

H100 = gpu(fence_options="-cl-std=CL3.0", shuffle=SHFL, sub_group_sizes=(32,))
XE = gpu(
    vendor="intel", architecture="", fence_options="-cl-std=CL2.0", shuffle=KHR_SHUFFLE,
    sub_group_sizes=(8, 16, 32),
)  # fmt: skip

LARGE = replace(INDIRECT, MWG=64, NWG=64, LANES_M=8, LANES_N=4, SHUFFLE=1)
SHALLOW = replace(DIRECT_CONFIGS["shuffles"], KWGD=16)
CONFIGS = {
    "indirect": INDIRECT_CONFIGS["shuffles"],
    "indirect: a part is a vector": LARGE,
    "indirect: parts of a vector": replace(LARGE, VWM=4, VWN=4, NDIMB=8),
    "indirect: parts of one vector": replace(LARGE, VWM=8, VWN=8),
    "indirect: parts of several vectors": replace(LARGE, MWG=128, VWM=1, VWN=1),
    "indirect: more columns than rows": replace(LARGE, LANES_M=4, LANES_N=8),
    "indirect: contiguous pieces": replace(LARGE, STRM=0, STRN=0),
    "indirect: caches only": replace(LARGE, SA=0, SB=0),
    "indirect: A through caches": replace(LARGE, SA=0, STRM=0),
    "indirect: two fragments": replace(LARGE, STAGES=2, FRAGMENTS=2, PADA=2, PADB=4),
    "indirect: swizzle": replace(LARGE, SWIZZLE=4, VWM=4, VWN=4),
    "indirect: slices": replace(LARGE, SLICES=2, MDIMA=16, NDIMB=16),
    "direct": DIRECT_CONFIGS["shuffles"],
    "direct: shallow": SHALLOW,
    "direct: slabs divided": replace(SHALLOW, FILL=3),
    "direct: all at once": replace(
        SHALLOW, WGD=64, NWGD=32, GROUP_M=2, STAGES=2, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2
    ),
}
EVERY_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@pytest.fixture
def shuffling(context, traits):
    """A queue of its own: others remember products that were prepared with other kernels."""
    queue = cl.CommandQueue(context)
    if 32 in traits.sub_group_sizes:
        yield queue
    else:
        with emulated_shuffles(through_local_memory):
            yield queue


@pytest.mark.one_in(3)
@EVERY_CONFIG
def test_every_configuration(shuffling, config):
    # More than a tile, less than one, and several slabs, all cut by edges.
    check_gemm(shuffling, (67, 41, 47), config=config)


@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("trans_a", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_every_layout_and_type(shuffling, require, dtype, trans_a, trans_b):
    require(dtype)
    for config in (INDIRECT_CONFIGS["shuffles"], DIRECT_CONFIGS["shuffles"]):
        check_gemm(shuffling, (67, 41, 19), dtype, config=config, trans_a=trans_a, trans_b=trans_b)


def test_beside_copies_past_the_registers(shuffling, traits, require):
    # These cannot conjugate: a part is conjugated as it is loaded.
    require("complex64")
    config = replace(SHALLOW, ASYNC=1, STAGES=3, FRAGMENTS=2)
    with nullcontext() if has_async_copy(traits) else emulated_async_copies():
        for options in ({}, {"trans_a": "C", "trans_b": "C"}):
            check_gemm(shuffling, (67, 41, 47), "complex64", config=config, **options)


@pytest.mark.parametrize(
    "operands", [ROW_ALIGNED, COLUMN_ALIGNED, STRIDED], ids=["row", "column", "strided"]
)
def test_operands_of_every_kind(shuffling, operands):
    options: dict[str, Any] = {"a": operands, "b": operands, "c": ROW, "alpha": 0.5, "beta": -2.0}
    # Whole tiles: no vector is cut.
    check_gemm(shuffling, (64, 64, 32), config=DIRECT_CONFIGS["shuffles"], **options)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_nvidias_way_word_by_word(context, traits, require, dtype):
    if traits.shuffle != KHR_SHUFFLE:
        pytest.skip("this device cannot exchange words in the place of PTX")
    precision = "F16_F16_F16" if dtype == "float16" else None
    require(dtype, *([precision] if precision else []))
    options: dict[str, Any] = {"trans_b": "C"} if dtype.startswith("complex") else {}
    with emulated_shuffles(by_sub_group_shuffle):
        check_gemm(
            cl.CommandQueue(context), (67, 41, 19), dtype, config=LARGE, precision=precision,
            **options,
        )  # fmt: skip


def test_it_is_refused_with_the_reason_where_the_device_cannot(queue, traits, rng):
    if 32 in traits.sub_group_sizes:
        pytest.skip("this device can")
    a = rng.random((40, 40), dtype="float32")
    with pytest.raises(pyclgemm.ConfigError, match=r"8 \* 4, the device has them in sub-groups"):
        pyclgemm.gemm(queue, a, a, config=LARGE)


@pytest.mark.parametrize(("lanes_m", "lanes_n"), [(4, 2), (2, 4), (4, 4), (8, 2)])
def test_sub_groups_of_other_sizes(queue, lanes_m, lanes_n):
    # Smaller than NVIDIA's: as Intel's devices have them.
    check_gemm(queue, (67, 41, 19), config=replace(LARGE, LANES_M=lanes_m, LANES_N=lanes_n))


# Which part a work-item loads


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("sharers", [2, 4, 8])
@pytest.mark.parametrize("fragment", [4, 8, 12, 16])
@pytest.mark.parametrize("step", [8, 64])
def test_the_parts_of_all_work_items_are_the_fragment(fragment, sharers, width, step):
    if fragment % width or step < width:
        return
    at_once = part_width(fragment, width, sharers)
    part = fragment // sharers
    if at_once is None:
        assert fragment % sharers or part % width
        assert fragment % sharers or width % part
        return
    found = []
    for lane in range(sharers):
        expression = part_start("lane", fragment, width, sharers, "step").replace("/", "//")
        start = eval(expression, {"lane": lane, "step": step})
        for vector in range(part // at_once):
            found += [start + vector * step + element for element in range(at_once)]
    assert found == [i // width * step + i % width for i in range(fragment)]


def test_parts_that_do_not_divide():
    assert part_width(fragment=6, width=2, sharers=4) is None
    assert part_width(fragment=12, width=2, sharers=4) is None  # three are no whole vectors
    assert part_width(fragment=12, width=4, sharers=4) is None  # nor an equal share of one


# The text, without a device


def _source(config: Any, traits: Any = H100, **options: Any) -> Any:
    assert violations(config, options.get("dtype", "float32"), traits) == []
    product = product_of(67, 41, 19, **options)
    return make_schedule(product, config, traits).launches[-1].source


@EVERY_CONFIG
def test_each_element_is_passed_on_and_a_part_is_loaded(config):
    text = _source(config).text
    assert text.count("element a_part[A_PART];") == text.count("element b_part[B_PART];") == 1
    a, b = USE.finditer(text)
    assert (a["value"], a["lane"]) == ("a_part[i % A_PART]", "i / A_PART * LANES_M + lane_m")
    assert (b["value"], b["lane"]) == ("b_part[i % B_PART]", "lane_n * LANES_M + i / B_PART")
    # Of local memory nothing else is read than parts.
    reads = re.findall(r"(?:const \w+ v|[ab]_part\[i\]) = (.*);", text)
    assert len(reads) == 2
    tiles = config.tiles
    for read, staged, name in zip(reads, (tiles.SA, tiles.SB), "ab", strict=True):
        assert ("__local" in read) == bool(staged)
        assert f"{name}_part_start" in (read if not staged or tiles.SWIZZLE > 1 else text)


@EVERY_CONFIG
def test_without_it_there_is_no_trace_of_it(config):
    text = _source(replace(config, SHUFFLE=0)).text
    text = "\n".join(text.splitlines()[2:])  # without the configuration
    assert not re.search(r"shuffle|shfl|_PART|_part|\blane_[mn]|LANES_|sub_group", text)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [("float32", 1), ("float64", 2), ("complex64", 2), ("complex128", 4), ("float16", 1)],
)
def test_nvidias_shuffle_takes_words_of_32_bits(dtype, words):
    source = _source(replace(LARGE, KWG=4, KWI=1, MDIMA=16, NDIMB=16), dtype=dtype)
    assert len(PTX.findall(source.text)) == 1
    assert source.text.count("shuffle_word(") == 1 + words
    assert "sub_group" not in source.text


@pytest.mark.parametrize("function", [KHR_SHUFFLE, INTEL_SHUFFLE])
@pytest.mark.parametrize(("dtype", "calls"), [("float32", 1), ("complex64", 2)])
def test_elsewhere_it_is_a_function_in_a_sub_group_of_a_size_that_is_asked_for(
    function, dtype, calls
):
    text = _source(LARGE, replace(XE, shuffle=function), dtype=dtype).text
    assert len(re.findall(rf"\b{function}\(", text)) == calls
    assert "asm" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("__kernel")]
    assert line.startswith(
        "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) "
        "__attribute__((intel_reqd_sub_group_size(32))) void"
    )
    smaller = _source(replace(LARGE, LANES_M=4, LANES_N=4), XE).text
    assert "intel_reqd_sub_group_size(16)" in smaller


def test_emulations_leave_other_kernels_alone():
    source = _source(replace(LARGE, SHUFFLE=0))
    with pytest.raises(AssertionError):
        through_local_memory(source)
    with pytest.raises(AssertionError):
        by_sub_group_shuffle(source)
