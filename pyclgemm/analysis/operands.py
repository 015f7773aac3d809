"""Random operands of a product on a device, in more sets than a cache holds.

Products rotate among the sets, so that none finds its operands in a cache. All entries are
independent, so that a misplaced one changes the result.
"""

import functools
import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..api.plan import GemmPlan, plan
from ..codegen.config import Config
from ..device.traits import traits_of
from ..errors import UnsupportedError
from ..measure.bench import MOST_SETS, Calls, rotated_sets
from ..measure.filled_queue import Blocker
from ..measure.verify import MeasuredError, Part, measure_error, reference, rounding_of
from ..problem.matrix import Transposition
from ..problem.precision import Precision, is_complex, real_part_name, result_dtypes
from ..problem.shape import GemmShape

#: Distributions on which algorithms differ. Sums of "badly-scaled" numbers have few large terms;
#: in sums of "cancelling" numbers the second half nearly cancels the first.
DISTRIBUTIONS = ("normal", "uniform", "badly-scaled", "cancelling")

#: The most bytes that an `OperandStore` keeps; at most one part in `_KEPT_PART` of device memory.
_KEPT_BYTES = 12 << 30
_KEPT_PART = 4


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Random numbers whose real and imaginary parts are in [-1, 1), or any integers of a type."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    if kind.kind == "c":
        return uniform(rng, (*shape, 2), real_part_name(kind.name)).view(kind)[..., 0]
    numbers = rng.random(shape, dtype=np.float64 if kind.name == "float64" else np.float32)
    numbers *= 2
    numbers -= 1
    return numbers.astype(kind, copy=False)


