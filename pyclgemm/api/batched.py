"""Many products in one launch: `gemm_batched`, and `matmul` by NumPy's rules."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from ..codegen.config import Config
from ..errors import DtypeError, ShapeError, shown
from ..problem.matrix import result_dtype
from ..problem.precision import DTYPES, result_dtypes
from ..runtime import arrays
from ..runtime.arguments import (
    ArrayT,
    Operand,
    as_array,
    check_flag,
    checked_sequence,
    dtype_name,
    queue_for,
)
from ..runtime.arrays import ArraySequence, PackedMatrix
from ..runtime.interchange import owned, owner_of
from ..runtime.memory import new_array, size_of, through_device
from .epilogue import Epilogue, checked_epilogue
from .gemm import gemm, prepare, run, run_on_device
from .prepare import Call, check_count, common_count, result_shape
from .signatures import PrecisionArgument, ProductOptions, Transposed

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: An array of matrices, or a sequence of them.
Batch: TypeAlias = Operand | Sequence[Operand]

_SEQUENCES = frozenset((list, tuple))


@overload
def gemm_batched(
    queue: cl.CommandQueue, a: ArrayT, b: ArrayT | PackedMatrix, c: ArrayT | None = None, *,
    out: ArrayT | None = None, return_event: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> ArrayT: ...  # fmt: skip
@overload
def gemm_batched(
    queue: cl.CommandQueue, a: ArrayT, b: ArrayT | PackedMatrix, c: ArrayT | None = None, *,
    out: ArrayT | None = None, return_event: Literal[True],
    **options: Unpack[ProductOptions],
) -> tuple[ArrayT, cl.Event]: ...  # fmt: skip
@overload
def gemm_batched(
    queue: cl.CommandQueue, a: Batch, b: Batch | PackedMatrix, c: Batch | None = None, *,
    out: Batch | None = None, return_event: bool = False,
    **options: Unpack[ProductOptions],
) -> Any: ...  # fmt: skip
def gemm_batched(
    queue: cl.CommandQueue,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: complex | float = 1.0,
    beta: complex | float | None = None,
    trans_a: Transposed = False,
    trans_b: Transposed = False,
    out: Any = None,
    epilogue: Epilogue | None = None,
    precision: PrecisionArgument = None,
    config: Config | Mapping[str, Any] | None = None,
    allocator: Any = None,
    wait_for: Sequence[cl.Event] | None = None,
    return_event: bool = False,
) -> Any:
    """Compute ``out[i] = epilogue(alpha op(A[i]) op(B[i]) + beta C[i])`` for a batch.

    One launch computes all products; operands that need packing have a launch each. Kernels,
    precisions, epilogue, events and errors are those of `gemm`; for small matrices a work-group
    computes several products. If all products share B, and the rows of A and of the result have
    one stride through the whole batch, the batch is computed as a single product.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the work runs.
    a, b : pyopencl.array.Array, numpy.ndarray, or sequence of these
        op(A[i]) is (m, k), op(B[i]) is (k, n). Three-dimensional arrays, the batch first, of any
        strides and offset; all products share a matrix (2-D), a batch of 1, and a batch of stride
        0. Or a sequence of matrices of one shape, with a launch for each buffer that holds some of
        them; only their offsets are uploaded. `b` may be a `PackedMatrix`, which all share.
    c : as `a`, optional
        Addends, (m, n) each, or one for all products.
    alpha, beta, trans_a, trans_b, precision, config, allocator, wait_for, return_event
        As for `gemm`; the same for all products.
    out : pyopencl.array.Array, numpy.ndarray, or sequence of these, optional
        Destination: (batch, m, n), or a sequence of matrices (m, n); `c` itself for an update in
        place. None allocates an array in C order.
    epilogue : Epilogue, optional
        Bias and activation, the same for all products.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray, or the sequence
        `out`. Without one, a NumPy array if neither `a`, `b` nor `c` is on the device.

    See Also
    --------
    gemm : One product.
    matmul : Stacks that broadcast as in NumPy.
    einsum : Batches whose dimensions lie in any order.

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
    caller_out = out
    if not _SEQUENCES.isdisjoint(map(type, (a, b, c, out))):
        a, b, c, out = (
            checked_sequence(name, one) if type(one) in _SEQUENCES else one
            for name, one in (("a", a), ("b", b), ("c", c), ("out", out))
        )
    if return_event is not False:
        check_flag("return_event", return_event)
    call = Call(
        a, b, c, out, checked_epilogue(epilogue), alpha, beta, trans_a, trans_b, precision, config,
        allocator, wait_for, batched=True,
    )  # fmt: skip
    result, event = run(queue, call, _run_batch)
    if out is not caller_out:  # a sequence
        if isinstance(out, np.ndarray):
            for member, matrix in zip(caller_out, result, strict=True):
                as_array("out", member)[...] = matrix
        result = caller_out
    return (result, event) if return_event else result


