"""What was measured on a device, written to a database file: the user's own, or one to contribute.

A file keeps what it has for other products and other types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args

from ..device.ceilings import Ceilings, typical_ceilings
from ..device.traits import DeviceTraits
from ..families.registry import family_of
from .database import DatabaseFile, read_file, user_database_folder
from .features import features_of_record
from .records import Entry, Kind, Match, Model, Record, Source, kind_of

#: Whom a file is for.
Level = Literal["device", "architecture"]


def user_file(traits: DeviceTraits) -> Path:
    """The file of the user's own database for a device."""
    return user_database_folder() / f"{traits.slug}.json"


def extended_file(
    path: Path,
    traits: DeviceTraits,
    name: tuple[str, str],
    records: Sequence[Record],
    *,
    level: Level = "device",
    model: Model | None = None,
    ceilings: Ceilings | None = None,
) -> DatabaseFile:
    """The file at a path with more records, or a new one; nothing is written.

    A record for the same product is replaced, but not what stands in for one that a driver may
    refuse. Once single products were compared, no threshold decides between paths. A file for the
    architecture of a device that has none known is for the device. `ceilings`, of which the model
    is, count where the file states none. A file for an architecture has none, since they are those
    of one device; models about them go with them.
    """
    known = read_file(path) if path.exists() else None
    present = known.entries if known else ()
    stated = (known and known.ceilings) or ceilings
    if level == "architecture":
        if known and known.ceilings:
            present = tuple(replace(entry, fitted=None) for entry in present)
        stated = None
    here = next((entry for entry in present if entry.name == name), Entry(*name, ()))
    kept = _kept(here.own, records, name)
    batches_alone = all(record.kind != "single" for record in records)
    text = f"tuned on {traits.name}, {traits.platform} {traits.driver}, {date.today()}"
    if any(record.gflops is None for record in kept):
        text += "; records without a speed are older ones"
    entry = replace(
        here,
        own=sorted_records([*records, *kept]),
        indirect_from=here.indirect_from if batches_alone else None,
        fitted=model or here.fitted,
    )
    others = [other for other in present if other.name != name]
    match, source = match_of(traits, level), Source("measured", text)
    return DatabaseFile.make(path, match, source, [entry, *others], stated)


def calibrated_file(
    path: Path, traits: DeviceTraits, ceilings: Ceilings, models: Mapping[tuple[str, str], Model]
) -> DatabaseFile:
    """The file at a path, or a new one, with the ceilings of a device and models by entry.

    Of the models that are there those about other ceilings go; a new one adds families to those
    of an old one, or replaces them.
    """
    present: dict[tuple[str, str], Entry] = {}
    source = Source("measured", f"calibrated on {traits.name}, {date.today()}")
    if path.exists():
        file = read_file(path)
        source = file.source
        for entry in file.entries:
            is_about_them = (file.ceilings or typical_ceilings(traits)) == ceilings
            present[entry.name] = entry if is_about_them else replace(entry, fitted=None)
    for name, model in models.items():
        entry = present.get(name, Entry(*name, ()))
        paths = {**(entry.fitted.paths if entry.fitted else {}), **model.paths}
        present[name] = replace(entry, fitted=replace(model, paths=paths))
    return DatabaseFile.make(
        path, match_of(traits, "device"), source, list(present.values()), ceilings
    )


def match_of(traits: DeviceTraits, level: Level) -> Match:
    """Whom a file is for."""
    kind = kind_of(traits)
    if level == "architecture" and traits.architecture:
        vendor = None if kind == "cpu" else traits.vendor
        return Match("architecture", kind, vendor, traits.architecture)
    return Match("device", kind, traits.vendor, device=traits.name)


def sorted_records(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records in the order of a file. Of several for one product the first decides."""

    def product_of(record: Record) -> tuple[Any, ...]:
        shape, kind = record.shape, get_args(Kind).index(record.kind)
        least, products = record.alignment or 0, shape.batch or 0
        return kind, shape.sizes, shape.layout, least, products, record.packed

    return tuple(sorted(records, key=product_of))


def _kept(own: Sequence[Record], records: Sequence[Record], name: tuple[str, str]) -> list[Record]:
    """The records of an entry that new ones do not replace."""
    new = [(features_of_record(one, *name), family_of(one.config)) for one in records]
    replaced = {features for features, _ in new}
    #: Those for which something new is there that no driver refuses.
    certain = {features for features, family in new if not family.may_be_refused}

    def superseded(record: Record) -> bool:
        features = features_of_record(record, *name)
        may_be_refused = family_of(record.config).may_be_refused
        return features in (replaced if may_be_refused else certain)

    return [record for record in own if not superseded(record)]
