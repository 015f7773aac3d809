"""Plans, which are products with built kernels that run many times; `explain`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.config import Config
from ..errors import ArgumentError, DtypeError, ShapeError, described
from ..host.process import OfThisProcess
from ..problem.product import Product
from ..runtime.arguments import ArrayT, Operand, RightOperand, as_array, check_flag
from ..runtime.arrays import PackedMatrix, View, byte_range
from ..runtime.memory import new_array, new_buffer, through_device, to_device
from ..selection.select import Choice
from .autotune import SECONDS, TOP, autotune
from .epilogue import Epilogue, checked_epilogue
from .prepare import (
    Call,
    build_sequence,
    choose,
    describe_product,
    result_shape,
)
from .signatures import PrecisionArgument, Transposed


@dataclass(frozen=True)
class ArraySignature:
    """The features of an array that a plan was made for."""

    kind: Any  # `pyopencl.array.Array` or `PackedMatrix`
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: Any
    offset_step: int  # bytes; the offset must be a multiple
    facts: str | None  # of a `PackedMatrix`
    example: weakref.ref[Any]  # the array; a plan does not keep its memory

    @classmethod
    def of(cls, array: Any, alignment: int) -> ArraySignature:
        """The signature of an array; offsets are multiples of `alignment` elements."""
        kind = PackedMatrix if isinstance(array, PackedMatrix) else cl_array.Array
        step = alignment * array.dtype.itemsize
        facts = getattr(array, "facts", None)
        return cls(kind, array.shape, array.strides, array.dtype, step, facts, weakref.ref(array))

    def array(self, queue: cl.CommandQueue, name: str) -> Any:
        """The example or, if it is gone, an array of random numbers with its features."""
        if (array := self.example()) is not None:
            return array
        if 0 in self.shape:  # there is no buffer of no bytes
            return cl_array.Array(queue, self.shape, self.dtype)
        low, high = byte_range(View(self.shape, self.strides, self.dtype, 0))
        content = np.random.default_rng(0).integers(-3, 4, (high - low) // self.dtype.itemsize)
        buffer = new_buffer(queue.context, name, high - low, content.astype(self.dtype))
        return cl_array.Array(
            queue, self.shape, self.dtype, data=buffer, offset=-low, strides=self.strides
        )

    def fits(self, array: Any) -> bool:
        """Whether an argument has the features that the plan expects, and is on the device."""
        fits: bool = isinstance(array, self.kind) and (
            array.shape == self.shape
            and array.strides == self.strides
            and array.dtype == self.dtype
            and not array.offset % self.offset_step
            if self.facts is None
            else array.facts == self.facts
        )
        return fits

    def check(self, name: str, array: Any, *, is_copy: bool) -> None:
        """Raise unless an array on the device, perhaps a copy of one of NumPy's, fits the plan."""
        if not isinstance(array, self.kind):
            raise DtypeError(
                f"{name} is {described(array)}; this plan was made for a {self.kind.__name__}"
            )
        if array.dtype != self.dtype:
            raise DtypeError(f"{name} is {array.dtype}; this plan was made for {self.dtype}")
        if array.shape != self.shape:
            raise ShapeError(f"{name} has shape {array.shape}; this plan was made for {self.shape}")
        if self.facts is not None and array.facts != self.facts:
            raise ArgumentError(f"{name} is {array}; this plan was made for {self.facts}")
        if self.facts is None and array.strides != self.strides:
            raise ShapeError(
                f"{name} has strides {array.strides}{', as NumPy arrays are copied' * is_copy}; "
                f"this plan was made for {self.strides}"
            )
        if array.offset % self.offset_step:
            raise ShapeError(
                f"{name} starts {array.offset} bytes into its buffer; this plan was made for "
                f"multiples of {self.offset_step}"
            )


