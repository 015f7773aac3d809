"""Matrices on the host that are read and written by blocks.

They are NumPy arrays, memory maps, or arrays of a store such as zarr and HDF5 that have a shape, an
element type and slices. A block is copied along the lines of its matrix: rows, or columns if those
are contiguous. So no copy transposes, and the block lies on the device as in the matrix.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from contextlib import nullcontext, suppress
from numbers import Integral
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DtypeError, ShapeError, described
from ..problem.matrix import check_dtype, entries_overlap
from ..runtime.arrays import View, byte_range
from .plan import Block

#: The advice of Linux's ``madvise`` that the pages are not needed now.
_DONT_NEED = 4


class Source(Protocol):
    """A matrix that is read by slices, for type checkers."""

    @property
    def shape(self) -> Any:
        """Its rows and columns."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    def __getitem__(self, key: Any, /) -> Any: ...


class Destination(Source, Protocol):
    """A matrix that is also written by slices."""

    def __setitem__(self, key: Any, value: Any, /) -> None: ...


DestinationT = TypeVar("DestinationT", bound=Destination)


def check_host_array(name: str, array: Any) -> None:
    """Raise unless `array` can be the matrix `name`: of NumPy, or with shape, dtype and slices."""
    wanted = "a numpy.ndarray, or an array with shape, dtype and slices such as zarr's, is wanted"
    if isinstance(array, np.generic):
        raise ShapeError(f"{name} is a scalar ({type(array).__name__}); {wanted}")
    if isinstance(array, np.ndarray):
        if type(array) not in (np.ndarray, np.memmap):
            raise DtypeError(
                f"{name} is a {type(array).__name__}, and only its entries would be used; "
                f"numpy.asarray({name}) is wanted"
            )
    elif (
        isinstance(array, type)
        or not isinstance(getattr(array, "dtype", None), np.dtype)
        or not isinstance(getattr(array, "shape", None), tuple)
        or not hasattr(array, "__getitem__")
        or hasattr(array, "base_data")
    ):
        more = ", and gemm takes arrays on a device" if hasattr(array, "base_data") else ""
        raise DtypeError(f"{name} is {described(array)}; {wanted}{more}")
    check_dtype(name, array.dtype)
    if len(array.shape) != 2:
        raise ShapeError(f"{name} is {len(array.shape)}-D with shape {array.shape}; 2-D is wanted")
    if not all(isinstance(side, Integral) for side in array.shape):
        raise ShapeError(f"{name} has shape {array.shape}; two integers are wanted")


def check_destination(array: Any) -> None:
    """Raise unless `array` can be written to."""
    if not hasattr(array, "__setitem__"):
        raise DtypeError(f"out is {described(array)}, which has no slices to write to")
    if isinstance(array, np.ndarray):
        is_read_only = not array.flags.writeable
    else:  # as zarr and h5py tell it
        mode = getattr(getattr(array, "file", None), "mode", None)
        is_read_only = getattr(array, "read_only", False) is True or mode == "r"
    if is_read_only:
        raise ArgumentError("out is a read-only array; a writable one is wanted")


