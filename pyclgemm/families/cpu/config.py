"""The CPU family's configurations, whether a kernel reads B in place, and registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...device.traits import DeviceTraits
from ...problem.bounds import FLAG, VECTOR_WIDTHS, up_to
from ...problem.problem import GemmProblem, MatrixLayout

#: Part of the vector registers that the sums of dot products take; others hold rows of A and
#: columns of B. With 24 of 32 registers kernels were up to 1.2 times as fast as with 12.
_SUMMING = 3 / 4

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


def vector_registers(traits: DeviceTraits) -> int:
    """Vector registers of the instruction set: 32 with AVX-512 and on Arm, else 16."""
    is_older = traits.architecture.startswith("x86-64") and traits.vector_bytes < 64
    return 16 if is_older or not traits.architecture else 32


def dot_columns(config: CpuConfig, is_complex: bool, traits: DeviceTraits) -> int:
    """Columns of B whose dot products with a tile's rows are summed at once."""
    sums = config.MR * (2 if is_complex else 1)
    most = int(_SUMMING * vector_registers(traits))
    divisors = [count for count in range(1, config.NR + 1) if config.NR % count == 0]
    return max(count for count in divisors if count * sums <= most or count == 1)