def run_planned(
    queue: cl.CommandQueue,
    signatures: Mapping[str, ArraySignature],
    operands: Mapping[str, Any],
    out: Any,
    run: Callable[..., tuple[Any, cl.Event | None]],
    allocator: Any = None,
) -> tuple[Any, cl.Event | None]:
    """Run a plan through copies of arrays on the host; raise unless all arrays fit it."""
    operands = {name: as_array(name, array) for name, array in operands.items()}
    out = as_array("out", out)
    given = {**operands, "out": out}
    copied = {name for name, array in given.items() if isinstance(array, np.ndarray)}

    def checked(**arrays: Any) -> tuple[Any, cl.Event | None]:
        for name, array in arrays.items():
            if array is not None:
                signatures[name].check(name, array, is_copy=name in copied)
        return run(**arrays)

    # The plan's kernels depend on the alignment of copies.
    return through_device(queue, operands, out, checked, allocator, share=False)


class GemmPlan(OfThisProcess):
    """A product with built kernels, from `pyclgemm.plan`; it is called with arrays.

    Attributes
    ----------
    choice : Choice
        The kernel and why it was chosen.
    product : Product
        The problem and its matrices.

    See Also
    --------
    plan : Makes it, with an example.
    DenseLayer.plan : Makes it for a layer.
    gemm : One call for everything, with events of its own.
    """

    _instead = "make it again with plan(...), or layer.plan(...)"

    def __init__(
        self, queue: cl.CommandQueue, call: Call, product: Product, choice: Choice
    ) -> None:
        self.choice = choice
        self.product = product
        self.queue = queue
        # The operand b of calls without one.
        self.constant: PackedMatrix | None = None
        self._takes_c = call.c is not None
        self._bias = call.epilogue.bias
        self._scalars = (call.alpha, call.beta)
        problem = product.problem
        result_dtype = np.dtype(problem.result_dtype)
        self._new_result = functools.partial(
            new_array, queue, "out", result_shape(call), result_dtype, call.allocator
        )
        of_a, of_b = (problem.b, problem.a) if product.swapped else (problem.a, problem.b)
        layouts = {"a": of_a, "b": of_b, "out": problem.out, "c": problem.c}
        out = self._new_result() if call.out is None else call.out
        examples = {"a": call.a, "b": call.b, "out": out, "c": call.c}
        self._signatures = {
            name: ArraySignature.of(examples[name], layout.alignment)
            for name, layout in layouts.items()
            if layout is not None
        }
        fits = {name: one.fits for name, one in self._signatures.items()}
        self._fits = fits["a"], fits["b"], fits.get("c"), fits["out"]
        self._allocator = call.allocator
        self._sequence = build_sequence(queue, product, choice)

    def __repr__(self) -> str:
        problem = self.product.problem
        facts = [f"{name}={one.shape}" for name, one in self._signatures.items()]
        facts.append(f"types={problem.types!r}")
        if self._bias is not None or problem.activation:
            facts.append(f"epilogue={Epilogue(self._bias, problem.activation)}")
        facts.append(f"precision={problem.precision.name!r}, path={self.choice.path!r}")
        return f"GemmPlan({', '.join(facts)}, config={self.choice.config!r})"

    def autotune(self, top: int = TOP, seconds: float = SECONDS, *, save: bool = True) -> Choice:
        """Time the kernels of least predicted time, and use the fastest from now on.

        A configuration that the plan was made with is one of them. They run on the arrays that the
        plan was made for, or on similar ones if those are gone. Operands rotate among copies that
        exceed the caches, results are checked against each other, and the content of `out` is
        restored.

        Parameters
        ----------
        top : int
            The most kernels that are timed.
        seconds : float
            For the whole call; at most half of it for building kernels.
        save : bool
            Whether to save the fastest in the user's database, where products like this one find
            it. Operands without contiguous rows or columns are not saved.

        Returns
        -------
        Choice
            The plan's new choice; its `seconds` are measured.

        Raises
        ------
        ArgumentError, DatabaseError, FileError
            If an argument is out of range, or the user's database cannot be used or written.

        Examples
        --------
        >>> import numpy as np, pyopencl.array as cl_array
        >>> a = cl_array.to_device(queue, np.eye(64, dtype=np.float32))
        >>> plan = pyclgemm.plan(queue, a, a)
        >>> plan.autotune(top=2, seconds=0.1, save=False).seconds > 0
        True
        """
        if self.product.problem.packed and self._signatures["b"].example() is None:
            raise ArgumentError("b was packed, and that PackedMatrix is gone; keep it to autotune")
        arrays = [one.array(self.queue, name) for name, one in self._signatures.items()]
        if self._bias is not None:
            arrays.append(self._bias)
        own = self.choice if self.choice.level == "caller" else None
        self.choice, self._sequence = autotune(
            self.queue, self.product, arrays, self._scalars, own=own, top=top, seconds=seconds,
            save=save,
        )  # fmt: skip
        return self.choice

    @overload
    def __call__(
        self, a: ArrayT, b: ArrayT | PackedMatrix | None = None, c: ArrayT | None = None, *,
        out: ArrayT | None = None, wait_for: Sequence[cl.Event] | None = None,
        return_event: Literal[False] = False, add_event: bool = True,
    ) -> ArrayT: ...  # fmt: skip
    @overload
    def __call__(
        self, a: ArrayT, b: ArrayT | PackedMatrix | None = None, c: ArrayT | None = None, *,
        out: ArrayT | None = None, wait_for: Sequence[cl.Event] | None = None,
        return_event: Literal[True], add_event: bool = True,
    ) -> tuple[ArrayT, cl.Event]: ...  # fmt: skip
    @overload
    def __call__(
        self, a: Operand, b: RightOperand | None = None, c: Operand | None = None, *,
        out: Operand | None = None, wait_for: Sequence[cl.Event] | None = None,
        return_event: bool = False, add_event: bool = True,
    ) -> Any: ...  # fmt: skip
    def __call__(
        self,
        a: Any,
        b: Any = None,
        c: Any = None,
        *,
        out: Any = None,
        wait_for: Sequence[cl.Event] | None = None,
        return_event: bool = False,
        add_event: bool = True,
    ) -> Any:
        """Run the product.

        Parameters
        ----------
        a, b, c : pyopencl.array.Array or numpy.ndarray
            They have the shapes, strides and element type that the plan was made for, at any
            offset of equal alignment. NumPy arrays are copied to the device in C order. A plan of
            a `DenseLayer` has its weight, and takes no `b`.
        out : pyopencl.array.Array or numpy.ndarray, optional
            The destination; None allocates one.
        wait_for : sequence of pyopencl.Event, optional
            Events to wait for, besides those of the arrays.
        return_event : bool
            Whether to return ``(out, event)``.
        add_event : bool
            False makes no event, and `out` keeps its events: for a series of products whose users
            rely on the order of one in-order queue. It saves NVIDIA's devices 2 us a launch. On an
            out-of-order queue there is always an event.

        Returns
        -------
        pyopencl.array.Array or numpy.ndarray
            `out`, or as for `gemm` without one: a NumPy array if no operand is on the device.

        Raises
        ------
        ShapeError, DtypeError, ArgumentError
            If an array differs from what the plan was made for, or `out` shares memory with one.
        """
        if return_event.__class__ is not bool or add_event.__class__ is not bool:
            check_flag("return_event", return_event)
            check_flag("add_event", add_event)
        if b is None:
            b = self.constant
        fits_a, fits_b, fits_c, fits_out = self._fits
        if not (
            fits_a(a)
            and fits_b(b)
            and (c is None if fits_c is None else fits_c(c))
            and (out is None or fits_out(out))
        ):
            # NumPy arrays, an addend that is not read, or an error.
            again = functools.partial(
                self, wait_for=wait_for, return_event=True, add_event=add_event or return_event
            )
            operands = {"a": a, "b": b, "c": self._addend(c)}
            out, event = run_planned(
                self.queue, self._signatures, operands, out, again, self._allocator
            )
            return (out, event) if return_event else out
        if out is None:
            out = self._new_result()
        arrays = [a, b, out]
        if c is not None:
            arrays.append(c)
        if self._bias is not None:
            arrays.append(self._bias)
        event = self._sequence.enqueue(arrays, self._scalars, wait_for, add_event or return_event)
        return (out, event) if return_event else out

    def _addend(self, c: Any) -> Any:
        """The argument `c` if the plan reads it, or None; raise if it is missing or too many."""
        c = as_array("c", c)
        if c is None and "c" in self._signatures:
            raise ArgumentError("c is missing; this plan adds beta * c")
        if c is not None and not self._takes_c:
            raise ArgumentError("c is given; this plan was made without one")
        return c if "c" in self._signatures else None


