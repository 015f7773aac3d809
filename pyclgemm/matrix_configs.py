"""The configurations of the kernels for matrix units, by the names of CLBlast and Triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .kernel_configs import BaseConfig


@dataclass(frozen=True)
class MatrixConfig(BaseConfig):
    """Matrix units: the sub-groups of a work-group multiply fragments out of local memory.

    Attributes
    ----------
    MWG, NWG, KWG : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time.
    SUBGROUPS_M, SUBGROUPS_N : int
        Sub-groups along the rows and the columns of the tile.
    STAGES : int
        Slabs of each operand in local memory, of which all but one are on their way.
    GROUP_M : int
        Tile rows that are walked together, column by column, for the cache.
    FRAGMENTS : int
        2 loads the fragments of the next depth while those of one are multiplied, across the
        end of a slab too.
    SLICES : int
        As for `XgemmConfig`: so many times the sub-groups of a tile, each of whose slices
        multiplies its own part of every slab's depth; their sums are added in local memory.
    UNALIGNED : int
        1 reads operands whose rows do not lie in pieces of 16 bytes where they are, through
        registers, by vectors as wide as they allow or element by element; 0 has them packed first.
        What is split into parts, or rounded to bfloat16, is packed in any case.
    FILL : int
        As for `XgemmConfig`: 0 gives every tile to one work-group, else so many work-groups per
        compute unit divide the slabs of all tiles.
    """

    MWG: int
    NWG: int
    KWG: int
    SUBGROUPS_M: int
    SUBGROUPS_N: int
    STAGES: int = 3
    GROUP_M: int = 8
    FRAGMENTS: int = 1
    SLICES: int = 1
    UNALIGNED: int = 0
    FILL: int = 0

    family: ClassVar[str] = "matrix"

    @property
    def tile_subgroups(self) -> int:
        """Sub-groups that cover the tile: those of one slice."""
        return self.SUBGROUPS_M * self.SUBGROUPS_N

    @property
    def subgroups(self) -> int:
        """Sub-groups of a work-group."""
        return self.tile_subgroups * self.SLICES

    @property
    def slice_depth(self) -> int:
        """Depth of the part of a slab that a sub-group multiplies."""
        return self.KWG // self.SLICES


@dataclass(frozen=True)
class WgmmaConfig(BaseConfig):
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
        As for `XgemmConfig`: 0 gives every tile to one work-group, else so many work-groups per
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
