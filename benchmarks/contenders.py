"""The ways to compute a product that run on OpenCL arrays, and NumPy.

All OpenCL contenders of a case read and write the same buffers. cuBLAS is in
`benchmarks.cublas`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

import pyclgemm
from benchmarks.burst import Contender
from benchmarks.clblast import CLBlast
from benchmarks.operands import Operands, OperandSet

#: Names as they stand in tables, in the order of its columns.
PLAN = "pyclgemm"
GEMM = "pyclgemm.gemm"
PACKED = "pyclgemm.packed"
LAYER = "DenseLayer"
CLBLAST = "CLBlast"
NUMPY = "NumPy"
CUBLAS = "cuBLAS"
NAMES = (PLAN, GEMM, PACKED, LAYER, CLBLAST, NUMPY, CUBLAS)

#: Kernels of one call at most: two that pack, one that multiplies; CLBlast pads c as well,
#: and copies it out.
_OWN_LAUNCHES, _CLBLAST_LAUNCHES = 3, 5


class CheckedContender(Contender, Protocol):
    """A contender whose result can be checked.

    Attributes
    ----------
    arithmetic : str
        NumPy name of the type in which it sums.
    bias : ndarray or None
        Set where its result is ``relu(A B + bias)`` instead of ``A B``.
    """

    arithmetic: str
    bias: NDArray[Any] | None

    def poison(self) -> None:
        """Fill the result of the first set with NaN."""

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""


class DeviceContender:
    """Calls on one OpenCL queue, in a cycle over the sets of operands.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    operands : Operands
        What the calls work on.
    calls : sequence of callable
        One for each set; each enqueues the product of its set.
    arithmetic : str, optional
        NumPy name of the type in which it sums, if not that of the operands.
    bias : ndarray, optional
        As for `CheckedContender`.
    launches : int, optional
        As for `Contender`.
    """

    step = 1
    unrest = 0.0

    def __init__(
        self,
        name: str,
        operands: Operands,
        calls: Sequence[Callable[[], object]],
        *,
        arithmetic: str | None = None,
        bias: NDArray[Any] | None = None,
        launches: int | None = None,
    ) -> None:
        self.name = name
        self.launches = launches
        self.arithmetic = arithmetic or operands.dtype
        self.bias = bias
        self._operands = operands
        self._calls = tuple(calls)
        # On a CPU NumPy is the contender, each of whose calls ends with the result in hand.
        self.waits_for_each = bool(operands.queue.device.type & cl.device_type.CPU)

    def enqueue(self, calls: int) -> None:
        """Enqueue so many products; on a CPU device, wait for each before the next."""
        for call in itertools.islice(itertools.cycle(self._calls), calls):
            call()
            if self.waits_for_each:
                # Not finish(), in which Intel's runtime puts the caller to work, too.
                cl.enqueue_marker(self._operands.queue).wait()

    def enqueue_ahead(self, calls: int) -> None:
        """Enqueue so many products, without any wait."""
        for call in itertools.islice(itertools.cycle(self._calls), calls):
            call()

    def finish(self) -> None:
        """Wait for the queue."""
        self._operands.queue.finish()

    def poison(self) -> None:
        """Fill the result of the first set with NaN."""
        self._operands.poison()

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        return self._operands.result()


def _pyclgemm_arithmetic(dtype: str) -> str:
    """float16 is summed in float32 by default."""
    return "float32" if dtype == "float16" else dtype


def plan_contender(operands: Operands) -> DeviceContender:
    """Call a plan that was made before, without events, as a CUDA graph launches cuBLAS."""
    case, first = operands.case, operands.sets[0]
    plan = pyclgemm.plan(
        operands.queue, first.device_a, first.device_b, out=first.device_out,
        trans_a=case.trans_a, trans_b=case.trans_b,
    )  # fmt: skip
    return DeviceContender(
        PLAN, operands,
        [
            functools.partial(
                plan, one.device_a, one.device_b, out=one.device_out, add_event=False
            )
            for one in operands.sets
        ],
        arithmetic=_pyclgemm_arithmetic(operands.dtype), launches=_OWN_LAUNCHES,
    )  # fmt: skip


def gemm_contender(operands: Operands) -> DeviceContender:
    """Call ``pyclgemm.gemm`` with the result's array given, the host's time included."""
    case = operands.case

    def call(one: OperandSet) -> Callable[[], object]:
        return functools.partial(
            pyclgemm.gemm, operands.queue, one.device_a, one.device_b, out=one.device_out,
            trans_a=case.trans_a, trans_b=case.trans_b,
        )  # fmt: skip

    return DeviceContender(
        GEMM, operands, [call(one) for one in operands.sets],
        arithmetic=_pyclgemm_arithmetic(operands.dtype),
    )  # fmt: skip


def packed_contender(operands: Operands) -> DeviceContender:
    """Call a plan with the second operand packed before, for each set its own."""
    queue, first = operands.queue, operands.sets[0]
    packed = [pyclgemm.pack(queue, _weight(operands, one)) for one in operands.sets]
    plan = pyclgemm.plan(
        queue, first.device_a, packed[0], out=first.device_out, trans_a=operands.case.trans_a
    )
    return DeviceContender(
        PACKED, operands,
        [
            functools.partial(plan, one.device_a, weight, out=one.device_out, add_event=False)
            for one, weight in zip(operands.sets, packed, strict=True)
        ],
        arithmetic=_pyclgemm_arithmetic(operands.dtype), launches=_OWN_LAUNCHES,
    )  # fmt: skip


def layer_contender(operands: Operands) -> DeviceContender:
    """Call a `DenseLayer` with bias and ReLU, for each set its own weight."""
    bias = operands.bias.device.reshape(operands.case.n)

    def call(one: OperandSet) -> Callable[[], object]:
        layer = pyclgemm.DenseLayer(operands.queue, _weight(operands, one), bias, "relu")
        x = one.device_a.T if operands.case.trans_a else one.device_a
        return functools.partial(layer, x, out=one.device_out)

    return DeviceContender(
        LAYER, operands, [call(one) for one in operands.sets],
        arithmetic=_pyclgemm_arithmetic(operands.dtype), bias=operands.bias.host[0],
        launches=_OWN_LAUNCHES,
    )  # fmt: skip


def _weight(operands: Operands, one: OperandSet) -> Any:
    return one.device_b.T if operands.case.trans_b else one.device_b


def clblast_contender(library: CLBlast, operands: Operands) -> DeviceContender:
    """Call CLBlast through ctypes, the arguments converted before."""
    case = operands.case
    calls = [
        library.prepare(
            operands.queue, one.device_a, one.device_b, one.device_out,
            trans_a=case.trans_a, trans_b=case.trans_b,
        )
        for one in operands.sets
    ]  # fmt: skip
    return DeviceContender(CLBLAST, operands, calls, launches=_CLBLAST_LAUNCHES)


class NumpyContender:
    """``numpy.matmul`` into an array of its own, with the BLAS that NumPy came with.

    Parameters
    ----------
    operands : Operands
        What the calls work on, on the host.
    """

    name = NUMPY
    step = 1
    launches = None
    #: OpenBLAS lets its idle threads spin for 2^28 cycles before they sleep.
    unrest = 0.2

    def __init__(self, operands: Operands) -> None:
        if operands.dtype == "float16":
            raise ValueError("NumPy multiplies float16 without a BLAS")
        case = operands.case
        self.arithmetic = operands.dtype
        self.bias: NDArray[Any] | None = None
        self._products = [
            (
                one.a.host.T if case.trans_a else one.a.host,
                one.b.host.T if case.trans_b else one.b.host,
                np.empty_like(one.out.host_base)[:, : case.n],
            )
            for one in operands.sets
        ]

    def enqueue(self, calls: int) -> None:
        """Compute so many products."""
        for a, b, out in itertools.islice(itertools.cycle(self._products), calls):
            np.matmul(a, b, out=out)

    def finish(self) -> None:
        """Nothing to wait for."""

    def poison(self) -> None:
        """Fill the result of the first set with NaN."""
        self._products[0][2].fill(np.nan)

    def result(self) -> NDArray[Any]:
        """Give the result of the first set."""
        return self._products[0][2]
