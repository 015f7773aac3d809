"""Prepare the environment for a process's first OpenCL call, in which runtimes are loaded.

The functions here only set variables of the environment: they make no OpenCL call.

No loader finds Intel's runtime from PyPI (``intel-opencl-rt``): its registry file names a folder
of the machine that built the wheel. `register_runtimes` points loaders to a registry with the
system's entries and the library's true path; on Windows, where the loader also takes names of
libraries from a variable, to the library itself. Processes that this one starts find it too.

pocl caches compiled kernels in files, and offers no device if it cannot write them:
`make_room_for_pocl` gives it another folder.
"""

import atexit
import contextlib
import functools
import importlib.metadata
import logging
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from .caches import check_folder, environment_folder, warn_uncached
from .files import Purpose, write_whole

#: The distribution on PyPI that has Intel's runtime, and the file names of its library.
INTEL_WHEEL = "intel-opencl-rt"
INTEL_LIBRARY, _INTEL_DLL = "libintelocl.so", "intelocl64.dll"

#: Variables that choose runtimes: ocl-icd reads the first two, Khronos's loader the first and last.
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")

#: How the names of the registries that this module makes begin.
_REGISTRY = "pyclgemm-icd-"

_PURPOSE = Purpose("the registry of OpenCL runtimes", "have XDG_CACHE_HOME name another folder")


def make_room_for_pocl() -> None:
    """Give pocl a temporary folder if it cannot write its own."""
    if os.name != "posix":
        return
    folder = (
        environment_folder("POCL_CACHE_DIR")
        or environment_folder("XDG_CACHE_HOME", "pocl", "kcache")
        or environment_folder("HOME", ".cache", "pocl", "kcache")
    )
    if folder is None:
        return
    try:
        check_folder(folder, 2**24)  # pocl ends the process when its disk is full
    except OSError as fault:
        warn_uncached(folder, fault)
        with contextlib.suppress(OSError):  # pocl offers no device then, and other runtimes work
            os.environ["POCL_CACHE_DIR"] = _temporary_folder("pyclgemm-pocl-")


def _temporary_folder(prefix: str) -> str:
    """Make a folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked child leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def register_runtimes() -> Path | None:
    """Have the loader find Intel's runtime from PyPI at the process's first OpenCL call.

    Nothing changes without the wheel, on macOS, or if one of `LOADER_VARIABLES` chooses runtimes.
    It never raises. It returns the library that was registered.
    """
    try:
        registries = system_registries()
        library = runtime_to_register(os.environ, registries)
        if library is None:
            return None
        if sys.platform == "win32":
            os.environ["OCL_ICD_FILENAMES"] = str(library)
        else:
            os.environ["OCL_ICD_VENDORS"] = str(_registry_of(library, registries))
        return library
    except Exception:  # an import of the library must not fail
        logging.getLogger(__name__).debug("no OpenCL runtime was registered", exc_info=True)
        return None


def _registry_of(library: Path, registries: list[Path]) -> Path:
    """A folder with the library's entry beside the others.

    It is in the user's cache, and its name follows from its entries. So it serves all processes,
    also those that outlive this one.
    """
    from platformdirs import user_cache_path

    entries = {
        entry.name: entry.read_bytes()
        for entry in _entries(registries)
        if not _intel_library_of(entry)
    }
    entries["pyclgemm-intel.icd"] = f"{library}\n".encode()
    digest = zlib.crc32(repr(sorted(entries.items())).encode())
    folder = user_cache_path("pyclgemm") / f"{_REGISTRY}{digest:08x}"
    try:
        _write(entries, folder)
    except OSError:
        folder = Path(_temporary_folder(_REGISTRY))
        _write(entries, folder)
    return folder


def _write(entries: Mapping[str, bytes], folder: Path) -> None:
    """Write the entries that a folder lacks."""
    for name, content in entries.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content, _PURPOSE)


def loader_choices(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the user chooses runtimes; those that this module sets are none."""
    values = {name: environment.get(name, "") for name in LOADER_VARIABLES}
    return {name: value for name, value in values.items() if value and not _is_ours(value)}


def _is_ours(value: str) -> bool:
    name = Path(value).name
    return name.startswith(_REGISTRY) or name == _INTEL_DLL


def runtime_to_register(environment: Mapping[str, str], registries: list[Path]) -> Path | None:
    """The library to register; None if the loader finds one, or the user chose runtimes."""
    if sys.platform == "darwin" or loader_choices(environment):
        return None
    named = filter(None, map(_intel_library_of, _entries(registries)))
    return None if any(map(Path.is_file, named)) else installed_intel_library()


def installed_intel_library() -> Path | None:
    """Find the library of Intel's wheel by the wheel's own list of files."""
    try:
        files = importlib.metadata.files(INTEL_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    name = _INTEL_DLL if sys.platform == "win32" else INTEL_LIBRARY
    found = (Path(str(file.locate())).resolve() for file in files if file.name == name)
    return next(filter(Path.is_file, found), None)


def system_registries() -> list[Path]:
    """The folders of ``.icd`` files that the loader reads if no variable is set."""
    registries = [Path("/etc/OpenCL/vendors")]
    if Path(sys.prefix, "conda-meta").is_dir():  # a conda environment has its own loader
        registries.append(Path(sys.prefix, "etc", "OpenCL", "vendors"))
    return [folder for folder in registries if folder.is_dir()]


def _entries(registries: list[Path]) -> list[Path]:
    return [entry for folder in registries for entry in sorted(folder.glob("*.icd"))]


def _intel_library_of(entry: Path) -> Path | None:
    """The library that an entry names, if it is Intel's."""
    named = Path(entry.read_text(errors="replace").strip())
    return named if named.name.startswith(INTEL_LIBRARY) else None
