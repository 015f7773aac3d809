"""What only the tiled families do: copies past the registers, shuffles, caps of registers.

Copies, and loads past the first-level cache, are plain C where a device lacks them, shuffles pass
local memory there; elsewhere they are as they are.
"""

import itertools
import re
from dataclasses import replace
from unittest.mock import patch

import pyopencl as cl
import pytest

from pyclgemm.codegen.element import ElementType
from pyclgemm.device.probe import INTEL_SHUFFLE, KHR_SHUFFLE, SHFL
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.families.tiled.codegen import SlabReader
from pyclgemm.problem.problem import MatrixLayout
from tests.support.buffers import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, Layout
from tests.support.checks import check_gemm
from tests.support.configs import DIRECT, DIRECT_CONFIGS, GEMV, INDIRECT, INDIRECT_CONFIGS
from tests.support.emulation import ptx
from tests.support.facts import gpu, problem, product_of

pytestmark = pytest.mark.any_runtime

H100 = gpu(fence_options="-cl-std=CL3.0", shuffle=SHFL, sub_group_sizes=(32,))
RADEON = gpu(vendor="amd", architecture="gfx1100", fence_options="-cl-std=CL2.0")
XE = gpu(
    vendor="intel", architecture="", fence_options="-cl-std=CL2.0", shuffle=KHR_SHUFFLE,
    sub_group_sizes=(8, 16, 32),
)  # fmt: skip


def source_of(config, sizes, traits=H100, **options):
    """The kernel that multiplies."""
    assert violations(config, options.get("dtype", "float32"), traits) == []
    schedule = make_schedule(product_of(*sizes, **options), config, traits)
    return schedule.launches[-1].source


# ------------------------------------------------------------------ copies past the registers

PLAIN = replace(DIRECT, ASYNC=1, STAGES=2)
BY_16_BYTES = replace(DIRECT, WGD=32, VWMD=4, VWND=4, PADA=4, PADB=4, NDIMBD=8, ASYNC=1, STAGES=4)
ASYNC = {
    "indirect: three stages": INDIRECT_CONFIGS["past the registers"],
    "indirect: all at once": INDIRECT_CONFIGS["all at once, past the registers"],
    "indirect: two stages, fragments": replace(INDIRECT, ASYNC=1, STAGES=2, FRAGMENTS=2),
    "direct: two stages": PLAIN,
    "direct: three stages": DIRECT_CONFIGS["past the registers"],
    "direct: all at once": DIRECT_CONFIGS["all at once, past the registers"],
    "direct: 16 bytes": BY_16_BYTES,
}
STREAMING = replace(GEMV, VW=4, STREAMB=1)
TWOS = replace(PLAIN, VWMD=2, VWND=2)
COPIES = [
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
      for config in ASYNC.values() for sizes in ((0, 5, 3), (5, 0, 3), (5, 7, 0))),
    {"sizes": (3, 37, 50), "dtype": "complex64", "config": replace(STREAMING, VW=2),
     "b": ROW_ALIGNED, "trans_b": "C"},
    # With columns that no vector fills, and where rows are at odd places by single elements.
    *({"sizes": sizes, "dtype": dtype, "b": b, "config": replace(STREAMING, VW=width), "alpha": 2,
       "c": ROW_ALIGNED, "beta": -1}
      for b in (ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=1))
      for dtype, width in (
          ("float32", 1), ("float32", 4), ("float16", 4), ("float16", 8), ("bfloat16", 2),
          ("int8", 4), ("int8", 16), ("float64", 2), ("complex64", 1), ("complex128", 1))
      for sizes in ((3, 37, 50), (1, 64, 128))),
]  # fmt: skip


def test_a_is_not_streamed():
    """It is read by all groups."""
    text = source_of(STREAMING, (1, 64, 64)).text
    assert "load_streamed(b + " in text and "load_streamed(a" not in text


