"""Transforms of tensors at every level: results, strides, events, plans and errors."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.device.traits import traits_of
from pyclgemm.mra import transform
from pyclgemm.mra.choice import LEVELS, TransformChoice
from pyclgemm.mra.fused import FusedConfig
from pyclgemm.mra.transform import build_transform, describe_transform
from tests.support.buffers import GuardedArray
from tests.support.gates import is_complete
from tests.support.reference import assert_transformed

SEPARATE = [level for level in LEVELS if level != "L6"]


def strides_of(count: int, k: int, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides in elements of tensors that lie as `kind` says."""
    strides = {
        "contiguous": (k**3, k * k, k, 1),
        "padded": ((k + 2) * k * k, (k + 2) * k, k + 2, 1),
        "reversed dimensions": (k**3, 1, k, k * k),
        "every other": (2 * k**3, 2 * k * k, 2 * k, 2),
        "backwards": (-(k**3), k * k, -k, 1),
        "repeated": (0, k * k, k, 1),
    }[kind]
    return (count, k, k, k), strides


def guarded(
    queue: Any, count: int, k: int, dtype: str, kind: str = "contiguous", lead: int = 64,
    values: np.ndarray | None = None,
) -> GuardedArray:  # fmt: skip
    shape, strides = strides_of(count, k, kind)
    return GuardedArray(queue, shape, dtype, strides, lead=lead, values=values)


