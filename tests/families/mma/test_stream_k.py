"""Tiles of matrix units whose slabs are divided among work-groups."""

from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.stream_k import Division
from pyclgemm.families.registry import make_schedule
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.distance import tiles_of
from tests.support.checks import (
    COLUMN,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_batch,
    check_epilogue,
    check_gemm,
    check_infinities,
)
from tests.support.configs import MATRIX as CONFIG
from tests.support.facts import gpu
from tests.support.families import traffic_of
from tests.support.reference import assert_close, expected_gemm

SHARED = replace(CONFIG, FILL=3, STAGES=3)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("dtype", "precision", "changes"),
    [
        ("float16", "F16_F16_F32", {}),
        ("float16", "F16_F16_F16", {"KWG": 32, "FRAGMENTS": 2}),
        ("bfloat16", "BF16_BF16_F32", {"KWG": 32, "FRAGMENTS": 2, "FILL": 1}),
        ("float64", "F64_F64_F64", {"STAGES": 4, "GROUP_M": 1}),
        ("complex128", "F64_F64_F64", {"FRAGMENTS": 2}),
        ("int8", "I8_I8_I32", {"KWG": 32}),
        ("float32", "TF32_TF32_F32", {"UNALIGNED": 1, "STAGES": 2}),
        ("float32", "TF32_TF32_F32_X3", {"FRAGMENTS": 2, "KWG": 32}),
    ],
)
@pytest.mark.parametrize("out", [ROW_ALIGNED, STRIDED], ids=["pieces", "elements"])
def test_shared_tiles(units, queue, dtype, precision, changes, out):
    """Of four tiles."""
    check_epilogue(queue, dtype, precision, out, replace(SHARED, **changes))


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (32, 32, 16), (20, 5, 1000), (5, 70, 0), (200, 99, 40)]
)
def test_sizes_of_shared_tiles(units, queue, sizes):
    """One tile for all groups, none that is shared, none to multiply, whole ones before."""
    for config in (SHARED, replace(SHARED, FILL=1, UNALIGNED=1, STAGES=1)):
        check_gemm(queue, sizes, "float16", a=COLUMN, b=ROW, config=config)


def test_counters_are_ready_for_the_next_call(units, queue, rng):
    a, b = (rng.uniform(-1, 1, shape) for shape in ((40, 300), (300, 36)))
    given = [cl_array.to_device(queue, x) for x in (a, b)]
    results = [pyclgemm.gemm(queue, *given, config=SHARED).get() for _ in range(3)]
    assert_close(results[0], expected_gemm(a, b))
    for again in results[1:]:
        np.testing.assert_array_equal(again, results[0])


def test_tiles_of_a_batch_are_shared(units, queue):
    check_batch(queue, 3, (37, 33, 90), "float16", config=SHARED)
    check_batch(queue, 5, (20, 30, 70), "complex128", config=replace(SHARED, STAGES=2))


def test_infinities_in_shared_tiles(units, queue, rng):
    check_infinities(queue, rng, 170, SHARED)


@pytest.mark.parametrize(
    ("dtype", "precision", "sum_bytes"),
    [("float16", "F16_F16_F16", 2), ("float16", "F16_F16_F32", 4), ("complex128", None, 16)],
)
def test_work_groups_and_their_sums(dtype, precision, sum_bytes):
    """16 tiles of 64 slabs among 132 units: 8 groups for each, none left over to a ninth."""
    traits = gpu(fence_options="", compute_units=132)
    product = GemmShape(128, 128, 1024).product(dtype, precision)
    config = replace(SHARED, FILL=1)
    schedule = make_schedule(product, config, traits)
    assert schedule.launches[-1].groups == (128,)
    assert schedule.workspaces["partial_sums"] == 2 * 128 * 32 * 32 * sum_bytes
    assert tiles_of(config, (128, 128, 1024)) == 16
    traffic = traffic_of(product.problem, config, 32, Division(128, 0))
    assert traffic.joining == 2 * 128 * 32 * 32 * sum_bytes


def test_partial_sums_of_warpgroup_units_are_counted():
    """One tile of 16 slabs, of which 8 work-groups have two each."""
    config = WgmmaConfig(MWG=64, NWG=64, CONSUMERS=1, FILL=1)
    problem = GemmShape(64, 64, 1024).problem("float16")
    assert traffic_of(problem, config, 32, Division(8, 0)).joining == 2 * 8 * 64 * 64 * 4
    assert traffic_of(problem, config, 32).joining == 0
