"""Contract arrays of any dimensions, pair by pair, as stacks of matrices.

The labels of a pair are of four kinds: those of the stack (in both arrays and in the result), rows
and columns (in one array and in the result), and inner ones (in both arrays alone). Labels of a
kind are one dimension of a matrix if they follow one another in memory, in all arrays that have
them. Other rows and columns join the stack; other inner labels need a copy. Labels of one array
alone are summed first, on the device by products with ones.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.copy import Dimension, copy_launch
from ..codegen.launch import Schedule
from ..device.traits import traits_of
from ..errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from ..problem.matrix import check_writable, strides_and_offset
from ..problem.precision import resolve_precision, result_dtypes
from ..runtime.arguments import as_array, check_queue, checked_events, queue_for
from ..runtime.arrays import PackedMatrix, check_apart
from ..runtime.interchange import check_destination, like, owner_of
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import new_array, new_buffer, size_of, through_device, to_device
from ..runtime.queue_state import queue_state
from .batched import matmul
from .signatures import PrecisionArgument


@dataclass(frozen=True)
class Term:
    """An array, its name in messages, and a label for each of its dimensions."""

    name: str
    labels: str
    array: Any

    @property
    def on_host(self) -> bool:
        """Whether it is a NumPy array, whose copy on the device will be in C order."""
        return isinstance(self.array, np.ndarray)

    @property
    def extents(self) -> dict[str, int]:
        """The extents by label."""
        return dict(zip(self.labels, self.array.shape, strict=True))

    @property
    def steps(self) -> dict[str, int]:
        """The strides on the device, in bytes, by label."""
        strides, size = self.array.strides, self.array.dtype.itemsize
        if self.on_host:
            strides = [
                size * math.prod(self.array.shape[axis + 1 :]) for axis in range(len(self.labels))
            ]
        return dict(zip(self.labels, strides, strict=True))


def contract(
    terms: Sequence[Term], output: str, path: Iterable[Collection[int]], queue: Any, out: Any,
    precision: PrecisionArgument, wait_for: Any,
) -> Any:  # fmt: skip
    """Contract the terms in the order of `path`, as opt_einsum writes it; return the result."""
    dtype = terms[0].array.dtype
    for term in terms:
        if term.array.dtype != dtype:
            raise DtypeError(
                f"{term.name} is {term.array.dtype} and {terms[0].name} is {dtype}; they must be "
                "the same"
            )
    resolve_precision(precision, dtype.name)
    if queue is not None:
        check_queue(queue)
    if wait_for is not None:
        checked_events(wait_for)
    sizes = sizes_of((one.name, one.labels, tuple(one.array.shape)) for one in terms)
    shape = tuple(sizes.get(label, 1) for label in output)
    out = None if out is None else as_plain("out", out)
    result = _result_dtype(out, shape, dtype.name)
    size_of("out", shape, result)
    normal = [_normal(term) for term in terms]
    first = terms[0].array
    if len(normal) == 1 and normal[0].on_host and not isinstance(out, cl_array.Array):
        found = _on_host(normal[0], output, shape, out, result)
        return like(first, found) if out is None else owner_of(out)
    there = {term.name: term.array for term in terms if not term.on_host}
    queue = queue_for(queue, *there.values(), out)
    for name, array in there.items():
        strides_and_offset(name, array)
        if array.context != queue.context:
            raise ArgumentError(
                f"{name} belongs to another context than queue; it must be made in the same"
            )
        if isinstance(out, cl_array.Array):
            check_apart(name, array, out)

    def run(out: Any, **_: Any) -> tuple[Any, None]:
        whole = new_array(queue, "out", shape, result) if out is None else out
        check_writable(whole)
        pairs = _Pairs(queue, dtype, wait_for)
        pairs.contract(normal, path, _normal(Term("out", output, whole)), precision)
        return whole, None

    result = through_device(queue, there, out, run)[0]
    return like(first, result) if out is None and not there else result


def as_plain(name: str, array: Any) -> Any:
    """The argument `name` as an array on the device or of NumPy; raise if it is none, or packed."""
    array = as_array(name, array)
    if isinstance(array, PackedMatrix):
        raise DtypeError(f"{name} is a PackedMatrix; only products of two matrices take it")
    return array


def sizes_of(operands: Iterable[tuple[str, str, tuple[int, ...]]]) -> dict[str, int]:
    """The extent of each label; a 1 goes with any other. Raise `ShapeError` if they differ.

    `operands` are names, labels and shapes.
    """
    found: dict[str, tuple[int, str]] = {}
    for operand, labels, shape in operands:
        if len(labels) != len(shape):
            raise ShapeError(
                f"{operand} is {shape}; its subscripts {labels!r} are for {len(labels)} dimensions"
            )
        for label, extent in zip(labels, shape, strict=True):
            first = shape[labels.index(label)]
            if extent != first:
                raise ShapeError(
                    f"{operand} is {shape}; the dimensions {label!r} of a diagonal are {first} "
                    f"and {extent}, and must be equal"
                )
            known, name = found.get(label, (1, ""))
            if known == 1:
                found[label] = extent, operand
            elif extent not in (1, known):
                raise ShapeError(
                    f"{operand} is {shape}: {label!r} is {extent} there and {known} in {name}"
                )
    return {label: extent for label, (extent, _) in found.items()}


def _result_dtype(out: Any, shape: tuple[int, ...], dtype: str) -> np.dtype[Any]:
    """The element type of the result; raise unless `out` fits."""
    allowed = result_dtypes(dtype)
    if out is None:
        return np.dtype(allowed[0])
    if tuple(out.shape) != shape:
        raise ShapeError(f"out is {tuple(out.shape)}; the result is {shape}")
    if out.dtype.name not in allowed:
        raise DtypeError(
            f"out is {out.dtype}; the result of {dtype} operands is {' or '.join(allowed)}"
        )
    found: str = out.dtype.name
    return np.dtype(found)


def _strided(array: Any, shape: Iterable[int], strides: Iterable[int]) -> Any:
    """Another view of an array's elements, from the first one."""
    shape, strides = tuple(shape), tuple(strides)
    if (shape, strides) == (array.shape, array.strides):
        return array
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.as_strided(array, shape, strides)
    return cl_array.Array(
        array.queue or array.context, shape, array.dtype, data=array.base_data,
        offset=array.offset, strides=strides, events=array.events,
    )  # fmt: skip


