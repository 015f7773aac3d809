"""`gemm`: one product of two matrices; calls of one kind share prepared launches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
import pyopencl as cl

from ..codegen.config import Config
from ..errors import FileError
from ..host.caches import CacheWarning
from ..host.process import switch
from ..problem.product import Product
from ..runtime.arguments import (
    ON_DEVICE,
    ArrayT,
    Operand,
    RightOperand,
    check_flag,
    checked_events,
)
from ..runtime.arrays import PackedMatrix
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import new_array, through_device
from ..runtime.queue_state import queue_state
from .autotune import VARIABLE, autotune, is_tuned
from .epilogue import NO_EPILOGUE, Epilogue, checked_epilogue
from .prepare import (
    Call,
    build_sequence,
    choose,
    describe_product,
    result_shape,
)
from .signatures import PrecisionArgument, ProductOptions, Transposed

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
def gemm(
    queue: cl.CommandQueue, a: ArrayT, b: ArrayT | PackedMatrix, c: ArrayT | None = None, *,
    out: ArrayT | None = None, return_event: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> ArrayT: ...  # fmt: skip
@overload
def gemm(
    queue: cl.CommandQueue, a: ArrayT, b: ArrayT | PackedMatrix, c: ArrayT | None = None, *,
    out: ArrayT | None = None, return_event: Literal[True],
    **options: Unpack[ProductOptions],
) -> tuple[ArrayT, cl.Event]: ...  # fmt: skip
@overload
def gemm(
    queue: cl.CommandQueue, a: Operand, b: RightOperand, c: Operand | None = None, *,
    out: Operand | None = None, return_event: bool = False,
    **options: Unpack[ProductOptions],
) -> Any: ...  # fmt: skip
def gemm(
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
    """Compute ``out = epilogue(alpha op(A) op(B) + beta C)``.

    The call returns once the work is enqueued. The work waits for `wait_for` and for the events of
    all arrays of the call; its own event becomes the event of `out`. The first call of a kind
    chooses, generates and builds the kernel.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the work runs.
    a, b : pyopencl.array.Array, numpy.ndarray or other array on the host
        Operands: op(A) is (m, k), op(B) is (k, n), of any strides and offset. Both have one
        element type: float16, float32, float64, complex64, complex128 or int32, which wraps;
        bfloat16 (of ml_dtypes) and int8 if the device is a CPU or has matrix units for them. `b`
        may be a `PackedMatrix`.
        Wherever a NumPy array is taken, so is an array on the host that has ``__dlpack__`` or
        ``__array__``, such as a tensor of torch.
    c : pyopencl.array.Array or numpy.ndarray, optional
        Addend, (m, n), of the result's element type. If `beta` is zero it is not read, so that a
        NaN in it does not spread.
    alpha : number
        Factor of the product. If it is zero, A and B are not read, as in BLAS. For int8
        and int32 operands alpha and beta must be whole numbers, such as 1.0.
    beta : number, optional
        Factor of `c`; required with `c`. Without `c` it must be zero or None.
    trans_a, trans_b : bool or str
        "N" or False leaves the operand as it is, "T" or True transposes it, "C"
        transposes and conjugates it.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Destination, (m, n); `c` itself for an update in place. None allocates an array in C
        order with `allocator`. It must not share memory with another operand. The result, `c` and
        the bias have one element type: that of the operands, also float32 for float16 and
        bfloat16, and int32 for int8. Without `out`, `c` or else the bias decides; without all
        three, the result has the operands' type.
    epilogue : Epilogue, optional
        Bias and activation, applied as the result is stored. For int8 only "relu" is allowed,
        for int32 none.
    precision : str or jax.lax.DotAlgorithmPreset, optional
        Name of the arithmetic, such as "F32_F32_F32". None takes the default: the element type's
        own arithmetic, with float32 sums for float16 and bfloat16. The int32 sums of int8
        operands wrap around; this cannot happen with k below 2^17.
    config : XgemmConfig, CpuConfig, ..., or mapping, optional
        A kernel configuration in place of the database's. A mapping has the parameters by name,
        and the family as "path".
    allocator : callable, optional
        As for `pyopencl.array.empty`.
    wait_for : sequence of pyopencl.Event, optional
        Events to wait for first.
    return_event : bool
        Whether to return ``(out, event)``.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray
        `out`. Without it, a NumPy array if none of `a`, `b` and `c` is an array on the device (a
        `PackedMatrix` does not count); such a call waits for the result. If `a` is an array of
        another library, the result is one too, unless the library has no ``from_dlpack``.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If the arguments do not fit together.
    UnsupportedError, ConfigError
        If the device cannot run the product with this element type, precision or `config`.
    KernelBuildError, LaunchError
        If the device refuses the kernel. After a `LaunchError` the content of `out` is undefined.
    AllocationError
        If the device has no memory for the result, for copies or for scratch space.

    See Also
    --------
    gemm_batched : Many products in one launch.
    matmul : Shapes and names of NumPy.
    plan : Choose and build once, run many times.
    explain : Which kernel would run, and why.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> gemm(queue, a, a, trans_b=True)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    if return_event is not False:
        check_flag("return_event", return_event)
    epilogue = NO_EPILOGUE if epilogue is None else checked_epilogue(epilogue)
    call = Call(
        a, b, c, out, epilogue, alpha, beta, trans_a, trans_b, precision, config, allocator,
        wait_for,
    )  # fmt: skip
    out, event = run(queue, call)
    return (out, event) if return_event else out


