"""Autotuning in the program: the choices that predict the least time are timed on real arrays.

The shape of it is that of NVIDIA's nvmath-python: plan, autotune, execute.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..device.traits import traits_of
from ..errors import ArgumentError, ConfigError, KernelBuildError, UnsupportedError, shown
from ..families.registry import problem_on
from ..measure.bench import Bench, Calls, Pace, rotated_sets
from ..measure.filled_queue import Clock, blocker_of
from ..measure.verify import rounding_of
from ..problem.problem import GemmProblem
from ..problem.product import Product
from ..runtime.arrays import MatrixSequence, PackedMatrix
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import new_buffer
from ..runtime.queue_state import forget_choices
from ..selection.database import load_database, reload_database
from ..selection.features import features_of, features_of_record, record_for
from ..selection.records import Record
from ..selection.saving import save_records, user_file
from ..selection.select import Choice, alternatives, faster_arithmetic
from .prepare import build_sequence, check_supported

#: Asks for autotuning at the first call of each new shape.
VARIABLE = "PYCLGEMM_AUTOTUNE"

#: Choices that are timed, and seconds for timing them, where nobody says.
TOP, SECONDS = 5, 1.0
_MOST_SECONDS = 3600.0

#: The parts of the time that building may take before timing begins, and timing at least.
_BUILDING, _TIMING = 0.5, 0.1

#: A choice this much faster than the first takes its place; less is noise.
_BETTER = 0.985

#: Derivatives of all activations are below this (that of GELU reaches 1.13).
_STEEPEST = 1.2


def is_asked_for() -> bool:
    """Whether the environment asks for autotuning at each first call."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ArgumentError(f"{VARIABLE} is {shown(value)}; 1, 0 or nothing is wanted")
    return value == "1"


class Tuned(NamedTuple):
    """What autotuning found."""

    choice: Choice  # the fastest; its `seconds` are measured
    sequence: LaunchSequence


def autotune(
    queue: cl.CommandQueue,
    product: Product,
    arrays: Sequence[Any],
    scalars: tuple[Any, Any],
    *,
    top: int = TOP,
    seconds: float = SECONDS,
    save: bool = True,
    clock: Clock | None = None,
) -> Tuned:
    """Time the choices that predict the least time for a product, and take the fastest.

    The queue is in order and profiles nothing. `arrays` are those of a call: a, b and the result,
    which has its content again in the end, then c and the bias if there are such; `scalars` are
    alpha and beta. Of `top` choices none but the first is built after half of the `seconds`. The
    record that is saved is found by products of the same `Features`; for an operand whose elements
    lie apart in both directions there is no such record. Errors are those of `GemmPlan.autotune`.
    """
    check_limits(top, seconds)
    clock = clock or Clock()
    begin = clock.now()
    for array in arrays:
        for event in getattr(array, "events", ()):
            event.wait()
    problem, traits = product.problem, traits_of(queue.device)
    check_supported(problem.dtype, problem.precision, traits)
    problem, _ = faster_arithmetic(problem, traits, load_database())
    product = replace(product, problem=problem)
    found = alternatives(problem, traits, load_database(), int(top))
    built = _built(queue, product, found, clock, begin + _BUILDING * seconds)
    if 0 in (problem.m, problem.n, problem.k):
        return Tuned(*next(built))  # there is nothing to time
    with _restored(queue, arrays[2]) as restore:
        right = _right(queue, product, arrays, scalars, built, restore)
        left = max(seconds - (clock.now() - begin), _TIMING * seconds)
        times = _times(queue, right, arrays, scalars, left)
    first = times[right[0][0]]
    best, sequence = min(right, key=lambda one: times[one[0]])
    if times[best] > _BETTER * first:
        best, sequence = right[0]
    reason = f"the fastest of {len(right)} that were timed"
    measured = replace(best, seconds=times[best], reason=reason)
    record = _record(problem_on(problem, traits), measured) if save else None
    if record is not None:
        name = problem.dtype, problem.precision.name
        save_records(user_file(traits), traits, name, [record])
        reload_database()
        forget_choices()
    return Tuned(measured, sequence)


