"""The launches of one product on one queue: sets arguments, waits, enqueues.

A repeated call costs little more than the enqueue itself, because kernel arguments are set
only when they differ from the call before. What is remembered of the call before is a property
of the kernels that it left; a call takes them away while it works, and a call that ends by an
exception does not put them back (`pyclgemm.runtime.queue_state` says why).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any

import numpy as np
import pyopencl as cl

from ..codegen.config import Config
from ..codegen.launch import Launch, Schedule
from ..errors import ArgumentError
from ..host.process import MAIN_THREAD, InRuntime, is_exiting
from ..problem.matrix import entries_overlap
from ..problem.product import Product
from .arrays import SHARED, MatrixSequence, sequences_overlap
from .build import build_kernel
from .launch_error import launch_error
from .memory import Workspaces, new_buffer
from .queue_state import QueueState

# --------------------------------------------------------------------------------------
# Enqueue a kernel, with an event or without.
#
# pyopencl makes an event for every launch. On NVIDIA's driver that costs the device 2 us (an empty
# kernel in a stream of launches on an H100: 3.9 us with an event, 1.9 us without), as much as a
# small product takes. Where nobody asks for the event, the OpenCL function is called directly, in
# the very library that pyopencl uses; its handles are pyopencl's (`int_ptr`). By way of ctypes that
# takes the host 2.5 us more, and a CPU device's events cost it less: there pyopencl makes one.
# --------------------------------------------------------------------------------------

_Sizes = Sequence[int]
_handle = operator.attrgetter("int_ptr")


class KernelLaunch:
    """Launches of one kernel with fixed sizes on one queue.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    kernel : pyopencl.Kernel
        Its arguments are set by the caller.
    global_size, local_size : tuple of int
        Work-items along each dimension, in all and of a group.
    """

    def __init__(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, global_size: _Sizes, local_size: _Sizes
    ) -> None:
        self._queue = queue
        self._kernel = kernel
        self._global_size = tuple(global_size)
        self._local_size = tuple(local_size)
        self._enqueue = _enqueue_function() if _events_cost(queue.device) else None
        sizes = ctypes.c_size_t * len(self._global_size)
        self._fixed_arguments = (
            queue.int_ptr, kernel.int_ptr, len(self._global_size), None,
            sizes(*self._global_size), sizes(*self._local_size),
        )  # fmt: skip

    def with_event(self, wait_for: Sequence[cl.Event] | None) -> cl.Event:
        """Enqueue the kernel after some events; gives its own."""
        return cl.enqueue_nd_range_kernel(
            self._queue, self._kernel, self._global_size, self._local_size, wait_for=wait_for
        )

    def without_event(self, wait_for: Sequence[cl.Event] | None) -> None:
        """Enqueue the kernel; only the queue's order says when it has run."""
        if self._enqueue is None:
            self.with_event(wait_for)
            return
        events = (ctypes.c_void_p * len(wait_for))(*map(_handle, wait_for)) if wait_for else None
        status = self._enqueue(*self._fixed_arguments, len(wait_for or ()), events, None)
        if status != cl.status_code.SUCCESS:
            # pyopencl tries again once garbage is collected, where memory lacks, and has the error.
            self.with_event(wait_for)


def _events_cost(device: cl.Device) -> bool:
    """Whether an event costs the device more than a call by way of ctypes costs the host."""
    return not device.type & cl.device_type.CPU


@functools.cache
def _enqueue_function() -> Any:
    """OpenCL's own function, as pyopencl's extension module is linked to it; None if hidden."""
    try:
        function = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_int
    handle, sizes = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    function.argtypes = [
        handle, handle, ctypes.c_uint, sizes, sizes, sizes, ctypes.c_uint, handle, handle,
    ]  # fmt: skip
    return function


# --------------------------------------------------------------------------------------

#: Of scalar kernel arguments by their C type: the NumPy type, and the format of its parts.
_SCALARS: dict[str, tuple[Any, str]] = {
    "int": (np.int32, "i"),
    "long": (np.int64, "q"),
    "float": (np.float32, "f"),
    "double": (np.float64, "d"),
    "float2": (np.complex64, "ff"),
    "double2": (np.complex128, "dd"),
}

#: Roles of the buffers of a product, in the order in which they are passed around; offsets of
#: scattered matrices and the workspaces of a schedule come behind them.
_ROLES = ("a", "b", "out", "c", "bias")