def _normal(term: Term) -> Term:
    """The diagonals of a term as single dimensions, without extents of 1, in memory's order."""
    extents: dict[str, int] = {}
    steps: dict[str, int] = {}
    for label, extent, step in zip(term.labels, term.array.shape, term.array.strides, strict=True):
        if extent != 1:
            extents[label] = extent
            steps[label] = steps.get(label, 0) + step
    labels = "".join(sorted(steps, key=lambda label: -abs(steps[label])))
    order = [extents[label] for label in labels], [steps[label] for label in labels]
    return Term(term.name, labels, _strided(term.array, *order))


def _on_host(
    term: Term, output: str, shape: tuple[int, ...], out: Any, result: np.dtype[Any]
) -> Any:
    """Sum and permute a NumPy array."""
    term = _summed(term, output)
    kept = [label for label in output if label in term.labels]
    array = term.array.transpose([term.labels.index(label) for label in kept]).reshape(shape)
    if out is None:
        return np.array(array, result, order="C")
    check_destination(out)
    out[...] = array
    return out


def _summed(term: Term, kept: Collection[str]) -> Term:
    """Sum a NumPy array over other labels, in the type in which products of its type are summed."""
    lost = tuple(axis for axis, label in enumerate(term.labels) if label not in kept)
    if not lost:
        return term
    arithmetic = resolve_precision(None, term.array.dtype.name).arithmetic
    wide = np.promote_types(arithmetic, term.array.dtype)
    labels = "".join(label for label in term.labels if label in kept)
    return Term(term.name, labels, np.asarray(term.array.sum(axis=lost, dtype=wide)))


def _runs(
    labels: Iterable[str], extents: Mapping[str, int], *steps: Mapping[str, int]
) -> list[str]:
    """Divide labels into runs that are one dimension in each array, the outermost first."""
    runs: list[str] = []
    ordered = sorted(labels, key=lambda label: [-abs(one[label]) for one in steps])
    for label in ordered:
        if runs and all(one[runs[-1][-1]] == one[label] * extents[label] for one in steps):
            runs[-1] += label
        else:
            runs.append(label)
    return runs


