"""Queues: several threads at once, and what the library keeps for a queue goes with it."""

import gc
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.runtime.queue_state import PreparedCalls, queue_state
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.checks import skip_if_refused
from tests.support.configs import INDIRECT

THREADS = 4
ROUNDS = 100


@pytest.fixture
def in_threads():
    """Calls a function of a thread's number in several threads.

    They take turns as often as they can, so that a race is met within a short test.
    """

    def run(function):
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(function, range(THREADS)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield run
    sys.setswitchinterval(before)


def _multiply(queue, seed):
    """One size and so one kernel for all threads; values and alpha tell whose call it is."""
    rng = np.random.default_rng(seed)
    a, b = draw(rng, (33, 47), (47, 35))
    operands = upload(queue, a, b)
    alphas = rng.uniform(0.5, 2, ROUNDS).round(3).tolist()
    results = [pyclgemm.gemm(queue, *operands, alpha=alpha) for alpha in alphas]
    for alpha, out in zip(alphas, results, strict=True):
        assert_gemm(out, a, b, alpha=alpha)


@pytest.mark.parametrize("own_queues", [False, True], ids=["one queue", "own queues"])
def test_threads_that_multiply_at_once(context, queue, in_threads, own_queues):
    queues = [cl.CommandQueue(context) if own_queues else queue for _ in range(THREADS)]
    in_threads(lambda thread: _multiply(queues[thread], thread))


def test_first_call_of_a_context_in_several_threads(device, in_threads):
    # Nothing is built yet: the threads race to build the same kernel.
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    in_threads(lambda thread: _multiply(queue, thread))


def test_threads_that_share_a_packed_operand(queue, rng, in_threads):
    (b,) = draw(rng, (40, 50))
    packed = pyclgemm.pack(queue, *upload(queue, b))

    def multiply(thread):
        (a,) = draw(np.random.default_rng(thread), (20 + thread, 40))
        for _ in range(ROUNDS):
            assert_gemm(pyclgemm.gemm(queue, *upload(queue, a), packed), a, b)

    in_threads(multiply)


class _SlowTable(dict[Any, Any]):
    """Takes so long to let go of an entry that other threads find the same one to be the oldest."""

    def pop(self, *given):
        time.sleep(2e-3)
        return super().pop(*given)


def test_threads_that_push_out_what_others_prepared(queue, in_threads, monkeypatch):
    """With room for few prepared products, each call lets go of another thread's."""
    table = _SlowTable()
    prepared = PreparedCalls(2)
    monkeypatch.setattr(prepared, "_calls", table)
    monkeypatch.setattr(queue_state(queue), "prepared", prepared)

    def multiply(thread):
        rng = np.random.default_rng(thread)
        for rows in range(1 + thread, 20 * THREADS, THREADS):  # a product that is new each time
            a, b = draw(rng, (rows, 8), (8, 12))
            assert_gemm(pyclgemm.gemm(queue, *upload(queue, a, b)), a, b)

    in_threads(multiply)
    assert len(table) <= 2


# Memory


@pytest.fixture
def allocated(monkeypatch):
    """The buffers that are allocated from now on, without keeping them alive."""
    real = cl.Buffer
    buffers = weakref.WeakSet()

    class Buffer(real):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            buffers.add(self)

    monkeypatch.setattr(cl, "Buffer", Buffer)
    return buffers


def _use_a_queue(context, rng):
    queue = cl.CommandQueue(context)
    (a,) = draw(rng, (33, 47))
    (there,) = upload(queue, a)
    assert_gemm(pyclgemm.gemm(queue, there, there, trans_b=True, config=INDIRECT), a, a.T)
    arrays = upload(queue, np.ones((2, 3, 3, 3), np.float32), np.ones((3, 3), np.float32))
    pyclgemm.transform3d(queue, *arrays).get()


@pytest.mark.parametrize("own_context", [False, True], ids=["one context", "own contexts"])
def test_memory_of_queues_that_were_used_once(device, context, queue, rng, allocated, own_context):
    skip_if_refused(queue, INDIRECT)
    gc.collect()
    gc.disable()  # a queue's memory must not wait for the collector
    try:
        for _ in range(12):
            _use_a_queue(cl.Context([device]) if own_context else context, rng)
            assert not allocated, f"{len(allocated)} buffers outlive their queue"
    finally:
        gc.enable()


def test_a_plan_outlives_the_callers_queue(context, rng):
    (host,) = draw(rng, (9, 9))

    def make():
        queue = cl.CommandQueue(context)
        (a,) = upload(queue, host)
        return pyclgemm.plan(queue, a, a), a

    plan, a = make()
    gc.collect()
    assert_gemm(plan(a, a), host, host)


def test_two_objects_for_one_queue(context, rng):
    queue = cl.CommandQueue(context)
    (host,) = draw(rng, (20, 20))
    (a,) = upload(queue, host)
    for _ in range(5):
        other = cl.CommandQueue.from_int_ptr(queue.int_ptr, retain=True)
        assert_gemm(pyclgemm.gemm(other, a, a), host, host)
        del other
    assert_gemm(pyclgemm.gemm(queue, a, a), host, host)
