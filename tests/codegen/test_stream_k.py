"""Tiles that several work-groups share: the same sums whoever comes last, at every call.

Divisions and launches are tested without a device (tests/codegen/test_stream_k_division.py).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyclgemm
from pyclgemm.runtime.queue_state import queue_state
from tests.support import configs
from tests.support.checks import check_gemm, skip_if_refused
from tests.support.reference import assert_close, expected_gemm, random_array

INDIRECT = replace(configs.INDIRECT, MWG=16, NWG=16, KWG=4, NDIMC=4, FILL=4)
DIRECT = replace(configs.DIRECT, KWGD=8, FILL=4)
BASES = {"indirect": INDIRECT, "direct": DIRECT}
EVERY_FAMILY = pytest.mark.parametrize("config", BASES.values(), ids=BASES)

# One tile and deep, more tiles than groups, fewer; less than a slab; not one product.
SHAPES = [(7, 9, 400), (70, 90, 100), (33, 40, 90), (50, 50, 3), (20, 40, 0)]


@pytest.fixture(autouse=True)
def _can_share(queue):
    skip_if_refused(queue, INDIRECT)
    skip_if_refused(queue, DIRECT)


def _groups_of(queue, fewest):
    """A FILL that gives `fewest` work-groups or more on this device."""
    return -(-fewest // queue.device.max_compute_units)


def _operands(queue, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    return [
        cl_array.to_device(queue, random_array(rng, shape, "float32")) for shape in ((m, k), (k, n))
    ]


def _counters(queue):
    """What the queue's counters hold: zeros between calls."""
    pool = queue_state(queue).workspaces
    workspaces = pool.take()
    buffer = workspaces.buffer("counters", 4)
    held = np.empty(buffer.size // 4, np.int32)
    cl.enqueue_copy(queue, held, buffer)
    pool.give_back(workspaces)
    return held


SIZES = st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 60) | st.integers(1, 600))


@pytest.mark.any_runtime
@EVERY_FAMILY
@pytest.mark.parametrize("fill", [1, 2, 7, 40])
@settings(max_examples=60)
@given(sizes=st.sampled_from(SHAPES) | SIZES)
def test_every_slab_is_added_once_by_whichever_group(queue, config, fill, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    got = pyclgemm.gemm(queue, a, b, config=replace(config, FILL=fill))
    np.testing.assert_array_equal(got, a @ b)  # sums of integers are exact in any order
    assert not _counters(queue).any()


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_more_groups_than_are_joined_at_once(queue, config):
    # One tile for 9, 40 and 80 groups: a tree of two levels, the last of them wider than 8.
    for fewest in (9, 40, 80):
        many = replace(config, FILL=_groups_of(queue, fewest))
        check_gemm(queue, (13, 11, 1500), config=many)
        check_gemm(queue, (30, 11, 1500), config=many)
        assert not _counters(queue).any()


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_whole_rounds_before_the_division(queue, config):
    groups = queue.device.max_compute_units
    for tiles in (groups, 2 * groups, 2 * groups + 1, 3 * groups + 1):
        check_gemm(queue, (5, 16 * tiles, 50), config=replace(config, FILL=1))


@pytest.mark.any_runtime
def test_tiles_of_many_elements(queue):
    large = replace(
        DIRECT, WGD=64, NWGD=128, NDIMCD=8, NDIMBD=8, VWMD=4, VWND=4, PADA=0, PADB=0, FILL=5
    )
    check_gemm(queue, (65, 130, 100), config=large)
    check_gemm(queue, (60, 120, 300), config=large)


@pytest.mark.any_runtime
@EVERY_FAMILY
@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "complex128"])
def test_sums_of_every_type(queue, require, config, dtype):
    require(dtype)
    check_gemm(queue, (33, 20, 200), dtype, config=config, alpha=0.5)


@EVERY_FAMILY
def test_shapes_in_turn_give_the_same_bits(fresh_queue, config):
    # Many groups that arrive in any order: a sum in the order of arrival would differ.
    config = replace(config, FILL=_groups_of(fresh_queue, 24))
    # The last one makes the workspaces grow.
    shapes = [*SHAPES, (40, 37, 1000), (100, 100, 300)]
    products = {sizes: _operands(fresh_queue, sizes) for sizes in shapes}
    before = {}
    for _ in range(10):
        for sizes, (a, b) in products.items():
            got = pyclgemm.gemm(fresh_queue, a, b, config=config).get()
            if sizes not in before:
                assert_close(got, expected_gemm(a.get(), b.get()))
            assert np.array_equal(before.setdefault(sizes, got), got)
            assert not _counters(fresh_queue).any()


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_epilogue_is_applied_once_to_the_joined_sums(queue, config):
    for sizes in SHAPES:
        check_gemm(
            queue, sizes, config=config, in_place=True, alpha=0.5, beta=-2.0, bias=True,
            activation="tanh",
        )  # fmt: skip


@EVERY_FAMILY
def test_an_out_of_order_queue(out_of_order_queue, config):
    queue = out_of_order_queue
    products = [_operands(queue, sizes) for sizes in SHAPES]
    queue.finish()
    # All are on their way at once, and share the workspaces.
    results = [
        (a, b, pyclgemm.gemm(queue, a, b, config=config)) for _ in range(5) for a, b in products
    ]
    for a, b, out in results:
        assert_close(out.get(), expected_gemm(a.get(), b.get()))


@EVERY_FAMILY
@pytest.mark.parametrize("count", [1, 2], ids=["one queue", "two queues"])
def test_two_threads_at_once(context, config, count):
    queues = [cl.CommandQueue(context) for _ in range(count)]

    def work(index):
        queue = queues[index % count]
        operands = [_operands(queue, sizes) for sizes in SHAPES[index:4]]
        expected = [expected_gemm(a.get(), b.get()) for a, b in operands]
        for _ in range(15):
            results = [pyclgemm.gemm(queue, a, b, config=config) for a, b in operands]
            for out, wanted in zip(results, expected, strict=True):
                assert_close(out.get(), wanted)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
