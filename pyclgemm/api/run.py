"""Runs a product: launches that are kept for calls of one kind, or built at the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..problem.matrix import check_dtype
from ..runtime.arrays import ArraySequence
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import new_array
from ..runtime.queue_state import queue_state
from ..runtime.transfer import DEVICE_TYPES, check_array, is_on_device, through_device
from .arguments import Call
from .autotune import autotune, is_asked_for
from .prepare import build_sequence, choose, describe_product, result_shape

#: Runs a product whose arrays are on the device; returns the result and its event.
Runner = Callable[[cl.CommandQueue, Call], tuple[Any, cl.Event | None]]


class Prepared(NamedTuple):
    """Launches that are built for calls of one kind, and the array that they write by default."""

    sequence: LaunchSequence
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def prepare(queue: cl.CommandQueue, call: Call) -> Prepared:
    """Find the launches for calls like this one, which is checked, or build them."""
    key = call.key()
    prepared: Prepared | None = queue_state(queue).prepared.get(key)
    return prepared or _prepare_new(queue, call, key)


def _prepare_new(queue: cl.CommandQueue, call: Call, key: tuple[Any, ...]) -> Prepared:
    """Build the launches, and keep them under a key."""
    product = describe_product(call)
    shape, dtype = result_shape(call), np.dtype(product.problem.result_dtype)
    if call.config is None and is_asked_for():
        out = call.out
        if out is None:
            out = new_array(queue, "out", shape, dtype, call.allocator)
        sequence = autotune(queue, product, call.arrays(out), (call.alpha, call.beta)).sequence
    else:
        sequence = build_sequence(queue, *choose(queue, product, call.config))
    prepared = Prepared(sequence, shape, dtype)
    queue_state(queue).prepared.keep(key, prepared)
    return prepared


def run_on_device(queue: cl.CommandQueue, call: Call) -> tuple[Any, cl.Event | None]:
    """Run a product whose arrays are on the device; returns the result and its event."""
    call = call.checked()
    sequence, shape, dtype = prepare(queue, call)
    out = call.out
    if out is None:
        out = new_array(queue, "out", shape, dtype, call.allocator)
    return out, sequence.enqueue(call.arrays(out), (call.alpha, call.beta), call.wait_for)


def run(
    queue: cl.CommandQueue, call: Call, launch: Runner = run_on_device
) -> tuple[Any, cl.Event | None]:
    """Run a product by `launch`, which takes arrays on the device."""
    a, b, c, out, epilogue = call[:5]
    bias = None if epilogue is None else epilogue.bias
    # The first question, which is quick, answers for nearly all calls.
    if {a.__class__, b.__class__, c.__class__, out.__class__, bias.__class__} <= DEVICE_TYPES:
        return launch(queue, call)
    if all(map(is_on_device, (a, b, c, out, bias))):
        return launch(queue, call)
    return _run_copies(queue, call, launch)


def _run_copies(queue: cl.CommandQueue, call: Call, launch: Runner) -> tuple[Any, cl.Event | None]:
    """Run a product on copies of the arrays that are on the host."""
    out = call.out

    def run_copies(**copies: Any) -> tuple[Any, cl.Event | None]:
        if isinstance(out, np.ndarray):
            check_dtype("out", out.dtype)
            copies["out"] = new_array(queue, "out", out.shape, out.dtype, call.allocator)
        else:
            check_array("out", out)
        return launch(queue, call.with_arrays(**copies))

    operands = {"bias": call.bias, "a": call.a, "b": call.b, "c": call.c}
    makes_host_array = not any(
        isinstance(array, (cl_array.Array, ArraySequence)) for array in (call.a, call.b, call.c)
    )
    return through_device(queue, operands, out, run_copies, makes_host_array=makes_host_array)
