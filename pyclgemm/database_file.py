"""A database file: its JSON document, and what that says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .config import config_from_dict
from .constraints import violations
from .errors import ConfigError, DatabaseError
from .printable import printable
from .records import Entry, Match, Record, Source, Threshold


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
        """Its entries.

        Raises
        ------
        DatabaseError
            If a configuration breaks a constraint, or an entry is to be like one that the file
            lacks, like itself, or like one that is itself like another.
        """
        documents = self.document["entries"]
        entries = [
            _make_entry(document, f"{self.path}: $.entries[{index}]")
            for index, document in enumerate(documents)
        ]
        return tuple(
            replace(entry, like=entries[self._lender(index)])
            if "like" in documents[index]
            else entry
            for index, entry in enumerate(entries)
        )

    def _lender(self, borrower: int) -> int:
        """Which entry the one of this index is like."""
        documents = self.document["entries"]
        names = [(document["dtype"], document["precision"]) for document in documents]
        like = documents[borrower]["like"]
        wanted = like["dtype"], like["precision"]
        if wanted == names[borrower]:
            wrong = "the entry itself"
        elif wanted not in names:
            wrong = "of which the file has no entry"
        elif "like" in documents[names.index(wanted)]:
            wrong = "which is like another itself"
        else:
            return names.index(wanted)
        others = [
            " by ".join(name)
            for name, document in zip(names, documents, strict=True)
            if "like" not in document and name != names[borrower]
        ]
        raise DatabaseError(
            f"{self.path}: $.entries[{borrower}].like is {' by '.join(wanted)}, {wrong}; wanted "
            f"is another entry of the file that has no like: {', '.join(others) or 'it has none'}"
        )

    def __str__(self) -> str:
        place = "" if self.built_in else f" in {self.path}"
        return printable(f"{self.match}{place} ({self.source.text})")


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
            "like": None
            if entry.like is None
            else {
                "dtype": entry.like.dtype,
                "precision": entry.like.precision,
            },
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
                for record in entry.own
            ],
        }
    )
