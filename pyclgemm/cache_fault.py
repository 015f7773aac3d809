"""Caches on disk that cannot be used: the library works without them, and says so once."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import warnings
from pathlib import Path

_told: list[str] = []


class CacheWarning(RuntimeWarning):
    """A cache cannot be used, so what it would spare is done again in every process."""


def warn_uncached(folder: Path, error: BaseException | None) -> None:
    """Tell the user that a folder of caches cannot be used: the first one of the process."""
    if _told:
        return
    _told.append(str(folder))
    cause = getattr(error, "strerror", None) or error
    # Where warnings are errors it must not become one: the library works all the same.
    with contextlib.suppress(CacheWarning):
        warnings.warn(
            f"caches in {str(folder)!r} cannot be used ({cause}): kernels are compiled anew in "
            "every process; have XDG_CACHE_HOME name a folder that can be written",
            CacheWarning,
            stacklevel=2,
        )


def folder_fault(folder: Path, room: int = 0) -> OSError | None:
    """Why nothing can be written to a folder, or to where it would be made; None if it can.

    `room` is the number of bytes that must be free there.
    """
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    trial = there / f".{secrets.token_hex(4)}.part"
    try:
        try:
            # As much as a small database takes.
            with trial.open("xb") as file:
                file.write(bytes(16384))
        finally:
            with contextlib.suppress(OSError):
                trial.unlink(missing_ok=True)
        if room and shutil.disk_usage(there).free < room:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        return error
    return None


def environment_folder(name: str, *below: str) -> Path | None:
    """The folder that an environment variable names, and what lies below it."""
    value = os.environ.get(name)
    return Path(value, *below) if value else None
