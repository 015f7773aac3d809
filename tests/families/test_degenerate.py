"""Products that leave something out, in every family: no depth, alpha = 0, no addend, beta = 0.

What a kernel leaves out it must not name. Each case is built and run; the kernels that only a
vendor's compiler takes are written, and some of them assembled.
"""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import generate_gemm
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from tests.support import nvidia_compile
from tests.support.checks import COLUMN, ROW, ROW_ALIGNED, STRIDED, check_batch, check_gemm
from tests.support.families import SMALL_FAMILIES
from tests.support.typical_configs import (
    CPU,
    DIRECT,
    GEMV,
    GEMV_UNIT,
    INDIRECT,
    MATRIX,
    SMALL,
    SMALL_CPU,
    WGMMA,
)

# Sizes that divide nothing, and small tiles: a compiler's time grows with the work-items.
TILES = replace(INDIRECT, MWG=16, NWG=16, KWG=8, MDIMA=4, NDIMB=4, MDIMC=4, NDIMC=4, LANES_M=4)
DIRECT_TILES = replace(DIRECT, WGD=16, KWGD=8, MDIMCD=4, NDIMCD=4, MDIMAD=4, NDIMBD=4, LANES_M=4)
ROWS = replace(GEMV, WGS=16, LANES_N=4)
NARROW = replace(CPU, NR=16, VW=8)
FEW = replace(CPU, MR=3, NR=8, VW=4)

#: What a product may leave out: alpha, beta, depth. beta None is for a product without an addend.
LEFT_OUT = [
    (0.5, None, 19), (0.5, -2.0, 19), (0.0, None, 19), (0.0, 0.0, 19), (0.0, -2.0, 19),
    (0.5, None, 0), (0.5, 0.0, 0), (0.5, -2.0, 0),
]  # fmt: skip

TRANSPOSED = {"a": COLUMN, "b": COLUMN, "out": COLUMN, "bias": True}
STRIDES = {"a": STRIDED, "b": STRIDED, "out": STRIDED, "activation": "silu"}
ALIGNED = {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED, "bias": True}
COMPLEX = {"dtype": "complex64", "trans_a": "C", "trans_b": "C"}
DOUBLE = {"dtype": "float64"}
HALF = {"dtype": "float16", "bias": True, "activation": "relu"}
MOVED = {"steps": "shared backwards interleaved matrix"}

#: Configurations, and the ways of a call that change the kernel's text: pairs, in which every way
#: meets the cases above.
WAYS = [
    (TILES, {}),
    (replace(TILES, FILL=2, STAGES=2, FRAGMENTS=2), TRANSPOSED),
    (replace(TILES, SLICES=2, PADLD=4), COMPLEX),
    (TILES, {"pack": PackedLayout("padded", 8, 16)}),
    (DIRECT_TILES, TRANSPOSED),
    (replace(DIRECT_TILES, STAGES=2), STRIDES),
    (replace(DIRECT_TILES, FILL=2), {}),
    (ROWS, TRANSPOSED),
    (ROWS, COMPLEX | {"bias": True}),
    (NARROW, ALIGNED),
    (replace(NARROW, PACKB=0), TRANSPOSED),
    (FEW, HALF),
    (FEW, DOUBLE),
    (NARROW, {"pack": PackedLayout("panels", 512, 16)}),
    (replace(SMALL, WGS=32), TRANSPOSED),
    (SMALL, ALIGNED),
    (SMALL, COMPLEX),
    (SMALL, MOVED),
    (SMALL_CPU, {}),
    (replace(SMALL_CPU, MR=2, NR=8, VW=4), TRANSPOSED),
    (SMALL_CPU, STRIDES),
    (SMALL_CPU, DOUBLE | {"b": COLUMN}),
    (SMALL_CPU, HALF | MOVED),
]


