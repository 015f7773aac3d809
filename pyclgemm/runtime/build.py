"""From source text to a compiled kernel, once a context and device.

Compiled kernels are kept on disk for runtimes that keep none themselves: Intel's runtime for CPUs
takes two seconds for a kernel that loads from its binary in 20 ms. pyopencl's cache is not used: a
process that is killed at the wrong moment leaves a lock for which every later build waits a minute,
and what is read is unpickled. Here files are written whole, carry a checksum, and need no lock; a
damaged one is made anew.
"""

from __future__ import annotations

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
from ..errors import FileError, KernelBuildError
from ..host.caches import new_kernel, warn_uncached
from ..host.files import Purpose, write_whole
from ..host.process import InRuntime
from .queue_state import PreparedCalls

#: Whether the user has set PYOPENCL_NO_CACHE; later the library itself may.
_NO_CACHE: bool = getattr(cl, "_PYOPENCL_NO_CACHE", False)
_KERNELS = Purpose("a compiled kernel", "have XDG_CACHE_HOME name another folder")


def kernel_folder() -> Path:
    """The folder of the files; it need not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("pyclgemm") / "kernels"


def compiled_program(
    context: cl.Context, device: cl.Device, text: str, options: str = ""
) -> cl.Program:
    """Compile OpenCL C for a device, or load what an earlier process compiled."""
    with warnings.catch_warnings():
        # Several compilers write a log even where nothing is wrong.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        if _NO_CACHE or has_src_build_cache(device):
            return _compiled(context, device, text, options)
        path = kernel_folder() / f"{_key(device, text, options)}.bin"
        if (binary := _read(path)) is not None:
            # It may have been made by a runtime or for a processor of the same name.
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
    """The binary in a file; None if there is no file, or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    digest, binary = content[:size], content[size:]
    return binary if binary and hashlib.sha256(binary).digest() == digest else None


def _key(device: cl.Device, text: str, options: str) -> str:
    platform = device.platform
    facts = (
        platform.vendor, platform.name, platform.version,
        device.vendor, device.name, device.version, device.driver_version, options, text,
    )  # fmt: skip
    version = b"1"  # raised when the form of the files changes
    digest = hashlib.sha256(version + _processor())
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()


@functools.cache
def _processor() -> bytes:
    """The features of the processor as Linux lists them: processors of one name may differ."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


#: Programs of a context that are kept, and contexts whose programs are kept.
_MOST_PROGRAMS, _MOST_CONTEXTS = 2048, 8


@functools.lru_cache(maxsize=_MOST_CONTEXTS)
def _programs_of(context: cl.Context) -> PreparedCalls[Any]:
    """Programs by device and source, and binaries of other processes until their first use.

    They are kept for few contexts at a time: a program keeps its context and its memory alive.
    """
    return PreparedCalls(_MOST_PROGRAMS)


def build_kernel(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Kernel:
    """Compile a kernel, or find it compiled; each call gives a kernel object of its own."""
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
    """Have the next `build_kernel` of a source try the binary that another process compiled."""
    _programs_of(context).keep((device, source), binary)


def compile_program(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Program:
    """Compile a source, whatever was compiled before; raise `KernelBuildError` if that fails."""
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


#: That of a worker process.
_context: cl.Context | None = None


class CompilePool:
    """Processes that compile for one device, each with a context of its own.

    Threads do not help: NVIDIA's driver compiles one kernel at a time in a process (987 kernels in
    310 s on a machine with 16 cores, however many threads asked for them).
    """

    def __init__(self, device: cl.Device) -> None:
        self._device, self._number = device, _number_of(device)
        self._pool: ProcessPoolExecutor | None = None
        self._opening: list[Future[None]] = []  # ends when all processes have opened the device
        #: By source; None once its binary was adopted, or could not be had.
        self._begun: dict[KernelSource, Future[bytes | None] | None] = {}

    def start(self, sources: Iterable[KernelSource]) -> None:
        """Begin to compile kernels, except those that were asked for before."""
        for source in sources:
            if source in self._begun:
                continue
            try:
                pool = self._pool or self._new_pool()
                self._begun[source] = pool.submit(_compile, source)
            except BrokenProcessPool:
                self.close()

    def adopt(self, context: cl.Context, sources: Iterable[KernelSource]) -> None:
        """Wait for kernels that were begun, for the next `build_kernel` of each to load its binary.

        Whoever builds a kernel that does not compile learns why. No process opens the device later,
        which would stop what runs there: nothing need be timed before.
        """
        opening, self._opening = self._opening, []
        begun = {source: self._begun[source] for source in sources if self._begun.get(source)}
        self._begun.update(dict.fromkeys(begun))
        try:
            for one in opening:
                one.result()
            for source, future in begun.items():
                if future and (binary := future.result()) is not None:
                    adopt_binary(context, self._device, source, binary)
        except (BrokenProcessPool, CancelledError):
            self.close()

    def _new_pool(self) -> ProcessPoolExecutor:
        processes = max(1, min(16, (os.cpu_count() or 2) - 1))
        # A forked process cannot use the driver of its parent.
        spawning = multiprocessing.get_context("spawn")
        everyone = spawning.Barrier(processes)
        self._pool = ProcessPoolExecutor(processes, spawning, _open, (self._number, everyone))
        # Each of these takes a process of its own, as all wait for one another in `_open`.
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


#: Seconds that opening the device may take in a worker process.
_OPEN_SECONDS = 60.0


def _open(number: tuple[int, int], everyone: Barrier) -> None:
    """Begin a worker: open the device as all others do, and end with the parent."""
    global _context
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _context = cl.Context([cl.get_platforms()[number[0]].get_devices()[number[1]]])
    everyone.wait(_OPEN_SECONDS)


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
