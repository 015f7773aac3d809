"""From what the tuner found to records of a database."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from ..errors import ArgumentError
from ..host.files import check_writable
from ..selection.database import DATABASE, DatabaseFile, read_file, user_database_folder
from ..selection.features import Features, features_of, record_for
from ..selection.records import Entry, Record, Source
from ..selection.saving import Level, match_of, save_records, sorted_records, user_file
from .tuner import TuningResult


def tuned_records(result: TuningResult) -> list[Record]:
    """A record for each product or batch on which something was measured, then those that missed.

    Of shapes that are one product, such as 9x1x8 and 1x9x8:NT, the faster counts.
    """
    found: dict[Features, Record] = {}
    for standing in (*result.standings, *result.surveyed):
        if standing.best is None or standing.gflops is None:
            continue
        features = features_of(standing.problem)
        known = found.get(features)
        if known is None or standing.gflops > (known.gflops or 0.0):
            found[features] = record_for(features, standing.best, standing.gflops)
    return [*found.values(), *result.missed]


def check_destination(contribute: Path | None = None) -> None:
    """Refuse a database that `save_result` could not write, before anything is measured.

    `DatabaseError` says that it cannot be used, `FileError` that it cannot be written.
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
    source = Source("measured", f"tuned on {result.traits.name}, {date.today()}")
    entry = Entry(result.dtype, result.precision, sorted_records(tuned_records(result)))
    match = match_of(result.traits, "device")
    return json.dumps(DatabaseFile.make(Path("unsaved.json"), match, source, [entry]).document)


def save_result(result: TuningResult, contribute: Path | None = None) -> Path:
    """Write the user's database, or a file to contribute, and return its path.

    What is contributed has no ceilings, which are those of one device; so `result.model` must be
    about none (`contributes` of `pyclgemm.tuning.tuner.tune`).

    Parameters
    ----------
    result : TuningResult
        What was found.
    contribute : pathlib.Path, optional
        Write this file, for the architecture, and leave the user's database as it is.

    Raises
    ------
    ArgumentError
        If nothing was measured.
    DatabaseError, FileError
        As `pyclgemm.selection.saving.save_records`.
    """
    records = tuned_records(result)
    if not records:
        raise ArgumentError("nothing was measured: there is nothing to save")
    path = user_file(result.traits) if contribute is None else contribute
    level: Level = "device" if contribute is None else "architecture"
    save_records(
        path, result.traits, (result.dtype, result.precision), records, level=level,
        model=result.model, ceilings=result.ceilings if contribute is None else None,
    )  # fmt: skip
    return path
