"""Keep pyopencl and pocl working where their caches cannot be written.

pyopencl caches Python code that sets a kernel's arguments in a database, and pocl caches compiled
kernels in files. If these cannot be used, pyopencl makes no kernel and pocl offers no device. The
library then works without the caches, and warns once.
"""

import atexit
import contextlib
import errno
import functools
import os
import shutil
import sqlite3
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyopencl as cl

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


def new_kernel(program: cl.Program, name: str) -> cl.Kernel:
    """Make a kernel object, without pyopencl's database if that cannot be used."""
    _check_pyopencl()
    try:
        return cl.Kernel(program, name)
    except cl.Error:
        raise
    except Exception as error:  # a damaged database raises anything
        if getattr(cl, "_PYOPENCL_NO_CACHE", True):
            raise
        _disable_pyopencl_cache(_pyopencl_folder(), error)
        return cl.Kernel(program, name)


def make_room_for_pocl() -> None:
    """Before the first OpenCL call, give pocl a temporary folder if it cannot write its own."""
    if os.name != "posix":
        return
    folder = (
        _environment_folder("POCL_CACHE_DIR")
        or _environment_folder("XDG_CACHE_HOME", "pocl", "kcache")
        or _environment_folder("HOME", ".cache", "pocl", "kcache")
    )
    if folder is None:
        return
    try:
        _check_folder(folder, 2**24)  # pocl ends the process when its disk is full
    except OSError as fault:
        warn_uncached(folder, fault)
        with contextlib.suppress(OSError):  # pocl offers no device then, and other runtimes work
            temporary = tempfile.mkdtemp(prefix="pyclgemm-pocl-")
            atexit.register(_remove, temporary, os.getpid())
            os.environ["POCL_CACHE_DIR"] = temporary


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked child leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)


def _environment_folder(name: str, *below: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value, *below) if value else None


def _check_folder(folder: Path, free_bytes: int = 0) -> None:
    """Raise `OSError` if a folder cannot be written or made, or has fewer than `free_bytes`."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    write_trial(existing, 2**14)  # bytes that a small database takes
    if free_bytes and shutil.disk_usage(existing).free < free_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@functools.cache
def _check_pyopencl() -> None:
    """Disable pyopencl's database if it is damaged, full, or locked for more than two seconds."""
    if getattr(cl, "_PYOPENCL_NO_CACHE", True):
        return
    folder, version = _pyopencl_folder(), ".".join(map(str, sys.version_info))
    try:
        _check_folder(folder)
        for path in folder.glob(f"pdict-*-pyopencl-invoker-cache-*-{version}.sqlite"):
            opened = sqlite3.connect(path, timeout=2.0, isolation_level=None)
            with contextlib.closing(opened) as connection:
                (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if answer != "ok":
                    raise sqlite3.DatabaseError(str(answer))
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
    except (sqlite3.Error, OSError) as fault:
        _disable_pyopencl_cache(folder, fault)


def _pyopencl_folder() -> Path:
    import platformdirs

    if sys.platform == "darwin" and (named := _environment_folder("XDG_CACHE_HOME", "pytools")):
        return named  # as pyopencl does there
    return platformdirs.user_cache_path("pytools", "pytools")


def _disable_pyopencl_cache(folder: Path, cause: Any) -> None:
    """Do what ``PYOPENCL_NO_CACHE=1`` does, which pyopencl reads only while it is imported."""
    warn_uncached(folder, cause)
    cl._PYOPENCL_NO_CACHE = True
