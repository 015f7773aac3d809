"""Autotuning in a program, as in NVIDIA's nvmath-python: plan, autotune, execute."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..device.traits import traits_of
from ..errors import ArgumentError, ConfigError, KernelBuildError, UnsupportedError, shown
from ..families.registry import problem_on
from ..host.files import check_writable
from ..measure.bench import Bench, Calls, Pace, rotated_sets
from ..measure.filled_queue import Clock, blocker_of
from ..measure.verify import rounding_of
from ..problem.product import Product
from ..runtime.arguments import check_flag
from ..runtime.arrays import MatrixSequence, PackedMatrix, View, byte_range
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import new_buffer, to_host
from ..runtime.queue_state import forget_choices
from ..selection.basis import covers
from ..selection.database import DATABASE, load_database, reload_database, update_file
from ..selection.features import features_of, features_of_record, record_for
from ..selection.model import known_of
from ..selection.saving import extended_file, user_file
from ..selection.select import Choice, alternatives, faster_arithmetic
from .prepare import build_sequence, check_supported

#: The environment variable for autotuning at the first call of each new shape.
VARIABLE = "PYCLGEMM_AUTOTUNE"
#: Default number of timed choices, and default seconds.
TOP, SECONDS = 5, 1.0
_MOST_SECONDS = 3600.0
#: More choices than any device has.
_MOST_CHOICES = 10**6
#: Building ends after the first part of the time; timing takes at least the second part.
_BUILDING, _TIMING = 0.5, 0.1
#: Another choice replaces the first one if its time is less than this part; the rest is noise.
_BETTER = 0.985
#: An upper bound of the derivatives of all activations (GELU's reaches 1.13).
_STEEPEST = 1.2


class Tuned(NamedTuple):
    """A choice and its launches; in the result of `autotune` the choice's seconds are measured."""

    choice: Choice
    sequence: LaunchSequence


def autotune(
    queue: cl.CommandQueue,
    product: Product,
    arrays: Sequence[Any],
    scalars: tuple[Any, Any],
    *,
    own: Choice | None = None,
    top: int = TOP,
    seconds: float = SECONDS,
    save: bool = True,
    clock: Clock | None = None,
) -> Tuned:
    """Time the choices of least predicted time for a product, and return the fastest.

    `arrays` are a, b, the result, whose content is restored, then c and the bias if they are used;
    `scalars` are alpha and beta. The caller's `own` choice is timed first. After half of the
    `seconds` no more of the `top` choices is built. The saved record serves products of equal
    `Features`. Errors are those of `GemmPlan.autotune`.
    """
    check_limits(top, seconds, save)
    clock = clock or Clock()
    begin = clock.now()
    for array in arrays:
        for event in array.events:
            event.wait()
    problem, traits = product.problem, traits_of(queue.device)
    path = user_file(traits)
    if save:  # before the time is spent
        check_writable(path, DATABASE)
    check_supported(problem.dtype, problem.precision, traits)
    if own is None:  # which may be a kernel for this arithmetic
        problem, _ = faster_arithmetic(problem, traits, load_database())
    trials = _Trials(queue, replace(product, problem=problem), arrays, scalars)
    top = min(int(top), _MOST_CHOICES)
    choices = alternatives(problem, traits, load_database(), top)
    if own is not None:
        others = [one for one in choices if one.config != own.config]
        choices = [own, *others[: top - 1]]
    built = trials.built(choices, clock, begin + _BUILDING * seconds)
    if 0 in (problem.m, problem.n, problem.k):
        return next(built)  # nothing to time
    with trials.restored() as restore:
        agreeing = trials.agreeing(built, restore)
        left = max(seconds - (clock.now() - begin), _TIMING * seconds)
        times = trials.times(agreeing, left)
    best = min(range(len(agreeing)), key=times.__getitem__)
    if times[best] > _BETTER * times[0]:
        best = 0
    reason = f"the fastest of {len(agreeing)} that were timed"
    measured = replace(agreeing[best].choice, seconds=times[best], reason=reason)
    name = problem.dtype, problem.precision.name
    features = features_of(problem_on(problem, traits))
    record = record_for(features, measured.config, problem.flops / times[best] / 1e9)
    # A record is useless if the product would not find it.
    if save and features_of_record(record, *name) == features:
        update_file(path, lambda: extended_file(path, traits, name, [record]))
        reload_database()
        forget_choices()
    return Tuned(measured, agreeing[best].sequence)


