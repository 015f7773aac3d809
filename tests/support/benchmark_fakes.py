"""What the tests of the benchmarks share: small products and their records, and a torch."""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np

from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.operands import make_operands
from benchmarks.session.session import Record
from pyclgemm.measure.bench import Timing

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


def make_float32(queue, case, **options):
    return make_operands(case, FLOAT32, queue, np.random.default_rng(0), **options)


def call_once(contender, operands, calls=1):
    """Poison the result, call, and measure the error of what comes out."""
    contender.poison()
    contender.enqueue(calls)
    contender.finish()
    return operands.error(contender.result(), contender.precision, contender.bias)


def record_of(case, name, *seconds, arithmetic=FLOAT32, error=1e-7):
    return Record(case, arithmetic, name, Timing(3, seconds), 1, 0.1, error)


class FakeTensor(np.ndarray):
    """As much of a tensor of torch as the benchmarks use, on the host."""

    clone = contiguous = np.ndarray.copy
    fill_ = np.ndarray.fill

    @property
    def mT(self):  # noqa: N802 - torch's name
        return self.swapaxes(-2, -1)

    def to(self, device):
        return self.copy()

    def cpu(self):
        return self

    def numpy(self):
        if self.dtype.name == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.asarray(self)

    def copy_(self, other):
        self[...] = other


class FakeTorch:
    """As much of torch as the benchmarks use, on the host; notes which products it is asked for."""

    float32, int16, bfloat16 = np.float32, np.int16, ml_dtypes.bfloat16

    def __init__(self):
        self.called, self.slept = [], []
        self._captured = None
        flags = SimpleNamespace(
            allow_tf32=None,
            allow_fp16_reduced_precision_reduction=True,
            allow_bf16_reduced_precision_reduction=True,
            allow_fp16_accumulation=None,
        )
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=flags))
        self.cuda = MagicMock(_sleep=self.slept.append, graph=self._capture)
        self.cuda.CUDAGraph = SimpleNamespace

    @contextmanager
    def _capture(self, graph):
        products = self._captured = []
        yield
        self._captured = None
        graph.replay = lambda: [product() for product in products]

    def from_numpy(self, array):
        if array.dtype.name == "bfloat16":
            raise TypeError("can't convert np.ndarray of type ml_dtypes.bfloat16")
        return array.view(FakeTensor)

    def matmul(self, a, b, out):
        assert out.dtype == a.dtype
        self._multiply("matmul", a, b, out)

    def mm(self, a, b, out_dtype, out):
        assert out.dtype == out_dtype
        self._multiply("mm", a, b, out)

    def _int_mm(self, a, b, out):
        assert b.flags.f_contiguous
        self._multiply("_int_mm", a, b, out)

    def addmm(self, c, a, b, *, out, alpha, beta):
        assert c is out
        self._multiply("addmm", a, b, out, alpha=alpha, beta=beta)

    def _addmm_activation(self, bias, a, b, out):
        self._multiply("_addmm_activation", a, b, out, bias)

    def _multiply(self, name, a, b, out, bias=None, alpha=1.0, beta=0.0):
        self.called.append(name)

        def product():
            value = alpha * (a.astype(float) @ b.astype(float))
            if beta:
                value += beta * out.astype(float)
            if bias is not None:
                value = np.maximum(value + bias.astype(float), 0)
            out[...] = value.astype(out.dtype)

        if self._captured is None:
            product()
        else:
            self._captured.append(product)
