"""The ways to compute a product that run on OpenCL arrays, and NumPy.

All OpenCL contenders of a case read and write the same buffers. cuBLAS is in
`benchmarks.cublas`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

import pyclgemm
from benchmarks.burst import Contender
from benchmarks.clblast import CLBlast
from benchmarks.operands import Operands, OperandSet, turned
from pyclgemm.codegen.config import Config
from pyclgemm.device.traits import traits_of
from pyclgemm.measure.filled_queue import Blocker
from pyclgemm.measure.timing import in_turn
from pyclgemm.problem.precision import Precision, resolve_precision
from pyclgemm.problem.shape import GemmShape, Layout
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose

#: Names as they stand in tables, in the order of its columns.
PLAN = "pyclgemm"
GEMM = "pyclgemm.gemm"
PACKED = "pyclgemm.packed"
QUEUED = "pyclgemm.queued"
LAYER = "DenseLayer"
CLBLAST = "CLBlast"
NUMPY = "NumPy"
CUBLAS = "cuBLAS"
MMA = "pyclgemm.mma"
CUBLAS_STREAM = "cuBLAS.stream"
CUBLAS_LAYER = "cuBLAS.layer"
NAMES = (
    PLAN, GEMM, PACKED, LAYER, QUEUED, MMA, CLBLAST, NUMPY, CUBLAS, CUBLAS_STREAM, CUBLAS_LAYER,
)  # fmt: skip

#: Kernels of one call at most: two that pack, one that multiplies; CLBlast pads c as well,
#: and copies it out.
_OWN_LAUNCHES, _CLBLAST_LAUNCHES = 3, 5


class CheckedContender(Contender, Protocol):
    """A contender whose result can be checked.

    Attributes
    ----------
    precision : Precision
        How it multiplies, which is not always what was asked for.
    bias : ndarray or None
        Set where its result is ``relu(A B + bias)`` instead of ``A B``.
    """

    precision: Precision
    bias: NDArray[Any] | None

    def poison(self) -> None:
        """Fill the result of the first set with NaN; the next call is for it."""

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
    precision : Precision, optional
        How it multiplies, if not as was asked for.
    bias : ndarray, optional
        As for `CheckedContender`.
    launches : int, optional
        As for `Contender`.
    """

    step = 1
    unrest = 0.0
    blocker: Blocker | None = None

    def __init__(
        self,
        name: str,
        operands: Operands,
        calls: Sequence[Callable[[], object]],
        *,
        precision: Precision | None = None,
        bias: NDArray[Any] | None = None,
        launches: int | None = None,
    ) -> None:
        self.name = name
        self.launches = launches
        self.precision = precision or operands.arithmetic.precision
        self.bias = bias
        self._operands = operands
        self._calls = tuple(calls)
        self._next_calls = in_turn(self._calls)
        # On a CPU NumPy is the contender, each of whose calls ends with the result in hand.
        self.waits_for_each = bool(operands.queue.device.type & cl.device_type.CPU)

    def enqueue(self, calls: int) -> None:
        """Enqueue so many products; on a CPU device, wait for each before the next."""
        for call in self._next_calls(calls):
            call()
            if self.waits_for_each:
                # Not finish(), in which Intel's runtime puts the caller to work, too.
                cl.enqueue_marker(self._operands.queue).wait()

    def enqueue_ahead(self, calls: int) -> None:
        """Enqueue so many products, without any wait."""
        for call in self._next_calls(calls):
            call()

    def finish(self) -> None:
        """Wait for the queue."""
        self._operands.queue.finish()

    def poison(self) -> None:
        """Fill the result of the first set with NaN; the next call is for it."""
        self._operands.poison()
        self._next_calls = in_turn(self._calls)

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        return self._operands.result()


def _scaling(operands: Operands, one: OperandSet) -> dict[str, Any]:
    """Arguments of this library's functions for ``alpha A B + beta C``, in place."""
    case = operands.case
    addend = {"c": one.device_out, "beta": case.beta} if case.beta else {}
    return {"alpha": case.alpha, **addend}


def plan_contender(
    operands: Operands,
    name: str = PLAN,
    config: Config | None = None,
    precision: Precision | None = None,
) -> DeviceContender:
    """Call a plan that was made before, without events, as a CUDA graph launches cuBLAS.

    Parameters
    ----------
    operands : Operands
        What the calls work on.
    name : str
        Column in tables.
    config : Config, optional
        Instead of what the library takes.
    precision : Precision, optional
        Instead of that of `operands`.
    """
    case, first = operands.case, operands.sets[0]
    precision = precision or operands.arithmetic.precision
    plan = pyclgemm.plan(
        operands.queue, first.device_a, first.device_b, out=first.device_out,
        trans_a=case.trans_a, trans_b=case.trans_b,
        precision=precision.name, config=config, **_scaling(operands, first),
    )  # fmt: skip
    return DeviceContender(
        name, operands,
        [
            functools.partial(
                plan, one.device_a, one.device_b, one.device_out if case.beta else None,
                out=one.device_out, add_event=False,
            )
            for one in operands.sets
        ],
        precision=precision,
        launches=_OWN_LAUNCHES,
    )  # fmt: skip


def mma_contender(operands: Operands) -> DeviceContender:
    """Call a plan of the kernels for mma.sync (the matrix family), even where others are faster.

    Raises
    ------
    ArgumentError
        If no database has a configuration of them for the product.
    """
    _refuse_batch(MMA, operands)
    case, arithmetic = operands.case, operands.arithmetic
    layout = cast(Layout, "NT"[case.trans_a] + "NT"[case.trans_b])
    problem = GemmShape(case.m, case.n, case.k, layout).problem(
        arithmetic.dtype, arithmetic.precision.name, result_dtype=arithmetic.result_dtype
    )
    traits = traits_of(operands.queue.device)
    config = choose(problem, traits, load_database(), "matrix").config
    return plan_contender(operands, MMA, config)