#: Kernels that wait for a call. More than one are only in use where several threads call at once.
_MOST_IDLE = 8


def kernel_scalar(name: str, value: Any, kind: str) -> Any:
    """A number as the NumPy scalar of a kernel's argument.

    Parameters
    ----------
    name : str
        What messages call it.
    value : number
        The number; infinity and NaN are taken.
    kind : str
        C type of the argument.

    Raises
    ------
    ArgumentError
        If the type cannot hold the number.

    Examples
    --------
    >>> kernel_scalar("alpha", 0.5, "float2")
    np.complex64(0.5+0j)
    >>> kernel_scalar("beta", 1e300, "float")
    Traceback (most recent call last):
    ...
    pyclgemm.errors.ArgumentError: beta is 1e+300, which float32 cannot hold
    """
    scalar, parts = _SCALARS[kind]
    values = (value,) if len(parts) == 1 else (value.real, value.imag)
    try:
        # Not by NumPy, whose answer to a number out of range depends on `numpy.errstate`. Without
        # "=" a number out of range would silently become infinity.
        content = struct.pack(f"={parts}", *values)
    except (OverflowError, struct.error):
        raise ArgumentError(
            f"{name} is {value!r}, which {np.dtype(scalar).name} cannot hold"
        ) from None
    return np.frombuffer(content, scalar)[0]


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
        #: Argument numbers, with the name of the value and its C type.
        self.numbers: list[tuple[int, str, str]] = []
        for number, argument in enumerate(launch.source.arguments):
            name = argument.name
            if name in launch.values:
                value = kernel_scalar(name, launch.values[name], argument.kind)
                self.kernel.set_arg(number, value)
            elif name in launch.buffers:
                self.buffers.append((number, roles.index(launch.buffers[name])))
            else:
                # What is no offset is alpha or beta.
                self.numbers.append((number, launch.offsets.get(name, name), argument.kind))


class _BoundKernels:
    """The kernels of a product, and what the last call left set on them."""

    def __init__(self, kernels: list[_BoundKernel]) -> None:
        self.kernels = kernels
        #: Offsets, alpha and beta.
        self.numbers: list[Any] = []
        #: For each scattered operand its offsets, and their buffer.
        self.offsets: dict[str, tuple[Any, cl.Buffer]] = {}

    def set_buffers(self, buffers: Sequence[Any]) -> None:
        """Set the pointers."""
        for bound in self.kernels:
            set_arg = bound.kernel.set_arg
            for number, place in bound.buffers:
                set_arg(number, buffers[place])

    def set_numbers(self, numbers: list[Any], values: Mapping[str, Any]) -> None:
        """Set offsets, alpha and beta."""
        scalars = [
            (bound.kernel, number, kernel_scalar(name, values[name], kind))
            for bound in self.kernels
            for number, name, kind in bound.numbers
        ]
        for kernel, number, scalar in scalars:
            kernel.set_arg(number, scalar)
        self.numbers = numbers


