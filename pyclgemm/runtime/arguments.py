"""Checks of the types of arguments, for all public functions.

Every message names the argument, says what it is, and what is wanted. Values are checked where
they are used: shapes and element types in `pyclgemm.problem`.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..device.queues import default_queue
from ..errors import ArgumentError, DtypeError, ShapeError, described, shown, wrong_type
from .arrays import ArraySequence, MatrixSequence, PackedMatrix
from .interchange import ForeignArray, check_destination, owned, owner_of, read

#: The kind of all arrays of a call, which is then that of its result. Of mixtures, and of arrays of
#: other libraries, type checkers take the result for `Any`.
ArrayT = TypeVar("ArrayT", NDArray[Any], cl_array.Array)


class HasArray(Protocol):
    """What NumPy converts to an array."""

    def __array__(self) -> Any:
        """Convert it."""


class HasDlpack(Protocol):
    """An array that shares its memory with other libraries."""

    def __dlpack__(self) -> Any:
        """Share it."""


#: An operand for type checkers; a right one may also be packed.
Operand: TypeAlias = cl_array.Array | HasArray | HasDlpack
RightOperand: TypeAlias = Operand | PackedMatrix

#: Types of arguments that need no transfer.
ON_DEVICE = frozenset((type(None), cl_array.Array, PackedMatrix, ArraySequence, MatrixSequence))
#: Types of arrays and sequences. Subclasses of NumPy's, such as masked arrays, mean more than
#: their entries.
_ARRAYS = frozenset(
    (cl_array.Array, np.ndarray, np.memmap, ForeignArray, ArraySequence, MatrixSequence)
)

_MAY_BE_NONE = frozenset(("c", "bias", "out"))
_ARRAY = "a pyopencl.array.Array or a numpy.ndarray"


def check_queue(queue: Any) -> None:
    """Raise `DtypeError` unless `queue` is a queue."""
    if not isinstance(queue, cl.CommandQueue):
        raise DtypeError(
            f"queue is of type {type(queue).__name__}; a pyopencl.CommandQueue is wanted"
        )


def queue_for(queue: Any, *arrays: Any) -> cl.CommandQueue:
    """The argument `queue`; None takes that of the first array on a device, or else the default."""
    if queue is None:
        queues = [one.queue for one in arrays if isinstance(one, cl_array.Array)]
        queue = queues[0] if queues else default_queue()
        if queue is None:
            raise ArgumentError("queue is None, and the device array has no queue: give one")
    check_queue(queue)
    found: cl.CommandQueue = queue
    return found


def as_array(name: str, array: Any) -> Any:
    """The argument `name` as an array on the device, one of NumPy, or None; or raise.

    An array of another library becomes a `ForeignArray`.
    """
    kind = array.__class__
    if kind in _ARRAYS or (array is None and name in _MAY_BE_NONE):
        return array
    if kind is PackedMatrix:
        if name == "b":
            return array
        raise DtypeError(f"{name} is a PackedMatrix; only b may be packed")
    if isinstance(array, np.generic):
        raise ShapeError(f"{name} is a scalar ({kind.__name__}); an array is wanted")
    if isinstance(array, np.ndarray):
        raise DtypeError(
            f"{name} is a {kind.__name__}, and only its entries would be used; {_ARRAY} is wanted, "
            f"such as numpy.asarray({name})"
        )
    if isinstance(array, cl_array.Array):
        return array
    foreign = read(name, array)
    if foreign is None:
        raise wrong_type(name, array, f"{_ARRAY}, or another with __dlpack__ or __array__,")
    return foreign


def checked_sequence(name: str, members: Sequence[Any]) -> Any:
    """Check the matrices of an argument; return an `ArraySequence` or a 3-D NumPy array."""
    if not members:
        raise ShapeError(f"{name} is an empty sequence; at least one matrix is wanted")
    members = [as_array(f"{name}[{number}]", member) for number, member in enumerate(members)]
    first = members[0]
    on_host = isinstance(first, np.ndarray)
    for number, member in enumerate(members):
        if len(member.shape) != 2 or member.shape != first.shape:
            raise ShapeError(
                f"{name}[{number}] is {member.shape} and {name}[0] is {first.shape}; matrices "
                "(2-D) of one shape are wanted"
            )
        if member.dtype != first.dtype or isinstance(member, np.ndarray) != on_host:
            raise DtypeError(
                f"{name}[{number}] is a {type(member).__name__} of {member.dtype} and {name}[0] a "
                f"{type(first).__name__} of {first.dtype}; they must be alike"
            )
    if not on_host:
        return ArraySequence(members)
    stack = np.stack(list(map(np.asarray, members)))
    if name == "out":
        for member in members:
            check_destination(member)
        return stack
    return owned(stack, owner_of(first))


def checked_events(events: Any) -> Collection[cl.Event]:
    """The argument `wait_for`; raise `DtypeError` unless it has events, and can be read twice."""
    wanted = "a sequence of pyopencl.Event"
    if isinstance(events, (str, bytes)) or not isinstance(events, Collection):
        raise wrong_type("wait_for", events, wanted)
    for event in events:
        if not isinstance(event, cl.Event):
            raise DtypeError(f"wait_for has {described(event)} in it; {wanted} is wanted")
    return events


def dtype_name(value: Any) -> str:
    """NumPy's name of the element type that an argument `dtype` means; empty if it means none."""
    try:
        return np.dtype(value).name if isinstance(value, (str, type, np.dtype)) else ""
    except (TypeError, ValueError):
        return ""


def check_flag(name: str, value: Any) -> None:
    """Raise `DtypeError` unless a value is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise DtypeError(f"{name} is {shown(value)}; True or False is wanted")


def check_function(name: str, value: Any, wanted: str) -> None:
    """Raise `DtypeError` unless a value can be called; `wanted` describes the function."""
    if not callable(value):
        raise wrong_type(name, value, wanted)


def check_allocator(allocator: Any) -> None:
    """Raise `DtypeError` unless an allocator is a function, or None."""
    if allocator is not None:
        check_function("allocator", allocator, "a function of a number of bytes")


def check_allocated(memory: Any) -> None:
    """Raise `DtypeError` unless an allocator returned memory."""
    if not isinstance(memory, (cl.MemoryObjectHolder, cl.SVMPointer)):
        raise DtypeError(f"allocator returned {described(memory)}; a pyopencl.Buffer is wanted")
