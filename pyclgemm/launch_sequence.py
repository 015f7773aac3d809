"""The launches of one product on one queue: sets arguments, waits, enqueues.

A repeated call costs little more than the enqueue itself, because kernel arguments are set
only when they differ from the call before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from .array_sequence import SHARED
from .build import build_kernel
from .enqueue import KernelLaunch
from .errors import ArgumentError
from .launch import Launch, Schedule
from .matrix_sequence import MatrixSequence, sequences_overlap
from .operands import entries_overlap
from .product import Product
from .workspace import QueueState

#: NumPy types of scalar kernel arguments by their C type.
_SCALARS: dict[str, Any] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "float2": np.complex64,
    "double2": np.complex128,
}


#: Roles of the buffers of a product, in the order in which they are passed around; offsets of
#: scattered matrices and the workspaces of a schedule come behind them.
_ROLES = ("a", "b", "out", "c", "bias")


class _BoundKernel:
    """A kernel and its arguments: those that never change, buffers, and varying numbers.

    Buffers are set at every call and not remembered: a prepared product would otherwise keep
    the memory of the arrays that it last saw.
    """

    def __init__(self, queue: cl.CommandQueue, launch: Launch, roles: Sequence[str]) -> None:
        self.kernel = build_kernel(queue.context, queue.device, launch.source)
        self.launch = KernelLaunch(queue, self.kernel, launch.global_size, launch.source.local_size)
        #: Argument numbers, with the place of the buffer among `roles`.
        self.buffers: list[tuple[int, int]] = []
        #: Argument numbers, with the name of the value and its NumPy type.
        self.numbers: list[tuple[int, str, Any]] = []
        for number, argument in enumerate(launch.source.arguments):
            name = argument.name
            if name in launch.values:
                self.kernel.set_arg(number, _SCALARS[argument.kind](launch.values[name]))
            elif name in launch.buffers:
                self.buffers.append((number, roles.index(launch.buffers[name])))
            else:
                # What is no offset is alpha or beta.
                role = launch.offsets.get(name, name)
                self.numbers.append((number, role, _SCALARS[argument.kind]))


class LaunchSequence:
    """The launches of one product on one queue: sets arguments, waits, enqueues.

    Parameters
    ----------
    state : QueueState
        The queue, its lock and its workspaces.
    product : Product or None
        What the launches compute, if they were made for one.
    schedule : Schedule or None
        The launches; None where the result has no elements.
    names : mapping of str to str, optional
        What messages call the operands that the caller does not know as a and b.
    """

    def __init__(
        self,
        state: QueueState,
        product: Product | None,
        schedule: Schedule | None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        queue = state.queue
        self._state = state
        self._queue = queue
        self._context = queue.context
        workspaces = schedule.workspaces if schedule else {}
        self._workspaces = tuple(workspaces.items())
        self._scattered = tuple(
            role for role in ("a", "b", "out", "c") if getattr(product, role, None)
            and getattr(product, role).scattered
        )  # fmt: skip
        #: For each scattered operand the offsets of the call before, and their buffer.
        self._offsets: dict[str, tuple[Any, cl.Buffer]] = {}
        offset_roles = [f"{role}_offsets" for role in self._scattered]
        self._kernels = [
            _BoundKernel(queue, launch, (*_ROLES, *offset_roles, *workspaces))
            for launch in (schedule.launches if schedule else ())
        ]
        # On an in-order queue only the first launch has anything to wait for.
        self._chained = not state.in_order
        # The kernel's a is the caller's b, if they were swapped.
        self._swapped = product is not None and product.swapped
        self._numbers: list[Any] = []
        self._names = names or {}

    def enqueue(
        self,
        a: Any,
        b: Any,
        out: Any,
        c: Any,
        bias: Any,
        alpha: Any,
        beta: Any,
        wait_for: Sequence[cl.Event] | None,
        add_event: bool = True,
    ) -> cl.Event | None:
        """Enqueue the product of these arrays; returns the event of the last launch.

        Arrays are as the caller named them: a swap is undone here. Without `add_event`, which
        asks for an in-order queue, there is no event, and `out` is left with those it had.
        """
        self._check("a", a, out)
        self._check("b", b, out)
        self._check("out", out, out)
        events = a.events + b.events + out.events
        if c is not None and c is not out:
            self._check("c", c, out)
            events += c.events
        if bias is not None:
            self._check("bias", bias, out)
            events += bias.events
        if wait_for is not None:
            events += wait_for
        state = self._state
        with state.lock:
            self._set_arguments(a, b, out, c, bias, alpha, beta)
            if self._workspaces and state.last_use is not None:
                events.append(state.last_use)
            event = self._launch(events or None, add_event or self._chained)
            if self._chained and self._workspaces:
                state.last_use = event
        if event is not None:
            # It comes after all that the array waited for before: it replaces them.
            if out.__class__ is MatrixSequence:
                out.now_at(event)
            else:
                out.events[:] = [event]
        return event

    def _launch(self, events: list[cl.Event] | None, with_event: bool) -> cl.Event | None:
        """Enqueue the kernels; on an in-order queue only the last may need an event."""
        if not self._kernels:
            return cl.enqueue_marker(self._queue, wait_for=events) if with_event else None
        *first, last = self._kernels
        for bound in first:
            if self._chained:
                events = [bound.launch.with_event(events)]
            else:
                bound.launch.without_event(events)
                events = None
        if with_event:
            return last.launch.with_event(events)
        last.launch.without_event(events)
        return None

    def _set_arguments(
        self, a: Any, b: Any, out: Any, c: Any, bias: Any, alpha: Any, beta: Any
    ) -> None:
        """Set the buffers, and where a number differs from the call before, the numbers."""
        if self._swapped:
            a, b = b, a
        # An operand without elements has no buffer; the kernel then reads nothing from it.
        data = out.base_data
        buffers = [a.base_data or data, b.base_data or data, data, None, None]
        numbers = [a.offset, b.offset, out.offset, alpha, beta]
        if c is not None:
            buffers[3] = c.base_data or data
            numbers.append(c.offset)
        if bias is not None:
            buffers[4] = bias.base_data or data
            numbers.append(bias.offset)
        for role in self._scattered:
            buffers.append(self._offset_buffer(role, {"a": a, "b": b, "out": out, "c": c}[role]))
        for name, size in self._workspaces:
            buffers.append(self._state.buffer(name, size))
        for kernel in self._kernels:
            set_arg = kernel.kernel.set_arg
            for number, place in kernel.buffers:
                set_arg(number, buffers[place])
        if numbers != self._numbers:
            arrays = {"a": a, "b": b, "out": out, "c": c, "bias": bias}
            values = {"alpha": alpha, "beta": beta} | {
                role: array.offset // array.dtype.itemsize
                for role, array in arrays.items()
                if array is not None
            }
            for kernel in self._kernels:
                for number, name, scalar in kernel.numbers:
                    kernel.kernel.set_arg(number, scalar(values[name]))
            self._numbers = numbers

    def _offset_buffer(self, role: str, sequence: MatrixSequence) -> cl.Buffer:
        """The offsets of scattered matrices, on the device; uploaded where they have changed."""
        held = self._offsets.get(role)
        if held is None or not np.array_equal(held[0], sequence.offsets):
            # A buffer of their own: launches on their way may still read the one before.
            flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
            buffer = cl.Buffer(self._context, flags, hostbuf=sequence.offsets)
            held = self._offsets[role] = sequence.offsets, buffer
        return held[1]

    def _check(self, name: str, array: Any, out: Any) -> None:
        """Raise unless an array is of the queue's context, and apart from what is written."""
        if array.context != self._context:
            shown = self._names.get(name, name)
            raise ArgumentError(
                f"{shown} belongs to another context than queue; it must be made in the same"
            )
        if (array is not out or name in ("a", "b")) and _overlaps(name, array, out):
            raise ArgumentError(SHARED.format(name=self._names.get(name, name)))


def _overlaps(name: str, array: Any, out: Any) -> bool:
    """Whether `array` shares elements with `out`, which is written."""
    if array.base_data is None or array.base_data != out.base_data:
        return False
    if MatrixSequence in (array.__class__, out.__class__):
        return sequences_overlap(array, out, in_place=name == "c")
    same_view = (
        array.offset == out.offset and array.shape == out.shape and array.strides == out.strides
    )
    return not (name == "c" and same_view) and entries_overlap(array, out)
