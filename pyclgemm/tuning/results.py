"""From what the tuner found to a database file: records by shape, and what must not be lost.

Records of single products, of batches, and of batches of small products are three kinds, each
looked up by itself (`pyclgemm.selection.candidates`): tuning one kind leaves the others as they
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
from ..errors import ArgumentError, UnsupportedError
from ..families.family import Role
from ..families.registry import family_of, violations
from ..host.files import check_writable, locked
from ..problem.problem import GemmProblem
from ..selection.candidates import compares_families
from ..selection.database import (
    DATABASE,
    Database,
    DatabaseFile,
    read_file,
    reload_database,
    user_database_folder,
)
from ..selection.database import save_file as save_database_file
from ..selection.distance import Features, distance, features_of, features_of_record, record_for
from ..selection.records import Entry, Kind, Match, Record, Source
from ..selection.select import select
from .tuner import TuningResult

#: A known record this close, in octaves, to a product that was tuned is superseded: the layout and
#: the alignment must be the same, for another one is farther.
_SAME_CLASS = 0.5
#: Products of a batch for which a record for batches of any number is looked up.
_MANY = 10_000
#: The order of records in a file.
_KINDS: tuple[Kind, ...] = ("single", "batch", "small")


def tuned_records(result: TuningResult) -> list[Record]:
    """A record for each product or batch on which something was measured.

    Of shapes that are one product, such as 9x1x8 and 1x9x8:NT, the faster counts.
    """
    found: dict[Features, Record] = {}
    for standing in result.standings:
        if standing.best is None or standing.gflops is None:
            continue
        features = features_of(standing.problem)
        known = found.get(features)
        if known is None or standing.gflops > (known.gflops or 0.0):
            # Four digits: the product of three small matrices may run at 0.01 GFLOPS.
            speed = float(f"{standing.gflops:.4g}")
            found[features] = record_for(features, standing.best, speed)
    return list(found.values())


def _kept_records(
    result: TuningResult, database: Database, match: Match, here: Sequence[Entry]
) -> list[Record]:
    """Records for shapes that were not tuned: of the file itself, and what the library uses today.

    A file of the device's own hides the starting points below it. What these say about other shapes
    is carried over, of the kinds that were tuned, and without a speed that was measured elsewhere.
    Measured records that ship for the device are asked beside the file, so only a file for the same
    devices (`match`) takes them. What the entries `here` borrow counts without being written.
    """
    tuned: dict[Kind, list[tuple[Record, Features]]] = {}
    for record in tuned_records(result):
        tuned.setdefault(record.kind, []).append((record, _features_of(record, result)))

    def superseded(record: Record) -> bool:
        wanted = _features_of(record, result)
        return any(
            distance(wanted, features) <= _SAME_CLASS
            for known, features in tuned.get(record.kind, ())
            if _may_be_refused(record) or not _may_be_refused(known)
        )

    own = [record for entry in here for record in entry.own]
    kept = {_sort_key(record): record for record in own if not superseded(record)}
    borrowed = {_sort_key(record) for entry in here for record in entry.borrowed}
    for file, entry in database.lookup(result.traits, result.dtype, result.precision):
        if file.built_in and file.match != match and compares_families(file, entry):
            continue
        for record in entry.records:
            key = _sort_key(record)
            if record.kind not in tuned:
                continue  # it is found in its own file
            if key in kept or key in borrowed or superseded(record):
                continue
            if violations(record.config, result.dtype, result.traits):
                continue
            try:
                choice = select(_problem_of(record, result), result.traits, database)
            except UnsupportedError:
                continue
            if choice.config == record.config:
                is_own = file.match.device == result.traits.name
                kept[key] = record if is_own else replace(record, gflops=None)
    return list(kept.values())


def _problem_of(record: Record, result: TuningResult) -> GemmProblem:
    """The product for which a record stands; without an alignment, of contiguous matrices."""
    shape = record.shape
    if record.kind == "small" and shape.batch is None:
        shape = replace(shape, batch=_MANY)
    problem = shape.problem(result.dtype, result.precision)
    if record.alignment is None:
        return problem
    layouts = (problem.a, problem.b, problem.out)
    a, b, out = (replace(layout, alignment=record.alignment) for layout in layouts)
    return replace(problem, a=a, b=b, out=out)


def _features_of(record: Record, result: TuningResult) -> Features:
    """The features by which a record is compared with others of its kind."""
    features = features_of(_problem_of(record, result))
    return replace(features, products=features_of_record(record).products)


def _may_be_refused(record: Record) -> bool:
    """Whether a driver may refuse the kernels, for which another record then stands in."""
    return family_of(record.config).may_be_refused


def _sort_key(record: Record) -> tuple[int, tuple[int, int, int], str, int, int, bool]:
    """What tells records apart, and their order in a file: a stand-in follows what it replaces."""
    shape, alignment = record.shape, features_of_record(record).alignment
    kind = _KINDS.index(record.kind)
    return kind, shape.sizes, shape.layout, alignment, shape.batch or 0, not _may_be_refused(record)


def make_file(
    result: TuningResult,
    path: Path,
    database: Database,
    level: Literal["device", "architecture"] = "device",
) -> DatabaseFile:
    """Make the file for a result, or extend the one at `path`.

    What it has for other types and arithmetics stays; `database` is what the library uses today. A
    file for the architecture of a device that has none known is for the device. An entry that is
    like another one stays so, unless a threshold goes, and only its own records are written.
    `ArgumentError` says that nothing was measured.
    """
    records = tuned_records(result)
    if not records:
        raise ArgumentError("nothing was measured: there is nothing to save")
    traits = result.traits
    match = _match(traits, level)
    present = read_file(path).entries if path.exists() else ()
    name = result.dtype, result.precision
    here = [entry for entry in present if entry.name == name]
    batches_alone = all(record.kind != "single" for record in records)
    if not batches_alone:
        here = [_without_threshold(entry) for entry in here]
    kept = _kept_records(result, database, match, here)
    if batches_alone:
        # Single products keep their threshold, with the records of both paths.
        kept = [record for record in kept if record.kind != "single"]
        kept += [record for entry in here for record in entry.own if record.kind == "single"]
    threshold = next((entry.indirect_from for entry in here if entry.indirect_from), None)
    like = next((entry.like for entry in here if entry.like), None)
    records = sorted([*records, *kept], key=_sort_key)
    text = f"tuned on {traits.name}, {traits.platform} {traits.driver}, {date.today()}"
    if any(record.gflops is None for record in kept):
        text += "; records without a speed are older ones"
    others = [entry for entry in present if entry.name != name]
    entries = [Entry(*name, tuple(records), threshold, like), *others]
    return DatabaseFile.make(path, match, Source("measured", text), entries)


def _match(traits: DeviceTraits, level: Literal["device", "architecture"]) -> Match:
    """Whom a file is for."""
    kind: Literal["cpu", "gpu"] = "cpu" if traits.type == "cpu" else "gpu"
    if level == "architecture" and traits.architecture:
        vendor = None if kind == "cpu" else traits.vendor
        return Match("architecture", kind, vendor, traits.architecture)
    return Match("device", kind, traits.vendor, device=traits.name)


def _without_threshold(entry: Entry) -> Entry:
    """An entry whose records tell the path: of one with a threshold, those of the path it takes.

    What such an entry borrows becomes its own: `like` cannot say which of the two paths is meant.
    """
    threshold = entry.indirect_from
    if threshold is None:
        return entry
    taken = tuple(
        record
        for record in entry.records
        if record.kind != "single"
        or (family_of(record.config).role is Role.LARGE) == threshold.reached(*record.shape.sizes)
    )
    return Entry(entry.dtype, entry.precision, taken)


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
    name = result.dtype, result.precision
    match = _match(result.traits, "device")
    source = Source("measured", f"tuned on {result.traits.name}, {date.today()}")
    entry = Entry(*name, tuple(sorted(tuned_records(result), key=_sort_key)))
    file = DatabaseFile.make(Path("unsaved.json"), match, source, [entry])
    return json.dumps(file.document)


def save_result(
    result: TuningResult, database: Database | None = None, contribute: Path | None = None
) -> Path:
    """Write the user's database, or a file to contribute (for the architecture); return its path.

    What other processes save meanwhile stays: the file is locked while it is read and written.
    `database` is what the library uses today; None reads it again. Errors are those of `make_file`,
    and `FileError` if the file cannot be written, or another process keeps it locked.
    """
    path = contribute or user_database_folder() / f"{result.traits.slug}.json"
    with locked(path, DATABASE):
        known = reload_database() if database is None else database
        level: Literal["device", "architecture"] = "architecture" if contribute else "device"
        save_database_file(make_file(result, path, known, level))
    return path