@pytest.mark.parametrize(("trans_a", "trans_b"), [(a, b) for a in "NT" for b in "NT"], ids="".join)
def test_copies_are_checked_unless_tiles_and_slabs_are_whole(trans_a, trans_b):
    """In the functions that the first slabs and the loop call; those of packed operands never."""
    of_packed = ASYNC["indirect: three stages"]
    for config, sizes, is_checked in [
        (PLAIN, (64, 32, 48), False),
        *((PLAIN, one, True) for one in [(37, 41, 19), (64, 32, 47), (64, 32, 40), (63, 31, 48)]),
        *((of_packed, one, False) for one in [(33, 31, 9), (64, 32, 48), (5, 5, 0)]),
    ]:
        text = source_of(config, sizes, trans_a=trans_a, trans_b=trans_b).text
        copies = [given for name, _, given in ptx.instructions(text) if "shared_global" in name]
        checks = [valid != count for *_, valid, count in copies]
        assert checks == [is_checked] * 2, sizes


@pytest.mark.parametrize("config", ASYNC.values(), ids=ASYNC)
def test_copies_are_grouped_and_waited_for(config):
    """Which the emulation, whose copies are in place at once, cannot show."""
    text = source_of(config, (64, 64, 64)).text
    found = ptx.instructions(text)
    waits = [given for name, _, given in found if name == "cp_async_wait_group"]
    assert {int(pending) for (pending,) in waits} == {config.STAGES - 2}
    # One group for each slab that is sent ahead, and one in every turn of the loop.
    assert [name for name, *_ in found].count("cp_async_commit_group") == 2
    assert (f"stage < {config.STAGES - 1}; ++stage" in text) == (config.STAGES > 2)
    # A barrier follows each wait, before anybody reads what others copied.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line, following in itertools.pairwise(lines):
        assert "wait_group" not in line or following == "barrier(CLK_LOCAL_MEM_FENCE);"


# ------------------------------------------------------------------ shuffles

SHUFFLED, SHUFFLED_DIRECT = INDIRECT_CONFIGS["shuffles"], DIRECT_CONFIGS["shuffles"]
LARGE = replace(INDIRECT, MWG=64, NWG=64, LANES_M=8, LANES_N=4, SHUFFLE=1)
SHALLOW = replace(SHUFFLED_DIRECT, KWGD=16)
ODD = (67, 41, 19)
SHUFFLES = {
    "indirect": SHUFFLED,
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
    "direct": SHUFFLED_DIRECT,
    "direct: shallow": SHALLOW,
    "direct: slabs divided": replace(SHALLOW, FILL=3),
    "direct: all at once": replace(
        SHALLOW, WGD=64, NWGD=32, GROUP_M=2, STAGES=2, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2
    ),
}


SHUFFLED_PRODUCTS = [
    # More than a tile, less than one, and several slabs, all cut by edges.
    *({"sizes": (67, 41, 47), "config": config} for config in SHUFFLES.values()),
    *({"sizes": ODD, "dtype": dtype, "config": config, "trans_a": trans_a, "trans_b": trans_b}
      for dtype in ("float32", "float64", "complex64") for config in (SHUFFLED, SHUFFLED_DIRECT)
      for trans_a in "NT" for trans_b in "NT"),
    # Whole tiles: no vector is cut.
    *({"sizes": (64, 64, 32), "config": SHUFFLED_DIRECT, "a": one, "b": one, "c": ROW, "alpha": 0.5,
       "beta": -2.0} for one in (ROW_ALIGNED, COLUMN_ALIGNED, STRIDED)),
    # Beside copies past the registers, which cannot conjugate: a part is, as it is loaded.
    *({"sizes": (67, 41, 47), "config": replace(SHALLOW, ASYNC=1, STAGES=3, FRAGMENTS=2),
       "dtype": "complex64", "trans_a": trans, "trans_b": trans} for trans in "NC"),
    # Sub-groups smaller than NVIDIA's, as Intel's devices have them.
    *({"sizes": ODD, "config": replace(LARGE, LANES_M=m, LANES_N=n)}
      for m, n in ((4, 2), (2, 4), (4, 4), (8, 2))),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [*COPIES, *SHUFFLED_PRODUCTS])
def test_copies_and_shuffles(able_queue, require, options):
    given = {"sizes": (37, 41, 19), "dtype": "float32", "config": PLAIN} | options
    require(given["dtype"])
    with patch("pyclgemm.api.prepare.check_supported"):  # any device takes bfloat16 and int8
        check_gemm(able_queue, **given)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_nvidias_way_word_by_word(context, traits, require, dtype):
    if traits.shuffle != KHR_SHUFFLE:
        pytest.skip("this device cannot exchange words in the place of PTX")
    precision = "F16_F16_F16" if dtype == "float16" else None
    require(dtype, precision)
    options = {"precision": precision, "trans_b": "C" if dtype.startswith("complex") else "N"}
    with ptx.emulated_shuffles(ptx.by_sub_group_shuffle):
        check_gemm(cl.CommandQueue(context), ODD, dtype, config=LARGE, **options)


