"""Products by warpgroup units: boxes, barriers, layouts and edges, with the hardware emulated."""

from dataclasses import replace
from functools import partial

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
from pyclgemm.families.wgmma.results import STRIP_COLUMNS, staging_of
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database
from pyclgemm.selection.overrides import kernel_sources
from pyclgemm.selection.records import Record
from pyclgemm.selection.select import select
from tests.support.checks import (
    ALIGNED,
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_batch,
    check_gemm,
)
from tests.support.configs import WGMMA as CONFIG
from tests.support.configs import WGMMA_CASES as CASES
from tests.support.configs import WGMMA_NARROW as NARROW
from tests.support.configs import WGMMA_PRECISIONS as PRECISIONS
from tests.support.databases import FLOAT16, SM_90, a_database, made_file
from tests.support.emulation.wgmma import warpgroups_of
from tests.support.families import load_bytes
from tests.support.reference import assert_close, expected_gemm

LANES = replace(CONFIG, TMA=0)
ROWS = {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED}
check = partial(check_gemm, dtype="float16", out=ROW_ALIGNED)


@pytest.mark.parametrize("config", [CONFIG, NARROW, replace(CONFIG, NWG=96), LANES], ids=str)
@pytest.mark.parametrize("b", ALIGNED, ids=["row", "column"])
@pytest.mark.parametrize("a", ALIGNED, ids=["row", "column"])
def test_layouts(warpgroups, queue, a, b, config):
    # More than a tile, and an end within 16 bytes or behind them.
    for sizes in ((100, 90, 70), (104, 88, 72)) if config is LANES else ((100, 90, 70),):
        check(queue, sizes, a=a, b=b, config=config)


@pytest.mark.parametrize(
    ("config", "a", "b"),
    [
        (CONFIG, ROW, COLUMN),
        (CONFIG, STRIDED, ROW_ALIGNED),
        (CONFIG, COLUMN_ALIGNED, STRIDED),
        (LANES, ROW, COLUMN),
        (LANES, STRIDED, ROW_ALIGNED),
    ],
)
def test_what_no_map_describes_and_no_16_bytes_fit_is_packed(warpgroups, queue, config, a, b):
    check(queue, (70, 66, 75), a=a, b=b, config=config)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (64, 64, 64), (65, 8, 200), (200, 130, 33), (3, 70, 0)], ids=str
)
def test_sizes(warpgroups, queue, sizes):
    for config in (CONFIG, NARROW):
        check(queue, sizes, config=config)
        if 0 in sizes:
            check(queue, sizes, config=replace(config, FILL=1))
    check(queue, sizes, a=ROW_ALIGNED, b=ROW_ALIGNED, out=ROW, config=LANES)


#: Tiles whose slabs boxes copy, and lanes.
TILES = [
    replace(CONFIG, STAGES=5, GROUP_M=1),
    WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3, PROMOTE=2),
    WgmmaConfig(MWG=128, NWG=64, CONSUMERS=1, STAGES=2, PROMOTE=1),
    WgmmaConfig(MWG=192, NWG=192, CONSUMERS=3, STAGES=3),
    WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=3),
    replace(CONFIG, FILL=1),
    WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3, FILL=3, PROMOTE=1),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "config",
    [
        *TILES,
        WgmmaConfig(MWG=128, NWG=32, CONSUMERS=2, STAGES=5, GROUP_M=1),
        WgmmaConfig(MWG=128, NWG=32, CONSUMERS=1, STAGES=3, FILL=3, PROMOTE=1),
        WgmmaConfig(MWG=192, NWG=96, CONSUMERS=3, STAGES=3),
        replace(CONFIG, NWG=96, FILL=1),
        *(replace(config, TMA=0) for config in TILES),
        WgmmaConfig(MWG=64, NWG=32, CONSUMERS=1, STAGES=4, TMA=0),
        WgmmaConfig(MWG=128, NWG=96, CONSUMERS=2, STAGES=3, TMA=0),
    ],
    ids=str,
)
def test_tiles(warpgroups, queue, config):
    # Several tiles for a work-group, a depth that no slab divides.
    a = ROW_ALIGNED if config.TMA else COLUMN_ALIGNED
    check(queue, (300, 264, 330), a=a, b=ROW_ALIGNED, config=config)


