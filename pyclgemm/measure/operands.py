"""Random operands on a device for products of many shapes, cut from the same memory.

Operands are rotated, so that a product does not find in a cache what its predecessor left
there, and no two entries are related, so that a misplaced one shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from ..api.gemm import plan
from ..codegen.config import Config
from ..device.traits import traits_of
from ..errors import UnsupportedError
from ..problem.precision import result_dtypes
from ..problem.problem import Epilogue
from ..problem.product import Product
from .filled_queue import QueueBlocker, timed_in_turn
from .timing import Work, rotated_sets
from .verify import Part, reference_parts

# --------------------------------------------------------------------------------------
# Random matrices for products that are timed and checked: zeros would run too fast.
# --------------------------------------------------------------------------------------


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Random numbers in [-1, 1), real and imaginary part each; all integers of an integer type.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the numbers.
    shape : tuple of int
        In elements.
    dtype : str
        NumPy name of a floating, complex or integer type.

    Examples
    --------
    >>> import numpy as np
    >>> uniform(np.random.default_rng(0), (2, 3), "complex64").dtype
    dtype('complex64')
    """
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    real = np.float64 if kind.itemsize // (2 if kind.kind == "c" else 1) == 8 else np.float32
    if kind.kind == "c":
        return uniform(rng, (*shape, 2), np.dtype(real).name).view(kind)[..., 0]
    numbers = rng.random(shape, dtype=real)
    numbers *= 2
    numbers -= 1
    return numbers.astype(kind, copy=False)


# --------------------------------------------------------------------------------------

#: Where a matrix of a set starts, in elements: as aligned as memory of its own.
_ALIGNMENT = 64


@dataclass(frozen=True)
class _Operands:
    """What products of one shape read and write, and what the first set's must be."""

    sets: tuple[tuple[Any, Any, Any], ...]
    c: Any
    epilogue: Epilogue
    parts: tuple[Part, ...]


