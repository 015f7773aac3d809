"""Products by warpgroup units: boxes, barriers, layouts, edges and results, emulated."""

import re
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm import WgmmaConfig
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.families.registry import make_schedule
from pyclgemm.families.wgmma.codegen import local_bytes
from pyclgemm.families.wgmma.results import Staging
from pyclgemm.families.wgmma.unit import TensorMap
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources
from tests.support import buffers
from tests.support.buffers import ALIGNED, COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, Layout
from tests.support.checks import check_gemm
from tests.support.configs import FLOAT32_PRECISIONS, WGMMA
from tests.support.emulation import wgmma as emulation
from tests.support.emulation.wgmma import warpgroups_of
from tests.support.reference import ACTIVATIONS, Expected, assert_close, expected_gemm

H100 = typical_traits("sm_90")
CONFIG = WGMMA
LANES, SHARED = replace(CONFIG, TMA=0), replace(CONFIG, FILL=1)
#: Rows of B, and of results of 2 bytes, are 64 bytes of a tile, or 192.
NARROW, MIDDLE = replace(CONFIG, NWG=32), replace(CONFIG, NWG=96)
#: Strips of 16 columns; rows of results of 2 bytes are 32 bytes.
UNEVEN, NARROWEST = replace(CONFIG, NWG=80), replace(CONFIG, NWG=16)

ROWS = {"a": ROW_ALIGNED, "b": ROW_ALIGNED}
WHOLE = {"bias": True, "activation": "gelu", "alpha": 0.5, "beta": -1.5}
RELU = {"bias": True, "activation": "relu", "beta": -1.5}
TF32 = {"dtype": "float32", "precision": "TF32_TF32_F32"}
KINDS = [*((dtype, None) for dtype in ("float16", "bfloat16", "int8"))]
KINDS += [("float32", precision) for precision in FLOAT32_PRECISIONS]

tile = WgmmaConfig
#: Tiles whose slabs boxes copy, and lanes.
TILES = [
    replace(CONFIG, STAGES=5, GROUP_M=1), tile(128, 128, 2, 3, PROMOTE=2),
    tile(128, 64, 1, 2, PROMOTE=1), tile(192, 192, 3, 3), tile(128, 256, 2, 3), SHARED,
    tile(128, 128, 2, 3, FILL=3, PROMOTE=1),
]  # fmt: skip
BY_BOXES = [
    *TILES, tile(128, 32, 2, 5, GROUP_M=1), tile(128, 32, 1, 3, FILL=3, PROMOTE=1),
    tile(192, 96, 3, 3), replace(MIDDLE, FILL=1), replace(UNEVEN, FILL=1), tile(192, 112, 3, 3),
]  # fmt: skip
BY_LANES = [
    *(replace(config, TMA=0) for config in TILES), tile(64, 32, 1, 4, TMA=0),
    tile(128, 96, 2, 3, TMA=0), tile(64, 48, 1, 4, TMA=0),
]  # fmt: skip
#: A c that lies as boxes are copied, and such that do not.
ADDENDS = (
    ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=2), ROW, STRIDED,
    Layout(alignment=16, flip_rows=True),
)  # fmt: skip
#: Tiles and results. Boxes of c fill two stages, and several; there is no room for them in the
#: last. Boxes of 64 bytes in a row: one of each warpgroup, three, and two fragments in a stage.
BOXES_OF_C = [
    (tile(128, 256, 2, 2), "float16"), (tile(128, 128, 2, 3), "float32"),
    (tile(128, 192, 1, 2), "float16"), (tile(192, 64, 3, 3), "float32"),
    (tile(128, 32, 2, 2), "float16"), (tile(64, 96, 1, 3), "float16"),
    (tile(128, 32, 1, 2), "float16"), (tile(64, 32, 1, 2), "float32"),
    (tile(128, 80, 2, 2), "float16"), (tile(64, 48, 1, 3), "float32"),
]  # fmt: skip

