"""Find the OpenCL devices of the machine, rank them, and say why some cannot be used.

No loader finds Intel's runtime from PyPI (``intel-opencl-rt``): its registry file names a folder
of the machine that built the wheel. Loaders read the registry once, at the first OpenCL call of a
process. For that call `register_runtimes` points them to a temporary registry with the system's
entries and the library's true path; on Windows, where the loader also takes names of libraries
from a variable, to the library itself.
"""

import functools
import importlib.metadata
import logging
import os
import platform as host_platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyopencl as cl

from ..errors import ArgumentError, UnsupportedError, shown
from .probe import is_software, summary
from .traits import DeviceTraits, name_of, platform_name, traits_of, type_of

#: The variable that names the device where a program names none.
DEVICE_VARIABLE = "PYCLGEMM_DEVICE"

NO_DEVICE = "the platform offers no device"

#: The distribution on PyPI that has Intel's runtime, and the file names of its library.
INTEL_WHEEL = "intel-opencl-rt"
INTEL_LIBRARY, _INTEL_DLL = "libintelocl.so", "intelocl64.dll"

#: Variables that choose runtimes: ocl-icd reads the first two, Khronos's loader the first and last.
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")


@dataclass(frozen=True)
class FoundDevice:
    """A device, or a platform without one, and whether it can be used."""

    platform: str
    name: str  # empty for a platform without devices
    device: cl.Device | None
    traits: DeviceTraits | None  # None if it cannot be used
    reason: str  # why it cannot be used, or a remark on a usable device; usually empty


@functools.cache
def find_devices() -> tuple[FoundDevice, ...]:
    """Probe every device: working ones, best first; then the others, and empty platforms."""
    devices, empty = _list_devices()
    found = [_examine(device) for device in devices]
    return (*sorted(found, key=lambda one: one.traits is None), *empty)


def working_devices() -> list[FoundDevice]:
    """The working devices, best first. A device's rank is its index in this list."""
    return [one for one in find_devices() if one.traits is not None]


@functools.cache
def best_device() -> FoundDevice:
    """The best working device; lower ranks are not probed."""
    for device in _list_devices()[0]:
        if (found := _examine(device)).traits is not None:
            return found
    raise _nothing_works()


def choose_device(selector: str | None) -> FoundDevice:
    """Find the device that a user names; None means that of $PYCLGEMM_DEVICE, else the best one.

    The selector is a rank, counted from 0, or a part of the device's or platform's name; its case
    does not matter. If several devices match, the best of them is chosen.
    """
    name = "device" if selector is not None else f"${DEVICE_VARIABLE}"
    selector = selector if selector is not None else os.environ.get(DEVICE_VARIABLE) or None
    if selector is None:
        return best_device()
    devices = working_devices()
    if not devices:
        raise _nothing_works()
    for rank, one in enumerate(devices):
        # Only the version of pocl's platform has the name "PoCL".
        version = one.device.platform.version if one.device is not None else ""
        names = "\n".join((one.name, one.platform, version)).lower()
        if selector == str(rank) or (not selector.isdigit() and selector.lower() in names):
            return one
    known = [f"{rank}: {one.name} ({one.platform})" for rank, one in enumerate(devices)]
    raise ArgumentError(
        f"{name} is {shown(selector)}, which is neither the number nor part of the name of a "
        f"device that works: {'; '.join(known)}"
    )


def preference(device: cl.Device) -> tuple[int, int, int]:
    """The key that ranks devices before they are probed; larger is better."""
    kinds = ("imitation", "cpu", "accelerator", "gpu")
    kind = kinds.index("imitation" if is_software(device.name) else type_of(device))
    width = max(1, device.native_vector_width_float)
    extensions = device.extensions.split()
    offers = sum(name in extensions for name in ("cl_khr_fp16", "cl_khr_fp64"))
    return kind, device.max_compute_units * width, offers


