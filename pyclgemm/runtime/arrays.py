"""Sequences of matrices as arguments: checked, and divided into those that one launch reaches."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..errors import ArgumentError, DtypeError, ShapeError
from ..problem.matrix import Matrix, entries_overlap, matrix_of
from ..problem.precision import Precision
from ..problem.problem import PackedLayout

# --------------------------------------------------------------------------------------
# Matrices of one shape in one buffer, which stand where a three-dimensional array stands.
# --------------------------------------------------------------------------------------

#: Alignment in bytes is tracked up to this.
_ALIGNED_BYTES = 256


class MatrixSequence:
    """Matrices of one shape and one pair of strides anywhere in one buffer.

    Parameters
    ----------
    first : pyopencl.array.Array
        The first matrix, two-dimensional.
    places : numpy.ndarray of int64
        Where each begins in the buffer, in bytes.
    event_lists : sequence of list
        Of the arrays of which they are parts: what a reader waits for.

    Attributes
    ----------
    shape : tuple of int
        Matrices, rows, columns.
    strides : tuple of int
        Bytes between matrices, rows and columns; the first is 0 where `scattered`.
    scattered : bool
        Whether the matrices are not equally far apart.
    offset : int
        Bytes from the start of the buffer to the first.
    offsets : numpy.ndarray of int64
        Elements from the first to each.
    dtype, base_data, context
        As of an array.

    Examples
    --------
    >>> import numpy as np, pyopencl.array as cl_array
    >>> whole = cl_array.zeros(queue, (8, 6), np.float32)
    >>> apart = MatrixSequence.of([whole[:, 4:], whole[:, :2], whole[:, 2:4]])
    >>> apart.shape, apart.scattered, apart.offsets.tolist()
    ((3, 8, 2), True, [0, -4, -2])
    """

    def __init__(self, first: Any, places: Any, event_lists: Sequence[list[Any]]) -> None:
        self.shape = (len(places), *first.shape)
        self.dtype = first.dtype
        self.base_data = first.base_data
        self.context = first.context
        self.offset = int(places[0])
        self.offsets = (places - places[0]) // first.dtype.itemsize
        steps = np.diff(places)
        self.scattered = len(steps) > 1 and bool((steps != steps[0]).any())
        step = 0 if self.scattered or len(steps) == 0 else int(steps[0])
        self.strides = (step, *first.strides)
        self.places = places
        self.event_lists = list({id(events): events for events in event_lists}.values())

    @classmethod
    def of(cls, members: Sequence[Any]) -> MatrixSequence:
        """The sequence of arrays that lie in one buffer and agree in all but their offset."""
        places = np.fromiter((member.offset for member in members), np.int64, len(members))
        return cls(members[0], places, [member.events for member in members])

    @property
    def events(self) -> list[Any]:
        """What a reader waits for."""
        return [event for events in self.event_lists for event in events]

    def now_at(self, event: Any, *, replace: bool = True) -> None:
        """Have users of the matrices wait for what writes them: for it alone, or for it, too."""
        for events in self.event_lists:
            events[:] = [event] if replace else [*events, event]

    @property
    def alignment(self) -> int:
        """Bytes, a power of two up to 256, of which all places are multiples."""
        return int(np.gcd.reduce(self.places, initial=_ALIGNED_BYTES))

    def members(self) -> list[Any]:
        """A stand-in for each matrix, with what tells which bytes it takes."""
        matrix = (self.shape[1:], self.strides[1:], self.dtype)
        return [_Member(*matrix, int(place)) for place in self.places]


class _Member:
    """A matrix of a sequence, as far as its place in memory goes."""

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, offset: int
    ) -> None:
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.offset = offset


def _ends(array: Any) -> tuple[int, int]:
    """The first byte and the one behind the last; equal without elements."""
    if 0 in array.shape:
        return array.offset, array.offset
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = array.offset + sum(min(0, step) for step in reach)
    return low, array.offset + sum(max(0, step) for step in reach) + array.dtype.itemsize


def sequences_overlap(first: Any, second: Any, *, in_place: bool = False) -> bool:
    """Whether two operands in one buffer, arrays or sequences, have an element in common.

    `in_place` leaves out each matrix with itself, where both are the same matrices.
    """
    same = in_place and _are_same(first, second)
    ours, theirs = (_by_place(operand) for operand in (first, second))
    ends = np.array([_ends(member) for _, member in theirs], np.int64).reshape(-1, 2)
    furthest = np.maximum.accumulate(ends[:, 1]) if len(ends) else ends[:, 1]
    for number, member in ours:
        low, high = _ends(member)
        last = int(np.searchsorted(ends[:, 0], high, "left")) - 1
        while last >= 0 and furthest[last] > low:
            other_number, other = theirs[last]
            itself = same and number == other_number
            if not itself and ends[last, 1] > low and entries_overlap(member, other):
                return True
            last -= 1
    return False


def overlapping_members(sequence: MatrixSequence) -> tuple[int, int] | None:
    """The numbers of two matrices of a sequence that have an element in common, if any have."""
    key = (sequence.offsets.tobytes(), sequence.shape, sequence.strides, sequence.dtype)
    return _overlapping(*key)


@functools.lru_cache(maxsize=256)
def _overlapping(
    offsets: bytes, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
) -> tuple[int, int] | None:
    """Kept: matrices side by side, whose ends overlap, are compared pair by pair."""
    places = np.frombuffer(offsets, np.int64) * dtype.itemsize
    first = _Member(shape[1:], strides[1:], dtype, 0)
    low, high = _ends(first)
    order = np.argsort(places, kind="stable")
    starts = places[order]
    for place in range(1, len(starts)):
        other = place - 1
        while other >= 0 and starts[place] - starts[other] < high - low:
            apart = _Member(shape[1:], strides[1:], dtype, int(starts[place] - starts[other]))
            if entries_overlap(first, apart):
                return tuple(sorted((int(order[other]), int(order[place]))))  # type: ignore[return-value]
            other -= 1
    return None


def _by_place(operand: Any) -> list[tuple[int, Any]]:
    members = operand.members() if isinstance(operand, MatrixSequence) else [operand]
    return sorted(enumerate(members), key=lambda numbered: _ends(numbered[1])[0])


def _are_same(first: Any, second: Any) -> bool:
    return (
        isinstance(first, MatrixSequence)
        and isinstance(second, MatrixSequence)
        and first.shape == second.shape
        and first.strides == second.strides
        and bool((first.places == second.places).all())
    )


# --------------------------------------------------------------------------------------

#: What is said where a destination shares elements with an operand.
SHARED = (
    "out shares memory with {name}: elements of {name} would be overwritten before they are read; "
    "give out memory of its own"
)


class ArraySequence(list[Any]):
    """Matrices of one shape and type on the device, each in any buffer."""

    @property
    def dtype(self) -> Any:
        """Their element type."""
        return self[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array that holds them all."""
        return (len(self), *self[0].shape)


