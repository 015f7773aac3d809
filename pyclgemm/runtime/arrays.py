"""Operands that are not plain arrays: sequences and stacks of matrices, packed matrices, views.

They have the attributes of an array that the library asks for: shape, strides, element type, and
where they lie in a buffer.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..errors import ArgumentError, DtypeError, ShapeError
from ..problem.matrix import Matrix, entries_overlap, matrix_of, strides_and_offset
from ..problem.precision import Precision
from ..problem.problem import PackedLayout

#: Alignment in bytes is tracked up to this.
_ALIGNED_BYTES = 256

#: The message where a destination shares elements with an operand.
SHARED = (
    "out shares memory with {name}: elements of {name} would be overwritten before they are read; "
    "give out memory of its own"
)


@dataclass(frozen=True)
class View:
    """An array without its memory: strides and offset, in bytes, say where its elements lie."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    offset: int

    @classmethod
    def of_first(cls, stack: Any) -> View:
        """The first matrix of a stack, which may be on the host."""
        return cls(stack.shape[1:], stack.strides[1:], stack.dtype, getattr(stack, "offset", 0))


class MatrixSequence:
    """Matrices of one shape and one pair of strides anywhere in one buffer, as a 3-D array.

    They are like `first`, begin at `byte_offsets` (int64) in the buffer, and are views of arrays
    with the events in `event_lists`: a reader waits for all.
    """

    def __init__(self, first: Any, byte_offsets: Any, event_lists: Sequence[list[Any]]) -> None:
        self.shape = (len(byte_offsets), *first.shape)
        self.dtype = first.dtype
        self.base_data = first.base_data
        self.context = first.context
        self.offset = int(byte_offsets[0])
        self.byte_offsets = byte_offsets
        #: Elements from the first matrix to each.
        self.offsets = (byte_offsets - byte_offsets[0]) // first.dtype.itemsize
        steps = np.diff(byte_offsets)
        #: Whether the matrices are not equally far apart; then their stride is 0.
        self.scattered = len(steps) > 1 and bool((steps != steps[0]).any())
        step = 0 if self.scattered or len(steps) == 0 else int(steps[0])
        self.strides = (step, *first.strides)
        self.event_lists = list({id(events): events for events in event_lists}.values())

    @classmethod
    def of(cls, members: Sequence[Any]) -> MatrixSequence:
        """The sequence of arrays that lie in one buffer and agree in all but their offset."""
        byte_offsets = np.fromiter((member.offset for member in members), np.int64, len(members))
        return cls(members[0], byte_offsets, [member.events for member in members])

    @property
    def events(self) -> list[Any]:
        """What a reader waits for."""
        return [event for events in self.event_lists for event in events]

    @property
    def alignment(self) -> int:
        """The largest power of two, up to 256 bytes, that divides all offsets."""
        return int(np.gcd.reduce(self.byte_offsets, initial=_ALIGNED_BYTES))


def event_lists(array: Any) -> Sequence[list[Any]]:
    """The lists of events that users of an array or sequence wait for."""
    return array.event_lists if array.__class__ is MatrixSequence else (array.events,)


def overlaps(array: Any, out: Any, *, in_place: bool = False) -> bool:
    """Whether operands in one buffer share an element; `in_place` ones may be the same view."""
    if MatrixSequence not in (array.__class__, out.__class__):
        is_same = (array.shape, array.strides, array.offset) == (out.shape, out.strides, out.offset)
        return not (in_place and is_same) and entries_overlap(array, out)
    (ours, our), (theirs, their) = _places(array), _places(out)
    is_same = in_place and our == their and np.array_equal(ours, theirs)
    is_left_out = operator.eq if is_same else None
    return _pair_that_overlaps(ours, our, theirs, their, is_left_out) is not None


def _places(operand: Any) -> tuple[NDArray[np.int64], View]:
    """Where the matrices of an operand begin, in bytes, and one of them."""
    if isinstance(operand, MatrixSequence):
        return operand.byte_offsets, View.of_first(operand)
    view = View(operand.shape, operand.strides, operand.dtype, operand.offset)
    return np.array([operand.offset], np.int64), view