def _run_batch(queue: cl.CommandQueue, call: Call) -> tuple[Any, cl.Event | None]:
    """Run a batch on the device: one launch for the matrices of each set of buffers."""
    a, b, c, out = call.a, call.b, call.c, call.out
    if ArraySequence not in (a.__class__, b.__class__, c.__class__, out.__class__):
        return run_on_device(queue, call)
    count = common_count(a, b)
    for name, operand, wanted in (("c", c, (1, count)), ("out", out, (count,))):
        if operand is not None:
            check_count(name, operand, wanted)
    if isinstance(out, ArraySequence):
        arrays.check_members_apart(out)
    parts = arrays.launches_of((a, b, c, out))
    if len(parts) == 1:
        ((a, b, c, out), _) = parts[0]
        return run_on_device(queue, replace(call, a=a, b=b, c=c, out=out))
    if out is None:
        dtype = result_dtype(a.dtype.name, c=c, bias=call.epilogue.bias)
        shape = result_shape(call)
        size_of("out", shape, dtype)
        out = new_array(queue, "out", shape, np.dtype(dtype), call.allocator)
    else:  # each launch checks only its own arrays
        for name, operand in (("a", a), ("b", b), ("c", c)):
            if operand is not None:
                arrays.check_apart(name, operand, out)
    calls = [
        replace(call, a=a, b=b, c=c, out=arrays.at(out, indices)) for (a, b, c, _), indices in parts
    ]
    # All are built before the first runs, so that an error does not change the result.
    for one in calls:
        one.check()
        prepare(queue, one)
    events = [run_on_device(queue, one)[1] for one in calls]
    event = events[-1]
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        event = cl.enqueue_marker(queue, wait_for=events)
    return out, event


