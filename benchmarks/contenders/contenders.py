"""Contenders on OpenCL arrays, and NumPy; cuBLAS is in `benchmarks.contenders.cublas`.

All OpenCL contenders of a case read and write the same buffers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

import pyclgemm
from benchmarks.contenders.clblast import CLBlast
from benchmarks.products.operands import Operands, padded, turned
from pyclgemm.codegen.config import Config
from pyclgemm.device.traits import traits_of
from pyclgemm.measure.bench import OPENBLAS_UNREST, Calls
from pyclgemm.measure.filled_queue import Contender
from pyclgemm.problem.precision import Precision, resolve_precision
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose

#: Names in tables, in the order of the columns.
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

#: Kernels of one call at most: two that pack, one that multiplies; CLBlast also pads c and copies
#: it back.
_OWN_LAUNCHES, _CLBLAST_LAUNCHES = 3, 5


class CheckedContender(Contender):
    """A contender whose result can be checked."""

    #: Its arithmetic, which may differ from the requested one.
    precision: Precision
    #: If set, the result is ``relu(A B + bias)`` instead of ``A B``.
    bias: NDArray[Any] | None = None

    def poison(self) -> None:
        """Fill the result of the first set with NaN, and let the next call compute it."""
        raise NotImplementedError

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        raise NotImplementedError


#: Makes a contender for the operands of a case.
Factory = Callable[[Operands], CheckedContender]


class DeviceContender(Calls, CheckedContender):
    """Calls on one OpenCL queue, one for each set of operands, in turn.

    With `held`, short products are timed behind the blocker of `operands`. `precision` replaces the
    requested one.
    """

    def __init__(
        self,
        name: str,
        operands: Operands,
        calls: Sequence[Callable[[], object]],
        *,
        precision: Precision | None = None,
        bias: NDArray[Any] | None = None,
        held: bool = True,
        launches: int = _OWN_LAUNCHES,
    ) -> None:
        blocker = operands.blocker if held else None
        super().__init__(name, calls, operands.queue.finish, blocker=blocker, launches=launches)
        self.precision = precision or operands.arithmetic.precision
        self.bias = bias
        self._operands = operands
        # As NumPy does, with which a CPU device is compared.
        self.waits_for_each = operands.on_cpu and blocker is None

    def enqueue(self, calls: int) -> None:
        """Enqueue products; on a CPU device wait for each before the next."""
        if not self.waits_for_each:
            super().enqueue(calls)
            return
        for _ in range(calls):
            super().enqueue(1)
            # Not finish(): in it Intel's runtime lets the calling thread compute, too.
            cl.enqueue_marker(self._operands.queue).wait()

    def poison(self) -> None:
        """Fill the result of the first set with NaN, and let the next call compute it."""
        self._operands.poison()
        self.restart()

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        return self._operands.result()


def _scaling(operands: Operands, out: Any) -> dict[str, Any]:
    """Return the arguments of this library's functions for ``alpha A B + beta C`` in place."""
    case = operands.case
    return {"alpha": case.alpha, **({"c": out, "beta": case.beta} if case.beta else {})}


def plan_contender(
    operands: Operands,
    name: str = PLAN,
    config: Config | None = None,
    precision: Precision | None = None,
) -> DeviceContender:
    """Call a prepared plan without events.

    `config` replaces the library's choice, and `precision` that of `operands`.
    """
    case = operands.case
    a, b, out = operands.sets[0]
    precision = precision or operands.arithmetic.precision
    plan = pyclgemm.plan(
        operands.queue, a, b, out=out, trans_a=case.trans_a, trans_b=case.trans_b,
        precision=precision.name, config=config, **_scaling(operands, out),
    )  # fmt: skip
    calls = [
        functools.partial(plan, a, b, out if case.beta else None, out=out, add_event=False)
        for a, b, out in operands.sets
    ]
    return DeviceContender(name, operands, calls, precision=precision)


def mma_contender(operands: Operands) -> DeviceContender:
    """Call a plan of the matrix family (mma.sync), even where other kernels are faster."""
    _refuse_batch(MMA, operands)
    arithmetic = operands.arithmetic
    problem = operands.case.problem(
        arithmetic.dtype, arithmetic.precision.name, result_dtype=arithmetic.result_dtype
    )
    traits = traits_of(operands.queue.device)
    config = choose(problem, traits, load_database(), "matrix").config
    return plan_contender(operands, MMA, config)


def queued_contender(operands: Operands) -> DeviceContender:
    """Call a plan on a CPU without waiting for each product, as in a network of layers."""
    contender = plan_contender(operands, QUEUED)
    contender.waits_for_each = False
    return contender


