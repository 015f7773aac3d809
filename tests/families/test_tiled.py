"""What only the tiled families do: copies past the registers, shuffles, caps of registers.

Their products are in `test_products`; here is what those cannot show.
"""

import itertools
import re
from dataclasses import replace

import pyopencl as cl
import pytest

from pyclgemm.codegen.element import ElementType
from pyclgemm.device.probe import INTEL_SHUFFLE, KHR_SHUFFLE, SHFL
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.families.tiled.codegen import SlabReader
from pyclgemm.problem.problem import MatrixLayout
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
ASYNC = {
    "indirect: three stages": INDIRECT_CONFIGS["past the registers"],
    "indirect: all at once": INDIRECT_CONFIGS["all at once, past the registers"],
    "indirect: two stages, fragments": replace(INDIRECT, ASYNC=1, STAGES=2, FRAGMENTS=2),
    "direct: two stages": PLAIN,
    "direct: three stages": DIRECT_CONFIGS["past the registers"],
    "direct: all at once": DIRECT_CONFIGS["all at once, past the registers"],
    "direct: 16 bytes": replace(DIRECT_CONFIGS["wide vectors"], ASYNC=1, STAGES=4),
}


def test_a_is_not_streamed():
    """It is read by all groups."""
    text = source_of(replace(GEMV, VW=4, STREAMB=1), (1, 64, 64)).text
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

SHUFFLED = INDIRECT_CONFIGS["shuffles"]
ODD = (67, 41, 19)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_nvidias_way_word_by_word(context, traits, require, dtype):
    if traits.shuffle != KHR_SHUFFLE:
        pytest.skip("this device cannot exchange words in the place of PTX")
    precision = "F16_F16_F16" if dtype == "float16" else None
    require(dtype, precision)
    options = {"precision": precision, "trans_b": "C" if dtype.startswith("complex") else "N"}
    with ptx.emulated_shuffles(ptx.by_sub_group_shuffle):
        check_gemm(cl.CommandQueue(context), ODD, dtype, config=SHUFFLED, **options)


@pytest.mark.parametrize("function", [KHR_SHUFFLE, INTEL_SHUFFLE])
def test_elsewhere_it_is_a_function_in_a_sub_group_of_a_size_that_is_asked_for(function):
    traits = replace(XE, shuffle=function)
    for dtype, lanes, calls in [("float32", 4, 1), ("float32", 2, 1), ("complex64", 4, 2)]:
        text = source_of(replace(SHUFFLED, LANES_N=lanes), ODD, traits, dtype=dtype).text
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
