"""Stacks of matrices as operands of a batch: three-dimensional arrays, and what stands for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .errors import ShapeError
from .operands import Matrix, entries_overlap, matrix_of


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