class OperandPool:
    """Operands of products up to some sizes, and work that runs and times these products.

    On CPUs the host's time is the device's, and the clock says all. On other devices a short
    product would be hidden behind the call that enqueues it: there the queue is filled
    first, as `pyclgemm.measure.filled_queue` does it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In-order, without profiling.
    dtype : str
        NumPy name of the element type of the operands.
    shapes : sequence of tuple of int
        m, n, k of all products that will be asked for.
    result_dtype : str, optional
        NumPy name of that of the result; by default the one that `dtype` gives by itself.

    Raises
    ------
    UnsupportedError
        If the device cannot hold a matrix of the largest product in one buffer.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> from pyclgemm.problem.shape import GemmShape
    >>> pool = OperandPool(queue, "float32", [(8, 8, 8)])
    >>> config = CpuConfig(MR=4, NR=8, KC=128, VW=4)
    >>> product = GemmShape(8, 8, 8).product()
    >>> pool.fault(product, config) is None
    True
    >>> elapsed = pool.work(product, config)(3)
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        dtype: str,
        shapes: Sequence[tuple[int, int, int]],
        result_dtype: str | None = None,
    ) -> None:
        self._queue = queue
        self._context = queue.context  # not every runtime keeps a queue's context alive
        self._result_dtype = np.dtype(result_dtype or result_dtypes(dtype)[0])
        size = np.dtype(dtype).itemsize
        self._bytes = {"a": size, "b": size, "out": self._result_dtype.itemsize}
        traits = traits_of(queue.device)
        self._limit = traits.max_allocation_bytes
        self._blocker = None if traits.type == "cpu" else QueueBlocker(queue)
        sizes = [_elements(*shape) for shape in shapes]
        for name, elements in _largest(sizes).items():
            if elements * self._bytes[name] > self._limit:
                raise UnsupportedError(
                    f"{name} of the largest product takes {elements * self._bytes[name]} bytes of "
                    f"{dtype}; {queue.device.name!r} holds at most {self._limit} in one buffer"
                )
        room = _largest([self._room(one) for one in sizes])
        rng = np.random.default_rng(20240229)
        self._host = {name: uniform(rng, (room[name],), dtype) for name in ("a", "b")}
        self._memory = {name: cl_array.to_device(queue, x) for name, x in self._host.items()}
        self._memory["out"] = cl_array.empty(queue, room["out"], self._result_dtype)
        self._kept: dict[Product, _Operands] = {}

    def work(self, product: Product, config: Config) -> Work:
        """Build a product; the work runs it so many times and waits for the last.

        Raises
        ------
        ConfigError, KernelBuildError
            If the configuration is not valid, or the compiler refuses the kernel.
        """
        operands = self._operands(product)
        sets, c = operands.sets, operands.c
        a, b, out = sets[0]
        beta = 2 if self._result_dtype.kind == "i" else 0.5
        ready = plan(
            self._queue, a, b, c, beta=beta if product.c else None, out=out,
            trans_a=product.a.transposition, trans_b=product.b.transposition,
            epilogue=operands.epilogue, precision=product.problem.precision.name, config=config,
        )  # fmt: skip

        def run(a: Any, b: Any, out: Any) -> None:
            ready(a, b, c, out=out, add_event=False)

        shared = () if c is None else (c,)
        return timed_in_turn(run, sets, self._queue.finish, self._blocker, shared)

    def fault(self, product: Product, config: Config) -> str | None:
        """Run the product alone (without C, bias and activation); say what is wrong, or None.

        Raises
        ------
        ConfigError, KernelBuildError
            As `work`.
        """
        operands = self._operands(product)
        a, b, out = operands.sets[0]
        # All bits set is a NaN in every type: what is not written shows.
        cl.enqueue_fill_buffer(self._queue, out.base_data, np.uint8(255), out.offset, out.nbytes)
        ready = plan(
            self._queue, a, b, out=out, trans_a=product.a.transposition,
            trans_b=product.b.transposition, precision=product.problem.precision.name,
            config=config,
        )  # fmt: skip
        ready(a, b, out=out)
        result = out.get(self._queue)
        if not np.isfinite(result).all():
            return f"{np.size(result) - np.isfinite(result).sum()} elements are no finite numbers"
        for part in operands.parts:
            if fault := part.fault(result.take(part.indices, part.axis)):
                return fault
        return None

    def _operands(self, product: Product) -> _Operands:
        if product not in self._kept:
            self._kept[product] = self._cut(product)
        return self._kept[product]

    def _cut(self, product: Product) -> _Operands:
        problem, trans_a, trans_b = (
            product.problem,
            product.a.transposition,
            product.b.transposition,
        )
        m, n, k = problem.m, problem.n, problem.k
        shape_a = (m, k) if trans_a == "N" else (k, m)
        shape_b = (k, n) if trans_b == "N" else (n, k)
        count = self._set_count(_elements(m, n, k))
        sets = zip(
            self._views("a", shape_a, count),
            self._views("b", shape_b, count),
            self._views("out", (m, n), count),
            strict=True,
        )
        rng = np.random.default_rng(m * n + k)
        parts = reference_parts(
            _operated(self._host["a"][: m * k].reshape(shape_a), trans_a),
            _operated(self._host["b"][: k * n].reshape(shape_b), trans_b),
            problem.precision,
            rng,
            self._result_dtype.name,
        )
        c = self._on_device(rng, (m, n)) if product.c else None
        bias = self._on_device(rng, (n,)) if problem.bias else None
        return _Operands(tuple(sets), c, Epilogue(bias, problem.activation), parts)

    def _views(self, name: str, shape: tuple[int, int], count: int) -> list[Any]:
        size = shape[0] * shape[1]
        starts = (index * _step(size) for index in range(count))
        return [self._memory[name][start : start + size].reshape(shape) for start in starts]

    def _room(self, sizes: dict[str, int]) -> dict[str, int]:
        """Elements of memory for all sets of a product."""
        count = self._set_count(sizes)
        return {name: (count - 1) * _step(size) + size for name, size in sizes.items()}

    def _set_count(self, sizes: dict[str, int]) -> int:
        """Sets to rotate among, as far as a buffer holds them."""
        set_bytes = sum(size * self._bytes[name] for name, size in sizes.items())
        most = max(_step(size) * self._bytes[name] for name, size in sizes.items())
        return max(1, min(rotated_sets(set_bytes, self._queue.device), self._limit // most))

    def _on_device(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return cl_array.to_device(self._queue, uniform(rng, shape, self._result_dtype.name))


def _elements(m: int, n: int, k: int) -> dict[str, int]:
    """Elements of each matrix."""
    return {"a": m * k, "b": k * n, "out": m * n}


def _largest(sizes: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: max(one[name] for one in sizes) for name in ("a", "b", "out")}


def _step(size: int) -> int:
    """From the start of a matrix to that of the next set's, in elements."""
    return math.ceil(size / _ALIGNMENT) * _ALIGNMENT


def _operated(matrix: NDArray[Any], transposition: str) -> NDArray[Any]:
    if transposition == "N":
        return matrix
    return matrix.T.conj() if transposition == "C" else matrix.T
