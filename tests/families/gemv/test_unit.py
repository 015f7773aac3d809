"""Few rows by matrix units that lanes feed from memory, with the instructions emulated."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError
from pyclgemm.families.gemv.codegen import generate_gemv_unit
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.select import select
from pyclgemm.tuning.search import families_of, suits
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

H100 = typical_traits("sm_90")
TYPES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("b", [ROW_ALIGNED, COLUMN_ALIGNED], ids=["row", "column"])
@pytest.mark.parametrize("sizes", [(8, 64, 128), (5, 70, 200), (19, 35, 33)], ids=str)
def test_configurations(units, queue, config, b, sizes):
    check_gemm(queue, sizes, "float16", a=ROW_ALIGNED, b=b, config=config)


@TYPES
@pytest.mark.parametrize(
    ("a", "b"),
    [(ROW_ALIGNED, ROW), (ROW, COLUMN), (COLUMN, ROW_ALIGNED), (STRIDED, STRIDED),
     (COLUMN_ALIGNED, COLUMN_ALIGNED)],
)  # fmt: skip
def test_layouts(units, queue, dtype, a, b):
    check_gemm(queue, (7, 37, 75), dtype, a=a, b=b, out=ROW, config=CONFIG)


WHOLE = {"c": ROW, "bias": True, "activation": "gelu", "alpha": 0.5, "beta": -1.5}
PACKED = [PackedLayout("padded", 16, 32), PackedLayout("padded", 16, 1, along_k=True)]
EPILOGUES = [
    ((9, 37, 75), dtype, options | {"out": out})
    for dtype in ("float16", "bfloat16")
    for out in (ROW_ALIGNED, STRIDED, COLUMN)
    for options in (WHOLE, {"in_place": True, "beta": 2.0})
]
OTHERS = [
    *((sizes, "float16", {"c": ROW, "beta": 1.0, "bias": True})
      for sizes in [(1, 1, 1), (37, 3, 75), (300, 1, 20), (5, 7, 0)]),
    ((5, 37, 75), "float16", {"result": "float32", "alpha": 1 / 3}),
    *(((5, 37, 75), "float16", {"pack": packed}) for packed in PACKED),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "dtype", "options"), EPILOGUES + OTHERS)
def test_epilogues_and_sizes_and_packed_operands(units, queue, sizes, dtype, options):
    check_gemm(queue, sizes, dtype, config=CONFIG, **options)


def test_a_batch(units, queue):
    steps = "apart shared apart apart"
    check_batch(queue, 3, (5, 37, 75), "float16", config=CONFIG, bias=True, steps=steps)


# -------------------------------------------------------------------------- without a device


@pytest.mark.parametrize(("b", "loads"), [("N", 8), ("T", 4)])
def test_b_is_loaded_by_vectors_and_passes_local_memory_by(b, loads):
    problem = GemmShape(8, 512, 512, f"N{b}").problem("float16")
    text = generate_gemv_unit(problem, replace(CONFIG, STREAMB=1), H100).text
    assert text.count("load_streamed(b") == 1
    assert "b_local" not in text and "barrier" not in text[: text.index("work-items along k")]
    kind = {"N": "v2", "T": "v4"}[b]  # 4 columns of 2 bytes, or 8 depths
    assert f"L2::128B.{kind}.u32" in text
    odd = GemmShape(8, 511, 511, f"N{b}").problem("float16")
    assert "load_streamed" not in generate_gemv_unit(odd, replace(CONFIG, STREAMB=1), H100).text


@pytest.mark.parametrize(
    ("shape", "dtype", "precision", "architecture"),
    [
        (GemmShape(8, 8, 8), "float16", "F16_F16_F16", "sm_90"),
        (GemmShape(8, 8, 8), "float32", "BF16_BF16_F32", "sm_90"),
        (GemmShape(8, 8, 8), "float16", None, "gfx1100"),
        (GemmShape(8, 8, 8), "float16", None, "sm_75"),
    ],
)
def test_what_it_does_not_compute(shape, dtype, precision, architecture):
    traits = typical_traits(architecture)
    with pytest.raises(ConfigError):
        select(shape.problem(dtype, precision), traits, load_database(), CONFIG)
    families = families_of(traits, dtype, shape.problem(dtype, precision).precision)
    assert "gemv_unit" not in families


@TYPES
def test_the_tuner_tries_it_on_few_rows(dtype):
    few, many = (GemmShape(m, 512, 512).problem(dtype) for m in (8, 512))
    assert "gemv_unit" in families_of(H100, dtype, few.precision)
    assert suits("gemv_unit", few, H100) and not suits("gemv_unit", many, H100)
