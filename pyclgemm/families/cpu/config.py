"""The CPU family's configurations, and whether a kernel reads B in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...problem.bounds import FLAG, VECTOR_WIDTHS, up_to
from ...problem.problem import GemmProblem, MatrixLayout

#: Vectors between rows whose multiples are avoided.
_FEW_SETS = 8


@dataclass(frozen=True)
class CpuConfig(Config):
    """CPU devices: one work-item for each core, which packs operands; explicit vectors.

    Its blocks are those of K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix
    Multiplication", ACM TOMS 34(3), 2008.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Columns of the register tile, in elements.
    KC : int
        Depth of a block of k, of int8 in pairs; a packed panel of B is KC x NR. It is
        a multiple of `VW` or divides it.
    VW : int
        Vector width in elements; `NR` is a multiple of it. A complex element counts once
        and takes two components.
    MC : int
        About the rows of A that are packed at a time: blocks have equal lengths. B is packed
        once for each block. A block of A should stay in the second-level cache.
    PACKB : int
        0 reads B where it lies, unless it must be conjugated: with few rows packing does not
        pay. A column-major B is then multiplied by dot products along k; each sums the vectors
        of a whole block of `KC`.
    PREFETCHB, PREFETCHC : int
        1 prefetches, while a panel of B is multiplied, the next panel before it is packed; and a
        tile of the result while its sums are formed.

    See Also
    --------
    gemm : Takes one as `config`.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> config = CpuConfig(MR=4, NR=16, KC=64, VW=8)
    >>> violations(config, "float32", typical_traits("x86-64-v3"))
    []
    """

    MR: Annotated[int, up_to(64)]
    NR: Annotated[int, up_to(1024)]
    KC: Annotated[int, up_to(4096)]
    VW: Annotated[int, VECTOR_WIDTHS]
    MC: Annotated[int, up_to(2**15)] = 512
    PACKB: Annotated[int, FLAG] = 1
    PREFETCHB: Annotated[int, FLAG] = 1
    PREFETCHC: Annotated[int, FLAG] = 1

    family: ClassVar[str] = "cpu"

    @property
    def vectors(self) -> int:
        """Vectors in a row of the register tile."""
        return self.NR // self.VW

    @property
    def row_step(self) -> int:
        """Elements from a row of a packed A to the next.

        Rows whose distance is a multiple of many vectors fall into few sets of a cache, and evict
        one another: 12 rows, 4096 bytes apart, took 1.3 times as long.
        """
        return self.KC + (self.VW if self.KC % (_FEW_SETS * self.VW) == 0 else 0)


def reads_b_in_place(problem: GemmProblem, config: CpuConfig) -> bool:
    """Whether the kernel reads B in place instead of packed panels."""
    return is_read_in_place(problem.b, problem.packed is not None, config)


def is_read_in_place(b: MatrixLayout, packed: bool, config: CpuConfig) -> bool:
    """The same by the layout of B, and whether B was packed ahead."""
    return not (packed or config.PACKB or b.conjugate)
