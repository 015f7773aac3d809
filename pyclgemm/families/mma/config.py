"""The configurations of the kernels for matrix units, by the names of CLBlast and Triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...codegen.config import Config


@dataclass(frozen=True)
class MatrixConfig(Config):
    """Matrix units: the sub-groups of a work-group multiply fragments out of local memory.

    Attributes
    ----------
    MWG, NWG, KWG : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time.
    SUBGROUPS_M, SUBGROUPS_N : int
        Sub-groups along the rows and the columns of the tile.
    STAGES : int
        Slabs of each operand in local memory; all but one are on their way.
    GROUP_M : int
        Tile rows that are walked together, column by column, for the cache.
    FRAGMENTS : int
        2 loads the fragments of the next depth while those of one are multiplied, across the
        end of a slab too.
    SLICES : int
        As for `XgemmConfig`: copies of a tile's sub-groups. Each slice multiplies its own part of
        every slab's depth, and their sums are added in local memory.
    UNALIGNED : int
        1 reads operands whose rows do not lie in 16-byte vectors where they are, through
        registers, by vectors as wide as they allow or element by element; 0 has them packed first.
        What is split into terms, or rounded to bfloat16, is packed in any case.
    FILL : int
        As for `XgemmConfig`: 0 gives every tile to one work-group, else `FILL` work-groups per
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
