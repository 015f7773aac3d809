"""A constant right operand that was laid out ahead of the products that read it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyopencl as cl

from .operands import Matrix
from .precision import Precision
from .problem import PackedLayout


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
        if self.layout.family == "cpu":
            return k, columns
        return math.ceil(k / self.layout.depth_block) * self.layout.depth_block, columns

    @property
    def nbytes(self) -> int:
        """Bytes in memory. Panels hold what the multiply-adds read: a half converted once."""
        rows, columns = self.padded_shape
        itemsize = self.dtype.itemsize
        if self.layout.family == "cpu":
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
