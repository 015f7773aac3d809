"""What a launch that divides tiles among work-groups is given, and the order of its fences."""

import functools
from dataclasses import replace

import pytest

from pyclgemm.codegen.stream_k import Division, divide
from pyclgemm.families.registry import make_schedule
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.problem.shape import GemmShape
from tests.support.facts import gpu, product_of

INDIRECT = XgemmConfig(
    MWG=32, NWG=16, KWG=8, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2, FILL=2
)
DIRECT = XgemmDirectConfig(
    WGD=32, NWGD=16, KWGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=2, VWND=2,
    PADA=0, PADB=0, FILL=2,
)  # fmt: skip


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 4), ("complex128", 16)])
def test_the_launch_gets_its_groups_rounds_and_workspaces(config, dtype, size):
    traits = gpu(compute_units=5, fence_options="-cl-std=CL3.0")
    product = GemmShape(100, 50, 80).product(dtype)
    schedule = make_schedule(product, config, traits)
    division = divide(tiles=4 * 4, slabs=10, groups=10)
    assert division == Division(10, 0)
    launch = schedule.launches[-1]
    assert launch.groups == (10,)
    assert launch.values["rounds"] == 0
    assert launch.source.options == "-cl-std=CL3.0"
    assert schedule.workspaces["partial_sums"] == division.slots * 32 * 16 * size
    assert schedule.workspaces["counters"] == 4 * division.counters


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
def test_without_products_a_tile_has_one_slab_of_nothing(config):
    schedule = make_schedule(product_of(100, 50, 0), config, gpu(compute_units=5))
    assert schedule.launches[-1].groups == (10,)
    assert divide(tiles=16, slabs=1, groups=10) == Division(10, 0)


def test_a_problem_of_no_fill_has_no_workspaces():
    schedule = make_schedule(
        GemmShape(100, 50, 80).product(), replace(DIRECT, FILL=0), gpu(compute_units=5)
    )
    assert schedule.workspaces == {}
    assert schedule.launches[0].groups == (16,)
    assert "rounds" not in schedule.launches[0].values


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
def test_sums_are_in_memory_before_the_arrival_and_read_after_it(config):
    # No runtime of a CPU shows a missing fence: the order is that of CUDA's threadFenceReduction.
    text = _text(config)
    place = 0
    for statement in (
        "sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];",
        "device_fence();",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "arrived = atomic_inc(counter) + 1;",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "device_fence();",
        "accumulators[i][j] += sums[(i * NWI + j) * TILE_ITEMS];",
    ):
        place = text.find(statement, place)
        assert place > 0, f"{statement} is missing, or comes too early"
        place += len(statement)
    assert text.count("device_fence();") == 2


@functools.cache
def _text(config):
    traits = gpu(compute_units=5, fence_options="")
    schedule = make_schedule(GemmShape(100, 50, 80).product(), config, traits)
    return schedule.launches[-1].source.text