def check(
    queue: Any, count: int, k: int, dtype: str = "float64", level: str | None = None,
    tensors: str = "contiguous", out: str = "contiguous", lead: int = 64, seed: int = 0,
) -> None:  # fmt: skip
    """Transform random tensors into guarded memory that is NaN at first, and check the result."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (count, k, k, k)).astype(dtype)
    if tensors == "repeated":
        values[:] = values[:1]
    source = guarded(queue, count, k, dtype, tensors, lead, values)
    matrix = GuardedArray(
        queue, (k, k), dtype, (1, k + 1), values=rng.uniform(-1, 1, (k, k)).astype(dtype)
    )
    result = guarded(queue, count, k, dtype, out, lead)
    returned = pyclgemm.transform3d(
        queue, source.array, matrix.array, level=level, out=result.array
    )
    assert returned is result.array
    assert_transformed(result.get(), source.initial, matrix.initial, level)


@pytest.mark.any_runtime
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("count", "k"), [(5, 1), (5, 6), (5, 9), (70, 10)])
@pytest.mark.parametrize("level", SEPARATE)
def test_every_level(queue: Any, require: Any, level: str, count: int, k: int, dtype: str) -> None:
    require(dtype)
    check(queue, count, k, dtype, level)


@pytest.mark.any_runtime
@pytest.mark.parametrize("k", [2, 3, 5, 8, 10, 12, 16, 20, 32])
def test_the_default_at_every_size(queue: Any, require: Any, k: int) -> None:
    require("float64")
    check(queue, 3, k, "float64")


@pytest.mark.parametrize("k", [1, 4, 6, 8, 10])
def test_kronecker(queue: Any, require: Any, k: int) -> None:
    require("float64")
    check(queue, 5, k, "float64", "L6")


@pytest.mark.any_runtime
@pytest.mark.parametrize(
    ("tensors", "out"),
    [
        ("padded", "contiguous"),
        ("reversed dimensions", "padded"),
        ("every other", "reversed dimensions"),
        ("backwards", "every other"),
        ("repeated", "backwards"),
    ],
)
@pytest.mark.parametrize("level", ["L2", "L3", "L5"])
def test_any_strides(queue: Any, level: str, tensors: str, out: str) -> None:
    check(queue, 3, 6, "float32", level, tensors, out)


@pytest.mark.parametrize("lead", [64, 65, 66])
def test_any_offset(queue: Any, lead: int) -> None:
    check(queue, 3, 6, "float32", "L5", lead=lead)


def test_more_tensors_than_a_group_has(queue: Any) -> None:
    for count in (1, 14, 15, 57):  # a work-group takes 14 on GPUs
        check(queue, count, 6, "float32", "L5")


@pytest.mark.any_runtime
@pytest.mark.parametrize(
    ("k", "dtype", "config"),
    [
        (6, "float32", FusedConfig(VW=2, TENSORS=3, PARTS=1, ITEMS=32, ROWS=2)),
        (8, "float32", FusedConfig(VW=4, TENSORS=2, PARTS=1, ITEMS=16, ROWS=1)),
        (8, "float64", FusedConfig(VW=2, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)),
        (5, "float32", FusedConfig(VW=1, TENSORS=1, PARTS=2, ITEMS=16, ROWS=1)),  # 6 rows for 5
        (12, "float32", FusedConfig(VW=4, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)),
        (7, "float64", FusedConfig(VW=4, TENSORS=1, PARTS=3, ITEMS=1, ROWS=1)),  # as CPUs do
    ],
)
@pytest.mark.parametrize("kinds", [("contiguous", "contiguous"), ("padded", "every other")])
def test_configurations_of_other_devices(
    queue: Any, require: Any, k: int, dtype: str, config: FusedConfig, kinds: tuple[str, str]
) -> None:
    require(dtype)
    rng = np.random.default_rng(0)
    values, square = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((4, k, k, k), (k, k)))
    source = guarded(queue, 4, k, dtype, kinds[0], values=values)
    result = guarded(queue, 4, k, dtype, kinds[1])
    matrix = cl_array.to_device(queue, square)
    transform = describe_transform(source.array, matrix, result.array)
    choice = TransformChoice("L5", "fused", "", config)
    sequence = build_transform(queue, transform, choice)
    sequence.enqueue((source.array, matrix, result.array))
    assert_transformed(result.get(), values, square)


@pytest.mark.parametrize("level", [None, *LEVELS])
def test_no_tensors(queue: Any, level: Any) -> None:
    empty = np.empty((0, 4, 4, 4), np.float32)
    result = pyclgemm.transform3d(queue, empty, np.ones((4, 4), np.float32), level=level)
    assert result.shape == (0, 4, 4, 4)


# NumPy arrays


def test_numpy_arrays_give_one(queue: Any, rng: Any) -> None:
    tensors = rng.standard_normal((2, 3, 3, 3)).astype(np.float32)
    matrix = rng.standard_normal((3, 3)).astype(np.float32)
    result = pyclgemm.transform3d(queue, tensors, matrix)
    assert isinstance(result, np.ndarray)
    assert_transformed(result, tensors, matrix)
    out = np.full((2, 3, 3, 6), np.nan, np.float32)[..., ::2]
    assert pyclgemm.transform3d(queue, tensors, matrix, out=out) is out
    assert_transformed(np.array(out), tensors, matrix)
    one = cl_array.to_device(queue, matrix)
    result, event = pyclgemm.transform3d(queue, tensors, one, return_event=True)
    assert isinstance(result, cl_array.Array) and isinstance(event, cl.Event)
    assert_transformed(result.get(), tensors, matrix)


def test_a_read_only_destination(queue: Any) -> None:
    out = np.zeros((1, 2, 2, 2), np.float32)
    out.flags.writeable = False
    with pytest.raises(pyclgemm.ArgumentError, match="out is a read-only"):
        pyclgemm.transform3d(queue, out, np.ones((2, 2), np.float32), out=out)


# Events


@pytest.mark.parametrize("level", ["L1", "L5", "L6"])
def test_waits_on_the_device_and_not_on_the_host(
    context: Any, fresh_queue: Any, gate: Any, level: str
) -> None:
    tensors = cl_array.to_device(fresh_queue, np.ones((2, 3, 3, 3), np.float32))
    matrix = cl_array.to_device(fresh_queue, np.ones((3, 3), np.float32))
    out = cl_array.empty(fresh_queue, (2, 3, 3, 3), np.float32)
    pyclgemm.transform3d(fresh_queue, tensors, matrix, level=level, out=out)  # builds
    fresh_queue.finish()
    _, event = gate.call(
        lambda: pyclgemm.transform3d(
            fresh_queue, tensors, matrix, level=level, out=out, wait_for=[gate.event],
            return_event=True,
        )
    )  # fmt: skip
    assert not is_complete(event)
    assert out.events == [event]
    gate.open()
    assert (out.get() == 27).all()


def test_waits_for_the_events_of_arrays(fresh_queue: Any, gate: Any) -> None:
    arrays = [
        cl_array.to_device(fresh_queue, np.ones(shape, np.float32))
        for shape in ((2, 3, 3, 3), (3, 3), (2, 3, 3, 3))
    ]
    pyclgemm.transform3d(fresh_queue, *arrays[:2], out=arrays[2])
    fresh_queue.finish()
    for index in range(3):
        arrays[index].add_event(gate.event)
    _, event = gate.call(
        lambda: pyclgemm.transform3d(fresh_queue, *arrays[:2], out=arrays[2], return_event=True)
    )
    assert not is_complete(event)


@pytest.mark.parametrize("level", ["L3", "L6"])
def test_workspaces_are_not_shared_too_early(context: Any, device: Any, level: str) -> None:
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.queue_properties & mode:
        pytest.skip("the device has no out-of-order queues")
    queue = cl.CommandQueue(context, properties=mode)
    rng = np.random.default_rng(5)
    pairs = [
        (rng.standard_normal((40, 4, 4, 4)).astype("f"), rng.standard_normal((4, 4)).astype("f"))
        for _ in range(6)
    ]
    results = [
        pyclgemm.transform3d(queue, *(cl_array.to_device(queue, x) for x in pair), level=level)
        for pair in pairs
    ]
    for result, pair in zip(results, pairs, strict=True):
        for event in result.events:
            event.wait()
        assert_transformed(result.get(), *pair, level)


# Plans


def test_a_plan_takes_arrays_that_agree(queue: Any, rng: Any) -> None:
    host = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    tensors = cl_array.to_device(queue, host)
    matrix = cl_array.to_device(queue, np.eye(3, dtype=np.float32))
    plan = pyclgemm.plan_transform3d(queue, tensors[:2], matrix)
    assert plan.choice.level == "L5"
    np.testing.assert_array_equal(plan(tensors[:2], matrix).get(), host[:2])
    np.testing.assert_array_equal(plan(tensors[2:], matrix, add_event=False).get(), host[2:])
    with pytest.raises(pyclgemm.ShapeError, match=r"tensors has shape \(4, 3, 3, 3\)"):
        plan(tensors, matrix)
    with pytest.raises(pyclgemm.ShapeError, match="matrix has strides"):
        plan(tensors[:2], matrix.T)
    with pytest.raises(pyclgemm.DtypeError, match="out is int32"):
        plan(tensors[:2], matrix, out=cl_array.empty(queue, (2, 3, 3, 3), np.int32))


def test_a_plan_of_a_gemm_keeps_its_alignment(queue: Any, rng: Any) -> None:
    host = rng.standard_normal((4, 2, 2, 2)).astype(np.float32)
    base = cl_array.to_device(queue, np.r_[np.zeros(1, np.float32), host.ravel()])
    whole = cl_array.to_device(queue, host)
    matrix = cl_array.to_device(queue, np.eye(2, dtype=np.float32))
    plan = pyclgemm.plan_transform3d(queue, whole, matrix, level="L6")
    shifted = base[1:].reshape(4, 2, 2, 2)
    with pytest.raises(pyclgemm.ShapeError, match="tensors starts 4 bytes into its buffer"):
        plan(shifted, matrix)
    result = pyclgemm.transform3d(queue, shifted, matrix, level="L6")
    np.testing.assert_array_equal(result.get(), host)


# Errors

ONES = np.ones((2, 4, 4, 4), np.float32)
SQUARE = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("changes", "error", "parts"),
    [
        ({"tensors": ONES[0]}, pyclgemm.ShapeError, ["tensors", "(4, 4, 4)", "(nfuncs, K, K, K)"]),
        ({"tensors": ONES[:, :3]}, pyclgemm.ShapeError, ["tensors", "(2, 3, 4, 4)", "equal"]),
        ({"tensors": np.ones((2, 0, 0, 0), "f")}, pyclgemm.ShapeError, ["tensors", "K is 0"]),
        ({"tensors": np.ones((1, 33, 33, 33), "f")}, pyclgemm.UnsupportedError, ["33", "32"]),
        ({"matrix": np.ones((4, 5), "f")}, pyclgemm.ShapeError, ["matrix", "(4, 5)", "(4, 4)"]),
        ({"matrix": SQUARE[0]}, pyclgemm.ShapeError, ["matrix", "1-D"]),
        ({"matrix": SQUARE.astype("d")}, pyclgemm.DtypeError, ["matrix", "float64", "float32"]),
        ({"tensors": ONES.astype("e")}, pyclgemm.DtypeError, ["tensors", "float16", "float64"]),
        ({"tensors": [1.0]}, pyclgemm.DtypeError, ["tensors", "list"]),
        ({"out": np.empty((3, 4, 4, 4), "f")}, pyclgemm.ShapeError, ["out", "(3, 4, 4, 4)"]),
        ({"out": ONES.astype("d")}, pyclgemm.DtypeError, ["out", "float64", "float32"]),
        ({"level": "L7"}, pyclgemm.ArgumentError, ["level", "'L7'", "L1", "L6"]),
        ({"level": 5}, pyclgemm.ArgumentError, ["level", "5", "L1"]),
        ({"level": ["L5"]}, pyclgemm.ArgumentError, ["level", "['L5']"]),
    ],
    ids=lambda value: "",
)  # fmt: skip
@pytest.mark.parametrize("on_device", [False, True])
def test_bad_arguments_are_named(
    queue: Any, changes: Any, error: Any, parts: Any, on_device: bool
) -> None:
    arguments = {"tensors": ONES, "matrix": SQUARE, **changes}
    if on_device:
        arguments = {
            name: cl_array.to_device(queue, np.ascontiguousarray(value))
            if isinstance(value, np.ndarray)
            else value
            for name, value in arguments.items()
        }
    with pytest.raises(error) as caught:
        pyclgemm.transform3d(queue, **arguments)
    for part in parts:
        assert part in str(caught.value)


def test_a_destination_that_is_read(queue: Any) -> None:
    tensors, matrix = (cl_array.to_device(queue, x) for x in (ONES, SQUARE))
    with pytest.raises(pyclgemm.ArgumentError, match="out shares memory with tensors"):
        pyclgemm.transform3d(queue, tensors, matrix, out=tensors)
    spread = cl_array.Array(
        queue, (2, 4, 4, 4), np.float32, strides=(256, 64, 16, 0), data=tensors.base_data
    )
    with pytest.raises(pyclgemm.ShapeError, match="out has strides .* may share memory"):
        pyclgemm.transform3d(queue, cl_array.empty_like(tensors), matrix, out=spread)


def test_no_queue() -> None:
    with pytest.raises(pyclgemm.DtypeError, match="queue is of type NoneType"):
        pyclgemm.transform3d(None, ONES, SQUARE)


def test_kronecker_past_memory_and_strides(queue: Any, monkeypatch: Any) -> None:
    small = replace(traits_of(queue.device), max_allocation_bytes=4 * 4**6 - 1)
    monkeypatch.setattr(transform, "traits_of", lambda device: small)
    words = ("level is 'L6'", "K is 4", "64 x 64", "GB")
    pattern = "(?s)" + "".join(f"(?=.*{re.escape(word)})" for word in words)
    tensors, matrix = (cl_array.to_device(queue, x) for x in (ONES[:1], SQUARE))
    with pytest.raises(pyclgemm.UnsupportedError, match=pattern):
        pyclgemm.plan_transform3d(queue, tensors, matrix, level="L6")
    tensors = cl_array.to_device(queue, np.ones((1, 3, 3, 3), "f"))
    turned = tensors.transpose((0, 3, 2, 1))
    with pytest.raises(pyclgemm.UnsupportedError, match="'L6' and tensors is not contiguous"):
        pyclgemm.plan_transform3d(queue, turned, matrix[:3, :3], level="L6")
