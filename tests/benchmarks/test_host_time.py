"""Host time beyond pyopencl's own."""

import numpy as np
import pytest

import pyclgemm
from benchmarks import host_time
from benchmarks.session.host_worker import BASELINE, enqueue_burst, own_bursts


def test_the_baseline_is_subtracted_round_by_round():
    slept = []
    each = {BASELINE: 5e-6, "plan new": 9e-6, "gemm new": 25e-6}

    def burst(seconds):
        return lambda calls: calls * seconds

    times = host_time.measure_host_time(
        {name: burst(seconds) for name, seconds in each.items()},
        calls=10, rounds=5, rng=np.random.default_rng(0), sleep=slept.append,
    )  # fmt: skip
    assert sum(slept) == pytest.approx(4 * 5 * 10 * sum(each.values()))
    table = host_time.summarise(times)
    np.testing.assert_allclose(table["beyond enqueue"], [0.0, 4.0, 20.0], atol=1e-6)
    assert list(table["within"]) == ["", "yes", "NO"]


@pytest.mark.parametrize(("arguments", "waits"), [(0, 0), (2, 1), (12, 3)])
def test_the_empty_kernel_can_be_enqueued(queue, arguments, waits):
    enqueue_burst(queue, arguments, waits)(3)
    queue.finish()


def test_calls_are_checked(queue, monkeypatch):
    bursts, waits = own_bursts(pyclgemm, queue, 5)
    assert list(bursts) == list(host_time.CALLS) and waits > 0
    monkeypatch.setattr(pyclgemm, "gemm", lambda *arguments, **options: None)
    with pytest.raises(SystemExit, match="gemm of .* is wrong"):
        own_bursts(pyclgemm, queue, 5)
