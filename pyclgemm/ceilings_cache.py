"""Measured ceilings, kept in the user's folder: one file a device and driver."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import date
from pathlib import Path

import pyopencl as cl

from .ceilings import Ceilings, measure_ceilings
from .device import DeviceTraits, traits_of
from .errors import FileError
from .json_text import read_json
from .user_files import Purpose, write_whole

#: Raised when a kernel or the meaning of a figure changes: older files are measured anew.
_VERSION = 3

_CEILINGS = Purpose("the measured ceilings", "name another folder")


def ceilings_folder() -> Path:
    """The folder of the files; it need not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("pyclgemm") / "ceilings"


def ceilings_of(
    queue: cl.CommandQueue,
    *,
    remeasure: bool = False,
    folder: Path | None = None,
    report: Callable[[str], None] = lambda what: None,
) -> Ceilings:
    """The ceilings of a device: as they were measured before, else measured now and kept.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        On the device.
    remeasure : bool
        Whether to measure even if a file has them.
    folder : pathlib.Path, optional
        Where files lie; by default `ceilings_folder`. One that cannot be written to is no
        error: then nothing is kept.
    report : callable, optional
        Told what is measured next.

    Raises
    ------
    KernelBuildError
        If the compiler refuses a kernel that measures.
    """
    traits = traits_of(queue.device)
    path = (folder or ceilings_folder()) / _file_name(traits)
    if not remeasure and (kept := _read(path)) is not None:
        return kept
    ceilings = measure_ceilings(queue, report)
    _write(path, traits, ceilings)
    return ceilings


def _file_name(traits: DeviceTraits) -> str:
    identity = "\n".join((traits.platform, traits.name, traits.driver, str(traits.compute_units)))
    slug = re.sub(r"[^a-z0-9]+", "-", traits.name.lower()).strip("-")[:60]
    return f"{slug}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"


def _read(path: Path) -> Ceilings | None:
    """What a file holds; None if there is none that can be used, for it can be made again."""
    try:
        content = read_json(path)
        if content["version"] != _VERSION:
            return None
        ceilings = Ceilings(**content["ceilings"])
        numbers = [
            ceilings.global_memory, ceilings.launch_seconds, *ceilings.arithmetic.values(),
            *ceilings.units.values(),
            *(one for one in (ceilings.cache, ceilings.local_memory) if one is not None),
        ]  # fmt: skip
        date.fromisoformat(ceilings.date)
        return ceilings if all(0 < number < math.inf for number in numbers) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _write(path: Path, traits: DeviceTraits, ceilings: Ceilings) -> None:
    """Keep a file for the next time; without it, all is measured again then."""
    content = {
        "version": _VERSION,
        "device": {name: getattr(traits, name) for name in ("name", "platform", "driver")},
        "ceilings": {field.name: asdict(ceilings)[field.name] for field in fields(ceilings)},
    }
    with contextlib.suppress(FileError):
        write_whole(path, json.dumps(content, indent=1), _CEILINGS)
