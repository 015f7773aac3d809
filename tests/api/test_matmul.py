"""matmul: numpy.matmul's shape rules."""

from __future__ import annotations

import re

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclgemm
from tests.support.gates import is_complete
from tests.support.reference import DTYPES, assert_close, expected_gemm, random_array

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (1, 3, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((0, 3, 4), (4, 5)),
    ((2, 3, 0), (2, 0, 5)),
]

BAD_SHAPES = [
    ((3, 4), (5, 6)),
    ((4,), (5,)),
    ((4,), (5, 4)),
    ((3, 4), (3,)),
    ((2, 3, 4), (3, 4, 5)),
    ((), (4,)),
    ((4,), ()),
    ((3, 4), ()),
]


def _check(queue, left, right):
    wanted = np.matmul(left, right)
    on_device = [cl_array.to_device(queue, x) for x in (left, right)]
    for got in (pyclgemm.matmul(left, right, queue=queue), pyclgemm.matmul(*on_device)):
        host = got if isinstance(got, (np.ndarray, np.generic)) else got.get()
        assert np.shape(host) == wanted.shape
        assert host.dtype == left.dtype
        _assert_products(np.asarray(host), left, right)


def _assert_products(got, left, right):
    """Every matrix of the stack within the bound."""
    a = left[np.newaxis] if left.ndim == 1 else left
    b = right[:, np.newaxis] if right.ndim == 1 else right
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    full = got.reshape(*stack, a.shape[-2], b.shape[-1])
    a = np.broadcast_to(a, stack + a.shape[-2:])
    b = np.broadcast_to(b, stack + b.shape[-2:])
    for index in np.ndindex(stack):
        assert_close(full[index], expected_gemm(a[index], b[index]))


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_shapes_are_numpys(queue, rng, left, right):
    _check(queue, random_array(rng, left, "float32"), random_array(rng, right, "float32"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(queue, require, rng, dtype):
    require(dtype)
    _check(queue, random_array(rng, (2, 7, 9), dtype), random_array(rng, (9, 5), dtype))


@given(
    stack=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(*[st.integers(1, 20)] * 3),
    broadcast=st.sampled_from(["none", "a", "b"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_stack(queue, stack, sizes, broadcast, seed):
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    ones = [1] * len(stack)
    left = tuple(ones if broadcast == "a" else stack) + (m, k)
    right = tuple(ones if broadcast == "b" else stack) + (k, n)
    _check(queue, random_array(rng, left, "float32"), random_array(rng, right, "float32"))


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
    host = random_array(rng, (6, 8, 10), "float32")
    base = cl_array.to_device(queue, host)
    a, b = host[::2, 1:, ::-1], host[1::2].transpose(0, 2, 1)
    got = pyclgemm.matmul(base[::2, 1:, ::-1], base[1::2].transpose((0, 2, 1)))
    _assert_products(got.get(), a, b)


@pytest.mark.parametrize(("left", "right"), SHAPES[:9], ids=str)
def test_destination_is_filled_and_returned(queue, rng, left, right):
    a, b = random_array(rng, left, "float32"), random_array(rng, right, "float32")
    wanted = np.matmul(a, b)
    out = np.full(wanted.shape, np.nan, np.float32)
    assert pyclgemm.matmul(a, b, queue=queue, out=out) is out
    _assert_products(out, a, b)
    on_device = cl_array.to_device(queue, np.full(wanted.shape, np.nan, np.float32))
    operands = [cl_array.to_device(queue, x) for x in (a, b)]
    assert pyclgemm.matmul(*operands, out=on_device) is on_device
    _assert_products(on_device.get(), a, b)


def test_queue_of_the_operands_serves(context, rng):
    queue = cl.CommandQueue(context)
    host = random_array(rng, (9, 9), "float32")
    out = pyclgemm.matmul(cl_array.to_device(queue, host), cl_array.to_device(queue, host))
    assert out.queue == queue
    assert_close(out.get(), expected_gemm(host, host))


def test_numpy_without_a_queue(device, rng):
    # The library picks a device of its own; that there is one is known from `device`.
    host = random_array(rng, (9, 9), "float32")
    assert_close(pyclgemm.matmul(host, host), expected_gemm(host, host))


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 5), (5, 6)), ((3, 4, 5), (5, 6)), ((5,), (3, 5, 6)), ((40, 4, 4), (40, 4, 4))],
    ids=str,
)
@pytest.mark.parametrize("by_array", [False, True], ids=["wait_for", "an array's event"])
def test_waits_without_blocking_and_leaves_an_event(fresh_queue, gate, rng, left, right, by_array):
    hosts = [random_array(rng, shape, "float32") for shape in (left, right)]
    a, b = (cl_array.to_device(fresh_queue, x) for x in hosts)
    if by_array:
        a.add_event(gate.event)
    wait_for = None if by_array else [gate.event]
    out = gate.call(lambda: pyclgemm.matmul(a, b, wait_for=wait_for))
    fresh_queue.flush()
    assert out.events
    assert not any(map(is_complete, out.events))
    gate.open()
    _assert_products(out.get(), *hosts)


ONES = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (ONES.astype("int64"), ONES.astype("int64"), pyclgemm.DtypeError, "a is int64"),
        (ONES.astype("bool"), ONES.astype("bool"), pyclgemm.DtypeError, "a is bool"),
        (ONES, np.ones((4, 4)), pyclgemm.DtypeError, "b is float64 and a is float32"),
        (np.ones((1, 1), np.float32), [[1.0]], pyclgemm.DtypeError, "b is a list"),
    ],
)  # fmt: skip
def test_operands_that_are_refused(queue, a, b, error, message):
    with pytest.raises(error, match=message):
        pyclgemm.matmul(a, b, queue=queue)


def test_options_that_are_refused(queue):
    with pytest.raises(pyclgemm.ShapeError, match=r"out.*\(4, 5\).*\(4, 4\)"):
        pyclgemm.matmul(ONES, ONES, queue=queue, out=np.ones((4, 5), np.float32))
    with pytest.raises(pyclgemm.DtypeError, match="out is a list"):
        pyclgemm.matmul(ONES, ONES, queue=queue, out=[[1.0]])
    with pytest.raises(pyclgemm.ArgumentError, match="precision"):
        pyclgemm.matmul(ONES, ONES, queue=queue, precision="F8")
    with pytest.raises(TypeError):  # operands are positional
        pyclgemm.matmul(a=ONES, b=ONES, queue=queue)
