"""Compile kernels ahead in other processes, for tuners, which build hundreds of them."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Barrier

import pyopencl as cl

from ..codegen.source import KernelSource
from ..errors import KernelBuildError
from ..host.process import usable_cpus
from .build import adopt_binary, compile_program

#: The context of a worker process.
_context: cl.Context | None = None


class CompilePool:
    """Processes that compile for one device, each with a context of its own.

    Threads do not help: NVIDIA's driver compiles one kernel at a time in a process (987 kernels in
    310 s on a machine with 16 cores, with any number of threads).
    """

    def __init__(self, device: cl.Device) -> None:
        self._device, self._number = device, _number_of(device)
        self._pool: ProcessPoolExecutor | None = None
        self._opening: list[Future[None]] = []  # finished when all processes have opened the device
        #: By source; None after `adopt`.
        self._started: dict[KernelSource, Future[bytes | None] | None] = {}

    def start(self, sources: Iterable[KernelSource]) -> None:
        """Start to compile kernels, except those that were started before."""
        for source in sources:
            if source in self._started:
                continue
            try:
                pool = self._pool or self._new_pool()
                self._started[source] = pool.submit(_compile, source)
            except BrokenProcessPool:
                self.close()

    def wait_until_open(self) -> None:
        """Wait until all processes have opened the device, which may take seconds each.

        `BrokenProcessPool` if one ended.
        """
        opening, self._opening = self._opening, []
        for future in opening:
            future.result()

    def adopt(self, context: cl.Context, sources: Iterable[KernelSource]) -> None:
        """Wait for the started kernels among `sources`; `build_kernel` then loads their binaries.

        If a kernel does not compile, `build_kernel` says why. Time nothing before the first call:
        processes that open the device stop the kernels that run on it.
        """
        started = {source: self._started[source] for source in sources if self._started.get(source)}
        self._started.update(dict.fromkeys(started))
        try:
            self.wait_until_open()
            for source, compiled in started.items():
                if compiled and (binary := compiled.result()) is not None:
                    adopt_binary(context, self._device, source, binary)
        except (BrokenProcessPool, CancelledError):
            self.close()

    def _new_pool(self) -> ProcessPoolExecutor:
        processes = max(1, min(16, usable_cpus() - 1))
        # A forked process cannot use the driver of its parent.
        spawning = multiprocessing.get_context("spawn")
        barrier = spawning.Barrier(processes)
        self._pool = ProcessPoolExecutor(
            processes, spawning, _start_worker, (self._number, barrier)
        )
        # All processes start, since each waits for the others in `_start_worker`.
        self._opening = [self._pool.submit(_do_nothing) for _ in range(processes)]
        return self._pool

    def close(self) -> None:
        """End the processes."""
        pool, self._pool, self._opening = self._pool, None, []
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _number_of(device: cl.Device) -> tuple[int, int]:
    for platform_number, platform in enumerate(cl.get_platforms()):
        with contextlib.suppress(cl.Error, ValueError):
            return platform_number, platform.get_devices().index(device)
    raise ValueError(f"{device.name!r} is no device of any platform")


#: Seconds for opening the device in a worker process.
_OPEN_SECONDS = 60.0


def _start_worker(number: tuple[int, int], barrier: Barrier) -> None:
    """Open the device in a worker process, which ends when its parent ends for any reason."""
    global _context
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _context = cl.Context([cl.get_platforms()[number[0]].get_devices()[number[1]]])
    barrier.wait(_OPEN_SECONDS)


def _do_nothing() -> None:
    pass


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _compile(source: KernelSource) -> bytes | None:
    assert _context is not None
    try:
        program = compile_program(_context, _context.devices[0], source)
    except KernelBuildError:
        return None
    binaries: list[bytes] = program.get_info(cl.program_info.BINARIES)
    return binaries[0]
