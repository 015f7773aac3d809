"""Caches of pyopencl and of pocl, without which both would not work where they cannot be written.

pyopencl keeps the Python code that sets a kernel's arguments in a database, and pocl its compiled
kernels in files. Where these cannot be used, pyopencl makes no kernel and pocl offers no device.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import secrets
import shutil
import sqlite3
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyopencl as cl

# --------------------------------------------------------------------------------------
# Caches on disk that cannot be used: the library works without them, and says so once.
# --------------------------------------------------------------------------------------

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


# --------------------------------------------------------------------------------------

#: Seconds for which another process may hold pyopencl's database; it needs milliseconds.
_BUSY_SECONDS = 2.0
#: What must be free for pocl, which ends the process where its disk fills up.
_POCL_BYTES = 2**24


def new_kernel(program: cl.Program, name: str) -> cl.Kernel:
    """Make a kernel object, without pyopencl's database where that cannot be used.

    Raises
    ------
    pyopencl.Error
        If the runtime refuses it.
    """
    _check_pyopencl()
    try:
        return cl.Kernel(program, name)
    except cl.Error:
        raise
    except Exception as error:  # a damaged database raises anything
        if getattr(cl, "_PYOPENCL_NO_CACHE", True):
            raise
        _leave_out(_pyopencl_folder(), error)
        return cl.Kernel(program, name)


def make_room_for_pocl() -> None:
    """Give pocl a temporary folder if it cannot write to its own; before the first OpenCL call."""
    if os.name != "posix":
        return
    folder = (
        environment_folder("POCL_CACHE_DIR")
        or environment_folder("XDG_CACHE_HOME", "pocl", "kcache")
        or environment_folder("HOME", ".cache", "pocl", "kcache")
    )
    if folder is None or (fault := folder_fault(folder, _POCL_BYTES)) is None:
        return
    warn_uncached(folder, fault)
    try:
        temporary = tempfile.mkdtemp(prefix="pyclgemm-pocl-")
    except OSError:
        return  # pocl offers no device then, and other runtimes work
    atexit.register(_remove, temporary, os.getpid())
    os.environ["POCL_CACHE_DIR"] = temporary


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a fork leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _check_pyopencl() -> None:
    """Have pyopencl leave its database out if it is damaged, full, or held by another process.

    pyopencl itself would wait for the other process without end.
    """
    if getattr(cl, "_PYOPENCL_NO_CACHE", True):
        return
    folder = _pyopencl_folder()
    fault: Exception | None = folder_fault(folder)
    if fault is None:
        version = ".".join(map(str, sys.version_info))
        for path in folder.glob(f"pdict-*-pyopencl-invoker-cache-*-{version}.sqlite"):
            fault = fault or _database_fault(path)
    if fault is not None:
        _leave_out(folder, fault)


def _pyopencl_folder() -> Path:
    import platformdirs

    if sys.platform == "darwin" and (named := environment_folder("XDG_CACHE_HOME", "pytools")):
        return named  # as pyopencl does there
    return platformdirs.user_cache_path("pytools", "pytools")


def _database_fault(path: Path) -> Exception | None:
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                return sqlite3.DatabaseError(str(answer))
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        return error
    return None


def _leave_out(folder: Path, cause: Any) -> None:
    """What ``PYOPENCL_NO_CACHE=1`` does, for it is read as pyopencl is imported."""
    warn_uncached(folder, cause)
    cl._PYOPENCL_NO_CACHE = True
