"""Enqueue a kernel, with an event or without.

pyopencl makes an event for every launch. On NVIDIA's driver that costs the device 2 us (an empty
kernel in a stream of launches on an H100: 3.9 us with an event, 1.9 us without), as much as a
small product takes. Where nobody asks for the event, the OpenCL function is called directly, in
the very library that pyopencl uses; its handles are pyopencl's (`int_ptr`). By way of ctypes that
takes the host 2.5 us more, and a CPU device's events cost it less: there pyopencl makes one.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

_Sizes = Sequence[int]
_handle = operator.attrgetter("int_ptr")


class KernelLaunch:
    """Launches of one kernel with fixed sizes on one queue.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    kernel : pyopencl.Kernel
        Its arguments are set by the caller.
    global_size, local_size : tuple of int
        Work-items along each dimension, in all and of a group.
    """

    def __init__(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, global_size: _Sizes, local_size: _Sizes
    ) -> None:
        self._queue = queue
        self._kernel = kernel
        self._global_size = tuple(global_size)
        self._local_size = tuple(local_size)
        self._enqueue = _enqueue_function() if _events_cost(queue.device) else None
        sizes = ctypes.c_size_t * len(self._global_size)
        self._fixed_arguments = (
            queue.int_ptr, kernel.int_ptr, len(self._global_size), None,
            sizes(*self._global_size), sizes(*self._local_size),
        )  # fmt: skip

    def with_event(self, wait_for: Sequence[cl.Event] | None) -> cl.Event:
        """Enqueue the kernel after some events; gives its own."""
        return cl.enqueue_nd_range_kernel(
            self._queue, self._kernel, self._global_size, self._local_size, wait_for=wait_for
        )

    def without_event(self, wait_for: Sequence[cl.Event] | None) -> None:
        """Enqueue the kernel; only the queue's order says when it has run."""
        if self._enqueue is None:
            self.with_event(wait_for)
            return
        events = (ctypes.c_void_p * len(wait_for))(*map(_handle, wait_for)) if wait_for else None
        status = self._enqueue(*self._fixed_arguments, len(wait_for or ()), events, None)
        if status != cl.status_code.SUCCESS:
            # pyopencl tries again once garbage is collected, where memory lacks, and has the error.
            self.with_event(wait_for)


def _events_cost(device: cl.Device) -> bool:
    """Whether an event costs the device more than a call by way of ctypes costs the host."""
    return not device.type & cl.device_type.CPU


@functools.cache
def _enqueue_function() -> Any:
    """OpenCL's own function, as pyopencl's extension module is linked to it; None if hidden."""
    try:
        function = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_int
    handle, sizes = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    function.argtypes = [
        handle, handle, ctypes.c_uint, sizes, sizes, sizes, ctypes.c_uint, handle, handle,
    ]  # fmt: skip
    return function
