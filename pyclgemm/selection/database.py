"""Databases of kernel configurations: load, check, look up the entries for a device, save.

A file is for one device, architecture, vendor or type of device; ``databases/schema.json``
is its format. What a user measured on a product wins over what ships with the library
(`pyclgemm.selection.select`).
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..errors import DatabaseError, DatabaseWarning, printable, shown
from ..host.files import Purpose, locked, read_json, write_whole
from ..resources import resource_folder
from .records import LEVELS, Entry, Match, Model, Source, Threshold, read_record, record_document

#: Records of a file that cannot be used: warnings that name one each, at most.
_MOST_TOLD = 10

SCHEMA_FILE = "schema.json"

#: Characters of what a message cites from jsonschema's, which may repeat a whole file.
_MOST_SHOWN = 400

#: What errors of writing say of a database.
DATABASE = Purpose(
    "the database",
    "name another file with --contribute, or have XDG_DATA_HOME name another folder for the "
    "user's data",
)


@dataclass(frozen=True)
class DatabaseFile:
    """One file; `entries` are made from its JSON document when they are first asked for."""

    path: Path  # where it was read from, or is to be written
    document: dict[str, Any] = field(repr=False, hash=False)  # as ``databases/schema.json`` says
    built_in: bool = False  # it ships with the library

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
            "match": _without_none(vars(match)),
            "source": dict(vars(source)),
            "ceilings": _without_none(vars(ceilings)) if ceilings else None,
            "entries": [_entry_document(entry) for entry in entries],
        }
        return cls(path, _without_none(document))

    @cached_property
    def match(self) -> Match:
        """The devices that it is for."""
        return Match(**self.document["match"])

    @cached_property
    def source(self) -> Source:
        """Where its figures come from."""
        return Source(**self.document["source"])

    @cached_property
    def ceilings(self) -> Ceilings | None:
        """Those that its models are about, where they were measured; else estimates are meant."""
        stated = self.document.get("ceilings")
        return Ceilings(**{"cache": None, "local_memory": None, **stated}) if stated else None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Its entries, without the records that cannot be used: warnings name these."""
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
        """The records that cannot be used: for each the file, where in it, its values, why."""
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
        for index, document in enumerate(documents):
            if "like" in document:  # an entry that has none itself
                entries[index] = replace(entries[index], like=entries[self._lender(index)])
        return tuple(entries), tuple(refused)

    def _lender(self, borrower: int) -> int:
        """The index of the entry that the one of index `borrower` is like."""
        documents = self.document["entries"]
        names = [_name_of(document) for document in documents]
        wanted, own = _name_of(documents[borrower]["like"]), names[borrower]
        lenders = [
            index
            for index, document in enumerate(documents)
            if "like" not in document and names[index] != own
        ]
        for index in lenders:
            if names[index] == wanted:
                return index
        wrong = (
            "which is like another itself" if wanted in names else "of which the file has no entry"
        )
        if wanted == own:
            wrong = "the entry itself"
        listed = ", ".join(" by ".join(names[index]) for index in lenders) or "it has none"
        raise DatabaseError(
            f"{self.path}: $.entries[{borrower}].like is {' by '.join(wanted)}, {wrong}; wanted is "
            f"another entry of the file that has no like: {listed}"
        )

    def __str__(self) -> str:
        location = "" if self.built_in else f" in {self.path}"
        return printable(f"{self.match}{location} ({self.source.text})")


def _name_of(document: dict[str, Any]) -> tuple[str, str]:
    return document["dtype"], document["precision"]


