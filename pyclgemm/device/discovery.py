"""Find the OpenCL devices of the machine, rank them, and say why some cannot be used."""

import functools
import os
import platform as host_platform
import sys
from dataclasses import dataclass

import pyopencl as cl

from ..errors import ArgumentError, UnsupportedError, shown
from ..host.process import interrupts_blocked
from ..host.runtimes import INTEL_WHEEL, installed_intel_library, loader_choices
from .probe import is_software, summary
from .traits import DeviceTraits, name_of, platform_name, traits_of, type_of

#: The variable that names the device where a program names none.
DEVICE_VARIABLE = "PYCLGEMM_DEVICE"

NO_DEVICE = "the platform offers no device"


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


# pocl starts its threads here, and aborts the process if Ctrl-C ends a linker that one has started.
@interrupts_blocked()
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
    chosen = [f"{name}={value}" for name, value in loader_choices(os.environ).items()]
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
