"""The configurations of warpgroup units: tiles, and the registers of their work-items."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...codegen.stream_k import fan_in
from ...problem.bounds import FLAG, up_to
from .unit import FRAGMENT_ROWS, WARPGROUP

#: Registers of a work-item that copies and of one that multiplies, by the number of warpgroups that
#: multiply. Together they fill the register file (CUTLASS 3 divides it in the same way).
_REGISTERS = {2: (40, 232), 3: (32, 160)}

#: The same where lanes copy, which takes more addresses than bulk copies: with the registers above,
#: ptxas spilled up to 72 bytes of the lanes' registers in batches and with Stream-K.
_REGISTERS_OF_LANES = {2: (56, 224), 3: (56, 152)}

#: Most columns of a strip.
_STRIP_COLUMNS = 32


@dataclass(frozen=True)
class WgmmaConfig(Config):
    """NVIDIA's warpgroup units (sm_90): one warpgroup copies slabs, others multiply them.

    Persistent work-groups compute tiles in turn. A slab is 128 bytes deep (V. Thakkar et al.,
    CUTLASS 3, "Efficient GEMM in CUDA: warp specialization").

    Attributes
    ----------
    MWG, NWG : int
        Tile of a work-group: rows, and columns in multiples of 16.
    CONSUMERS : int
        Warpgroups that multiply; they share the rows of the tile.
    STAGES : int
        Slabs of each operand in local memory.
    GROUP_M : int
        Tile rows that are processed together, column by column, to share the cache.
    PROMOTE : int
        Slabs after which sums are taken out of the unit, which truncates, and are added to totals
        with rounding; 0 leaves them in the unit to the end (H. Ootomo, R. Yokota, "Recovering
        single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
        performance", IJHPCA 36(4), 2022).
    FILL : int
        As for `XgemmConfig`.
    TMA : int
        1 moves slabs and results by NVIDIA's bulk copies, which need tensor maps that each
        work-group writes first, and rows that are multiples of 16 bytes apart. 0 copies slabs by
        ``cp.async`` of 16, 8 or 4 bytes (PTX ISA) in the lanes of the copying warpgroup, and
        results by stores in the lanes that computed them: products of a few microseconds finish
        before the maps would be written, and fewer operands are packed.
    SWAP : int
        1 computes the transposed product B^T A^T, whose tiles have rows of the result in their
        columns: 72 rows fill NWG = 80, but not MWG = 128 (CUTLASS, example 55, exchanges operands
        likewise).

    See Also
    --------
    gemm : Takes one as `config`.
    MatrixConfig : Units of other devices, and of Hopper without warpgroups.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> config = WgmmaConfig(MWG=128, NWG=256, STAGES=3)
    >>> violations(config, "float16", typical_traits("sm_90"))
    []
    >>> len(violations(config, "float16", typical_traits("sm_80"))) > 0
    True
    """

    MWG: Annotated[int, up_to(256)]
    NWG: Annotated[int, tuple(range(16, 257, 16))]
    CONSUMERS: Annotated[int, (1, 2, 3)] = 2
    STAGES: Annotated[int, (2, 3, 4, 5, 6, 7, 8)] = 4
    GROUP_M: Annotated[int, up_to(1024)] = 16
    PROMOTE: Annotated[int, up_to(1024, 0)] = 0
    FILL: Annotated[int, up_to(64, 0)] = 0
    TMA: Annotated[int, FLAG] = 1
    SWAP: Annotated[int, FLAG] = 0

    family: ClassVar[str] = "wgmma"
    #: Elements in a slab of float16 or bfloat16, along k.
    DEPTH: ClassVar[int] = 64

    @property
    def swaps(self) -> bool:
        """Whether it asks for rows and columns to be exchanged."""
        return self.SWAP == 1

    @property
    def strip(self) -> int:
        """Columns of a strip: the part of a fragment whose results are computed at a time."""
        return math.gcd(self.NWG, _STRIP_COLUMNS)

    @property
    def work_items(self) -> int:
        """Work-items of a group."""
        return WARPGROUP * (1 + self.CONSUMERS)

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a work-item that copies and of one that multiplies; None if equal."""
        return (_REGISTERS if self.TMA else _REGISTERS_OF_LANES).get(self.CONSUMERS)

    @property
    def fragments(self) -> int:
        """Fragments of a warpgroup, one below the other."""
        return self.MWG // (FRAGMENT_ROWS * self.CONSUMERS)

    @property
    def own_sums(self) -> int:
        """Sums of the tile that a work-item has, of those that multiply."""
        return self.fragments * self.NWG // 2

    @property
    def fan_in(self) -> int:
        """Partial sums of a tile that are added up in one step."""
        return fan_in(self.own_sums)

    @property
    def sums(self) -> int:
        """Sums in the registers of a work-item that multiplies."""
        return self.own_sums * (2 if self.PROMOTE else 1)
