"""Folders of caches: whether they can be written, and one warning if one cannot.

The library works without caches, and so do pyopencl and pocl with its help.
"""

import contextlib
import errno
import os
import shutil
import warnings
from pathlib import Path

from .files import write_trial

#: Folders that a warning has named.
_warned: list[Path] = []


class CacheWarning(RuntimeWarning):
    """A cache cannot be used, so every process repeats the work that it would save."""


def warn_uncached(folder: Path, error: BaseException | None) -> None:
    """Warn that a folder of caches cannot be used, once in a process."""
    if _warned:
        return
    _warned.append(folder)
    cause = getattr(error, "strerror", None) or error
    # The library works all the same, so this is no error even where warnings are errors.
    with contextlib.suppress(CacheWarning):
        warnings.warn(
            f"caches in {str(folder)!r} cannot be used ({cause}): kernels are compiled anew in "
            "every process; delete what is damaged there, or have XDG_CACHE_HOME name a folder "
            "that can be written",
            CacheWarning,
            stacklevel=2,
        )


def environment_folder(name: str, *below: str) -> Path | None:
    """The folder `below` one that a variable of the environment names; None if it is not set."""
    value = os.environ.get(name)
    return Path(value, *below) if value else None


def check_folder(folder: Path, free_bytes: int = 0) -> None:
    """Raise `OSError` if a folder cannot be written or made, or has fewer than `free_bytes`."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    write_trial(existing, 2**14)  # bytes that a small database takes
    if free_bytes and shutil.disk_usage(existing).free < free_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
