"""Tiles that several work-groups share: the same sums whoever comes last, at every call.

The division itself is tested without a device (tests/codegen/test_stream_k_division.py).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyclgemm
from pyclgemm import XgemmDirectConfig
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


def _groups_of(queue: Any, fewest: int) -> int:
    """A FILL that gives `fewest` work-groups or more on this device."""
    return -(-fewest // queue.device.max_compute_units)


def _operands(queue: Any, sizes: tuple[int, int, int], dtype: str = "float32") -> tuple[Any, Any]:
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    return tuple(
        cl_array.to_device(queue, random_array(rng, shape, dtype)) for shape in ((m, k), (k, n))
    )  # type: ignore[return-value]


def _workspace(queue: Any, name: str) -> np.ndarray:
    """The integers that a workspace of the queue holds."""
    pool = queue_state(queue).workspaces
    workspaces = pool.take()
    buffer = workspaces.buffer(name, 4)
    held = np.empty(buffer.size // 4, np.int32)
    cl.enqueue_copy(queue, held, buffer)
    pool.give_back(workspaces)
    return held


@pytest.mark.any_runtime
@EVERY_FAMILY
@pytest.mark.parametrize("fill", [1, 2, 5, 30])
def test_few_and_many_groups(queue, config, fill):
    for sizes in SHAPES:
        check_gemm(queue, sizes, config=replace(config, FILL=fill))
        assert not _workspace(queue, "counters").any()


@pytest.mark.any_runtime
@EVERY_FAMILY
@pytest.mark.parametrize("fill", [1, 7, 40])
@settings(max_examples=60)
@given(m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(1, 60) | st.integers(1, 600))
def test_every_slab_is_added_once_by_whichever_group(queue, config, fill, m, n, k):
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    got = pyclgemm.gemm(queue, a, b, config=replace(config, FILL=fill))
    np.testing.assert_array_equal(got, a @ b)  # sums of integers are exact in any order
    assert not _workspace(queue, "counters").any()


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_more_groups_than_are_joined_at_once(queue, config):
    # One tile for 9, 40 and 80 groups: a tree of two levels, the last of them wider than 8.
    for fewest in (9, 40, 80):
        many = replace(config, FILL=_groups_of(queue, fewest))
        check_gemm(queue, (13, 11, 1500), config=many)
        check_gemm(queue, (30, 11, 1500), config=many)
        assert not _workspace(queue, "counters").any()


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_whole_rounds_before_the_division(queue, config):
    groups = queue.device.max_compute_units
    for tiles in (groups, 2 * groups, 2 * groups + 1, 3 * groups + 1):
        check_gemm(queue, (5, 16 * tiles, 50), config=replace(config, FILL=1))


@pytest.mark.any_runtime
def test_tiles_of_many_elements(queue):
    large = XgemmDirectConfig(
        WGD=64, NWGD=128, KWGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4,
        VWND=4, PADA=0, PADB=0, FILL=5,
    )  # fmt: skip
    check_gemm(queue, (65, 130, 100), config=large)
    check_gemm(queue, (60, 120, 300), config=large)


@pytest.mark.any_runtime
@EVERY_FAMILY
@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "complex128"])
def test_sums_of_every_type(queue, require, config, dtype):
    require(dtype)
    check_gemm(queue, (33, 20, 200), dtype, config=config, alpha=0.5)


@EVERY_FAMILY
def test_repeated_calls_give_the_same_bits(queue, config):
    # Many groups that arrive in any order: a sum in the order of arrival would differ.
    config = replace(config, FILL=_groups_of(queue, 24))
    a, b = _operands(queue, (40, 37, 1000))
    first = pyclgemm.gemm(queue, a, b, config=config).get()
    for _ in range(40):
        assert np.array_equal(pyclgemm.gemm(queue, a, b, config=config).get(), first)


@EVERY_FAMILY
def test_shapes_in_turn_on_one_queue(fresh_queue, config):
    products = [(_operands(fresh_queue, sizes), sizes) for sizes in SHAPES]
    products.append((_operands(fresh_queue, (100, 100, 300)), (100, 100, 300)))  # grows
    before: dict[Any, np.ndarray] = {}
    for _ in range(3):
        for (a, b), sizes in products:
            got = pyclgemm.gemm(fresh_queue, a, b, config=config).get()
            assert_close(got, expected_gemm(a.get(), b.get()))
            assert np.array_equal(before.setdefault(sizes, got), got)
            assert not _workspace(fresh_queue, "counters").any()


@EVERY_FAMILY
def test_partial_sums_are_written_before_they_are_read(fresh_queue, config):
    for sizes in SHAPES:
        for size in (4, 1 << 20):  # the one at hand, and one larger than needed
            pool = queue_state(fresh_queue).workspaces
            workspaces = pool.take()
            buffer = workspaces.buffer("partial_sums", size)
            cl.enqueue_copy(fresh_queue, buffer, np.full(buffer.size, 0xFF, np.uint8))
            pool.give_back(workspaces)
            check_gemm(fresh_queue, sizes, config=config)


@pytest.mark.any_runtime
@EVERY_FAMILY
def test_epilogue_is_applied_once_to_the_joined_sums(queue, config):
    for sizes in SHAPES:
        check_gemm(
            queue, sizes, config=config, in_place=True, alpha=0.5, beta=-2.0, bias=True,
            activation="tanh",
        )  # fmt: skip


def test_counters_are_zeros_when_new_and_when_they_grow(fresh_queue):
    def held(buffer: Any) -> np.ndarray:
        content = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(fresh_queue, content, buffer)
        return content

    workspaces = queue_state(fresh_queue).workspaces.take()
    small = workspaces.buffer("counters", 16)
    assert not held(small).any()
    cl.enqueue_copy(fresh_queue, small, np.full(16, 0xFF, np.uint8))
    assert workspaces.buffer("counters", 8) is small
    grown = workspaces.buffer("counters", 64)
    assert grown is not small
    assert grown.size >= 64
    assert not held(grown).any()


@EVERY_FAMILY
def test_an_out_of_order_queue(context, device, config):
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.queue_properties & mode:
        pytest.skip("the device has no out-of-order queues")
    queue = cl.CommandQueue(context, properties=mode)
    products = [_operands(queue, sizes) for sizes in SHAPES]
    queue.finish()
    # All are on their way at once, and share the workspaces.
    results = [
        (a, b, pyclgemm.gemm(queue, a, b, config=config)) for _ in range(5) for a, b in products
    ]
    for a, b, out in results:
        assert_close(out.get(), expected_gemm(a.get(), b.get()))


@EVERY_FAMILY
@pytest.mark.parametrize("own_queues", [False, True], ids=["one queue", "two queues"])
def test_two_threads_at_once(context, config, own_queues):
    queues = [cl.CommandQueue(context)] * 2
    if own_queues:
        queues[1] = cl.CommandQueue(context)

    def work(index: int) -> None:
        queue = queues[index]
        operands = [_operands(queue, sizes) for sizes in SHAPES[index:4]]
        expected = [expected_gemm(a.get(), b.get()) for a, b in operands]
        for _ in range(15):
            results = [pyclgemm.gemm(queue, a, b, config=config) for a, b in operands]
            for out, wanted in zip(results, expected, strict=True):
                assert_close(out.get(), wanted)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(work, index) for index in range(2)]:
            job.result()


@EVERY_FAMILY
def test_plans_of_one_queue_in_turn(queue, config):
    products = [_operands(queue, sizes) for sizes in SHAPES]
    plans = [pyclgemm.plan(queue, a, b, config=config) for a, b in products]
    results = [plan(a, b) for _ in range(3) for plan, (a, b) in zip(plans, products, strict=True)]
    for out, (a, b) in zip(results, products * 3, strict=True):
        assert_close(out.get(), expected_gemm(a.get(), b.get()))
