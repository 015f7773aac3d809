"""Small products, their records, and a fake of torch for the tests of the benchmarks."""

from contextlib import contextmanager
from functools import partial
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
    """Poison the result, call the contender, and measure the error of the new result."""
    contender.poison()
    contender.enqueue(calls)
    contender.finish()
    return operands.error(contender.result(), contender.precision, contender.bias)


def records_of(case, times, arithmetic=FLOAT32, error=1e-7):
    """Records of contenders on a case; `times` has the seconds of a sample, or of several."""
    timings = {name: Timing(3, tuple(np.atleast_1d(seconds))) for name, seconds in times.items()}
    return [Record(case, arithmetic, name, timings[name], 1, 0.1, error) for name in timings]


class FakeTensor(np.ndarray):
    """The parts of a tensor of torch that the benchmarks use, on the host."""

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
    """The parts of torch that the benchmarks use, on the host; records the names of products."""

    float32, int16, bfloat16 = np.float32, np.int16, ml_dtypes.bfloat16

    def __init__(self):
        self.called, self._products = [], []
        for name in ("matmul", "mm", "_int_mm", "addmm", "_addmm_activation"):
            setattr(self, name, partial(self._multiply, name))
        self.backends = MagicMock()
        self.cuda = MagicMock(graph=self._capture)
        self.cuda.CUDAGraph = SimpleNamespace

    @contextmanager
    def _capture(self, graph):
        first = len(self._products)
        yield
        captured = self._products[first:]
        graph.replay = lambda: [product() for product in captured]

    def from_numpy(self, array):
        if array.dtype.name == "bfloat16":
            raise TypeError("can't convert np.ndarray of type ml_dtypes.bfloat16")
        return array.view(FakeTensor)

    def _multiply(self, name, *operands, out, out_dtype=None, alpha=1.0, beta=0.0):
        """Multiply the last two operands; an addend or a bias may come before them."""
        *added, a, b = operands
        self.called.append(name)
        assert out.dtype == {"matmul": a.dtype, "mm": out_dtype}.get(name, out.dtype)
        assert name != "_int_mm" or b.flags.f_contiguous
        assert name != "addmm" or added[0] is out

        def product():
            value = alpha * (a.astype(float) @ b.astype(float))
            if name == "addmm":
                value += beta * out.astype(float)
            elif added:
                value = np.maximum(value + added[0].astype(float), 0)
            out[...] = value.astype(out.dtype)

        product()
        self._products.append(product)
