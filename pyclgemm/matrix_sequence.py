"""Matrices of one shape in one buffer, which stand where a three-dimensional array stands."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .operands import entries_overlap

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
