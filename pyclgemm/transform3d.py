"""The multiresolution (MRA) transform: stacks of cubic tensors, each dimension times a matrix.

Codes of multiresolution analysis spend most of their time here (R. Harrison, G. Fann, T. Yanai,
Z. Gan and G. Beylkin, "Multiresolution quantum chemistry: Basic theory and initial applications",
Journal of Chemical Physics 121, 2004): a function is many small tensors of coefficients, and a
change of basis contracts every dimension of each with the same matrix.

A contraction is ``C(i, j) = sum over k of A(k, i) B(k, j)``, of a tensor seen as a K x K^2 matrix
A; C, which is K^2 x K, seen as a tensor again has its dimensions rotated. Three in a row contract
all three and bring them back in order. What the levels do is listed in
`pyclgemm.transform3d_choice.LEVELS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from .allocation import new_array
from .call_arguments import facts_of
from .device import traits_of
from .errors import ArgumentError
from .queue_state import queue_state
from .transfer import check_array, check_queue, host_copy, to_device
from .transform3d_choice import check_level, choose_transform
from .transform3d_plan import build_transform, describe_transform


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

    The call returns once the work is enqueued. It waits, on the device, for `wait_for` and for
    the events of every array that it reads or writes, and its own event becomes that of `out`.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the work runs.
    tensors : pyopencl.array.Array or numpy.ndarray
        (nfuncs, K, K, K), float32 or float64, K from 1 to 32. Any strides and offset.
    matrix : pyopencl.array.Array or numpy.ndarray
        (K, K), of the same element type. Any strides and offset.
    level : str, optional
        "L1" to "L6": the technique, as listed in `pyclgemm.transform3d_choice.LEVELS`. None takes
        the fastest known. "L4" uses matrix units for float64, where the device has them, and is
        "L3" elsewhere. "L6" takes contiguous tensors, and K^6 elements of memory.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Destination, of the shape and element type of `tensors`, any strides. None allocates one,
        in C order, with `allocator`. It must not share memory with `tensors` or `matrix`.
    allocator : callable, optional
        As for `pyopencl.array.empty`.
    wait_for : sequence of pyopencl.Event, optional
        Events to wait for first.
    return_event : bool
        Whether to return ``(out, event)``.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray
        `out`. Without one, a NumPy array if neither `tensors` nor `matrix` is on the device; such
        a call waits for the result.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If the arguments do not fit together, or there is no such level.
    UnsupportedError
        If K is above 32, the device has no float64, or a level needs more memory than it has.
    KernelBuildError
        If the device's compiler refuses a kernel.

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
    if not all(isinstance(array, cl_array.Array) for array in (tensors, matrix)) or not (
        out is None or isinstance(out, cl_array.Array)
    ):
        return _from_host(
            queue, tensors, matrix, out, return_event,
            level=level, allocator=allocator, wait_for=wait_for,
        )  # fmt: skip
    key = (
        "transform3d",
        level,
        facts_of(tensors),
        facts_of(matrix),
        None if out is None else facts_of(out),
    )
    kept = queue_state(queue).prepared
    sequence = kept.get(key)
    if sequence is None:
        transform = describe_transform(tensors, matrix, out)
        choice = choose_transform(transform.problem, traits_of(queue.device), level)
        sequence = build_transform(queue, transform, choice)
        kept.keep(key, sequence)
    if out is None:
        out = new_array(queue, "out", tensors.shape, tensors.dtype, allocator)
    event = sequence.enqueue(tensors, matrix, out, None, None, 1.0, 0.0, wait_for)
    return (out, event) if return_event else out


def _from_host(
    queue: cl.CommandQueue, tensors: Any, matrix: Any, out: Any, return_event: bool, **options: Any
) -> Any:
    """Run `transform3d` on copies of NumPy arrays, and bring back a NumPy result."""
    check_queue(queue)
    check_level(options["level"])
    for name, array in (("tensors", tensors), ("matrix", matrix), ("out", out)):
        if array is not None:
            check_array(name, array)
    describe_transform(tensors, matrix, out)
    on_host = out is None and isinstance(tensors, np.ndarray) and isinstance(matrix, np.ndarray)
    device_out = out
    if isinstance(out, np.ndarray):
        if not out.flags.writeable:
            raise ArgumentError("out is a read-only NumPy array; a writable one is wanted")
        device_out = None
    tensors, matrix = to_device(queue, "tensors", tensors), to_device(queue, "matrix", matrix)
    result, event = transform3d(
        queue, tensors, matrix, out=device_out, return_event=True, **options
    )
    if isinstance(out, np.ndarray):
        out[...] = host_copy(queue, result)
        result = out
    elif on_host:
        result = host_copy(queue, result)
    return (result, event) if return_event else result