@overload
def matmul(
    a: ArrayT, b: ArrayT, /, *, queue: cl.CommandQueue | None = None, out: ArrayT | None = None,
    dtype: npt.DTypeLike | None = None, precision: PrecisionArgument = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> ArrayT: ...  # fmt: skip
@overload
def matmul(
    a: Operand, b: Operand, /, *, queue: cl.CommandQueue | None = None, out: Operand | None = None,
    dtype: npt.DTypeLike | None = None, precision: PrecisionArgument = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any: ...  # fmt: skip
def matmul(
    a: Any,
    b: Any,
    /,
    *,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    dtype: npt.DTypeLike | None = None,
    precision: PrecisionArgument = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any:
    """Multiply as `numpy.matmul` does: vectors, matrices, and stacks. Errors are those of `gemm`.

    Parameters
    ----------
    a, b : pyopencl.array.Array or numpy.ndarray
        A vector is a row on the left and a column on the right; leading dimensions broadcast. One
        launch computes all products of a stack, as in `gemm_batched`.
    queue : pyopencl.CommandQueue, optional
        None takes the queue of a device array, else that of `default_queue`.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Destination, whose element type is the result's, as for `gemm`. Without it the result has
        the operands' type, as in NumPy, but int32 for int8.
    dtype : str or numpy.dtype, optional
        Element type of the result. Operands of one type that have such results are multiplied as
        they are: those of float16 and bfloat16 for float32, say. Else operands on the host are
        converted to `dtype` first, but only where `numpy.can_cast` calls it safe; those on the
        device are not converted.
    precision, wait_for
        As for `gemm`.

    Returns
    -------
    pyopencl.array.Array, numpy.ndarray or NumPy scalar
        `out`; without one a NumPy array if both operands are, and for two vectors of NumPy a
        scalar.

    See Also
    --------
    gemm : alpha, beta, a bias and an activation.
    einsum : Any labelled dimensions.
    numpy.matmul : The rules for shapes.

    Examples
    --------
    >>> import numpy as np
    >>> stack = np.ones((5, 2, 3), np.float32)
    >>> matmul(stack, np.ones(3, np.float32), queue=queue).shape
    (5, 2)
    >>> matmul(stack, stack[0].T, queue=queue, dtype="float64").dtype
    dtype('float64')
    """
    a, b, out = (as_array(name, array) for name, array in (("a", a), ("b", b), ("out", out)))
    queue = queue_for(queue, a, b, out)
    if dtype is not None:
        a, b, dtype = _converted(a, b, out, dtype)
    multiply = functools.partial(_multiply, queue, dtype, precision, wait_for)
    result = through_device(queue, {"a": a, "b": b}, out, multiply)[0]
    # As in NumPy, the product of two vectors on the host is a scalar.
    is_scalar = out is None and isinstance(result, np.ndarray) and not result.shape
    return result[()] if is_scalar else result


def _converted(a: Any, b: Any, out: Any, dtype: Any) -> tuple[Any, Any, np.dtype[Any]]:
    """The operands of a product whose result has an element type, and this type."""
    given = {one.dtype.name for one in (a, b)}
    as_they_are = result_dtypes(a.dtype.name) if len(given) == 1 and given <= {*DTYPES} else ()
    on_host = [isinstance(one, np.ndarray) for one in (a, b)]
    taken = list(as_they_are)
    for one in DTYPES:
        converts = (
            operand.dtype.name == one or (is_there and np.can_cast(operand.dtype, one, "safe"))
            for operand, is_there in zip((a, b), on_host, strict=True)
        )
        if one in result_dtypes(one) and all(converts):
            taken.append(one)
    name = dtype_name(dtype)
    if name not in taken:
        limit = "" if all(on_host) else ", as operands on the device are not converted"
        raise DtypeError(
            f"dtype is {shown(dtype)}; for a of {a.dtype} and b of {b.dtype} it can be "
            f"{' or '.join(dict.fromkeys(taken)) or 'none'}{limit}"
        )
    if out is not None and out.dtype.name != name:
        raise DtypeError(f"out is {out.dtype} and dtype is {name}; they must be the same")
    if name not in as_they_are:
        a, b = (
            one if one.dtype.name == name else owned(np.asarray(one, name), owner_of(one))
            for one in (a, b)
        )
    return a, b, np.dtype(name)


def _multiply(
    queue: cl.CommandQueue, dtype: Any, precision: PrecisionArgument, wait_for: Any, a: Any, b: Any,
    out: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Run one `gemm`, or one batch of all matrices of the stack; return the result."""
    stack, matrix = _result_shapes(tuple(a.shape), tuple(b.shape))
    if out is None:
        dtype = dtype or np.dtype(result_dtype(a.dtype.name))
        size_of("out", stack + matrix, dtype)
        out = new_array(queue, "out", stack + matrix, dtype)
    elif tuple(out.shape) != stack + matrix:
        raise ShapeError(f"out is {tuple(out.shape)}; the product of a and b is {stack + matrix}")
    if a.dtype != b.dtype:
        raise DtypeError(f"b is {b.dtype} and a is {a.dtype}; they must be the same")
    result = out
    if len(matrix) < 2:
        row, column = (np.newaxis if len(one.shape) == 1 else slice(None) for one in (a, b))
        out = out[(slice(None),) * len(stack) + (row, column)]
        a = a if row else a[np.newaxis, :]
        b = b if column else b[:, np.newaxis]
    if not stack:
        gemm(queue, a, b, out=out, precision=precision, wait_for=wait_for)
    elif 0 not in stack:
        a, b, out = (arrays.as_batch(array, stack) for array in (a, b, out))
        gemm_batched(queue, a, b, out=out, precision=precision, wait_for=wait_for)
    return result, None


def _result_shapes(
    a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the result's stack and of each product in it, by numpy.matmul's rules."""
    for name, shape in (("a", a), ("b", b)):
        if not shape:
            raise ShapeError(f"{name} is a scalar; matmul takes vectors and matrices")
    depth_of_b = b[-2:][0]
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
    return stack, a[-2:-1] + b[-2:][1:]
