"""A database file: its JSON document, and what that says."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import DatabaseError, DatabaseWarning
from .printable import printable
from .record_document import read_record, record_document
from .records import Entry, Match, Source, Threshold

#: Records of a file that are told one by one if they cannot be used.
_MOST_TOLD = 10


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
        """Its entries, without the records that cannot be used.

        Each of these is told by a `DatabaseWarning`, up to a number.

        Raises
        ------
        DatabaseError
            If an entry is to be like one that the file lacks, like itself, or like one that is
            itself like another.
        """
        entries, refused = self._parsed
        for reason in refused[:_MOST_TOLD]:
            told = printable(f"{reason}; the record is left out", lines=True)
            warnings.warn(told, DatabaseWarning, stacklevel=2)
        if (more := len(refused) - _MOST_TOLD) > 0:
            warnings.warn(
                f"{self.path}: {more} more records are left out", DatabaseWarning, stacklevel=2
            )
        return entries

    @property
    def refused(self) -> tuple[str, ...]:
        """The records that cannot be used: for each the file, its place, its values, the reason."""
        return self._parsed[1]

    @cached_property
    def _parsed(self) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """The entries, and why records are left out."""
        documents = self.document["entries"]
        refused: list[str] = []
        entries = [
            _make_entry(document, f"{self.path}: $.entries[{index}]", refused)
            for index, document in enumerate(documents)
        ]
        borrowing = tuple(
            replace(entry, like=entries[self._lender(index)])
            if "like" in documents[index]
            else entry
            for index, entry in enumerate(entries)
        )
        return borrowing, tuple(refused)

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


def _make_entry(document: dict[str, Any], place: str, refused: list[str]) -> Entry:
    """An entry of the records that can be used; of the others it is told why not."""
    dtype = document["dtype"]
    threshold = document.get("indirect_from")
    records = []
    for index, record in enumerate(document["records"]):
        try:
            records.append(read_record(record, dtype, f"{place}.records[{index}]"))
        except DatabaseError as error:
            refused.append(str(error))
    return Entry(
        dtype,
        document["precision"],
        tuple(records),
        Threshold(**threshold) if threshold is not None else None,
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
            "records": [record_document(record) for record in entry.own],
        }
    )
