"""Random operands on a device for products of many shapes, cut from the same memory.

Operands are rotated, so that a product does not find in a cache what its predecessor left
there, and no two entries are related, so that a misplaced one shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from .api import plan
from .config import Config
from .device import traits_of
from .epilogue import Epilogue
from .errors import UnsupportedError
from .inquiry import Inquiry
from .precision import real_part_name, resolve_precision
from .verification import Part, reference_parts

#: Bytes of operands through which products rotate, and sets of operands at most.
_ROTATION_BYTES = 2**26
_MOST_SETS = 16

#: Where a set of operands starts, in elements: as aligned as memory of its own.
_ALIGNMENT = 64

#: Products that are enqueued before the host waits.
_MOST_ENQUEUED = 4096


@dataclass(frozen=True)
class _Operands:
    """What a product of one shape reads and writes, and what it must be."""

    sets: tuple[tuple[Any, Any], ...]
    out: Any
    c: Any
    epilogue: Epilogue
    parts: tuple[Part, ...]


class OperandPool:
    """Operands of products up to some sizes, and functions that run these products.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In-order, without profiling.
    dtype : str
        NumPy name of the element type.
    shapes : sequence of tuple of int
        m, n, k of all products that will be asked for.

    Raises
    ------
    UnsupportedError
        If the device cannot hold a matrix of the largest product in one buffer.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> pool = OperandPool(queue, "float32", [(8, 8, 8)])
    >>> config = CpuConfig(MR=4, NR=8, KC=128, VW=4)
    >>> pool.fault(Inquiry(8, 8, 8), config) is None
    True
    >>> pool.runner(Inquiry(8, 8, 8), config)(3)
    """

    def __init__(
        self, queue: cl.CommandQueue, dtype: str, shapes: Sequence[tuple[int, int, int]]
    ) -> None:
        self._queue = queue
        self._context = queue.context  # not every runtime keeps a queue's context alive
        self._dtype = np.dtype(dtype)
        size = self._dtype.itemsize
        largest = {
            "a": max(m * k for m, n, k in shapes),
            "b": max(k * n for m, n, k in shapes),
            "out": max(m * n for m, n, k in shapes),
        }
        limit = traits_of(queue.device).max_allocation_bytes
        for name, elements in largest.items():
            if elements * size > limit:
                raise UnsupportedError(
                    f"{name} of the largest product takes {elements * size} bytes of {dtype}; "
                    f"{queue.device.name!r} holds at most {limit} in one buffer"
                )
        rotation = min(_ROTATION_BYTES, limit) // size
        rng = np.random.default_rng(20240229)
        self._host = {name: self._random(rng, max(largest[name], rotation)) for name in ("a", "b")}
        self._memory = {name: cl_array.to_device(queue, x) for name, x in self._host.items()}
        self._out = cl_array.empty(queue, largest["out"], self._dtype)
        self._kept: dict[Inquiry, _Operands] = {}

    def enqueuer(self, inquiry: Inquiry, config: Config) -> Callable[[int], None]:
        """Build a product; the function enqueues it so many times, without events.

        Raises
        ------
        ConfigError, KernelBuildError
            If the configuration is not valid, or the compiler refuses the kernel.
        """
        operands = self._operands(inquiry)
        sets, out, c = operands.sets, operands.out, operands.c
        ready = plan(
            self._queue, *sets[0], c, beta=0.5 if inquiry.reads_c else None, out=out,
            trans_a=inquiry.trans_a, trans_b=inquiry.trans_b, epilogue=operands.epilogue,
            precision=inquiry.precision, config=config,
        )  # fmt: skip
        for array in (*sets[0], out, *([] if c is None else [c])):
            array.finish()  # events of the past, which every launch would wait for again

        def enqueue(count: int) -> None:
            for index in range(count):
                a, b = sets[index % len(sets)]
                ready(a, b, c, out=out, add_event=False)

        return enqueue

    def runner(self, inquiry: Inquiry, config: Config) -> Callable[[int], None]:
        """Build a product; the function runs it so many times, and waits for the last.

        Raises
        ------
        ConfigError, KernelBuildError
            As `enqueuer`.
        """
        enqueue, finish = self.enqueuer(inquiry, config), self._queue.finish

        def run(count: int) -> None:
            for first in range(0, count, _MOST_ENQUEUED):
                enqueue(min(_MOST_ENQUEUED, count - first))
                finish()

        return run

    def fault(self, inquiry: Inquiry, config: Config) -> str | None:
        """Run the product alone (without C, bias and activation); say what is wrong, or None."""
        operands = self._operands(inquiry)
        a, b = operands.sets[0]
        out = operands.out
        # All bits set is a NaN in every type: what is not written shows.
        cl.enqueue_fill_buffer(self._queue, out.base_data, np.uint8(255), out.offset, out.nbytes)
        ready = plan(
            self._queue, a, b, out=out, trans_a=inquiry.trans_a, trans_b=inquiry.trans_b,
            precision=inquiry.precision, config=config,
        )  # fmt: skip
        ready(a, b, out=out)
        result = out.get(self._queue)
        if not np.isfinite(result).all():
            return f"{np.size(result) - np.isfinite(result).sum()} elements are no finite numbers"
        for part in operands.parts:
            if fault := part.fault(result.take(part.indices, part.axis)):
                return fault
        return None

    def _operands(self, inquiry: Inquiry) -> _Operands:
        if inquiry not in self._kept:
            self._kept[inquiry] = self._cut(inquiry)
        return self._kept[inquiry]

    def _cut(self, inquiry: Inquiry) -> _Operands:
        m, n, k = inquiry.m, inquiry.n, inquiry.k
        shape_a = (m, k) if inquiry.trans_a == "N" else (k, m)
        shape_b = (k, n) if inquiry.trans_b == "N" else (n, k)
        steps = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in (m * k, k * n)]
        count = 1 + min(
            (len(self._host[name]) - size) // step
            for name, size, step in zip("ab", (m * k, k * n), steps, strict=True)
        )
        sets = tuple(
            (self._view("a", index * steps[0], shape_a), self._view("b", index * steps[1], shape_b))
            for index in range(min(count, _MOST_SETS))
        )
        rng = np.random.default_rng(m * n + k)
        parts = reference_parts(
            _operated(self._host["a"][: m * k].reshape(shape_a), inquiry.trans_a),
            _operated(self._host["b"][: k * n].reshape(shape_b), inquiry.trans_b),
            resolve_precision(inquiry.precision, inquiry.dtype),
            rng,
        )
        queue = self._queue
        c = None
        if inquiry.reads_c:
            c = cl_array.to_device(queue, self._random(rng, m * n).reshape(m, n))
        bias = cl_array.to_device(queue, self._random(rng, n)) if inquiry.bias else None
        epilogue = Epilogue(bias, inquiry.activation)
        return _Operands(sets, self._out[: m * n].reshape(m, n), c, epilogue, parts)

    def _view(self, name: str, start: int, shape: tuple[int, int]) -> Any:
        return self._memory[name][start : start + shape[0] * shape[1]].reshape(shape)

    def _random(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Values in (-1, 1)."""
        real: Any = np.float64 if real_part_name(self._dtype.name) == "float64" else np.float32
        parts = 2 if self._dtype.kind == "c" else 1
        values = 2 * rng.random(parts * count, real) - 1
        return values.view(self._dtype) if parts == 2 else values.astype(self._dtype, copy=False)


def _operated(matrix: NDArray[Any], transposition: str) -> NDArray[Any]:
    if transposition == "N":
        return matrix
    return matrix.T.conj() if transposition == "C" else matrix.T
