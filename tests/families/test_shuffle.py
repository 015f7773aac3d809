"""Fragments passed by shuffles: as the device has them, and as NVIDIA's devices do, everywhere."""

import re
from contextlib import nullcontext
from dataclasses import replace

import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.device.probe import INTEL_SHUFFLE, KHR_SHUFFLE, SHFL
from pyclgemm.device.traits import has_async_copy
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.families.tiled.slab import part_width
from tests.support.checks import COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.configs import DIRECT_CONFIGS, INDIRECT, INDIRECT_CONFIGS
from tests.support.emulation.async_copy import emulated_async_copies
from tests.support.emulation.shuffle import (
    by_sub_group_shuffle,
    emulated_shuffles,
    through_local_memory,
)
from tests.support.facts import gpu
from tests.support.products import product_of

pytestmark = pytest.mark.any_runtime

H100 = gpu(fence_options="-cl-std=CL3.0", shuffle=SHFL, sub_group_sizes=(32,))
XE = gpu(
    vendor="intel", architecture="", fence_options="-cl-std=CL2.0", shuffle=KHR_SHUFFLE,
    sub_group_sizes=(8, 16, 32),
)  # fmt: skip

PLAIN, DIRECT = INDIRECT_CONFIGS["shuffles"], DIRECT_CONFIGS["shuffles"]
LARGE = replace(INDIRECT, MWG=64, NWG=64, LANES_M=8, LANES_N=4, SHUFFLE=1)
SHALLOW = replace(DIRECT, KWGD=16)
CONFIGS = {
    "indirect": PLAIN,
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
    "direct": DIRECT,
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


OPTIONS = [
    *({"dtype": dtype, "config": config, "trans_a": trans_a, "trans_b": trans_b}
      for dtype in ("float32", "float64", "complex64") for config in (PLAIN, DIRECT)
      for trans_a in "NT" for trans_b in "NT"),
    # Whole tiles: no vector is cut.
    *({"sizes": (64, 64, 32), "config": DIRECT, "a": one, "b": one, "c": ROW, "alpha": 0.5,
       "beta": -2.0} for one in (ROW_ALIGNED, COLUMN_ALIGNED, STRIDED)),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", OPTIONS)
def test_layouts_and_types(shuffling, require, options):
    given = {"sizes": (67, 41, 19), "dtype": "float32"} | options
    require(given["dtype"])
    check_gemm(shuffling, **given)


def test_beside_copies_past_the_registers(shuffling, traits, require):
    # These cannot conjugate: a part is conjugated as it is loaded.
    require("complex64")
    config = replace(SHALLOW, ASYNC=1, STAGES=3, FRAGMENTS=2)
    with nullcontext() if has_async_copy(traits) else emulated_async_copies():
        for options in ({}, {"trans_a": "C", "trans_b": "C"}):
            check_gemm(shuffling, (67, 41, 47), "complex64", config=config, **options)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_nvidias_way_word_by_word(context, traits, require, dtype):
    if traits.shuffle != KHR_SHUFFLE:
        pytest.skip("this device cannot exchange words in the place of PTX")
    precision = "F16_F16_F16" if dtype == "float16" else None
    require(dtype, precision)
    options = {"precision": precision, "trans_b": "C" if dtype.startswith("complex") else "N"}
    with emulated_shuffles(by_sub_group_shuffle):
        check_gemm(cl.CommandQueue(context), (67, 41, 19), dtype, config=LARGE, **options)


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


# ------------------------------------------------------------------ the text, without a device


def source_of(config, traits=H100, dtype="float32"):
    assert violations(config, dtype, traits) == []
    return make_schedule(product_of(67, 41, 19, dtype), config, traits).launches[-1].source


@EVERY_CONFIG
def test_of_local_memory_a_part_is_loaded(config):
    text = source_of(config).text
    assert text.count("element a_part[A_PART];") == text.count("element b_part[B_PART];") == 1
    reads = re.findall(r"(?:const \w+ v|[ab]_part\[i\]) = (.*);", text)
    assert len(reads) == 2
    tiles = config.tiles
    for read, staged, name in zip(reads, (tiles.SA, tiles.SB), "ab", strict=True):
        assert ("__local" in read) == bool(staged)
        assert f"{name}_part_start" in (read if not staged or tiles.SWIZZLE > 1 else text)


@pytest.mark.parametrize("function", [KHR_SHUFFLE, INTEL_SHUFFLE])
@pytest.mark.parametrize(("dtype", "calls"), [("float32", 1), ("complex64", 2)])
def test_elsewhere_it_is_a_function_in_a_sub_group_of_a_size_that_is_asked_for(
    function, dtype, calls
):
    text = source_of(LARGE, replace(XE, shuffle=function), dtype).text
    assert len(re.findall(rf"\b{function}\(", text)) == calls
    assert "asm" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("__kernel")]
    assert line.startswith(
        "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) "
        "__attribute__((intel_reqd_sub_group_size(32))) void"
    )
    smaller = source_of(replace(LARGE, LANES_M=4, LANES_N=4), XE).text
    assert "intel_reqd_sub_group_size(16)" in smaller


def test_parts_that_do_not_divide():
    assert part_width(fragment=6, width=2, sharers=4) is None
    assert part_width(fragment=12, width=2, sharers=4) is None  # three are no whole vectors
    assert part_width(fragment=12, width=4, sharers=4) is None  # nor an equal share of one
