"""Sequences of launches on one queue: set arguments, wait for events, enqueue.

A repeated call costs little more than the enqueueing itself: numbers are set as kernel arguments
only if they differ from those of the last call. Each call takes a set of kernels for itself, and
returns it unless it raises (`pyclgemm.runtime.queue_state` says why).
"""

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
from .arguments import checked_events
from .arrays import SHARED, MatrixSequence, event_lists, overlaps
from .build import build_kernel
from .memory import LAUNCH_FAULTS, new_buffer, typed_error
from .queue_state import QueueState, Workspaces

_handle = operator.attrgetter("int_ptr")


class KernelLaunch:
    """Launches of one kernel, whose arguments the caller sets, with fixed sizes on one queue.

    pyopencl makes an event for every launch. With NVIDIA's driver it costs the device 2 us (an
    empty kernel in a stream of launches on an H100 takes 3.9 us with an event, 1.9 us without). If
    no event is wanted, ctypes calls OpenCL in the library that pyopencl uses, with its handles
    (`int_ptr`). This costs the host 2.5 us, more than the event of a CPU device.
    """

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
        """Enqueue the kernel to run after some events; return its event."""
        queue, kernel, global_size, local_size = self._fixed
        return cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size, wait_for=wait_for)

    def without_event(self, wait_for: Sequence[cl.Event] | None) -> None:
        """Enqueue the kernel without an event."""
        if self._enqueue is None:
            self.with_event(wait_for)
            return
        events = (ctypes.c_void_p * len(wait_for))(*map(_handle, wait_for)) if wait_for else None
        status = self._enqueue(*self._fixed_arguments, len(wait_for or ()), events, None)
        if status != cl.status_code.SUCCESS:
            # pyopencl collects garbage if memory is short, tries again, and raises the error.
            self.with_event(wait_for)


def _events_cost(device: cl.Device) -> bool:
    """Whether an event costs the device more than a call through ctypes costs the host."""
    return not device.type & cl.device_type.CPU


@functools.cache
def _enqueue_function() -> Any:
    """The OpenCL function that pyopencl's extension module is linked to; None if it is hidden."""
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


#: The NumPy type and the `struct` format of scalar kernel arguments, by their C type.
_SCALARS: dict[str, tuple[Any, str]] = {
    "int": (np.int32, "i"),
    "uint": (np.int32, "i"),  # alpha and beta of int32, which may be negative: the bits agree
    "long": (np.int64, "q"),
    "float": (np.float32, "f"),
    "double": (np.float64, "d"),
    "float2": (np.complex64, "ff"),
    "double2": (np.complex128, "dd"),
}


def _kernel_scalar(argument: Argument, value: Any) -> Any:
    """Convert a number to the NumPy scalar for a kernel's argument."""
    scalar, parts = _SCALARS[argument.kind]
    values = (value,) if len(parts) == 1 else (value.real, value.imag)
    try:
        # Without "=", and in NumPy by `numpy.errstate`, a number out of range becomes infinity.
        content = struct.pack(f"={parts}", *values)
    except (OverflowError, struct.error):
        raise ArgumentError(
            f"{argument.name} is {value!r}, which {np.dtype(scalar).name} cannot hold"
        ) from None
    return np.frombuffer(content, scalar)[0]


class _BoundKernels:
    """A set of a sequence's kernels, with the arguments that their last call has set.

    `buffers` and `numbers` are the arguments of a call, in order. Buffers are set at every call and
    not remembered, as this would keep the memory of arrays alive.
    """

    def __init__(
        self, queue: cl.CommandQueue, schedule: Schedule, buffers: Sequence[LaunchArgument],
        numbers: Sequence[LaunchArgument],
    ) -> None:  # fmt: skip
        self.launches: list[KernelLaunch] = []
        #: The kernel's `set_arg`, the argument's number, and the index of the buffer.
        self.buffers: list[tuple[Any, int, int]] = []
        #: The same for numbers, with the declaration of the argument.
        self._numbers: list[tuple[Any, int, int, Argument]] = []
        #: Offsets in bytes, then scalars, of the last call.
        self.numbers: list[Any] = []
        #: The offsets of each scattered operand, and their buffer.
        self.offsets: dict[str, tuple[Any, cl.Buffer]] = {}
        for launch in schedule.launches:
            source = launch.source
            kernel = build_kernel(queue.context, queue.device, source)
            self.launches.append(KernelLaunch(queue, kernel, launch.global_size, source.local_size))
            set_arg = kernel.set_arg
            pairs = zip(source.arguments, launch.arguments, strict=True)
            for number, (declared, argument) in enumerate(pairs):
                if isinstance(argument, Known):
                    set_arg(number, _kernel_scalar(declared, argument.value))
                elif declared.is_pointer:
                    self.buffers.append((set_arg, number, buffers.index(argument)))
                else:
                    self._numbers.append((set_arg, number, numbers.index(argument), declared))

    def set_numbers(self, numbers: list[Any], values: Sequence[Any]) -> None:
        """Set `values` and remember `numbers`; set none if one is out of range."""
        converted = [
            (set_arg, number, _kernel_scalar(argument, values[index]))
            for set_arg, number, index, argument in self._numbers
        ]
        for set_arg, number, scalar in converted:
            set_arg(number, scalar)
        self.numbers = numbers