def gemm_contender(operands: Operands) -> DeviceContender:
    """Call ``pyclgemm.gemm`` with `out`; the time includes the host's."""
    case = operands.case
    function = pyclgemm.gemm if case.batch is None else pyclgemm.gemm_batched
    calls = [
        functools.partial(
            function, operands.queue, a, b, out=out, trans_a=case.trans_a, trans_b=case.trans_b,
            precision=operands.arithmetic.precision.name, **_scaling(operands, out),
        )
        for a, b, out in operands.sets
    ]  # fmt: skip
    return DeviceContender(GEMM, operands, calls, held=False)


def packed_contender(operands: Operands) -> DeviceContender:
    """Call a plan whose second operand was packed before, separately for each set."""
    _refuse_batch(PACKED, operands)
    case, queue, precision = operands.case, operands.queue, operands.arithmetic.precision.name
    packed = [
        pyclgemm.pack(queue, b.T if case.trans_b else b, precision=precision)
        for _, b, _ in operands.sets
    ]
    a, _, out = operands.sets[0]
    plan = pyclgemm.plan(queue, a, packed[0], out=out, trans_a=case.trans_a, precision=precision)
    calls = [
        functools.partial(plan, a, weight, out=out, add_event=False)
        for (a, _, out), weight in zip(operands.sets, packed, strict=True)
    ]
    return DeviceContender(PACKED, operands, calls)


def layer_contender(operands: Operands) -> DeviceContender:
    """Call the plan of a `DenseLayer` with bias and ReLU; each set has its own weight."""
    _refuse_batch(LAYER, operands)
    case = operands.case

    def call(a: Any, b: Any, out: Any) -> Callable[[], object]:
        layer = pyclgemm.DenseLayer(
            operands.queue, b.T if case.trans_b else b, operands.device_bias, "relu",
            precision=operands.arithmetic.precision.name,
        )  # fmt: skip
        x = a.T if case.trans_a else a
        ready = layer.plan(x, out=out)
        return functools.partial(ready, x, out=out, add_event=False)

    calls = [call(*arrays) for arrays in operands.sets]
    return DeviceContender(LAYER, operands, calls, bias=operands.bias)


def _refuse_batch(name: str, operands: Operands) -> None:
    if operands.case.batch is not None:
        raise ValueError(f"{name} is for single products")


def clblast_contender(library: CLBlast, operands: Operands) -> DeviceContender:
    """Call CLBlast through ctypes with arguments that were converted before."""
    case = operands.case
    calls = [
        library.prepare(
            operands.queue, a, b, out, trans_a=case.trans_a, trans_b=case.trans_b,
            alpha=case.alpha, beta=case.beta,
        )
        for a, b, out in operands.sets
    ]  # fmt: skip
    dtype = operands.arithmetic.dtype
    precision = resolve_precision("F16_F16_F16" if dtype == "float16" else None, dtype)
    return DeviceContender(
        CLBLAST, operands, calls, precision=precision, launches=_CLBLAST_LAUNCHES
    )


class NumpyContender(Calls, CheckedContender):
    """``numpy.matmul`` into an array of its own, with NumPy's BLAS.

    It has no alpha and beta: only the product is timed, and `result` applies both. On a CPU each
    set has matrices of its own, as on the device.
    """

    def __init__(self, operands: Operands) -> None:
        dtype, case = operands.arithmetic.dtype, operands.case
        if dtype in ("float16", "bfloat16", "int8"):
            raise ValueError(f"NumPy multiplies {dtype} without a BLAS")
        self.precision = operands.arithmetic.plain
        self._operands = operands
        # `padded` writes to them, because the first access to new memory takes long.
        blank = np.zeros((*case.stack, case.m, case.n), operands.arithmetic.result_dtype)
        matrices = [*operands.host, blank]
        copies = [
            [padded(matrix, case.padding)[..., : matrix.shape[-1]] for matrix in matrices]
            for _ in range(len(operands.sets) if operands.on_cpu else 1)
        ]
        self.products = [
            (turned(a, case.trans_a), turned(b, case.trans_b), out) for a, b, out in copies
        ]
        calls = [functools.partial(np.matmul, a, b, out=out) for a, b, out in self.products]
        super().__init__(NUMPY, calls, unrest=OPENBLAS_UNREST)

    def poison(self) -> None:
        """Fill the result of the first set with NaN, and let the next call compute it."""
        self.products[0][2].fill(np.nan)
        self.restart()

    def result(self) -> NDArray[Any]:
        """Return the result of the first set, scaled."""
        product, case = self.products[0][2], self._operands.case
        if not case.is_scaled:
            return product
        scaled = case.alpha * product
        if self._operands.addend is not None:
            scaled += case.beta * self._operands.addend[..., : case.n]
        return np.asarray(scaled)