@dataclass(frozen=True)
class _Pairs:
    """Contracts pairs of terms of one element type on a queue."""

    queue: cl.CommandQueue
    dtype: np.dtype[Any]
    wait_for: Any

    def contract(
        self,
        terms: list[Term],
        path: Iterable[Collection[int]],
        out: Term,
        precision: PrecisionArgument,
    ) -> None:
        """Contract all terms into `out`."""
        if len(terms) == 1:
            self._reduce(self._on_device(terms[0]), out.labels, out)
            return
        terms = list(terms)
        for step in path:
            chosen = [terms.pop(index) for index in sorted(step, reverse=True)][::-1]
            while len(chosen) > 1:
                a, b, *chosen = chosen
                kept = set(out.labels).union(*(term.labels for term in chosen + terms))
                a, b = self._reduce(a, kept.union(b.labels)), self._reduce(b, kept.union(a.labels))
                target = None if chosen or terms else out
                chosen.insert(0, self._multiply(a, b, kept, target, precision))
            terms += chosen

    def _reduce(self, term: Term, kept: Collection[str], out: Term | None = None) -> Term:
        """Sum a term over other labels. With `out`, store it even if there are none."""
        lost = [label for label in term.labels if label not in kept]
        if term.on_host and lost:
            total = _summed(term, kept)
            return Term(total.name, total.labels, total.array.astype(self._result))
        *runs, last = _runs(lost, term.extents, term.steps) or [""]
        if not last and out is None:
            return term
        if not last and out is not None and out.array.dtype == self.dtype:
            return self._copy(term, out)
        for run in runs:
            ones = self._ones(run, term)
            term = self._multiply(term, ones, set(term.labels).difference(run))
        return self._multiply(term, self._ones(last, term), kept, out)

    def _multiply(
        self, a: Term, b: Term, kept: Collection[str], out: Term | None = None,
        precision: PrecisionArgument = None,
    ) -> Term:  # fmt: skip
        """Multiply two terms whose labels are in both, or kept."""
        for term in (a, b):
            if term.array.dtype != self.dtype:
                raise UnsupportedError(
                    f"{term.name} is {term.array.dtype}, a sum or product of {self.dtype} that "
                    "cannot be multiplied further; one product or sum is possible"
                )
        extents = {**a.extents, **b.extents}
        inner = [label for label in a.labels if label in b.labels and label not in kept]
        inner = [label for label in inner if extents[label] == 0][:1] or inner
        # The first to be copied is on the host, or else the smaller.
        a, b = sorted((a, b), key=lambda one: (not one.on_host, one.array.size))
        runs = _runs(inner, extents, b.steps, a.steps)
        if len(runs) > 1:
            a = self._copied(a, runs)
            runs = _runs(inner, extents, b.steps, a.steps)
        if len(runs) > 1:
            b = self._copied(b, runs)
        depth = "".join(runs)
        a, b = self._on_device(a), self._on_device(b)
        rows = [label for label in a.labels if label not in b.labels]
        columns = [label for label in b.labels if label not in a.labels]
        stack = [label for label in a.labels if label in b.labels and label in kept]
        if out is None:
            out = self._new("an intermediate result", [*stack, *rows, *columns], extents)
        steps, largest = out.steps, []
        for labels, term in ((rows, a), (columns, b)):
            runs = _runs(labels, extents, steps, term.steps)
            largest.append(max(runs, key=lambda run: _extent(run, extents), default=""))
            stack += [label for run in runs if run != largest[-1] for label in run]
        stack.sort(key=lambda label: -abs(steps[label]))

        def matrices(term: Term, *sides: str) -> Any:
            dimensions = (*stack, *sides)
            shape = [_extent(run, extents) for run in dimensions]
            return _strided(term.array, shape, [term.steps.get(run[-1:], 0) for run in dimensions])

        row, column = largest
        matmul(
            matrices(a, row, depth), matrices(b, depth, column), queue=self.queue,
            out=matrices(out, row, column), precision=precision, wait_for=self.wait_for,
        )  # fmt: skip
        return out

    def _copied(self, term: Term, runs: Iterable[str]) -> Term:
        """A copy of a term whose last labels are those of the runs, in their order."""
        inner = "".join(runs)
        labels = [label for label in term.labels if label not in inner] + [*inner]
        if term.on_host:
            axes = [term.labels.index(label) for label in labels]
            return Term(term.name, "".join(labels), term.array.transpose(axes))
        copy = self._new(f"a copy of {term.name}", labels, term.extents, self.dtype)
        return self._copy(term, copy)

    def _copy(self, term: Term, out: Term) -> Term:
        """Copy a term on the device into one with the same labels, of the same type."""
        if 0 in term.array.shape:
            return out
        size, extents = self.dtype.itemsize, term.extents
        dimensions = tuple(
            Dimension(
                _extent(run, extents), term.steps[run[-1]] // size, out.steps[run[-1]] // size
            )
            for run in _runs(out.labels, extents, out.steps, term.steps)
        )
        state, key = queue_state(self.queue), ("copy", size, dimensions)
        sequence = state.prepared.get(key)
        if sequence is None:
            launch = copy_launch(dimensions, size, traits_of(self.queue.device))
            operands = {"source": term.name, "out": "out"}
            sequence = LaunchSequence(state, Schedule((launch,)), operands)
            state.keep(key, sequence)
        sequence.enqueue((term.array, out.array), wait_for=self.wait_for)
        return out

    @property
    def _result(self) -> np.dtype[Any]:
        return np.dtype(result_dtypes(self.dtype.name)[0])

    def _new(
        self, name: str, labels: Sequence[str], extents: Mapping[str, int], dtype: Any = None
    ) -> Term:
        """A new term in C order, by default of the type of results."""
        shape, dtype = tuple(extents[label] for label in labels), dtype or self._result
        size_of(name, shape, dtype)
        return Term(name, "".join(labels), new_array(self.queue, name, shape, dtype))

    def _ones(self, labels: str, like: Term) -> Term:
        """A term of ones with some of the labels of another, in the memory of a single one."""
        shape = tuple(like.extents[label] for label in labels)
        # Not uploaded by the queue, as that would wait for the steps before.
        one = new_buffer(self.queue.context, "ones", self.dtype.itemsize, np.ones(1, self.dtype))
        strides = (0,) * len(labels)
        array = cl_array.Array(self.queue, shape, self.dtype, data=one, strides=strides)
        return Term("ones", labels, array)

    def _on_device(self, term: Term) -> Term:
        return Term(term.name, term.labels, to_device(self.queue, term.name, term.array))


def _extent(run: str, extents: Mapping[str, int]) -> int:
    """The extent of a run, 1 for none."""
    return math.prod(extents[label] for label in run)
