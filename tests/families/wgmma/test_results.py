"""Results of warpgroup units: addends, biases, activations, and how they leave, emulated."""

from dataclasses import replace
from functools import partial

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.families.wgmma.config import WgmmaConfig
from tests.support.buffers import Layout, guarded_matrix
from tests.support.checks import COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.configs import WGMMA as CONFIG
from tests.support.configs import WGMMA_NARROW as NARROW
from tests.support.reference import ACTIVATIONS, Expected, assert_close, expected_gemm

LANES = replace(CONFIG, TMA=0)
check = partial(check_gemm, dtype="float16", a=ROW_ALIGNED, b=ROW_ALIGNED)
WHOLE = {"bias": True, "activation": "gelu", "alpha": 0.5, "beta": -1.5}


@pytest.mark.parametrize("result", ["float16", "float32"])
@pytest.mark.parametrize("out", [ROW_ALIGNED, COLUMN_ALIGNED, ROW, STRIDED])
@pytest.mark.parametrize(
    ("config", "c"),
    [(CONFIG, ROW), (CONFIG, COLUMN_ALIGNED), (LANES, ROW_ALIGNED), (LANES, COLUMN_ALIGNED)],
)
def test_epilogue(warpgroups, queue, config, c, out, result):
    check(queue, (70, 72, 40), out=out, result=result, c=c, config=config, **WHOLE)


@pytest.mark.parametrize("config", [NARROW, replace(CONFIG, NWG=96)], ids=str)
@pytest.mark.parametrize("result", ["float16", "float32"])
@pytest.mark.parametrize("out", [ROW_ALIGNED, COLUMN_ALIGNED], ids=["rows", "columns"])
def test_epilogue_of_narrow_tiles(warpgroups, queue, out, result, config):
    check(queue, (72, 72, 40), out=out, result=result, c=ROW, config=config, **WHOLE)


#: A c that lies as boxes are copied, and such that do not.
ADDENDS = {
    "boxes": ROW_ALIGNED, "columns": COLUMN_ALIGNED, "pairs": Layout(alignment=2), "odd": ROW,
    "strided": STRIDED, "backwards": Layout(alignment=16, flip_rows=True),
}  # fmt: skip


@pytest.mark.parametrize("c", ADDENDS.values(), ids=ADDENDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_addends(warpgroups, queue, dtype, c):
    options = {"beta": -1.5, "bias": True, "activation": "relu", "config": CONFIG}
    check(queue, (70, 72, 40), dtype=dtype, out=ROW_ALIGNED, c=c, **options)


@pytest.mark.parametrize(
    ("config", "result"),
    [
        # Boxes of c fill two stages, and several; there is no room for them in the last.
        (WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=2), "float16"),
        (WgmmaConfig(MWG=128, NWG=128, CONSUMERS=2, STAGES=3), "float32"),
        (WgmmaConfig(MWG=128, NWG=192, CONSUMERS=1, STAGES=2), "float16"),
        (WgmmaConfig(MWG=192, NWG=64, CONSUMERS=3, STAGES=3), "float32"),
        # Boxes of 64 bytes in a row: one of each warpgroup, three, and two fragments in a stage.
        (WgmmaConfig(MWG=128, NWG=32, CONSUMERS=2, STAGES=2), "float16"),
        (WgmmaConfig(MWG=64, NWG=96, CONSUMERS=1, STAGES=3), "float16"),
        (WgmmaConfig(MWG=128, NWG=32, CONSUMERS=1, STAGES=2), "float16"),
        (WgmmaConfig(MWG=64, NWG=32, CONSUMERS=1, STAGES=2), "float32"),
    ],
    ids=[
        "halves", "words", "two fragments", "no room",
        "narrow", "three narrow", "two narrow fragments", "narrow words",
    ],
)  # fmt: skip
def test_boxes_of_c_come_behind_slabs(warpgroups, queue, config, result):
    # Several tiles for a work-group, of which some end outside; no slab at all.
    options = {"out": ROW_ALIGNED, "c": ROW_ALIGNED, "beta": 2.0, "bias": True}
    for depth in (70, 0):
        sizes = (200, 264, depth)
        check(queue, sizes, activation="silu", result=result, config=config, **options)


@pytest.mark.parametrize("result", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(warpgroups, queue, activation, result):
    dtype = "float16" if result == "float32" else result
    check_gemm(
        queue, (66, 72, 40), dtype, out=ROW_ALIGNED, bias=True, activation=activation,
        result=result, alpha=2.0, config=CONFIG,
    )  # fmt: skip


@pytest.mark.parametrize("out", [ROW_ALIGNED, ROW], ids=["collected", "direct"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_the_whole_range(warpgroups, queue, activation, out):
    x = np.concatenate(
        [[0.0, -0.0, np.nan, np.inf], *(s * np.logspace(-6, 4, 150) for s in (1, -1))]
    )
    x = x[: 304 if out is ROW_ALIGNED else 303].astype(np.float16)
    device = [cl_array.to_device(queue, one) for one in (np.ones((1, 1), x.dtype), x[np.newaxis])]
    result = guarded_matrix(queue, (1, x.size), "float16", out)
    epilogue = pyclgemm.Epilogue(activation=activation)
    pyclgemm.gemm(queue, *device, out=result.array, epilogue=epilogue, config=CONFIG)
    expected = expected_gemm(np.ones((1, 1), x.dtype), x[np.newaxis], activation=activation)
    # Stricter than what other kernels are held to: a unit of the last place, rounding included,
    # wherever a result of float32 would not have been off by more.
    own = 2.0**-10 * abs(expected.value) + 2.0**-23 * np.maximum(1, abs(x)) + 2.0**-24
    assert_close(result.get(), Expected(expected.value, np.minimum(expected.bound, own)))


def test_in_place(warpgroups, queue):
    for out in (ROW_ALIGNED, COLUMN_ALIGNED, ROW):
        check_gemm(queue, (70, 72, 40), "float16", out=out, in_place=True, beta=2.0, config=CONFIG)


def test_integers_with_their_epilogue(warpgroups, queue):
    check_gemm(
        queue, (70, 72, 40), "int8", out=ROW_ALIGNED, c=ROW, bias=True, activation="relu",
        alpha=3, beta=-2, config=CONFIG,
    )  # fmt: skip