def _pair_that_overlaps(
    ours: NDArray[np.int64], our: View, theirs: NDArray[np.int64], their: View,
    is_left_out: Callable[[int, int], bool] | None,
) -> tuple[int, int] | None:  # fmt: skip
    """The numbers of two matrices, like `our` and `their` elsewhere, that share an element."""
    low, high = byte_range(our)
    their_low, their_high = byte_range(their)
    order = np.argsort(theirs)
    nearest = ours - our.offset + their.offset
    begins = np.searchsorted(theirs, nearest + (low - their_high), "right", order)
    ends = np.searchsorted(theirs, nearest + (high - their_low), "left", order)
    for number in map(int, np.flatnonzero(begins < ends)):
        for other in map(int, order[begins[number] : ends[number]]):
            if is_left_out is None or not is_left_out(number, other):
                member = replace(our, offset=int(ours[number]))
                if entries_overlap(member, replace(their, offset=int(theirs[other]))):
                    return number, other
    return None


def byte_range(array: Any) -> tuple[int, int]:
    """The first byte of an array in its buffer, and the one behind the last; equal if empty."""
    if 0 in array.shape:
        return array.offset, array.offset
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = array.offset + sum(min(0, step) for step in reach)
    return low, array.offset + sum(max(0, step) for step in reach) + array.dtype.itemsize


@functools.lru_cache(maxsize=256)
def _members_that_overlap(byte_offsets: bytes, matrix: View) -> tuple[int, int] | None:
    """The numbers of two matrices like `matrix` that share an element; kept, as it takes long."""
    places = np.frombuffer(byte_offsets, np.int64), matrix
    return _pair_that_overlaps(*places, *places, operator.ge)


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
    """The matrices of an argument: an `ArraySequence`, or a NumPy array of three dimensions."""
    if not members:
        raise ShapeError(f"{name} is an empty sequence; at least one matrix is wanted")
    first = members[0]
    on_host = isinstance(first, np.ndarray)
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
        if member.dtype != first.dtype or isinstance(member, np.ndarray) != on_host:
            raise DtypeError(
                f"{name}[{number}] is a {type(member).__name__} of {member.dtype} and {name}[0] a "
                f"{type(first).__name__} of {first.dtype}; they must be alike"
            )
    return np.stack(members) if on_host else ArraySequence(members)


def launches_of(operands: Sequence[Any]) -> list[tuple[list[Any], list[int] | None]]:
    """Divide a batch into parts whose sequences each lie in one buffer, with one pair of strides.

    An operand is an `ArraySequence`, an array, or None. The answer has the operands of each part,
    and the numbers of its products, None if there is but one part.
    """
    several = [one for one in operands if isinstance(one, ArraySequence) and len(one) > 1]
    parts = _numbers_by_memory(several)
    numbers_of_parts = list(parts.values()) if len(parts) > 1 else [None]
    return [([at(one, numbers) for one in operands], numbers) for numbers in numbers_of_parts]


def check_members_apart(out: ArraySequence) -> None:
    """Raise `ShapeError` if two matrices of a destination share memory."""
    parts = _by_memory(out)
    for index, (buffer, numbers, matrices) in enumerate(parts):
        byte_offsets = matrices.byte_offsets - matrices.offset
        if pair := _members_that_overlap(byte_offsets.tobytes(), View.of_first(matrices)):
            first, second = (numbers[one] for one in pair)
            raise ShapeError(f"out[{first}] and out[{second}] share memory")
        for other_buffer, others, other_matrices in parts[index + 1 :]:
            if buffer == other_buffer and overlaps(matrices, other_matrices):
                raise ShapeError(
                    f"matrices of out share memory, out[{numbers[0]}] and out[{others[0]}] or "
                    "others of their strides"
                )


def check_apart(name: str, operand: Any, out: Any) -> None:
    """Raise `ArgumentError` if an operand shares elements with a destination, in any launch."""
    for buffer, numbers, matrices in _by_memory(operand):
        for other_buffer, others, other_matrices in _by_memory(out):
            in_place = name == "c" and numbers == others
            if buffer == other_buffer and overlaps(matrices, other_matrices, in_place=in_place):
                raise ArgumentError(SHARED.format(name=name))