def random_operands(
    rng: np.random.Generator, m: int, n: int, k: int, dtype: str, data: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random A (m, k) and B (k, n) of a real type; integers use the whole range of their type."""
    if data == "uniform":
        a, b = rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))
    else:
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if data == "badly-scaled":
        # Products of the smallest numbers are normal, except in float16.
        least = {"float16": -10, "int8": -6}.get(dtype, -40)
        a *= 2.0 ** rng.integers(least, 1, a.shape)
        b *= 2.0 ** rng.integers(least, 1, b.shape)
    elif data == "cancelling":
        half = k // 2
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = -b[:half] * (1 + 2.0**-6 * rng.standard_normal((half, n)))
    kind = np.dtype(dtype)
    if kind.kind == "i":
        most = np.iinfo(kind).max
        a, b = (np.rint(x * (most / np.abs(x).max())) for x in (a, b))
    return a.astype(kind), b.astype(kind)


class WrongError(Exception):
    """The result of a plan is wrong; the text says where."""


@dataclass(frozen=True, eq=False)
class Operands:
    """The matrices of one product on host and device, and a reference, for all contenders."""

    queue: cl.CommandQueue
    shape: GemmShape
    trans: tuple[Transposition, Transposition]  # of A and B in the product
    host: tuple[NDArray[Any], NDArray[Any]]  # A and B as they are stored, without padding
    # A, B and the result as they are stored on the device. All sets have the same numbers, in
    # separate buffers. The padding between rows has all bits set: NaN, or -1.
    sets: tuple[tuple[Any, Any, Any], ...]
    parts: tuple[Part, ...]  # the exact product of A and B
    _checked: dict[tuple[Config, str], GemmPlan] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes on the device and on the host."""
        on_device = sum(int(array.base_data.size) for one in self.sets for array in one)
        return on_device + sum(matrix.nbytes for matrix in self.host)

    def plan(self, **options: Any) -> GemmPlan:
        """Plan the product; options such as `config` and `precision` are those of `plan`."""
        a, b, out = self.sets[0]
        trans_a, trans_b = self.trans
        return plan(self.queue, a, b, out=out, trans_a=trans_a, trans_b=trans_b, **options)

    def error(self, product: GemmPlan, precision: Precision) -> MeasuredError:
        """Run a plan of A and B on the first set, and measure its error."""
        a, b, out = self.sets[0]
        poison(self.queue, out)
        product(a, b, out=out)
        result, padding = np.split(with_padding(self.queue, out), [self.shape.n], axis=-1)
        rounding = rounding_of(a.dtype.name, self.shape.k, precision, out.dtype.name)
        error = measure_error(result, self.parts, rounding)
        if (padding.view(np.uint8) != 255).any():
            fault = "elements between two rows of the result were written"
            return replace(error, ratio=math.inf, fault=fault)
        return error

    def checked(self, config: Config, precision: Precision) -> GemmPlan:
        """The plan of a configuration; raise `WrongError` if its first result is wrong."""
        key = config, precision.name
        if key not in self._checked:
            product = self.plan(config=config, precision=precision.name)
            if fault := self.error(product, precision).fault:
                raise WrongError(fault)
            self._checked[key] = product
        return self._checked[key]


def poison(queue: cl.CommandQueue, out: Any) -> None:
    """Set all bits of a result, a NaN in every floating type, so that unwritten elements show."""
    cl.enqueue_fill_buffer(queue, out.base_data, np.uint8(255), 0, out.base_data.size)


def with_padding(queue: cl.CommandQueue, out: Any) -> NDArray[Any]:
    """Copy a result to the host, with the padding between its rows."""
    *rows, _ = out.shape
    whole = np.empty((*rows, out.strides[-2] // out.dtype.itemsize), out.dtype)
    out.finish()
    cl.enqueue_copy(queue, whole, out.base_data)
    return whole


def make_operands(
    queue: cl.CommandQueue,
    shape: GemmShape,
    dtype: str,
    result_dtype: str | None = None,
    *,
    trans: tuple[Transposition, Transposition] | None = None,
    host: tuple[NDArray[Any], NDArray[Any]] | None = None,
    count: int | None = None,
    most_sets: int | None = None,
    most_work: int | None = None,
) -> Operands:
    """Make the operands and the reference of a product or of a batch.

    `host` are A and B as they are stored; None makes uniform random numbers. `count` is the number
    of sets; None takes that of `rotated_sets`, at most `most_sets`.
    """
    result = np.dtype(result_dtype or result_dtypes(dtype)[0])
    check_room(queue.device, shape, dtype, result.name)
    rng = np.random.default_rng(shape.m * shape.n + shape.k)
    stack = () if shape.batch is None else (shape.batch,)
    host = host or (
        uniform(rng, (*stack, *shape.stored_a), dtype),
        uniform(rng, (*stack, *shape.stored_b), dtype),
    )
    first = [_with_padding(matrix, shape.padding) for matrix in host]
    out_shape = (*stack, shape.m, shape.n + shape.padding)
    set_bytes = sum(one.nbytes for one in first) + math.prod(out_shape) * result.itemsize
    ends = (host[0].shape[-1], host[1].shape[-1], shape.n)
    sets = []
    for _ in range(count or min(rotated_sets(set_bytes, queue.device), most_sets or MOST_SETS)):
        padded = [cl_array.to_device(queue, one) for one in first]
        padded.append(cl_array.empty(queue, out_shape, result))
        # The first write to a CPU's memory is slow: it is no part of a product.
        poison(queue, padded[-1])
        a, b, out = (one[..., :end] for one, end in zip(padded, ends, strict=True))
        sets.append((a, b, out))
    trans = trans or cast(tuple[Transposition, Transposition], tuple(shape.layout))
    a, b = map(operated, host, trans)
    return Operands(queue, shape, trans, host, tuple(sets), reference(a, b, rng, most_work))


def check_room(
    device: cl.Device, shape: GemmShape, dtype: str, result_dtype: str | None = None
) -> None:
    """Raise `UnsupportedError` if a matrix of a product exceeds the device's largest buffer."""
    limit = traits_of(device).max_allocation_bytes
    matrices = (
        ("a", shape.stored_a, dtype),
        ("b", shape.stored_b, dtype),
        ("out", (shape.m, shape.n), result_dtype or result_dtypes(dtype)[0]),
    )
    for name, (rows, columns), kind in matrices:
        elements = (shape.batch or 1) * rows * (columns + shape.padding)
        if (size := elements * np.dtype(kind).itemsize) > limit:
            raise UnsupportedError(
                f"{name} of {shape} takes {size} bytes of {kind}; {device.name!r} holds at most "
                f"{limit} in one buffer"
            )


def _with_padding(matrix: NDArray[Any], padding: int) -> NDArray[Any]:
    *rows, columns = matrix.shape
    filled = np.full((*rows, (columns + padding) * matrix.itemsize), 255, np.uint8)
    padded = filled.view(matrix.dtype)
    padded[..., :columns] = matrix
    return padded if padding else matrix


def operated(matrix: NDArray[Any], transposition: str) -> NDArray[Any]:
    """Apply a transposition to a matrix or to each matrix of a batch."""
    if transposition == "N":
        return matrix
    turned = matrix.swapaxes(-1, -2)
    return turned.conj() if transposition == "C" and is_complex(matrix.dtype.name) else turned


def plan_contender(
    name: str, operands: Operands, product: GemmPlan, blocker: Blocker | None = None, c: Any = None
) -> Calls:
    """A contender that calls a plan on the sets of operands in turn, without events."""
    calls = []
    for a, b, out in operands.sets:
        for array in (a, b, c, out):
            if array is not None:
                array.finish()  # else each launch waits for the array's old events
        calls.append(functools.partial(product, a, b, c, out=out, add_event=False))
    return Calls(name, calls, operands.queue.finish, blocker=blocker)


class OperandStore:
    """Operands of recurring products; the least recently used are dropped if memory is short."""

    def __init__(self, queue: cl.CommandQueue, most_sets: int | None = None) -> None:
        self._queue = queue
        self._most_sets = most_sets
        self._most_bytes = min(_KEPT_BYTES, queue.device.global_mem_size // _KEPT_PART)
        self._kept: OrderedDict[tuple[GemmShape, str], Operands] = OrderedDict()

    def get(self, shape: GemmShape, dtype: str) -> Operands:
        """The operands of a product, kept or new; see `make_operands`."""
        operands = self._kept.pop((shape, dtype), None)
        if operands is None:
            operands = make_operands(self._queue, shape, dtype, most_sets=self._most_sets)
        self._kept[shape, dtype] = operands
        kept = sum(one.bytes for one in self._kept.values())
        while kept > self._most_bytes and len(self._kept) > 1:
            kept -= self._kept.popitem(last=False)[1].bytes
        return operands