def check(queue, config, way, left_out=LEFT_OUT, count=None):
    """Run products, or batches of them, that leave out one thing after the other."""
    for alpha, beta, k in left_out:
        options = {"dtype": "float32"} | way | {"alpha": alpha, "config": config}
        if beta is not None:
            options |= {"beta": beta, "c": options.get("out", ROW)}
        dtype = options.pop("dtype")
        if config.family in SMALL_FAMILIES:
            check_batch(queue, 3, (7, 9, k), dtype, **options)
        elif count:
            check_batch(queue, count, (7, 21, k), dtype, **options)
        else:
            check_gemm(queue, (7, 21, k), dtype, **options)


@pytest.mark.one_in(2)
@pytest.mark.any_runtime
@pytest.mark.parametrize(("config", "way"), WAYS)
def test_every_family_of_tiles(queue, config, way):
    check(queue, config, way)


@pytest.mark.parametrize("config", [TILES, DIRECT_TILES, ROWS, NARROW], ids=lambda one: one.family)
def test_batches_of_every_family_of_tiles(queue, config):
    check(queue, config, {"b": COLUMN}, LEFT_OUT[2:], count=2)


@pytest.mark.parametrize(
    ("config", "way"),
    [
        (replace(MATRIX, STAGES=2), {"dtype": "float16", "bias": True}),
        (replace(MATRIX, STAGES=2), {"dtype": "float32", "precision": "TF32_TF32_F32_X3"}),
        (GEMV_UNIT, {"dtype": "float16", "b": COLUMN}),
    ],
    ids=["matrix", "matrix, in parts", "gemv_unit"],
)
def test_families_of_matrix_units(units, queue, config, way):
    check(queue, config, way, LEFT_OUT[1::3])


@pytest.mark.parametrize("fill", [0, 1])
def test_the_family_of_warpgroup_units(warpgroups, queue, fill):
    config = replace(WGMMA, MWG=64, NWG=64, CONSUMERS=1, STAGES=2, FILL=fill)
    check(queue, config, {"dtype": "float16", "out": ROW_ALIGNED}, LEFT_OUT[1::3])


# ------------------------------------------------------------------ without a device

H100, RDNA3 = typical_traits("sm_90"), typical_traits("gfx1100")

ELSEWHERE = {
    "wgmma": (WGMMA, "float16", H100),
    "wgmma, in parts": (replace(WGMMA, PROMOTE=2), "float32", H100),
    "matrix": (MATRIX, "float16", H100),
    "matrix, of AMD": (replace(MATRIX, STAGES=2, KWG=32), "float16", RDNA3),
    "gemv_unit": (GEMV_UNIT, "float16", H100),
    "indirect": (replace(INDIRECT, ASYNC=1, STAGES=3, SHUFFLE=1, LANES_N=4), "float32", H100),
    "direct": (replace(DIRECT, REGISTERS=64), "float16", RDNA3),
    "gemv": (replace(GEMV, STREAMB=1), "float32", H100),
    "small": (SMALL, "float16", H100),
}


def written(name, layout, k, has_c):
    """The kernel of a configuration for a product that lacks some of its terms."""
    config, dtype, traits = ELSEWHERE[name]
    shape = GemmShape(70, 130, 40, layout, batch=2 if name in SMALL_FAMILIES else None)
    problem = shape.problem(dtype, "BF16_BF16_F32_X3" if "parts" in name else None)
    problem = replace(problem, k=k, c=problem.out if has_c else None, activation="relu")
    return generate_gemm(problem, config, traits)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_kernels_for_other_devices_are_written(name):
    for layout, k, has_c in [(x, k, c) for x in ("NN", "TT") for k in (0, 40) for c in (0, 1)]:
        names = {argument.name for argument in written(name, layout, k, has_c).arguments}
        assert ("beta" in names) == has_c
        assert {"a", "b", "out", "alpha"} <= names


@pytest.mark.parametrize("name", ["wgmma", "matrix", "gemv_unit", "indirect", "gemv", "small"])
def test_kernels_for_nvidia_are_assembled(tmp_path, name):
    if missing := nvidia_compile.missing():
        pytest.skip(missing)
    assert nvidia_compile.assemble(written(name, "TT", 0, True), tmp_path).registers > 0
