"""matmul: numpy.matmul's shape rules."""

import re

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from tests.support.arrays import assert_gemm, draw, fetched, upload
from tests.support.gates import is_complete
from tests.support.reference import DTYPES

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)), ((1, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 3, 4, 5)),
    ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((0, 3, 4), (4, 5)), ((2, 3, 0), (2, 0, 5)),
]  # fmt: skip

BAD_SHAPES = [
    ((3, 4), (5, 6)), ((4,), (5,)), ((4,), (5, 4)), ((3, 4), (3,)), ((2, 3, 4), (3, 4, 5)),
    ((), (4,)), ((4,), ()), ((3, 4), ()),
]  # fmt: skip


def _assert_products(got, left, right):
    """Shape and type are numpy.matmul's, and every matrix of the stack is within its bound."""
    wanted, got = np.matmul(left, right), fetched(got)
    assert got.shape == wanted.shape and got.dtype == left.dtype
    a = left[np.newaxis] if left.ndim == 1 else left
    b = right[:, np.newaxis] if right.ndim == 1 else right
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    assert_gemm(got.reshape(*stack, a.shape[-2], b.shape[-1]), a, b)


def _check(queue, left, right):
    """Arrays of the host and of the device, which say the queue, with and without a destination."""
    out = np.full(np.matmul(left, right).shape, np.nan, left.dtype)
    operands, out_there = upload(queue, left, right), cl_array.zeros(queue, out.shape, out.dtype)
    _assert_products(pyclgemm.matmul(left, right, queue=queue), left, right)
    got = pyclgemm.matmul(*operands)
    assert got.queue == queue
    _assert_products(got, left, right)
    assert pyclgemm.matmul(left, right, queue=queue, out=out) is out
    _assert_products(out, left, right)
    assert pyclgemm.matmul(*operands, out=out_there) is out_there
    _assert_products(out_there, left, right)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_are_numpys(queue, rng, shapes):
    _check(queue, *draw(rng, *shapes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(queue, require, rng, dtype):
    require(dtype)
    _check(queue, *draw(rng, (2, 7, 9), (9, 5), dtype=dtype))


@given(
    stack=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(*[st.integers(1, 20)] * 3),
    broadcast=st.sampled_from(["none", "a", "b"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_stack(queue, stack, sizes, broadcast, seed):
    m, n, k = sizes
    ones = [1] * len(stack)
    left = (*(ones if broadcast == "a" else stack), m, k)
    right = (*(ones if broadcast == "b" else stack), k, n)
    _check(queue, *draw(np.random.default_rng(seed), left, right))


@pytest.mark.parametrize(("left", "right"), BAD_SHAPES, ids=str)
def test_shapes_that_numpy_refuses(queue, left, right):
    a, b = np.ones(left, np.float32), np.ones(right, np.float32)
    with pytest.raises(ValueError):
        np.matmul(a, b)
    with pytest.raises(pyclgemm.ShapeError) as caught:
        pyclgemm.matmul(a, b, queue=queue)
    message = str(caught.value)
    assert re.match(r"[ab] is ", message)
    assert "scalar" in message if () in (left, right) else str(left) in message


def test_views_of_stacks(queue, rng):
    (host,) = draw(rng, (6, 8, 10))
    (base,) = upload(queue, host)
    got = pyclgemm.matmul(base[::2, 1:, ::-1], base[1::2].transpose((0, 2, 1)))
    _assert_products(got, host[::2, 1:, ::-1], host[1::2].transpose(0, 2, 1))


def test_numpy_without_a_queue(device, rng):
    # The library picks a device of its own; that there is one is known from `device`.
    a, b = draw(rng, (9, 9), (9, 9))
    assert_gemm(pyclgemm.matmul(a, b), a, b)


@pytest.mark.parametrize(
    "shapes",
    [((4, 5), (5, 6)), ((3, 4, 5), (5, 6)), ((5,), (3, 5, 6)), ((40, 4, 4), (40, 4, 4))],
    ids=str,
)
@pytest.mark.parametrize("by_array", [False, True], ids=["wait_for", "an array's event"])
def test_waits_without_blocking_and_leaves_an_event(fresh_queue, gate, rng, shapes, by_array):
    hosts = draw(rng, *shapes)
    a, b = upload(fresh_queue, *hosts)
    if by_array:
        a.add_event(gate.event)
    wait_for = None if by_array else [gate.event]
    out = gate.call(lambda: pyclgemm.matmul(a, b, wait_for=wait_for))
    fresh_queue.flush()
    assert out.events
    assert not any(map(is_complete, out.events))
    gate.open()
    _assert_products(out, *hosts)
