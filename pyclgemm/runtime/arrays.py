"""Operands that are not plain arrays: sequences and stacks of matrices, packed matrices, views.

Like arrays, they have a shape, strides, an element type, a buffer and an offset.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..errors import ArgumentError, ShapeError
from ..host.process import InRuntime, OfThisProcess
from ..problem.matrix import Matrix, entries_overlap, matrix_of, strides_and_offset
from ..problem.precision import Precision
from ..problem.problem import PackedLayout

#: The largest alignment, in bytes, that kernels depend on.
_ALIGNED_BYTES = 256

#: The message if a destination shares elements with an operand.
SHARED = (
    "out shares memory with {name}: elements of {name} would be overwritten before they are read; "
    "give out memory of its own"
)


@dataclass(frozen=True)
class View:
    """An array without its memory; strides and offset are in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    offset: int

    @classmethod
    def of_first(cls, stack: Any) -> View:
        """The first matrix of a stack on the device or the host."""
        return cls(stack.shape[1:], stack.strides[1:], stack.dtype, getattr(stack, "offset", 0))


class MatrixSequence:
    """Matrices with the shape and strides of `first`, at `byte_offsets` (int64) in its buffer.

    Readers wait for all events in `event_lists`.
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
        #: Whether the distances between matrices differ; then their stride is 0.
        self.scattered = len(steps) > 1 and bool((steps != steps[0]).any())
        step = 0 if self.scattered or len(steps) == 0 else int(steps[0])
        self.strides = (step, *first.strides)
        self.event_lists = list({id(events): events for events in event_lists}.values())

    @property
    def events(self) -> list[Any]:
        """The events that a reader waits for."""
        return [event for events in self.event_lists for event in events]

    @property
    def alignment(self) -> int:
        """The largest power of two, up to 256 bytes, that divides all offsets."""
        return int(np.gcd.reduce(self.byte_offsets, initial=_ALIGNED_BYTES))


def event_lists(array: Any) -> Sequence[list[Any]]:
    """The lists of events that users of an array or sequence wait for."""
    return array.event_lists if array.__class__ is MatrixSequence else (array.events,)


def overlaps(array: Any, out: Any, *, in_place: bool = False) -> bool:
    """Whether operands in one buffer share an element; if `in_place`, they may be the same view."""
    if MatrixSequence not in (array.__class__, out.__class__):
        is_same = (array.shape, array.strides, array.offset) == (out.shape, out.strides, out.offset)
        return not (in_place and is_same) and entries_overlap(array, out)
    first, second = _offsets_and_view(array), _offsets_and_view(out)
    is_same = in_place and first[1] == second[1] and np.array_equal(first[0], second[0])
    is_allowed = operator.eq if is_same else lambda *_: False
    return _overlapping_pair(first, second, is_allowed) is not None


#: Byte offsets of matrices in a buffer, and a view of the first.
_Matrices: TypeAlias = tuple[NDArray[np.int64], View]


def _offsets_and_view(operand: Any) -> _Matrices:
    if isinstance(operand, MatrixSequence):
        return operand.byte_offsets, View.of_first(operand)
    view = View(operand.shape, operand.strides, operand.dtype, operand.offset)
    return np.array([operand.offset], np.int64), view


def _overlapping_pair(
    first: _Matrices, second: _Matrices, is_allowed: Callable[[int, int], bool]
) -> tuple[int, int] | None:
    """The indices of a matrix of `first` and one of `second` that share an element."""
    (ours, our), (theirs, their) = first, second
    low, high = byte_range(our)
    their_low, their_high = byte_range(their)
    order = np.argsort(theirs)
    nearest = ours - our.offset + their.offset
    begins = np.searchsorted(theirs, nearest + (low - their_high), "right", order)
    ends = np.searchsorted(theirs, nearest + (high - their_low), "left", order)
    for index in map(int, np.flatnonzero(begins < ends)):
        for other in map(int, order[begins[index] : ends[index]]):
            if not is_allowed(index, other):
                member = replace(our, offset=int(ours[index]))
                if entries_overlap(member, replace(their, offset=int(theirs[other]))):
                    return index, other
    return None


def byte_range(array: Any) -> tuple[int, int]:
    """The range of an array's bytes in its buffer; the end is excluded."""
    if 0 in array.shape:
        return array.offset, array.offset
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = array.offset + sum(min(0, step) for step in reach)
    return low, array.offset + sum(max(0, step) for step in reach) + array.dtype.itemsize


@functools.lru_cache(maxsize=256)
def _members_that_overlap(byte_offsets: bytes, matrix: View) -> tuple[int, int] | None:
    """The indices of two matrices that share an element, cached, as the search is slow."""
    matrices = np.frombuffer(byte_offsets, np.int64), matrix
    return _overlapping_pair(matrices, matrices, operator.ge)


