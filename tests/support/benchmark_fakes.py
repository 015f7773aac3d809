"""What the tests of the benchmarks share: contenders and records that are made up, and a torch."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.contenders.contenders import (
    CLBLAST,
    CUBLAS,
    GEMM,
    LAYER,
    NUMPY,
    PLAN,
    CheckedContender,
)
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.operands import make_operands
from benchmarks.session.session import Record, Session
from pyclgemm.measure.bench import Pace, Timing
from tests.support.bench_fakes import FakeContender, FakeTime

FLOAT32 = arithmetic_of("float32")

#: Element type, precision and type of the result.
KINDS = [
    ("float16", None, None), ("float16", None, "float32"), ("float16", "F16_F16_F16", None),
    ("bfloat16", None, None), ("bfloat16", None, "float32"), ("float32", "TF32_TF32_F32", None),
    ("float32", "BF16_BF16_F32_X3", None), ("float64", None, None), ("int8", None, None),
]  # fmt: skip

FACTS = {
    "device": "Some Device",
    "platform": "Some Platform",
    "driver": "1.2",
    "date": "2026-01-02T03:04:05+00:00",
}


class Checked(CheckedContender):
    """Gives a result that was made before."""

    precision = FLOAT32.precision
    value: Any

    def poison(self):
        pass

    def result(self):
        return self.value


class CheckedFake(Checked, FakeContender):
    """Takes a millisecond a call."""

    def __init__(self, name, value, time=None):
        super().__init__(name, time or FakeTime(), 1e-3)
        self.value = value


def make_float32(queue, case, **options):
    return make_operands(case, FLOAT32, queue, np.random.default_rng(0), **options)


def call_once(contender, operands, calls=1):
    """Poison the result, call, and measure the error of what comes out."""
    contender.poison()
    contender.enqueue(calls)
    contender.finish()
    return operands.error(contender.result(), contender.precision, contender.bias)


def make_session(queue, said, **factories):
    pace = Pace(burst=1e-4, rest=4.0, rounds=1)
    return Session(queue, factories, pace, said.append, longest_product=float("inf"))


def measure(session, *cases):
    """Run a session; the parts of the work that it reports."""
    parts = []
    session.run(cases, FLOAT32, parts.append)
    return parts


def product(operands):
    """What NumPy makes of the first set."""
    return operands.host[0] @ operands.host[1]


def raising(error):
    """A maker of contenders that fails."""

    def make(operands):
        raise error

    return make


def record_of(case, name, *seconds, arithmetic=FLOAT32, error=1e-07):
    return Record(case, arithmetic, name, Timing(3, seconds), 1, 0.1, error)


def fake_records(cases):
    """Speeds in GFLOPS: pyclgemm 40, gemm 38, DenseLayer 39, CLBlast 20, NumPy 10, cuBLAS 50."""
    speeds = {PLAN: 40, GEMM: 38, LAYER: 39, CLBLAST: 20, NUMPY: 10, CUBLAS: 50}
    return [
        record_of(
            case, name, *(case.flops("float32") / speed / 1e9 * part for part in (1, 0.9, 1.1))
        )
        for case in cases
        for name, speed in speeds.items()
    ]


class FakeTensor:
    """As much of a tensor of torch as the benchmarks use, on the host."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, key):
        return FakeTensor(self.array[key])

    @property
    def T(self):  # noqa: N802 - torch's name
        return FakeTensor(self.array.T)

    @property
    def mT(self):  # noqa: N802 - torch's name
        return FakeTensor(self.array.swapaxes(-2, -1))

    def to(self, device):
        return FakeTensor(self.array.copy())

    def clone(self):
        return FakeTensor(self.array.copy())

    def contiguous(self):
        return FakeTensor(np.ascontiguousarray(self.array))

    def view(self, dtype):
        return FakeTensor(self.array.view(dtype))

    def cpu(self):
        return self

    def numpy(self):
        if self.array.dtype.name == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array

    def fill_(self, value):
        self.array.fill(value)

    def copy_(self, other):
        self.array[...] = other.array


class _Nothing:
    """A context manager and a stream that do nothing by themselves."""

    def __init__(self, *arguments):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass

    def wait_stream(self, other):
        pass


class _Event:
    """Has happened once it is recorded, for all that was asked for is done at once."""

    recorded = False

    def record(self):
        self.recorded = True

    def query(self):
        return self.recorded


class _Graph:
    """Products that were captured, to be replayed."""

    def __init__(self):
        self.products = []

    def replay(self):
        for product in self.products:
            product()


class FakeTorch:
    """As much of torch as the benchmarks use, on the host; notes which products it is asked for."""

    float32 = np.float32
    int16 = np.int16

    def __init__(self):
        import ml_dtypes

        self.bfloat16 = ml_dtypes.bfloat16
        self.called = []
        self.slept = []
        flags = SimpleNamespace(
            allow_tf32=None,
            allow_fp16_reduced_precision_reduction=True,
            allow_bf16_reduced_precision_reduction=True,
            allow_fp16_accumulation=None,
        )
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=flags))
        self.cuda = SimpleNamespace(
            device=_Nothing, Stream=_Nothing, stream=_Nothing, CUDAGraph=_Graph,
            graph=self._capture, current_stream=_Nothing, synchronize=lambda index=0: None,
            Event=_Event, _sleep=self.slept.append,
        )  # fmt: skip
        self._graph = None

    @contextmanager
    def _capture(self, graph):
        self._graph = graph
        yield
        self._graph = None

    def from_numpy(self, array):
        if array.dtype.name == "bfloat16":
            raise TypeError("can't convert np.ndarray of type ml_dtypes.bfloat16")
        return FakeTensor(array)

    def matmul(self, a, b, out):
        assert out.array.dtype == a.array.dtype
        self._multiply("matmul", a, b, out)

    def mm(self, a, b, out_dtype, out):
        assert out.array.dtype == out_dtype
        self._multiply("mm", a, b, out)

    def _int_mm(self, a, b, out):
        assert b.array.flags.f_contiguous
        self._multiply("_int_mm", a, b, out)

    def addmm(self, c, a, b, *, out, **factors):
        assert c is out
        self._multiply("addmm", a, b, out, factors=(factors["alpha"], factors["beta"]))

    def _addmm_activation(self, bias, a, b, out):
        self._multiply("_addmm_activation", a, b, out, bias)

    def _multiply(self, name, a, b, out, bias=None, factors=(1.0, 0.0)):
        self.called.append(name)

        def product():
            value = a.array.astype(float) @ b.array.astype(float)
            if factors != (1.0, 0.0):
                value = factors[0] * value + factors[1] * out.array.astype(float)
            if bias is not None:
                value = np.maximum(value + bias.array.astype(float), 0)
            out.array[...] = value.astype(out.array.dtype)

        if self._graph is None:
            product()
        else:
            self._graph.products.append(product)