@pytest.mark.parametrize("function", [KHR_SHUFFLE, INTEL_SHUFFLE])
def test_elsewhere_it_is_a_function_in_a_sub_group_of_a_size_that_is_asked_for(function):
    traits = replace(XE, shuffle=function)
    for dtype, lanes, calls in [("float32", 4, 1), ("float32", 2, 1), ("complex64", 4, 2)]:
        text = source_of(replace(LARGE, LANES_N=lanes), ODD, traits, dtype=dtype).text
        assert len(re.findall(rf"\b{function}\(", text)) == calls
        assert "asm" not in text
        assert (
            "\n__kernel __attribute__((reqd_work_group_size(64, 1, 1))) "
            f"__attribute__((intel_reqd_sub_group_size({8 * lanes}))) void"
        ) in text


# ------------------------------------------------------------------ caps of registers

CAP, FENCED = "-cl-nv-maxrregcount=96", replace(DIRECT, FILL=2)


def attributes_and_text(source):
    """What stands before a kernel's `void`, and the rest but for the line of the configuration."""
    head, attributes, body = re.split(r"\n__kernel(.*) void ", source.text)
    return attributes, (head.splitlines()[2:], body)


@pytest.mark.parametrize(
    ("config", "traits", "options"),
    [
        *((config, H100, CAP) for config in (INDIRECT, DIRECT)),
        *((config, RADEON, "") for config in (INDIRECT, DIRECT)),
        # Beside the options of the fence.
        (FENCED, H100, f"-cl-std=CL3.0 {CAP}"), (FENCED, replace(H100, fence_options=""), CAP),
        (FENCED, RADEON, "-cl-std=CL2.0"),
    ],
)  # fmt: skip
def test_a_cap_is_what_the_compiler_takes(config, traits, options):
    free, few = (source_of(replace(config, REGISTERS=cap), ODD, traits) for cap in (0, 96))
    sized = f" __attribute__((reqd_work_group_size({free.local_size[0]}, 1, 1)))"
    # For NVIDIA's an option instead of the work-group's size, for AMD's an attribute beside it.
    capped = "" if traits.vendor == "nvidia" else f"{sized} __attribute__((amdgpu_num_vgpr(96)))"
    (free_attributes, text), (attributes, same) = map(attributes_and_text, (free, few))
    assert (free_attributes, attributes, same) == (sized, capped, text)
    assert (free.options, few.options) == (options.replace(CAP, "").strip(), options)
    assert few.local_size == free.local_size


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
def test_right_where_there_is_a_cap(queue, traits, config):
    if not traits.has_register_caps:
        pytest.skip("this device's compiler takes no cap")
    for sizes in [(33, 31, 9), (64, 64, 64)]:
        check_gemm(queue, sizes, config=replace(config, REGISTERS=32))


@pytest.mark.parametrize(
    ("sizes", "order", "alignment", "edges"),
    [
        ((32, 64, 16), "row", 1, "none"),
        ((32, 64, 17), "row", 16, "vectors"),  # rows of 64: four by four
        ((32, 66, 17), "row", 16, "elements"),
        ((32, 66, 17), "row", 2, "vectors"),
        ((32, 66, 20), "column", 16, "vectors"),  # columns of k = 20
        ((32, 66, 18), "column", 16, "elements"),
        ((32, 66, 18), "strided", 1, "vectors"),
        ((32, 64, 0), "row", 1, "vectors"),
    ],
)
def test_slabs_are_read_by_whole_vectors_where_the_matrix_ends_between_two(
    sizes, order, alignment, edges
):
    product = replace(problem(*sizes), b=MatrixLayout(order, alignment))
    config = replace(INDIRECT_CONFIGS["wide vectors"], NWG=32)
    reader = SlabReader("b", product, ElementType("float32", "float32"), config, run=8)
    assert reader.edges == edges