def checked_sequence(name: str, members: Sequence[Any]) -> Any:
    """The matrices of an argument: an `ArraySequence`, or a NumPy array of three dimensions.

    Raises
    ------
    ShapeError
        If there are none, or they are no matrices of one shape.
    DtypeError
        If they are no arrays, of several element types, or partly on the host.
    """
    if not members:
        raise ShapeError(f"{name} is an empty sequence; at least one matrix is wanted")
    first = members[0]
    for number, member in enumerate(members):
        if not isinstance(member, (cl_array.Array, np.ndarray)):
            raise DtypeError(
                f"{name}[{number}] is a {type(member).__name__}; a pyopencl.array.Array or a "
                "numpy.ndarray is wanted"
            )
        if len(member.shape) != 2 or member.shape != first.shape:
            raise ShapeError(
                f"{name}[{number}] is {member.shape} and {name}[0] is {first.shape}; matrices "
                "(2-D) of one shape are wanted"
            )
        if member.dtype != first.dtype or isinstance(member, np.ndarray) != isinstance(
            first, np.ndarray
        ):
            raise DtypeError(
                f"{name}[{number}] is a {type(member).__name__} of {member.dtype} and {name}[0] a "
                f"{type(first).__name__} of {first.dtype}; they must be alike"
            )
    return np.stack(members) if isinstance(first, np.ndarray) else ArraySequence(members)


