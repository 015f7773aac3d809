"""A constant right operand, laid out once for the kernels that will read it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyopencl as cl

from .codegen import generate_pack_panels
from .config import CpuConfig
from .device import DeviceTraits
from .operands import Matrix
from .plan import LaunchSequence
from .precision import Precision
from .problem import GemmProblem, MatrixLayout, PackedLayout
from .product import Product
from .schedule import Launch, Schedule, pack_launch
from .workspace import QueueState


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
        Where its memory lies.
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
        buffer: cl.Buffer | None,
        context: cl.Context,
        queue: cl.CommandQueue,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.precision = precision
        self.layout = layout
        self.base_data = buffer
        self.context = context
        self.queue = queue
        self.events: list[cl.Event] = []

    @property
    def padded_shape(self) -> tuple[int, int]:
        """Rows and columns in memory."""
        return padded_shape(self.shape, self.layout)

    @property
    def matrix(self) -> Matrix:
        """The entries as rows of `padded_shape`."""
        return Matrix(*self.shape, self.padded_shape[1], 1, 0)

    @property
    def strides(self) -> tuple[int, int]:
        """Bytes between rows and between columns; of the panels' own making on a CPU."""
        return (self.padded_shape[1] * self.dtype.itemsize, self.dtype.itemsize)

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, dtype={self.dtype}, layout={self.layout})"


def padded_shape(shape: tuple[int, int], layout: PackedLayout) -> tuple[int, int]:
    """Rows and columns of a packed matrix in memory.

    Panels of a CPU hold just the rows that there are; a padded matrix holds whole blocks.
    """
    k, n = shape
    columns = math.ceil(n / layout.width) * layout.width
    if layout.family == "cpu":
        return k, columns
    return math.ceil(k / layout.depth_block) * layout.depth_block, columns


def pack_matrix(
    state: QueueState,
    array: Any,
    matrix: Matrix,
    precision: Precision,
    layout: PackedLayout,
    traits: DeviceTraits,
    allocate: Any,
    wait_for: list[cl.Event] | None,
) -> PackedMatrix:
    """Enqueue the packing of an array; see `pyclgemm.pack`.

    Parameters
    ----------
    state : QueueState
        The queue.
    array : pyopencl.array.Array
        What is packed.
    matrix : Matrix
        Its entries, transposition applied.
    precision : Precision
        The arithmetic of the products to come.
    layout : PackedLayout
        The layout to bring it into.
    traits : DeviceTraits
        The device.
    allocate : callable
        Takes bytes and returns a buffer.
    wait_for : list of pyopencl.Event or None
        Waited for first.
    """
    packed = PackedMatrix(
        (matrix.rows, matrix.columns), array.dtype, precision, layout, None, array.context,
        state.queue,
    )  # fmt: skip
    if 0 in packed.shape:
        return packed
    rows, columns = packed.padded_shape
    # A CPU's panels hold what the multiply-adds read, so a half is converted once.
    real_bytes = np.dtype(precision.arithmetic).itemsize
    itemsize = (
        array.dtype.itemsize * real_bytes // np.dtype(precision.operand).itemsize
        if layout.family == "cpu"
        else array.dtype.itemsize
    )
    packed.base_data = allocate(rows * columns * itemsize)
    problem = GemmProblem(
        0, matrix.columns, matrix.rows, array.dtype.name, precision,
        MatrixLayout("row"), matrix.layout, MatrixLayout("row"),
    )  # fmt: skip
    if layout.family == "cpu":
        launch = _panel_launch(problem, matrix, layout)
    else:
        launch = pack_launch("b", "out", matrix, "b", array.dtype.name, (columns, rows), traits)
    product = Product(problem, matrix, matrix, packed.matrix, None, 0, swapped=False)
    sequence = LaunchSequence(state, product, Schedule((launch,)))
    sequence.enqueue(array, array, packed, None, None, 0, 0, wait_for)
    return packed


def _panel_launch(problem: GemmProblem, matrix: Matrix, layout: PackedLayout) -> Launch:
    config = CpuConfig(MR=1, NR=layout.width, KC=layout.depth_block, VW=1)
    source = generate_pack_panels(matrix.layout, config, problem)
    strides = {"b_row_stride": matrix.row_stride, "b_column_stride": matrix.column_stride}
    names = {argument.name for argument in source.arguments}
    return Launch(
        source,
        (math.ceil(problem.n / config.NR), math.ceil(problem.k / config.KC)),
        {
            "n": problem.n,
            "k": problem.k,
            **{name: value for name, value in strides.items() if name in names},
        },
        {"b": "b", "packed": "out"},
        {"b_offset": "b"},
    )
