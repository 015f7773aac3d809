"""NumPy arrays on their way to the device and back: nothing else copies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..errors import ArgumentError, DtypeError
from ..host.process import InRuntime
from ..problem.matrix import check_dtype
from .arrays import ArraySequence, MatrixSequence, PackedMatrix
from .memory import copied_array

#: The types of arguments that need no transfer; subclasses of `Array` need none, either.
DEVICE_TYPES = frozenset((type(None), cl_array.Array, PackedMatrix, ArraySequence, MatrixSequence))


def is_on_device(array: Any) -> bool:
    """Whether an argument needs no transfer; None needs none."""
    return type(array) in DEVICE_TYPES or isinstance(array, cl_array.Array)


def to_device(queue: cl.CommandQueue, name: str, array: Any) -> Any:
    """Copy a NumPy array to the device; what is there already, and None, pass through."""
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
    """Raise `DtypeError` unless `array` is one, on the device or the host, or None."""
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


def through_device(
    queue: cl.CommandQueue,
    operands: Mapping[str, Any],
    out: Any,
    run: Callable[..., tuple[Any, cl.Event | None]],
    *,
    makes_host_array: bool,
) -> tuple[Any, cl.Event | None]:
    """Run on copies of NumPy arrays, and bring the result back.

    `run` takes the operands by name, on the device; if the caller's `out` is there, it is the
    result. `makes_host_array` is whether a result without `out` comes back as a NumPy array.
    """
    to_host = isinstance(out, np.ndarray)
    if to_host and not out.flags.writeable:
        raise ArgumentError("out is a read-only NumPy array; a writable one is wanted")
    copies = {name: to_device(queue, name, array) for name, array in operands.items()}
    result, event = run(**copies)
    if to_host:
        out[...] = host_copy(queue, result)
        return out, event
    if out is None and makes_host_array:
        return host_copy(queue, result), event
    return result, event
