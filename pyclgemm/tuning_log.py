"""What the tuner has measured so far, on disk, so that a second run resumes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import Config, as_config
from .device import DeviceTraits
from .errors import ConfigError, shown
from .gemm_shape import GemmShape
from .json_text import JsonError, parse_json, read_lines
from .resources import resource_folder
from .trial import FINE, OUTCOMES, Outcome, config_to_json, shape_from_json
from .user_files import Purpose, append_line, check_writable

_LOG = Purpose("the tuning log", "have XDG_CACHE_HOME name another folder for the user's caches")


@dataclass(frozen=True)
class Logged:
    """One line of the log: a configuration on a shape, and how that came out."""

    shape: GemmShape
    config: Config
    outcome: Outcome


class TuningLog:
    """Lines of JSON, one a trial, written as soon as it is known.

    Parameters
    ----------
    path : pathlib.Path
        The file; it and its folder are made with the first line.

    Examples
    --------
    >>> import tempfile
    >>> from pyclgemm.config import CpuConfig
    >>> log = TuningLog(Path(tempfile.mkdtemp()) / "log.jsonl")
    >>> config = CpuConfig(MR=6, NR=16, KC=256, VW=8)
    >>> log.append(Logged(GemmShape(8, 8, 8), config, Outcome("wrong")))
    >>> [logged.outcome.status for logged in log]
    ['wrong']
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Logged]:
        """All that can be read; a line cut short by a crash is passed over."""
        try:
            lines = read_lines(self.path)
        except (OSError, JsonError):  # nothing to resume from
            return
        for line in lines:
            try:
                document = parse_json(line)
                shape = shape_from_json(document["shape"])
                status = document["status"]
                seconds = _seconds(document.get("seconds"), status)
                logged = Logged(shape, as_config(document["config"]), Outcome(status, seconds))
            except (ValueError, TypeError, KeyError, AttributeError, ConfigError):
                continue
            if status in OUTCOMES:
                yield logged

    def append(self, logged: Logged) -> None:
        """Add a line, which outlives the process when this returns.

        Raises
        ------
        FileError
            If the file cannot be written.
        """
        document = {
            "shape": str(logged.shape),
            "status": logged.outcome.status,
            "seconds": logged.outcome.seconds,
            "reason": logged.outcome.reason,
            "config": config_to_json(logged.config),
        }
        append_line(self.path, json.dumps(document), _LOG)

    def check_writable(self) -> None:
        """Refuse a file that cannot be written, before anything is measured.

        Raises
        ------
        FileError
            If it cannot be written.
        """
        check_writable(self.path, _LOG)


def _seconds(value: Any, status: str) -> float | None:
    """The time of a trial; raise `ValueError` if it is none, or lacks where there must be one."""
    if value is None and status != FINE:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"seconds is {shown(value)}; a positive number is wanted")
    return float(value)


def user_log(traits: DeviceTraits, dtype: str, precision: str, folder: Path | None = None) -> Path:
    """Where the log for a device, its driver and an arithmetic lies.

    What was measured with other kernel templates is not comparable, so these take part in the
    name.

    Parameters
    ----------
    traits : DeviceTraits
        The device.
    dtype, precision : str
        Element type by NumPy's name, arithmetic by JAX's.
    folder : pathlib.Path, optional
        None takes ``tuning/`` in the user's cache folder.
    """
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("pyclgemm") / "tuning"
    digest = hashlib.sha256()
    for template in sorted(resource_folder("kernels_cl").glob("*.mako")):
        digest.update(template.read_bytes())
    for fact in (traits.name, traits.platform, traits.driver):
        digest.update(f"\0{fact}".encode())
    slug = device_slug(traits)[:60]
    return folder / f"{slug}-{dtype}-{precision}-{digest.hexdigest()[:12]}.jsonl"


def device_slug(traits: DeviceTraits) -> str:
    """The device's name as part of a file's name.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> device_slug(typical_traits("sm_90"))
    'typical-sm-90'
    """
    return re.sub(r"[^a-z0-9]+", "-", traits.name.lower()).strip("-") or "device"
