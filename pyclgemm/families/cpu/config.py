"""The CPU family's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...codegen.config import Config
from ...problem.problem import GemmProblem


@dataclass(frozen=True)
class CpuConfig(Config):
    """CPU devices: one work-item a core, explicit vectors, operands packed by the item.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Columns of the register tile, in elements.
    KC : int
        Depth of a block of k; a packed panel of B is KC x NR.
    VW : int
        Vector width in elements; `NR` is a multiple of it. A complex element counts once
        and takes two components.
    MC : int
        Rows of A that are packed at a time, about: blocks are equally long. B is packed
        once for each, and A should stay in the second-level cache.
    PACKB : int
        0 reads B where it lies, unless it must be conjugated: few rows are too few to pay
        packing for. A column-major B is multiplied by dot products along k, in each of which
        the vectors of a whole block of `KC` are summed.
    PREFETCHB : int
        1 fetches the next panel of B, before it is packed, while this one is multiplied.
    PREFETCHC : int
        1 fetches a tile of the result while its sums are formed.
    """

    MR: int
    NR: int
    KC: int
    VW: int
    MC: int = 512
    PACKB: int = 1
    PREFETCHB: int = 1
    PREFETCHC: int = 1

    family: ClassVar[str] = "cpu"

    @property
    def vectors(self) -> int:
        """Vectors in a row of the register tile."""
        return self.NR // self.VW


def reads_b_in_place(problem: GemmProblem, config: CpuConfig) -> bool:
    """Whether the kernel multiplies by B where it lies, instead of by panels of it."""
    return not (problem.packed or config.PACKB or problem.b.conjugate)
