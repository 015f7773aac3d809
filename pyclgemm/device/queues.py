"""Devices and queues for programs that do not make their own."""

from __future__ import annotations

import functools

import pyopencl as cl

from ..errors import DtypeError, shown
from .discovery import FoundDevice, choose_device, working_devices


def devices() -> tuple[FoundDevice, ...]:
    """The OpenCL devices that work, best first, as ``python -m pyclgemm devices`` lists them.

    The first call builds and runs tiny kernels on every device.

    Returns
    -------
    tuple of FoundDevice
        Each has `device` (a `pyopencl.Device`), `name`, `platform` and `traits`. Its index is its
        rank; that of the default is 0, unless ``$PYCLGEMM_DEVICE`` names another.

    See Also
    --------
    default_queue : A queue on one of them.

    Examples
    --------
    >>> all(found.traits.compute_units > 0 for found in devices())
    True
    """
    return tuple(working_devices())


def default_queue(device: int | str | cl.Device | None = None) -> cl.CommandQueue:
    """The library's queue on a device, the same for every call of a process.

    `matmul` uses it for NumPy arrays. It is an in-order queue. Its context lives as long as the
    process, as Intel's runtime for CPUs drops that of a queue.

    Parameters
    ----------
    device : int, str or pyopencl.Device, optional
        A rank of `devices`, or a part of the name of a device or platform, of any case. None takes
        what ``$PYCLGEMM_DEVICE`` names by either, else the best device.

    Returns
    -------
    pyopencl.CommandQueue
        The same object for the same device.

    Raises
    ------
    ArgumentError
        If no device that works has this rank or name.
    DtypeError
        If `device` has another type.
    UnsupportedError
        If no device works.

    See Also
    --------
    devices : The devices, by rank.

    Examples
    --------
    >>> default_queue() is default_queue(None)
    True
    """
    if isinstance(device, cl.Device):
        return _kept(device)[0]
    if isinstance(device, bool) or not isinstance(device, (int, str, type(None))):
        raise DtypeError(
            f"device is {shown(device)}; a rank, a part of a name, a pyopencl.Device or None is "
            "wanted"
        )
    found = choose_device(None if device is None else str(device)).device
    assert found is not None  # it works
    return _kept(found)[0]


@functools.cache
def _kept(device: cl.Device) -> tuple[cl.CommandQueue, cl.Context]:
    context = cl.Context([device])
    return cl.CommandQueue(context), context
