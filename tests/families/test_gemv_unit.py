"""Few rows by matrix units that lanes feed from memory, with the instructions emulated."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.families.gemv.codegen import generate_gemv_unit
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from tests.support.checks import (
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_batch,
    check_gemm,
)
from tests.support.configs import GEMV_UNIT as CONFIG
from tests.support.configs import GEMV_UNIT_CONFIGS as CONFIGS


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("b", [ROW_ALIGNED, COLUMN_ALIGNED], ids=["row", "column"])
@pytest.mark.parametrize("sizes", [(8, 64, 128), (5, 70, 200), (19, 35, 33)], ids=str)
def test_configurations(units, queue, config, b, sizes):
    check_gemm(queue, sizes, "float16", a=ROW_ALIGNED, b=b, config=config)


WHOLE = {"c": ROW, "bias": True, "activation": "gelu", "alpha": 0.5, "beta": -1.5}
PRODUCTS = [
    *(((7, 37, 75), dtype, {"a": a, "b": b})
      for dtype in ("float16", "bfloat16")
      for a, b in ((ROW_ALIGNED, ROW), (ROW, COLUMN), (COLUMN, ROW_ALIGNED), (STRIDED, STRIDED),
                   (COLUMN_ALIGNED, COLUMN_ALIGNED))),
    *(((9, 37, 75), dtype, options | {"out": out})
      for dtype in ("float16", "bfloat16") for out in (ROW_ALIGNED, STRIDED, COLUMN)
      for options in (WHOLE, {"in_place": True, "beta": 2.0})),
    *((sizes, "float16", {"c": ROW, "beta": 1.0, "bias": True})
      for sizes in ((1, 1, 1), (37, 3, 75), (300, 1, 20), (5, 7, 0))),
    ((5, 37, 75), "float16", {"result": "float32", "alpha": 1 / 3}),
    *(((7, 21, k), "float16", {"b": COLUMN, "alpha": alpha, "beta": -2.0, "c": ROW})
      for alpha, k in ((0.5, 19), (0.0, 19), (0.5, 0))),
    *(((5, 37, 75), "float16", {"pack": packed})
      for packed in (PackedLayout("padded", 16, 32), PackedLayout("padded", 16, 1, along_k=True))),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "dtype", "options"), PRODUCTS)
def test_products(units, queue, sizes, dtype, options):
    check_gemm(queue, sizes, dtype, config=CONFIG, **options)


def test_a_batch(units, queue):
    steps = "apart shared apart apart"
    check_batch(queue, 3, (5, 37, 75), "float16", config=CONFIG, bias=True, steps=steps)


@pytest.mark.parametrize(("b", "kind"), [("N", "v2"), ("T", "v4")])
def test_b_is_loaded_by_vectors_and_passes_local_memory_by(b, kind):
    """Of 4 columns of 2 bytes, or of 8 depths."""
    streamed = replace(CONFIG, STREAMB=1)
    even, odd = (
        generate_gemv_unit(
            GemmShape(8, size, size, f"N{b}").problem("float16"), streamed, typical_traits("sm_90")
        ).text
        for size in (512, 511)
    )
    assert even.count("load_streamed(b") == 1
    assert "b_local" not in even and "barrier" not in even[: even.index("work-items along k")]
    assert f"L2::128B.{kind}.u32" in even
    assert "load_streamed" not in odd
