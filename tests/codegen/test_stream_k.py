"""Stream-K: how work-groups divide slabs, what a launch gets, and the sums on devices."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import example, given, settings, strategies as st

import pyclgemm
from pyclgemm.codegen.stream_k import (
    FAN_IN,
    LEAST_SLABS,
    PAIRS,
    Division,
    StreamK,
    divide,
    few_tiles,
    tile_count,
)
from pyclgemm.families.registry import make_schedule
from pyclgemm.runtime.queue_state import queue_state
from tests.support import configs
from tests.support.arrays import draw, upload
from tests.support.checks import check_gemm, skip_if_refused
from tests.support.facts import gpu, product_of
from tests.support.reference import assert_close, expected_gemm

INDIRECT = replace(configs.INDIRECT, MWG=16, NWG=16, KWG=4, NDIMC=4, FILL=4)
DIRECT = replace(configs.DIRECT, KWGD=8, FILL=4)
#: Its work-items have 256 sums each, so work-groups join them by pairs.
MANY_SUMS = replace(INDIRECT, MWG=32, NWG=32, MDIMC=2, NDIMC=2, MDIMA=2, NDIMB=2, LANES_M=2)
CONFIGS = {"indirect": INDIRECT, "direct": DIRECT, "pairs": MANY_SUMS}
EVERY_FAMILY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
EVERY_FAN_IN = pytest.mark.parametrize("fan_in", [FAN_IN, PAIRS])


def count_type(slabs, groups):
    return StreamK(slabs, groups, 64, own="", index="", sum="").counts


@settings(max_examples=200)
@example(tiles=263, slabs=124_000, groups=132, joining=10.0)  # just beyond 32 bits
@given(
    tiles=st.integers(1, 40) | st.integers(1, 3000),
    slabs=st.integers(1, 12) | st.integers(1, 7000),
    groups=st.integers(1, 12) | st.integers(1, 600),
    joining=st.floats(1e-3, 1e3),
)
def test_every_division(tiles, slabs, groups, joining):
    division = divide(tiles, slabs, groups, joining)
    whole_tiles = division.rounds * division.groups
    assert 1 <= division.groups <= groups
    assert 0 <= whole_tiles <= tiles
    # Each group has whole tiles, or at least one slab of the divided tiles.
    assert division.rounds or (tiles - whole_tiles) * slabs >= division.groups
    largest = (tiles - whole_tiles) * slabs * division.groups + division.groups
    assert largest < 2**32 or count_type(slabs, groups) == "ulong"


@pytest.mark.parametrize(
    ("tiles", "slabs", "groups", "wanted"),
    [
        (132, 10, 132, Division(132, 1)),  # one tile for each group
        (264, 10, 132, Division(132, 2)),
        (300, 10, 132, Division(132, 1)),  # 132 whole tiles, and 168 divided ones
        (133, 10, 132, Division(132, 0)),
        (66, 20, 132, Division(66, 1)),  # joining takes longer than half a tile
        (66, 30, 132, Division(132, 0)),  # half a tile for each group
        (60, 30, 132, Division(120, 0)), (60, 200, 132, Division(120, 0)),  # 12 idle groups
        (70, 30, 132, Division(70, 1)),  # halves would be 140 groups
        (70, 300, 132, Division(132, 0)),  # each has parts of two tiles
        (9, 100, 132, Division(81, 0)),  # more parts would take longer to add than they save
        (9, 900, 132, Division(108, 0)),  # 12 parts are added in one step
        (9, 20_000, 132, Division(132, 0)),
        (5, 1, 132, Division(5, 1)), (1, 1, 1, Division(1, 1)),  # a slab is not divided
        (1, 30, 132, Division(5, 0)),
    ],
)  # fmt: skip
def test_divisions_if_joining_takes_as_long_as_ten_slabs(tiles, slabs, groups, wanted):
    assert divide(tiles, slabs, groups, joining=10) == wanted


@EVERY_FAN_IN
@given(st.integers(1, 300), st.integers(2, 500), st.integers(2, 600), st.floats(1e-3, 1e3))
def test_the_steps_and_sums_of_few_tiles(fan_in, tiles, slabs, groups, joining):
    groups = min(groups, tiles * slabs // LEAST_SLABS)
    if groups <= tiles:
        return
    case = np.array([[tiles], [slabs], [groups], [joining], [fan_in]], float)
    (parts,), (steps,), (sums,) = few_tiles(*case)
    division = divide(tiles, slabs, groups, joining, fan_in)
    contributors = [
        division.group_of(end, tiles * slabs)
        - division.group_of(end - slabs + 1, tiles * slabs)
        + 1
        for end in range(slabs - 1, tiles * slabs, slabs)
    ]
    if parts == 1:
        assert (division, steps, sums) == (Division(tiles, 1, fan_in), 0, 0)
    elif fan_in == PAIRS:
        # Each step adds the sums of one other work-group. In uneven parts there may be one more.
        least = math.ceil(math.log2(max(contributors)))
        assert least <= sums <= steps <= math.ceil(math.log2(max(contributors) + 1)) + parts % 1 + 1
    elif max(contributors) > FAN_IN + 1:
        assert steps >= 2
        assert sums < max(contributors) + 2
    else:
        # Where parts are uneven, no tile may have as many contributors as there could be.
        assert max(contributors) <= sums <= max(contributors) + 1 + (sums > FAN_IN)
        assert (steps == 1) == (parts % 1 == 0 and parts <= FAN_IN)


def test_a_few_slabs_are_divided_if_joining_takes_no_time():
    assert divide(1, 3, 132, joining=0.01) == Division(1, 1)  # less than two slabs for each of two
    assert divide(1, 4, 132, joining=0.01) == Division(2, 0)


@EVERY_FAN_IN
@given(st.integers(1, 300), st.integers(1, 500), st.integers(1, 600))
def test_each_step_of_adding_has_its_counters(fan_in, tiles, slabs, groups):
    division = divide(tiles, slabs, groups, 0.01, fan_in)
    divided = (tiles - division.rounds * division.groups) * slabs
    for beginning in range(0, divided, slabs):
        ends = (beginning, beginning + slabs - 1)
        lowest, highest = (division.group_of(slab, divided) for slab in ends)
        waiting, steps = highest - lowest + 1, 0
        neighbours = max(fan_in, math.ceil(math.sqrt(waiting))) if fan_in == FAN_IN else fan_in
        while waiting > 1:
            waiting, steps = -(-waiting // neighbours), steps + 1
        assert steps * division.slots <= division.counters
    assert division.counters > 0  # there is no buffer of no bytes


def test_the_number_of_tiles_and_the_type_that_counts_slabs():
    for m, n, tiles in [(1, 1, 1), (32, 16, 1), (33, 16, 2), (33, 17, 4), (64, 160, 20)]:
        assert tile_count(m, n, rows=32, columns=16) == tiles
    for slabs, counts in [(64, "uint"), (10**6, "ulong")]:
        assert count_type(slabs, 132) == counts


MATRIX = replace(configs.MATRIX, STAGES=3)


@pytest.mark.parametrize(
    ("config", "sizes", "kind", "units", "division", "sums"),
    [
        # 28 tiles among 10 groups; with k = 0 each tile has one empty slab.
        *((config, (100, 50, k), (dtype, None), 5, Division(10, 1), 16 * 16 * size)
          for config, k in ((INDIRECT, 80), (DIRECT, 80), (INDIRECT, 0), (DIRECT, 0))
          for dtype, size in (("float32", 4), ("float16", 4), ("complex128", 16))),
        # 16 tiles among 132 groups: 8 groups for each tile, 4 groups are not used.
        *((MATRIX, (128, 128, 1024), kind, 66, Division(128, 0), 32 * 32 * size)
          for kind, size in ((("float16", "F16_F16_F16"), 2), (("float16", "F16_F16_F32"), 4),
                             (("complex128", None), 16))),
    ],
)  # fmt: skip
def test_a_launch_gets_groups_rounds_and_workspaces(config, sizes, kind, units, division, sums):
    dtype, precision = kind
    traits = gpu(compute_units=units, fence_options="-cl-std=CL3.0")
    product = product_of(*sizes, dtype, precision=precision)
    schedule = make_schedule(product, replace(config, FILL=2), traits)
    launch = schedule.launches[-1]
    assert launch.groups == (division.groups,)
    assert launch.values["rounds"] == division.rounds
    assert launch.source.options == "-cl-std=CL3.0"
    assert schedule.workspaces["partial_sums"] == division.slots * sums
    assert schedule.workspaces["counters"] == 4 * division.counters
    alone = make_schedule(product, replace(config, FILL=0), traits)
    assert not {"partial_sums", "counters"} & set(alone.workspaces)
    assert "rounds" not in alone.launches[-1].values


@EVERY_FAMILY
def test_sums_are_in_memory_before_the_arrival_and_read_after_it(config):
    # CPU runtimes do not show a missing fence. The order is that of CUDA's threadFenceReduction.
    traits = gpu(fence_options="-cl-std=CL3.0")
    text = make_schedule(product_of(100, 50, 80), config, traits).launches[-1].source.text
    position = 0
    for statement in (
        "sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];",
        "device_fence();",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "arrived = atomic_inc(counter) + 1;",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "device_fence();",
        "accumulators[i][j] += sums[(i * NWI + j) * TILE_ITEMS];",
    ):
        position = text.find(statement, position)
        assert position > 0, f"{statement} is missing, or comes too early"
        position += len(statement)
    assert text.count("device_fence();") == 2


#: Deep products of one tile, of more and of fewer tiles than groups; less than a slab; k = 0.
SHAPES = [(7, 9, 400), (70, 90, 100), (33, 40, 90), (50, 50, 3), (20, 40, 0)]


def in_groups(config, queue, fewest):
    """The configuration whose FILL gives at least `fewest` work-groups on this device."""
    return replace(config, FILL=-(-fewest // queue.device.max_compute_units))


def assert_counters_are_zero(queue):
    """Between calls the counters of the queue's last workspace are zero."""
    buffer = queue_state(queue).workspaces[-1].buffer("counters", 4)
    counters = np.empty(buffer.size // 4, np.int32)
    cl.enqueue_copy(queue, counters, buffer)
    assert not counters.any()


SIZES = st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 60) | st.integers(1, 600))


