"""The configurations of the kernels for batches of small products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .kernel_configs import BaseConfig


@dataclass(frozen=True)
class SmallConfig(BaseConfig):
    """Batches of small products on GPUs: a work-group takes whole products, several if they fit.

    Attributes
    ----------
    MWI, NWI : int
        Rows and columns of a work-item's tile.
    WGS : int
        Work-items of a group, about: as many products as they suffice for, at least one.
    KWI : int
        Unrolling of the loop over k, whose steps are vectors.
    """

    MWI: int
    NWI: int
    WGS: int
    KWI: int = 2

    family: ClassVar[str] = "small"


@dataclass(frozen=True)
class SmallCpuConfig(BaseConfig):
    """Batches of small products on CPUs: a work-item computes one after the other, unpacked.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Most columns of it, in elements.
    VW : int
        Most elements of a vector; columns that are left take narrower ones.
    """

    MR: int
    NR: int
    VW: int

    family: ClassVar[str] = "small_cpu"
