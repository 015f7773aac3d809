"""Matrices on the host that are read and written by blocks.

They are NumPy arrays, memory maps, or arrays of a store such as zarr and HDF5 that have a shape, an
element type and slices. A block is copied along the lines of its matrix: rows, or columns if those
are contiguous. So no copy transposes, and the block lies on the device as in the matrix.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DtypeError, ShapeError, described
from ..problem.matrix import check_dtype
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
        chunks = getattr(array, "chunks", None)
        has_chunks = isinstance(chunks, tuple) and len(chunks) == 2
        #: Rows and columns of the parts in which a store keeps it.
        self.chunks: tuple[int, int] = chunks if has_chunks else (1, 1)  # type: ignore[assignment]
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
            _forget_pages(*byte_range(View(part.shape, part.strides, part.dtype, address(part))))

    def flush(self) -> None:
        """Write a mapped file's changes to the disk."""
        if self._map is not None:
            self._map.flush()


def address(array: NDArray[Any]) -> int:
    """The address of an array's first entry."""
    return int(array.__array_interface__["data"][0])


def _map_of(array: NDArray[Any]) -> np.memmap[Any, Any] | None:
    """The memory map that an array is a part of, unless its changes are private."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base if isinstance(base, np.ndarray) else None
    return None if base is None or base.mode == "c" or base.filename is None else base


def _forget_pages(low: int, high: int) -> None:
    """Take whole pages out of the process; the system keeps what was changed."""
    begin = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE
    end = high // mmap.PAGESIZE * mmap.PAGESIZE
    if sys.platform == "linux" and end > begin:
        size = ctypes.c_size_t(end - begin)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, ctypes.c_int(_DONT_NEED))