@pytest.mark.any_runtime
@EVERY_FAMILY
@pytest.mark.parametrize("fill", [1, 2, 7, 40])
@settings(max_examples=60)
@given(sizes=st.sampled_from(SHAPES) | SIZES)
def test_every_slab_is_added_once(queue, config, fill, sizes):
    skip_if_refused(queue, config)
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    got = pyclgemm.gemm(queue, a, b, config=replace(config, FILL=fill))
    np.testing.assert_array_equal(got, a @ b)  # sums of integers are exact in any order
    assert_counters_are_zero(queue)


LARGE = replace(DIRECT, WGD=64, NWGD=128, NDIMCD=8, NDIMBD=8, VWMD=4, VWND=4, PADA=0, PADB=0)
#: Configuration, least number of groups, and sizes.
JOINED = [
    # One tile for 9, 40 and 80 groups: a tree of two levels, the last wider than 8, or of seven.
    *((config, fewest, (rows, 11, 1500))
      for config in CONFIGS.values() for fewest in (9, 40, 80) for rows in (13, 30)),
    # Tiles of many elements.
    (LARGE, 10, (65, 130, 100)), (LARGE, 10, (60, 120, 300)),
]  # fmt: skip


@pytest.mark.any_runtime
@pytest.mark.parametrize(("config", "fewest", "sizes"), JOINED)
def test_sums_are_joined(queue, config, fewest, sizes):
    check_gemm(queue, sizes, config=in_groups(config, queue, fewest), in_place=True, beta=-2.0)
    assert_counters_are_zero(queue)


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_whole_rounds_before_the_division(queue, config):
    groups = queue.device.max_compute_units
    for tiles in (groups, 2 * groups, 2 * groups + 1, 3 * groups + 1):
        check_gemm(queue, (5, 16 * tiles, 50), config=replace(config, FILL=1))


