"""`gemm_batched`: many products of one kind, in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.config import Config
from ..problem.matrix import result_dtype
from ..problem.problem import Epilogue
from ..problem.product import common_count
from ..runtime.arrays import (
    ArraySequence,
    at,
    check_apart,
    check_members_apart,
    checked_sequence,
    launches_of,
)
from ..runtime.memory import new_array
from ..runtime.transfer import is_on_device
from .gemm import run_from_host, run_on_device
from .prepare import check_count, result_shape


def gemm_batched(
    queue: cl.CommandQueue,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: complex | float = 1.0,
    beta: complex | float | None = None,
    trans_a: bool | str = False,
    trans_b: bool | str = False,
    out: Any = None,
    epilogue: Epilogue | None = None,
    precision: str | None = None,
    config: Config | Mapping[str, Any] | None = None,
    allocator: Any = None,
    wait_for: Sequence[cl.Event] | None = None,
    return_event: bool = False,
) -> Any:
    """Compute ``out[i] = epilogue(alpha op(A[i]) op(B[i]) + beta C[i])`` for a batch.

    One launch computes all products (where operands are packed first, one more packs each of
    them for the whole batch). Kernels, precisions, epilogue, events and errors are those of
    `gemm`; small matrices have kernels that take several products in a work-group. A batch whose
    products share B, and whose rows of A and of the result follow one another, is computed as the
    single product that it is.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the work runs.
    a, b : pyopencl.array.Array, numpy.ndarray, or sequence of these
        op(A[i]) is (m, k), op(B[i]) is (k, n). Three-dimensional arrays, the batch first, of any
        strides and offset: a batch stride of 0 serves all products with one matrix, as do a batch
        of 1 and a matrix (2-D). Or a sequence of matrices of one shape: those that lie in one
        buffer go into one launch, by their offsets, which alone are uploaded; others into a
        launch for each buffer. `b` may be a `PackedMatrix`, which all products share.
    c : as `a`, optional
        Addends, (m, n) each, or one for all.
    alpha, beta, trans_a, trans_b, precision, config, allocator, wait_for, return_event
        As for `gemm`; the same for all products.
    out : pyopencl.array.Array, numpy.ndarray, or sequence of these, optional
        Destination: (batch, m, n), or a sequence of as many matrices (m, n). `c` itself for an
        update in place. None allocates an array in C order.
    epilogue : Epilogue, optional
        Bias and activation, the same for all products.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray, or the sequence
        `out`. Without one, a NumPy array if neither `a`, `b` nor `c` is on the device.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError, UnsupportedError, ConfigError, KernelBuildError
        As `gemm` does; ShapeError, too, where operands have different numbers of matrices, or
        matrices of a sequence different shapes.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    >>> gemm_batched(queue, a, a, trans_b=True)
    array([[[  5.,  14.],
            [ 14.,  50.]],
    <BLANKLINE>
           [[149., 212.],
            [212., 302.]]], dtype=float32)
    """
    options = {
        "alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b,
        "precision": precision, "config": config, "allocator": allocator, "wait_for": wait_for,
    }  # fmt: skip
    bias = None if epilogue is None else epilogue.bias
    if all(one is None or one.__class__ is cl_array.Array for one in (a, b, c, out, bias)):
        out, event = run_on_device(queue, a, b, c, out, epilogue, batched=True, **options)
        return (out, event) if return_event else out
    given_out = out
    a, b, c, out = (
        checked_sequence(name, one) if one.__class__ in (list, tuple) else one
        for name, one in (("a", a), ("b", b), ("c", c), ("out", out))
    )
    for array in (a, b, c, out, bias):
        if not is_on_device(array):
            result, event = run_from_host(
                gemm_batched, queue, a, b, c, out, epilogue, True, **options
            )
            if isinstance(out, np.ndarray) and out is not given_out:
                for member, matrix in zip(given_out, result, strict=True):
                    member[...] = matrix
                result = given_out
            return (result, event) if return_event else result
    if any(isinstance(one, ArraySequence) for one in (a, b, c, out)):
        result, event = _run_sequences(queue, a, b, c, out, epilogue=epilogue, **options)
        result = result if given_out is None else given_out
    else:
        result, event = run_on_device(queue, a, b, c, out, epilogue, batched=True, **options)
    return (result, event) if return_event else result


def _run_sequences(
    queue: cl.CommandQueue, a: Any, b: Any, c: Any, out: Any, **options: Any
) -> tuple[Any, cl.Event | None]:
    """A launch for the matrices of each set of buffers."""
    count = common_count({"a": _count(a), "b": _count(b)})
    for name, operand, wanted in (("c", c, (1, count)), ("out", out, (count,))):
        if operand is not None:
            check_count(name, operand, _count(operand), wanted)
    if isinstance(out, ArraySequence):
        check_members_apart("out", out)
    parts = launches_of((a, b, c, out), count)
    if out is not None and len(parts) > 1:  # within a launch it is checked there
        for name, operand in (("a", a), ("b", b), ("c", c)):
            if operand is not None:
                check_apart(name, operand, out)
    if out is None and len(parts) > 1:
        out = _allocate(queue, a, b, c, count, **options)
        parts = [([*operands[:3], at(out, numbers)], numbers) for operands, numbers in parts]
    if len(parts) > 1:
        # All are built first: an error leaves the result as it was.
        for operands, _ in parts:
            run_on_device(queue, *operands, batched=True, runs=False, **options)
    ran = [run_on_device(queue, *operands, batched=True, **options) for operands, _ in parts]
    result, event = ran[-1]
    if len(ran) > 1:
        result = out
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            event = cl.enqueue_marker(queue, wait_for=[event for _, event in ran])
    return result, event


def _count(operand: Any) -> int:
    return operand.shape[0] if len(operand.shape) == 3 else 1


def _allocate(
    queue: cl.CommandQueue, a: Any, b: Any, c: Any, count: int, *,
    trans_a: Any, trans_b: Any, epilogue: Epilogue | None, allocator: Any, **_: Any,
) -> Any:  # fmt: skip
    """One array for the results of several launches."""
    bias = None if epilogue is None else epilogue.bias
    dtype = result_dtype(a.dtype.name, c=c, bias=bias)
    shape = (count, *result_shape(a, b, trans_a, trans_b)[-2:])
    return new_array(queue, "out", shape, np.dtype(dtype), allocator)
