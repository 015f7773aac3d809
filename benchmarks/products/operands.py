"""The matrices of a case, shared by all contenders, and the error of a result.

They are made by `pyclgemm.analysis.operands` and checked by `pyclgemm.measure.verify`. This module
adds alpha, beta and a bias, and the host's copies for other libraries.
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

#: Most multiply-adds of a reference; only some rows of larger products are checked.
_MOST_WORK = 1 << 35


@dataclass(frozen=True)
class Operands:
    """The matrices that the contenders of a case share."""

    case: Case
    arithmetic: Arithmetic
    queue: cl.CommandQueue
    #: A and B on the host as they are stored, without padding.
    host: tuple[NDArray[Any], NDArray[Any]]
    #: A, B and the result on the device; several sets if one would stay in a cache.
    sets: tuple[tuple[Any, Any, Any], ...]
    #: C with padding, the initial contents of the results; None if beta is 0.
    addend: NDArray[Any] | None
    #: Bias of n elements for dense layers, on the host and on the device.
    bias: NDArray[Any]
    device_bias: Any
    #: The expected result, or parts of it.
    parts: tuple[Part, ...]
    #: Holds the queue while short products are enqueued; None: the host's clock times them.
    blocker: Blocker | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether the device is a CPU."""
        return bool(self.queue.device.type & cl.device_type.CPU)

    def poison(self) -> None:
        """Fill the first result with NaN or -1, or with C if beta adds to it."""
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
        """Measure the error of a result or, with `bias`, of ``relu(A B + bias)``."""
        parts = self.parts if bias is None else [_activated(part, bias) for part in self.parts]
        dtype = self.arithmetic.dtype
        rounding = rounding_of(dtype, self.case.k, precision, result.dtype.name)
        return measure_error(result, parts, rounding)


def padded(matrix: NDArray[Any], padding: int) -> NDArray[Any]:
    """Copy a host matrix with `padding` elements behind each row."""
    *rows, columns = matrix.shape
    base = np.zeros((*rows, columns + padding), matrix.dtype)
    base[..., :columns] = matrix
    return base


def turned(matrix: Any, transposed: bool) -> Any:
    """Return the matrix, or each matrix of a batch, transposed if it is stored so."""
    return matrix.swapaxes(-1, -2) if transposed else matrix


def memory_shortage(case: Case, arithmetic: Arithmetic, device: cl.Device) -> str | None:
    """Say why the case with packed copies does not fit the device; None if it fits."""
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
    """Fill `sets` sets of matrices with random numbers; by default more than a cache holds.

    Only parts of a product of more than `most_work` multiply-adds are checked.
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
        bias //= 1 << 16  # or sums would overflow
    device_bias = cl_array.to_device(queue, bias)
    return Operands(
        case, arithmetic, queue, made.host, made.sets, addend if case.beta else None, bias,
        device_bias, parts, blocker,
    )  # fmt: skip


def _scaled(part: Part, case: Case, addend: NDArray[Any]) -> Part:
    """Return the expected ``alpha A B + beta C``."""
    c = addend[np.ix_(*part.axes)].astype(part.value.dtype)
    return replace(
        part,
        value=case.alpha * part.value + case.beta * c,
        magnitude=abs(case.alpha) * part.magnitude + abs(case.beta) * np.abs(c),
    )


def _activated(part: Part, bias: NDArray[Any]) -> Part:
    """Return the expected ``relu(A B + bias)``."""
    added = bias[part.axes[-1]].astype(part.value.dtype)
    return replace(
        part,
        value=np.maximum(part.value + added, 0.0),
        magnitude=part.magnitude + np.abs(added),
    )
