"""Find the OpenCL devices of the machine, rank them, and say why some cannot be used."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyopencl as cl

from ..errors import ArgumentError, UnsupportedError, shown
from .names import is_software
from .probe import summary
from .traits import DeviceTraits, name_of, platform_name, traits_of, type_of

NO_DEVICE = "the platform offers no device"


@dataclass(frozen=True)
class FoundDevice:
    """A device, or a platform without one, and whether it can be used."""

    platform: str
    name: str  # empty for a platform without devices
    device: cl.Device | None
    traits: DeviceTraits | None  # None if it cannot be used
    reason: str  # why it cannot be used, or a remark on a device that can; usually empty


@functools.cache
def find_devices() -> tuple[FoundDevice, ...]:
    """Probe every device: those that work first, best first; then others, and empty platforms."""
    devices, empty = _list_devices()
    found = [_examine(device) for device in devices]
    return (*sorted(found, key=lambda one: one.traits is None), *empty)


def working_devices() -> list[FoundDevice]:
    """The devices that can be used, best first. A device's rank is its index in this list."""
    return [one for one in find_devices() if one.traits is not None]


@functools.cache
def default_device() -> cl.Device:
    """The best device that works; those that rank lower are not probed."""
    for device in _list_devices()[0]:
        if _examine(device).traits is not None:
            return device
    raise _nothing_works()


def choose_device(selector: str | None) -> FoundDevice:
    """Find the device that a user names; None means the best of all.

    The selector is a rank, counted from 0, or a part of the device's or its platform's name, in
    upper or lower case. If several devices match, the best is taken.
    """
    devices = working_devices()
    if not devices:
        raise _nothing_works()
    if selector is None:
        return devices[0]
    if selector.isdigit():
        matching = [one for rank, one in enumerate(devices) if str(rank) == selector]
    else:
        matching = [one for one in devices if selector.lower() in _names(one).lower()]
    if not matching:
        known = [f"{rank}: {one.name} ({one.platform})" for rank, one in enumerate(devices)]
        raise ArgumentError(
            f"device is {shown(selector)}, which is neither the number nor part of the name of a "
            f"device that works: {'; '.join(known)}"
        )
    return matching[0]


def preference(device: cl.Device) -> tuple[int, int, int]:
    """A key that ranks devices before they are probed; larger is better."""
    kinds = ("imitation", "cpu", "accelerator", "gpu")
    kind = kinds.index("imitation" if is_software(device.name) else type_of(device))
    width = max(1, device.native_vector_width_float)
    extensions = device.extensions.split()
    offers = sum(name in extensions for name in ("cl_khr_fp16", "cl_khr_fp64"))
    return kind, device.max_compute_units * width, offers


def _list_devices() -> tuple[list[cl.Device], list[FoundDevice]]:
    """All devices, best first, and the platforms that have none."""
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
    traits, reason = None, ""
    if is_software(device.name):
        reason = "functional only: an imitation in software"
    try:
        traits = traits_of(device)
    except UnsupportedError as error:
        reason = str(error).removeprefix(f"{name_of(device)} ")
    return FoundDevice(platform_name(device.platform), name_of(device), device, traits, reason)


def _names(one: FoundDevice) -> str:
    """All names of a device. Only the version of pocl's platform holds the name "PoCL"."""
    version = one.device.platform.version if one.device is not None else ""
    return "\n".join((one.name, one.platform, version))


def _nothing_works() -> UnsupportedError:
    seen = "; ".join(f"{one.name or one.platform}: {one.reason}" for one in find_devices())
    return UnsupportedError(
        f"no OpenCL device works ({seen or 'none was found'}): install a GPU's driver with its "
        'OpenCL runtime, or a runtime for the CPU: pip install "pyclgemm[cpu]"'
    )