def _by_memory(operand: Any) -> list[tuple[int, Sequence[int], Any]]:
    """The matrices in each buffer and of each pair of strides: buffer, numbers, sequence."""
    if not isinstance(operand, ArraySequence):
        return [(_memory_of(operand)[0], range(1), operand)] if operand.base_data else []
    return [
        (buffer, numbers, at(operand, numbers))
        for ((buffer, _),), numbers in _numbers_by_memory([operand]).items()
        if buffer
    ]


def _numbers_by_memory(sequences: Sequence[ArraySequence]) -> dict[Any, list[int]]:
    """The numbers of members that lie in the same buffers, with the same strides."""
    parts: dict[Any, list[int]] = {}
    for number, members in enumerate(zip(*sequences, strict=True)):
        parts.setdefault(tuple(map(_memory_of, members)), []).append(number)
    return parts


def _memory_of(array: Any) -> tuple[int, tuple[int, ...]]:
    """The handle of an array's buffer, 0 without one, and its strides."""
    return 0 if array.base_data is None else array.base_data.int_ptr, array.strides


def at(operand: Any, numbers: Sequence[int] | None) -> Any:
    """The matrices of an operand for some products of a batch, or all; one serves each of them."""
    if isinstance(operand, ArraySequence):
        if numbers is not None and len(operand) > 1:
            operand = [operand[number] for number in numbers]
        return MatrixSequence.of(operand)
    if numbers is None or operand is None or count_of(operand) == 1:
        return operand
    byte_offsets = operand.offset + operand.strides[0] * np.array(numbers, np.int64)
    return MatrixSequence(operand[0], byte_offsets, [operand.events])


def count_of(operand: Any) -> int:
    """How many matrices an operand has."""
    return int(operand.shape[0]) if len(operand.shape) == 3 else 1


def operand_matrix(name: str, array: Any, *, batched: bool) -> Matrix:
    """Describe an operand: the first matrix if it is, where that is taken, a stack or sequence."""
    if isinstance(array, PackedMatrix):
        return array.matrix
    if len(array.shape) == 2 or not batched:
        return matrix_of(name, array)
    if len(array.shape) != 3:
        raise ShapeError(
            f"{name} is {len(array.shape)}-D with shape {array.shape}; a batch of matrices (3-D) "
            "or a matrix (2-D) is wanted"
        )
    matrix = matrix_of(name, View.of_first(array))
    (step, *_), _ = strides_and_offset(name, array)
    if getattr(array, "scattered", False):
        size = array.dtype.itemsize
        if array.alignment % min(size, _ALIGNED_BYTES):
            raise ShapeError(
                f"{name} has matrices at offsets that are no multiples of its element size, {size}"
            )
        return replace(matrix, offset=array.alignment // size, scattered=True)
    return replace(matrix, batch_stride=step if count_of(array) > 1 else 0)


@dataclass(eq=False, repr=False)
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

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    precision: Precision
    layout: PackedLayout
    queue: cl.CommandQueue
    base_data: Any = None
    events: list[cl.Event] = field(default_factory=list)
    offset: ClassVar[int] = 0

    def __post_init__(self) -> None:
        self.context = self.queue.context
        #: What kernels depend on; a text, as Python keeps a text's hash.
        self.facts = f"{self.shape} {self.dtype} {self.precision} {self.layout}"

    @property
    def padded_shape(self) -> tuple[int, int]:
        """Rows and columns in memory; panels have the rows that there are, others whole blocks."""
        (k, n), width = self.shape, self.layout.width
        block = 1 if self.layout.form == "panels" else self.layout.depth_block
        return math.ceil(k / block) * block, math.ceil(n / width) * width

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Element type in memory. Panels hold what multiply-adds read: a half converted once."""
        is_converted = self.layout.form == "panels" and self.dtype.name == self.precision.operand
        return np.dtype(self.precision.arithmetic) if is_converted else self.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return math.prod(self.padded_shape) * self.stored_dtype.itemsize

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
        return matrix.row_stride * itemsize, matrix.column_stride * itemsize

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, dtype={self.dtype}, layout={self.layout})"
