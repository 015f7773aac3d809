"""Transforms of tensors at every level: results, strides, events, plans, errors, emulated units."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm import transform3d
from pyclgemm.codegen.matrix_units import nvidia_double_unit
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.mra import codegen, transform
from pyclgemm.mra.choice import LEVELS, TransformChoice
from pyclgemm.mra.codegen import make_schedule
from pyclgemm.mra.fused import FusedConfig, FusedUnitConfig
from tests.support.arrays import draw, upload
from tests.support.checks import check_transform, raises
from tests.support.emulation.matrix import skip_without_emulation, without_units
from tests.support.gates import is_complete
from tests.support.reference import assert_transformed

STRIDES = [
    ("padded", "contiguous"), ("reversed dimensions", "padded"), ("backwards", "every other"),
    ("every other", "reversed dimensions"), ("repeated", "backwards"),
]  # fmt: skip
#: Number, extent, element type, level, and what else `check_transform` is given.
TRANSFORMS = [
    *((count, k, dtype, level, {}) for level in LEVELS if level != "L6"
      for count, k in [(5, 1), (5, 6), (5, 9), (70, 10)] for dtype in ("float32", "float64")),
    # The default and Kronecker's at every size.
    *((3, k, "float64", None, {}) for k in (2, 3, 5, 8, 10, 12, 16, 20, 32)),
    *((5, k, "float64", "L6", {}) for k in (1, 4, 6, 8, 10)),
    *((3, 6, "float32", level, {"tensors": tensors, "out": out})
      for level in ("L2", "L3", "L5") for tensors, out in STRIDES),
    # Configurations of other devices.
    *((4, k, dtype, None, {"config": config} | lies)
      for k, dtype, config in [
          (6, "float32", FusedConfig(VW=2, TENSORS=3, PARTS=1, ITEMS=32, ROWS=2)),
          (8, "float32", FusedConfig(VW=4, TENSORS=2, PARTS=1, ITEMS=16, ROWS=1)),
          (8, "float64", FusedConfig(VW=2, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)),
          (5, "float32", FusedConfig(VW=1, TENSORS=1, PARTS=2, ITEMS=16, ROWS=1)),  # 6 rows for 5
          (12, "float32", FusedConfig(VW=4, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)),
          (7, "float64", FusedConfig(VW=4, TENSORS=1, PARTS=3, ITEMS=1, ROWS=1))]  # as CPUs do
      for lies in ({}, {"tensors": "padded", "out": "every other"})),
    # Any offset, and no tensors; a work-group takes 14 on GPUs.
    *((count, 6, "float32", "L5", {"lead": lead})
      for count in (1, 14, 15, 57) for lead in (64, 65, 66)),
    *((0, 4, "float32", level, {}) for level in (None, *LEVELS)),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.any_runtime
@pytest.mark.parametrize(("count", "k", "dtype", "level", "options"), TRANSFORMS)
def test_transforms(queue, require, count, k, dtype, level, options):
    require(dtype)
    check_transform(queue, count, k, dtype, level, **options)


def test_numpy_arrays_give_one(queue, rng):
    tensors, matrix = draw(rng, (2, 3, 3, 3), (3, 3))
    result = transform3d(queue, tensors, matrix)
    assert isinstance(result, np.ndarray)
    assert_transformed(result, tensors, matrix)
    out = np.full((2, 3, 3, 6), np.nan, np.float32)[..., ::2]
    assert transform3d(queue, tensors, matrix, out=out) is out
    assert_transformed(np.array(out), tensors, matrix)
    result, event = transform3d(queue, tensors, *upload(queue, matrix), return_event=True)
    assert isinstance(result, cl_array.Array) and isinstance(event, cl.Event)
    assert_transformed(result.get(), tensors, matrix)


@pytest.mark.parametrize(
    ("level", "late"), [("L1", None), ("L5", None), ("L6", None), (None, 0), (None, 1), (None, 2)]
)
def test_waits_on_the_device_and_not_on_the_host(fresh_queue, gate, level, late):
    """For `wait_for`, or for an event of an array."""
    hosts = (np.ones(shape, np.float32) for shape in ((2, 3, 3, 3), (3, 3), (2, 3, 3, 3)))
    arrays = upload(fresh_queue, *hosts)
    *operands, out = arrays
    call = partial(transform3d, fresh_queue, *operands, level=level, out=out)
    call()  # builds
    fresh_queue.finish()
    if late is None:
        call = partial(call, wait_for=[gate.event])
    else:
        arrays[late].add_event(gate.event)
    _, event = gate.call(partial(call, return_event=True))
    assert not is_complete(event)
    assert out.events == [event]
    gate.open()
    assert (out.get() == 27).all()


@pytest.mark.parametrize("level", ["L3", "L6"])
def test_workspaces_are_not_shared_too_early(out_of_order_queue, rng, level):
    queue = out_of_order_queue
    pairs = [draw(rng, (40, 4, 4, 4), (4, 4)) for _ in range(6)]
    results = [transform3d(queue, *upload(queue, *pair), level=level) for pair in pairs]
    for result, pair in zip(results, pairs, strict=True):
        for event in result.events:
            event.wait()
        assert_transformed(result.get(), *pair, level)


def test_a_plan_takes_arrays_that_agree(queue, rng):
    (host,) = draw(rng, (4, 3, 3, 3))
    tensors, matrix = upload(queue, host, np.eye(3, dtype=np.float32))
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


def test_a_plan_copies_numpy_arrays(queue, rng):
    tensors, matrix = draw(rng, (2, 3, 3, 3), (3, 3))
    for operands in ((tensors, matrix), upload(queue, tensors, matrix)):
        plan = pyclgemm.plan_transform3d(queue, *operands)
        out = np.full((2, 3, 3, 6), np.nan, np.float32)[..., ::2]
        assert plan(tensors, matrix, out=out) is out
        got, event = plan(tensors, matrix, return_event=True)
        event.wait()
        assert isinstance(got, np.ndarray)
        for one in (got, np.array(out), plan(*upload(queue, tensors, matrix)).get()):
            assert_transformed(one, tensors, matrix)


def test_a_plan_of_a_gemm_keeps_its_alignment(queue, rng):
    (host,) = draw(rng, (4, 2, 2, 2))
    zero, square = np.zeros(1, np.float32), np.eye(2, dtype=np.float32)
    base, whole, matrix = upload(queue, np.r_[zero, host.ravel()], host, square)
    shifted = base[1:].reshape(4, 2, 2, 2)
    plan = pyclgemm.plan_transform3d(queue, whole, matrix, level="L6")
    with pytest.raises(pyclgemm.ShapeError, match="tensors starts 4 bytes into its buffer"):
        plan(shifted, matrix)
    np.testing.assert_array_equal(transform3d(queue, shifted, matrix, level="L6").get(), host)


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
        ({"queue": None}, pyclgemm.DtypeError, ["queue is of type NoneType"]),
    ],
    ids=lambda value: "",
)  # fmt: skip
@pytest.mark.parametrize("on_device", [False, True])
def test_bad_arguments_are_named(queue, changes, error, parts, on_device):
    arguments = {"queue": queue, "tensors": ONES, "matrix": SQUARE, **changes}
    for name, value in arguments.items():
        if on_device and isinstance(value, np.ndarray):
            arguments[name] = cl_array.to_device(queue, np.ascontiguousarray(value))
    with raises(error, *parts):
        transform3d(**arguments)


def test_a_destination_that_is_read_shared_or_read_only(queue):
    tensors, matrix = upload(queue, ONES, SQUARE)
    with raises(pyclgemm.ArgumentError, "out shares memory with tensors"):
        transform3d(queue, tensors, matrix, out=tensors)
    strides = {"strides": (256, 64, 16, 0), "data": tensors.base_data}
    spread = cl_array.Array(queue, (2, 4, 4, 4), np.float32, **strides)
    with raises(pyclgemm.ShapeError, "out has strides", "may share memory"):
        transform3d(queue, cl_array.empty_like(tensors), matrix, out=spread)
    out = ONES.copy()
    out.flags.writeable = False
    with raises(pyclgemm.ArgumentError, "out is a read-only"):
        transform3d(queue, out, SQUARE, out=out)


def test_kronecker_past_memory_and_strides(queue, monkeypatch):
    small = replace(traits_of(queue.device), max_allocation_bytes=4 * 4**6 - 1)
    monkeypatch.setattr(transform, "traits_of", lambda device: small)
    tensors, matrix = upload(queue, ONES, SQUARE)
    with raises(pyclgemm.UnsupportedError, "level is 'L6'", "K is 4", "64 x 64", "GB"):
        pyclgemm.plan_transform3d(queue, tensors, matrix, level="L6")
    turned = cl_array.to_device(queue, np.ones((1, 3, 3, 3), "f")).transpose((0, 3, 2, 1))
    with raises(pyclgemm.UnsupportedError, "'L6' and tensors is not contiguous"):
        pyclgemm.plan_transform3d(queue, turned, matrix[:3, :3], level="L6")


# ------------------------------------------------------------------ matrix units, emulated

#: Calls of the function whose definition the emulation changes.
CALL = re.compile(r"(?<!void )multiply_accumulate\(")


def emulated(source, choice):
    """A kernel for a matrix unit in plain C; its work-group must be one sub-group."""
    assert choice.unit and source.local_size[0] == choice.unit.lanes
    named = re.sub(r"\bK\b", "EXTENT", source.text)  # the emulation has a K of its own
    plain = without_units(replace(source, text=named), choice.unit)
    text = CALL.sub("multiply_accumulate(exchange, ", plain.text)
    return replace(plain, text=f"#define ITEMS {choice.unit.lanes}\n{text}")


@pytest.fixture
def check(fresh_queue, monkeypatch):
    """A function that transforms random tensors by emulated units of an architecture."""
    skip_without_emulation(fresh_queue.device)

    def by_units(architecture, count, k, out="contiguous", config=None):
        traits = typical_traits(architecture)

        def schedule(described, choice, _):
            if config is not None:
                unit = nvidia_double_unit(config.UNIT_M, config.UNIT_K)
                choice = TransformChoice("L5", "fused unit", "", config, unit)
            made = make_schedule(described, choice, traits)
            launches = (replace(one, source=emulated(one.source, choice)) for one in made.launches)
            return replace(made, launches=tuple(launches))

        monkeypatch.setattr(codegen, "UNIT_SUB_GROUPS", 1)
        monkeypatch.setattr(transform, "make_schedule", schedule)
        monkeypatch.setattr(transform, "traits_of", lambda device: traits)
        check_transform(fresh_queue, count, k, "float64", "L4", out=out)

    return by_units


@pytest.mark.parametrize(("architecture", "k"), [("sm_80", 6), ("sm_90", 9), ("gfx90a", 10)])
def test_contractions(check, architecture, k):
    check(architecture, 2, k)


@pytest.mark.parametrize(
    ("k", "rows", "depth", "tensors", "parts", "slices", "stages", "out"),
    [
        (8, 8, 4, 2, 1, 3, 1, "contiguous"), (10, 16, 4, 1, 1, 2, 1, "contiguous"),
        (7, 8, 4, 2, 1, 1, 1, "every other"), (16, 16, 16, 1, 1, 1, 1, "contiguous"),
        (13, 16, 8, 1, 1, 2, 1, "contiguous"), (20, 8, 4, 1, 3, 1, 1, "contiguous"),
        (12, 16, 16, 1, 1, 1, 1, "contiguous"),  # depths are padded
        (20, 16, 8, 1, 1, 1, 1, "contiguous"),  # rows are padded
        (10, 16, 4, 2, 1, 1, 2, "contiguous"), (18, 16, 4, 1, 2, 1, 1, "every other"),
        (9, 16, 4, 2, 1, 4, 2, "contiguous"),  # 18 slices by fours
        (16, 8, 4, 1, 1, 1, 2, "contiguous"), (20, 16, 4, 1, 1, 1, 1, "contiguous"),
    ],
)  # fmt: skip
def test_fused(check, k, rows, depth, tensors, parts, slices, stages, out):
    check("sm_90", 3, k, out, FusedUnitConfig(rows, depth, tensors, parts, 1, slices, stages))
