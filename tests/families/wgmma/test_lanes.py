"""Products by warpgroup units whose slabs lanes copy: pieces, edges and barriers, emulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import make_schedule
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.shape import GemmShape
from tests.support.batch_checks import check_batch
from tests.support.checks import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.emulation.wgmma import warpgroups_of
from tests.support.families import load_bytes
from tests.support.reference import assert_close, expected_gemm
from tests.support.unit_configs import ALIGNED
from tests.support.unit_configs import WGMMA as CONFIG
from tests.support.unit_configs import WGMMA_CASES as CASES

LANES = replace(CONFIG, TMA=0)


@pytest.mark.parametrize("b", ALIGNED, ids=["row", "column"])
@pytest.mark.parametrize("a", ALIGNED, ids=["row", "column"])
def test_layouts(warpgroups: None, queue: Any, a: Any, b: Any) -> None:
    # Each size is more than a tile's, and ends within a piece of 16 bytes, or behind one.
    for sizes in ((100, 90, 70), (104, 88, 72)):
        check_gemm(queue, sizes, "float16", a=a, b=b, out=ROW_ALIGNED, config=LANES)


@pytest.mark.parametrize("trans_b", ["N", "T"])
@pytest.mark.parametrize("trans_a", ["N", "T"])
def test_nothing_is_read_outside(
    warpgroups: None, queue: Any, rng: Any, trans_a: str, trans_b: str
) -> None:
    # Nothing lies around these arrays: the emulation knows where they begin and end.
    shapes = [(72, 104), (104, 72)]
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    left, right = (
        cl_array.to_device(queue, np.ascontiguousarray(x.T if trans == "T" else x))
        for x, trans in ((a, trans_a), (b, trans_b))
    )
    result = pyclgemm.gemm(queue, left, right, trans_a=trans_a, trans_b=trans_b, config=LANES)
    assert_close(result.get(), expected_gemm(a, b))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (64, 64, 64), (65, 8, 200), (3, 70, 0)], ids=str)
def test_sizes(warpgroups: None, queue: Any, sizes: Any) -> None:
    check_gemm(queue, sizes, "float16", a=ROW_ALIGNED, b=ROW_ALIGNED, config=LANES)


@pytest.mark.parametrize(
    "config",
    [
        replace(LANES, STAGES=5, GROUP_M=1),
        WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3, PROMOTE=2, TMA=0),
        WgmmaConfig(MWG=128, NWG=64, CONSUMERS=1, STAGES=2, PROMOTE=1, TMA=0),
        WgmmaConfig(MWG=192, NWG=192, CONSUMERS=3, STAGES=3, TMA=0),
        WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=3, TMA=0),
        WgmmaConfig(MWG=64, NWG=32, CONSUMERS=1, STAGES=4, TMA=0),
        WgmmaConfig(MWG=128, NWG=96, CONSUMERS=2, STAGES=3, TMA=0),
        replace(LANES, FILL=1),
        WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3, FILL=3, PROMOTE=1, TMA=0),
    ],
    ids=str,
)
def test_tiles(warpgroups: None, queue: Any, config: WgmmaConfig) -> None:
    # Several tiles for a work-group, a depth that no slab divides.
    check_gemm(
        queue, (300, 264, 330), "float16", a=COLUMN_ALIGNED, b=ROW_ALIGNED, out=ROW_ALIGNED,
        config=config,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "precision"), CASES)
def test_precisions(warpgroups: None, queue: Any, dtype: str, precision: str) -> None:
    config = replace(LANES, PROMOTE=0 if dtype == "int8" else 2)
    for b in ALIGNED:
        check_gemm(
            queue, (70, 72, 150), dtype, a=ROW_ALIGNED, b=b, out=ROW_ALIGNED,
            precision=precision, config=config,
        )  # fmt: skip


def test_what_16_bytes_do_not_fit_is_packed(warpgroups: None, queue: Any) -> None:
    for a, b in ((ROW, COLUMN), (STRIDED, ROW_ALIGNED)):
        check_gemm(queue, (70, 66, 75), "float16", a=a, b=b, out=ROW_ALIGNED, config=LANES)


@pytest.mark.parametrize("out", [ROW_ALIGNED, COLUMN_ALIGNED, ROW, STRIDED])
@pytest.mark.parametrize("c", [ROW_ALIGNED, COLUMN_ALIGNED], ids=["c in rows", "c in columns"])
def test_epilogue(warpgroups: None, queue: Any, c: Any, out: Any) -> None:
    for result in ("float16", "float32"):
        check_gemm(
            queue, (70, 72, 40), "float16", a=ROW_ALIGNED, b=ROW_ALIGNED, out=out, result=result,
            c=c, bias=True, activation="gelu", alpha=0.5, beta=-1.5, config=LANES,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "sizes", "steps"),
    [
        (LANES, (70, 64, 60), "apart apart apart apart"),
        (replace(LANES, FILL=1, STAGES=3), (70, 64, 200), "apart shared apart matrix"),
        (replace(LANES, MWG=128, CONSUMERS=2), (70, 66, 60), "backwards apart interleaved one"),
    ],
    ids=["apart", "slabs divided", "packed"],
)
def test_batches(warpgroups: None, queue: Any, config: Any, sizes: Any, steps: str) -> None:
    b = STRIDED if "backwards" in steps else ROW_ALIGNED
    check_batch(queue, 3, sizes, "float16", a=ROW_ALIGNED, b=b, out=ROW_ALIGNED, c=ROW, beta=0.5,
                steps=steps, config=config)  # fmt: skip


def test_few_tiles_of_parts_are_shared(queue: Any) -> None:
    with warpgroups_of(queue, compute_units=12):
        check_gemm(
            queue, (64, 128, 300), "float32", out=ROW_ALIGNED, precision="BF16_BF16_F32_X3",
            config=replace(LANES, FILL=1),
        )  # fmt: skip


# ------------------------------------------------------------------------------ without a device


@pytest.mark.parametrize("batch", [None, 3])
def test_no_map_is_written(batch: int | None) -> None:
    product = GemmShape(128, 1024, 1024, batch=batch).product("float16", reads_c=True)
    for config, maps in ((CONFIG, True), (LANES, False)):
        schedule = make_schedule(product, config, typical_traits("sm_90"))
        (launch,) = schedule.launches
        assert ("maps" in schedule.workspaces) == maps
        assert ("maps" in launch.buffers) == maps
        assert ("tensor" in launch.source.text) == maps
        assert ("cp.async.cg" in launch.source.text) != maps


def test_lanes_load_pieces() -> None:
    problem = GemmShape(128, 128, 128).problem("float16")
    assert load_bytes(problem, CONFIG) == {}
    assert load_bytes(problem, LANES) == {"A from global memory": 16, "B from global memory": 16}
