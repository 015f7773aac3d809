"""Make kernel objects where pyopencl's cache cannot be used.

pyopencl caches Python code that sets a kernel's arguments in a database. If that is damaged, full
or locked, pyopencl makes no kernel. The library then works without it, and warns once.
"""

import contextlib
import functools
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pyopencl as cl

from .caches import check_folder, environment_folder, warn_uncached


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


@functools.cache
def _check_pyopencl() -> None:
    """Disable pyopencl's database if it is damaged, full, or locked for more than two seconds."""
    if getattr(cl, "_PYOPENCL_NO_CACHE", True):
        return
    folder, version = _pyopencl_folder(), ".".join(map(str, sys.version_info))
    try:
        check_folder(folder)
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

    if sys.platform == "darwin" and (named := environment_folder("XDG_CACHE_HOME", "pytools")):
        return named  # as pyopencl does there
    return platformdirs.user_cache_path("pytools", "pytools")


def _disable_pyopencl_cache(folder: Path, cause: Any) -> None:
    """Do what ``PYOPENCL_NO_CACHE=1`` does, which pyopencl reads only while it is imported."""
    warn_uncached(folder, cause)
    cl._PYOPENCL_NO_CACHE = True
