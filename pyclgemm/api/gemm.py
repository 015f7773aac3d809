"""`gemm`: one product of two matrices, by launches that are kept for calls of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from ..codegen.config import Config
from ..problem.problem import Epilogue
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import DEVICE_TYPES, new_array, through_device
from ..runtime.queue_state import queue_state
from .autotune import autotune, is_asked_for
from .prepare import NO_EPILOGUE, Call, build_sequence, choose, describe_product, result_shape


def gemm(
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
    """Compute ``out = epilogue(alpha op(A) op(B) + beta C)``.

    The call returns once the work is enqueued. It waits, on the device, for `wait_for` and
    for the events of every array that it reads or writes, and its own event becomes the
    event of `out`. The kernel is chosen, generated and built at the first call of its kind;
    later ones find it ready.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the work runs.
    a, b : pyopencl.array.Array or numpy.ndarray
        Operands: op(A) is (m, k), op(B) is (k, n). Any strides and offset. Both of one element
        type: float16, float32, float64, complex64 or complex128; bfloat16 (that of ml_dtypes)
        and int8 where the device has matrix units for them. `b` may be a `PackedMatrix`.
    c : pyopencl.array.Array or numpy.ndarray, optional
        Addend, (m, n), of the result's element type. Not read, so that a NaN in it does not
        spread, if `beta` is zero.
    alpha : number
        Factor of the product. If it is zero, A and B are not read, as in BLAS. With int8
        operands an integer, as `beta` is; 1.0 is one.
    beta : number, optional
        Factor of `c`; given with `c`, and only then, unless it is zero.
    trans_a, trans_b : bool or str
        "N" or False leaves the operand as it is, "T" or True transposes it, "C"
        transposes and conjugates it.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Destination, (m, n); `c` itself for an update in place. None allocates one, in C
        order, with `allocator`. It must not share memory with another operand. Its element
        type is the result's, and that of `c` and of the bias: the operands' own, or float32
        for operands of float16 or bfloat16; int32 for int8. Where there is no `out`, `c` or
        else the bias decides; where there is none of them, the result has the operands' type.
    epilogue : Epilogue, optional
        Bias and activation, applied as the result is stored. Integers have "relu" alone.
    precision : str, optional
        Name of the arithmetic, such as "F32_F32_F32". None takes the default of the
        element type: its own, and float32 sums for float16 and bfloat16. Sums of int8 are
        those of int32, which wrap around: k up to 2^17 cannot come so far.
    config : XgemmConfig, XgemmDirectConfig, CpuConfig or mapping, optional
        A kernel configuration that takes the place of the database's. A mapping has the
        parameters by name and "path", the family.
    allocator : callable, optional
        As for `pyopencl.array.empty`.
    wait_for : sequence of pyopencl.Event, optional
        Events to wait for first.
    return_event : bool
        Whether to return ``(out, event)``.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray
        `out`. Without one, a NumPy array if neither `a`, `b` nor `c` is on the device
        (a `PackedMatrix` is no array); such a call waits for the result.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If the arguments do not fit together.
    UnsupportedError, ConfigError
        If the device cannot run the product with this element type, precision or `config`.
    KernelBuildError, LaunchError
        If the device refuses the kernel. After a `LaunchError`, which is a `ConfigError`, `out` is
        undefined.
    AllocationError
        If the device has no memory for the result, for copies or for scratch space.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> gemm(queue, a, a, trans_b=True)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    call = Call(
        a, b, c, out, epilogue or NO_EPILOGUE, alpha, beta, trans_a, trans_b, precision, config,
        allocator, wait_for,
    )  # fmt: skip
    out, event = run(queue, call)
    return (out, event) if return_event else out


#: Runs a product whose arrays are on the device; returns the result and its event.
Runner = Callable[[cl.CommandQueue, Call], tuple[Any, cl.Event | None]]


class Prepared(NamedTuple):
    """Launches that are built for calls of one kind, and the array that they write by default."""

    sequence: LaunchSequence
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_chosen: bool  # by what databases say; else the caller named it, or it was timed


def prepare(queue: cl.CommandQueue, call: Call) -> Prepared:
    """Find the launches for calls like this one, once `Call.check` has run, or build them."""
    key, kept = call.key(), queue_state(queue).prepared
    prepared: Prepared | None = kept.get(key)
    if prepared is not None:
        return prepared
    product = describe_product(call)
    shape, dtype = result_shape(call), np.dtype(product.problem.result_dtype)
    is_tuned = call.config is None and is_asked_for()
    if is_tuned:
        out = call.out
        if out is None:
            out = new_array(queue, "out", shape, dtype, call.allocator)
        if call.wait_for:
            cl.wait_for_events(call.wait_for)
        sequence = autotune(queue, product, call.arrays(out), (call.alpha, call.beta)).sequence
    else:
        sequence = build_sequence(queue, *choose(queue, product, call.config))
    prepared = Prepared(sequence, shape, dtype, call.config is None and not is_tuned)
    kept.keep(key, prepared)
    return prepared


def run_on_device(queue: cl.CommandQueue, call: Call) -> tuple[Any, cl.Event | None]:
    """Run a product whose arrays are on the device; returns the result and its event."""
    call.check()
    sequence, shape, dtype, _ = prepare(queue, call)
    out = call.out
    if out is None:
        out = new_array(queue, "out", shape, dtype, call.allocator)
    return out, sequence.enqueue(call.arrays(out), (call.alpha, call.beta), call.wait_for)


def run(
    queue: cl.CommandQueue, call: Call, launch: Runner = run_on_device
) -> tuple[Any, cl.Event | None]:
    """Run a product by `launch`, on copies of the arrays that are on the host."""
    a, b, c, out, bias = call.a, call.b, call.c, call.out, call.epilogue.bias
    if {a.__class__, b.__class__, c.__class__, out.__class__, bias.__class__} <= DEVICE_TYPES:
        return launch(queue, call)
    operands = {"bias": bias, "a": a, "b": b, "c": c}
    return through_device(
        queue, operands, out, lambda **arrays: launch(queue, call.with_arrays(**arrays)),
        call.allocator,
    )  # fmt: skip