class LaunchSequence:
    """The launches of one product on one queue: sets arguments, waits, enqueues.

    Parameters
    ----------
    state : QueueState
        The queue and its workspaces.
    product : Product or None
        What the launches compute, if they were made for one.
    schedule : Schedule or None
        The launches; None where the result has no elements.
    names : mapping of str to str, optional
        What messages call the operands that the caller does not know as a and b.
    config : Config, optional
        What messages of a refused launch show.

    Raises
    ------
    KernelBuildError
        If the compiler refuses a kernel.
    """

    def __init__(
        self,
        state: QueueState,
        product: Product | None,
        schedule: Schedule | None,
        names: Mapping[str, str] | None = None,
        config: Config | None = None,
    ) -> None:
        self._queue = state.queue
        self._context = state.context
        self._pool = state.workspaces
        self._launches = schedule.launches if schedule else ()
        self._workspaces = tuple((schedule.workspaces if schedule else {}).items())
        self._scattered = tuple(
            role for role in ("a", "b", "out", "c") if getattr(product, role, None)
            and getattr(product, role).scattered
        )  # fmt: skip
        # On an in-order queue only the first launch has anything to wait for.
        self._chained = not state.in_order
        # The kernel's a is the caller's b, if they were swapped.
        self._swapped = product is not None and product.swapped
        self._names = names or {}
        self._config = config
        self._idle = deque([self._bind()])

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

        Raises
        ------
        ArgumentError
            If arrays share memory or lie in another context, or alpha or beta is out of range.
        AllocationError, LaunchError
            If the device has no memory, or refuses the launch. `out` is then undefined.
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
        if get_ident() == MAIN_THREAD:
            return self._enqueue(a, b, out, c, bias, alpha, beta, events, add_event)
        with InRuntime():
            return self._enqueue(a, b, out, c, bias, alpha, beta, events, add_event)

    def _enqueue(
        self, a: Any, b: Any, out: Any, c: Any, bias: Any, alpha: Any, beta: Any,
        events: list[cl.Event], add_event: bool,
    ) -> cl.Event | None:  # fmt: skip
        """Enqueue after these events, with kernels and workspaces that no other call uses."""
        try:
            bound = self._idle.pop()
        except IndexError:
            bound = self._bind()
        workspaces = self._pool.take() if self._workspaces else None
        try:
            self._set_arguments(bound, workspaces, a, b, out, c, bias, alpha, beta)
            if workspaces is not None and workspaces.last_use is not None:
                events.append(workspaces.last_use)
            event = self._launch(bound.kernels, events or None, add_event or self._chained)
            if event is not None:
                # It comes after all that the array waited for before: it replaces them.
                _set_events(out, event)
        except BaseException as error:
            self._end_early(out)
            if isinstance(error, cl.Error):
                raise self._typed(error) from error
            raise
        if workspaces is not None:
            workspaces.last_use = event if self._chained else None
            self._pool.give_back(workspaces)
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(bound)
        if is_exiting():
            self._queue.finish()
        return event

    def _bind(self) -> _BoundKernels:
        """Kernels of which no argument is set but those that never change."""
        roles = (*_ROLES, *(f"{role}_offsets" for role in self._scattered), *dict(self._workspaces))
        try:
            return _BoundKernels([_BoundKernel(self._queue, one, roles) for one in self._launches])
        except cl.Error as error:
            raise self._typed(error) from error

    def _typed(self, error: cl.Error) -> Exception:
        names = ", ".join(launch.source.name for launch in self._launches)
        return launch_error(error, self._queue, self._config, names)

    def _launch(
        self, kernels: Sequence[_BoundKernel], events: list[cl.Event] | None, with_event: bool
    ) -> cl.Event | None:
        """Enqueue the kernels; on an in-order queue only the last may need an event."""
        if not kernels:
            return cl.enqueue_marker(self._queue, wait_for=events) if with_event else None
        *first, last = kernels
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

    def _end_early(self, out: Any) -> None:
        """Have users of `out` wait for the launches of a call that failed."""
        with contextlib.suppress(cl.Error):
            _set_events(out, cl.enqueue_marker(self._queue, wait_for=None), replace=False)

    def _set_arguments(
        self, bound: _BoundKernels, workspaces: Workspaces | None, a: Any, b: Any, out: Any, c: Any,
        bias: Any, alpha: Any, beta: Any,
    ) -> None:  # fmt: skip
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
        if numbers != bound.numbers:
            arrays = {"a": a, "b": b, "out": out, "c": c, "bias": bias}
            values = {"alpha": alpha, "beta": beta} | {
                role: array.offset // array.dtype.itemsize
                for role, array in arrays.items()
                if array is not None
            }
            bound.set_numbers(numbers, values)
        for role in self._scattered:
            sequence = {"a": a, "b": b, "out": out, "c": c}[role]
            buffers.append(self._offset_buffer(bound, role, sequence))
        if workspaces is not None:
            buffers += [workspaces.buffer(name, size) for name, size in self._workspaces]
        bound.set_buffers(buffers)

    def _offset_buffer(
        self, bound: _BoundKernels, role: str, sequence: MatrixSequence
    ) -> cl.Buffer:
        """The offsets of scattered matrices, on the device; uploaded where they have changed."""
        held = bound.offsets.get(role)
        if held is None or not np.array_equal(held[0], sequence.offsets):
            # A buffer of their own: launches on their way may still read the one before.
            what = f"the offsets of {self._names.get(role, role)}"
            size = sequence.offsets.nbytes
            buffer = new_buffer(self._context, what, size, sequence.offsets)
            held = bound.offsets[role] = sequence.offsets, buffer
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


def _set_events(out: Any, event: cl.Event, *, replace: bool = True) -> None:
    """Have users of an array, or of the matrices of a sequence, wait for an event."""
    if out.__class__ is MatrixSequence:
        out.now_at(event, replace=replace)
    elif replace:
        out.events[:] = [event]
    else:
        out.events.append(event)


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
