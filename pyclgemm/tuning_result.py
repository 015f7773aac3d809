"""From what the tuner found to a database file: records by shape, and what must not be lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from .constraints import violations
from .database import Database, read_file, user_database_folder
from .database import save_file as save_database_file
from .errors import ArgumentError, UnsupportedError
from .inquiry import Inquiry, product_of
from .records import DatabaseFile, Entry, Match, Record, Source
from .select import select
from .suites import Shape
from .tuner import TuningResult
from .tuning_log import device_slug
from .tuning_state import distance

#: A known record this close, in log2 of the sizes, to a shape that was tuned is superseded.
_SAME_CLASS = 0.5


def user_file(result: TuningResult) -> Path:
    """The file of the user's own database for the device of a result."""
    return user_database_folder() / f"{device_slug(result.traits)}.json"


def tuned_records(result: TuningResult) -> list[Record]:
    """A record for each shape on which something was measured."""
    return [
        Record(standing.shape, standing.best, None if gflops is None else round(gflops, 1))
        for standing in result.standings
        for gflops in (standing.gflops,)
        if standing.best is not None and standing.best in standing.seconds
    ]


def kept_records(
    result: TuningResult, database: Database, own: Sequence[Record] = ()
) -> list[Record]:
    """Records for shapes that were not tuned: of the file itself, and what the library uses today.

    A file of the device's own hides those of its architecture and all below, so what these say
    about other shapes is carried over, without its speed, which was measured elsewhere.

    Parameters
    ----------
    result : TuningResult
        What was found.
    database : Database
        What the library uses today.
    own : sequence of Record
        What stands in the file that is to be written.
    """
    tuned = [record.shape for record in tuned_records(result)]
    kept = {record.shape: record for record in own if not _superseded(record, tuned)}
    for file, entry in database.lookup(result.traits, result.dtype, result.precision):
        for record in entry.records:
            if record.shape in kept or _superseded(record, tuned):
                continue
            if violations(record.config, result.dtype, result.traits):
                continue
            problem = product_of(
                Inquiry(*record.shape, dtype=result.dtype, precision=result.precision)
            ).problem
            try:
                used = select(problem, result.traits, database).config == record.config
            except UnsupportedError:
                continue
            if used:
                here = file.match.device == result.traits.name
                kept[record.shape] = record if here else Record(record.shape, record.config)
    return list(kept.values())


def _superseded(record: Record, tuned: Sequence[Shape]) -> bool:
    return any(distance(record.shape, shape) <= _SAME_CLASS for shape in tuned)


def make_file(
    result: TuningResult,
    path: Path,
    database: Database,
    level: Literal["device", "architecture"] = "device",
) -> DatabaseFile:
    """Make the file for a result; what it has for other types and arithmetics stays.

    Parameters
    ----------
    result : TuningResult
        What was found.
    path : pathlib.Path
        Where it is to be written; a file that is there is extended.
    database : Database
        What the library uses today.
    level : "device" or "architecture"
        Whom it is for. A device without a known architecture gets its own.

    Raises
    ------
    ArgumentError
        If nothing was measured.
    DatabaseError
        If the file that is there cannot be used.
    """
    records = tuned_records(result)
    if not records:
        raise ArgumentError("nothing was measured, so there is nothing to save")
    traits = result.traits
    kind: Literal["cpu", "gpu"] = "cpu" if traits.type == "cpu" else "gpu"
    if level == "architecture" and traits.architecture:
        vendor = None if kind == "cpu" else traits.vendor
        match = Match("architecture", kind, vendor, traits.architecture)
    else:
        match = Match("device", kind, traits.vendor, device=traits.name)
    standing = read_file(path).entries if path.exists() else ()
    here = [entry for entry in standing if _names(entry) == (result.dtype, result.precision)]
    own = [record for entry in here for record in entry.records if _is_taken(record, entry)]
    kept = kept_records(result, database, own)
    records = sorted([*records, *kept], key=lambda record: record.shape)
    text = f"tuned on {traits.name}, {traits.platform} {traits.driver}, {date.today()}"
    if any(record.gflops is None for record in kept):
        text += "; records without a speed are older ones"
    entries = [Entry(result.dtype, result.precision, tuple(records))]
    entries += [entry for entry in standing if entry not in here]
    return DatabaseFile.make(path, match, Source("measured", text), entries)


def _is_taken(record: Record, entry: Entry) -> bool:
    """Whether a record's path is the one that its entry's threshold, if any, takes there."""
    threshold = entry.indirect_from
    if threshold is None:
        return True
    return (record.config.family == "indirect") == threshold.reached(*record.shape)


def _names(entry: Entry) -> tuple[str, str]:
    return entry.dtype, entry.precision


def save_result(result: TuningResult, database: Database, contribute: Path | None = None) -> Path:
    """Write the user's database, or a file to contribute, and return its path.

    Parameters
    ----------
    result : TuningResult
        What was found.
    database : Database
        What the library uses today.
    contribute : pathlib.Path, optional
        Write this file, for the architecture, and leave the user's database as it is.

    Raises
    ------
    ArgumentError, DatabaseError
        As `make_file`.
    """
    if contribute is None:
        file = make_file(result, user_file(result), database)
    else:
        file = make_file(result, contribute, database, "architecture")
    save_database_file(file)
    return file.path
