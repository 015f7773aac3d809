"""What NVIDIA's assembler makes of kernels with inline PTX, without a device."""

from dataclasses import replace
from typing import Any

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.families.gemv.codegen import GemvConfig, GemvUnitConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.wgmma.codegen import local_bytes
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.selection.overrides import kernel_sources
from tests.support import nvidia_compile
from tests.support.facts import product_of

H100 = typical_traits("sm_90")
WHOLE: dict[str, Any] = {"reads_c": True, "bias": True, "activation": "gelu"}

WGMMA = WgmmaConfig(MWG=128, NWG=256, CONSUMERS=2, STAGES=4)
NARROW = WgmmaConfig(MWG=64, NWG=32, CONSUMERS=1, STAGES=8)
SPLIT = WgmmaConfig(MWG=128, NWG=192, CONSUMERS=2, STAGES=4, PROMOTE=2)
MMA = MatrixConfig(MWG=128, NWG=128, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
AHEAD = replace(MMA, NWG=256, SUBGROUPS_N=4, STAGES=4, FRAGMENTS=2)
DOUBLE = MatrixConfig(MWG=128, NWG=128, KWG=16, SUBGROUPS_M=2, SUBGROUPS_N=4, STAGES=3)

CASES = {
    "float16": (WGMMA, {"dtype": "float16", **WHOLE}),
    "float16, an addend": (WGMMA, {"dtype": "float16", "reads_c": True, "bias": True}),
    "float16, words": (WGMMA, {"dtype": "float16", "result_dtype": "float32", **WHOLE}),
    "bfloat16, silu": (WGMMA, {"dtype": "bfloat16", **WHOLE, "activation": "silu"}),
    "float16, k contiguous": (WGMMA, {"dtype": "float16", "trans_b": "T"}),
    "float16, odd": (WGMMA, {"dtype": "float16", "n": 4095, **WHOLE}),
    "float16, three consumers": (
        WgmmaConfig(MWG=192, NWG=128, CONSUMERS=3, STAGES=4), {"dtype": "float16", **WHOLE},
    ),
    "float16, shared": (replace(WGMMA, STAGES=3, FILL=1), {"dtype": "float16", **WHOLE}),
    "float16, copied by lanes": (
        WgmmaConfig(MWG=64, NWG=64, CONSUMERS=1, STAGES=8, TMA=0), {"dtype": "float16", **WHOLE},
    ),
    "float16, copied by lanes that need registers": (
        WgmmaConfig(MWG=192, NWG=128, CONSUMERS=3, STAGES=4, FILL=1, TMA=0),
        {"dtype": "float16", "n": 4095, "batch": 4, **WHOLE},
    ),
    "float16, copied by lanes, k contiguous": (
        replace(WGMMA, TMA=0), {"dtype": "float16", "trans_b": "T", **WHOLE},
    ),
    "int8": (WGMMA, {"dtype": "int8", "bias": True}),
    "tf32 through registers": (WGMMA, {"precision": "TF32_TF32_F32", **WHOLE}),
    "float16, narrow": (NARROW, {"dtype": "float16", **WHOLE}),
    "float16, narrow, an addend": (NARROW, {"dtype": "float16", "reads_c": True, "bias": True}),
    "float16, narrow, k contiguous": (NARROW, {"dtype": "float16", "trans_b": "T"}),
    "float16, narrow, shared": (replace(NARROW, FILL=1), {"dtype": "float16", **WHOLE}),
    "bfloat16, 96 columns": (replace(WGMMA, NWG=96), {"dtype": "bfloat16", **WHOLE}),
    "int8, narrow": (NARROW, {"dtype": "int8", "bias": True}),
    "tf32 through registers, narrow": (NARROW, {"precision": "TF32_TF32_F32", **WHOLE}),
    "split, narrow": (
        replace(NARROW, PROMOTE=2), {"precision": "BF16_BF16_F32_X6", **WHOLE},
    ),
    "split": (SPLIT, {"precision": "BF16_BF16_F32_X6", **WHOLE}),
    "mma.sync, float16": (MMA, {"dtype": "float16", **WHOLE}),
    "mma.sync, float16, a step ahead": (AHEAD, {"dtype": "float16", **WHOLE}),
    "mma.sync, float16, k contiguous": (AHEAD, {"dtype": "float16", "trans_b": "T", "n": 4104}),
    "mma.sync, float16, sums in halves": (
        AHEAD, {"dtype": "float16", "precision": "F16_F16_F16", **WHOLE},
    ),
    "mma.sync, float16, odd": (AHEAD, {"dtype": "float16", "n": 4095, **WHOLE}),
    "mma.sync, bfloat16, a step ahead": (
        AHEAD, {"dtype": "bfloat16", "trans_b": "T", "reads_c": True, "bias": True},
    ),
    "mma.sync, float16, relu": (
        AHEAD, {"dtype": "float16", "reads_c": True, "bias": True, "activation": "relu"},
    ),
    "mma.sync, tf32, a step ahead": (
        replace(MMA, STAGES=2, FRAGMENTS=2), {"precision": "TF32_TF32_F32", **WHOLE},
    ),
    "mma.sync, split": (
        replace(MMA, SUBGROUPS_N=4, STAGES=2), {"precision": "BF16_BF16_F32_X6", **WHOLE},
    ),
    "mma.sync, float16, slices": (
        MatrixConfig(MWG=16, NWG=32, KWG=128, SUBGROUPS_M=1, SUBGROUPS_N=1, STAGES=6, SLICES=4),
        {"dtype": "float16", **WHOLE},
    ),
    "mma.sync, float16, shared": (replace(AHEAD, FILL=1), {"dtype": "float16", **WHOLE}),
    "mma.sync, sums in halves, shared": (
        replace(MMA, FILL=2), {"dtype": "float16", "precision": "F16_F16_F16"},
    ),
    "mma.sync, float64, shared": (replace(DOUBLE, FILL=1), {"dtype": "float64", **WHOLE}),
    "mma.sync, tf32, element by element, shared": (
        MatrixConfig(64, 64, 32, 2, 2, STAGES=2, UNALIGNED=1, FILL=2),
        {"precision": "TF32_TF32_F32", "n": 4095, "k": 4095},
    ),
    "mma.sync, complex128, shared": (
        replace(DOUBLE, NWG=64, FILL=1), {"dtype": "complex128", "activation": None},
    ),
    "mma.sync, float16, element by element": (
        MatrixConfig(64, 64, 32, 2, 2, STAGES=2, UNALIGNED=1),
        {"dtype": "float16", "n": 4095, "k": 4095},
    ),
    "mma.sync, tf32, element by element": (
        MatrixConfig(64, 64, 32, 2, 2, STAGES=2, UNALIGNED=1),
        {"precision": "TF32_TF32_F32", "n": 4095, "k": 4095},
    ),
    "few rows, streamed": (
        GemvConfig(MR=1, WGS=512, LANES_N=8, VW=4, STREAMB=1), {"m": 1},
    ),
    "few rows of float16, streamed": (
        GemvConfig(MR=4, WGS=256, LANES_N=8, VW=8, STREAMB=1), {"m": 8, "dtype": "float16"},
    ),
    "few rows by units": (
        GemvUnitConfig(MR=8, SUBGROUPS=16, VW=2, KWI=4, STREAMB=1),
        {"m": 8, "dtype": "float16", **WHOLE},
    ),
    "few rows by units, k contiguous": (
        GemvUnitConfig(MR=32, SUBGROUPS=16, VW=2, KWI=4, STREAMB=1),
        {"m": 32, "dtype": "bfloat16", "trans_b": "T"},
    ),
    "mma.sync, complex128": (
        replace(DOUBLE, NWG=64), {"dtype": "complex128", **WHOLE, "activation": None},
    ),
    "mma.sync, complex128, a step ahead": (
        replace(DOUBLE, NWG=64, SUBGROUPS_M=4, SUBGROUPS_N=2, FRAGMENTS=2),
        {"dtype": "complex128", **WHOLE, "activation": None},
    ),
    "mma.sync, float64": (DOUBLE, {"dtype": "float64", **WHOLE}),
    "mma.sync, float64, a step ahead": (
        replace(DOUBLE, FRAGMENTS=2), {"dtype": "float64", **WHOLE},
    ),
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", CASES)
def test_no_register_is_spilled_and_no_instruction_waits(case, tmp_path):
    if missing := nvidia_compile.missing():
        pytest.skip(missing)
    config, options = CASES[case]
    product = product_of(**{"m": 4096, "n": 4096, "k": 4096, **options})
    *_, source = kernel_sources(product, config, H100)
    assembled = nvidia_compile.assemble(source, tmp_path)
    assert assembled.spilled == 0
    assert assembled.stack_bytes == 0
    # It says so where it makes warpgroup instructions wait for each other, or ignores `setmaxnreg`.
    assert assembled.complaints == ()
    assert assembled.registers * source.local_size[0] <= 64 * 1024
    if isinstance(config, WgmmaConfig):
        assert assembled.local_bytes <= local_bytes(config, 4)
        assert assembled.local_bytes <= H100.local_memory_bytes
