"""Products whose slabs work-groups divide: how, in which integers, and what a launch is given.

That each slab is added once is tested on devices (tests/codegen/test_stream_k.py).
"""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyclgemm.codegen.stream_k import Division, divide, stream_k, tile_count
from pyclgemm.families.registry import make_schedule
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from tests.support.facts import gpu, product_of

SHAPES = {
    "tiles": st.one_of(st.integers(1, 40), st.integers(1, 3000)),
    "slabs": st.one_of(st.integers(1, 12), st.integers(1, 7000)),
    "groups": st.one_of(st.integers(1, 12), st.integers(1, 600)),
}


@settings(max_examples=200)
@example(tiles=263, slabs=124_000, groups=132)  # just beyond 32 bits
@given(**SHAPES)
def test_every_division(tiles, slabs, groups):
    division = divide(tiles, slabs, groups)
    whole_tiles = division.rounds * division.groups
    assert 1 <= division.groups <= groups
    assert 0 <= whole_tiles <= tiles
    # A group has whole tiles, or of the divided ones a slab at least.
    assert division.rounds or (tiles - whole_tiles) * slabs >= division.groups
    largest = (tiles - whole_tiles) * slabs * division.groups + division.groups
    assert largest < 2**32 or stream_k(slabs, groups, 64).counts == "ulong"


@pytest.mark.parametrize(
    ("tiles", "slabs", "groups", "wanted"),
    [
        (132, 10, 132, Division(132, 1)),  # one each
        (264, 10, 132, Division(132, 2)),
        (300, 10, 132, Division(132, 1)),  # one whole, and 168 divided
        (133, 10, 132, Division(132, 0)), (100, 10, 132, Division(132, 0)),
        (66, 10, 132, Division(132, 0)),  # halves
        (60, 10, 132, Division(120, 0)),  # equal parts keep nine of ten busy
        (70, 10, 132, Division(132, 0)),  # halves would be 140 groups, whole tiles 70
        (5, 1, 132, Division(5, 1)), (1, 1, 1, Division(1, 1)),  # nothing to divide
        (1, 3, 132, Division(1, 1)),  # less than two slabs for each of two
        (1, 4, 132, Division(2, 0)),
    ],
)  # fmt: skip
def test_divisions(tiles, slabs, groups, wanted):
    assert divide(tiles, slabs, groups) == wanted


def test_integers_of_counts():
    assert stream_k(slabs=64, groups=132, sums=64).counts == "uint"
    assert stream_k(slabs=10**6, groups=132, sums=64).counts == "ulong"


@pytest.mark.parametrize(
    ("m", "n", "tiles"), [(1, 1, 1), (32, 16, 1), (33, 16, 2), (33, 17, 4), (64, 160, 20)]
)
def test_tiles_of_a_result(m, n, tiles):
    assert tile_count(m, n, rows=32, columns=16) == tiles


DIRECT = XgemmDirectConfig(
    WGD=32, NWGD=16, KWGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=2, VWND=2,
    PADA=0, PADB=0, FILL=2,
)  # fmt: skip
INDIRECT = XgemmConfig(
    MWG=32, NWG=16, KWG=8, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2, FILL=2
)
EVERY_FAMILY = pytest.mark.parametrize(
    "config", [INDIRECT, DIRECT], ids=lambda config: config.family
)


def _schedule(config, k=80, dtype="float32"):
    """Of a product of 16 tiles."""
    traits = gpu(compute_units=5, fence_options="-cl-std=CL3.0")
    return make_schedule(product_of(100, 50, k, dtype), config, traits)


@EVERY_FAMILY
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 4), ("complex128", 16)])
def test_the_launch_gets_its_groups_rounds_and_workspaces(config, dtype, size):
    schedule = _schedule(config, dtype=dtype)
    division = divide(tiles=16, slabs=10, groups=10)
    assert division == Division(10, 0)
    launch = schedule.launches[-1]
    assert launch.groups == (10,)
    assert launch.values["rounds"] == 0
    assert launch.source.options == "-cl-std=CL3.0"
    assert schedule.workspaces["partial_sums"] == division.slots * 32 * 16 * size
    assert schedule.workspaces["counters"] == 4 * division.counters


@EVERY_FAMILY
def test_without_products_a_tile_has_one_slab_of_nothing(config):
    assert _schedule(config, k=0).launches[-1].groups == (10,)
    assert divide(tiles=16, slabs=1, groups=10) == Division(10, 0)


def test_a_problem_of_no_fill_has_no_workspaces():
    schedule = _schedule(replace(DIRECT, FILL=0))
    assert schedule.workspaces == {}
    assert schedule.launches[0].groups == (16,)
    assert "rounds" not in schedule.launches[0].values


@EVERY_FAMILY
def test_sums_are_in_memory_before_the_arrival_and_read_after_it(config):
    # No runtime of a CPU shows a missing fence: the order is that of CUDA's threadFenceReduction.
    text = _schedule(config).launches[-1].source.text
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
