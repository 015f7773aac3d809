"""The matrices of a case, on the host and on the device, the same for every contender."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from benchmarks.products.arithmetic import Arithmetic
from benchmarks.products.case import Case
from pyclgemm.measure.operands import uniform
from pyclgemm.measure.timing import rotated_sets


@dataclass(frozen=True)
class Matrix:
    """One matrix on the host and on the device.

    Attributes
    ----------
    host_base, device_base : array
        With the padding between rows.
    columns : int
        Columns without it.
    """

    host_base: NDArray[Any]
    device_base: cl_array.Array
    columns: int

    @property
    def host(self) -> NDArray[Any]:
        """The matrix without its padding, a view."""
        return self.host_base[..., : self.columns]

    @property
    def device(self) -> cl_array.Array:
        """The matrix without its padding, a view."""
        if self.columns == self.host_base.shape[-1]:
            return self.device_base
        return self.device_base[..., : self.columns]


@dataclass(frozen=True)
class OperandSet:
    """Operands of one product; views are made once, so that no timed call makes them.

    Attributes
    ----------
    a, b, out : Matrix
        As they are stored.
    device_a, device_b, device_out : pyopencl.array.Array
        Their views on the device.
    """

    a: Matrix
    b: Matrix
    out: Matrix
    device_a: cl_array.Array
    device_b: cl_array.Array
    device_out: cl_array.Array


@dataclass(frozen=True)
class Operands:
    """All that the contenders of one case share.

    Attributes
    ----------
    case : Case
        The product.
    arithmetic : Arithmetic
        The element types, and how they are multiplied.
    queue : pyopencl.CommandQueue
        In order, without profiling, which would slow each launch.
    sets : sequence of OperandSet
        Several where one would stay in a cache; they have the same numbers, in buffers of their
        own, on a CPU's host too.
    bias : Matrix
        One row of n elements, for dense layers.
    """

    case: Case
    arithmetic: Arithmetic
    queue: cl.CommandQueue
    sets: Sequence[OperandSet]
    bias: Matrix

    def poison(self) -> None:
        """Fill the result of the first set with NaN (of integers: with -1), on the device.

        A result that is added to gets the numbers again that it had at first.
        """
        out = self.sets[0].out
        base = out.device_base
        if self.case.beta:
            base.set(out.host_base, self.queue)
            return
        cl.enqueue_fill_buffer(self.queue, base.base_data, np.uint8(255), 0, base.nbytes)

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        out = self.sets[0].out
        base: NDArray[Any] = out.device_base.get(self.queue)
        return base[..., : out.columns]


def turned(matrix: NDArray[Any], transposed: bool) -> NDArray[Any]:
    """The matrix, or each matrix of a batch, transposed if it is stored so."""
    return matrix.swapaxes(-1, -2) if transposed else matrix


def memory_shortage(case: Case, arithmetic: Arithmetic, device: cl.Device) -> str | None:
    """Why the case does not fit the device, or None. Room for packed copies is counted."""
    types = (arithmetic.dtype, arithmetic.dtype, arithmetic.result_dtype)
    shapes = (case.shape_a, case.shape_b, case.shape_out)
    largest = max(
        math.prod(rows) * (columns + case.padding) * np.dtype(dtype).itemsize
        for (*rows, columns), dtype in zip(shapes, types, strict=True)
    )
    if largest > device.max_mem_alloc_size:
        return f"a matrix of {largest >> 20} MB exceeds the largest buffer of this device"
    wanted = 3 * case.bytes(arithmetic.dtype, arithmetic.result_dtype)
    if wanted > device.global_mem_size:
        return f"{wanted >> 20} MB with packed copies exceed the memory of this device"
    return None


def make_operands(
    case: Case,
    arithmetic: Arithmetic,
    queue: cl.CommandQueue,
    rng: np.random.Generator,
    count: int | None = None,
) -> Operands:
    """Fill the matrices of a case with random numbers, on host and device.

    Parameters
    ----------
    case : Case
        The product.
    arithmetic : Arithmetic
        The element types, and how they are multiplied.
    queue : pyopencl.CommandQueue
        In order, without profiling.
    rng : numpy.random.Generator
        Source of the numbers.
    count : int, optional
        Sets to rotate among. By default as many as no cache holds.
    """
    on_cpu = bool(queue.device.type & cl.device_type.CPU)
    dtype, result_dtype = arithmetic.dtype, arithmetic.result_dtype

    def matrix(shape: tuple[int, ...], dtype: str) -> Matrix:
        *rows, columns = shape
        base = uniform(rng, (*rows, columns + case.padding), dtype)
        return Matrix(base, cl_array.to_device(queue, base), columns)

    def copy(matrix: Matrix) -> Matrix:
        base = cl_array.empty_like(matrix.device_base)
        cl.enqueue_copy(queue, base.base_data, matrix.device_base.base_data)
        # NumPy is to find its operands where a CPU device finds them.
        host_base = matrix.host_base.copy() if on_cpu else matrix.host_base
        return replace(matrix, host_base=host_base, device_base=base)

    def as_set(a: Matrix, b: Matrix, out: Matrix) -> OperandSet:
        return OperandSet(a, b, out, a.device, b.device, out.device)

    # Numbers of their own for every set would take the host longer than the measurement.
    first = [
        matrix(case.shape_a, dtype),
        matrix(case.shape_b, dtype),
        matrix(case.shape_out, result_dtype),
    ]
    sets = [as_set(*first)]
    count = count or rotated_sets(case.bytes(dtype, result_dtype), queue.device)
    for _ in range(1, count):
        sets.append(as_set(*map(copy, first)))
    queue.finish()
    bias = uniform(rng, (1, case.n), result_dtype)
    if bias.dtype.kind == "i":
        bias //= 1 << 16  # sums must not overflow
    return Operands(
        case, arithmetic, queue, tuple(sets), Matrix(bias, cl_array.to_device(queue, bias), case.n)
    )
