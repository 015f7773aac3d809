"""NumPy arrays on their way to the device and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..errors import ArgumentError, DtypeError, ShapeError
from ..host.process import InRuntime
from ..problem.matrix import check_dtype
from .arrays import ArraySequence, MatrixSequence, PackedMatrix
from .memory import copied_array

_ON_DEVICE = (cl_array.Array, PackedMatrix, ArraySequence, MatrixSequence)


def is_on_device(array: Any) -> bool:
    """Whether an operand, an addend, a destination or a bias needs no transfer."""
    return array is None or isinstance(array, _ON_DEVICE)


def to_device(queue: cl.CommandQueue, name: str, array: Any) -> Any:
    """Copy a NumPy array to the device; what is there already passes through.

    Raises
    ------
    DtypeError
        If `array` is neither, or its element type is not taken.
    """
    if is_on_device(array):
        return array
    check_array(name, array)
    check_dtype(name, array.dtype)
    check_queue(queue)
    return copied_array(queue, name, array)


def host_copy(queue: cl.CommandQueue, array: Any) -> np.ndarray[Any, Any]:
    """Wait for an array on the device, and copy it to the host."""
    with InRuntime():
        copy: np.ndarray[Any, Any] = array.get(queue)
    return copy


def check_array(name: str, array: Any) -> None:
    """Raise `DtypeError` unless `array` is one, on the device or the host."""
    if not is_on_device(array) and not isinstance(array, np.ndarray):
        raise DtypeError(
            f"{name} is a {type(array).__name__}; a pyopencl.array.Array or a numpy.ndarray "
            "is wanted"
        )


def check_queue(queue: Any) -> None:
    """Raise `DtypeError` unless `queue` is one."""
    if not isinstance(queue, cl.CommandQueue):
        raise DtypeError(
            f"queue is of type {type(queue).__name__}; a pyopencl.CommandQueue is wanted"
        )


def check_host_destination(out: np.ndarray[Any, Any], shape: tuple[int, ...]) -> None:
    """Raise unless a NumPy `out` can take a result of this shape."""
    if out.shape != shape:
        raise ShapeError(f"out is {out.shape}; the product of a and b is {shape}")
    if not out.flags.writeable:
        raise ArgumentError("out is a read-only NumPy array; a writable one is wanted")