class ArraySequence(list[Any]):
    """Matrices of one shape and type on the device, in any buffers."""

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a 3-D array of the matrices."""
        return (len(self), *self[0].shape)


def launches_of(operands: Sequence[Any]) -> list[tuple[list[Any], list[int] | None]]:
    """Divide a batch into launches: each sequence has one buffer and one pair of strides in it.

    An operand is an `ArraySequence`, an array, or None. Return the operands of each launch, and
    the indices of its products, or None for a single launch.
    """
    sequences = [one for one in operands if isinstance(one, ArraySequence) and len(one) > 1]
    parts = list(_indices_by_memory(sequences).values())
    launches = parts if len(parts) > 1 else [None]
    return [([at(one, indices) for one in operands], indices) for indices in launches]


def check_members_apart(out: ArraySequence) -> None:
    """Raise `ShapeError` if two matrices of a destination share memory."""
    parts = _by_memory(out)
    for part, (buffer, indices, matrices) in enumerate(parts):
        byte_offsets = matrices.byte_offsets - matrices.offset
        if pair := _members_that_overlap(byte_offsets.tobytes(), View.of_first(matrices)):
            first, second = (indices[one] for one in pair)
            raise ShapeError(f"out[{first}] and out[{second}] share memory")
        for other_buffer, others, other_matrices in parts[part + 1 :]:
            if buffer == other_buffer and overlaps(matrices, other_matrices):
                raise ShapeError(
                    f"matrices of out share memory, out[{indices[0]}] and out[{others[0]}] or "
                    "others of their strides"
                )


def check_apart(name: str, operand: Any, out: Any) -> None:
    """Raise `ArgumentError` if an operand shares elements with a destination, in any launch."""
    for buffer, indices, matrices in _by_memory(operand):
        for other_buffer, others, other_matrices in _by_memory(out):
            in_place = name == "c" and indices == others
            if buffer == other_buffer and overlaps(matrices, other_matrices, in_place=in_place):
                raise ArgumentError(SHARED.format(name=name))


def _by_memory(operand: Any) -> list[tuple[int, Sequence[int], Any]]:
    """The handle, indices and matrices for each buffer and each pair of strides."""
    if not isinstance(operand, ArraySequence):
        return [(_memory_of(operand)[0], range(1), operand)] if operand.base_data else []
    return [
        (buffer, indices, at(operand, indices))
        for ((buffer, _),), indices in _indices_by_memory([operand]).items()
        if buffer
    ]


def _indices_by_memory(sequences: Sequence[ArraySequence]) -> dict[Any, list[int]]:
    """The indices of members that have the same buffers and the same strides."""
    parts: dict[Any, list[int]] = {}
    for index, members in enumerate(zip(*sequences, strict=True)):
        parts.setdefault(tuple(map(_memory_of, members)), []).append(index)
    return parts


def _memory_of(array: Any) -> tuple[int, tuple[int, ...]]:
    """The handle of an array's buffer, 0 without one, and its strides."""
    return 0 if array.base_data is None else array.base_data.int_ptr, array.strides


def at(operand: Any, indices: Sequence[int] | None) -> Any:
    """The matrices of an operand for some products of a batch; None means all."""
    if isinstance(operand, ArraySequence):
        if indices is not None and len(operand) > 1:
            operand = ArraySequence(operand[index] for index in indices)
        byte_offsets = np.array([member.offset for member in operand], np.int64)
        return MatrixSequence(operand[0], byte_offsets, [member.events for member in operand])
    if indices is None or operand is None or count_of(operand) == 1:
        return operand
    byte_offsets = operand.offset + operand.strides[0] * np.array(indices, np.int64)
    return MatrixSequence(operand[0], byte_offsets, [operand.events])


def as_batch(array: Any, stack: tuple[int, ...]) -> Any:
    """The matrices of an array as a batch for the products of a stack, or one matrix for all."""
    leading = array.shape[:-2]
    if math.prod(leading) == 1:
        return array[(0,) * len(leading)] if leading else array
    steps = [
        stride * np.arange(extent, dtype=np.int64)
        for extent, stride in zip(leading, array.strides, strict=False)
    ]
    byte_offsets = np.broadcast_to(array.offset + sum(np.ix_(*steps)), stack)
    return MatrixSequence(array[(0,) * len(leading)], byte_offsets.ravel(), [array.events])


