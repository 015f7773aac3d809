"""Products that leave something out, in every family: no depth, alpha = 0, no addend, beta = 0.

What a kernel leaves out it must not name. Each case is built and run; the kernels that only a
vendor's compiler takes are written, and some of them assembled.
"""

from dataclasses import replace
from typing import Any

import pytest

from pyclgemm.codegen.source import KernelSource
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

#: What a product may leave out: alpha, beta, depth. beta None is for a product without an addend.
LEFT_OUT = [
    (0.5, None, 19),
    (0.5, -2.0, 19),
    (0.0, None, 19),
    (0.0, 0.0, 19),
    (0.0, -2.0, 19),
    (0.5, None, 0),
    (0.5, 0.0, 0),
    (0.5, -2.0, 0),
]

#: For each family its configurations, and the ways of a call that change the kernel's text: pairs,
#: in which every way meets the cases above.
PLAIN: dict[str, Any] = {}
TRANSPOSED: dict[str, Any] = {"a": COLUMN, "b": COLUMN, "out": COLUMN, "bias": True}
STRIDES: dict[str, Any] = {"a": STRIDED, "b": STRIDED, "out": STRIDED, "activation": "silu"}
ALIGNED: dict[str, Any] = {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED, "bias": True}
COMPLEX: dict[str, Any] = {"dtype": "complex64", "trans_a": "C", "trans_b": "C"}
DOUBLE: dict[str, Any] = {"dtype": "float64"}
HALF: dict[str, Any] = {"dtype": "float16", "bias": True, "activation": "relu"}
PACKED: dict[str, Any] = {"pack": PackedLayout("padded", 8, 16)}

WAYS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "indirect": [
        (TILES, PLAIN),
        (replace(TILES, FILL=2, STAGES=2, FRAGMENTS=2), TRANSPOSED),
        (replace(TILES, SLICES=2, PADLD=4), COMPLEX),
        (TILES, PACKED),
    ],
    "direct": [
        (DIRECT_TILES, TRANSPOSED),
        (replace(DIRECT_TILES, STAGES=2), STRIDES),
        (replace(DIRECT_TILES, FILL=2), PLAIN),
    ],
    "gemv": [
        (replace(GEMV, WGS=16, LANES_N=4), TRANSPOSED),
        (replace(GEMV, WGS=16, LANES_N=4), COMPLEX | {"bias": True}),
    ],
    "cpu": [
        (replace(CPU, NR=16, VW=8), ALIGNED),
        (replace(CPU, NR=16, VW=8, PACKB=0), TRANSPOSED),
        (replace(CPU, MR=3, NR=8, VW=4), HALF),
        (replace(CPU, MR=3, NR=8, VW=4), DOUBLE),
        (replace(CPU, NR=16, VW=8), {"pack": PackedLayout("panels", 512, 16)}),
    ],
    "small": [
        (replace(SMALL, WGS=32), TRANSPOSED),
        (SMALL, ALIGNED),
        (SMALL, COMPLEX),
        (SMALL, {"steps": "shared backwards interleaved matrix"}),
    ],
    "small_cpu": [
        (SMALL_CPU, PLAIN),
        (replace(SMALL_CPU, MR=2, NR=8, VW=4), TRANSPOSED),
        (SMALL_CPU, STRIDES),
        (SMALL_CPU, DOUBLE | {"b": COLUMN}),
        (SMALL_CPU, HALF | {"steps": "shared backwards interleaved matrix"}),
    ],
}


def check(queue: Any, config: Any, way: dict[str, Any], alpha: float, beta: Any, k: int) -> None:
    """Run one product, or a batch of it where the family computes nothing else."""
    options = {"dtype": "float32"} | way | {"alpha": alpha, "config": config}
    if beta is not None:
        options |= {"beta": beta, "c": options.get("out", ROW)}
    dtype = options.pop("dtype")
    if config.family in SMALL_FAMILIES:
        check_batch(queue, 3, (7, 9, k), dtype, **options)
    else:
        check_gemm(queue, (7, 21, k), dtype, **options)


@pytest.mark.any_runtime
@pytest.mark.parametrize(
    ("config", "way"),
    [
        pytest.param(config, way, id=f"{family} {number}")
        for family, ways in WAYS.items()
        for number, (config, way) in enumerate(ways)
    ],
)
def test_every_family_of_tiles(queue, config, way):
    for alpha, beta, k in LEFT_OUT:
        check(queue, config, way, alpha, beta, k)


@pytest.mark.parametrize("family", ["indirect", "direct", "gemv", "cpu"])
def test_batches_of_every_family_of_tiles(queue, family):
    config, _ = WAYS[family][0]
    for alpha, beta, k in LEFT_OUT[2:]:
        options = {} if beta is None else {"beta": beta, "c": ROW}
        check_batch(queue, 2, (7, 21, k), b=COLUMN, config=config, alpha=alpha, **options)


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
    for alpha, beta, k in LEFT_OUT[1::3]:
        check(queue, config, way, alpha, beta, k)


@pytest.mark.parametrize("fill", [0, 1])
def test_the_family_of_warpgroup_units(warpgroups, queue, fill):
    config = replace(WGMMA, MWG=64, NWG=64, CONSUMERS=1, STAGES=2, FILL=fill)
    for alpha, beta, k in LEFT_OUT[1::3]:
        check(queue, config, {"dtype": "float16", "out": ROW_ALIGNED}, alpha, beta, k)


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


def written(
    name: str, *, k: int, c: bool, batch: int | None = None, layout: Any = "NN"
) -> KernelSource:
    """The kernel of a configuration for a product that lacks some of its terms."""
    config, dtype, traits = ELSEWHERE[name]
    precision = "BF16_BF16_F32_X3" if "parts" in name else None
    shape = GemmShape(70, 130, 40, layout, batch=batch)
    problem = shape.problem(dtype, precision)
    problem = replace(problem, k=k, c=problem.out if c else None, activation="relu")
    return generate_gemm(problem, config, traits)


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("c", [False, True], ids=["no addend", "addend"])
@pytest.mark.parametrize("k", [0, 40])
def test_kernels_for_other_devices_are_written(name, c, k):
    batch = 2 if name in SMALL_FAMILIES else None
    for layout in ("NN", "TT"):
        source = written(name, k=k, c=c, batch=batch, layout=layout)
        names = {argument.name for argument in source.arguments}
        assert ("beta" in names) == c
        assert {"a", "b", "out", "alpha"} <= names


@pytest.mark.parametrize("name", ["wgmma", "matrix", "gemv_unit", "indirect", "gemv", "small"])
def test_kernels_for_nvidia_are_assembled(tmp_path, name):
    if missing := nvidia_compile.missing():
        pytest.skip(missing)
    source = written(name, k=0, c=True, batch=2 if name in SMALL_FAMILIES else None, layout="TT")
    assert nvidia_compile.assemble(source, tmp_path).registers > 0
