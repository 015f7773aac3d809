"""The functions that compute a product, or prepare or explain it: `gemm`, `plan`, `explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.config import Config
from ..errors import ArgumentError
from ..families.registry import as_config
from ..problem.matrix import check_dtype
from ..problem.problem import Epilogue
from ..problem.product import Product
from ..runtime.arrays import ArraySequence
from ..runtime.memory import new_array
from ..runtime.queue_state import queue_state
from ..runtime.transfer import host_copy, is_on_device
from ..selection.select import Choice
from .arguments import check_scalars, does_read_c, facts_of, on_device
from .plan import ArraySignature, GemmPlan
from .prepare import build_sequence, choose, describe_product, result_shape


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
    UnsupportedError
        If the device cannot run the product with this element type or precision.
    ConfigError
        If `config` is not valid on this device.
    KernelBuildError
        If the device's compiler refuses the kernel.
    LaunchError
        A `ConfigError`: if the device refuses to launch it. `out` is then undefined.
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
    bias = None if epilogue is None else epilogue.bias
    for array in (a, b, c, out, bias):
        if array.__class__ is not cl_array.Array and not is_on_device(array):
            return run_from_host(
                gemm, queue, a, b, c, out, epilogue, return_event,
                alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, precision=precision,
                config=config, allocator=allocator, wait_for=wait_for,
            )  # fmt: skip
    out, event = run_on_device(
        queue, a, b, c, out, epilogue, alpha, beta, trans_a, trans_b, precision, config,
        allocator, wait_for,
    )  # fmt: skip
    return (out, event) if return_event else out


def plan(
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
) -> GemmPlan:
    """Choose, generate and build a product once, to run it many times.

    Parameters are those of `gemm`, or of `gemm_batched` but for sequences. The arrays lend their
    shapes, strides and element type; ``plan(a, b, c, out=...)`` then takes any arrays that agree
    in these. alpha, beta and the epilogue are fixed.

    Returns
    -------
    GemmPlan
        To be called with arrays; its `choice` says what was chosen, and why.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError, UnsupportedError, ConfigError, KernelBuildError
        As `gemm` does.

    Examples
    --------
    >>> import numpy as np, pyopencl.array as cl_array
    >>> a = cl_array.to_device(queue, np.ones((2, 2), np.float32))
    >>> twice = plan(queue, a, a, alpha=2.0)
    >>> twice(a, a).get()
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    a, b, c, out, epilogue = on_device(queue, a, b, c, out, epilogue)
    alpha, beta = check_scalars(alpha, beta, a.dtype.name)
    reads_c = does_read_c(c, beta)
    product = describe_product(
        a, b, c, out, trans_a=trans_a, trans_b=trans_b, epilogue=epilogue,
        precision=precision, reads_product=alpha != 0, reads_c=reads_c,
        batched=_has_batch(a, b, c, out),
    )  # fmt: skip
    shape = result_shape(a, b, trans_a, trans_b) if _has_batch(a, b, c, out) else None
    choice = choose(queue, product, config)
    alignment = {
        role: getattr(product.problem, role).alignment for role in ("a", "b", "out", "c")
        if getattr(product.problem, role) is not None
    }  # fmt: skip
    if product.swapped:
        alignment["a"], alignment["b"] = alignment["b"], alignment["a"]
    if out is None:
        out = allocate_result(queue, product, allocator, shape)
    signatures = {
        name: ArraySignature(
            array.shape, array.strides, array.dtype, alignment[name] * array.dtype.itemsize
        )
        for name, array in (("a", a), ("b", b), ("out", out), ("c", c if reads_c else None))
        if array is not None
    }
    return GemmPlan(
        build_sequence(queue, product, choice),
        choice,
        product,
        queue,
        signatures,
        bias=epilogue.bias if epilogue is not None else None,
        alpha=alpha,
        beta=beta if reads_c else 0.0,
        allocate=lambda: allocate_result(queue, product, allocator, shape),
        takes_c=c is not None,
    )


