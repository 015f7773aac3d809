"""gemm_batched and matmul: stacks and sequences, by every kernel family, against the reference."""

import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from unittest.mock import patch

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import pyclgemm
from pyclgemm import SmallConfig, SmallCpuConfig
from pyclgemm.problem.precision import UNIT_DTYPES
from pyclgemm.runtime.launcher import LaunchSequence
from tests.support.arrays import assert_gemm, draw, fetched, upload
from tests.support.buffers import COLUMN, ROW, STRIDED
from tests.support.cases import all_pairs
from tests.support.checks import STEPS, cases, check_gemm, raises, skip_if_refused
from tests.support.configs import CPU, DIRECT, GEMV, INDIRECT
from tests.support.facts import gpu, problem
from tests.support.families import refusal
from tests.support.gates import is_complete
from tests.support.reference import DTYPES, random_array

SMALL = SmallConfig(MWI=4, NWI=4, WGS=64)
SMALL_CPU = SmallCpuConfig(MR=6, NR=32, VW=16)

#: How the matrices of a, b, out and c follow one another.
FOLLOWING = [
    *STEPS, *(f"apart {step}" for step in STEPS[1:]), "backwards interleaved", "shared shared",
    "backwards shared interleaved matrix", "apart apart apart one",
]  # fmt: skip
SIZES = [(37, 41, 45), (8, 8, 8), (1, 9, 8), (7, 5, 600), (0, 4, 3), (4, 0, 3), (4, 5, 0)]
#: Options of `check_gemm`.
BATCHES = [
    *all_pairs(dtype=DTYPES, sizes=SIZES, steps=FOLLOWING, batch=(4, 64)),
    # The CPU family computes a narrow result as the transposed product.
    *cases(
        [{"sizes": (130, 3, 70), "beta": 0.5, "c": STRIDED, "bias": True, "activation": "silu"}],
        config=[CPU, replace(CPU, PACKB=0)], trans_a="NT", steps=["backwards shared interleaved"],
    ),
    *cases(
        [{"alpha": -0.5, "beta": 2.0, "c": COLUMN, "bias": True, "activation": "relu"}],
        config=(SMALL, SMALL_CPU), sizes=[(1, 1, 1), (64, 64, 64), (3, 64, 1), (33, 5, 0)],
    ),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.any_runtime
@pytest.mark.parametrize("options", BATCHES)
def test_batches(queue, require, options):
    require(options.get("dtype"), options.get("precision"))
    check_gemm(queue, **{"batch": 5} | options)


@pytest.mark.parametrize("b", [(0, 4, 5), (1, 4, 5), (4, 5)], ids=str)
def test_an_empty_batch(queue, b):
    a, b = np.ones((0, 3, 4), np.float32), np.ones(b, np.float32)
    out, event = pyclgemm.gemm_batched(queue, a, b, return_event=True)
    assert out.shape == (0, 3, 5)
    event.wait()


@pytest.mark.any_runtime
def test_a_batch_with_one_b_is_planned_as_a_single_product(queue, rng):
    a, b = draw(rng, (6, 8, 10), (6, 10, 12))
    for right, sizes in ((b, (8, 6)), (b[0], (6 * 8, None))):
        operands = upload(queue, a, right)
        plan = pyclgemm.plan(queue, *operands)
        assert (plan.product.problem.m, plan.product.problem.batch) == sizes
        assert pyclgemm.explain(queue, a, right).path == plan.choice.path
        for got in (plan(*operands), pyclgemm.gemm_batched(queue, a, right)):
            assert_gemm(got, a, right)


def test_products_that_the_small_family_refuses():
    for sizes, config, message in (
        ((8, 65, 8), SMALL, "at most 64 rows, columns and depths, not (8, 65, 8)"),
        ((64, 64, 64), SmallConfig(1, 1, 64), "4096 work-items, and a group has"),
    ):
        assert message in refusal(config, problem(*sizes, batch=3), gpu())


@pytest.mark.parametrize("kind", [list, tuple, np.asarray])
def test_arrays_of_the_host(queue, rng, kind):
    a, b, c = draw(rng, (3, 4, 5), (3, 5, 6), (4, 6))
    out = kind(np.empty((3, 4, 6), np.float32))
    assert pyclgemm.gemm_batched(queue, kind(a), b, c, beta=1.0, out=out) is out
    assert_gemm(out, a, b, c, beta=1.0)
    out = pyclgemm.gemm_batched(queue, kind(a), b[0])
    assert isinstance(out, np.ndarray)
    assert_gemm(out, a, b[0])


@pytest.mark.any_runtime
def test_packed_b(queue, rng):
    a, b = draw(rng, (3, 4, 5), (5, 6))
    together, repeated = upload(queue, a, np.repeat(a, 2, axis=0))
    packed = pyclgemm.pack(queue, b)
    for one in (together, repeated[::2]):
        assert_gemm(pyclgemm.gemm_batched(queue, one, packed), a, b)


def _slices(queue, rng, count, shape):
    """Matrices in one buffer in random order, and their values."""
    host = random_array(rng, (count + 2, *shape), "float32")
    whole = cl_array.to_device(queue, host)
    order = rng.permutation(count + 2)[:count]
    return [whole[int(index)] for index in order], host[order]


@contextmanager
def _launches(count):
    """Assert the number of launched kernels."""
    real = LaunchSequence._launch
    with patch.object(LaunchSequence, "_launch", autospec=True, side_effect=real) as launched:
        yield
    assert launched.call_count == count


@pytest.mark.parametrize("sizes", [(20, 24, 16), (64, 64, 64)], ids=["tails", "whole tiles"])
@pytest.mark.parametrize("config", [None, INDIRECT, replace(DIRECT, FILL=2), GEMV])
@pytest.mark.first_runtime
def test_slices_of_one_buffer_are_one_launch(queue, config, sizes):
    skip_if_refused(queue, config)
    order = (4, 0, 6, 1, 5, 3, 2)
    with _launches(1):
        check_gemm(queue, sizes, batch=7, config=config, beta=0.5, c=ROW, order=order)


@pytest.mark.parametrize("buffers", [1, 2, 4])
@pytest.mark.parametrize("form", ["sequence", "stack", "sequence of one"])
def test_each_buffer_is_a_launch(queue, rng, buffers, form):
    parts = [_slices(queue, rng, 4 // buffers, (5, 6)) for _ in range(buffers)]
    a, host_a = (list(chain(*zip(*part, strict=True))) for part in zip(*parts, strict=True))
    b, host_b = _slices(queue, rng, 1 if "one" in form else 4, (6, 3))
    if form == "stack":
        b = cl_array.to_device(queue, host_b)
    with _launches(buffers):
        out = pyclgemm.gemm_batched(queue, a, b)
    assert out.shape == (4, 5, 3)
    assert_gemm(out, host_a, host_b if len(b) > 1 else host_b[0])


def test_a_refused_launch_leaves_the_result_unchanged(queue, rng):
    """A matrix that is alone in its buffer is a single product, which this family refuses."""
    a = _slices(queue, rng, 3, (5, 5))[0] + _slices(queue, rng, 1, (5, 5))[0]
    out = cl_array.empty(queue, (4, 5, 5), np.float32)
    out.fill(7)
    with pytest.raises(pyclgemm.ConfigError, match="single product"):
        pyclgemm.gemm_batched(queue, a, a, out=out, config=SMALL)
    assert (out.get() == 7).all()


def test_new_offsets_are_uploaded(queue, rng):
    a, host = _slices(queue, rng, 5, (6, 6))
    out = cl_array.zeros(queue, (5, 6, 6), np.float32)
    straight = [0, 1, 2, 3, 4]
    for order in (straight, straight, straight[::-1], [2, 0, 1, 4, 3]):
        pyclgemm.gemm_batched(queue, [a[index] for index in order], a, out=out)
        assert_gemm(out, host[order], host)


def test_a_batch_waits_and_has_an_event(fresh_queue, gate, rng):
    a, host = _slices(fresh_queue, rng, 3, (4, 4))
    fresh_queue.finish()
    out, event = pyclgemm.gemm_batched(fresh_queue, a, a, wait_for=[gate.event], return_event=True)
    assert not is_complete(event) and out.events == [event]
    again = pyclgemm.gemm_batched(fresh_queue, out, a)
    gate.open()
    cubes = np.linalg.matrix_power(host.astype(np.float64), 3)
    np.testing.assert_allclose(again.get(), cubes, rtol=1e-4, atol=1e-5)


def test_out_of_order_queue(out_of_order_queue, rng):
    host = draw(rng, *[(6, 6)] * 4)
    a, given = (upload(out_of_order_queue, *host) for _ in range(2))
    out, event = pyclgemm.gemm_batched(out_of_order_queue, a, a, return_event=True)
    event.wait()
    assert_gemm(out, host, host)
    pyclgemm.gemm_batched(out_of_order_queue, a, a, out=given)
    assert all(len(one.events) == 1 for one in given)
    assert_gemm(given, host, host)


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
    """Check the shape and the type against NumPy, and every matrix against the reference."""
    wanted, got = np.matmul(left, right), fetched(got)
    assert got.shape == wanted.shape and got.dtype == left.dtype
    a = left[np.newaxis] if left.ndim == 1 else left
    b = right[:, np.newaxis] if right.ndim == 1 else right
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    assert_gemm(got.reshape(*stack, a.shape[-2], b.shape[-1]), a, b)


def _check(queue, left, right):
    """Multiply arrays of the host and of the device, with and without a destination."""
    out = np.full(np.matmul(left, right).shape, np.nan, left.dtype)
    operands, out_there = upload(queue, left, right), cl_array.zeros(queue, out.shape, out.dtype)
    new, new_there = pyclgemm.matmul(left, right, queue=queue), pyclgemm.matmul(*operands)
    assert new_there.queue == queue
    assert type(new) is type(np.matmul(left, right))  # a scalar for two vectors
    assert pyclgemm.matmul(left, right, queue=queue, out=out) is out
    assert pyclgemm.matmul(*operands, out=out_there) is out_there
    for got in (new, new_there, out, out_there):
        _assert_products(got, left, right)


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [*((one, "float32") for one in SHAPES), *((((2, 7, 9), (9, 5)), dtype) for dtype in DTYPES)],
)
def test_matmul_takes_the_shapes_of_numpy(queue, require, rng, shapes, dtype):
    require(dtype)
    _check(queue, *draw(rng, *shapes, dtype=dtype))


@given(
    shapes=mutually_broadcastable_shapes(
        signature=np.matmul.signature, max_dims=2, min_side=0, max_side=15
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_matmul_takes_any_shapes(queue, shapes, seed):
    _check(queue, *draw(np.random.default_rng(seed), *shapes.input_shapes))


@pytest.mark.parametrize("scalar", [np.float32(2), np.array(2, np.float32)], ids=["", "0-D"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_operands_without_dimensions_are_refused(queue, scalar, name):
    given = {"a": np.ones((2, 2), "f"), "b": np.ones((2, 2), "f"), name: scalar}
    for multiply in (pyclgemm.gemm, pyclgemm.gemm_batched, pyclgemm.plan, pyclgemm.explain):
        with raises(pyclgemm.ShapeError, f"{name} is "):
            multiply(queue, **given)
    with raises(pyclgemm.ShapeError, f"{name} is a scalar"):
        pyclgemm.matmul(*given.values(), queue=queue)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=str)
def test_matmul_by_a_packed_matrix(queue, rng, leading):
    left, right = draw(rng, (*leading, 5, 7), (7, 4))
    for operand in (left, *upload(queue, left)):
        got = pyclgemm.matmul(operand, pyclgemm.pack(queue, right), queue=queue)
        _assert_products(got, left, right)


@pytest.mark.parametrize(("left", "right"), BAD_SHAPES, ids=str)
def test_matmul_refuses_the_shapes_that_numpy_refuses(queue, left, right):
    a, b = np.ones(left, np.float32), np.ones(right, np.float32)
    with pytest.raises(ValueError):
        np.matmul(a, b)
    words = "scalar" if () in (left, right) else re.escape(str(left))
    with pytest.raises(pyclgemm.ShapeError, match=rf"^(?=[ab] is ).*{words}"):
        pyclgemm.matmul(a, b, queue=queue)


#: Types of a and b, and types that their result can have.
RESULTS = [
    ("float32", "float32", ("float32", "float64", "complex64", "complex128")),
    ("float16", "float16", ("float16", "float32", "float64")),
    ("bfloat16", "bfloat16", ("bfloat16", "float32")),
    ("int8", "int8", ("int32", "float16", "float32")),
    ("float32", "float16", ("float32", "float64")),
    ("float64", "complex64", ("complex128",)),
    ("uint8", "bool", ("float32",)),
    ("int64", "int64", ("float64",)),
]


@pytest.mark.parametrize(("left", "right", "wanted"), RESULTS)
def test_matmul_to_an_element_type(queue, traits, require, rng, left, right, wanted):
    if left in UNIT_DTYPES and traits.type != "cpu":
        pytest.skip(f"{left} is for CPUs and matrix units")
    # Whole numbers, whose sums are exact in all types.
    a, b = rng.integers(0, 3, (2, 3, 5)).astype(left), rng.integers(0, 2, (5, 4)).astype(right)
    want = a.astype("complex128") @ b.astype("complex128")
    for dtype in wanted:
        require(dtype if dtype in DTYPES else left)
        for spelled in (dtype, np.dtype(dtype)):
            got = pyclgemm.matmul(a, b, queue=queue, dtype=spelled)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got.astype("complex128"), want)
        out = np.zeros(want.shape, dtype)
        assert pyclgemm.matmul(a, b, queue=queue, dtype=dtype, out=out) is out
        np.testing.assert_array_equal(out, got)


def test_matmul_of_the_device_to_an_element_type(queue, require, rng):
    require("float16")
    a, b = upload(queue, *draw(rng, (3, 5), (5, 4), dtype="float16"))
    got = pyclgemm.matmul(a, b, dtype="float32")
    assert got.dtype == "float32"
    assert_gemm(got.get(), a.get().astype("float32"), b.get().astype("float32"))
    with raises(pyclgemm.DtypeError, "dtype is", "float16 or float32, as operands on the device"):
        pyclgemm.matmul(a, b, dtype="float64")


def test_matmul_takes_views_of_stacks(queue, rng):
    (host,) = draw(rng, (6, 8, 10))
    (base,) = upload(queue, host)
    got = pyclgemm.matmul(base[::2, 1:, ::-1], base[1::2].transpose((0, 2, 1)))
    _assert_products(got, host[::2, 1:, ::-1], host[1::2].transpose(0, 2, 1))


def test_matmul_without_a_queue(device, rng):
    # The library picks a device; the fixture `device` skips where there is none.
    a, b = draw(rng, (9, 9), (9, 9))
    assert_gemm(pyclgemm.matmul(a, b), a, b)


@pytest.mark.parametrize("shapes", SHAPES[:10], ids=str)
@pytest.mark.parametrize("by_array", [False, True], ids=["wait_for", "an array's event"])
def test_matmul_waits_on_the_device_and_leaves_an_event(fresh_queue, gate, rng, shapes, by_array):
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
