"""gemm_batched: stacks and sequences of matrices, by every kernel family, against the reference."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm import SmallConfig, SmallCpuConfig
from tests.support.buffers import Layout
from tests.support.checks import (
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STEPS,
    STRIDED,
    check_batch,
)
from tests.support.configs import BATCH_CONFIGS, INDIRECT
from tests.support.reference import DTYPES, assert_close, expected_gemm, random_array

SIZES = (37, 41, 45)


SMALL = SmallConfig(MWI=4, NWI=4, WGS=64)
SMALL_CPU = SmallCpuConfig(MR=6, NR=32, VW=16)
CPU, IN_PLACE = BATCH_CONFIGS["cpu"], BATCH_CONFIGS["cpu, B in place"]

#: Products, sizes, element type and options of `check_batch`: what any runtime may compute wrong.
BATCHES = [
    *(
        (5, SIZES, "float32", {"config": config, "beta": 0.5, "c": STRIDED, "bias": True})
        for config in BATCH_CONFIGS.values()
    ),
    # A CPU transposes narrow results.
    *(
        (4, (130, 3, 70), "float32",
         {"config": config, "trans_a": trans_a, "beta": 0.5, "c": STRIDED, "bias": True,
          "activation": "silu", "steps": "backwards shared interleaved apart"})
        for config, trans_a in product((CPU, IN_PLACE), (False, True))
    ),
    *(
        (3, (9, 12, 10), "float32", {"steps": f"{steps} apart apart"})
        for steps in (
            *(f"{step} apart" for step in STEPS), *(f"apart {step}" for step in STEPS[1:]),
            "backwards interleaved", "shared shared",
        )
    ),
    *(
        (3, (9, 16, 11), "float32", {"out": out, "in_place": True, "beta": 0.5, "bias": True})
        for out in (COLUMN_ALIGNED, STRIDED, Layout(flip_rows=True))
    ),
    *((3, (7, 5, 600), dtype, {}) for dtype in DTYPES),
    # Sums of float16 wait in memory of their own between blocks of k.
    (4, (37, 41, 600), "float16", {"config": CPU}),
    *(
        (3, sizes, "float32", options)
        for sizes in ((0, 4, 3), (4, 0, 3), (4, 5, 0))
        for options in ({"beta": 0.5, "c": ROW}, {"config": INDIRECT})
    ),
    (3, (6, 7, 8), "float32", {"alpha": 0, "beta": 2.0, "c": ROW}),  # no operand is read
]  # fmt: skip

#: Likewise, what other runtimes would only compile again.
MORE_BATCHES = [
    *(
        (4, SIZES, "float32",
         {"config": config, "a": COLUMN, "beta": -1.5, "c": ROW,
          "steps": "backwards shared interleaved matrix"})
        for config in BATCH_CONFIGS.values()
    ),
    *(
        (3, (9, 6, 11), "complex64",
         {"trans_a": trans_a, "trans_b": trans_b, "beta": 2j, "c": COLUMN,
          "steps": "apart apart apart one"})
        for trans_a, trans_b in product("NTC", "NT")
    ),
    *(
        (3, sizes, "float32", {"config": config})
        for config, sizes in product(BATCH_CONFIGS.values(), ((0, 4, 3), (4, 0, 3)))
    ),
    # More small products than the work-groups take evenly; sums over vectors and over elements.
    *(
        (21, (7, 10, 6) if STRIDED in (a, b) else (8, 8, 8), "float32",
         {"a": a, "b": b, "out": ROW_ALIGNED, "config": SMALL})
        for a, b in product((ROW_ALIGNED, COLUMN_ALIGNED, STRIDED), repeat=2)
    ),
    *(
        (5, sizes, "float32",
         {"config": config, "alpha": -0.5, "beta": 2.0, "c": COLUMN, "bias": True,
          "activation": "relu"})
        for config, sizes in product(
            (SMALL, SMALL_CPU), ((1, 1, 1), (4, 4, 4), (64, 64, 64), (3, 64, 1), (33, 5, 0))
        )
    ),
    *(
        (9, (6, 12, 8), dtype,
         {"config": SMALL, "precision": precision, "a": ROW_ALIGNED, "in_place": True, "beta": 0.5,
          "trans_b": "C" if dtype.startswith("complex") else "T"})
        for dtype, precision in (*product(DTYPES, [None]), ("float16", "F16_F16_F16"))
    ),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.any_runtime
@pytest.mark.parametrize(("count", "sizes", "dtype", "options"), BATCHES)
def test_batches(queue, require, count, sizes, dtype, options):
    require(dtype)
    check_batch(queue, count, sizes, dtype, **options)


@pytest.mark.one_in(2)
@pytest.mark.first_runtime
@pytest.mark.parametrize(("count", "sizes", "dtype", "options"), MORE_BATCHES)
def test_more_batches(queue, require, count, sizes, dtype, options):
    require(dtype, options.get("precision"))
    check_batch(queue, count, sizes, dtype, **options)


@pytest.mark.parametrize("b", [(0, 4, 5), (1, 4, 5), (4, 5)], ids=str)
def test_batch_of_none(queue, b):
    out, event = pyclgemm.gemm_batched(
        queue, np.ones((0, 3, 4), np.float32), np.ones(b, np.float32), return_event=True
    )
    assert out.shape == (0, 3, 5)
    event.wait()


@pytest.mark.any_runtime
def test_shared_b_is_one_product(queue, rng):
    a, b = random_array(rng, (6, 8, 10), "float32"), random_array(rng, (10, 12), "float32")
    assert "48" not in str(pyclgemm.explain(queue, a, b).reason)  # it names the record's sizes
    out = pyclgemm.gemm_batched(queue, a, b)
    for number in range(6):
        assert_close(out[number], expected_gemm(a[number], b))


# Small products


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_many_small_products_take_kernels_of_their_own(queue, traits, dtype):
    many, few = np.ones((64, 8, 8), dtype), np.ones((8, 8, 8), dtype)
    small = "small_cpu" if traits.type == "cpu" else "small"
    choice = pyclgemm.explain(queue, many, many)
    assert (choice.path == small) == (small == "small" or dtype == "float32")
    if choice.path == small:
        assert "64 products of at most 64 rows, columns and depths" in choice.reason
    assert pyclgemm.explain(queue, few, few).path not in ("small", "small_cpu")
    check_batch(queue, 64, (8, 8, 8), dtype)


@pytest.mark.parametrize(
    ("count", "sizes", "config", "message"),
    [
        (1, (8, 8, 8), SMALL, "it computes batches, and this is a single product"),
        (3, (8, 65, 8), SMALL, "at most 64 rows, columns and depths, not (8, 65, 8)"),
        (3, (64, 64, 64), SmallConfig(1, 1, 64), "4096 work-items, and a group has"),
    ],
)
def test_what_small_kernels_cannot(queue, traits, count, sizes, config, message):
    if "work-items" in message and traits.max_work_group_size >= 4096:
        pytest.skip("the device's groups are as large")
    m, n, k = sizes
    a, b = np.ones((count, m, k), np.float32), np.ones((count, k, n), np.float32)
    with pytest.raises(pyclgemm.ConfigError, match=re.escape(message)):
        pyclgemm.gemm_batched(queue, a, b, config=config)


# Other forms of operands


def test_numpy_in_numpy_out(queue, rng):
    a, b = random_array(rng, (3, 4, 5), "float32"), random_array(rng, (3, 5, 6), "float32")
    c = random_array(rng, (4, 6), "float32")
    out = np.empty((3, 4, 6), np.float32)
    assert pyclgemm.gemm_batched(queue, a, b, c, beta=1.0, out=out) is out
    for number in range(3):
        assert_close(out[number], expected_gemm(a[number], b[number], c, beta=1.0))


@pytest.mark.any_runtime
def test_packed_b(queue, rng):
    a, b = random_array(rng, (3, 4, 5), "float32"), random_array(rng, (5, 6), "float32")
    packed = pyclgemm.pack(queue, b)
    apart = cl_array.to_device(queue, np.repeat(a, 2, axis=0))[::2]
    for one in (cl_array.to_device(queue, a), apart):
        out = pyclgemm.gemm_batched(queue, one, packed).get()
        for number in range(3):
            assert_close(out[number], expected_gemm(a[number], b))


def test_plan_and_explain_take_stacks(queue, rng):
    a, b = random_array(rng, (3, 4, 5), "float32"), random_array(rng, (3, 5, 6), "float32")
    device_a, device_b = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    plan = pyclgemm.plan(queue, device_a, device_b)
    assert plan.product.problem.batch == 3
    assert pyclgemm.explain(queue, a, b).path == plan.choice.path
    out = plan(device_a, device_b).get()
    for number in range(3):
        assert_close(out[number], expected_gemm(a[number], b[number]))


# Errors

ONES = np.ones((3, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((ONES, ONES[:2]), {}, "a has 3 and b has 2 matrices: a batch needs as many of each"),
        ((ONES, ONES[:, :3]), {}, "a is (4, 4) and b is (3, 4): a's columns (4) must equal"),
        ((ONES, ONES), {"out": ONES[:2].copy()}, "out is (2, 4, 4), 2 matrices; the batch of a"),
        ((ONES, ONES), {"out": ONES[0].copy()}, "out is (4, 4), 1 matrices; the batch of a and"),
        ((ONES, ONES), {"out": ONES[:, :, :3].copy()}, "out is (4, 3); the product of a and b"),
        ((ONES, ONES, ONES[:2]), {"beta": 1.0}, "c is (2, 4, 4), 2 matrices"),
        ((ONES[np.newaxis], ONES), {}, "a is 4-D with shape (1, 3, 4, 4)"),
        (([ONES[0], ONES[0, :2]], ONES[:2]), {}, "a[1] is (2, 4) and a[0] is (4, 4)"),
        (([], ONES), {}, "a is an empty sequence"),
        (([ONES], ONES), {}, "a[0] is (3, 4, 4)"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(queue, arguments, options, message):
    with pytest.raises(pyclgemm.ShapeError, match=re.escape(message)):
        pyclgemm.gemm_batched(queue, *arguments, **options)


def test_types_that_do_not_fit(queue):
    with pytest.raises(pyclgemm.DtypeError, match=r"a\[1\] is a list"):
        pyclgemm.gemm_batched(queue, [ONES[0], [1.0]], ONES[0])
    with pytest.raises(pyclgemm.DtypeError, match=r"a\[1\] is a ndarray of float64 and a\[0\]"):
        pyclgemm.gemm_batched(queue, [ONES[0], ONES[0].astype(np.float64)], ONES[0])
    with pytest.raises(pyclgemm.ArgumentError, match="beta is 1.0 without c"):
        pyclgemm.gemm_batched(queue, ONES, ONES, beta=1.0)


def test_destination_that_overlaps(queue):
    whole = cl_array.zeros(queue, (6, 4, 4), np.float32)
    a, out = whole[:3], whole[2:5]
    with pytest.raises(pyclgemm.ArgumentError, match="out shares memory with a"):
        pyclgemm.gemm_batched(queue, a, whole[5], out=out)
    scattered = [whole[0], whole[3], whole[1]]
    with pytest.raises(pyclgemm.ArgumentError, match="out shares memory with b"):
        pyclgemm.gemm_batched(queue, whole[5], [whole[4], whole[1], whole[2]], out=scattered)
    with pytest.raises(pyclgemm.ShapeError, match=r"out\[0\] and out\[2\] share memory"):
        pyclgemm.gemm_batched(queue, whole[3:], whole[4], out=[whole[0], whole[1], whole[0]])
    with pytest.raises(pyclgemm.ArgumentError, match="out shares memory with a"):
        pyclgemm.gemm_batched(queue, scattered, whole[5], out=scattered)
    other = cl_array.zeros(queue, (4, 4), np.float32)
    with pytest.raises(pyclgemm.ArgumentError, match="out shares memory with a"):
        # The first launch would write what the second one reads.
        pyclgemm.gemm_batched(queue, [whole[0], other], whole[5], out=[other, whole[1]])
    in_place = [whole[0], other.copy(), whole[2]]
    pyclgemm.gemm_batched(queue, whole[3:], whole[4], in_place, beta=1.0, out=in_place)
    flat = cl_array.Array(queue, (2, 4, 4), np.float32, strides=(16, 16, 4), data=whole.base_data)
    with pytest.raises(pyclgemm.ShapeError, match="two of its matrices share memory"):
        pyclgemm.gemm_batched(queue, whole[4:], whole[4:], out=flat)