def launches_of(operands: Sequence[Any], count: int) -> list[tuple[list[Any], range | list[int]]]:
    """Divide a batch into parts whose sequences each lie in one buffer, with one pair of strides.

    Parameters
    ----------
    operands : sequence
        An `ArraySequence`, an array, or None each.
    count : int
        Products.

    Returns
    -------
    list of (list, sequence of int)
        For each part its operands, and the numbers of its products; one part where that suffices.

    Examples
    --------
    >>> whole, other = (cl_array.zeros(queue, (4, 2, 2), np.float32) for _ in range(2))
    >>> parts = launches_of([ArraySequence([whole[0], other[1], whole[3]]), whole[0]], 3)
    >>> [numbers for _, numbers in parts]
    [[0, 2], [1]]
    """
    several = [one for one in operands if isinstance(one, ArraySequence) and len(one) > 1]
    parts: dict[Any, list[int]] = {}
    for number, members in enumerate(zip(*several, strict=True)):
        key = tuple((_buffer(member), member.strides) for member in members)
        parts.setdefault(key, []).append(number)
    if len(parts) < 2:
        return [([_whole(one) for one in operands], range(count))]
    return [([at(one, numbers) for one in operands], numbers) for numbers in parts.values()]


def check_members_apart(name: str, sequence: ArraySequence) -> None:
    """Raise `ShapeError` if two matrices of a destination share memory."""
    parts = _by_buffer(sequence)
    for place, (buffer, numbers, matrices) in enumerate(parts):
        if pair := overlapping_members(matrices):
            first, second = (numbers[one] for one in pair)
            raise ShapeError(f"{name}[{first}] and {name}[{second}] share memory")
        for other_buffer, others, other_matrices in parts[place + 1 :]:
            if buffer == other_buffer and sequences_overlap(matrices, other_matrices):
                raise ShapeError(
                    f"matrices of {name} share memory, {name}[{numbers[0]}] and "
                    f"{name}[{others[0]}] or others of their strides"
                )


def check_apart(name: str, operand: Any, out: Any) -> None:
    """Raise `ArgumentError` if an operand shares elements with a destination, in any launch."""
    for buffer, numbers, matrices in _by_buffer(operand):
        for other_buffer, others, other_matrices in _by_buffer(out):
            in_place = name == "c" and numbers == others
            if buffer == other_buffer and sequences_overlap(
                matrices, other_matrices, in_place=in_place
            ):
                raise ArgumentError(SHARED.format(name=name))


def _by_buffer(operand: Any) -> list[tuple[int, Sequence[int], Any]]:
    """The matrices in each buffer and of each pair of strides: buffer, numbers, sequence."""
    if not isinstance(operand, ArraySequence):
        return [(_buffer(operand), range(1), operand)] if operand.base_data is not None else []
    kinds: dict[Any, list[int]] = {}
    for number, member in enumerate(operand):
        kinds.setdefault((_buffer(member), member.strides), []).append(number)
    return [
        (buffer, numbers, MatrixSequence.of([operand[number] for number in numbers]))
        for (buffer, _), numbers in kinds.items()
        if buffer
    ]


def at(operand: Any, numbers: Sequence[int]) -> Any:
    """The matrices of an operand for some products of a batch; one that they share as it is."""
    if operand is None or len(operand.shape) == 2 or operand.shape[0] == 1:
        return _whole(operand)
    if isinstance(operand, ArraySequence):
        return MatrixSequence.of([operand[number] for number in numbers])
    places = operand.offset + operand.strides[0] * np.array(numbers, np.int64)
    return MatrixSequence(operand[0], places, [operand.events])


def _whole(operand: Any) -> Any:
    return MatrixSequence.of(operand) if isinstance(operand, ArraySequence) else operand


def _buffer(array: Any) -> int:
    return 0 if array.base_data is None else array.base_data.int_ptr


# --------------------------------------------------------------------------------------
# Stacks of matrices as operands of a batch: three-dimensional arrays, and what stands for them.
# --------------------------------------------------------------------------------------