def as_rows(array: Any) -> Any:
    """The vectors along the last dimension as the rows of a matrix in the same memory.

    None if their distances differ, so that no matrix has them all as its rows.
    """
    if len(array.shape) == 2:
        return array
    *leading, width = array.shape
    rows, step = 1, width * array.dtype.itemsize
    if 0 in array.shape:
        rows, leading = math.prod(leading), []
    for extent, stride in zip(leading[::-1], array.strides[-2::-1], strict=False):
        if extent > 1 and rows > 1 and stride != rows * step:
            return None
        if extent > 1 and rows == 1:
            step = stride
        rows *= extent
    return cl_array.Array(
        array.context if array.queue is None else array.queue, (rows, width), array.dtype,
        data=array.base_data, offset=array.offset, strides=(step, array.strides[-1]),
        events=array.events,
    )  # fmt: skip


def count_of(operand: Any) -> int:
    """The number of matrices of an operand."""
    return int(operand.shape[0]) if len(operand.shape) == 3 else 1


def operand_matrix(name: str, array: Any, *, batched: bool) -> Matrix:
    """Describe a matrix, or if `batched` the first matrix of a stack or sequence."""
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
class PackedMatrix(OfThisProcess):
    """A matrix packed by `pyclgemm.pack`, for use as a right operand.

    Attributes
    ----------
    shape : tuple of int
        (k, n), as in the product.
    dtype : numpy.dtype
        Element type.
    precision : Precision
        The arithmetic that it was packed for.
    layout : PackedLayout
        Its layout in memory.
    context : pyopencl.Context
        That of its memory; other queues of it may use the matrix.
    queue : pyopencl.CommandQueue
        The queue that packed it.
    base_data : pyopencl.Buffer or None
        Its memory; None without elements.
    events : list of pyopencl.Event
        A reader waits for these.

    See Also
    --------
    pack : Makes it, with an example.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    precision: Precision
    layout: PackedLayout
    queue: cl.CommandQueue
    base_data: Any = None
    events: list[cl.Event] = field(default_factory=list)
    offset: ClassVar[int] = 0
    _instead: ClassVar[str] = "take its get(), which is a NumPy array, and pack that again"

    def __post_init__(self) -> None:
        self.context = self.queue.context
        #: The features that kernels depend on; a text, as Python caches its hash.
        self.facts = f"{self.shape} {self.dtype} {self.precision} {self.layout}"

    @property
    def padded_shape(self) -> tuple[int, int]:
        """Rows and columns in memory; rows are padded to whole blocks, in panels to whole pairs."""
        (k, n), width = self.shape, self.layout.width
        is_panels = self.layout.form == "panels"
        block = self.precision.packed_depth if is_panels else self.layout.depth_block
        return math.ceil(k / block) * block, math.ceil(n / width) * width

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Element type in memory; panels have the type that is multiplied."""
        is_converted = self.layout.form == "panels" and self.dtype.name == self.precision.operand
        multiplied = "int16" if self.precision.packed_depth == 2 else self.precision.arithmetic
        return np.dtype(multiplied) if is_converted else self.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return math.prod(self.padded_shape) * self.stored_dtype.itemsize

    @property
    def matrix(self) -> Matrix:
        """The entries (k, n) within memory of `padded_shape`."""
        rows, columns = self.padded_shape
        if self.layout.along_k:
            return Matrix(*self.shape, 1, rows, 0)
        return Matrix(*self.shape, columns, 1, 0)

    @property
    def strides(self) -> tuple[int, int]:
        """Bytes between rows and between columns; not meaningful for panels."""
        matrix, itemsize = self.matrix, self.dtype.itemsize
        return matrix.row_stride * itemsize, matrix.column_stride * itemsize

    def get(self) -> NDArray[Any]:
        """The matrix (k, n) as a NumPy array, exactly as it was packed; waits for the device.

        Examples
        --------
        >>> import numpy as np
        >>> pack(queue, np.array([[1, 2, 3]], np.float32)).get()
        array([[1., 2., 3.]], dtype=float32)
        """
        (k, n), (rows, columns) = self.shape, self.padded_shape
        stored = np.empty(rows * columns, self.stored_dtype)
        if self.base_data is not None:
            with InRuntime():
                cl.enqueue_copy(self.queue, stored, self.base_data, wait_for=self.events)
        if self.layout.form == "panels":
            whole = np.empty((rows, columns), stored.dtype)
            neighbours, block = self.precision.packed_depth, self.layout.depth_block
            for first in range(0, rows, neighbours * block):
                part = whole[first : first + neighbours * block]
                panels = stored[first * columns :][: part.size]
                panels = panels.reshape(-1, len(part) // neighbours, self.layout.width, neighbours)
                part[:] = panels.transpose(1, 3, 0, 2).reshape(part.shape)
        elif self.layout.along_k:
            whole = stored.reshape(columns, rows).T
        else:
            whole = stored.reshape(rows, columns)
        return np.array(whole[:k, :n], self.dtype, order="C")

    def __repr__(self) -> str:
        return (
            f"PackedMatrix(shape={self.shape}, dtype={self.dtype}, "
            f"precision={self.precision.name!r}, layout={self.layout})"
        )
