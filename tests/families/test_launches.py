"""What families launch, without a device: padding, caps of registers, vectors and edges, groups."""

from dataclasses import replace

import pytest

from pyclgemm import CpuConfig, XgemmConfig
from pyclgemm.codegen.element import operand_type
from pyclgemm.device.traits import has_register_caps
from pyclgemm.errors import ConfigError
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.families.tiled.slab import slab_reader
from pyclgemm.problem.problem import MatrixLayout
from pyclgemm.problem.shape import GemmShape
from tests.support.checks import check_gemm
from tests.support.configs import DIRECT, INDIRECT
from tests.support.facts import cpu, gpu, problem
from tests.support.products import product_of

H100 = gpu(fence_options="-cl-std=CL3.0")
RADEON = gpu(vendor="amd", architecture="gfx1100", fence_options="-cl-std=CL2.0")

# ------------------------------------------------------------------ padding of packed operands

PADDED = replace(INDIRECT, PADLD=10)


def padded(sizes=(37, 41, 19), **options):
    return make_schedule(product_of(*sizes, **options), PADDED, gpu())


def test_leading_dimensions_and_workspaces():
    schedule = padded()
    pack_a, pack_b, gemm = schedule.launches
    # 37 x 19 and 19 x 41 in tiles of 32 and slabs of 8.
    assert schedule.workspaces == dict.fromkeys(("packed_a", "packed_b"), 4 * (64 + 10) * 24)
    assert (gemm.values["a_column_stride"], gemm.values["b_row_stride"]) == (74, 74)
    for pack in (pack_a, pack_b):
        assert "(long)depth * (padded_positions + 10) + position]" in pack.source.text
        # What is written has no padding.
        assert (pack.values["padded_positions"], pack.values["padded_k"]) == (64, 24)
    for dtype, size in [("float16", 2), ("float64", 8), ("complex128", 16)]:
        assert padded(dtype=dtype).workspaces["packed_a"] == size * 74 * 24


@pytest.mark.parametrize(
    ("trans_a", "packs", "strides"), [("N", ["pack_a"], (74, 64)), ("T", [], (64, 64))]
)
def test_what_is_not_packed_has_no_padding(trans_a, packs, strides):
    *first, last = padded((64, 64, 64), trans_a=trans_a).launches
    assert [launch.source.name for launch in first] == packs
    assert (last.values["a_column_stride"], last.values["b_row_stride"]) == strides


# ------------------------------------------------------------------ caps of registers

BOTH = pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)


def capped(config, traits, registers):
    config = replace(config, REGISTERS=registers)
    assert violations(config, "float32", traits) == []
    return make_schedule(GemmShape(33, 31, 9).product(), config, traits).launches[-1].source


def divided(source):
    """A kernel's attributes, and its text without them and the line of the configuration."""
    lines = source.text.splitlines()
    del lines[1]
    (declaration,) = [line for line in lines if line.startswith("__kernel")]
    body = "\n".join(line for line in lines if line != declaration)
    assert "__attribute__((reqd" not in body
    assert "amdgpu" not in body
    return declaration.partition(" void ")[0], body


@BOTH
@pytest.mark.parametrize(
    ("traits", "attributes", "options"),
    [
        # An option instead of the work-group's size, and an attribute beside it.
        (H100, "__kernel", "-cl-nv-maxrregcount=96"),
        (RADEON, "{} __attribute__((amdgpu_num_vgpr(96)))", ""),
    ],
    ids=["nvidia", "amd"],
)
def test_a_cap_is_what_the_compiler_takes(config, traits, attributes, options):
    free, few = (capped(config, traits, number) for number in (0, 96))
    sized = f"__kernel __attribute__((reqd_work_group_size({free.local_size[0]}, 1, 1)))"
    assert divided(free)[0] == sized
    assert divided(few) == (attributes.format(sized), divided(free)[1])
    assert (free.options, few.options) == ("", options)
    assert few.local_size == free.local_size


def test_the_cap_stands_beside_the_options_of_the_fence():
    both = replace(DIRECT, FILL=2)
    assert capped(both, H100, 128).options == "-cl-std=CL3.0 -cl-nv-maxrregcount=128"
    without = replace(H100, fence_options="")
    assert capped(both, without, 128).options == "-cl-nv-maxrregcount=128"
    assert capped(both, RADEON, 128).options == "-cl-std=CL2.0"


@BOTH
def test_right_where_there_is_a_cap(queue, traits, config):
    if not has_register_caps(traits):
        pytest.skip("this device's compiler takes no cap")
    for sizes in [(33, 31, 9), (64, 64, 64)]:
        check_gemm(queue, sizes, config=replace(config, REGISTERS=32))


# ------------------------------------------------------------------ slabs of the tiled families

TILES = XgemmConfig(
    MWG=16, NWG=32, KWG=8, MDIMC=4, NDIMC=4, MDIMA=4, NDIMB=8, KWI=2, VWM=4, VWN=4, STAGES=2
)


def reader_of_b(order, alignment, sizes=(32, 64, 16), config=TILES):
    product = replace(problem(*sizes), b=MatrixLayout(order, alignment))
    return slab_reader("b", product, operand_type("float32", "float32"), config, run=8)


@pytest.mark.parametrize(
    ("sizes", "order", "alignment", "edges"),
    [
        ((32, 64, 16), "row", 1, "none"),
        ((32, 64, 17), "row", 16, "vectors"),  # rows of 64: four by four
        ((32, 66, 17), "row", 16, "elements"),
        ((32, 66, 17), "row", 2, "vectors"),
        ((32, 66, 17), "row", 1, "vectors"),
        ((32, 66, 20), "column", 16, "vectors"),  # columns of k = 20
        ((32, 66, 18), "column", 16, "elements"),
        ((32, 66, 18), "strided", 1, "vectors"),
        ((32, 64, 0), "row", 1, "vectors"),
        ((32, 64, 0), "column", 16, "vectors"),
    ],
)
def test_where_b_may_end(sizes, order, alignment, edges):
    assert reader_of_b(order, alignment, sizes).edges == edges


@pytest.mark.parametrize(
    ("order", "alignment", "past_registers", "width"),
    [("row", 1, 0, 1), ("row", 16, 0, 4), ("row", 2, 0, 2), ("column", 1, 0, 1),
     ("column", 16, 0, 4), ("column", 16, 1, 1), ("strided", 1, 0, 1)],
)  # fmt: skip
def test_vectors_are_as_wide_as_alignment_allows(order, alignment, past_registers, width):
    config = replace(TILES, ASYNC=past_registers)
    assert reader_of_b(order, alignment, config=config).copy.width == width


def test_a_slab_that_does_not_divide_names_the_operand():
    odd = replace(TILES, NWG=12, NDIMB=3, VWN=1)
    with pytest.raises(ConfigError, match="a slab of b does not divide among the work-items"):
        reader_of_b("row", 1, (12, 12, 12), odd)


# ------------------------------------------------------------------ how a CPU's cores share


@pytest.mark.parametrize(
    ("packed", "conjugate", "blocks"), [(0, False, 1), (0, True, 2), (1, False, 2)]
)
def test_rows_of_b_that_are_read_in_place_are_divided_least(packed, conjugate, blocks):
    product = GemmShape(1, 4096, 4096).product("complex64")
    b = replace(product.problem.b, conjugate=conjugate)
    product = replace(product, problem=replace(product.problem, b=b))
    config = CpuConfig(MR=1, NR=64, KC=128, VW=8, PACKB=packed)
    (launch,) = make_schedule(product, config, cpu(compute_units=4)).launches
    assert launch.global_size == (blocks * 4,)