#: Sizes, configuration, options; results lie aligned where the options do not say otherwise.
PRODUCTS = [
    # More than a tile, and an end within 16 bytes or behind them.
    *((sizes, config, {"a": a, "b": b})
      for config in (CONFIG, NARROW, MIDDLE, UNEVEN, LANES) for a in ALIGNED for b in ALIGNED
      for sizes in ((100, 90, 70), (104, 88, 72)) if config is LANES or sizes[0] == 100),
    # What no map describes and no 16 bytes fit is packed.
    *(((70, 66, 75), config, {"a": a, "b": b})
      for config in (CONFIG, LANES) for a, b in ((ROW, COLUMN), (STRIDED, ROW_ALIGNED))),
    ((70, 66, 75), CONFIG, {"a": COLUMN_ALIGNED, "b": STRIDED}),
    *((sizes, config, {} if config.TMA else ROWS | {"out": ROW})
      for config in (CONFIG, NARROW, NARROWEST, LANES, SHARED, replace(NARROW, FILL=1))
      for sizes in ((1, 1, 1), (64, 64, 64), (65, 8, 200), (200, 130, 33), (3, 70, 0))
      if 0 in sizes or not config.FILL),
    # Several tiles for a work-group, a depth that no slab divides.
    *(((300, 264, 330), config, {"a": a, "b": ROW_ALIGNED})
      for configs, a in ((BY_BOXES, ROW_ALIGNED), (BY_LANES, COLUMN_ALIGNED))
      for config in configs),
    *(((70, 72, 150), replace(config, PROMOTE=0 if dtype == "int8" else 2),
       ROWS | {"b": b, "dtype": dtype, "precision": precision})
      for config in (CONFIG, NARROW, UNEVEN, LANES) for dtype, precision in KINDS
      for b in (ALIGNED if config is LANES else (ROW_ALIGNED,))),
    # Operands that are contiguous along k are copied as they lie.
    *(((70, 72, 150), config, ROWS | kind | {"b": COLUMN_ALIGNED})
      for config in (CONFIG, NARROW) for kind in (TF32, {"dtype": "int8"})),
    # float32 along the tile goes through registers.
    *(((100, 72, 150), config, TF32 | WHOLE | {"a": a, "b": b, "c": ROW_ALIGNED})
      for config in (CONFIG, tile(128, 128, 1, 2, PROMOTE=0), NARROW,
                     tile(128, 96, 1, 2, PROMOTE=0), tile(128, 48, 1, 2, TMA=0))
      for a, b in ((ROW_ALIGNED, ROW_ALIGNED), (COLUMN_ALIGNED, COLUMN_ALIGNED),
                   (COLUMN_ALIGNED, ROW_ALIGNED))),
    # Lanes copy rows in vectors of 4 and 8 bytes, also where the tile's rows have 64 bytes.
    *((sizes, config, {"dtype": dtype, "precision": precision, "a": replace(a, alignment=vector),
                       "b": replace(b, alignment=vector)})
      for dtype, precision, vectors in (("float16", None, (2, 4)), ("int8", None, (4, 8)),
                                        ("float32", "TF32_TF32_F32", (1, 2)))
      for vector in vectors for a in ALIGNED for b in ALIGNED
      for sizes, config in (((70, 100, 150), LANES), ((68, 132, 76), replace(MIDDLE, TMA=0)),
                            ((68, 132, 76), replace(UNEVEN, TMA=0)))),
    # A single row may be any distance from none.
    *(((1, 70, 40), CONFIG, {"out": out}) for out in (STRIDED, ROW_ALIGNED)),
    # Rows that run backwards or coincide.
    *(((70, 64, 64), CONFIG, {operand: Layout("row", 1, 8, True)}) for operand in ("a", "out")),
    *(((70, 64, 64), LANES, TF32 | {operand: Layout("row", 1, 8, True)}) for operand in "ab"),
    ((70, 64, 64), CONFIG, {"a": Layout("broadcast", alignment=8), "b": ROW_ALIGNED}),
    # Constant operands are read as they were packed.
    *(((33, 35, 37), CONFIG, {"pack": packed, "trans_b": trans_b})
      for packed in (PackedLayout("padded", 16, 32), PackedLayout("padded", 16, 1, along_k=True))
      for trans_b in "NT"),
    *(((33, 35, 37), CONFIG, {"a": ROW_ALIGNED, "pack": True} | options)
      for options in ({"dtype": "int8"}, TF32)),
    # Epilogues.
    *(((70, 72, 40), config, ROWS | WHOLE | {"out": out, "result": result, "c": c})
      for config, c in ((CONFIG, ROW), (CONFIG, COLUMN_ALIGNED), (LANES, ROW_ALIGNED),
                        (LANES, COLUMN_ALIGNED))
      for out in (ROW_ALIGNED, COLUMN_ALIGNED, ROW, STRIDED) for result in ("float16", "float32")),
    *(((72, 72, 40), config, ROWS | WHOLE | {"out": out, "result": result, "c": ROW})
      for config in (NARROW, MIDDLE) for out in ALIGNED for result in ("float16", "float32")),
    *(((70, 72, 40), CONFIG, ROWS | RELU | {"dtype": dtype, "c": c})
      for dtype in ("float16", "bfloat16") for c in ADDENDS),
    # Several tiles for a work-group, of which some end outside; no slab at all.
    *(((200, 264, depth), config, ROWS | RELU | {"activation": "silu", "c": ROW_ALIGNED,
                                                 "result": result})
      for config, result in BOXES_OF_C for depth in (70, 0)),
    *(((66, 72, 40), CONFIG, {"dtype": dtype, "bias": True, "activation": activation,
                              "result": result, "alpha": 2.0})
      for activation in ACTIVATIONS
      for dtype, result in (("float16", "float32"), ("bfloat16", "bfloat16"))),
    *(((70, 72, 40), CONFIG, {"out": out, "in_place": True, "beta": 2.0})
      for out in (ROW_ALIGNED, COLUMN_ALIGNED, ROW)),
    # Without depth or alpha.
    *(((7, 21, k), config, {"alpha": alpha, "beta": -2.0, "c": ROW_ALIGNED})
      for config in (CONFIG, SHARED) for alpha, k in ((0.0, 19), (0.5, 0))),
    ((70, 72, 40), CONFIG, RELU | {"dtype": "int8", "c": ROW, "alpha": 3, "beta": -2}),
    # 2 tiles among 10 groups and more, in two steps of joining for the deeper one; k = 64 has a
    # slab for each tile.
    *(((64, 128, depth), SHARED, {"units": 12, "c": ROW, "beta": 2.0, "bias": True})
      for depth in (64, 1000)),
    *((sizes, replace(config, FILL=1),
       {"units": units, "dtype": "float32", "precision": "BF16_BF16_F32_X3"})
      for config, units, sizes in ((CONFIG, 2, (100, 72, 150)), (LANES, 12, (64, 128, 300)))),
    # Rows of the tile are columns of the result, which lie in vectors or not.
    *((sizes, replace(config, TMA=tma, SWAP=1), {"a": a, "b": b, "out": out})
      for tma in (1, 0) for config in (CONFIG, UNEVEN, replace(MIDDLE, FILL=1))
      for sizes, a, b in (((72, 200, 70), ROW_ALIGNED, COLUMN_ALIGNED), ((40, 296, 150), *ALIGNED))
      for out in (ROW_ALIGNED, Layout(alignment=4), ROW)),
    *(((72, 200, 72), replace(UNEVEN, TMA=tma, SWAP=1, PROMOTE=0), ROWS | RELU | kind | {"c": c})
      for tma in (1, 0) for c in (ROW_ALIGNED, ROW)
      for kind in ({"dtype": "int8", "alpha": 3, "beta": -2}, TF32, {"result": "float32"},
                   {"dtype": "bfloat16"})),
    *(((40, 200, 72), replace(config, SWAP=1), ROWS | WHOLE | {"out": out, "c": ROW})
      for config in (NARROWEST, LANES) for out in (STRIDED, COLUMN_ALIGNED)),
    *(((33, 135, 37), replace(CONFIG, TMA=tma, SWAP=1), {"pack": packed})
      for tma in (1, 0)
      for packed in (PackedLayout("padded", 16, 32), PackedLayout("padded", 16, 1, along_k=True))),
    # Batches: more products than maps, a slab each; slabs divided; packed; in split terms.
    *((sizes, replace(config, TMA=tma), ROWS | {"c": ROW, "beta": 0.5, "batch": 3} | options
       | ({"batch": 9} if tma and sizes == (70, 64, 60) else {}))
      for tma in (1, 0)
      for config, sizes, options in [
          (CONFIG, (70, 64, 60), {}),
          *((config, (70, 64, 200), {"steps": "apart shared apart matrix"})
            for config in (replace(SHARED, STAGES=3), replace(NARROW, FILL=1, STAGES=3))),
          (replace(UNEVEN, SWAP=1), (40, 200, 60), {}),
          # Edges of both operands change from tile to tile.
          *((config, (200, 150, 70), {"b": COLUMN_ALIGNED})
            for config in (CONFIG, replace(SHARED, STAGES=3))),
          (tile(128, 64, 2, 2, GROUP_M=2), (70, 66, 60),
           {"b": STRIDED, "steps": "backwards apart interleaved one"}),
          (CONFIG, (65, 40, 40),
           {"dtype": "float32", "precision": "BF16_BF16_F32_X3", "a": ROW, "b": ROW})]),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("sizes", "config", "options"), PRODUCTS)
