"""Large blocks pass between the processes of a `local_cluster` in shared memory, not over TCP.

A worker of Dask that asks for data names the serializations that it reads, and the worker that
has the data uses the first of them that fits. One more is registered here. It writes an array of
16 MiB or more to a file in memory and sends the file's name; the worker that asks maps the file,
and has the content without another copy. TCP copies it twice, in the event loops of both workers.

So this is a serialization and a plugin of the workers, which changes two attributes of a worker:
`rpc.deserializers`, so that its requests name the serialization, and the handler `get_data`, so
that files stay open until they were read. It is no protocol: requests, names of files, and whatever
is smaller or goes elsewhere are messages of Dask over its own TCP. ``shared_memory=False`` of
`local_cluster` leaves the plugin out.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import pickle
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol.serialize import register_serialization_family

#: The name of the serialization.
FAMILY = "pyclgemm-shared-memory"
#: Smaller arrays travel as Dask sends them, in bytes. On two busy cores TCP moves 4 MiB twice as
#: fast, and 16 MiB 0.7 times.
LEAST = 16 << 20
#: Bytes that one thread writes at a time, and threads.
_PART, _THREADS = 8 << 20, 8
#: The files of the answer that is being written; they stay open until it was read.
_files: ContextVar[ExitStack | None] = ContextVar("pyclgemm-files", default=None)


class SharedMemory(WorkerPlugin):  # type: ignore[misc]
    """Has a worker ask for arrays in shared memory, and send them so to workers that ask.

    All workers that it exchanges data with must be processes of one user on one machine that have
    imported this module; those without the plugin send arrays as Dask does. Where files in memory
    cannot be shared, as on other systems than Linux, nothing changes.
    """

    name = "pyclgemm-shared-memory"

    def setup(self, worker: Any) -> None:
        """Change how the worker sends and what it asks for."""
        if can_share():
            worker.handlers["get_data"] = _keeping_files(worker.handlers["get_data"])
            worker.rpc.deserializers = (FAMILY, "dask", "pickle", "error")


@functools.cache
def can_share() -> bool:
    """Whether a file in memory can be opened by its name in /proc."""
    try:
        descriptor = os.memfd_create("pyclgemm")
    except (AttributeError, OSError):
        return False
    try:
        os.close(os.open(_path(os.getpid(), descriptor), os.O_RDWR))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _path(process: int, descriptor: int) -> str:
    return f"/proc/{process}/fd/{descriptor}"


def _keeping_files(get_data: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Dask's handler of a request, which ends when the data has arrived, and then closes files."""

    @functools.wraps(get_data)
    async def handler(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as files:
            before = _files.set(files)
            try:
                return await get_data(*args, **kwargs)
            finally:
                _files.reset(before)

    return handler


def _fill(descriptor: int, content: np.ndarray[Any, Any]) -> None:
    """Write to a new file by several threads, as most of the time is that of making its pages."""
    os.ftruncate(descriptor, content.nbytes)
    memory = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)

    def write(start: int) -> None:
        np.copyto(memory[start : start + _PART], content[start : start + _PART])

    for _ in _threads().map(write, range(0, content.nbytes, _PART)):
        pass


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """The threads that write, and that free what was received."""
    return ThreadPoolExecutor(_THREADS, "pyclgemm-shared-memory")


def _dumps(x: Any, context: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """The header of an array whose content is in a file; Dask tries others if it is refused."""
    files = _files.get()
    if files is None or type(x) is not np.ndarray or x.nbytes < LEAST or x.dtype.hasobject:
        raise NotImplementedError
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        raise NotImplementedError
    try:
        descriptor = os.memfd_create("pyclgemm-block")
        files.callback(os.close, descriptor)
        _fill(descriptor, x.ravel(order="K").view(np.uint8))
    except OSError as error:  # no memory or no file is left
        raise NotImplementedError from error
    header = {
        "process": os.getpid(),
        "file": descriptor,
        "inode": os.fstat(descriptor).st_ino,
        "dtype": pickle.dumps(x.dtype),
        "shape": x.shape,
        "strides": x.strides,
        "writeable": x.flags.writeable,
    }
    return header, []


def _loads(header: Mapping[str, Any], frames: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The array over the file, which lives as long as the array does."""
    descriptor = os.open(_path(header["process"], header["file"]), os.O_RDWR)
    try:
        found = os.fstat(descriptor)
        if found.st_ino != header["inode"]:
            raise OSError("the worker that sent a block has closed its file since")
        memory = _mapped(descriptor, found.st_size)
    finally:
        os.close(descriptor)
    dtype = pickle.loads(header["dtype"])
    array = np.ndarray(header["shape"], dtype, memory, strides=header["strides"])
    array.flags.writeable = header["writeable"]
    return array


def _mapped(descriptor: int, size: int) -> Any:
    """A file as memory. Python's mmap keeps the file open too, and a process may have few open."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    access = mmap.PROT_READ | mmap.PROT_WRITE
    place = libc.mmap(None, ctypes.c_size_t(size), access, mmap.MAP_SHARED, descriptor,
                      ctypes.c_long(0))  # fmt: skip
    if place == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "a block in shared memory could not be mapped")
    memory = (ctypes.c_uint8 * size).from_address(place)
    weakref.finalize(memory, _free, libc, place, size).atexit = False
    return memory


def _free(libc: ctypes.CDLL, place: int, size: int) -> None:
    """Unmap memory in a thread: 256 MB take some 40 ms, and Dask's event loop must go on."""
    with suppress(RuntimeError):  # the process ends
        _threads().submit(libc.munmap, ctypes.c_void_p(place), ctypes.c_size_t(size))


# Every process that unpickles the plugin registers it, and so does the scheduler's.
register_serialization_family(FAMILY, _dumps, _loads)
