"""The devices that cases name, by a text that is the same in every process of a machine."""

import functools
import os

import pyclgemm  # noqa: F401 - first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl as cl

from pyclgemm.device.discovery import working_devices
from pyclgemm.device.probe import is_software

from .campaign import Skipped


@functools.cache
def _devices():
    found = {}
    for one in working_devices():
        if one.device is not None and not is_software(one.name):
            found.setdefault(f"{one.platform}: {one.name}", one.device)
    return found


def device_texts():
    """The devices of this machine that work, as far as the user wants them; `Skipped` if none."""
    wanted = os.environ.get("PYCLGEMM_FUZZ_DEVICE", "").lower()
    texts = sorted(text for text in _devices() if wanted in text.lower())
    if not texts:
        kind = f"no OpenCL device whose name has {wanted!r}" if wanted else "no OpenCL device"
        raise Skipped(f"{kind} works here")
    return texts


def device_of(text):
    """The device that a case names; `Skipped` if this machine lacks it."""
    if text not in _devices():
        raise Skipped(f"there is no device {text!r} here")
    return _devices()[text]


@functools.cache
def context_of(text, number=0):
    """A context of a device, kept: kernels are built once for each."""
    return cl.Context([device_of(text)])


_PROPERTIES = {
    "in": 0,
    "out": cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE,
    "profiling": cl.command_queue_properties.PROFILING_ENABLE,
}


def new_queue(context, *properties):
    """A queue of these properties: "in" or "out" of order, "profiling"."""
    value = sum(_PROPERTIES[name] for name in set(properties))
    return cl.CommandQueue(context, properties=value)


@functools.cache
def queue_of(text, properties=()):
    """One queue for each device and properties."""
    return new_queue(context_of(text), *properties)
