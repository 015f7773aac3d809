"""Sequences of matrices as arguments: checked, and divided into those that one launch reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from .errors import ArgumentError, DtypeError, ShapeError
from .matrix_sequence import MatrixSequence, overlapping_members, sequences_overlap

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
