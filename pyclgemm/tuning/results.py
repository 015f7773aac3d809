"""From what the tuner found to a database file: records by shape, and what must not be lost.

Records of single products, of batches, and of batches of small products are three kinds, each
looked up by itself: tuning one kind leaves the others as they
are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Literal

from ..device.traits import DeviceTraits
from ..errors import ArgumentError
from ..families.registry import family_of
from ..host.files import check_writable, locked
from ..selection.database import (
    DATABASE,
    Database,
    DatabaseFile,
    read_file,
    reload_database,
    user_database_folder,
)
from ..selection.database import save_file as save_database_file
from ..selection.features import Features, features_of, features_of_record, record_for
from ..selection.records import Entry, Kind, Match, Record, Source
from .process import device_slug
from .tuner import TuningResult

#: The order of records in a file.
_KINDS: tuple[Kind, ...] = ("single", "batch", "small")


def user_file(result: TuningResult) -> Path:
    """The file of the user's own database for the device of a result."""
    return user_database_folder() / f"{device_slug(result.traits)}.json"


def tuned_records(result: TuningResult) -> list[Record]:
    """A record for each product or batch on which something was measured.

    Of shapes that are one product in canonical form, such as 9x1x8 and 1x9x8:NT, the faster
    counts.
    """
    found: dict[Features, Record] = {}
    for standing in result.standings:
        if standing.best is None or standing.gflops is None:
            continue
        features = features_of(standing.problem)
        known = found.get(features)
        if known is None or standing.gflops > (known.gflops or 0.0):
            found[features] = record_for(features, standing.best, _rounded(standing.gflops))
    return list(found.values())


def kept_records(result: TuningResult, own: Sequence[Record]) -> list[Record]:
    """The records of a file for products that were not tuned now.

    A record that a driver may refuse does not replace what stands in for it.
    """
    refusable: dict[Features, bool] = {}
    for record in tuned_records(result):
        features = features_of_record(record, result.dtype, result.precision)
        refusable[features] = refusable.get(features, True) and _may_be_refused(record)

    def superseded(record: Record) -> bool:
        tuned = refusable.get(features_of_record(record, result.dtype, result.precision))
        return tuned is not None and (_may_be_refused(record) or not tuned)

    return [record for record in own if not superseded(record)]


def _rounded(gflops: float) -> float:
    """Four digits: the product of three small matrices may run at 0.01 GFLOPS."""
    return float(f"{gflops:.4g}")


def _may_be_refused(record: Record) -> bool:
    """Whether a driver may refuse the kernels, for which another record then stands in."""
    return family_of(record.config).may_be_refused


def _sort_key(record: Record) -> tuple[int, tuple[int, int, int], str, int, int, bool]:
    """What tells records apart, and their order in a file: a stand-in follows what it replaces."""
    shape, alignment = record.shape, record.alignment or 0
    kind = _KINDS.index(record.kind)
    return kind, shape.sizes, shape.layout, alignment, shape.batch or 0, not _may_be_refused(record)


def make_file(
    result: TuningResult,
    path: Path,
    database: Database,
    level: Literal["device", "architecture"] = "device",
) -> DatabaseFile:
    """Make the file for a result; what it has for other types and arithmetics stays.

    An entry that is like another one stays so, unless a threshold goes, and only its own records
    are written; those that are like the one that was tuned borrow what it has now.

    A file that is at `path` is extended; `database` is what the library uses today. A file for the
    architecture of a device that has none known is for the device.

    Raises
    ------
    ArgumentError
        If nothing was measured.
    DatabaseError
        If the file that is there cannot be used.
    """
    records = tuned_records(result)
    if not records:
        raise ArgumentError("nothing was measured: there is nothing to save")
    traits = result.traits
    present = read_file(path).entries if path.exists() else ()
    name = result.dtype, result.precision
    here = next((entry for entry in present if entry.name == name), Entry(*name, ()))
    batches_alone = all(record.kind != "single" for record in records)
    # Once single products were compared, records tell the path.
    threshold = here.indirect_from if batches_alone else None
    kept = kept_records(result, here.own)
    text = f"tuned on {traits.name}, {traits.platform} {traits.driver}, {date.today()}"
    if any(record.gflops is None for record in kept):
        text += "; records without a speed are older ones"
    entry = replace(
        here, own=tuple(sorted([*records, *kept], key=_sort_key)), indirect_from=threshold
    )
    entries = [entry, *(other for other in present if other.name != name)]
    return DatabaseFile.make(path, _match(traits, level), Source("measured", text), entries)


def _match(traits: DeviceTraits, level: Literal["device", "architecture"]) -> Match:
    """Whom a file is for."""
    kind: Literal["cpu", "gpu"] = "cpu" if traits.type == "cpu" else "gpu"
    if level == "architecture" and traits.architecture:
        vendor = None if kind == "cpu" else traits.vendor
        return Match("architecture", kind, vendor, traits.architecture)
    return Match("device", kind, traits.vendor, device=traits.name)


def check_destination(contribute: Path | None = None) -> None:
    """Refuse a database that `save_result` could not write, before anything is measured.

    Raises
    ------
    DatabaseError
        If the file to contribute is there and cannot be used.
    FileError
        If it, or the folder of the user's own database, cannot be written.
    """
    if contribute is None:
        # The name of the file depends on the device, which nothing has opened yet.
        check_writable(user_database_folder() / "any.json", DATABASE)
        return
    if contribute.exists():
        read_file(contribute)
    check_writable(contribute, DATABASE)


def unsaved_text(result: TuningResult) -> str:
    """A database of what was found, for the user to save by hand where `save_result` failed."""
    name = result.dtype, result.precision
    match = _match(result.traits, "device")
    source = Source("measured", f"tuned on {result.traits.name}, {date.today()}")
    entry = Entry(*name, tuple(sorted(tuned_records(result), key=_sort_key)))
    file = DatabaseFile.make(Path("unsaved.json"), match, source, [entry])
    return json.dumps(file.document)


def save_result(
    result: TuningResult, database: Database | None = None, contribute: Path | None = None
) -> Path:
    """Write the user's database, or a file to contribute, and return its path.

    What other processes save meanwhile stays: the file is locked while it is read and written.

    Parameters
    ----------
    result : TuningResult
        What was found.
    database : Database, optional
        What the library uses today; None reads it again.
    contribute : pathlib.Path, optional
        Write this file, for the architecture, and leave the user's database as it is.

    Raises
    ------
    ArgumentError, DatabaseError
        As `make_file`.
    FileError
        If the file cannot be written, or another process keeps it locked.
    """
    path = user_file(result) if contribute is None else contribute
    with locked(path, DATABASE):
        known = reload_database() if database is None else database
        level: Literal["device", "architecture"] = "architecture" if contribute else "device"
        save_database_file(make_file(result, path, known, level))
    return path
