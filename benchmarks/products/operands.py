"""The matrices of a case, the same for every contender, and how far a result is from the exact one.

The bench of the library makes them (`pyclgemm.analysis.operands`) and checks a result
(`pyclgemm.measure.verify`); here stands what only contenders of other libraries need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from benchmarks.products.arithmetic import Arithmetic
from benchmarks.products.case import Case
from pyclgemm.analysis import operands as bench_operands
from pyclgemm.analysis.operands import poison, uniform, with_padding
from pyclgemm.measure.filled_queue import Blocker
from pyclgemm.measure.verify import MeasuredError, Part, measure_error, rounding_of
from pyclgemm.problem.precision import Precision

#: Multiply-adds that a reference may cost; a larger product is compared in some rows.
_MOST_WORK = 1 << 35


@dataclass(frozen=True)
class Operands:
    """All that the contenders of one case share."""

    case: Case
    arithmetic: Arithmetic
    queue: cl.CommandQueue
    #: A and B on the host as they are stored, without padding.
    host: tuple[NDArray[Any], NDArray[Any]]
    #: A, B and the result on the device; several where one would stay in a cache.
    sets: tuple[tuple[Any, Any, Any], ...]
    #: C, with padding, which the results hold at first; None where beta is 0.
    addend: NDArray[Any] | None
    #: A row of n elements for dense layers, on the host and on the device.
    bias: NDArray[Any]
    device_bias: Any
    #: What the result must be.
    parts: tuple[Part, ...]
    #: Holds the queue while short products are enqueued; None times them on the host.
    blocker: Blocker | None = None

    def poison(self) -> None:
        """Set all bits of the first result: a NaN, or -1. One that is added to gets C again."""
        out = self.sets[0][2]
        if self.addend is None:
            poison(self.queue, out)
        else:
            cl.enqueue_copy(self.queue, out.base_data, self.addend)

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        return with_padding(self.queue, self.sets[0][2])[..., : self.case.n]

    def error(
        self, result: NDArray[Any], precision: Precision, bias: NDArray[Any] | None = None
    ) -> MeasuredError:
        """Measure the error of a result, or of ``relu(A B + bias)``, as `precision` allows it."""
        parts = self.parts if bias is None else [_activated(part, bias) for part in self.parts]
        dtype = self.arithmetic.dtype
        rounding = rounding_of(dtype, self.case.k, precision, result.dtype.name)
        return measure_error(result, parts, rounding)


def padded(matrix: NDArray[Any], padding: int) -> NDArray[Any]:
    """A copy of a host matrix, with `padding` elements behind each row."""
    *rows, columns = matrix.shape
    base = np.zeros((*rows, columns + padding), matrix.dtype)
    base[..., :columns] = matrix
    return base


def turned(matrix: Any, transposed: bool) -> Any:
    """The matrix, or each matrix of a batch, transposed if it is stored so."""
    return matrix.swapaxes(-1, -2) if transposed else matrix


def memory_shortage(case: Case, arithmetic: Arithmetic, device: cl.Device) -> str | None:
    """Why the case does not fit the device, or None. Room for packed copies is counted."""
    sizes = case.matrix_bytes(arithmetic.dtype, arithmetic.result_dtype)
    if max(sizes) > device.max_mem_alloc_size:
        return f"a matrix of {max(sizes) >> 20} MB exceeds the largest buffer of this device"
    wanted = 3 * sum(sizes)
    if wanted > device.global_mem_size:
        return f"{wanted >> 20} MB with packed copies exceed the memory of this device"
    return None


def make_operands(
    case: Case,
    arithmetic: Arithmetic,
    queue: cl.CommandQueue,
    rng: np.random.Generator,
    *,
    sets: int | None = None,
    blocker: Blocker | None = None,
    most_work: int | None = None,
) -> Operands:
    """Fill the matrices of a case with random numbers; `sets` of them, or more than caches hold.

    Of a product of more than `most_work` multiply-adds parts are checked.
    """
    dtype, result_dtype = arithmetic.dtype, arithmetic.result_dtype
    a, b = (
        uniform(rng, (*case.stack, *stored), dtype) for stored in (case.stored_a, case.stored_b)
    )
    made = bench_operands.make_operands(
        queue, case, dtype, result_dtype, host=(a, b), count=sets, most_work=most_work or _MOST_WORK
    )
    parts, addend = made.parts, None
    if case.is_scaled:
        addend = uniform(rng, (case.m, case.n + case.padding), result_dtype)
        parts = tuple(_scaled(part, case, addend) for part in parts)
        for *_, out in made.sets:
            cl.enqueue_copy(queue, out.base_data, addend)
    bias = uniform(rng, (case.n,), result_dtype)
    if bias.dtype.kind == "i":
        bias //= 1 << 16  # sums must not overflow
    device_bias = cl_array.to_device(queue, bias)
    return Operands(
        case, arithmetic, queue, made.host, made.sets, addend if case.beta else None, bias,
        device_bias, parts, blocker,
    )  # fmt: skip


def _scaled(part: Part, case: Case, addend: NDArray[Any]) -> Part:
    """What ``alpha A B + beta C`` must be."""
    c = addend[np.ix_(*part.axes)].astype(part.value.dtype)
    return replace(
        part,
        value=case.alpha * part.value + case.beta * c,
        magnitude=abs(case.alpha) * part.magnitude + abs(case.beta) * np.abs(c),
    )


def _activated(part: Part, bias: NDArray[Any]) -> Part:
    """What ``relu(A B + bias)`` must be."""
    added = bias[part.axes[-1]].astype(part.value.dtype)
    return replace(
        part,
        value=np.maximum(part.value + added, 0.0),
        magnitude=part.magnitude + np.abs(added),
    )
