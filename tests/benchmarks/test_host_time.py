"""Host time beyond pyopencl's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import host_time
from tests.support.benchmark_fakes import FakeTime


def test_host_time_counts_enqueueing_alone() -> None:
    time = FakeTime()

    def burst(seconds: float) -> host_time.Burst:
        def run(calls: int) -> None:
            time.seconds += calls * seconds

        return run

    def drain() -> None:
        time.seconds += 1.0

    times = host_time.measure_host_time(
        {host_time.BASELINE: burst(5e-6), "plan": burst(9e-6), "gemm": burst(25e-6)},
        drain, calls=10, rounds=5, rng=np.random.default_rng(0), clock=time.clock(),
    )  # fmt: skip
    table = host_time.summarise(times)
    np.testing.assert_allclose(table["beyond enqueue"], [0.0, 4.0, 20.0], atol=1e-6)
    assert list(table["within"]) == ["", "yes", "NO"]


@pytest.mark.parametrize(("arguments", "waits"), [(0, 0), (2, 1), (12, 3)])
def test_the_empty_kernel_can_be_enqueued(queue: Any, arguments: int, waits: int) -> None:
    host_time.enqueue_burst(queue, arguments, waits)(3)
    queue.finish()
