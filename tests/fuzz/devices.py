"""The devices that cases name, by a text that is the same in every process of a machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import pyclgemm  # noqa: F401 - first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl as cl

from pyclgemm.device.discovery import working_devices
from pyclgemm.device.names import is_software
from pyclgemm.device.traits import traits_of

from .campaign import Skipped

#: The runner names here what the text of a device must contain.
DEVICE_VARIABLE = "PYCLGEMM_FUZZ_DEVICE"


def device_text(platform: str, name: str) -> str:
    """How a case names a device."""
    return f"{platform}: {name}"


@functools.cache
def _devices() -> dict[str, cl.Device]:
    found: dict[str, cl.Device] = {}
    for one in working_devices():
        if one.device is not None and not is_software(one.name):
            found.setdefault(device_text(one.platform, one.name), one.device)
    return found


def device_texts() -> tuple[str, ...]:
    """The devices of this machine that work, as far as the user wants them.

    Raises
    ------
    Skipped
        If there are none.
    """
    wanted = os.environ.get(DEVICE_VARIABLE, "").lower()
    texts = tuple(sorted(text for text in _devices() if wanted in text.lower()))
    if not texts:
        kind = f"no OpenCL device whose name has {wanted!r}" if wanted else "no OpenCL device"
        raise Skipped(f"{kind} works here")
    return texts


def device_of(text: str) -> cl.Device:
    """The device that a case names.

    Raises
    ------
    Skipped
        If this machine lacks it.
    """
    try:
        return _devices()[text]
    except KeyError:
        raise Skipped(f"there is no device {text!r} here") from None


@functools.cache
def context_of(text: str) -> cl.Context:
    """One context for each device of a process."""
    return cl.Context([device_of(text)])


@functools.cache
def queue_of(text: str, properties: Sequence[str] = ()) -> cl.CommandQueue:
    """One queue for each device and properties: "out-of-order", "profiling"."""
    flags = cl.command_queue_properties
    bits = {
        "out-of-order": flags.OUT_OF_ORDER_EXEC_MODE_ENABLE,
        "profiling": flags.PROFILING_ENABLE,
    }
    value = 0
    for name in properties:
        value |= bits[name]
    return cl.CommandQueue(context_of(text), properties=value)


def traits_by_text(text: str) -> Any:
    """What the library says that the device of a case can do."""
    return traits_of(device_of(text))