def check_limits(top: Any, seconds: Any) -> None:
    """Raise `ArgumentError` unless both are numbers within bounds."""
    is_number = isinstance(top, (int, np.integer)) and not isinstance(top, bool)
    if not is_number or top < 1:
        raise ArgumentError(f"top is {shown(top)}; an integer of at least 1 is wanted")
    kinds = (int, float, np.integer, np.floating)
    is_number = isinstance(seconds, kinds) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _MOST_SECONDS:
        raise ArgumentError(
            f"seconds is {shown(seconds)}; a number above 0, up to {_MOST_SECONDS:g}, is wanted"
        )


def _record(problem: GemmProblem, measured: Choice) -> Record | None:
    """The record of what was measured; None if it would not be found for this very product."""
    assert measured.seconds is not None  # it was timed
    features = features_of(problem)
    gflops = problem.flops / measured.seconds / 1e9
    record = record_for(features, measured.config, gflops)
    found = features_of_record(record, problem.dtype, problem.precision.name)
    return record if found == features else None


def _built(
    queue: cl.CommandQueue, product: Product, found: Sequence[Choice], clock: Clock, until: float
) -> Iterator[tuple[Choice, LaunchSequence]]:
    """The launches of choices that the device's compiler takes, as long as there is time."""
    number = 0
    for choice in found:
        if number and clock.now() >= until:
            return
        with contextlib.suppress(KernelBuildError, ConfigError, UnsupportedError):
            sequence = build_sequence(queue, product, choice)
            number += 1
            yield choice, sequence
    if not number:
        raise UnsupportedError(f"none of {len(found)} choices can be built for this product")


def _right(
    queue: cl.CommandQueue,
    product: Product,
    arrays: Sequence[Any],
    scalars: tuple[Any, Any],
    built: Iterator[tuple[Choice, LaunchSequence]],
    restore: Callable[[], None],
) -> list[tuple[Choice, LaunchSequence]]:
    """The choices whose results agree with the first one's, and the first."""
    first: NDArray[Any] | None = None
    allowed: NDArray[Any] | None = None
    right = []
    for choice, sequence in built:
        restore()
        try:
            sequence.enqueue(arrays, scalars)
            queue.finish()
        except (cl.Error, ConfigError, MemoryError):
            if first is None:
                raise
            continue
        result = _content(queue, arrays[2]).astype(complex)
        if first is None:
            first = result
        else:
            if allowed is None:
                allowed = _allowed(product, arrays, scalars, queue, first)
            with np.errstate(all="ignore"):
                if not (~np.isfinite(first) | (np.abs(first - result) <= allowed)).all():
                    continue
        right.append((choice, sequence))
    return right


def _allowed(
    product: Product,
    arrays: Sequence[Any],
    scalars: tuple[Any, Any],
    queue: cl.CommandQueue,
    result: NDArray[Any],
) -> NDArray[Any]:
    """How far apart rounding may have two results.

    Of each, sums are within the bound of `pyclgemm.measure.verify`, with k times the largest
    elements of A and B in the place of the sums of their absolute products.
    """
    problem = product.problem
    rounding = rounding_of(problem.dtype, problem.k, problem.precision, problem.result_dtype)
    largest = math.prod(_largest(queue, array) for array in arrays[:2]) * problem.k
    sums = abs(scalars[0]) * _STEEPEST * rounding.sums * largest
    with np.errstate(all="ignore"):
        stored = 4 * (rounding.storing + rounding.sums) * np.abs(result)
        allowed: NDArray[Any] = 2 * (sums + stored + rounding.floor)
        return allowed


def _largest(queue: cl.CommandQueue, operand: Any) -> float:
    """The largest absolute value of an operand; of a packed one, the padding included."""
    content = np.abs(_content(queue, operand).astype(complex))
    finite = content[np.isfinite(content)]
    return float(finite.max()) if finite.size else 0.0


