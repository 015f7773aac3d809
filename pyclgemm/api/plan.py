"""Plans: a product whose kernels are chosen, generated and built, ready to run many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyopencl as cl

from ..errors import ArgumentError, DtypeError, ShapeError
from ..problem.product import Product
from ..runtime.launcher import LaunchSequence
from ..selection.select import Choice

# --------------------------------------------------------------------------------------
# What a plan expects of the arrays that it is called with.
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArraySignature:
    """What of an array a plan depends on.

    Attributes
    ----------
    shape, strides : tuple of int
        In elements and in bytes.
    dtype : numpy.dtype
        Element type.
    offset_step : int
        Bytes of which the offset must be a multiple.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    offset_step: int

    def check(self, name: str, array: Any) -> None:
        """Raise unless `array` is laid out as the plan expects."""
        if (
            array.shape == self.shape
            and array.strides == self.strides
            and array.dtype == self.dtype
            and not array.offset % self.offset_step
        ):
            return
        if array.dtype != self.dtype:
            raise DtypeError(f"{name} is {array.dtype}; this plan was made for {self.dtype}")
        for aspect in ("shape", "strides"):
            got, wanted = getattr(array, aspect), getattr(self, aspect)
            if got != wanted:
                raise ShapeError(f"{name} has {aspect} {got}; this plan was made for {wanted}")
        raise ShapeError(
            f"{name} starts {array.offset} bytes into its buffer; this plan was made for "
            f"multiples of {self.offset_step}"
        )


# --------------------------------------------------------------------------------------


class GemmPlan:
    """A product that is ready to run: made by `pyclgemm.plan`, called with arrays.

    Attributes
    ----------
    choice : Choice
        The kernel and why it was chosen.
    product : Product
        The problem, and where its matrices lie.

    Examples
    --------
    >>> import numpy as np, pyopencl.array as cl_array
    >>> a = cl_array.to_device(queue, np.eye(3, dtype=np.float32))
    >>> plan = pyclgemm.plan(queue, a, a)
    >>> out = plan(a, a)
    >>> plan(a, a, out=out) is out
    True
    """

    def __init__(
        self,
        sequence: LaunchSequence,
        choice: Choice,
        product: Product,
        queue: cl.CommandQueue,
        signatures: dict[str, ArraySignature],
        bias: Any,
        alpha: complex | float,
        beta: complex | float,
        allocate: Any,
        takes_c: bool,
    ) -> None:
        self.choice = choice
        self.product = product
        self.queue = queue
        self._sequence = sequence
        self._a = signatures["a"]
        self._b = signatures["b"]
        self._c = signatures.get("c")
        self._out = signatures["out"]
        self._bias = bias
        self._alpha = alpha
        self._beta = beta
        self._allocate = allocate
        self._takes_c = takes_c

    def __call__(
        self,
        a: Any,
        b: Any,
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
        a, b, c : pyopencl.array.Array
            Of the shapes, strides and element type that the plan was made for; at any
            offset that keeps the alignment.
        out : pyopencl.array.Array, optional
            The destination; None allocates one.
        wait_for : sequence of pyopencl.Event, optional
            Waited for before anything runs, beside the arrays' own events.
        return_event : bool
            Whether to return ``(out, event)``.
        add_event : bool
            False makes no event and leaves `out` with those that it had: for products in a
            row on one in-order queue, whose order is all that their users rely on. It spares
            NVIDIA's devices 2 us a launch. On an out-of-order queue there is always an event.

        Raises
        ------
        ShapeError, DtypeError
            If an array differs from what the plan was made for.
        ArgumentError
            If c is missing, or given where the plan was made without one, or if `out` shares
            memory with an operand.
        """
        if out is None:
            out = self._allocate()
        self._a.check("a", a)
        self._b.check("b", b)
        self._out.check("out", out)
        if self._c is not None:
            if c is None:
                raise ArgumentError("c is missing; this plan adds beta * c")
            self._c.check("c", c)
        elif c is not None and not self._takes_c:
            raise ArgumentError("c is given; this plan was made without one")
        arrays = [a, b, out]
        if self._c is not None:  # else beta is zero, and c is not read
            arrays.append(c)
        if self._bias is not None:
            arrays.append(self._bias)
        event = self._sequence.enqueue(
            arrays, (self._alpha, self._beta), wait_for, add_event or return_event
        )
        return (out, event) if return_event else out