def queued_contender(operands: Operands) -> DeviceContender:
    """Call a plan on a CPU without waiting for each product, as layers follow one another."""
    contender = plan_contender(operands, QUEUED)
    contender.waits_for_each = False
    return contender


def gemm_contender(operands: Operands) -> DeviceContender:
    """Call ``pyclgemm.gemm`` with the result's array given, the host's time included."""
    case = operands.case

    function = pyclgemm.gemm if case.batch is None else pyclgemm.gemm_batched

    def call(one: OperandSet) -> Callable[[], object]:
        return functools.partial(
            function, operands.queue, one.device_a, one.device_b, out=one.device_out,
            trans_a=case.trans_a, trans_b=case.trans_b,
            precision=operands.arithmetic.precision.name, **_scaling(operands, one),
        )  # fmt: skip

    return DeviceContender(GEMM, operands, [call(one) for one in operands.sets])


def packed_contender(operands: Operands) -> DeviceContender:
    """Call a plan with the second operand packed before, for each set its own."""
    _refuse_batch(PACKED, operands)
    queue, first = operands.queue, operands.sets[0]
    precision = operands.arithmetic.precision.name
    packed = [
        pyclgemm.pack(queue, _weight(operands, one), precision=precision) for one in operands.sets
    ]
    plan = pyclgemm.plan(
        queue, first.device_a, packed[0], out=first.device_out, trans_a=operands.case.trans_a,
        precision=precision,
    )  # fmt: skip
    return DeviceContender(
        PACKED, operands,
        [
            functools.partial(plan, one.device_a, weight, out=one.device_out, add_event=False)
            for one, weight in zip(operands.sets, packed, strict=True)
        ],
        launches=_OWN_LAUNCHES,
    )  # fmt: skip


def layer_contender(operands: Operands, planned: bool = True) -> DeviceContender:
    """Call a `DenseLayer` with bias and ReLU, for each set its own weight: its plan, or itself."""
    _refuse_batch(LAYER, operands)
    bias = operands.bias.device.reshape(operands.case.n)

    def call(one: OperandSet) -> Callable[[], object]:
        layer = pyclgemm.DenseLayer(
            operands.queue, _weight(operands, one), bias, "relu",
            precision=operands.arithmetic.precision.name,
        )  # fmt: skip
        x = one.device_a.T if operands.case.trans_a else one.device_a
        if not planned:
            return functools.partial(layer, x, out=one.device_out)
        ready = layer.plan(x, out=one.device_out)
        return functools.partial(ready, x, layer.weight, out=one.device_out, add_event=False)

    return DeviceContender(
        LAYER, operands, [call(one) for one in operands.sets], bias=operands.bias.host[0],
        launches=_OWN_LAUNCHES,
    )  # fmt: skip


def _refuse_batch(name: str, operands: Operands) -> None:
    if operands.case.batch is not None:
        raise ValueError(f"{name} is for single products")


def _weight(operands: Operands, one: OperandSet) -> Any:
    return one.device_b.T if operands.case.trans_b else one.device_b


def clblast_contender(library: CLBlast, operands: Operands) -> DeviceContender:
    """Call CLBlast through ctypes, the arguments converted before; it knows types alone."""
    case = operands.case
    calls = [
        library.prepare(
            operands.queue, one.device_a, one.device_b, one.device_out,
            trans_a=case.trans_a, trans_b=case.trans_b, alpha=case.alpha, beta=case.beta,
        )
        for one in operands.sets
    ]  # fmt: skip
    dtype = operands.arithmetic.dtype
    precision = resolve_precision("F16_F16_F16" if dtype == "float16" else None, dtype)
    return DeviceContender(
        CLBLAST, operands, calls, precision=precision, launches=_CLBLAST_LAUNCHES
    )


class NumpyContender:
    """``numpy.matmul`` into an array of its own, with the BLAS that NumPy came with.

    It has no alpha and beta: the product alone is timed, and `result` adds what is missing.

    Parameters
    ----------
    operands : Operands
        What the calls work on, on the host.
    """

    name = NUMPY
    step = 1
    launches = None
    blocker: Blocker | None = None
    #: OpenBLAS lets its idle threads spin for 2^28 cycles before they sleep.
    unrest = 0.2

    def __init__(self, operands: Operands) -> None:
        dtype = operands.arithmetic.dtype
        if dtype in ("float16", "bfloat16", "int8"):
            raise ValueError(f"NumPy multiplies {dtype} without a BLAS")
        self._case = case = operands.case
        self._addend = operands.sets[0].out.host
        self.precision = operands.arithmetic.plain
        self.bias: NDArray[Any] | None = None
        # Copies, because memory that nobody has written to costs the first call dear.
        self._products = [
            (
                turned(one.a.host, case.trans_a),
                turned(one.b.host, case.trans_b),
                one.out.host_base.copy()[..., : case.n],
            )
            for one in operands.sets
        ]
        self._next_products = in_turn(self._products)

    def enqueue(self, calls: int) -> None:
        """Compute so many products."""
        for a, b, out in self._next_products(calls):
            np.matmul(a, b, out=out)

    def finish(self) -> None:
        """Nothing to wait for."""

    def poison(self) -> None:
        """Fill the result of the first set with NaN; the next call is for it."""
        self._products[0][2].fill(np.nan)
        self._next_products = in_turn(self._products)

    def result(self) -> NDArray[Any]:
        """Give the result of the first set."""
        product = self._products[0][2]
        if not self._case.is_scaled:
            return product
        return np.asarray(self._case.alpha * product + self._case.beta * self._addend)