def test_products(queue, sizes, config, options):
    given = {"dtype": "float16", "out": ROW_ALIGNED} | options
    with warpgroups_of(queue, compute_units=given.pop("units", 2)):
        for _ in range(2 if config.FILL else 1):  # counters are left as they were found
            check_gemm(queue, sizes, config=config, **given)


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("trans_b", ["N", "T"])
@pytest.mark.parametrize("trans_a", ["N", "T"])
def test_boxes_end_with_the_matrices(warpgroups, queue, trans_a, trans_b, batch):
    if traits_of(queue.device).wgmma:
        pytest.skip("only the emulation counts what is copied")
    # Both edges cut a tile; the depth is whole slabs.
    config = tile(128, 192, 2, 3)
    options = {"trans_a": trans_a, "trans_b": trans_b, "batch": batch, "out": ROW_ALIGNED}
    emulation.rows_outside.clear()
    check_gemm(queue, (136, 200, 128), config=config, dtype="float16", **ROWS, **options)
    assert emulation.rows_outside
    assert not any(emulation.rows_outside)


BARE = Layout(gap=0)


@pytest.mark.parametrize("trans_b", ["N", "T"])
@pytest.mark.parametrize("trans_a", ["N", "T"])
def test_lanes_read_nothing_outside(warpgroups, queue, monkeypatch, trans_a, trans_b):
    # Nothing lies around these arrays: the emulation knows where they begin and end.
    monkeypatch.setattr(buffers, "GUARD", 0)
    options = {"trans_a": trans_a, "trans_b": trans_b, "config": LANES}
    check_gemm(queue, (72, 72, 104), "float16", a=BARE, b=BARE, **options)


