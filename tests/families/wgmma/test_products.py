"""Products by warpgroup units: boxes, barriers, layouts and edges, with the hardware emulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.families.wgmma.codegen import local_bytes
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.families.wgmma.results import PIECE_COLUMNS, staging_of
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, DatabaseFile
from pyclgemm.selection.overrides import kernel_sources
from pyclgemm.selection.records import Entry, Match, Record, Source
from pyclgemm.selection.select import select
from tests.support.batch_checks import check_batch
from tests.support.checks import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.emulation.wgmma import warpgroups_of
from tests.support.reference import assert_close, expected_gemm
from tests.support.unit_configs import ALIGNED
from tests.support.unit_configs import WGMMA as CONFIG
from tests.support.unit_configs import WGMMA_CASES as CASES
from tests.support.unit_configs import WGMMA_NARROW as NARROW
from tests.support.unit_configs import WGMMA_PRECISIONS as PRECISIONS


@pytest.mark.parametrize("config", [CONFIG, NARROW, replace(CONFIG, NWG=96)], ids=str)
@pytest.mark.parametrize("b", ALIGNED, ids=["row", "column"])
@pytest.mark.parametrize("a", ALIGNED, ids=["row", "column"])
def test_layouts(warpgroups: None, queue: Any, a: Any, b: Any, config: WgmmaConfig) -> None:
    check_gemm(queue, (100, 90, 70), "float16", a=a, b=b, out=ROW_ALIGNED, config=config)


@pytest.mark.parametrize(
    ("a", "b"), [(ROW, COLUMN), (STRIDED, ROW_ALIGNED), (COLUMN_ALIGNED, STRIDED)]
)
def test_what_no_map_describes_is_packed(warpgroups: None, queue: Any, a: Any, b: Any) -> None:
    check_gemm(queue, (70, 66, 75), "float16", a=a, b=b, out=ROW_ALIGNED, config=CONFIG)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (64, 64, 64), (65, 8, 200), (200, 130, 33), (3, 70, 0)], ids=str
)
def test_sizes(warpgroups: None, queue: Any, sizes: Any) -> None:
    for config in (CONFIG, NARROW):
        check_gemm(queue, sizes, "float16", out=ROW_ALIGNED, config=config)
        if 0 in sizes:
            check_gemm(queue, sizes, "float16", out=ROW_ALIGNED, config=replace(config, FILL=1))


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, STAGES=5, GROUP_M=1),
        WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3, PROMOTE=2),
        WgmmaConfig(MWG=128, NWG=64, CONSUMERS=1, STAGES=2, PROMOTE=1),
        WgmmaConfig(MWG=192, NWG=192, CONSUMERS=3, STAGES=3),
        WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=3),
        replace(CONFIG, FILL=1),
        WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3, FILL=3, PROMOTE=1),
        WgmmaConfig(MWG=128, NWG=32, CONSUMERS=2, STAGES=5, GROUP_M=1),
        WgmmaConfig(MWG=128, NWG=32, CONSUMERS=1, STAGES=3, FILL=3, PROMOTE=1),
        WgmmaConfig(MWG=192, NWG=96, CONSUMERS=3, STAGES=3),
        replace(CONFIG, NWG=96, FILL=1),
    ],
    ids=str,
)
def test_tiles(warpgroups: None, queue: Any, config: WgmmaConfig) -> None:
    # Several tiles for a work-group, a depth that no slab divides.
    aligned = {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED}
    check_gemm(queue, (300, 264, 330), "float16", config=config, **aligned)


@pytest.mark.parametrize("config", [CONFIG, NARROW], ids=str)
@pytest.mark.parametrize(("dtype", "precision"), CASES)
def test_precisions(
    warpgroups: None, queue: Any, dtype: str, precision: str, config: WgmmaConfig
) -> None:
    promote = 0 if dtype == "int8" else 2
    check_gemm(
        queue, (70, 72, 150), dtype, a=ROW_ALIGNED, b=ROW_ALIGNED, out=ROW_ALIGNED,
        precision=precision, config=replace(config, PROMOTE=promote),
    )  # fmt: skip


@pytest.mark.parametrize("depth", [64, 1000])
def test_few_tiles_are_shared(queue: Any, depth: int) -> None:
    # 2 tiles among 10 groups and more, in two steps of joining for the deeper one; k = 64 has a
    # slab for each tile.
    with warpgroups_of(queue, compute_units=12):
        for _ in range(2):  # counters are left as they were found
            check_gemm(
                queue, (64, 128, depth), "float16", out=ROW_ALIGNED, c=ROW, beta=2.0, bias=True,
                config=replace(CONFIG, FILL=1),
            )  # fmt: skip


def test_parts_of_splits_are_shared(warpgroups: None, queue: Any) -> None:
    check_gemm(
        queue, (100, 72, 150), "float32", out=ROW_ALIGNED, precision="BF16_BF16_F32_X3",
        config=replace(CONFIG, FILL=1),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_k_contiguous_operands_are_copied_as_they_lie(
    warpgroups: None, queue: Any, dtype: str
) -> None:
    product = GemmShape(64, 64, 64, "NT").product(dtype, PRECISIONS[dtype][0])
    (launch,) = make_schedule(product, CONFIG, typical_traits("sm_90")).launches
    assert launch.source.target == "sm_90a"
    for config in (CONFIG, NARROW):
        check_gemm(
            queue, (70, 72, 150), dtype, a=ROW_ALIGNED, b=COLUMN_ALIGNED, out=ROW_ALIGNED,
            precision=PRECISIONS[dtype][0], config=config,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "packed"),
    [
        (ROW_ALIGNED, ROW_ALIGNED, []),  # B goes through registers, in the place of A
        (COLUMN_ALIGNED, COLUMN_ALIGNED, []),  # A does
        (COLUMN_ALIGNED, ROW_ALIGNED, ["pack_b"]),  # only one can
    ],
)
def test_float32_along_the_tile_goes_through_registers(
    warpgroups: None, queue: Any, a: Any, b: Any, packed: list[str]
) -> None:
    layout: Any = "".join("T" if one is COLUMN_ALIGNED else "N" for one in (a, b))
    product = GemmShape(64, 64, 64, layout).product("float32", "TF32_TF32_F32")
    names = [source.name for source in kernel_sources(product, CONFIG, typical_traits("sm_90"))]
    assert names == [*packed, "gemm_wgmma"]
    two_fragments = WgmmaConfig(MWG=128, NWG=128, CONSUMERS=1, STAGES=2, PROMOTE=0)
    for config in (CONFIG, two_fragments, NARROW, replace(two_fragments, NWG=96)):
        check_gemm(
            queue, (100, 72, 150), "float32", a=a, b=b, out=ROW_ALIGNED, c=ROW_ALIGNED, bias=True,
            beta=0.5, activation="gelu", precision="TF32_TF32_F32", config=config,
        )  # fmt: skip


def test_rows_that_run_backwards_or_coincide(warpgroups: None, queue: Any, rng: Any) -> None:
    a = rng.standard_normal((70, 64)).astype(np.float16)
    b = rng.standard_normal((64, 64)).astype(np.float16)
    device_a, device_b = (cl_array.to_device(queue, x) for x in (a, b))
    backwards = device_a[::-1]
    one_row = cl_array.Array(
        queue, (70, 64), np.float16, data=device_a.data, strides=(0, 2), order="C"
    )
    for left, values in ((backwards, a[::-1]), (one_row, np.broadcast_to(a[0], a.shape))):
        result = pyclgemm.gemm(queue, left, device_b, config=CONFIG).get()
        assert_close(result, expected_gemm(values, b))
    out = cl_array.zeros(queue, (70, 64), np.float16)
    pyclgemm.gemm(queue, device_a, device_b, out=out[::-1], config=CONFIG)
    assert_close(out.get()[::-1], expected_gemm(a, b))


def test_a_single_row_may_be_any_distance_from_none(warpgroups: None, queue: Any) -> None:
    check_gemm(queue, (1, 70, 40), "float16", out=STRIDED, config=CONFIG)
    check_gemm(queue, (1, 70, 40), "float16", out=ROW_ALIGNED, config=CONFIG)


@pytest.mark.parametrize("precision", PRECISIONS["float32"])
def test_infinities_and_nan_stay_what_they_are(
    warpgroups: None, queue: Any, rng: Any, precision: str
) -> None:
    a = rng.standard_normal((64, 48)).astype(np.float32)
    b = rng.standard_normal((48, 64)).astype(np.float32)
    a[3, 5], a[9, 7], b[11, 20], b[13, 30] = np.inf, np.nan, -np.inf, np.nan
    a[20, 2], b[2, 40] = 3e38, 1e-30
    result = pyclgemm.gemm(
        queue, *(cl_array.to_device(queue, x) for x in (a, b)), precision=precision,
        config=replace(CONFIG, PROMOTE=1),
    ).get()  # fmt: skip
    with np.errstate(invalid="ignore", over="ignore"):
        exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(result[infinite], exact[infinite])
    assert np.isfinite(result[np.isfinite(exact)]).all()


def test_a_constant_operand_is_read_as_it_was_packed(warpgroups: None, queue: Any) -> None:
    for packed in (
        PackedLayout("padded", depth_block=16, width=32),
        PackedLayout("padded", depth_block=16, width=1, along_k=True),
    ):
        for trans_b in ("N", "T"):
            check_gemm(
                queue, (33, 35, 37), "float16", out=ROW_ALIGNED, config=CONFIG, pack=packed,
                trans_b=trans_b,
            )  # fmt: skip


def test_constant_operands_of_units_run_along_k(warpgroups: None, queue: Any) -> None:
    for dtype, precision in [("int8", None), ("float32", "TF32_TF32_F32")]:
        check_gemm(
            queue, (33, 35, 37), dtype, a=ROW_ALIGNED, out=ROW_ALIGNED, precision=precision,
            config=CONFIG, pack=True,
        )  # fmt: skip


# ------------------------------------------------------------------------------ without a device


def test_other_devices_refuse_the_family() -> None:
    traits = typical_traits("sm_90")
    refused = replace(traits, wgmma=False, wgmma_refusal="the driver said no")
    for device, reason in ((typical_traits("sm_80"), "has none"), (refused, "said no")):
        assert any(reason in broken for broken in violations(CONFIG, "float16", device))
    assert not violations(CONFIG, "float16", traits)
    with pytest.raises(ConfigError, match="no warpgroup unit for F16_F16_F16"):
        half = GemmShape(64, 64, 64).problem("float16", "F16_F16_F16")
        select(half, traits, Database([]), CONFIG)


@pytest.mark.parametrize("columns", [32, 64, 96, 128, 192, 256])
def test_local_memory_has_room_for_results_in_any_order(columns: int) -> None:
    config = WgmmaConfig(MWG=128, NWG=columns)
    slabs = local_bytes(config, 4) - staging_of(config, 4).bytes
    for result_bytes, order in ((2, "row"), (4, "row"), (4, "column")):
        staged = staging_of(config, result_bytes, order)
        assert slabs + staged.bytes <= local_bytes(config, 4)
        assert staged.chunks * staged.chunk_pieces * PIECE_COLUMNS == columns


def test_a_driver_that_refuses_leaves_the_product_to_mma_sync() -> None:
    mma = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    records = tuple(
        Record(GemmShape(size, size, size), config)
        for config, size in [(CONFIG, 1024), (replace(CONFIG, STAGES=3), 2048), (mma, 512)]
    )
    entry = Entry("float16", "F16_F16_F32", records)
    match = Match("architecture", "gpu", "nvidia", architecture="sm_90")
    file = DatabaseFile.make(Path("a test"), match, Source("measured", "a test"), [entry])
    problem = GemmShape(1024, 1024, 1024).problem("float16")
    traits = typical_traits("sm_90")
    assert select(problem, traits, Database(((file,),))).config == CONFIG
    refused = replace(traits, wgmma=False, wgmma_refusal="the driver said no")
    choice = select(problem, refused, Database(((file,),)))
    assert choice.config == mma
    assert (
        "wgmma for 1024x1024x1024 and 1 more (the device must have warpgroup units: "
        "'typical sm_90' has none: the driver said no" in choice.reason
    )


@pytest.mark.parametrize(
    ("config", "sizes", "steps"),
    [
        # More products than maps, a slab each; results copied out.
        (CONFIG, (70, 64, 60), "apart apart apart apart"),
        (replace(CONFIG, FILL=1, STAGES=3), (70, 64, 200), "apart shared apart matrix"),
        (replace(CONFIG, MWG=128, CONSUMERS=2), (70, 66, 60), "backwards apart interleaved one"),
        (replace(NARROW, FILL=1, STAGES=3), (70, 64, 200), "apart shared apart matrix"),
    ],
    ids=["maps in turn", "slabs divided", "packed", "narrow"],
)
def test_batches(warpgroups: None, queue: Any, config: Any, sizes: Any, steps: str) -> None:
    b = STRIDED if "backwards" in steps else ROW_ALIGNED
    check_batch(queue, 9 if config is CONFIG else 3, sizes, "float16", a=ROW_ALIGNED, b=b,
                out=ROW_ALIGNED, c=ROW, beta=0.5, steps=steps, config=config)  # fmt: skip


def test_batch_of_parts(warpgroups: None, queue: Any) -> None:
    check_batch(queue, 3, (65, 40, 40), precision="BF16_BF16_F32_X3", out=ROW_ALIGNED,
                config=CONFIG)  # fmt: skip
