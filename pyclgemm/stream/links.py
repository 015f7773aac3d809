"""The speed of a device's transfers, measured once for a process.

A file keeps it, and later processes go by that as long as they measure about the same. So a product
has the same plan in each process, and its result the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from platformdirs import user_cache_path

from ..device.traits import traits_of
from ..errors import FileError
from ..host.files import Purpose, read_json, write_whole
from ..host.process import InRuntime, usable_cpus
from .buffers import host_buffer
from .copies import MOST_PART, Copies, parts_of

#: Bytes that are copied each way, more than most caches hold, and how often; the fastest counts.
_BYTES, _ROUNDS = 256 << 20, 3
#: Most threads that copy on the host, and the part of its CPUs that is left to others.
_MOST_THREADS, _LEFT = 12, 1 / 4
#: Speeds that differ from the kept ones by less than this factor are the kept ones.
_ALIKE = 1.25
_LINKS = Purpose("the speed of a link", "have XDG_CACHE_HOME name another folder")
#: Bytes a second of copies within a CPU's memory, as typical of servers.
_HOST_COPY = 5e9


@dataclass(frozen=True)
class Link:
    """How a device reaches the host's memory."""

    #: Whether kernels read and write host memory where it lies.
    shares_memory: bool
    #: Bytes a second from the host's memory to the device and back, through pinned memory that all
    #: threads fill. If the host's memory limits it, both directions together are no faster.
    up: float = math.inf
    down: float = math.inf


def host_threads() -> int:
    """The threads that read and write host matrices."""
    cpus = usable_cpus()
    return min(_MOST_THREADS, cpus - int(_LEFT * cpus))


@functools.cache
def link_of(device: cl.Device) -> Link:
    """Measure the link of a device, in some 0.2 s, or find that it needs none."""
    with InRuntime():
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        if device.type & cl.device_type.CPU and _shares_memory(queue):
            return Link(True, _HOST_COPY, _HOST_COPY)
    return _as_before(_measured(device, context), links_folder() / traits_of(device).file_name)


def links_folder() -> Path:
    """The folder of the files; it need not exist."""
    return user_cache_path("pyclgemm") / "links"


def _as_before(link: Link, path: Path) -> Link:
    """The speeds that a file keeps, if these are about the same; else these, which it keeps now."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = read_json(path)
        before = Link(False, float(kept["up"]), float(kept["down"]))
        pairs = (link.up, before.up), (link.down, before.down)
        if all(one < _ALIKE * other and other < _ALIKE * one for one, other in pairs):
            return before
    with contextlib.suppress(FileError):  # without the file the next process goes by its own
        write_whole(path, json.dumps({"up": link.up, "down": link.down}), _LINKS)
    return link


def _shares_memory(queue: cl.CommandQueue) -> bool:
    """Whether what the device writes is seen in the host's own array at once."""
    memory = np.zeros(4096, np.uint8)
    buffer, offset = host_buffer(queue.context, memory)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(7), offset, memory.size)
    queue.finish()
    return bool((memory == 7).all())


def _measured(device: cl.Device, context: cl.Context) -> Link:
    content = np.ones(min(_BYTES, device.max_mem_alloc_size), np.uint8)
    with InRuntime():
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, content.size)
    copies = Copies(context, host_threads(), MOST_PART)
    copies.start()
    try:
        up, down = (
            max(_rate(copies, buffer, content, is_up=is_up) for _ in range(_ROUNDS))
            for is_up in (True, False)
        )
    finally:
        copies.close(keeps=False)
        with InRuntime():
            buffer.release()
    return Link(False, up, down)


def _rate(copies: Copies, buffer: cl.Buffer, content: NDArray[np.uint8], *, is_up: bool) -> float:
    """Bytes a second of copying all of an array to a buffer, or back."""
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    parts = list(parts_of(buffer, 0, content, ended.put, is_up=is_up))
    begin = time.perf_counter()
    copies.add(parts)
    for _ in parts:
        if (fault := ended.get()) is not None:
            raise fault
    return content.size / (time.perf_counter() - begin)
