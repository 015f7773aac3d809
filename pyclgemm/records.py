"""What a database file says, as frozen dataclasses, and their JSON form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from .config import SMALL_FAMILIES, Config, config_from_dict
from .constraints import violations
from .device import DeviceTraits
from .errors import ConfigError, DatabaseError
from .gemm_shape import Layout, shape_text

#: From the most to the least specific.
LEVELS = ("device", "architecture", "vendor", "generic")

#: What a record was measured on. Each kind is looked up by itself: a single product takes no
#: record of a batch, whose tiles need not fill a device.
Kind = Literal["single", "batch", "small"]

#: Alignment of rows, in elements, that suits every vector of OpenCL C.
ALIGNED = 16


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
    >>> from pyclgemm.config import CpuConfig
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
        if self.config.family in SMALL_FAMILIES:
            return "small"
        return "single" if self.batch is None else "batch"

    def __str__(self) -> str:
        batch = "" if self.batch is None else f"*{self.batch}"
        aligned = "" if self.alignment is None else f" with rows aligned to {self.alignment}"
        return f"{shape_text(self.shape, self.layout)}{batch}{aligned}"


@dataclass(frozen=True)
class Entry:
    """What a file knows about one element type and arithmetic."""

    dtype: str
    precision: str
    records: tuple[Record, ...]
    indirect_from: Threshold | None = None


@dataclass(frozen=True)
class DatabaseFile:
    """One file; `entries` are made from its JSON document when they are first asked for.

    Attributes
    ----------
    path : pathlib.Path
        Where it was read from, or is to be written.
    document : dict
        Its content, in the form that ``databases/schema.json`` describes.
    built_in : bool
        Whether it ships with the library.
    """

    path: Path
    document: dict[str, Any] = field(repr=False, hash=False)
    built_in: bool = False

    @classmethod
    def make(
        cls, path: Path, match: Match, source: Source, entries: Sequence[Entry]
    ) -> DatabaseFile:
        """Build a file from its parts."""
        document = {
            "schema": 1,
            "match": _without_none(vars(match)),
            "source": dict(vars(source)),
            "entries": [_entry_document(entry) for entry in entries],
        }
        return cls(path, document)

    @cached_property
    def match(self) -> Match:
        """The devices that it is for."""
        return Match(**self.document["match"])

    @cached_property
    def source(self) -> Source:
        """Where its figures come from."""
        return Source(**self.document["source"])

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Its entries; `DatabaseError` if a configuration breaks a constraint."""
        return tuple(
            _make_entry(entry, f"{self.path}: $.entries[{index}]")
            for index, entry in enumerate(self.document["entries"])
        )

    def __str__(self) -> str:
        place = "" if self.built_in else f" in {self.path}"
        return f"{self.match}{place} ({self.source.text})"


def _make_entry(document: dict[str, Any], place: str) -> Entry:
    dtype = document["dtype"]
    threshold = document.get("indirect_from")
    return Entry(
        dtype,
        document["precision"],
        tuple(
            _make_record(record, dtype, f"{place}.records[{index}]")
            for index, record in enumerate(document["records"])
        ),
        Threshold(**threshold) if threshold is not None else None,
    )


def _make_record(document: dict[str, Any], dtype: str, place: str) -> Record:
    try:
        config = config_from_dict(document["path"], document["config"])
    except ConfigError as error:
        raise DatabaseError(f"{place}.config: {error}") from None
    if broken := violations(config, dtype):
        raise DatabaseError(f"{place}.config is {config}: {'; '.join(broken)}")
    m, n, k = document["shape"]
    return Record(
        (m, n, k),
        config,
        document.get("gflops"),
        document.get("layout", "NN"),
        document.get("alignment"),
        document.get("batch"),
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _entry_document(entry: Entry) -> dict[str, Any]:
    threshold = entry.indirect_from
    return _without_none(
        {
            "dtype": entry.dtype,
            "precision": entry.precision,
            "indirect_from": None if threshold is None else _without_none(vars(threshold)),
            "records": [
                _without_none(
                    {
                        "path": record.config.family,
                        "shape": list(record.shape),
                        "layout": None if record.layout == "NN" else record.layout,
                        "alignment": record.alignment,
                        "batch": record.batch,
                        "gflops": record.gflops,
                        "config": record.config.as_dict(),
                    }
                )
                for record in entry.records
            ],
        }
    )