def plan(
    queue: cl.CommandQueue,
    a: Operand,
    b: RightOperand,
    c: Operand | None = None,
    *,
    alpha: complex | float = 1.0,
    beta: complex | float | None = None,
    trans_a: Transposed = False,
    trans_b: Transposed = False,
    out: Operand | None = None,
    epilogue: Epilogue | None = None,
    precision: PrecisionArgument = None,
    config: Config | Mapping[str, Any] | None = None,
    allocator: Any = None,
) -> GemmPlan:
    """Choose, generate and build the kernels of a product once, to run it many times.

    The plan takes all arrays of the same shapes, strides and element type. alpha, beta and the
    epilogue are fixed. Errors are those of `gemm`.

    Parameters
    ----------
    queue, a, b, c, alpha, beta, trans_a, trans_b, out, epilogue, precision, config, allocator
        As for `gemm`, or for `gemm_batched` without sequences.

    Returns
    -------
    GemmPlan
        It is called with arrays; its `choice` tells the kernel and the reason.

    See Also
    --------
    gemm : Choose and run in one call.
    GemmPlan.autotune : Time the best choices.
    explain : The choice alone.

    Examples
    --------
    >>> import numpy as np, pyopencl.array as cl_array
    >>> a = cl_array.to_device(queue, np.ones((2, 2), np.float32))
    >>> twice = plan(queue, a, a, alpha=2.0)
    >>> twice(a, a).get()
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    call = Call(
        a, b, c, out, checked_epilogue(epilogue), alpha, beta, trans_a, trans_b, precision, config,
        allocator,
    )  # fmt: skip
    return GemmPlan(queue, *_chosen(queue, call))


def explain(
    queue: cl.CommandQueue,
    a: Operand,
    b: RightOperand,
    c: Operand | None = None,
    *,
    alpha: complex | float = 1.0,
    beta: complex | float | None = None,
    trans_a: Transposed = False,
    trans_b: Transposed = False,
    out: Operand | None = None,
    epilogue: Epilogue | None = None,
    precision: PrecisionArgument = None,
    config: Config | Mapping[str, Any] | None = None,
) -> Choice:
    """Say which kernel `gemm` would run with these arguments, and why, without building it.

    Errors are those of `gemm`.

    Parameters
    ----------
    queue, a, b, c, alpha, beta, trans_a, trans_b, out, epilogue, precision, config
        As for `gemm`. If an operand is three-dimensional, it is the kernel of `gemm_batched`.

    Returns
    -------
    Choice
        Path, configuration, level of the database, and reason; printable.

    See Also
    --------
    plan : The same choice, built and ready to run.
    Choice : What it returns.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.ones((8, 8), np.float32)
    >>> explain(queue, a, a).path in ("direct", "indirect", "cpu")
    True
    """
    call = Call(
        a, b, c, out, checked_epilogue(epilogue), alpha, beta, trans_a, trans_b, precision, config
    )
    return _chosen(queue, call)[2]


def _chosen(queue: cl.CommandQueue, call: Call) -> tuple[Call, Product, Choice]:
    """Choose the kernel of a call; return the call with all arrays on the device."""
    arrays = {"bias": call.epilogue.bias, "a": call.a, "b": call.b, "c": call.c, "out": call.out}
    arrays = {name: to_device(queue, name, array) for name, array in arrays.items()}
    batched = any(len(array.shape) > 2 for array in arrays.values() if array is not None)
    call = replace(call.with_arrays(**arrays), batched=batched)
    call.check()
    return call, *choose(queue, describe_product(call), call.config)
