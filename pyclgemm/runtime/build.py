"""Compile source text to kernels, once for each context and device.

Binaries are cached on disk for runtimes without a cache: Intel's runtime for CPUs compiles a kernel
in two seconds and loads its binary in 20 ms. pyopencl's cache is not used: its files are unpickled,
and a killed process may leave a lock for which every later build waits a minute. Here files are
written whole and have a checksum; a damaged file is written again.
"""

import contextlib
import functools
import hashlib
import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from ..codegen.source import KernelSource
from ..device.probe import PtxStepError, lift
from ..device.traits import host_cpu, type_of
from ..errors import FileError, KernelBuildError
from ..host.caches import new_kernel, warn_uncached
from ..host.files import Purpose, write_whole
from ..host.process import InRuntime
from .queue_state import PreparedCalls

#: Whether the user has set PYOPENCL_NO_CACHE; the library itself may set it later.
_NO_CACHE: bool = getattr(cl, "_PYOPENCL_NO_CACHE", False)
_KERNELS = Purpose("a compiled kernel", "have XDG_CACHE_HOME name another folder")


def kernel_folder() -> Path:
    """The folder of the binaries; it need not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("pyclgemm") / "kernels"


def compiled_program(
    context: cl.Context, device: cl.Device, text: str, options: str = ""
) -> cl.Program:
    """Compile OpenCL C for a device, or load the binary that an earlier process compiled."""
    with warnings.catch_warnings():
        # Several compilers write a log even if nothing is wrong.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        if _NO_CACHE or has_src_build_cache(device):
            return _compiled(context, device, text, options)
        path = kernel_folder() / f"{_key(device, text, options)}.bin"
        if (binary := _read(path)) is not None:
            # Another runtime or processor of the same name may have made it.
            with contextlib.suppress(cl.Error):
                return _loaded(context, device, binary, options)
        program = _compiled(context, device, text, options)
    (binary,) = program.get_info(cl.program_info.BINARIES)
    try:
        write_whole(path, hashlib.sha256(binary).digest() + binary, _KERNELS)
    except FileError as error:
        warn_uncached(path.parent, error.__cause__)
    return program


def _compiled(context: cl.Context, device: cl.Device, text: str, options: str) -> cl.Program:
    return cl.Program(context, text).build(options, devices=[device], cache_dir=False)


def _loaded(context: cl.Context, device: cl.Device, binary: bytes, options: str = "") -> cl.Program:
    return cl.Program(context, [device], [binary]).build(options, devices=[device])


def _read(path: Path) -> bytes | None:
    """The binary in a file; None if the file is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    digest, binary = content[:size], content[size:]
    return binary if binary and hashlib.sha256(binary).digest() == digest else None


def _key(device: cl.Device, text: str, options: str) -> str:
    platform = device.platform
    # Processors of one name may differ.
    features = host_cpu().features if type_of(device) == "cpu" else ()
    facts = (
        "2",  # version of the files' form
        *sorted(features),
        platform.vendor, platform.name, platform.version,
        device.vendor, device.name, device.version, device.driver_version, options, text,
    )  # fmt: skip
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


@functools.lru_cache(maxsize=8)  # few contexts: a program keeps its context and memory alive
def _programs_of(context: cl.Context) -> PreparedCalls[Any]:
    """Programs by device and source, and binaries of other processes until their first use."""
    return PreparedCalls(most=2048)


def build_kernel(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Kernel:
    """Compile a kernel, or take its compiled program; each call returns a new kernel object."""
    programs, key = _programs_of(context), (device, source)
    with InRuntime():
        program = programs.get(key)
        if isinstance(program, bytes):
            with contextlib.suppress(cl.Error):
                program = _loaded(context, device, program)
        if not isinstance(program, cl.Program):
            program = compile_program(context, device, source)
        programs.keep(key, program)
        try:
            return new_kernel(program, source.name)
        except cl.Error as error:
            raise _refused(device, source, error) from error


def adopt_binary(
    context: cl.Context, device: cl.Device, source: KernelSource, binary: bytes
) -> None:
    """Make the next `build_kernel` of a source try a binary that another process compiled."""
    _programs_of(context).keep((device, source), binary)


def compile_program(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Program:
    """Compile a source even if it was compiled before; raise `KernelBuildError` if that fails."""
    try:
        program = compiled_program(context, device, source.text, source.options)
        if not source.target:
            return program
        (binary,) = program.get_info(cl.program_info.BINARIES)
        return _loaded(context, device, lift(binary, source.target))
    except (cl.Error, PtxStepError) as error:
        raise _refused(device, source, error) from error


def _refused(device: cl.Device, source: KernelSource, error: Exception) -> KernelBuildError:
    return KernelBuildError(
        f"the compiler of {device.name!r} refused kernel {source.name!r}",
        log=str(error),
        source=source.text,
    )


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

    def adopt(self, context: cl.Context, sources: Iterable[KernelSource]) -> None:
        """Wait for the started kernels among `sources`; `build_kernel` then loads their binaries.

        If a kernel does not compile, `build_kernel` says why. Time nothing before the first call:
        processes that open the device stop the kernels that run on it.
        """
        opening, self._opening = self._opening, []
        started = {source: self._started[source] for source in sources if self._started.get(source)}
        self._started.update(dict.fromkeys(started))
        try:
            for future in opening:
                future.result()
            for source, compiled in started.items():
                if compiled and (binary := compiled.result()) is not None:
                    adopt_binary(context, self._device, source, binary)
        except (BrokenProcessPool, CancelledError):
            self.close()

    def _new_pool(self) -> ProcessPoolExecutor:
        processes = max(1, min(16, (os.cpu_count() or 2) - 1))
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