def stack_of(name: str, array: Any) -> tuple[Matrix, int]:
    """Describe a three-dimensional array, or a matrix that all products share.

    Returns
    -------
    matrix : Matrix
        The first matrix, and how far the next one is.
    count : int
        How many there are.

    Raises
    ------
    DtypeError, ShapeError
        As `matrix_of`.
    """
    if len(array.shape) == 2:
        return matrix_of(name, array), 1
    if len(array.shape) != 3:
        raise ShapeError(
            f"{name} is {len(array.shape)}-D with shape {array.shape}; a batch of matrices (3-D) "
            "or a matrix (2-D) is wanted"
        )
    matrix = matrix_of(name, _FirstMatrix(array))
    count, size = int(array.shape[0]), array.dtype.itemsize
    if array.strides[0] % size:
        raise ShapeError(
            f"{name} has strides {array.strides} in bytes; they must be multiples of its element "
            f"size, {size}"
        )
    if getattr(array, "scattered", False):
        if array.alignment % min(size, 256):
            raise ShapeError(
                f"{name} has matrices at places that are no multiples of its element size, {size}"
            )
        return replace(matrix, offset=array.alignment // size, scattered=True), count
    step = int(array.strides[0]) // size if count > 1 else 0
    return replace(matrix, batch_stride=step), count


class _FirstMatrix:
    """The first matrix of a stack, as far as its place in memory goes."""

    def __init__(self, stack: Any) -> None:
        self.shape, self.strides = stack.shape[1:], stack.strides[1:]
        self.dtype, self.offset = stack.dtype, getattr(stack, "offset", 0)


def check_stack_writable(stack: Any) -> None:
    """Raise `ShapeError` if two matrices of a three-dimensional `out` share memory."""
    count = stack.shape[0]
    if count < 2 or 0 in stack.shape or getattr(stack, "scattered", False):
        return
    first = _FirstMatrix(stack)
    others = _FirstMatrix(stack)
    others.shape, others.strides = (count - 1, *first.shape), stack.strides
    others.offset = first.offset + stack.strides[0]
    # Only how far two matrices are apart matters, so the first stands for all.
    if entries_overlap(first, others):
        raise ShapeError(
            f"out has strides {stack.strides} in bytes for shape {stack.shape}: two of its "
            "matrices share memory"
        )


# --------------------------------------------------------------------------------------
# A constant right operand that was laid out ahead of the products that read it.
# --------------------------------------------------------------------------------------


class PackedMatrix:
    """A matrix packed by `pyclgemm.pack`, taken wherever a right operand is.

    Attributes
    ----------
    shape : tuple of int
        (k, n), as the product sees it.
    dtype : numpy.dtype
        Element type.
    precision : Precision
        The arithmetic that it was packed for.
    layout : PackedLayout
        How it lies in memory.
    context : pyopencl.Context
    queue : pyopencl.CommandQueue
        Where it was packed.
    base_data : pyopencl.Buffer or None
        Its memory; None without elements.
    events : list of pyopencl.Event
        What a reader waits for.
    """

    offset = 0

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        precision: Precision,
        layout: PackedLayout,
        queue: cl.CommandQueue,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.precision = precision
        self.layout = layout
        self.context = queue.context
        self.queue = queue
        self.base_data: Any = None
        self.events: list[cl.Event] = []

    @property
    def padded_shape(self) -> tuple[int, int]:
        """Rows and columns in memory.

        Panels of a CPU hold just the rows that there are; a padded matrix holds whole blocks.
        """
        k, n = self.shape
        columns = math.ceil(n / self.layout.width) * self.layout.width
        if self.layout.form == "panels":
            return k, columns
        return math.ceil(k / self.layout.depth_block) * self.layout.depth_block, columns

    @property
    def nbytes(self) -> int:
        """Bytes in memory. Panels hold what the multiply-adds read: a half converted once."""
        rows, columns = self.padded_shape
        itemsize = self.dtype.itemsize
        if self.layout.form == "panels":
            stored, computed = map(np.dtype, (self.precision.operand, self.precision.arithmetic))
            itemsize = itemsize // stored.itemsize * computed.itemsize
        return rows * columns * itemsize

    @property
    def matrix(self) -> Matrix:
        """The entries in memory of `padded_shape`."""
        rows, columns = self.padded_shape
        if self.layout.along_k:
            return Matrix(*self.shape, 1, rows, 0)
        return Matrix(*self.shape, columns, 1, 0)

    @property
    def strides(self) -> tuple[int, int]:
        """Bytes between rows and between columns; a CPU's panels follow their own order."""
        matrix, itemsize = self.matrix, self.dtype.itemsize
        return (matrix.row_stride * itemsize, matrix.column_stride * itemsize)

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, dtype={self.dtype}, layout={self.layout})"