def multiply_repeatedly(queue, config, shapes):
    """Multiply each shape several times: every result is right and has the same bits."""
    skip_if_refused(queue, config)
    rng = np.random.default_rng(7)
    pairs = [draw(rng, (m, k), (k, n)) for m, n, k in shapes]
    operands = [upload(queue, *pair) for pair in pairs]
    queue.finish()
    # All calls of a round are enqueued before the first result is read, and share the workspaces.
    rounds = ([pyclgemm.gemm(queue, *pair, config=config) for pair in operands] for _ in range(15))
    first, *others = ([out.get() for out in results] for results in rounds)
    for pair, got, *repeated in zip(pairs, first, *others, strict=True):
        assert_close(got, expected_gemm(*pair))
        assert all(np.array_equal(got, one) for one in repeated)


@EVERY_FAMILY
def test_repeated_products_have_the_same_bits(fresh_queue, config):
    # Many groups that arrive in any order: a sum in the order of arrival would differ. The last
    # shapes make the workspaces grow.
    shapes = [*SHAPES, (40, 37, 1000), (100, 100, 300)]
    multiply_repeatedly(fresh_queue, in_groups(config, fresh_queue, 24), shapes)
    assert_counters_are_zero(fresh_queue)


@EVERY_FAMILY
def test_an_out_of_order_queue(out_of_order_queue, config):
    multiply_repeatedly(out_of_order_queue, config, SHAPES)


@EVERY_FAMILY
@pytest.mark.parametrize("count", [1, 2], ids=["one queue", "two queues"])
def test_two_threads_at_once(context, config, count):
    queues = [cl.CommandQueue(context) for _ in range(count)]
    tasks = zip((queues[0], queues[-1]), 2 * [config], (SHAPES[:4], SHAPES[1:4]), strict=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda task: multiply_repeatedly(*task), tasks))


def test_sums_are_loaded_all_at_once_or_by_powers_of_two():
    # Other numbers were unrolled wrongly by NVIDIA's compiler.
    for own in range(1, 200):
        found = StreamK(4, 4, own, own="", index="", sum="").unrolling
        assert found == FAN_IN or found & (found - 1) == 0
        assert 1 <= found * own <= max(own, 128)
