"""What a database file says, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..families.family import Role
from ..families.registry import family_of, violations
from ..problem.matrix import MAX_ALIGNMENT
from ..problem.shape import Layout, shape_text

#: From the most to the least specific.
LEVELS = ("device", "architecture", "vendor", "generic")

#: What a record was measured on. Each kind is looked up by itself: a single product takes no
#: record of a batch, whose tiles need not fill a device.
Kind = Literal["single", "batch", "small"]

#: Alignment of rows, in elements, that suits every vector of OpenCL C.
ALIGNED = MAX_ALIGNMENT


@dataclass(frozen=True)
class Match:
    """The devices that a file is for; a name that is None matches every device.

    Attributes
    ----------
    level : str
        How specific the file is: one of `LEVELS`.
    type : str
        "gpu" or "cpu"; an accelerator counts as a gpu.
    vendor, architecture, device : str or None
        As in `DeviceTraits` (there `device` is called `name`).
    """

    level: Literal["device", "architecture", "vendor", "generic"]
    type: Literal["gpu", "cpu"]
    vendor: str | None = None
    architecture: str | None = None
    device: str | None = None

    def fits(self, traits: DeviceTraits) -> bool:
        """Whether the file is for the device."""
        return (
            self.type == ("cpu" if traits.type == "cpu" else "gpu")
            and self.vendor in (None, traits.vendor)
            and self.architecture in (None, traits.architecture)
            and self.device in (None, traits.name)
        )

    def __str__(self) -> str:
        if self.level == "device":
            return str(self.device)
        if self.level == "architecture":
            return f"{self.vendor or self.type}/{self.architecture}"
        return f"{self.vendor if self.level == 'vendor' else 'generic'}/{self.type}"


@dataclass(frozen=True)
class Source:
    """Where the figures of a file come from: a kind, and words that `explain` prints."""

    kind: Literal["measured", "published", "default"]
    text: str


@dataclass(frozen=True)
class Threshold:
    """From where on the indirect path is faster; either condition is enough.

    Attributes
    ----------
    mnk : int or None
        Least m * n * k.
    m_or_n : int or None
        Least value of the larger of m and n.
    """

    mnk: int | None = None
    m_or_n: int | None = None

    def reached(self, m: int, n: int, k: int) -> bool:
        """Whether the indirect path is taken for these sizes."""
        return (self.mnk is not None and m * n * k >= self.mnk) or (
            self.m_or_n is not None and max(m, n) >= self.m_or_n
        )


@dataclass(frozen=True)
class Record:
    """One configuration and the product that it is for.

    Attributes
    ----------
    shape : tuple of int
        m, n, k, the result being row-major.
    config : Config
        Its family is the path.
    gflops : float or None
        What was measured at that shape.
    layout : str
        How a and b were stored, a letter each: "N" as the product has them, "T" transposed.
    alignment : int or None
        A power of two: rows of the operands and of the result started at multiples of so many
        elements. None where the matrices were contiguous, so that the sizes tell.
    batch : int or None
        How many such products were computed at once; None for a single one, and for kernels of
        small products, which compute nothing but batches, where any number of them is meant.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> print(Record((8, 9, 7), CpuConfig(MR=4, NR=8, KC=128, VW=4), layout="NT", alignment=1))
    8x9x7:NT with rows aligned to 1
    >>> print(Record((128, 128, 128), CpuConfig(MR=4, NR=8, KC=128, VW=4), batch=256))
    128x128x128*256
    """

    shape: tuple[int, int, int]
    config: Config
    gflops: float | None = None
    layout: Layout = "NN"
    alignment: int | None = None
    batch: int | None = None

    @property
    def kind(self) -> Kind:
        """What it was measured on: a single product, a batch, or a batch of small products."""
        if family_of(self.config).role is Role.SMALL_BATCH:
            return "small"
        return "single" if self.batch is None else "batch"

    @property
    def place(self) -> tuple[Kind, tuple[int, int, int], Layout, int | None, int | None]:
        """The product that it is for, as it is told here, and the kind."""
        return self.kind, self.shape, self.layout, self.alignment, self.batch

    def __str__(self) -> str:
        batch = "" if self.batch is None else f"*{self.batch}"
        aligned = "" if self.alignment is None else f" with rows aligned to {self.alignment}"
        return f"{shape_text(self.shape, self.layout)}{batch}{aligned}"


@dataclass(frozen=True)
class Entry:
    """What a file knows about one element type and arithmetic.

    Attributes
    ----------
    dtype, precision : str
        Element type by NumPy's name, arithmetic by JAX's.
    own : tuple of Record
        Its own records, in their order in the file.
    indirect_from : Threshold or None
        From where on the indirect path is taken; None where records tell the path.
    like : Entry or None
        Another entry of the file, whose own records count here too.

    Examples
    --------
    >>> from pyclgemm import GemvConfig
    >>> narrow, wide = (GemvConfig(MR=1, WGS=wgs, LANES_N=8, VW=4) for wgs in (64, 256))
    >>> both = Record((1, 512, 512), wide, 99.0), Record((1, 64, 64), wide, 9.0)
    >>> half = Entry("float16", "F16_F16_F32", both)
    >>> own = (Record((1, 64, 64), narrow, 8.0),)
    >>> entry = Entry("bfloat16", "BF16_BF16_F32", own, like=half)
    >>> [(str(record), record.config.WGS, record.gflops) for record in entry.records]
    [('1x64x64', 64, 8.0), ('1x512x512', 256, None)]
    """

    dtype: str
    precision: str
    own: tuple[Record, ...]
    indirect_from: Threshold | None = None
    like: Entry | None = None

    @property
    def name(self) -> tuple[str, str]:
        """What an entry is found by in its file: element type and arithmetic."""
        return self.dtype, self.precision

    @cached_property
    def borrowed(self) -> tuple[Record, ...]:
        """The records of `like` that count here, without their speed: it is another type's.

        Left out are those for whose place the entry has an own record of the same path, and those
        whose configuration breaks a constraint for its element type. An own record of another
        path hides nothing: what stands in where a driver refuses that path, or is looked up by
        itself, stays, behind it.
        """
        if self.like is None:
            return ()
        known = {(record.config.family, record.place) for record in self.own}
        return tuple(
            replace(record, gflops=None)
            for record in self.like.own
            if (record.config.family, record.place) not in known
            and not violations(record.config, self.dtype)
        )

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """All that count: its own, and behind them those that it borrows."""
        return (*self.own, *self.borrowed)
