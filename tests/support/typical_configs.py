"""A configuration of each family as it may be used, for tests that run no kernel."""

from pyclgemm import CpuConfig, WgmmaConfig
from pyclgemm.families.gemv.codegen import GemvConfig, GemvUnitConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig

INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=4, PADA=4, PADB=4
)
WGMMA = WgmmaConfig(MWG=128, NWG=128)
MATRIX = MatrixConfig(MWG=32, NWG=32, KWG=16, SUBGROUPS_M=2, SUBGROUPS_N=1)
GEMV_UNIT = GemvUnitConfig(MR=8, SUBGROUPS=2, VW=4, KWI=2)
GEMV = GemvConfig(MR=2, WGS=64, LANES_N=8, VW=4, KWI=2)
CPU = CpuConfig(MR=6, NR=64, KC=512, VW=16)
SMALL = SmallConfig(MWI=4, NWI=4, WGS=128)
SMALL_CPU = SmallCpuConfig(MR=6, NR=64, VW=16)