class LaunchSequence:
    """Launches in order on one queue, for arrays of a fixed layout.

    `operands` lists the arrays of a call in order: their names in launches, and in messages. "out"
    is the result; "c" may be the same array, for an update in place. `scalars` are the names of the
    numbers of a call; `label` begins messages about a refused launch.
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
        self._step_aside = state.step_aside
        self._schedule = schedule
        self._workspaces = tuple(schedule.workspaces.items())
        roles, self._names = tuple(operands), tuple(operands.values())
        #: Contexts of the last call's arrays, which equal the queue's.
        self._contexts = [self._context] * len(roles)
        self._result = self._names.index("out")
        self._addend = self._names.index("c") if "c" in self._names else None
        arguments = {argument for launch in schedule.launches for argument in launch.arguments}
        #: Indices of the operands with an array of matrix offsets.
        self._scattered = tuple(
            i for i, role in enumerate(roles) if MatrixOffsets(role) in arguments
        )
        #: Whether each launch waits for the one before; in-order queues do so by themselves.
        self._chained = not state.in_order
        self._label = label
        #: The buffers and the numbers of a call, in the order of `enqueue`.
        self._buffers: tuple[LaunchArgument, ...] = (
            *map(Buffer, roles),
            *(MatrixOffsets(roles[i]) for i in self._scattered),
            *map(Buffer, schedule.workspaces),
        )
        self._numbers: tuple[LaunchArgument, ...] = *map(Offset, roles), *map(Scalar, scalars)
        #: Idle sets of kernels. There are several only if several threads call.
        self._idle = deque([self._bind()], maxlen=8)

    def enqueue(
        self,
        arrays: Sequence[Any],
        scalars: Sequence[Any] = (),
        wait_for: Sequence[cl.Event] | None = None,
        add_event: bool = True,
    ) -> cl.Event | None:
        """Enqueue the launches for these arrays; return the event of the last one.

        Without `add_event` on an in-order queue there is no event, and the result keeps those it
        had. After an error of the device the result is undefined.
        """
        out = arrays[self._result]
        data = out.base_data
        contexts: list[cl.Context] = []
        buffers: list[Any] = []
        numbers: list[Any] = []
        events: list[cl.Event] = []
        for array in arrays:
            contexts.append(array.context)
            # An operand without elements has no buffer, and the kernel does not read it.
            buffers.append(array.base_data or data)
            numbers.append(array.offset)
            events += array.events
        if contexts != self._contexts:
            for name, context in zip(self._names, contexts, strict=True):
                if context != self._context:
                    raise ArgumentError(
                        f"{name} belongs to another context than queue; it must be made in the same"
                    )
        # Lists compare equal without a call of C++ if their objects are the same.
        self._contexts = contexts
        # The buffer of the result counts once, and in an update in place again for the addend.
        own = 2 if self._addend is not None and arrays[self._addend] is out else 1
        if buffers.count(data) > own:
            self._check_apart(arrays, out)
        numbers += scalars
        if wait_for is not None:
            events += checked_events(wait_for)
        others = self._other_queues(arrays)
        if get_ident() == MAIN_THREAD and not others:
            return self._enqueue(arrays, out, buffers, numbers, events, add_event)
        with InRuntime():
            for queue in others:
                queue.flush()
            event = self._enqueue(arrays, out, buffers, numbers, events, add_event)
            if others:
                self._queue.flush()
        return event

    def _other_queues(self, arrays: Sequence[Any]) -> list[cl.CommandQueue]:
        """The queues of these arrays other than this one.

        A command may wait for ever for an event of another queue that was not flushed (OpenCL's
        clFlush). An event does not keep its queue alive, but an array does. So its queue is flushed
        before a launch on another, and that one after it, as the launch's event is the array's now.
        """
        others: list[cl.CommandQueue] = []
        for array in arrays:
            queue = getattr(array, "queue", None)
            # `==` calls C++; `!=` would come to it by Python, which costs twice the time.
            if not (queue is None or queue == self._queue or queue in others):
                others.append(queue)
        return others

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
        """Enqueue after these events, with kernels and workspaces for this call alone."""
        if self._step_aside is not None:
            self._step_aside()
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
                # It comes after all earlier events of the array, so it replaces them.
                for awaited in event_lists(out):
                    awaited[:] = [event]
        except BaseException as error:
            # Users of the result wait for launches that may still write it.
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
        """Build a set of kernels, and set their constant arguments."""
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
        """The device buffer of scattered matrices' offsets; uploaded if they have changed."""
        held = bound.offsets.get(name)
        if held is None or not np.array_equal(held[0], sequence.offsets):
            # A new buffer, as running launches may still read the old one.
            what, size = f"the offsets of {name}", sequence.offsets.nbytes
            buffer = new_buffer(self._context, what, size, sequence.offsets)
            held = bound.offsets[name] = sequence.offsets, buffer
        return held[1]