@pytest.mark.parametrize("config", [CONFIG, NARROW, LANES], ids=str)
@pytest.mark.parametrize(("dtype", "precision"), CASES)
def test_precisions(warpgroups, queue, dtype, precision, config):
    config = replace(config, PROMOTE=0 if dtype == "int8" else 2)
    options = ROWS | {"dtype": dtype, "precision": precision, "config": config}
    for b in ALIGNED if config.TMA == 0 else (ROW_ALIGNED,):
        check_gemm(queue, (70, 72, 150), **options | {"b": b})


@pytest.mark.parametrize("depth", [64, 1000])
def test_few_tiles_are_shared(queue, depth):
    # 2 tiles among 10 groups and more, in two steps of joining for the deeper one; k = 64 has a
    # slab for each tile.
    config = replace(CONFIG, FILL=1)
    with warpgroups_of(queue, compute_units=12):
        for _ in range(2):  # counters are left as they were found
            check(queue, (64, 128, depth), c=ROW, beta=2.0, bias=True, config=config)


def test_split_terms_are_shared(queue):
    precision = "BF16_BF16_F32_X3"
    for config, units, sizes in ((CONFIG, 2, (100, 72, 150)), (LANES, 12, (64, 128, 300))):
        with warpgroups_of(queue, compute_units=units):
            shared = replace(config, FILL=1)
            check(queue, sizes, dtype="float32", precision=precision, config=shared)


@pytest.mark.parametrize("trans_b", ["N", "T"])
@pytest.mark.parametrize("trans_a", ["N", "T"])
def test_lanes_read_nothing_outside(warpgroups, queue, rng, trans_a, trans_b):
    # Nothing lies around these arrays: the emulation knows where they begin and end.
    shapes = [(72, 104), (104, 72)]
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    left, right = (
        cl_array.to_device(queue, np.ascontiguousarray(x.T if trans == "T" else x))
        for x, trans in ((a, trans_a), (b, trans_b))
    )
    result = pyclgemm.gemm(queue, left, right, trans_a=trans_a, trans_b=trans_b, config=LANES)
    assert_close(result.get(), expected_gemm(a, b))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_k_contiguous_operands_are_copied_as_they_lie(warpgroups, queue, dtype):
    product = GemmShape(64, 64, 64, "NT").product(dtype, PRECISIONS[dtype][0])
    (launch,) = make_schedule(product, CONFIG, typical_traits("sm_90")).launches
    assert launch.source.target == "sm_90a"
    for config in (CONFIG, NARROW):
        options = ROWS | {"b": COLUMN_ALIGNED, "precision": PRECISIONS[dtype][0]}
        check_gemm(queue, (70, 72, 150), dtype, config=config, **options)


@pytest.mark.parametrize(
    ("a", "b", "packed"),
    [
        (ROW_ALIGNED, ROW_ALIGNED, []),  # B goes through registers, in the place of A
        (COLUMN_ALIGNED, COLUMN_ALIGNED, []),  # A does
        (COLUMN_ALIGNED, ROW_ALIGNED, ["pack_b"]),  # only one can
    ],
)
def test_float32_along_the_tile_goes_through_registers(warpgroups, queue, a, b, packed):
    layout = "".join("T" if one is COLUMN_ALIGNED else "N" for one in (a, b))
    product = GemmShape(64, 64, 64, layout).product("float32", "TF32_TF32_F32")
    names = [source.name for source in kernel_sources(product, CONFIG, typical_traits("sm_90"))]
    assert names == [*packed, "gemm_wgmma"]
    two_fragments = WgmmaConfig(MWG=128, NWG=128, CONSUMERS=1, STAGES=2, PROMOTE=0)
    for config in (CONFIG, two_fragments, NARROW, replace(two_fragments, NWG=96)):
        check(
            queue, (100, 72, 150), dtype="float32", a=a, b=b, c=ROW_ALIGNED, bias=True, beta=0.5,
            activation="gelu", precision="TF32_TF32_F32", config=config,
        )  # fmt: skip


def test_rows_that_run_backwards_or_coincide(warpgroups, queue, rng):
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


def test_a_single_row_may_be_any_distance_from_none(warpgroups, queue):
    for out in (STRIDED, ROW_ALIGNED):
        check(queue, (1, 70, 40), out=out, config=CONFIG)


@pytest.mark.parametrize("precision", PRECISIONS["float32"])
def test_infinities_and_nan_stay_what_they_are(warpgroups, queue, rng, precision):
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