def is_same(one: Any, other: Any) -> bool:
    """Whether two arrays are one matrix: of memory, of a mapped file, or of a store."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        here = _in_file(one)
        is_mapped_twice = here is not None and here == _in_file(other)
        return is_mapped_twice or _in_memory(one) == _in_memory(other)
    if type(one) is not type(other) or (one.shape, one.dtype) != (other.shape, other.dtype):
        return False  # as what compares its elements would read or refuse the other
    # Handles of one array of zarr or h5py are equal.
    equal = one == other
    return isinstance(equal, (bool, np.bool_)) and bool(equal)


def shares(one: Any, other: Any) -> bool:
    """Whether two matrices share an element."""
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return is_same(one, other)
    if np.shares_memory(one, other):
        return True
    here, there = _in_file(one), _in_file(other)
    if here is None or there is None or here[0] != there[0]:
        return False
    return entries_overlap(here[1], there[1])


class HostMatrix:
    """A matrix on the host; `written` says whether it is the destination."""

    def __init__(self, name: str, array: Any, *, written: bool = False) -> None:
        self.name = name
        self.array = array
        self.shape: tuple[int, int] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.is_numpy = isinstance(array, np.ndarray)
        #: Whether its lines are columns.
        self.turned = self.is_numpy and abs(array.strides[0]) < abs(array.strides[1])
        #: Rows and columns of the parts in which a store keeps it.
        self.chunks = _chunks_of(array)
        self._map = _map_of(array) if self.is_numpy else None
        #: Stores write a chunk by reading and changing it: one thread at a time.
        self._lock: Any = threading.Lock() if written and not self.is_numpy else nullcontext()

    @property
    def is_mapped(self) -> bool:
        """Whether it is a part of a file that the system reads page by page."""
        return self._map is not None

    def _slice(self, block: Block) -> Any:
        return self.array[block.top : block.bottom, block.left : block.right]

    def read(self, block: Block, into: NDArray[Any]) -> None:
        """Copy a block into an array of its shape, which may have another element type."""
        with self._lock:
            content = np.asarray(self._slice(block))
        np.copyto(into, content, casting="unsafe")
        self.forget(block)

    def write(self, block: Block, content: NDArray[Any]) -> None:
        """Replace a block, by numbers that are rounded to the matrix's element type."""
        if self.is_numpy:
            np.copyto(self._slice(block), content, casting="unsafe")
            self.forget(block)
        else:
            content = content.astype(self.dtype, copy=False)
            with self._lock:
                self.array[block.top : block.bottom, block.left : block.right] = content

    def forget(self, block: Block) -> None:
        """Give back the pages of a block of a mapped file; its content stays in the file."""
        if self._map is not None and block.size:
            part = self._slice(block)
            _forget_pages(*byte_range(_in_memory(part)))

    def flush(self) -> None:
        """Write a mapped file's changes to the disk."""
        if self._map is not None:
            self._map.flush()


def _chunks_of(array: Any) -> tuple[int, int]:
    """Rows and columns of a store's chunks, of the largest if they differ; 1 if it has none."""
    chunks = getattr(array, "chunks", None)
    if not (isinstance(chunks, tuple) and len(chunks) == 2):
        return 1, 1
    # The chunks of a dask array are tuples of sizes.
    sizes = [max(one, default=1) if isinstance(one, tuple) else one for one in chunks]
    if not all(isinstance(one, Integral) for one in sizes):
        return 1, 1
    return max(1, int(sizes[0])), max(1, int(sizes[1]))


def address(array: NDArray[Any]) -> int:
    """The address of an array's first entry."""
    return int(array.__array_interface__["data"][0])


def _map_of(array: NDArray[Any]) -> np.memmap[Any, Any] | None:
    """The memory map that an array is a part of, unless its changes are private."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base if isinstance(base, np.ndarray) else None
    return None if base is None or base.mode == "c" or base.filename is None else base


def _in_memory(array: NDArray[Any]) -> View:
    """Where an array lies in the process's memory."""
    return View(array.shape, array.strides, array.dtype, address(array))


def _in_file(array: NDArray[Any]) -> tuple[tuple[int, int], View] | None:
    """The file that an array is mapped from, by its numbers, and where the array lies in it."""
    whole = _map_of(array)
    if whole is None:
        return None
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    with suppress(OSError):  # it has been deleted
        file = os.stat(str(whole.filename))
        offset = whole.offset + address(array) - address(whole)
        view = View(array.shape, array.strides, array.dtype, offset)
        return (file.st_dev, file.st_ino), view
    return None


def _forget_pages(low: int, high: int) -> None:
    """Take whole pages out of the process; the system keeps what was changed."""
    begin = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE
    end = high // mmap.PAGESIZE * mmap.PAGESIZE
    if sys.platform == "linux" and end > begin:
        size = ctypes.c_size_t(end - begin)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, ctypes.c_int(_DONT_NEED))
