"""Several threads at once: a kernel object holds its arguments, so sharing one is a trap."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.runtime.queue_state import PreparedCalls, queue_state
from tests.support.reference import assert_close, expected_gemm, random_array

THREADS = 4
ROUNDS = 100


@pytest.fixture(autouse=True)
def eager_switching():
    """Threads take turns as often as they can, so that a race is met within a short test."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _work(queue, seed, multiply):
    rng = np.random.default_rng(seed)
    # All threads share one size, so one kernel; values and alpha tell whose call a result is of.
    a, b = random_array(rng, (33, 47), "float32"), random_array(rng, (47, 35), "float32")
    on_device = [cl_array.to_device(queue, x) for x in (a, b)]
    alphas = rng.uniform(0.5, 2, ROUNDS).round(3)
    results = [multiply(queue, *on_device, alpha=float(alpha)) for alpha in alphas]
    for alpha, out in zip(alphas, results, strict=True):
        assert_close(out.get(queue), expected_gemm(a, b, alpha=float(alpha)))


def _run_in_threads(queues, multiply):
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(_work, queue, seed, multiply) for seed, queue in enumerate(queues)]
        for job in jobs:
            job.result()


@pytest.mark.parametrize("own_queues", [False, True], ids=["one queue", "own queues"])
def test_threads_that_multiply_at_once(context, queue, own_queues):
    queues = [cl.CommandQueue(context) if own_queues else queue for _ in range(THREADS)]
    _run_in_threads(queues, pyclgemm.gemm)


def test_threads_that_share_a_packed_operand(queue, rng):
    b = random_array(rng, (40, 50), "float32")
    packed = pyclgemm.pack(queue, cl_array.to_device(queue, b))

    def multiply(index):
        own = random_array(np.random.default_rng(index), (20 + index, 40), "float32")
        for _ in range(ROUNDS):
            got = pyclgemm.gemm(queue, cl_array.to_device(queue, own), packed)
            assert_close(got.get(queue), expected_gemm(own, b))

    with ThreadPoolExecutor(THREADS) as pool:
        for job in [pool.submit(multiply, index) for index in range(THREADS)]:
            job.result()


def test_first_call_of_a_context_in_several_threads(device):
    # Nothing is built yet: the threads race to build the same kernel.
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    _run_in_threads([queue] * THREADS, pyclgemm.gemm)


class _SlowTable(dict[Any, Any]):
    """Takes so long to let go of an entry that other threads find the same one to be the oldest."""

    def pop(self, *given):
        time.sleep(2e-3)
        return super().pop(*given)


def test_threads_that_push_out_what_others_prepared(queue, monkeypatch):
    """With room for few prepared products, each call lets go of another thread's."""
    table = _SlowTable()
    prepared = PreparedCalls(2)
    monkeypatch.setattr(prepared, "_calls", table)
    monkeypatch.setattr(queue_state(queue), "prepared", prepared)

    def multiply(thread):
        rng = np.random.default_rng(thread)
        b = random_array(rng, (8, 12), "float32")
        for rows in range(1 + thread, 20 * THREADS, THREADS):  # a product that is new each time
            a = random_array(rng, (rows, 8), "float32")
            got = pyclgemm.gemm(queue, *(cl_array.to_device(queue, x) for x in (a, b)))
            assert_close(got.get(queue), expected_gemm(a, b))

    with ThreadPoolExecutor(THREADS) as pool:
        for job in [pool.submit(multiply, thread) for thread in range(THREADS)]:
            job.result()
    assert len(table) <= 2