def _make_entry(document: dict[str, Any], where: str, refused: list[str]) -> Entry:
    """An entry of the records that can be used; `refused` gets the reasons of the others."""
    (dtype, precision), threshold = _name_of(document), document.get("indirect_from")
    records = []
    for index, record in enumerate(document["records"]):
        try:
            records.append(read_record(record, dtype, f"{where}.records[{index}]"))
        except DatabaseError as error:
            refused.append(str(error))
    return Entry(
        dtype,
        precision,
        tuple(records),
        Threshold(**threshold) if threshold is not None else None,
        fitted=Model.read(document["model"]) if "model" in document else None,
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _entry_document(entry: Entry) -> dict[str, Any]:
    threshold, like = entry.indirect_from, entry.like
    document = {
        "dtype": entry.dtype,
        "precision": entry.precision,
        "indirect_from": _without_none(vars(threshold)) if threshold else None,
        "like": {"dtype": like.dtype, "precision": like.precision} if like else None,
        "model": entry.fitted.document if entry.fitted else None,
        "records": [record_document(record) for record in entry.own],
    }
    return _without_none(document)


@dataclass(frozen=True)
class Database:
    """Every loaded file, in groups: all levels of a group stand before the next group.

    Examples
    --------
    >>> sorted({file.match.level for file in load_database().groups[-1]})
    ['architecture', 'device', 'generic', 'vendor']
    """

    groups: tuple[tuple[DatabaseFile, ...], ...]
    #: What selection derived from it for a device, by what was asked.
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def lookup(
        self, traits: DeviceTraits, dtype: str, precision: str
    ) -> list[tuple[DatabaseFile, Entry]]:
        """All that is known for a device, an element type and an arithmetic, the best first.

        The entries come group by group, from the most specific level to the least, each with its
        file. Types have NumPy's names, arithmetics JAX's.
        """
        return [hit for hit in self.entries_for(traits) if hit[1].name == (dtype, precision)]

    def entries_for(self, traits: DeviceTraits) -> list[tuple[DatabaseFile, Entry]]:
        """All that is known for a device, of any type and arithmetic, in the order of `lookup`."""
        return [(file, entry) for file in self.files_for(traits) for entry in file.entries]

    def files_for(self, traits: DeviceTraits) -> list[DatabaseFile]:
        """The files for a device, in the order of `lookup`."""
        return [
            file
            for group in self.groups
            for file in sorted(group, key=lambda file: LEVELS.index(file.match.level))
            if file.match.fits(traits)
        ]

    def ceilings(self, traits: DeviceTraits) -> Ceilings | None:
        """Those that the most specific file states, whatever types it has; None if none does."""
        stated = (file.ceilings for file in self.files_for(traits))
        return next((one for one in stated if one is not None), None)


def user_database_folder() -> Path:
    """The folder of the user's own databases; it need not exist."""
    from platformdirs import user_data_path

    return user_data_path("pyclgemm") / "databases"


@lru_cache(maxsize=1)
def load_database() -> Database:
    """Load the databases of ``$PYCLGEMM_DATABASES``, of the user's folder, and the built-in ones.

    They are read once a process; `reload_database` reads them again. Built-in files were
    checked against the schema before they shipped; a user's file is checked on each load. A
    record that cannot be used is left out with a `DatabaseWarning`; the others count.
    `DatabaseError` says that a user's file cannot be used at all.
    """
    environment: list[Path] = []
    for name in filter(None, os.environ.get("PYCLGEMM_DATABASES", "").split(os.pathsep)):
        path = Path(name)
        if not os.path.exists(path):  # false, too, for what is no name of a file
            raise DatabaseError(
                f"PYCLGEMM_DATABASES names {name}, which does not exist; "
                f"it takes folders and files separated by {os.pathsep!r}"
            )
        environment += _files_of(path) if path.is_dir() else [path]
    try:
        user = _files_of(user_database_folder())
    except DatabaseError as error:
        # Nobody asked for this folder by name: the library works without it.
        warnings.warn(str(error), DatabaseWarning, stacklevel=2)
        user = []
    built_in = tuple(
        DatabaseFile(path, _read_json(path), built_in=True)
        for path in sorted(resource_folder("databases").glob("*.json"))
        if path.name != SCHEMA_FILE
    )
    return Database((tuple(map(open_file, environment)), tuple(map(open_file, user)), built_in))


def _files_of(folder: Path) -> list[Path]:
    """The databases of a folder, which need not exist."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatabaseError(f"the folder {folder} cannot be read: {error.strerror}") from error
    return sorted(folder / name for name in names if name.endswith(".json") and name[0] != ".")


def reload_database() -> Database:
    """Read all files again, after one or the environment variable has changed."""
    load_database.cache_clear()
    return load_database()


def read_file(path: Path) -> DatabaseFile:
    """Read and fully check one file, of which no record may be lost."""
    file = open_file(path)
    _check_records(file)
    return file


def open_file(path: Path) -> DatabaseFile:
    """Read one file, whose records are used as far as they can be; see `DatabaseFile.entries`."""
    file = DatabaseFile(path, _read_json(path))
    _check_frame(file)
    return file


def save_file(file: DatabaseFile) -> None:
    """Check `file` and write it to its path at once, so that no reader sees half of it."""
    _check_frame(file)
    _check_records(file)
    write_whole(file.path, _to_text(file.document), DATABASE)


def update_file(path: Path, changed: Callable[[], DatabaseFile]) -> None:
    """Save what `changed` makes of the file at a path; no process loses what another saves."""
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
    """What finds departures from the schema, but for records, which are read one by one."""
    # Importing jsonschema takes longer than a gemm's first launch may: only where needed.
    from jsonschema import Draft202012Validator

    schema = _read_json(resource_folder("databases") / SCHEMA_FILE)
    schema["$defs"]["record"] = True
    return Draft202012Validator(schema)


def _check_frame(file: DatabaseFile) -> None:
    from jsonschema.exceptions import best_match

    if error := best_match(_frame_validator().iter_errors(file.document)):
        message = error.message
        if len(message) > _MOST_SHOWN:
            message = f"{error.validator} of {shown(error.validator_value, _MOST_SHOWN)} is wanted"
        raise DatabaseError(f"{file.path}: {error.json_path} is {shown(error.instance)}: {message}")
    _ = file.refused  # finds entries that are like none


def _check_records(file: DatabaseFile) -> None:
    if refused := file.refused:
        more = f" (and {len(refused) - 1} more records)" if len(refused) > 1 else ""
        raise DatabaseError(f"{refused[0]}{more}")


def _to_text(document: dict[str, Any]) -> str:
    """JSON with one record a line, so that a difference of two versions can be read."""
    lines = ["{"]
    for key in ("schema", "match", "source", "ceilings"):
        if key in document:
            lines.append(f' "{key}": {json.dumps(document[key], ensure_ascii=False)},')
    entries = []
    for entry in document["entries"]:
        head = json.dumps({key: value for key, value in entry.items() if key != "records"})
        records = ",\n".join(f"   {json.dumps(record)}" for record in entry["records"])
        listed = f"[\n{records}\n  ]" if records else "[]"
        entries.append(f'  {head[:-1]}, "records": {listed}}}')
    lines.append(' "entries": [\n' + ",\n".join(entries) + "\n ]\n}\n")
    return "\n".join(lines)
