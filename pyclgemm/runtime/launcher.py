"""Sequences of launches on one queue: sets their arguments, waits, enqueues.

A repeated call costs little more than the enqueueing itself, because a number is set as a kernel's
argument only where it differs from the call before. The kernels remember what is set on them. A
call takes them away while it works, and a call that ends by an exception does not put them back
(`pyclgemm.runtime.queue_state` says why).
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

from ..codegen.launch import Buffer, Known, LaunchArgument, MatrixOffsets, Offset, Scalar, Schedule
from ..codegen.source import Argument
from ..errors import ArgumentError
from ..host.process import MAIN_THREAD, InRuntime, is_exiting
from .arrays import SHARED, MatrixSequence, event_lists, overlaps
from .build import build_kernel
from .memory import LAUNCH_FAULTS, new_buffer, typed_error
from .queue_state import QueueState, Workspaces

# One kernel, with an event or without.
#
# pyopencl makes an event for every launch. On NVIDIA's driver that costs the device 2 us (an empty
# kernel in a stream of launches on an H100: 3.9 us with an event, 1.9 us without), as much as a
# small product takes. Where nobody asks for the event, the OpenCL function is called directly, in
# the very library that pyopencl uses; its handles are pyopencl's (`int_ptr`). By way of ctypes that
# takes the host 2.5 us more, and a CPU device's events cost it less: there pyopencl makes one.

_handle = operator.attrgetter("int_ptr")


class KernelLaunch:
    """Launches of one kernel, whose arguments the caller sets, with fixed sizes on one queue."""

    def __init__(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, global_size: tuple[int, ...],
        local_size: tuple[int, ...],
    ) -> None:  # fmt: skip
        self._fixed = queue, kernel, global_size, local_size
        self._enqueue = _enqueue_function() if _events_cost(queue.device) else None
        sizes = ctypes.c_size_t * len(global_size)
        self._fixed_arguments = (
            queue.int_ptr, kernel.int_ptr, len(global_size), None, sizes(*global_size),
            sizes(*local_size),
        )  # fmt: skip

    def with_event(self, wait_for: Sequence[cl.Event] | None) -> cl.Event:
        """Enqueue the kernel after some events; gives its own."""
        queue, kernel, global_size, local_size = self._fixed
        return cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size, wait_for=wait_for)

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


#: Of scalar kernel arguments by their C type: the NumPy type, and the format of its parts.
_SCALARS: dict[str, tuple[Any, str]] = {
    "int": (np.int32, "i"),
    "long": (np.int64, "q"),
    "float": (np.float32, "f"),
    "double": (np.float64, "d"),
    "float2": (np.complex64, "ff"),
    "double2": (np.complex128, "dd"),
}

#: Most sets of kernels that wait for a call. Several exist only if several threads call at once.
_MOST_IDLE = 8


def _kernel_scalar(argument: Argument, value: Any) -> Any:
    """A number as the NumPy scalar for an argument of a kernel."""
    scalar, parts = _SCALARS[argument.kind]
    values = (value,) if len(parts) == 1 else (value.real, value.imag)
    try:
        # Not by NumPy, whose answer to a number out of range depends on `numpy.errstate`. Without
        # "=" a number out of range would silently become infinity.
        content = struct.pack(f"={parts}", *values)
    except (OverflowError, struct.error):
        raise ArgumentError(
            f"{argument.name} is {value!r}, which {np.dtype(scalar).name} cannot hold"
        ) from None
    return np.frombuffer(content, scalar)[0]


class _BoundKernels:
    """The kernels of a sequence, and what the last call left set on them.

    Buffers are set at every call and not remembered: a prepared call would otherwise keep the
    memory of the arrays that it last saw. `buffers` and `numbers` are what a call gives, in order.
    """

    def __init__(
        self, queue: cl.CommandQueue, schedule: Schedule, buffers: Sequence[LaunchArgument],
        numbers: Sequence[LaunchArgument],
    ) -> None:  # fmt: skip
        self.launches: list[KernelLaunch] = []
        #: What sets a kernel's arguments, the argument's number, and the index of the buffer.
        self.buffers: list[tuple[Any, int, int]] = []
        #: Likewise, of the number, with the argument.
        self._numbers: list[tuple[Any, int, int, Argument]] = []
        #: Offsets in bytes, and scalars.
        self.numbers: list[Any] = []
        #: For each scattered operand its offsets, and their buffer.
        self.offsets: dict[str, tuple[Any, cl.Buffer]] = {}
        for launch in schedule.launches:
            source = launch.source
            kernel = build_kernel(queue.context, queue.device, source)
            self.launches.append(KernelLaunch(queue, kernel, launch.global_size, source.local_size))
            set_arg = kernel.set_arg
            pairs = zip(source.arguments, launch.arguments, strict=True)
            for number, (declared, given) in enumerate(pairs):
                if isinstance(given, Known):
                    set_arg(number, _kernel_scalar(declared, given.value))
                elif declared.is_pointer:
                    self.buffers.append((set_arg, number, buffers.index(given)))
                else:
                    self._numbers.append((set_arg, number, numbers.index(given), declared))

    def set_numbers(self, numbers: list[Any], values: Sequence[Any]) -> None:
        """Set `values`, and remember them by `numbers`; none is set if one is out of range."""
        converted = [
            (set_arg, number, _kernel_scalar(argument, values[index]))
            for set_arg, number, index, argument in self._numbers
        ]
        for set_arg, number, scalar in converted:
            set_arg(number, scalar)
        self.numbers = numbers


class LaunchSequence:
    """Launches in order on one queue, for any arrays of the layout that they were made for.

    `operands` are the arrays that a call gives, in order: what the launches call each, and what
    messages do. "out" is the result, and "c" may be the result itself, for an update in place.
    `scalars` are given behind them; `label` begins messages about a refused launch.
    """

    def __init__(
        self,
        state: QueueState,
        schedule: Schedule,
        operands: Mapping[str, str],
        scalars: Sequence[str] = (),
        label: str = "",
    ) -> None:
        self._queue = state.queue
        self._context = state.context
        self._pool = state.workspaces
        self._schedule = schedule
        self._workspaces = tuple(schedule.workspaces.items())
        roles, self._names = tuple(operands), tuple(operands.values())
        #: Contexts of the last call's arrays, which equal the queue's.
        self._contexts = [self._context] * len(roles)
        self._result = self._names.index("out")
        #: The index of the operand that may be the result itself.
        self._addend = self._names.index("c") if "c" in self._names else None
        given = {argument for launch in schedule.launches for argument in launch.arguments}
        #: Indices of the operands whose matrices are found by offsets.
        self._scattered = tuple(i for i, role in enumerate(roles) if MatrixOffsets(role) in given)
        # On an in-order queue only the first launch has anything to wait for.
        self._chained = not state.in_order
        self._label = label
        #: The buffers of a call, and then its numbers, in the order in which `enqueue` lists them.
        self._buffers: tuple[LaunchArgument, ...] = (
            *map(Buffer, roles),
            *(MatrixOffsets(roles[i]) for i in self._scattered),
            *map(Buffer, schedule.workspaces),
        )
        self._numbers: tuple[LaunchArgument, ...] = *map(Offset, roles), *map(Scalar, scalars)
        self._idle = deque([self._bind()], maxlen=_MOST_IDLE)

    def enqueue(
        self,
        arrays: Sequence[Any],
        scalars: Sequence[Any] = (),
        wait_for: Sequence[cl.Event] | None = None,
        add_event: bool = True,
    ) -> cl.Event | None:
        """Enqueue the launches for these arrays; returns the event of the last one.

        Without `add_event`, which asks for an in-order queue, there is no event, and the result is
        left with those it had. After an error of the device the result is undefined.
        """
        out = arrays[self._result]
        data = out.base_data
        contexts: list[cl.Context] = []
        buffers: list[Any] = []
        numbers: list[Any] = []
        events: list[cl.Event] = []
        for array in arrays:
            contexts.append(array.context)
            # An operand without elements has no buffer; the kernel then reads nothing from it.
            buffers.append(array.base_data or data)
            numbers.append(array.offset)
            events += array.events
        if contexts != self._contexts:
            for name, context in zip(self._names, contexts, strict=True):
                if context != self._context:
                    raise ArgumentError(
                        f"{name} belongs to another context than queue; it must be made in the same"
                    )
        # Lists find the same objects equal without a comparison, which here is a call of C++.
        self._contexts = contexts
        # The result itself, and in an update in place the addend.
        own = 2 if self._addend is not None and arrays[self._addend] is out else 1
        if buffers.count(data) > own:
            self._check_apart(arrays, out)
        numbers += scalars
        if wait_for is not None:
            events += wait_for
        if get_ident() == MAIN_THREAD:
            return self._enqueue(arrays, out, buffers, numbers, events, add_event)
        with InRuntime():
            return self._enqueue(arrays, out, buffers, numbers, events, add_event)

    def _check_apart(self, arrays: Sequence[Any], out: Any) -> None:
        """Raise `ArgumentError` if an operand shares elements with the result."""
        for name, array in zip(self._names, arrays, strict=True):
            if (
                name != "out"
                and not (array is out and name == "c")
                and array.base_data is not None
                and array.base_data == out.base_data
                and overlaps(array, out, in_place=name == "c")
            ):
                raise ArgumentError(SHARED.format(name=name))

    def _enqueue(
        self, arrays: Sequence[Any], out: Any, buffers: list[Any], numbers: list[Any],
        events: list[cl.Event], add_event: bool,
    ) -> cl.Event | None:  # fmt: skip
        """Enqueue after these events, with kernels and workspaces that no other call uses."""
        try:
            bound = self._idle.pop()
        except IndexError:
            bound = self._bind()
        try:
            workspaces = self._pool.pop() if self._workspaces else None
        except IndexError:
            workspaces = Workspaces(self._context)
        try:
            if numbers != bound.numbers:
                offsets = [array.offset // array.dtype.itemsize for array in arrays]
                bound.set_numbers(numbers, [*offsets, *numbers[len(arrays) :]])
            for index in self._scattered:
                buffers.append(self._offset_buffer(bound, self._names[index], arrays[index]))
            if workspaces is not None:
                for name, size in self._workspaces:
                    buffers.append(workspaces.buffer(name, size))
                if workspaces.last_use is not None:
                    events.append(workspaces.last_use)
            for set_arg, number, index in bound.buffers:
                set_arg(number, buffers[index])
            event = self._launch(bound.launches, events or None, add_event or self._chained)
            if event is not None:
                # It comes after all that the array waited for before: it replaces them.
                for awaited in event_lists(out):
                    awaited[:] = [event]
        except BaseException as error:
            # What was launched may still write the result: its users wait for that.
            with contextlib.suppress(cl.Error):
                marker = cl.enqueue_marker(self._queue, wait_for=None)
                for awaited in event_lists(out):
                    awaited.append(marker)
            if isinstance(error, cl.Error):
                raise self._typed(error) from error
            raise
        if workspaces is not None:
            workspaces.last_use = event if self._chained else None
            self._pool.append(workspaces)
        self._idle.append(bound)
        if is_exiting():
            self._queue.finish()
        return event

    def _bind(self) -> _BoundKernels:
        """Build the kernels, and set those arguments that never change."""
        try:
            return _BoundKernels(self._queue, self._schedule, self._buffers, self._numbers)
        except cl.Error as error:
            raise self._typed(error) from error

    def _typed(self, error: cl.Error) -> Exception:
        names = ", ".join(launch.source.name for launch in self._schedule.launches)
        device, label = self._queue.device, self._label
        return typed_error(error, LAUNCH_FAULTS, device, kernels=names, label=label)

    def _launch(
        self, launches: Sequence[KernelLaunch], events: list[cl.Event] | None, with_event: bool
    ) -> cl.Event | None:
        """Enqueue the kernels; on an in-order queue only the last may need an event."""
        if not launches:
            return cl.enqueue_marker(self._queue, wait_for=events) if with_event else None
        *first, last = launches
        for launch in first:
            if self._chained:
                events = [launch.with_event(events)]
            else:
                launch.without_event(events)
                events = None
        if with_event:
            return last.with_event(events)
        last.without_event(events)
        return None

    def _offset_buffer(
        self, bound: _BoundKernels, name: str, sequence: MatrixSequence
    ) -> cl.Buffer:
        """The offsets of scattered matrices, on the device; uploaded where they have changed."""
        held = bound.offsets.get(name)
        if held is None or not np.array_equal(held[0], sequence.offsets):
            # In a new buffer: launches on their way may still read the one before.
            what, size = f"the offsets of {name}", sequence.offsets.nbytes
            buffer = new_buffer(self._context, what, size, sequence.offsets)
            held = bound.offsets[name] = sequence.offsets, buffer
        return held[1]
