"""`matmul`: numpy.matmul's rules of shape on top of `gemm` and `gemm_batched`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.discovery import default_device
from ..errors import ArgumentError, DtypeError, ShapeError
from ..problem.matrix import result_dtype
from ..runtime.arrays import MatrixSequence
from ..runtime.memory import new_array, through_device
from .batched import gemm_batched
from .gemm import gemm


def matmul(
    a: Any,
    b: Any,
    /,
    *,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    precision: str | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any:
    """Multiply as `numpy.matmul` does: vectors, matrices, and stacks. Errors are those of `gemm`.

    Parameters
    ----------
    a, b : pyopencl.array.Array or numpy.ndarray
        A vector counts as a row on the left and as a column on the right; leading
        dimensions broadcast. One launch computes all products of a stack, as `gemm_batched` does.
    queue : pyopencl.CommandQueue, optional
        None takes the queue of a device array, else one on the best device found.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Of the result's shape; its element type becomes the result's, as for `gemm`. Without it
        the result is of the operands' type, as NumPy's is, but int32 for int8.
    precision, wait_for
        As for `gemm`.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray
        `out`; without one a NumPy array if both operands are.

    Examples
    --------
    >>> import numpy as np
    >>> stack = np.ones((5, 2, 3), np.float32)
    >>> matmul(stack, np.ones(3, np.float32), queue=queue).shape
    (5, 2)
    """
    queue = queue or _queue_of(a, b, out)

    def multiply(a: Any, b: Any, out: Any) -> tuple[Any, None]:
        shape = _result_shape(tuple(a.shape), tuple(b.shape))
        if out is not None and tuple(out.shape) != shape:
            raise ShapeError(f"out is {tuple(out.shape)}; the product of a and b is {shape}")
        dtype = np.dtype(result_dtype(a.dtype.name, out=out))
        if out is None:
            out = new_array(queue, "out", shape, dtype)
        _multiply(queue, a, b, out, precision, wait_for)
        return out, None

    both_on_host = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    operands = {"a": a, "b": b}
    return through_device(queue, operands, out, multiply, makes_host_array=both_on_host)[0]


def _queue_of(*arrays: Any) -> cl.CommandQueue:
    for array in arrays:
        if isinstance(array, cl_array.Array):
            if array.queue is None:
                raise ArgumentError("queue is None, and the device array has no queue: give one")
            return array.queue
    return _default()[0]


@functools.cache
def _default() -> tuple[cl.CommandQueue, cl.Context]:
    """A queue, and its context, which on Intel's CPU runtime a queue does not keep alive."""
    context = cl.Context([default_device()])
    return cl.CommandQueue(context), context


def _result_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the product by numpy.matmul's rules."""
    for name, shape in (("a", a), ("b", b)):
        if not shape:
            raise ShapeError(f"{name} is a scalar; matmul takes vectors and matrices")
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    depth_of_b = b[-2] if len(b) > 1 else b[0]
    if a[-1] != depth_of_b:
        raise ShapeError(
            f"a is {a} and b is {b}: a's columns ({a[-1]}) must equal b's rows ({depth_of_b})"
        )
    try:
        stack = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ShapeError(
            f"a is {a} and b is {b}: the leading dimensions {a[:-2]} and {b[:-2]} do not broadcast"
        ) from None
    return (*stack, *rows, *columns)


def _multiply(
    queue: cl.CommandQueue, a: Any, b: Any, out: Any, precision: str | None, wait_for: Any
) -> None:
    """Run one `gemm`, or one batch of all matrices of the stack."""
    if a.dtype != b.dtype:
        raise DtypeError(f"b is {b.dtype} and a is {a.dtype}; they must be the same")
    as_row, as_column = len(a.shape) == 1, len(b.shape) == 1
    if as_row:
        a, out = a[np.newaxis, :], _with_axis(out, -1 if as_column else -2)
    if as_column:
        b, out = b[:, np.newaxis], _with_axis(out, -1)
    stack = out.shape[:-2]
    if not stack:
        gemm(queue, a, b, out=out, precision=precision, wait_for=wait_for)
    elif 0 not in stack:
        a, b, out = (_as_batch(array, stack) for array in (a, b, out))
        gemm_batched(queue, a, b, out=out, precision=precision, wait_for=wait_for)


def _with_axis(array: Any, axis: int) -> Any:
    """A view with a new axis of length 1 at `axis`, counted in the result from the end."""
    position = len(array.shape) + 1 + axis
    return array[(slice(None),) * position + (np.newaxis,)]


def _as_batch(array: Any, stack: tuple[int, ...]) -> Any:
    """The matrices of an array for each product of a stack: as a batch, or one for all."""
    leading = array.shape[:-2]
    if math.prod(leading) == 1:
        return array[(0,) * len(leading)]
    steps = [
        stride * np.arange(extent, dtype=np.int64)
        for extent, stride in zip(leading, array.strides, strict=False)
    ]
    byte_offsets = np.broadcast_to(array.offset + sum(np.ix_(*steps)), stack)
    return MatrixSequence(array[(0,) * len(leading)], byte_offsets.ravel(), [array.events])
