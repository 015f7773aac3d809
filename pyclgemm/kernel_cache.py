"""Compiled kernels on disk, for runtimes that keep none themselves.

Intel's runtime for CPUs takes two seconds for a kernel that loads from its binary in 20 ms.
pyopencl has a cache for that, which this one stands in for: there, a process that is killed at the
wrong moment leaves a lock for which every later build waits a minute, and what is read is
unpickled. Here files are written whole, carry a checksum, and need no lock; one that is damaged is
made anew.
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from pathlib import Path

import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from .cache_fault import warn_uncached
from .errors import FileError
from .user_files import Purpose, write_whole

#: Part of each name: raised when the form of the files changes.
_VERSION = b"1"
_DIGEST_BYTES = hashlib.sha256().digest_size
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
    """Compile OpenCL C for a device, or load what an earlier process compiled.

    Raises
    ------
    pyopencl.Error
        If the compiler refuses it.
    """
    with warnings.catch_warnings():
        # Several compilers write a log even where nothing is wrong.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        if _NO_CACHE or has_src_build_cache(device):
            return _compiled(context, device, text, options)
        path = kernel_folder() / f"{_key(device, text, options)}.bin"
        if (binary := _read(path)) is not None:
            try:
                return cl.Program(context, [device], [binary]).build(options, devices=[device])
            except cl.Error:
                pass  # made by a runtime or for a processor of the same name: compiled again
        program = _compiled(context, device, text, options)
    (binary,) = program.get_info(cl.program_info.BINARIES)
    try:
        write_whole(path, hashlib.sha256(binary).digest() + binary, _KERNELS)
    except FileError as error:
        warn_uncached(path.parent, error.__cause__)
    return program


def _compiled(context: cl.Context, device: cl.Device, text: str, options: str) -> cl.Program:
    return cl.Program(context, text).build(options, devices=[device], cache_dir=False)


def _read(path: Path) -> bytes | None:
    """The binary that a file holds; None if there is none, or it is not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, binary = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return binary if binary and hashlib.sha256(binary).digest() == digest else None


def _key(device: cl.Device, text: str, options: str) -> str:
    platform = device.platform
    facts = (
        platform.vendor, platform.name, platform.version,
        device.vendor, device.name, device.version, device.driver_version, options, text,
    )  # fmt: skip
    digest = hashlib.sha256(_VERSION + _processor())
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()


@functools.cache
def _processor() -> bytes:
    """What this machine's processor can do, as Linux says: its name alone may stand for several."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
