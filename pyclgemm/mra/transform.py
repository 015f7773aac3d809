"""The multiresolution (MRA) transform: each dimension of cubic tensors times a matrix.

Codes of multiresolution analysis spend most of their time here (R. Harrison, G. Fann, T. Yanai,
Z. Gan and G. Beylkin, "Multiresolution quantum chemistry: Basic theory and initial applications",
Journal of Chemical Physics 121, 2004): a function is many small tensors of coefficients, and a
change of basis contracts every dimension of each with the same matrix.

A contraction is ``C(i, j) = sum over k of A(k, i) B(k, j)``, where A is a tensor viewed as a
K x K^2 matrix. C is K^2 x K; viewed as a tensor again, it has its dimensions rotated. Three
contractions contract all dimensions and restore their order. `pyclgemm.mra.choice.LEVELS` describes
the levels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import pyopencl as cl
import pyopencl.array as cl_array

from ..api.plan import ArraySignature, run_planned
from ..api.prepare import choose, facts_of
from ..codegen.launch import Schedule
from ..device.traits import DeviceTraits, traits_of
from ..families.registry import make_schedule as make_gemm_schedule, oriented
from ..host.process import OfThisProcess
from ..problem.matrix import MAX_ALIGNMENT, Matrix
from ..problem.precision import resolve_precision
from ..problem.product import make_product
from ..runtime.arguments import ArrayT, Operand, as_array, check_flag, check_queue
from ..runtime.arrays import View
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import new_array, through_device, to_device
from ..runtime.queue_state import queue_state
from .choice import TensorStack, Transform, TransformChoice, choose_transform, describe_transform
from .codegen import make_kronecker_schedule, make_schedule

#: The names of a call's arrays in launches, and in messages.
_OPERANDS = {name: name for name in ("tensors", "matrix", "out")}


@dataclass(frozen=True, eq=False, repr=False)
class TransformPlan(OfThisProcess):
    """A transform that is ready to run: made by `plan_transform3d`, called with arrays.

    Attributes
    ----------
    choice : TransformChoice
        The kernels, and the reason for them.

    See Also
    --------
    plan_transform3d : Makes it, with an example.
    """

    _instead: ClassVar[str] = "make it again with plan_transform3d(...)"

    choice: TransformChoice
    _queue: cl.CommandQueue
    _sequence: LaunchSequence
    _signatures: Mapping[str, ArraySignature]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={one.shape}" for name, one in self._signatures.items())
        dtype, choice = self._signatures["out"].dtype, self.choice
        return (
            f"TransformPlan({shapes}, dtype={dtype}, level={choice.level!r}, "
            f"technique={choice.technique!r})"
        )

    @functools.cached_property
    def _fits(self) -> Sequence[Callable[[Any], bool]]:
        return [self._signatures[name].fits for name in _OPERANDS]

    @overload
    def __call__(
        self, tensors: ArrayT, matrix: ArrayT, *, out: ArrayT | None = None,
        wait_for: Sequence[cl.Event] | None = None, return_event: Literal[False] = False,
        add_event: bool = True,
    ) -> ArrayT: ...  # fmt: skip
    @overload
    def __call__(
        self, tensors: ArrayT, matrix: ArrayT, *, out: ArrayT | None = None,
        wait_for: Sequence[cl.Event] | None = None, return_event: Literal[True],
        add_event: bool = True,
    ) -> tuple[ArrayT, cl.Event]: ...  # fmt: skip
    @overload
    def __call__(
        self, tensors: Operand, matrix: Operand, *, out: Operand | None = None,
        wait_for: Sequence[cl.Event] | None = None, return_event: bool = False,
        add_event: bool = True,
    ) -> Any: ...  # fmt: skip
    def __call__(
        self,
        tensors: Any,
        matrix: Any,
        *,
        out: Any = None,
        wait_for: Sequence[cl.Event] | None = None,
        return_event: bool = False,
        add_event: bool = True,
    ) -> Any:
        """Run the transform; errors are those of a `GemmPlan`.

        Parameters
        ----------
        tensors, matrix : pyopencl.array.Array or numpy.ndarray
            With the shapes, strides and element type that the plan was made for, and any offset
            of the same alignment. NumPy arrays are copied to the device in C order.
        out : pyopencl.array.Array or numpy.ndarray, optional
            The destination; None allocates one.
        wait_for, return_event, add_event
            As for `GemmPlan`.
        """
        if return_event.__class__ is not bool or add_event.__class__ is not bool:
            check_flag("return_event", return_event)
            check_flag("add_event", add_event)
        add_event = add_event or return_event
        fits = self._fits
        if fits[0](tensors) and fits[1](matrix) and (out is None or fits[2](out)):
            out, event = self._run(tensors, matrix, out, wait_for, add_event)
        else:
            run = functools.partial(self._run, wait_for=wait_for, add_event=add_event)
            operands = {"tensors": tensors, "matrix": matrix}
            out, event = run_planned(self._queue, self._signatures, operands, out, run)
        return (out, event) if return_event else out

    def _run(
        self, tensors: Any, matrix: Any, out: Any, wait_for: Any, add_event: bool
    ) -> tuple[Any, cl.Event | None]:
        """Run the transform of arrays on the device that fit the plan."""
        if out is None:
            out = new_array(self._queue, "out", tensors.shape, tensors.dtype)
        return out, self._sequence.enqueue((tensors, matrix, out), (), wait_for, add_event)


def plan_transform3d(
    queue: cl.CommandQueue,
    tensors: Operand,
    matrix: Operand,
    *,
    level: str | None = None,
    out: Operand | None = None,
) -> TransformPlan:
    """Choose, generate and build a transform once, to run it many times.

    Errors are those of `transform3d`.

    Parameters
    ----------
    queue, tensors, matrix, level, out
        As for `transform3d`. Only the shapes, strides and element type of the arrays matter.

    Returns
    -------
    TransformPlan
        Call it with arrays; its `choice` states which kernels run, and why.

    See Also
    --------
    transform3d : The same in one call.
    TransformPlan : What it returns.

    Examples
    --------
    >>> import numpy as np, pyopencl.array as cl_array
    >>> tensors = cl_array.to_device(queue, np.ones((5, 3, 3, 3), np.float32))
    >>> matrix = cl_array.to_device(queue, np.ones((3, 3), np.float32))
    >>> plan = plan_transform3d(queue, tensors, matrix)
    >>> float(plan(tensors, matrix).get().max()), plan.choice.level
    (27.0, 'L5')
    """
    check_queue(queue)
    tensors, matrix, out = (
        to_device(queue, name, array)
        for name, array in (("tensors", tensors), ("matrix", matrix), ("out", out))
    )
    transform = describe_transform(tensors, matrix, out)
    choice = choose_transform(transform, traits_of(queue.device), level)
    if out is None:
        strides = tuple(tensors.dtype.itemsize * stride for stride in transform.out.strides)
        out = View(tensors.shape, strides, tensors.dtype, offset=0)
    signatures = {
        "tensors": ArraySignature.of(tensors, _alignment(transform.tensors, choice)),
        "matrix": ArraySignature.of(matrix, 1),
        "out": ArraySignature.of(out, _alignment(transform.out, choice)),
    }
    return TransformPlan(choice, queue, build_transform(queue, transform, choice), signatures)


def build_transform(
    queue: cl.CommandQueue, transform: Transform, choice: TransformChoice
) -> LaunchSequence:
    """Generate and build the kernels of a choice for a queue."""
    traits = traits_of(queue.device)
    if not transform.tensors.count:
        schedule = Schedule(())
    elif choice.technique == "kronecker":
        schedule = _kronecker_schedule(queue, transform, traits)
    else:
        schedule = make_schedule(transform, choice, traits)
    return LaunchSequence(queue_state(queue), schedule, _OPERANDS)


def _kronecker_schedule(
    queue: cl.CommandQueue, transform: Transform, traits: DeviceTraits
) -> Schedule:
    """The launches of L6: one product with the Kronecker product of the matrices."""
    size, tensors, out = transform.tensors.extent**3, transform.tensors, transform.out
    # Contiguous tensors are the rows of a matrix.
    a, b, result = (
        Matrix(rows, size, size, 1, offset)
        for rows, offset in ((tensors.count, tensors.offset), (size, 0), (out.count, out.offset))
    )
    precision = resolve_precision(None, transform.dtype)
    product = make_product(a, b, result, None, dtype=transform.dtype, precision=precision)
    product, gemm_choice = choose(queue, product, None)
    product = oriented(product, gemm_choice.config, traits)
    gemm = make_gemm_schedule(product, gemm_choice.config, traits)
    return make_kronecker_schedule(transform, product, gemm, traits)


def _alignment(stack: TensorStack, choice: TransformChoice) -> int:
    """Elements of which the offset of an array must be a multiple."""
    if choice.technique == "kronecker":  # tensors are the rows of a matrix
        return math.gcd(MAX_ALIGNMENT, stack.offset, stack.strides[0])
    return stack.alignment


@overload
def transform3d(
    queue: cl.CommandQueue, tensors: ArrayT, matrix: ArrayT, *, level: str | None = None,
    out: ArrayT | None = None, allocator: Any = None, wait_for: Sequence[cl.Event] | None = None,
    return_event: Literal[False] = False,
) -> ArrayT: ...  # fmt: skip
@overload
def transform3d(
    queue: cl.CommandQueue, tensors: ArrayT, matrix: ArrayT, *, level: str | None = None,
    out: ArrayT | None = None, allocator: Any = None, wait_for: Sequence[cl.Event] | None = None,
    return_event: Literal[True],
) -> tuple[ArrayT, cl.Event]: ...  # fmt: skip
@overload
def transform3d(
    queue: cl.CommandQueue, tensors: Operand, matrix: Operand, *, level: str | None = None,
    out: Operand | None = None, allocator: Any = None, wait_for: Sequence[cl.Event] | None = None,
    return_event: bool = False,
) -> Any: ...  # fmt: skip
def transform3d(
    queue: cl.CommandQueue,
    tensors: Any,
    matrix: Any,
    *,
    level: str | None = None,
    out: Any = None,
    allocator: Any = None,
    wait_for: Sequence[cl.Event] | None = None,
    return_event: bool = False,
) -> Any:
    """Contract each of the three dimensions of every tensor with a matrix.

    ``out[n, x, y, z]`` is the sum over a, b and c of
    ``tensors[n, a, b, c] matrix[a, x] matrix[b, y] matrix[c, z]``.

    The call returns once the work is enqueued. On the device it waits for `wait_for` and for the
    events of all arrays that it reads or writes. Its own event is added to `out`.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the work runs.
    tensors : pyopencl.array.Array or numpy.ndarray
        (nfuncs, K, K, K), float32 or float64, K from 1 to 32. Any strides and offset.
    matrix : pyopencl.array.Array or numpy.ndarray
        (K, K), of the same element type. Any strides and offset.
    level : str, optional
        "L1" to "L6": the technique, as listed in `pyclgemm.mra.choice.LEVELS`. None chooses the
        fastest. "L4" uses matrix units for float64 if the device has them, and else equals "L3".
        "L6" needs contiguous tensors, and memory for K^6 elements.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Destination, of the shape and element type of `tensors`, with any strides. None allocates
        one in C order with `allocator`. It must not share memory with `tensors` or `matrix`.
    allocator, wait_for, return_event
        As for `gemm`.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray
        `out`. If it is None and neither `tensors` nor `matrix` is on the device, a NumPy array;
        such a call waits for the result.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError, KernelBuildError
        As for `gemm`; `ArgumentError` also for an unknown level.
    UnsupportedError
        If K is above 32, the device lacks float64, or a level needs more memory than it has.

    See Also
    --------
    plan_transform3d : Choose and build once, run many times.
    einsum : Any contraction.

    Examples
    --------
    >>> import numpy as np
    >>> tensors = np.arange(16.0, dtype=np.float32).reshape(2, 2, 2, 2)
    >>> swap = np.array([[0, 1], [1, 0]], np.float32)  # turns every dimension round
    >>> transform3d(queue, tensors, swap)[0]
    array([[[7., 6.],
            [5., 4.]],
    <BLANKLINE>
           [[3., 2.],
            [1., 0.]]], dtype=float32)
    """
    if return_event is not False:
        check_flag("return_event", return_event)
    arrays = (tensors, matrix, tensors if out is None else out)
    if not all(isinstance(array, cl_array.Array) for array in arrays):
        check_queue(queue)
        tensors, matrix, out = (
            as_array(name, array)
            for name, array in (("tensors", tensors), ("matrix", matrix), ("out", out))
        )
        describe_transform(tensors, matrix, out)
        result, event = through_device(
            queue,
            {"tensors": tensors, "matrix": matrix},
            out,
            functools.partial(
                transform3d, queue, level=level, allocator=allocator, wait_for=wait_for,
                return_event=True,
            ),
            allocator,
        )  # fmt: skip
        return (result, event) if return_event else result
    facts_of_out = None if out is None else facts_of(out)
    key = ("transform3d", level, facts_of(tensors), facts_of(matrix), facts_of_out)
    state = queue_state(queue)
    sequence = state.prepared.get(key)
    if sequence is None:
        transform = describe_transform(tensors, matrix, out)
        choice = choose_transform(transform, traits_of(queue.device), level)
        sequence = build_transform(queue, transform, choice)
        state.keep(key, sequence)
    if out is None:
        out = new_array(queue, "out", tensors.shape, tensors.dtype, allocator)
    event = sequence.enqueue((tensors, matrix, out), wait_for=wait_for)
    return (out, event) if return_event else out
