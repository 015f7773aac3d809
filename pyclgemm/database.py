"""Databases of kernel configurations: load, check, look up the entries for a device, save.

A file is for one device, architecture, vendor or type of device; ``databases/schema.json``
is its format. What a user measured wins over what ships with the library, where it is about as near
(`pyclgemm.record_order`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .database_file import DatabaseFile
from .device import DeviceTraits
from .errors import DatabaseError
from .records import LEVELS, Entry
from .resources import resource_folder

SCHEMA_FILE = "schema.json"


@dataclass(frozen=True)
class Database:
    """Every loaded file, in groups of falling rank.

    Attributes
    ----------
    groups : tuple of tuple of DatabaseFile
        All levels of a group stand before the next group.

    Examples
    --------
    >>> from pyclgemm.database import load_database
    >>> sorted({file.match.level for file in load_database().groups[-1]})
    ['architecture', 'device', 'generic', 'vendor']
    """

    groups: tuple[tuple[DatabaseFile, ...], ...]

    def lookup(
        self, traits: DeviceTraits, dtype: str, precision: str
    ) -> list[tuple[DatabaseFile, Entry]]:
        """Find all that is known for a device, the first being the best.

        Parameters
        ----------
        traits : DeviceTraits
            The device.
        dtype, precision : str
            Element type by NumPy's name, arithmetic by JAX's.

        Returns
        -------
        list of (DatabaseFile, Entry)
            Group by group, from the most specific level to the least.
        """
        return [
            (file, entry)
            for file, entry in self.entries_for(traits)
            if entry.name == (dtype, precision)
        ]

    def entries_for(self, traits: DeviceTraits) -> list[tuple[DatabaseFile, Entry]]:
        """All that is known for a device, of any type and arithmetic, in the order of `lookup`."""
        return [
            (file, entry)
            for group in self.groups
            for file in sorted(group, key=lambda file: LEVELS.index(file.match.level))
            if file.match.fits(traits)
            for entry in file.entries
        ]


# --------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------


def user_database_folder() -> Path:
    """The folder of the user's own databases; it need not exist."""
    from platformdirs import user_data_path

    return user_data_path("pyclgemm") / "databases"


@lru_cache(maxsize=1)
def load_database() -> Database:
    """Load the databases of ``$PYCLGEMM_DATABASES``, of the user's folder, and the built-in ones.

    They are read once a process; `reload_database` reads them again. Built-in files were
    checked against the schema before they shipped; a user's file is checked on each load.

    Raises
    ------
    DatabaseError
        If a user's file, or a path in the environment variable, cannot be used.
    """
    environment: list[Path] = []
    for name in filter(None, os.environ.get("PYCLGEMM_DATABASES", "").split(os.pathsep)):
        path = Path(name)
        if not os.path.exists(path):  # false, too, for what is no name of a file
            raise DatabaseError(
                f"PYCLGEMM_DATABASES names {name}, which does not exist; "
                f"it takes folders and files separated by {os.pathsep!r}"
            )
        environment += sorted(path.glob("*.json")) if path.is_dir() else [path]
    user = sorted(user_database_folder().glob("*.json"))
    built_in = sorted(resource_folder("databases").glob("*.json"))
    return Database(
        (
            tuple(map(read_file, environment)),
            tuple(map(read_file, user)),
            tuple(
                DatabaseFile(path, _read_json(path), built_in=True)
                for path in built_in
                if path.name != SCHEMA_FILE
            ),
        )
    )


def reload_database() -> Database:
    """Read all files again, after one or the environment variable has changed."""
    load_database.cache_clear()
    return load_database()


def read_file(path: Path) -> DatabaseFile:
    """Read and fully check one file.

    Raises
    ------
    DatabaseError
        If it cannot be read, is not JSON, departs from the schema, or holds a
        configuration that breaks a constraint or an entry that cannot be like the one that
        it names. The message names the file, the place in it, what stands there and what
        was wanted.
    """
    return _checked(DatabaseFile(path, _read_json(path)))


def save_file(file: DatabaseFile) -> None:
    """Check `file` and write it to its path at once, so that no reader sees half of it.

    Raises
    ------
    DatabaseError
        As `read_file`.
    """
    _checked(file)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.path.with_name(f".{file.path.name}.{os.getpid()}")
    try:
        temporary.write_text(_to_text(file.document), encoding="utf-8")
        temporary.replace(file.path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatabaseError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DatabaseError(f"{path} is not JSON in UTF-8: {error}") from error


def _checked(file: DatabaseFile) -> DatabaseFile:
    # Importing jsonschema takes longer than a gemm's first launch may: only where needed.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = _read_json(resource_folder("databases") / SCHEMA_FILE)
    if error := best_match(Draft202012Validator(schema).iter_errors(file.document)):
        got = repr(error.instance)
        got = got if len(got) <= 60 else f"{got[:57]}..."
        raise DatabaseError(f"{file.path}: {error.json_path} is {got}: {error.message}")
    _ = file.entries  # checks the configurations, and which entries are like which
    return file


def _to_text(document: dict[str, Any]) -> str:
    """JSON with one record a line, so that a difference of two versions can be read."""
    lines = ["{"]
    for key in ("schema", "match", "source"):
        lines.append(f' "{key}": {json.dumps(document[key], ensure_ascii=False)},')
    entries = []
    for entry in document["entries"]:
        head = json.dumps({key: value for key, value in entry.items() if key != "records"})
        records = ",\n".join(f"   {json.dumps(record)}" for record in entry["records"])
        listed = f"[\n{records}\n  ]" if records else "[]"
        entries.append(f'  {head[:-1]}, "records": {listed}}}')
    lines.append(' "entries": [\n' + ",\n".join(entries) + "\n ]\n}\n")
    return "\n".join(lines)