def _list_devices() -> tuple[list[cl.Device], list[FoundDevice]]:
    """All devices, best first, and the platforms without devices."""
    devices: list[cl.Device] = []
    empty: list[FoundDevice] = []
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # a loader without platforms raises this
        platforms = []
    for platform in platforms:
        offered, reason = [], NO_DEVICE
        try:
            offered = platform.get_devices()
        except cl.Error as error:
            reason = summary(error)
        if not offered:
            empty.append(FoundDevice(platform_name(platform), "", None, None, reason))
        devices += offered
    return sorted(devices, key=preference, reverse=True), empty


def _examine(device: cl.Device) -> FoundDevice:
    reason = "functional only: an imitation in software" if is_software(device.name) else ""
    try:
        traits = traits_of(device)
    except UnsupportedError as error:
        traits, reason = None, str(error).removeprefix(f"{name_of(device)} ")
    return FoundDevice(platform_name(device.platform), name_of(device), device, traits, reason)


def _nothing_works() -> UnsupportedError:
    found = find_devices()
    seen = "; ".join(f"{one.name or one.platform}: {one.reason}" for one in found)
    hint = what_helps([one.platform for one in found])
    return UnsupportedError(f"no OpenCL device works ({seen or 'none was found'}): {hint}")


def what_helps(platforms: list[str]) -> str:
    """What to do on this very machine if no device works; `platforms` are those that were found."""
    chosen = [f"{name}={value}" for name in LOADER_VARIABLES if (value := os.environ.get(name))]
    if chosen and not platforms:
        return (
            f"the environment chooses the runtimes by {' and '.join(chosen)}, where none is found; "
            "unset it, or have it name the .icd files of a runtime"
        )
    if installed_intel_library() and not chosen and not any("Intel" in one for one in platforms):
        return (
            f"{INTEL_WHEEL} is installed but was not loaded; import pyclgemm before the first "
            "OpenCL call of the process"
        )
    driver = "install a GPU's driver with its OpenCL runtime"
    if sys.platform == "darwin":
        return (
            "macOS has OpenCL of its own, which pyopencl from PyPI finds; conda's finds it with "
            "conda install -c conda-forge ocl_icd_wrapper_apple"
        )
    if host_platform.machine().lower() in ("x86_64", "amd64"):
        return f'{driver}, or a runtime for the CPU: pip install "pyclgemm[cpu]"'
    if sys.platform == "win32":
        return f"{driver}; on Arm, Microsoft's store has an OpenCL Compatibility Pack"
    return (
        f"{driver}, or pocl for the CPU, which PyPI does not have for this processor: "
        "apt install pocl-opencl-icd, or conda install -c conda-forge pyopencl pocl"
    )


@functools.cache
def register_runtimes() -> Path | None:
    """Make the loader find Intel's runtime from PyPI, before a process's first OpenCL call.

    Nothing changes without the wheel, on macOS, or if one of `LOADER_VARIABLES` chooses runtimes.
    It never raises. It returns the library that was registered.
    """
    try:
        registries = system_registries()
        library = runtime_to_register(os.environ, registries)
        if library is None:
            return None
        with _registry_of(library, registries) as (variable, value):
            os.environ[variable] = value
            try:
                cl.get_platforms()
            finally:
                del os.environ[variable]
        return library
    except Exception:  # an import of the library must not fail
        logging.getLogger(__name__).debug("no OpenCL runtime was registered", exc_info=True)
        return None


@contextmanager
def _registry_of(library: Path, registries: list[Path]) -> Iterator[tuple[str, str]]:
    """The variable that shows a library to the loader beside the others, and its value."""
    if sys.platform == "win32":
        yield "OCL_ICD_FILENAMES", str(library)
        return
    with tempfile.TemporaryDirectory(prefix="pyclgemm-icd-") as folder:
        for entry in _entries(registries):
            if not _intel_library_of(entry):
                shutil.copyfile(entry, Path(folder, entry.name))
        Path(folder, "pyclgemm-intel.icd").write_text(f"{library}\n")
        yield "OCL_ICD_VENDORS", folder


def runtime_to_register(environment: Mapping[str, str], registries: list[Path]) -> Path | None:
    """The library to register; None if the loader finds one, or the user chose runtimes."""
    if sys.platform == "darwin" or any(map(environment.get, LOADER_VARIABLES)):
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
