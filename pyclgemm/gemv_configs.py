"""The configurations of the kernels for few rows or columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .kernel_configs import BaseConfig


@dataclass(frozen=True)
class GemvConfig(BaseConfig):
    """Few rows, or few columns: B is read once, where it lies, and k divided among work-items.

    Attributes
    ----------
    MR : int
        Rows of A that a work-group multiplies with its columns of B.
    WGS : int
        Work-items of a group.
    LANES_N : int
        Work-items along the columns; the ``WGS / LANES_N`` others divide k.
    VW : int
        Columns of a work-item, and depths of k that it takes at a time, in elements.
    KWI : int
        Unrolling of the loop over k: loads that a work-item has under way.
    STREAMB : int
        1 reads the vectors of B past the first-level cache, by whole lines (NVIDIA's
        ``ld.global.nc.L1::no_allocate.L2::128B``): no element is read twice by a work-group.
    """

    MR: int
    WGS: int
    LANES_N: int
    VW: int
    KWI: int = 1
    STREAMB: int = 0

    family: ClassVar[str] = "gemv"

    @property
    def columns(self) -> int:
        """Columns of a work-group."""
        return self.LANES_N * self.VW

    @property
    def lanes_k(self) -> int:
        """Work-items along k."""
        return self.WGS // self.LANES_N


@dataclass(frozen=True)
class GemvUnitConfig(BaseConfig):
    """Few rows, or few columns, by matrix units: B goes from memory to the registers of the lanes.

    Local memory is passed by, for no element of B is read twice by a work-group.

    Attributes
    ----------
    MR : int
        Rows of A that a work-group multiplies with its columns of B; in fragments of 8.
    SUBGROUPS : int
        Sub-groups of a work-group, which divide k.
    VW : int
        Columns of a lane, of which there are 8 side by side.
    KWI : int
        Fragments along k that a sub-group loads before it multiplies them.
    STREAMB : int
        As for `GemvConfig`.
    """

    MR: int
    SUBGROUPS: int
    VW: int
    KWI: int = 1
    STREAMB: int = 0

    family: ClassVar[str] = "gemv_unit"

    @property
    def columns(self) -> int:
        """Columns of a work-group."""
        return 8 * self.VW

    @property
    def run(self) -> int:
        """Neighbouring depths of a lane, of which there are 4 along k."""
        return 4 * self.KWI

    @property
    def depth(self) -> int:
        """Depths that a work-group multiplies at a time."""
        return 4 * self.run * self.SUBGROUPS
