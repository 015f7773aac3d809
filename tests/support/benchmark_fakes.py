"""What the tests of the benchmarks share: a clock, contenders and records that are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.contenders.contenders import CLBLAST, CUBLAS, GEMM, LAYER, NUMPY, PLAN
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.session.burst import Clock, Pace
from benchmarks.session.measure import Timing
from benchmarks.session.session import Record, Session
from pyclgemm.measure.filled_queue import Blocker

FLOAT32 = arithmetic_of("float32")

FACTS = {
    "device": "Some Device",
    "platform": "Some Platform",
    "driver": "1.2",
    "date": "2026-01-02T03:04:05+00:00",
}


class FakeTime:
    """A clock that moves only when work or sleep is done."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept += seconds


class FakeContender:
    """Takes so many seconds a call, and a fixed time to wait."""

    precision = FLOAT32.precision
    bias = None
    launches: int | None = None
    blocker: Blocker | None = None

    def __init__(
        self, name: str, time: FakeTime, seconds: float, step: int = 1, value: Any = None
    ) -> None:
        self.name, self.step, self.unrest = name, step, 0.0
        self._time, self._seconds, self.value = time, seconds, value
        self.bursts: list[int] = []

    def enqueue(self, calls: int) -> None:
        assert calls % self.step == 0
        self.bursts.append(calls)
        self._time.seconds += calls * self._seconds

    def finish(self) -> None:
        self._time.seconds += 1e-5

    def poison(self) -> None:
        pass

    def result(self) -> Any:
        return self.value


class FakeDevice:
    """A device that works through its queue while the host goes on, and its blocker."""

    def __init__(self, time: FakeTime) -> None:
        self.time = time
        self.done_at = 0.0
        self.holds: list[float] = []

    def add(self, seconds: float) -> None:
        self.done_at = max(self.done_at, self.time.seconds) + seconds

    def hold(self, seconds: float) -> Callable[[], bool]:
        self.holds.append(seconds)
        self.add(seconds)
        end = self.done_at
        return lambda: self.time.seconds < end

    def finish(self) -> None:
        self.time.seconds = max(self.time.seconds, self.done_at) + 1e-5


class QueuedContender(FakeContender):
    """Each call costs the host so much, and the device so much."""

    def __init__(
        self, name: str, device: FakeDevice, host: float, seconds: float, launches: int | None = 1
    ) -> None:
        super().__init__(name, device.time, host)
        self.launches = launches
        self.host, self.device, self.device_seconds = host, device, seconds

    def enqueue(self, calls: int) -> None:
        self.enqueue_ahead(calls)

    def enqueue_ahead(self, calls: int) -> None:
        self.bursts.append(calls)
        for _ in range(calls):
            self._time.seconds += self.host
            self.device.add(self.device_seconds)

    def finish(self) -> None:
        self.device.finish()


def make_session(queue: Any, said: list[str], **factories: Any) -> Session:
    return Session(
        queue, factories, Pace(burst=1e-4, rounds=1), said.append, longest_product=float("inf")
    )


def fake_records(cases: list[Case]) -> list[Record]:
    """Speeds in GFLOPS: pyclgemm 40, gemm 38, DenseLayer 39, CLBlast 20, NumPy 10, cuBLAS 50."""
    speeds = {PLAN: 40, GEMM: 38, LAYER: 39, CLBLAST: 20, NUMPY: 10, CUBLAS: 50}
    return [
        Record(
            case, FLOAT32, name,
            Timing(3, tuple(case.flops("float32") / speed / 1e9 * part for part in (1, 0.9, 1.1))),
            1, 0.1,
        )
        for case in cases
        for name, speed in speeds.items()
    ]  # fmt: skip


class FakeTensor:
    """As much of a tensor of torch as the benchmarks use, on the host."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> FakeTensor:
        return FakeTensor(self.array[key])

    @property
    def T(self) -> FakeTensor:  # noqa: N802 - torch's name
        return FakeTensor(self.array.T)

    @property
    def mT(self) -> FakeTensor:  # noqa: N802 - torch's name
        return FakeTensor(self.array.swapaxes(-2, -1))

    def to(self, device: str) -> FakeTensor:
        return FakeTensor(self.array.copy())

    def clone(self) -> FakeTensor:
        return FakeTensor(self.array.copy())

    def contiguous(self) -> FakeTensor:
        return FakeTensor(np.ascontiguousarray(self.array))

    def view(self, dtype: Any) -> FakeTensor:
        return FakeTensor(self.array.view(dtype))

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> Any:
        if self.array.dtype.name == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array

    def fill_(self, value: float) -> None:
        self.array.fill(value)

    def copy_(self, other: FakeTensor) -> None:
        self.array[...] = other.array


class _Nothing:
    """A context manager and a stream that do nothing by themselves."""

    def __init__(self, *arguments: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        pass


class _Event:
    """Has happened once it is recorded, for all that was asked for is done at once."""

    recorded = False

    def record(self) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.recorded


class _Graph:
    """Products that were captured, to be replayed."""

    def __init__(self) -> None:
        self.products: list[Callable[[], None]] = []

    def replay(self) -> None:
        for product in self.products:
            product()


class FakeTorch:
    """As much of torch as the benchmarks use, on the host; notes which products it is asked for."""

    float32 = np.float32
    int16 = np.int16

    def __init__(self) -> None:
        import ml_dtypes

        self.bfloat16 = ml_dtypes.bfloat16
        self.called: list[str] = []
        self.slept: list[int] = []
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
        self._graph: _Graph | None = None

    @contextmanager
    def _capture(self, graph: _Graph) -> Iterator[None]:
        self._graph = graph
        yield
        self._graph = None

    def from_numpy(self, array: Any) -> FakeTensor:
        if array.dtype.name == "bfloat16":
            raise TypeError("can't convert np.ndarray of type ml_dtypes.bfloat16")
        return FakeTensor(array)

    def matmul(self, a: FakeTensor, b: FakeTensor, out: FakeTensor) -> None:
        assert out.array.dtype == a.array.dtype
        self._multiply("matmul", a, b, out)

    def mm(self, a: FakeTensor, b: FakeTensor, out_dtype: Any, out: FakeTensor) -> None:
        assert out.array.dtype == out_dtype
        self._multiply("mm", a, b, out)

    def _int_mm(self, a: FakeTensor, b: FakeTensor, out: FakeTensor) -> None:
        assert b.array.flags.f_contiguous
        self._multiply("_int_mm", a, b, out)

    def addmm(
        self, c: FakeTensor, a: FakeTensor, b: FakeTensor, *, out: FakeTensor, **factors: float
    ) -> None:
        assert c is out
        self._multiply("addmm", a, b, out, factors=(factors["alpha"], factors["beta"]))

    def _addmm_activation(
        self, bias: FakeTensor, a: FakeTensor, b: FakeTensor, out: FakeTensor
    ) -> None:
        self._multiply("_addmm_activation", a, b, out, bias)

    def _multiply(
        self,
        name: str,
        a: FakeTensor,
        b: FakeTensor,
        out: FakeTensor,
        bias: Any = None,
        factors: tuple[float, float] = (1.0, 0.0),
    ) -> None:
        self.called.append(name)

        def product() -> None:
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