@pytest.mark.parametrize("out", [ROW_ALIGNED, ROW], ids=["collected", "direct"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_the_whole_range(warpgroups, queue, activation, out):
    x = np.concatenate(
        [[0.0, -0.0, np.nan, np.inf], *(s * np.logspace(-6, 4, 150) for s in (1, -1))]
    )
    x = x[: 304 if out is ROW_ALIGNED else 303].astype(np.float16)
    device = [cl_array.to_device(queue, one) for one in (np.ones((1, 1), x.dtype), x[np.newaxis])]
    result = buffers.guarded_matrix(queue, buffers.blank((1, x.size), "float16"), out)
    epilogue = pyclgemm.Epilogue(activation=activation)
    pyclgemm.gemm(queue, *device, out=result.array, epilogue=epilogue, config=CONFIG)
    expected = expected_gemm(np.ones((1, 1), x.dtype), x[np.newaxis], activation=activation)
    # Stricter than what other kernels are held to: a unit of the last place, rounding included,
    # wherever a result of float32 would not have been off by more.
    own = 2.0**-10 * abs(expected.value) + 2.0**-23 * np.maximum(1, abs(x)) + 2.0**-24
    assert_close(result.get(), Expected(expected.value, np.minimum(expected.bound, own)))


# ------------------------------------------------------------------ without a device


@pytest.mark.parametrize(
    ("layout", "packed"), [("NN", []), ("TT", []), ("TN", ["pack_b"]), ("NT", [])]
)
def test_float32_is_packed_where_both_operands_lie_along_the_tile(layout, packed):
    """One goes through registers, in the place of A; what lies along k is copied as it is.

    Lanes transpose the other one.
    """
    product = GemmShape(64, 64, 64, layout).product("float32", "TF32_TF32_F32")
    sources = kernel_sources(product, CONFIG, H100)
    assert [source.name for source in sources] == [*packed, "gemm_wgmma"]
    assert [source.name for source in kernel_sources(product, LANES, H100)] == ["gemm_wgmma"]
    bytes_along_k = GemmShape(64, 64, 64, "NT").product("int8")
    for whole in (product, bytes_along_k):
        *_, source = kernel_sources(whole, CONFIG, H100)
        assert source.target == "sm_90a"
    assert len(make_schedule(bytes_along_k, CONFIG, H100).launches) == 1


@pytest.mark.parametrize("columns", [16, 32, 48, 64, 80, 96, 128, 192, 224, 256])
def test_local_memory_has_room_for_results_in_any_order(columns):
    config = WgmmaConfig(MWG=128, NWG=columns)
    slabs = local_bytes(config, 4) - Staging(config, 4).bytes
    for result_bytes, order in ((2, "row"), (2, "column"), (4, "row"), (4, "column")):
        staged = Staging(config, result_bytes, order)
        assert slabs + staged.bytes <= local_bytes(config, 4)
        assert staged.chunks * staged.chunk_strips * config.strip == columns


@pytest.mark.parametrize(
    ("tile", "stages", "has_room"),
    [
        ((64, 128), 6, True),  # 160 KB of 256 leave more than 92 to the first-level cache
        ((64, 128), 8, False),  # 208 KB leave 28
        ((64, 64), 8, True),  # 136 KB
        ((64, 64), 6, False),  # 104 KB: as much as 2 work-groups take is set apart
    ],
)
def test_rows_within_sectors_are_copied_through_a_cache_that_has_room(tile, stages, has_room):
    def ways(size):
        config = WgmmaConfig(*tile, CONSUMERS=1, STAGES=stages, TMA=0)
        *_, source = kernel_sources(GemmShape(*size).product("float16"), config, H100)
        return set(re.findall(r"cp\.async\.(c[ag])\.shared\.global .* 16, %2;", source.text))

    assert ways((128, 1024, 1024)) == {"cg"}
    assert ways((128, 1032, 1032)) == ({"ca"} if has_room else {"cg"})
    # Only rows of B start within sectors.
    assert ways((128, 1032, 1024)) == ({"ca", "cg"} if has_room else {"cg"})


@pytest.mark.parametrize("batch", [None, 3])
def test_lanes_need_no_map(batch):
    product = GemmShape(128, 1024, 1024, batch=batch).product("float16", reads_c=True)
    for config, maps in ((CONFIG, True), (LANES, False)):
        schedule = make_schedule(product, config, H100)
        (launch,) = schedule.launches
        assert ("maps" in schedule.workspaces) == maps
        assert ("maps" in launch.by_name) == maps
        assert ("tensor" in launch.source.text) == maps
        assert ("cp.async.cg" in launch.source.text) != maps


def test_words_of_a_map_that_a_driver_made_and_the_swizzle_of_half_the_width():
    # cuTensorMapEncodeTiled: float16, 4096 x 1024 elements, rows of 8192 bytes, boxes of 64 x 128,
    # 128-byte swizzle, promotion to 128 bytes of L2, zeros outside.
    made = [
        0x7F0000000400, 0x10 | 6 << 7 | 3 << 13 | 2 << 17 | 512 << 32, 0, 0,
        4095 | 1023 << 32, 0, 63 << 56, 127, *[0] * 8,
    ]  # fmt: skip
    box = TensorMap(2, 128)
    assert made == [
        0x7F0000000400, box.format_word | 8192 // 16 << 32, 0, 0,
        (4096 - 1) | (1024 - 1) << 32, 0, box.box_word, box.rows_word, *[0] * 8,
    ]  # fmt: skip
    # CU_TENSOR_MAP_SWIZZLE_64B is 2, as is `.swizzle_mode` 64B of PTX's `tensormap.replace`, which
    # ptxas turns into code that replaces the bits 0x6000 of the map's second word.
    wide, narrow = TensorMap(2, 64), TensorMap(2, 64, row_bytes=64)
    assert wide.format_word ^ narrow.format_word == 0x6000 ^ 0x4000
    assert narrow.box_word == 31 << 56
    assert (narrow.elements, narrow.bytes) == (32, 64 * 64)