def explain(
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
) -> Choice:
    """Say which kernel `gemm` would run with these arguments, and why. Nothing is built.

    Where an operand is three-dimensional, it is the kernel that `gemm_batched` would run.

    Returns
    -------
    Choice
        Path, configuration, level of the database, and reason; readable when printed.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError, UnsupportedError, ConfigError
        As `gemm` does.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.ones((8, 8), np.float32)
    >>> explain(queue, a, a).path in ("direct", "indirect", "cpu")
    True
    """
    a, b, c, out, epilogue = on_device(queue, a, b, c, out, epilogue)
    alpha, beta = check_scalars(alpha, beta, a.dtype.name)
    product = describe_product(
        a, b, c, out, trans_a=trans_a, trans_b=trans_b, epilogue=epilogue,
        precision=precision, reads_product=alpha != 0, reads_c=does_read_c(c, beta),
        batched=_has_batch(a, b, c, out),
    )  # fmt: skip
    return choose(queue, product, config)


# --------------------------------------------------------------------------------------


def run_on_device(
    queue: cl.CommandQueue, a: Any, b: Any, c: Any, out: Any, epilogue: Epilogue | None,
    alpha: Any, beta: Any, trans_a: Any, trans_b: Any, precision: Any, config: Any,
    allocator: Any, wait_for: Any, *, batched: bool = False, runs: bool = True,
) -> tuple[Any, cl.Event | None]:  # fmt: skip
    """One launch, of operands on the device; those of a batch are stacks or sequences.

    Without `runs` it is checked and built, and waits for a later call of its kind.
    """
    plain = alpha.__class__ is float and (beta is None or beta.__class__ is float)
    if not plain or a.dtype.kind == "i":
        alpha, beta = check_scalars(alpha, beta, a.dtype.name)
    reads_c = does_read_c(c, beta)
    if config is not None:
        config = as_config(config)
    bias = None if epilogue is None else epilogue.bias
    key = (
        batched, facts_of(a), facts_of(b), None if c is None else facts_of(c), reads_c,
        None if out is None else facts_of(out), None if bias is None else facts_of(bias),
        None if epilogue is None else epilogue.activation,
        trans_a, trans_b, alpha == 0, precision, config,
    )  # fmt: skip
    kept = queue_state(queue).prepared
    prepared = kept.get(key)
    if prepared is None:
        product = describe_product(
            a, b, c, out, reads_product=alpha != 0, reads_c=reads_c, trans_a=trans_a,
            trans_b=trans_b, epilogue=epilogue, precision=precision, batched=batched,
        )  # fmt: skip
        prepared = product, build_sequence(queue, product, choose(queue, product, config))
        kept.keep(key, prepared)
    if not runs:
        return None, None
    product, sequence = prepared
    if out is None:
        shape = result_shape(a, b, trans_a, trans_b) if batched else None
        out = allocate_result(queue, product, allocator, shape)
    arrays = [a, b, out]
    if reads_c:
        arrays.append(c)
    if bias is not None:
        arrays.append(bias)
    return out, sequence.enqueue(arrays, (alpha, beta), wait_for)


def allocate_result(
    queue: cl.CommandQueue, product: Product, allocator: Any, shape: tuple[int, ...] | None = None
) -> Any:
    """The array of a result, of that shape if it is a batch's."""
    problem = product.problem
    if shape is None:
        shape = (problem.n, problem.m) if product.swapped else (problem.m, problem.n)
    return new_array(queue, "out", shape, np.dtype(problem.result_dtype), allocator)


def _has_batch(*arrays: Any) -> bool:
    return any(len(array.shape) > 2 for array in arrays if array is not None)


def run_from_host(
    function: Callable[..., Any], queue: cl.CommandQueue, a: Any, b: Any, c: Any, out: Any,
    epilogue: Epilogue | None, return_event: bool, **options: Any,
) -> Any:  # fmt: skip
    """Run `gemm`, or what takes its arguments, on copies of NumPy arrays; bring the result back."""
    device_out = out
    if isinstance(out, np.ndarray):
        device_out = None
        if not out.flags.writeable:
            raise ArgumentError("out is a read-only NumPy array; a writable one is wanted")
    on_host = out is None and not any(
        isinstance(array, (cl_array.Array, ArraySequence)) for array in (a, b, c)
    )
    a, b, c, device_out, epilogue = on_device(queue, a, b, c, device_out, epilogue)
    if isinstance(out, np.ndarray):
        check_dtype("out", out.dtype)
        device_out = new_array(queue, "out", out.shape, out.dtype, options["allocator"])
    result, event = function(
        queue, a, b, c, out=device_out, epilogue=epilogue, return_event=True, **options
    )
    if isinstance(out, np.ndarray):
        out[...] = host_copy(queue, result)
        result = out
    elif on_host:
        result = host_copy(queue, result)
    return (result, event) if return_event else result
