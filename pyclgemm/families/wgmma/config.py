"""The parameters of the wgmma kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...codegen.config import Config


@dataclass(frozen=True)
class WgmmaConfig(Config):
    """NVIDIA's warpgroup units (sm_90): one warpgroup copies slabs, others multiply them.

    Persistent work-groups walk over the tiles. A slab is 128 bytes deep (V. Thakkar et al.,
    CUTLASS 3, "Efficient GEMM in CUDA: warp specialization").

    Attributes
    ----------
    MWG, NWG : int
        Tile of a work-group: rows and columns.
    CONSUMERS : int
        Warpgroups that multiply; they share the rows of the tile.
    STAGES : int
        Slabs of each operand in local memory.
    GROUP_M : int
        Tile rows that are walked together, column by column, for the cache.
    PROMOTE : int
        Slabs after which sums leave the unit, which cuts off what it cannot hold, and are added
        to others with rounding; 0 leaves them there to the end (H. Ootomo, R. Yokota,
        "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
        theoretical peak performance", IJHPCA 36(4), 2022).
    FILL : int
        As for `XgemmConfig`: 0 gives every tile to one work-group, else `FILL` work-groups per
        compute unit divide the slabs of all tiles.
    TMA : int
        1 lets NVIDIA's bulk copies move slabs and results, by tensor maps that each work-group
        writes first; 0 leaves slabs to the lanes of the warpgroup that copies, by ``cp.async`` of
        16 bytes (PTX ISA), and results to those that formed them: products of a few microseconds
        are sooner done than the maps are written.
    """

    MWG: int
    NWG: int
    CONSUMERS: int = 2
    STAGES: int = 4
    GROUP_M: int = 16
    PROMOTE: int = 0
    FILL: int = 0
    TMA: int = 1

    family: ClassVar[str] = "wgmma"
    #: Elements in a slab of float16 or bfloat16, along k.
    DEPTH: ClassVar[int] = 64
