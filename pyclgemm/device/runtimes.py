"""Make Intel's OpenCL runtime from PyPI visible, which no OpenCL loader finds by itself.

The package (``intel-opencl-rt``) registers itself by a file that names a folder of the machine on
which the wheel was made. Loaders read the registry once, at the first OpenCL call of a process. For
that call this module points them to a temporary registry with the system's entries and the
library's true path.

pocl's wheel needs no help: pyopencl's bundled loader looks where it is installed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyopencl as cl

#: The file name under which Intel's library is loaded.
INTEL_LIBRARY = "libintelocl.so"

#: Variables by which a user chooses runtimes. ocl-icd reads the first two, the Khronos loader the
#: first and the last.
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")


@functools.cache
def register_runtimes() -> Path | None:
    """Make the loader see Intel's runtime from PyPI, before a process's first OpenCL call.

    Nothing changes without the wheel, off Linux, or where the user chose runtimes by one of
    `LOADER_VARIABLES`. It never raises. The answer is the library that was shown to the loader.
    """
    try:
        library = runtime_to_register(os.environ, system_registries())
        if library is not None:
            with _registry(library, system_registries()):
                cl.get_platforms()
        return library
    except Exception:  # whatever is odd about a machine, importing the library must not fail
        logging.getLogger(__name__).debug("no OpenCL runtime was registered", exc_info=True)
        return None


def runtime_to_register(environment: Mapping[str, str], registries: list[Path]) -> Path | None:
    """The library to show to the loader; None if it finds one, or the user chose runtimes."""
    if not sys.platform.startswith("linux"):
        return None
    if any(environment.get(name) for name in LOADER_VARIABLES):
        return None
    library = installed_intel_library()
    if library is None or any(_names_intel(entry, exists=True) for entry in _entries(registries)):
        return None
    return library


def installed_intel_library() -> Path | None:
    """Find the library of Intel's wheel by the wheel's own list of files."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == INTEL_LIBRARY)
    return next(filter(Path.is_file, found), None)


def system_registries() -> list[Path]:
    """The folders of ``.icd`` files that the loader reads when no variable is set."""
    registries = [Path("/etc/OpenCL/vendors")]
    if Path(sys.prefix, "conda-meta").is_dir():  # a conda environment has its own loader
        registries.append(Path(sys.prefix, "etc", "OpenCL", "vendors"))
    return [folder for folder in registries if folder.is_dir()]


def _entries(registries: list[Path]) -> list[Path]:
    return [entry for folder in registries for entry in sorted(folder.glob("*.icd"))]


def _names_intel(entry: Path, *, exists: bool) -> bool:
    named = Path(entry.read_text(errors="replace").strip())
    return named.name.startswith(INTEL_LIBRARY) and (not exists or named.is_file())


@contextmanager
def _registry(library: Path, registries: list[Path]) -> Iterator[None]:
    """Point the loader at the system's entries and `library`, inside a with-block."""
    with tempfile.TemporaryDirectory(prefix="pyclgemm-icd-") as folder:
        for entry in _entries(registries):
            if not _names_intel(entry, exists=False):
                shutil.copyfile(entry, Path(folder, entry.name))
        Path(folder, "pyclgemm-intel.icd").write_text(f"{library}\n")
        os.environ["OCL_ICD_VENDORS"] = folder
        try:
            yield
        finally:
            del os.environ["OCL_ICD_VENDORS"]
