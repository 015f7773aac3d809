"""Compile source text to kernels, once for each context and device.

Binaries are cached on disk for runtimes without a cache: Intel's runtime for CPUs compiles a kernel
in two seconds and loads its binary in 20 ms. pyopencl's cache is not used: its files are unpickled,
and a killed process may leave a lock for which every later build waits a minute. Here files are
written whole and have a checksum; a damaged file is written again.
"""

import contextlib
import functools
import hashlib
import warnings
from pathlib import Path
from typing import Any

import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from ..codegen.source import KernelSource
from ..device.probe import PtxStepError, lift
from ..device.traits import host_cpu, type_of
from ..errors import FileError, KernelBuildError
from ..host.caches import warn_uncached
from ..host.files import Purpose, write_whole
from ..host.kernels import new_kernel
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
