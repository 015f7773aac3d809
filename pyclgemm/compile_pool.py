"""Compile kernels side by side, in processes of their own.

Threads do not help: NVIDIA's driver compiles one kernel at a time in a process (987 kernels in
310 s on a machine with 16 cores, however many threads asked for them).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pyopencl as cl

from .build import compile_program
from .errors import KernelBuildError
from .kernel_source import KernelSource

#: Processes; each holds a context on the device.
_MOST_WORKERS = 16

_device: cl.Device | None = None
_context: cl.Context | None = None


class CompilePool:
    """Processes that compile for one device.

    Parameters
    ----------
    device : pyopencl.Device
        The device; workers find it by its place among the platforms' devices.

    Examples
    --------
    >>> with CompilePool(queue.device) as pool:
    ...     pool.binaries([])
    {}
    """

    def __init__(self, device: cl.Device) -> None:
        self._place = _place_of(device)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def binaries(self, sources: Sequence[KernelSource]) -> dict[KernelSource, bytes]:
        """The binaries of those kernels that compile.

        What does not compile, and all that was on its way when a compiler crashed, is missing:
        whoever builds it in turn learns why.
        """
        if not sources:
            return {}
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1)),
                # A forked process cannot use the driver of its parent.
                multiprocessing.get_context("spawn"),
                _open,
                (self._place,),
            )
        found: dict[KernelSource, bytes] = {}
        try:
            for source, binary in zip(sources, self._pool.map(_compile, sources), strict=True):
                if binary is not None:
                    found[source] = binary
        except BrokenProcessPool:
            self.close()
        return found

    def close(self) -> None:
        """End the processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _place_of(device: cl.Device) -> tuple[int, int]:
    """The number of a device's platform, and its own within it."""
    for platform_number, platform in enumerate(cl.get_platforms()):
        with contextlib.suppress(cl.Error, ValueError):
            return platform_number, platform.get_devices().index(device)
    raise ValueError(f"{device.name!r} is no device of any platform")


def _open(place: tuple[int, int]) -> None:
    """Begin a worker: open the device, and end with the parent, however that ends."""
    global _device, _context
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _device = cl.get_platforms()[place[0]].get_devices()[place[1]]
    _context = cl.Context([_device])


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _compile(source: KernelSource) -> bytes | None:
    assert _context is not None
    assert _device is not None
    try:
        program = compile_program(_context, _device, source)
    except KernelBuildError:
        return None
    binaries: list[bytes] = program.get_info(cl.program_info.BINARIES)
    return binaries[0]