def test_a_constant_operand_is_read_as_it_was_packed(warpgroups, queue):
    for packed in (PackedLayout("padded", 16, 32), PackedLayout("padded", 16, 1, along_k=True)):
        for trans_b in ("N", "T"):
            check(queue, (33, 35, 37), config=CONFIG, pack=packed, trans_b=trans_b)


def test_constant_operands_of_units_run_along_k(warpgroups, queue):
    for dtype, precision in [("int8", None), ("float32", "TF32_TF32_F32")]:
        options = {"a": ROW_ALIGNED, "precision": precision, "pack": True}
        check(queue, (33, 35, 37), dtype=dtype, config=CONFIG, **options)


# ------------------------------------------------------------------------------ without a device


def test_other_devices_refuse_the_family():
    traits = typical_traits("sm_90")
    refused = replace(traits, wgmma=False, wgmma_refusal="the driver said no")
    for device, reason in ((typical_traits("sm_80"), "has none"), (refused, "said no")):
        assert any(reason in broken for broken in violations(CONFIG, "float16", device))
    assert not violations(CONFIG, "float16", traits)
    with pytest.raises(ConfigError, match="no warpgroup unit for F16_F16_F16"):
        half = GemmShape(64, 64, 64).problem("float16", "F16_F16_F16")
        select(half, traits, Database([]), CONFIG)


@pytest.mark.parametrize("columns", [32, 64, 96, 128, 192, 256])
def test_local_memory_has_room_for_results_in_any_order(columns):
    config = WgmmaConfig(MWG=128, NWG=columns)
    slabs = local_bytes(config, 4) - staging_of(config, 4).bytes
    for result_bytes, order in ((2, "row"), (4, "row"), (4, "column")):
        staged = staging_of(config, result_bytes, order)
        assert slabs + staged.bytes <= local_bytes(config, 4)
        assert staged.chunks * staged.chunk_strips * STRIP_COLUMNS == columns


def test_a_driver_that_refuses_leaves_the_product_to_mma_sync():
    mma = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    configs = {1024: CONFIG, 2048: replace(CONFIG, STAGES=3), 512: mma}
    records = [Record(GemmShape(size, size, size), config) for size, config in configs.items()]
    file = made_file(records, SM_90, kind="measured", types=FLOAT16)
    problem = GemmShape(1024, 1024, 1024).problem("float16")
    traits = typical_traits("sm_90")
    assert select(problem, traits, a_database(file)).config == CONFIG
    refused = replace(traits, wgmma=False, wgmma_refusal="the driver said no")
    choice = select(problem, refused, a_database(file))
    assert choice.config == mma
    assert (
        "wgmma for 1024x1024x1024 and 1 more (the device must have warpgroup units: "
        "'typical sm_90' has none: the driver said no" in choice.reason
    )


@pytest.mark.parametrize("tma", [1, 0], ids=["boxes", "lanes"])
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
def test_batches(warpgroups, queue, config, sizes, steps, tma):
    count = 9 if tma and config is CONFIG else 3
    options = ROWS | {"b": STRIDED if "backwards" in steps else ROW_ALIGNED}
    config = replace(config, TMA=tma)
    check_batch(
        queue, count, sizes, "float16", c=ROW, beta=0.5, steps=steps, config=config, **options
    )


def test_batch_of_split_terms(warpgroups, queue):
    options = {"precision": "BF16_BF16_F32_X3", "out": ROW_ALIGNED, "config": CONFIG}
    check_batch(queue, 3, (65, 40, 40), **options)


@pytest.mark.parametrize("batch", [None, 3])
def test_lanes_need_no_map(batch):
    product = GemmShape(128, 1024, 1024, batch=batch).product("float16", reads_c=True)
    for config, maps in ((CONFIG, True), (LANES, False)):
        schedule = make_schedule(product, config, typical_traits("sm_90"))
        (launch,) = schedule.launches
        assert ("maps" in schedule.workspaces) == maps
        assert ("maps" in launch.by_name) == maps
        assert ("tensor" in launch.source.text) == maps
        assert ("cp.async.cg" in launch.source.text) != maps


def test_lanes_load_16_bytes():
    problem = GemmShape(128, 128, 128).problem("float16")
    assert load_bytes(problem, CONFIG) == {}
    assert load_bytes(problem, LANES) == {"A from global memory": 16, "B from global memory": 16}
