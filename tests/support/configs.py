"""Configurations in small tiles: every parameter of every family, not their product."""

from dataclasses import replace

import pytest

import pyclgemm
from pyclgemm.families.gemv.codegen import GemvUnitConfig
from pyclgemm.families.mma.config import MatrixConfig

INDIRECT = pyclgemm.XgemmConfig(
    MWG=32, NWG=32, KWG=8, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2
)
DIRECT = pyclgemm.XgemmDirectConfig(
    WGD=16, MDIMCD=8, NDIMCD=4, MDIMAD=8, NDIMBD=4, KWID=2, VWMD=2, VWND=2, PADA=2, PADB=2
)
GEMV = pyclgemm.GemvConfig(MR=2, WGS=16, LANES_N=4, VW=2)
CPU = pyclgemm.CpuConfig(MR=3, NR=16, KC=32, VW=8)

AT_ONCE = {"FILL": 2, "SWIZZLE": 4, "FRAGMENTS": 2, "SLICES": 2}
INDIRECT_CONFIGS = {
    "plain": INDIRECT,
    "scalars": replace(INDIRECT, VWM=1, VWN=1, KWI=1),
    "wide vectors": replace(INDIRECT, VWM=4, VWN=4, MDIMA=8, NDIMB=4, KWG=16),
    "caches only": replace(INDIRECT, SA=0, SB=0),
    "A through caches": replace(INDIRECT, SA=0, STRM=0),
    "B through caches": replace(INDIRECT, SB=0, STRN=0),
    "contiguous pieces": replace(INDIRECT, STRM=0, STRN=0),
    "padding": replace(INDIRECT, PADA=2, PADB=4),
    "two stages": replace(INDIRECT, STAGES=2, PADA=2),
    "lanes": replace(INDIRECT, LANES_M=4, LANES_N=2),
    "groups of rows": replace(INDIRECT, GROUP_M=3),
    "oblong": replace(
        INDIRECT, MWG=16, NWG=64, KWG=16, MDIMC=4, NDIMC=16, MDIMA=4, NDIMB=16, LANES_M=4
    ),
    "deep": replace(INDIRECT, KWG=32, KWI=8, MDIMA=4, NDIMB=2),
    "swizzle": replace(INDIRECT, SWIZZLE=4),
    "two fragments": replace(INDIRECT, STAGES=2, FRAGMENTS=2),
    "slices": replace(INDIRECT, SLICES=2, MDIMA=16, NDIMB=16),
    "serpentine": replace(INDIRECT, STAGES=2, FRAGMENTS=2, SERPENTINE=1),
    "slices through caches": replace(INDIRECT, KWG=16, SLICES=4, SA=0, SB=0, MDIMA=16, NDIMB=16),
    "slabs divided": replace(INDIRECT, FILL=3),
    "rows padded": replace(INDIRECT, PADLD=6),
    "shuffles": replace(INDIRECT, NWG=64, LANES_M=8, LANES_N=4, SHUFFLE=1),
    "past the registers": replace(INDIRECT, ASYNC=1, STAGES=3),
    "all at once": replace(INDIRECT, MDIMA=16, NDIMB=16, GROUP_M=2, STAGES=2, **AT_ONCE),
    "all at once, past the registers": replace(
        INDIRECT, MDIMA=16, NDIMB=16, STAGES=4, ASYNC=1, **AT_ONCE
    ),
}

DIRECT_CONFIGS = {
    "plain": DIRECT,
    "scalars": replace(DIRECT, VWMD=1, VWND=1, KWID=1, PADA=0, PADB=1),
    "wide vectors": replace(DIRECT, WGD=32, VWMD=4, VWND=4, PADA=4, PADB=4, MDIMAD=8, NDIMBD=8),
    "two stages": replace(DIRECT, STAGES=2),
    "lanes": replace(DIRECT, LANES_M=2, LANES_N=2),
    "shallow": replace(DIRECT, KWGD=8),
    "deep": replace(DIRECT, KWGD=32, KWID=8),
    "short runs along k": replace(DIRECT, RUN_K=1),
    "long runs along k": replace(DIRECT, RUN_K=16),
    "wide": replace(DIRECT, NWGD=32),
    "tall": replace(DIRECT, WGD=32, NWGD=8, GROUP_M=2),
    "swizzle": replace(DIRECT, SWIZZLE=4, PADA=0, PADB=0),
    "two fragments": replace(DIRECT, STAGES=2, FRAGMENTS=2),
    "slices": replace(DIRECT, SLICES=2),
    "serpentine": replace(DIRECT, SERPENTINE=1),
    "slabs divided": replace(DIRECT, FILL=3),
    "shuffles": replace(DIRECT, WGD=32, LANES_M=8, LANES_N=4, SHUFFLE=1),
    "past the registers": replace(DIRECT, ASYNC=1, STAGES=3, FILL=3),
    "all at once": replace(DIRECT, NWGD=32, GROUP_M=2, STAGES=2, **AT_ONCE),
    "all at once, past the registers": replace(DIRECT, NWGD=32, STAGES=4, ASYNC=1, **AT_ONCE),
}

GEMV_CONFIGS = {
    "plain": GEMV,
    "scalars": pyclgemm.GemvConfig(MR=1, WGS=32, LANES_N=8, VW=1, KWI=4),
    "wide vectors": pyclgemm.GemvConfig(MR=4, WGS=64, LANES_N=2, VW=8, KWI=2),
    "all work-items along k": pyclgemm.GemvConfig(MR=3, WGS=32, LANES_N=1, VW=4),
    "all work-items along the columns": pyclgemm.GemvConfig(MR=8, WGS=12, LANES_N=12, VW=4),
}

CPU_CONFIGS = {
    "plain": CPU,
    "scalars": pyclgemm.CpuConfig(MR=2, NR=3, KC=16, VW=1),
    "one row": pyclgemm.CpuConfig(MR=1, NR=32, KC=16, VW=16),
    "wide": pyclgemm.CpuConfig(MR=6, NR=32, KC=512, VW=8),
    "KC no power of two": pyclgemm.CpuConfig(MR=4, NR=8, KC=36, VW=4),
    "blocks of rows": replace(CPU, MC=6),
    "B where it lies": replace(CPU, PACKB=0),
    "B where it lies, in scalars": pyclgemm.CpuConfig(MR=2, NR=3, KC=16, VW=1, PACKB=0),
    "no prefetching": replace(CPU, PREFETCHB=0, PREFETCHC=0),
}

BASES = {"indirect": INDIRECT, "direct": DIRECT, "gemv": GEMV, "cpu": CPU}
EVERY_CONFIG = [
    pytest.param(config, id=f"{config.family}: {name}")
    for configs in (INDIRECT_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, CPU_CONFIGS)
    for name, config in configs.items()
]
EVERY_FAMILY = pytest.mark.parametrize("config", BASES.values(), ids=BASES)

MATRIX = MatrixConfig(MWG=32, NWG=32, KWG=16, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2, GROUP_M=2)
SPLIT_PRECISIONS = ("TF32_TF32_F32_X3", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9")
FLOAT32_PRECISIONS = ("TF32_TF32_F32", "BF16_BF16_F32", *SPLIT_PRECISIONS)

WGMMA = pyclgemm.WgmmaConfig(MWG=64, NWG=64, CONSUMERS=1, STAGES=2, GROUP_M=2)

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