def is_tuned(queue: cl.CommandQueue, product: Product) -> bool:
    """Whether the user's database has a record of this very product on the device."""
    traits, database = traits_of(queue.device), load_database()
    check_supported(product.problem.dtype, product.problem.precision, traits)
    problem = problem_on(faster_arithmetic(product.problem, traits, database)[0], traits)
    records = known_of(problem, traits, database).measured_on(problem)
    return any(not file.built_in and covers(file, traits) for file, _ in records)


def check_limits(top: Any, seconds: Any, save: Any) -> None:
    """Raise unless `top` and `seconds` are within their bounds, and `save` is a bool."""
    check_flag("save", save)
    if not is_positive_integer(top):
        raise ArgumentError(f"top is {shown(top)}; an integer of at least 1 is wanted")
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _MOST_SECONDS:
        raise ArgumentError(
            f"seconds is {shown(seconds)}; a number above 0, up to {_MOST_SECONDS:g}, is wanted"
        )


def is_positive_integer(value: Any) -> bool:
    """Whether a value is a positive integer of Python or NumPy, but not True."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0


@dataclass(frozen=True, eq=False)
class _Trials:
    """Trial launches of choices for one product, on the arrays of a call."""

    queue: cl.CommandQueue
    product: Product
    arrays: Sequence[Any]
    scalars: tuple[Any, Any]

    def built(self, choices: Sequence[Choice], clock: Clock, until: float) -> Iterator[Tuned]:
        """Build the choices that the device's compiler accepts, the first one even if late."""
        is_first = True
        for choice in choices:
            if not is_first and clock.now() >= until:
                return
            with contextlib.suppress(KernelBuildError, ConfigError, UnsupportedError):
                sequence = build_sequence(self.queue, self.product, choice)
                is_first = False
                yield Tuned(choice, sequence)
        if is_first:
            raise UnsupportedError(f"none of {len(choices)} choices can be built for this product")

    @contextlib.contextmanager
    def restored(self) -> Iterator[Callable[[], None]]:
        """Restore the content of the result at the end of the block; yield a function that does."""
        out = self.arrays[2].base_data
        ranges = [byte_range(one) for one in self._matrices(self.arrays[2])]
        sizes = [high - low for low, high in ranges]
        kept = new_buffer(self.queue.context, "a copy of the result", sum(sizes))
        begins = itertools.accumulate(sizes[:-1], initial=0)
        parts = [
            (low, begin, size) for (low, _), begin, size in zip(ranges, begins, sizes, strict=True)
        ]
        for low, begin, size in parts:
            cl.enqueue_copy(
                self.queue, kept, out, byte_count=size, src_offset=low, dst_offset=begin
            )

        def restore() -> None:
            for low, begin, size in parts:
                cl.enqueue_copy(
                    self.queue, out, kept, byte_count=size, src_offset=begin, dst_offset=low
                )

        try:
            yield restore
        finally:
            restore()
            self.queue.finish()
            kept.release()

    def agreeing(self, built: Iterator[Tuned], restore: Callable[[], None]) -> list[Tuned]:
        """The first choice, and those whose results agree with its result."""
        agreeing: list[Tuned] = []
        first = allowed = np.empty(0)
        for one in built:
            restore()
            try:
                one.sequence.enqueue(self.arrays, self.scalars)
                self.queue.finish()
            except (cl.Error, ConfigError, MemoryError):
                if not agreeing:
                    raise
                continue
            result = self._content(self.arrays[2]).astype(complex)
            if not agreeing:
                first = result
            else:
                allowed = allowed if allowed.size else self._allowed(first)
                with np.errstate(all="ignore"):
                    if not (~np.isfinite(first) | (np.abs(first - result) <= allowed)).all():
                        continue
            agreeing.append(one)
        return agreeing

    def _allowed(self, result: NDArray[Any]) -> NDArray[Any]:
        """The largest difference of two results by rounding."""
        problem = self.product.problem
        rounding = rounding_of(problem.dtype, problem.k, problem.precision, problem.result_dtype)
        rounding = replace(rounding, storing=4 * (rounding.storing + rounding.sums))
        # k times the largest elements of A and B is an upper bound of |A| |B|.
        magnitude = abs(self.scalars[0]) * _STEEPEST * problem.k
        for operand in self.arrays[:2]:
            content = np.abs(self._content(operand).astype(complex))
            magnitude *= float(content.max(initial=0.0, where=np.isfinite(content)))
        with np.errstate(all="ignore"):
            return 2 * rounding.bound(result, np.asarray(magnitude))

    def _content(self, array: Any) -> NDArray[Any]:
        """The entries of an array, a packed matrix or a sequence of matrices, on the host."""
        if isinstance(array, PackedMatrix):
            return array.get()
        matrices = [to_host(self.queue, one) for one in self._matrices(array)]
        return np.stack(matrices) if isinstance(array, MatrixSequence) else matrices[0]

    def _matrices(self, array: Any) -> list[Any]:
        """The matrices of a sequence, which lie apart in its buffer; else the array itself."""
        if not isinstance(array, MatrixSequence):
            return [array]
        one = View.of_first(array)
        return [
            cl_array.Array(
                self.queue, one.shape, one.dtype, data=array.base_data, offset=int(offset),
                strides=one.strides,
            )
            for offset in array.byte_offsets
        ]  # fmt: skip

    def times(self, agreeing: Sequence[Tuned], seconds: float) -> list[float]:
        """The median time of each choice, on rotated sets of operands that exceed the caches."""
        size = sum(
            _memory_of(array)[1] for array in self.arrays[:4] if isinstance(array, cl_array.Array)
        )
        sets = [self.arrays]
        for _ in range(rotated_sets(size, self.queue.device) - 1):
            copies = {id(array): self._copy(array) for array in self.arrays}
            sets.append([copies[id(array)] for array in self.arrays])
        is_cpu = bool(self.queue.device.type & cl.device_type.CPU)
        blocker = blocker_of(self.queue)
        bench = Bench(Pace(burst=0.005, rest=1.0 if is_cpu else 0.5, rounds=7, seconds=seconds))
        for number, (_, sequence) in enumerate(agreeing):
            calls = [
                functools.partial(sequence.enqueue, one, self.scalars, add_event=False)
                for one in sets
            ]
            bench.add(Calls(str(number), calls, self.queue.finish, blocker=blocker))
        timings = bench.run()
        return [timings[str(number)].median for number in range(len(agreeing))]

    def _copy(self, array: Any) -> Any:
        """A copy of an array in new memory; constant operands and sequences are not copied."""
        if isinstance(array, (PackedMatrix, MatrixSequence)) or array.base_data is None:
            return array
        low, size = _memory_of(array)
        buffer = new_buffer(self.queue.context, "a copy of an array", size)
        cl.enqueue_copy(self.queue, buffer, array.base_data, byte_count=size, src_offset=low)
        return cl_array.Array(
            self.queue, array.shape, array.dtype, data=buffer, offset=array.offset - low,
            strides=array.strides,
        )  # fmt: skip


def _memory_of(array: Any) -> tuple[int, int]:
    """The aligned offset of an array in its buffer, and the bytes from there to its end."""
    low, high = byte_range(array)
    low -= low % 256  # a copy from here on has the alignment of the array
    return low, high - low
