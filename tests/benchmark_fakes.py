"""What the tests of the benchmarks share: a clock, contenders and records that are made up."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if not all(map(importlib.util.find_spec, ("click", "matplotlib", "pandas", "pyopencl", "rich"))):
    pytest.skip("the benchmarks need click, matplotlib, pandas and rich", allow_module_level=True)

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from benchmarks.burst import Clock, Pace
from benchmarks.case import Case
from benchmarks.contenders import CLBLAST, CUBLAS, GEMM, LAYER, NUMPY, PLAN
from benchmarks.measure import Timing
from benchmarks.session import Session

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

    arithmetic = "float32"
    bias = None
    launches: int | None = None

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


def fake_records(cases: list[Case]) -> list[report.Record]:
    """Speeds in GFLOPS: pyclgemm 40, gemm 38, DenseLayer 39, CLBlast 20, NumPy 10, cuBLAS 50."""
    speeds = {PLAN: 40, GEMM: 38, LAYER: 39, CLBLAST: 20, NUMPY: 10, CUBLAS: 50}
    return [
        report.Record(
            case, "float32", name,
            Timing(3, tuple(case.flops("float32") / speed / 1e9 * part for part in (1, 0.9, 1.1))),
            1, 0.1,
        )
        for case in cases
        for name, speed in speeds.items()
    ]  # fmt: skip
