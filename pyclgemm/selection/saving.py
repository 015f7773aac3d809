"""Add measurements to a database file: the user's own, or one to contribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from ..device.ceilings import Ceilings, typical_ceilings
from ..device.traits import DeviceTraits
from ..errors import DatabaseError
from ..families.registry import family_of
from .basis import tuned_on
from .database import DatabaseFile, read_file, user_database_folder
from .features import features_of_record
from .records import Entry, Match, Model, Record, Source, kind_of

#: Whether a file covers the device alone, or all devices of its architecture.
Level = Literal["device", "architecture"]


def user_file(traits: DeviceTraits) -> Path:
    """The file of the user's database for a device."""
    return user_database_folder() / f"{traits.slug}.json"


def extended_file(
    path: Path | None,
    traits: DeviceTraits,
    name: tuple[str, str],
    records: Sequence[Record],
    *,
    level: Level = "device",
    model: Model | None = None,
    ceilings: Ceilings | None = None,
) -> DatabaseFile:
    """The file at a path extended by records, or a new one without a path; nothing is written.

    Records of the same product are replaced, except those that stand in for a path that drivers
    may refuse, and samples of other configurations. A sample replaces no other record. A record of
    a single product removes the entry's threshold. The file keeps its ceilings; `ceilings`, which
    `model` assumes, are taken if it has none. A file for an architecture has no ceilings, which
    differ between devices, and no models that assume any. An existing one keeps the devices that it
    covers, and the names of those that it was tuned on. `DatabaseError` if it does not cover this
    device.
    """
    file = read_file(path) if path and path.exists() else None
    match, names = match_of(traits, level), [traits.name]
    if file and level == "architecture":
        if not file.match.fits(traits):
            raise DatabaseError(
                f"{path} is for {file.match}, and the records are of {traits.name!r}, which is "
                f"{match}"
            )
        match, names = file.match, list(dict.fromkeys([*tuned_on(file), traits.name]))
    present = file.entries if file else ()
    if level == "architecture" and file and file.ceilings:
        present = tuple(replace(entry, fitted=None) for entry in present)
    here = next((entry for entry in present if entry.name == name), Entry(*name, ()))
    others = [entry for entry in present if entry.name != name]
    kept = _kept(here.own, records, name)
    text = f"tuned on {' and '.join(names)}, {traits.platform} {traits.driver}, {date.today()}"
    if any(record.gflops is None for record in kept):
        text += "; records without a speed are older ones"
    has_single = any(record.kind == "single" for record in records)
    entry = replace(
        here,
        own=tuple(sorted([*records, *kept], key=_product_of)),
        indirect_from=None if has_single else here.indirect_from,
        fitted=model or here.fitted,
    )
    source = Source("measured", text)
    stated = None if level == "architecture" else (file and file.ceilings) or ceilings
    return DatabaseFile.make(path or Path("memory"), match, source, [entry, *others], stated)


def calibrated_file(
    path: Path, traits: DeviceTraits, ceilings: Ceilings, models: Mapping[tuple[str, str], Model]
) -> DatabaseFile:
    """The file at a path, or a new one, with new ceilings and with models by entry.

    A new model adds its families to the old model of the entry, or replaces them. Old models that
    assume other ceilings are removed.
    """
    present: dict[tuple[str, str], Entry] = {}
    source = Source("measured", f"calibrated on {traits.name}, {date.today()}")
    if path.exists():
        file = read_file(path)
        source = file.source
        for entry in file.entries:
            are_same = (file.ceilings or typical_ceilings(traits)) == ceilings
            present[entry.name] = entry if are_same else replace(entry, fitted=None)
    for name, model in models.items():
        entry = present.get(name, Entry(*name, ()))
        paths = {**(entry.fitted.paths if entry.fitted else {}), **model.paths}
        present[name] = replace(entry, fitted=replace(model, paths=paths))
    return DatabaseFile.make(
        path, match_of(traits, "device"), source, list(present.values()), ceilings
    )


def match_of(traits: DeviceTraits, level: Level) -> Match:
    """The devices that a file covers; without a known architecture, this device alone."""
    kind = kind_of(traits)
    if level == "architecture" and traits.architecture:
        vendor = None if kind == "cpu" and not traits.core else traits.vendor
        core = traits.core or None
        return Match("architecture", kind, vendor, traits.architecture, core=core)
    return Match("device", kind, traits.vendor, device=traits.name)


def _product_of(record: Record) -> tuple[Any, ...]:
    """The key by which a file sorts its records; the first of equal keys is chosen."""
    return *record.product, record.sample


def _kept(own: Sequence[Record], records: Sequence[Record], name: tuple[str, str]) -> list[Record]:
    """The records of an entry that the new ones do not replace."""
    features_of_new = [(features_of_record(one, *name), one) for one in records]
    timed = {(features, one.config) for features, one in features_of_new}
    new = [(features, one) for features, one in features_of_new if not one.sample]
    replaced = {features for features, _ in new}
    #: Products with a new record that no driver refuses.
    certain = {features for features, one in new if not family_of(one.config).may_be_refused}

    def superseded(record: Record) -> bool:
        features = features_of_record(record, *name)
        if record.sample:
            return (features, record.config) in timed
        may_be_refused = family_of(record.config).may_be_refused
        return features in (replaced if may_be_refused else certain)

    return [record for record in own if not superseded(record)]
