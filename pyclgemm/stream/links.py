"""The speed of a device's transfers, measured once for a process."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from ..host.process import InRuntime, usable_cpus
from .buffers import host_buffer
from .copies import Pinned

#: Bytes of a copy, and copies of which the fastest counts; the first one maps the memory.
_BYTES, _COPIES = 32 << 20, 3
#: Most threads that copy on the host, and the part of its CPUs that is left to others.
_MOST_THREADS, _LEFT = 12, 1 / 4
#: Bytes a second of copies within a CPU's memory, as typical of servers.
_HOST_COPY = 5e9


@dataclass(frozen=True)
class Link:
    """How a device reaches the host's memory."""

    #: Whether kernels read and write host memory where it lies.
    shares_memory: bool
    up: float = math.inf  # bytes a second, pinned memory to the device
    down: float = math.inf  # and back
    fill: float = math.inf  # bytes a second that one thread copies into pinned memory


def host_threads() -> int:
    """The threads that read and write host matrices."""
    cpus = usable_cpus()
    return min(_MOST_THREADS, cpus - int(_LEFT * cpus))


@functools.cache
def link_of(device: cl.Device) -> Link:
    """Measure the link of a device, in a few ms, or find that it needs none."""
    with InRuntime():
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        if device.type & cl.device_type.CPU and _shares_memory(queue):
            return Link(True, *[_HOST_COPY] * 3)
        return _measured(queue)


def _shares_memory(queue: cl.CommandQueue) -> bool:
    """Whether what the device writes is seen in the host's own array at once."""
    memory = np.zeros(4096, np.uint8)
    buffer, offset = host_buffer(queue.context, memory)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(7), offset, memory.size)
    queue.finish()
    return bool((memory == 7).all())


def _measured(queue: cl.CommandQueue) -> Link:
    pinned = Pinned(queue.context, _BYTES)
    content = np.ones(_BYTES, np.uint8)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, _BYTES)
    actions: dict[str, Callable[[], object]] = {
        "fill": lambda: pinned.memory.__setitem__(slice(None), content),
        "up": lambda: pinned.copy(buffer, 0, _BYTES, is_up=True).wait(),
        "down": lambda: pinned.copy(buffer, 0, _BYTES, is_up=False).wait(),
    }
    speeds = {}
    for name, action in actions.items():
        seconds = []
        for _ in range(_COPIES):
            start = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - start)
        speeds[name] = _BYTES / min(seconds)
    pinned.release()
    return Link(False, **speeds)


def rates(link: Link, threads: int) -> tuple[float, float]:
    """Bytes a second to a device and from it, through pinned memory filled by several threads."""
    # The host's memory gives each of several threads half of what one alone has.
    fill = threads * link.fill / 2
    return min(link.up, fill), min(link.down, fill)