class Prepared(NamedTuple):
    """The launches for calls of one kind, and the shape and type of a new result."""

    sequence: LaunchSequence
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_chosen: bool  # from databases: neither named by the caller nor timed


def prepare(queue: cl.CommandQueue, call: Call) -> Prepared:
    """Find or build the launches for calls like this one, after `Call.check`."""
    key, state = call.key(), queue_state(queue)
    prepared: Prepared | None = state.prepared.get(key)
    if prepared is not None:
        return prepared
    product = describe_product(call)
    shape, dtype = result_shape(call), np.dtype(product.problem.result_dtype)
    is_asked = call.config is None and switch(VARIABLE, default=False)
    tunes = is_asked and not is_tuned(queue, product)  # by an earlier process
    if tunes:
        out = call.out
        if out is None:
            out = new_array(queue, "out", shape, dtype, call.allocator)
        if call.wait_for:
            cl.wait_for_events(list(checked_events(call.wait_for)))
        sequence = _tuned(queue, product, call, out)
    else:
        sequence = build_sequence(queue, *choose(queue, product, call.config))
    prepared = Prepared(sequence, shape, dtype, call.config is None and not tunes)
    state.keep(key, prepared)
    return prepared


def _tuned(queue: cl.CommandQueue, product: Product, call: Call, out: Any) -> LaunchSequence:
    """The fastest launches, which are saved if the user's folder can be written."""
    given = queue, product, call.arrays(out), (call.alpha, call.beta)
    try:
        return autotune(*given).sequence
    except FileError as error:
        message = f"{VARIABLE} has every process find the fastest kernels anew: {error}"
        warnings.warn(message, CacheWarning, stacklevel=2)
        return autotune(*given, save=False).sequence


def run_on_device(queue: cl.CommandQueue, call: Call) -> tuple[Any, cl.Event | None]:
    """Run a product whose arrays are on the device; return the result and its event."""
    call.check()
    sequence, shape, dtype, _ = prepare(queue, call)
    out = call.out
    if out is None:
        out = new_array(queue, "out", shape, dtype, call.allocator)
    return out, sequence.enqueue(call.arrays(out), (call.alpha, call.beta), call.wait_for)


def run(
    queue: cl.CommandQueue,
    call: Call,
    launch: Callable[[cl.CommandQueue, Call], tuple[Any, cl.Event | None]] = run_on_device,
) -> tuple[Any, cl.Event | None]:
    """Run a product by `launch`, with copies of host arrays on the device."""
    a, b, c, out, bias = call.a, call.b, call.c, call.out, call.epilogue.bias
    kinds = {a.__class__, b.__class__, c.__class__, out.__class__, bias.__class__}
    if kinds <= ON_DEVICE and a is not None and b is not None:
        return launch(queue, call)
    operands = {"bias": bias, "a": a, "b": b, "c": c}
    return through_device(
        queue, operands, out, lambda **arrays: launch(queue, call.with_arrays(**arrays)),
        call.allocator,
    )  # fmt: skip
