"""Transforms of tensors that are ready to run: checked, chosen and built once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from .allocation import new_array
from .device import traits_of
from .errors import DtypeError, ShapeError
from .launch_sequence import LaunchSequence
from .operands import matrix_of
from .prepare import choose, describe_product
from .queue_state import queue_state
from .schedule import make_schedule as make_gemm_schedule
from .schedule import oriented
from .signature import ArraySignature
from .tensors import TensorStack, check_tensor_dtype, check_writable, contiguous_stack, stack_of
from .transfer import check_queue
from .transform3d_choice import TransformChoice, choose_transform
from .transform3d_schedule import Transform, make_kronecker_schedule, make_schedule

#: The launches know the arrays by other names.
_NAMES = {"a": "tensors", "b": "matrix"}


class TransformPlan:
    """A transform that is ready to run: made by `plan_transform3d`, called with arrays.

    Attributes
    ----------
    choice : TransformChoice
        The kernels, and why these.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        sequence: LaunchSequence,
        choice: TransformChoice,
        signatures: dict[str, ArraySignature],
    ) -> None:
        self.choice = choice
        self._queue = queue
        self._sequence = sequence
        self._signatures = signatures

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
        """Run the transform.

        Parameters
        ----------
        tensors, matrix : pyopencl.array.Array
            Of the shapes, strides and element type that the plan was made for; at any offset
            that keeps the alignment.
        out : pyopencl.array.Array, optional
            The destination; None allocates one.
        wait_for : sequence of pyopencl.Event, optional
            Waited for before anything runs, beside the arrays' own events.
        return_event : bool
            Whether to return ``(out, event)``.
        add_event : bool
            As for `GemmPlan`: False makes no event on an in-order queue, which is faster.

        Raises
        ------
        ShapeError, DtypeError
            If an array differs from what the plan was made for.
        ArgumentError
            If `out` shares memory with an operand.
        """
        if out is None:
            out = new_array(self._queue, "out", tensors.shape, tensors.dtype)
        for name, array in (("tensors", tensors), ("matrix", matrix), ("out", out)):
            self._signatures[name].check(name, array)
        event = self._sequence.enqueue(
            tensors, matrix, out, None, None, 1.0, 0.0, wait_for, add_event or return_event
        )
        return (out, event) if return_event else out


def plan_transform3d(
    queue: cl.CommandQueue,
    tensors: Any,
    matrix: Any,
    *,
    level: str | None = None,
    out: Any = None,
) -> TransformPlan:
    """Choose, generate and build a transform once, to run it many times.

    Parameters are those of `transform3d`; arrays on the device lend their shapes, strides and
    element type.

    Returns
    -------
    TransformPlan
        To be called with arrays; its `choice` says which kernels run, and why.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError, UnsupportedError, KernelBuildError
        As `transform3d` does.

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
    transform = describe_transform(tensors, matrix, out)
    choice = choose_transform(transform.problem, traits_of(queue.device), level)
    signatures = {
        name: ArraySignature(
            array.shape, array.strides, array.dtype, alignment * array.dtype.itemsize
        )
        for name, array, alignment in (
            ("tensors", tensors, _alignment(transform.tensors, choice)),
            ("matrix", matrix, 1),
            ("out", tensors if out is None else out, _alignment(transform.out, choice)),
        )
    }
    if out is None:
        strides = tuple(tensors.dtype.itemsize * stride for stride in transform.out.strides)
        fresh = signatures["out"]
        signatures["out"] = ArraySignature(fresh.shape, strides, fresh.dtype, fresh.offset_step)
    return TransformPlan(queue, build_transform(queue, transform, choice), choice, signatures)


def describe_transform(tensors: Any, matrix: Any, out: Any) -> Transform:
    """Check the arrays of a call against each other and describe the transform.

    Parameters
    ----------
    tensors, matrix : pyopencl.array.Array or numpy.ndarray
        As for `transform3d`.
    out : pyopencl.array.Array, numpy.ndarray or None
        None where the result is yet to be allocated, in C order.

    Raises
    ------
    ShapeError, DtypeError, UnsupportedError
        If they do not fit together.
    """
    stack = stack_of("tensors", tensors)
    check_tensor_dtype("matrix", matrix.dtype)
    square = matrix_of("matrix", matrix)
    k = stack.extent
    if (square.rows, square.columns) != (k, k):
        raise ShapeError(
            f"matrix is {(square.rows, square.columns)} and tensors is {tuple(tensors.shape)}: "
            f"({k}, {k}) is wanted"
        )
    if out is None:
        result = contiguous_stack(stack.count, k)
    else:
        if tuple(out.shape) != tuple(tensors.shape):
            raise ShapeError(
                f"out is {tuple(out.shape)} and tensors is {tuple(tensors.shape)}; they must be "
                "the same"
            )
        result = stack_of("out", out)
        check_writable(result)
    for name, array in (("matrix", matrix), ("out", out)):
        if array is not None and array.dtype != tensors.dtype:
            raise DtypeError(
                f"{name} is {array.dtype} and tensors is {tensors.dtype}; they must be the same"
            )
    return Transform(stack, square, result, tensors.dtype.name)


def build_transform(
    queue: cl.CommandQueue, transform: Transform, choice: TransformChoice
) -> LaunchSequence:
    """Generate and build what `choice` says, for one queue."""
    traits, state = traits_of(queue.device), queue_state(queue)
    if not transform.tensors.count:
        return LaunchSequence(state, None, None, _NAMES)
    if choice.technique != "kronecker":
        return LaunchSequence(state, None, make_schedule(transform, choice, traits), _NAMES)
    dtype = transform.dtype
    size = transform.tensors.extent**3
    kronecker = TensorStack(size, transform.tensors.extent, transform.tensors.strides)
    product = describe_product(
        _Rows(transform.tensors, dtype), _Rows(kronecker, dtype), None, _Rows(transform.out, dtype),
        trans_a=False, trans_b=False, epilogue=None, precision=None, reads_product=True,
    )  # fmt: skip
    gemm_choice = choose(queue, product, None)
    product = oriented(product, gemm_choice.config, traits)
    gemm = make_gemm_schedule(product, gemm_choice.config, traits)
    schedule = make_kronecker_schedule(transform, product, gemm, traits)
    return LaunchSequence(state, product, schedule, _NAMES)


def _alignment(stack: TensorStack, choice: TransformChoice) -> int:
    """Elements of which the offset of an array must be a multiple for its kernels."""
    return stack.rows_alignment if choice.technique == "kronecker" else stack.layout.alignment


class _Rows:
    """What `describe_product` asks of an array: contiguous tensors, each a row of a matrix."""

    def __init__(self, stack: TensorStack, dtype: str) -> None:
        self.shape = (stack.count, stack.extent**3)
        self.dtype = np.dtype(dtype)
        self.strides = (self.shape[1] * self.dtype.itemsize, self.dtype.itemsize)
        self.offset = stack.offset * self.dtype.itemsize
