"""Configurations for matrix units in small tiles, and the precisions that units compute in."""

from dataclasses import replace

from pyclgemm.families.gemv.codegen import GemvUnitConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.wgmma.config import WgmmaConfig
from tests.support.checks import COLUMN_ALIGNED, ROW_ALIGNED

ALIGNED = (ROW_ALIGNED, COLUMN_ALIGNED)

MATRIX = MatrixConfig(MWG=32, NWG=32, KWG=16, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2, GROUP_M=2)
SPLIT_PRECISIONS = ("TF32_TF32_F32_X3", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9")
FLOAT32_PRECISIONS = ("TF32_TF32_F32", "BF16_BF16_F32", *SPLIT_PRECISIONS)

WGMMA = WgmmaConfig(MWG=64, NWG=64, CONSUMERS=1, STAGES=2, GROUP_M=2)
#: Rows of B, and of results of 2 bytes, are 64 bytes of a tile.
WGMMA_NARROW = replace(WGMMA, NWG=32)
WGMMA_PRECISIONS = {
    "float16": ("F16_F16_F32",),
    "bfloat16": ("BF16_BF16_F32",),
    "int8": ("I8_I8_I32",),
    "float32": (
        "TF32_TF32_F32", "TF32_TF32_F32_X3",
        "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9",
    ),
}  # fmt: skip
WGMMA_CASES = [(dtype, name) for dtype, names in WGMMA_PRECISIONS.items() for name in names]

GEMV_UNIT = GemvUnitConfig(MR=8, SUBGROUPS=2, VW=4, KWI=2)
GEMV_UNIT_CONFIGS = {
    "plain": GEMV_UNIT,
    "narrow": replace(GEMV_UNIT, VW=2, KWI=1),
    "wide": replace(GEMV_UNIT, VW=8),
    "long runs": replace(GEMV_UNIT, KWI=4, SUBGROUPS=4),
    "two fragments of rows": replace(GEMV_UNIT, MR=16, VW=2),
    "one sub-group": replace(GEMV_UNIT, SUBGROUPS=1),
    "streamed": replace(GEMV_UNIT, STREAMB=1),
    "all at once": GemvUnitConfig(MR=16, SUBGROUPS=4, VW=8, KWI=4, STREAMB=1),
}
