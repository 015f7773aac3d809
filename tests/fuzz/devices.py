"""The devices of cases, named by texts that are the same in every process of a machine."""

import functools
import os

import pyopencl as cl

from pyclgemm.device.discovery import working_devices
from pyclgemm.device.probe import is_software

from .campaign import Skipped


@functools.cache
def _devices():
    found = {}
    for one in working_devices():
        if not is_software(one.name):
            found.setdefault(f"{one.platform}: {one.name}", one.device)
    return found


def device_texts():
    """The working devices that the user wants, by their texts; `Skipped` if there are none."""
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
    """A context of a device. It is cached, so kernels are built once for it."""
    return cl.Context([device_of(text)])


_PROPERTIES = {
    "in": 0,
    "out": cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE,
    "profiling": cl.command_queue_properties.PROFILING_ENABLE,
}


def new_queue(context, *properties):
    """A queue of these properties: "in" or "out" of order, "profiling"."""
    return cl.CommandQueue(context, properties=sum(map(_PROPERTIES.get, set(properties))))


@functools.cache
def queue_of(text, properties=()):
    """The queue of a device and properties."""
    return new_queue(context_of(text), *properties)
