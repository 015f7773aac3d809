"""Databases of kernel configurations: load, check, look up the entries for a device, save.

A file covers one device, architecture, vendor or type of device; ``databases/schema.json``
describes its format. The user's measurements take precedence over those that ship with the
library (`pyclgemm.selection.select`).
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..errors import DatabaseError, DatabaseWarning, printable, shown
from ..host.files import MOST_BYTES, Purpose, locked, parse_json, read_json, write_whole
from ..resources import resource_folder
from .records import (
    Entry,
    Match,
    Source,
    entry_document,
    name_of,
    read_entries,
    without_none,
)

SCHEMA_FILE = "schema.json"

#: Largest number of warnings about single records of one file.
_MOST_WARNINGS = 10
#: Largest length of a message from jsonschema: it may cite a whole file.
_MOST_CHARACTERS = 400

#: What write errors say about a database.
DATABASE = Purpose(
    "the database",
    "name another file with --contribute, or have XDG_DATA_HOME name another folder for the "
    "user's data",
)


#: Bytes of a file in which its head ends, and what follows the head, as `_to_text` writes them.
_HEAD_BYTES, _END_OF_HEAD = 1 << 13, b',\n "entries": ['


class _BuiltIn(Mapping[str, Any]):
    """The document of a file that ships with the library.

    Its head tells which devices it is for. What follows is read for these devices only: the records
    of one architecture would take most of the time that all files take.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _head(self) -> dict[str, Any]:
        """What stands before the entries; empty if `_whole` has to tell, or what is wrong."""
        with contextlib.suppress(OSError, ValueError), self._path.open("rb") as file:
            head, end, _ = file.read(_HEAD_BYTES).partition(_END_OF_HEAD)
            if end:
                return dict(parse_json(head + b"}"))
        return {}

    @cached_property
    def _whole(self) -> dict[str, Any]:
        return dict(_read_json(self._path))

    def __getitem__(self, key: str) -> Any:
        return self._head[key] if key in self._head else self._whole[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


@dataclass(frozen=True)
class DatabaseFile:
    """One file; its entries are parsed from the JSON document on first access."""

    path: Path  # where it was read from, or will be written to
    #: The content, valid by ``databases/schema.json``.
    document: Mapping[str, Any] = field(repr=False, hash=False)
    built_in: bool = False  # ships with the library

    @classmethod
    def make(
        cls,
        path: Path,
        match: Match,
        source: Source,
        entries: Sequence[Entry],
        ceilings: Ceilings | None = None,
    ) -> DatabaseFile:
        """Build a file from its parts."""
        document = {
            "schema": 1,
            "match": without_none(vars(match)),
            "source": dict(vars(source)),
            "ceilings": without_none(vars(ceilings)) if ceilings else None,
            "entries": [entry_document(entry) for entry in entries],
        }
        return cls(path, without_none(document))

    @cached_property
    def match(self) -> Match:
        """The devices that the file covers."""
        return Match(**self.document["match"])

    @cached_property
    def source(self) -> Source:
        """Where its numbers come from."""
        return Source(**self.document["source"])

    @cached_property
    def ceilings(self) -> Ceilings | None:
        """The measured ceilings that its models assume; None where they assume estimates."""
        stated = self.document.get("ceilings")
        return Ceilings(**{"cache": None, "local_memory": None, **stated}) if stated else None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries without unusable records; a warning names each of those."""
        entries, refused = self._parsed
        messages = [f"{reason}; the record is left out" for reason in refused[:_MOST_WARNINGS]]
        if (more := len(refused) - _MOST_WARNINGS) > 0:
            messages.append(f"{self.path}: {more} more records are left out")
        for message in messages:
            warnings.warn(printable(message, lines=True), DatabaseWarning, stacklevel=2)
        return entries

    def named(self, name: tuple[str, str]) -> tuple[Entry, ...]:
        """The entry of an element type and an arithmetic, if there is one.

        Of the library's own files, whose records were checked before the release, only this entry
        and the one that it is like are parsed: some have thousands of records.
        """
        if not self.built_in:
            return tuple(entry for entry in self.entries if entry.name == name)
        if name not in self._named:
            documents = self.document["entries"]
            wanted = [one for one in documents if name_of(one) == name]
            lenders = [name_of(one["like"]) for one in wanted if "like" in one]
            wanted += [one for one in documents if name_of(one) in lenders]
            entries, refused = read_entries(wanted, str(self.path))
            if refused:  # `entries` names them by their places in the file
                entries = self.entries
            self._named[name] = tuple(entry for entry in entries if entry.name == name)
        return self._named[name]

    @cached_property
    def _named(self) -> dict[tuple[str, str], tuple[Entry, ...]]:
        """The entries that `named` has parsed."""
        return {}

    @property
    def refused(self) -> tuple[str, ...]:
        """A message for each unusable record: the file, the position, the value, the reason."""
        return self._parsed[1]

    @cached_property
    def _parsed(self) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """The entries, and the messages about unusable records."""
        return read_entries(self.document["entries"], str(self.path))

    def __str__(self) -> str:
        location = "" if self.built_in else f" in {self.path}"
        return printable(f"{self.match}{location} ({self.source.text})")


@dataclass(frozen=True)
class Database:
    """The loaded files in groups; every file of a group takes precedence over later groups."""

    groups: tuple[tuple[DatabaseFile, ...], ...]
    #: Cache of what the selection derived from the files, by device and arithmetic.
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def lookup(
        self, traits: DeviceTraits, dtype: str, precision: str
    ) -> list[tuple[DatabaseFile, Entry]]:
        """The entries for a device, an element type and an arithmetic, each with its file.

        They come group by group, from the most to the least specific level. Types have NumPy's
        names, arithmetics JAX's.
        """
        name = dtype, precision
        return [(file, entry) for file in self.files_for(traits) for entry in file.named(name)]

    def entries_for(self, traits: DeviceTraits) -> list[tuple[DatabaseFile, Entry]]:
        """The entries of every type and arithmetic for a device, in the order of `lookup`."""
        return [(file, entry) for file in self.files_for(traits) for entry in file.entries]

    def files_for(self, traits: DeviceTraits) -> list[DatabaseFile]:
        """The files that cover a device, in the order of `lookup`."""
        return [
            file
            for group in self.groups
            for file in sorted(group, key=lambda file: file.match.order)
            if file.match.fits(traits)
        ]

    def ceilings(self, traits: DeviceTraits) -> Ceilings | None:
        """The ceilings of the most specific file that states any, for whatever types."""
        return next(filter(None, (file.ceilings for file in self.files_for(traits))), None)


def user_database_folder() -> Path:
    """The folder of the user's databases; it need not exist."""
    from platformdirs import user_data_path

    return user_data_path("pyclgemm") / "databases"


@lru_cache(maxsize=1)
def load_database() -> Database:
    """Load the databases of ``$PYCLGEMM_DATABASES``, of the user's folder, and the built-in ones.

    They are read once per process, those that are built in once a device needs them;
    `reload_database` reads them again. Users' files are checked against the schema on each load,
    built-in files before a release. An unusable record is left out with a `DatabaseWarning`; an
    unusable file of the user's raises a `DatabaseError`.
    """
    environment: list[Path] = []
    for name in filter(None, os.environ.get("PYCLGEMM_DATABASES", "").split(os.pathsep)):
        path = Path(name)
        if not os.path.exists(path):  # also false for text that is not a path
            raise DatabaseError(
                f"PYCLGEMM_DATABASES names {name}, which does not exist; "
                f"it takes folders and files separated by {os.pathsep!r}"
            )
        environment += _files_of(path) if path.is_dir() else [path]
    try:
        user = _files_of(user_database_folder())
    except DatabaseError as error:
        # The user did not name this folder: the library works without it.
        warnings.warn(str(error), DatabaseWarning, stacklevel=2)
        user = []
    built_in = tuple(
        DatabaseFile(path, _BuiltIn(path), built_in=True)
        for path in sorted(resource_folder("databases").glob("*.json"))
        if path.name != SCHEMA_FILE
    )
    return Database((tuple(map(open_file, environment)), tuple(map(open_file, user)), built_in))


def _files_of(folder: Path) -> list[Path]:
    """The database files of a folder, which need not exist."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatabaseError(f"the folder {folder} cannot be read: {error.strerror}") from error
    return sorted(folder / name for name in names if name.endswith(".json") and name[0] != ".")


def reload_database() -> Database:
    """Read all files again, after a file or the environment variable has changed."""
    load_database.cache_clear()
    return load_database()


def read_file(path: Path) -> DatabaseFile:
    """Read one file; `DatabaseError` if a record is unusable."""
    file = open_file(path)
    _check_records(file)
    return file


def open_file(path: Path) -> DatabaseFile:
    """Read one file, whose unusable records are left out (`DatabaseFile.entries`)."""
    file = DatabaseFile(path, _read_json(path))
    _check_frame(file)
    return file


def save_file(file: DatabaseFile) -> None:
    """Check `file` and replace the file at its path atomically.

    Raise `DatabaseError`, and leave the old file, if a record is unusable or the file would be too
    large to be read again.
    """
    _check_frame(file)
    _check_records(file)
    content = _to_text(file.document).encode()
    if len(content) > MOST_BYTES:
        raise DatabaseError(
            f"{file.path} would have {len(content)} bytes; at most {MOST_BYTES} are read: "
            "remove records of products that are not needed"
        )
    write_whole(file.path, content, DATABASE)


def update_file(path: Path, changed: Callable[[], DatabaseFile]) -> None:
    """Save the file that `changed` returns, under a lock: no process loses another's changes."""
    with locked(path, DATABASE):
        save_file(changed())


def _read_json(path: Path) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise DatabaseError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DatabaseError(f"{path} is not JSON in UTF-8: {error}") from error


@lru_cache(maxsize=1)
def _frame_validator() -> Any:
    """The validator of a file without its records, which `read_record` checks."""
    # Imported late: importing jsonschema takes longer than the first launch of a gemm may.
    from jsonschema import Draft202012Validator

    schema = _read_json(resource_folder("databases") / SCHEMA_FILE)
    schema["$defs"]["record"] = True
    return Draft202012Validator(schema)


def _check_frame(file: DatabaseFile) -> None:
    from jsonschema.exceptions import best_match

    if error := best_match(_frame_validator().iter_errors(file.document)):
        message = error.message
        if len(message) > _MOST_CHARACTERS:
            expected = shown(error.validator_value, _MOST_CHARACTERS)
            message = f"{error.validator} of {expected} is wanted"
        raise DatabaseError(f"{file.path}: {error.json_path} is {shown(error.instance)}: {message}")
    _ = file.refused  # parses the entries: raises an error where an entry's like is missing


def _check_records(file: DatabaseFile) -> None:
    if refused := file.refused:
        more = f" (and {len(refused) - 1} more records)" if len(refused) > 1 else ""
        raise DatabaseError(f"{refused[0]}{more}")


def _to_text(document: Mapping[str, Any]) -> str:
    """JSON with one record per line, so that differences between versions are readable."""
    head = [
        f' "{key}": {json.dumps(value, ensure_ascii=False)},'
        for key, value in document.items()
        if key != "entries"
    ]
    entries = []
    for entry in document["entries"]:
        facts = json.dumps({key: value for key, value in entry.items() if key != "records"})
        records = ",\n".join(f"   {json.dumps(record)}" for record in entry["records"])
        listed = f"[\n{records}\n  ]" if records else "[]"
        entries.append(f'  {facts[:-1]}, "records": {listed}}}')
    return "\n".join(["{", *head, ' "entries": [', ",\n".join(entries), " ]", "}", ""])