def _times(
    queue: cl.CommandQueue,
    right: list[tuple[Choice, LaunchSequence]],
    arrays: Sequence[Any],
    scalars: tuple[Any, Any],
    seconds: float,
) -> dict[Choice, float]:
    """The median time of each choice, operands rotated among sets that no cache holds."""
    size = sum(_span(array)[1] for array in arrays[:4] if isinstance(array, cl_array.Array))
    count = rotated_sets(size, queue.device)
    sets = [list(arrays), *(_copied(queue, arrays) for _ in range(count - 1))]
    is_cpu = bool(queue.device.type & cl.device_type.CPU)
    blocker = blocker_of(queue)
    bench = Bench(Pace(burst=0.005, rest=1.0 if is_cpu else 0.5, rounds=7, seconds=seconds))
    for number, (_, sequence) in enumerate(right):
        calls = [
            lambda one=one, sequence=sequence: sequence.enqueue(one, scalars, None, False)
            for one in sets
        ]
        bench.add(Calls(str(number), calls, queue.finish, blocker=blocker))
    timings = bench.run()
    return {choice: timings[str(number)].median for number, (choice, _) in enumerate(right)}


def _copied(queue: cl.CommandQueue, arrays: Sequence[Any]) -> list[Any]:
    """Arrays like those of a call, in memory of their own; what is constant stays."""
    copies: list[Any] = []
    for array in arrays:
        same = next((new for old, new in zip(arrays, copies, strict=False) if old is array), None)
        copies.append(same if same is not None else _copy(queue, array))
    return copies


def _copy(queue: cl.CommandQueue, array: Any) -> Any:
    if isinstance(array, (PackedMatrix, MatrixSequence)) or array.base_data is None:
        return array
    low, size = _span(array)
    buffer = new_buffer(queue.context, "a copy of an operand", size)
    cl.enqueue_copy(queue, buffer, array.base_data, byte_count=size, src_offset=low)
    return cl_array.Array(
        queue, array.shape, array.dtype, data=buffer, offset=array.offset - low,
        strides=array.strides,
    )  # fmt: skip


def _span(array: Any) -> tuple[int, int]:
    """Where an array begins in its buffer, or a little before, and how many bytes it spans."""
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = array.offset + sum(min(0, step) for step in reach)
    high = array.offset + sum(max(0, step) for step in reach) + array.dtype.itemsize
    aligned = low - low % _ALIGNMENT
    return aligned, high - aligned


#: Bytes to which the beginning of a copy is aligned as the original is.
_ALIGNMENT = 256


@contextlib.contextmanager
def _restored(queue: cl.CommandQueue, out: Any) -> Iterator[Callable[[], None]]:
    """Keep the content of the result; gives what restores it, as the end of the block does."""
    low, size = _span(out)
    kept = new_buffer(queue.context, "a copy of out", size)
    for event in out.events:
        event.wait()
    cl.enqueue_copy(queue, kept, out.base_data, byte_count=size, src_offset=low)

    def restore() -> None:
        cl.enqueue_copy(queue, out.base_data, kept, byte_count=size, dst_offset=low)

    try:
        yield restore
    finally:
        restore()
        queue.finish()
        kept.release()


def _content(queue: cl.CommandQueue, array: Any) -> NDArray[Any]:
    """The entries of an array of any strides, on the host; of a packed matrix as they lie."""
    if isinstance(array, PackedMatrix):
        rows, columns = array.padded_shape
        is_stored = array.nbytes == rows * columns * array.dtype.itemsize
        packed = np.empty((rows, columns), array.dtype if is_stored else array.precision.arithmetic)
        cl.enqueue_copy(queue, packed, array.base_data)
        return packed
    low, size = _span(array)
    content = np.empty(size, np.uint8)
    cl.enqueue_copy(queue, content, array.base_data, src_offset=low)
    return np.ndarray(array.shape, array.dtype, content, array.offset - low, array.strides)
