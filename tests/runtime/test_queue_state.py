"""What the library keeps for a queue goes with the queue."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.checks import skip_if_refused
from tests.support.configs import INDIRECT
from tests.support.reference import assert_close, expected_gemm, random_array


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


def _use(context, rng):
    queue = cl.CommandQueue(context)
    a = random_array(rng, (33, 47), "float32")
    on_device = cl_array.to_device(queue, a)
    got = pyclgemm.gemm(queue, on_device, on_device, trans_b=True, config=INDIRECT)
    assert_close(got.get(), expected_gemm(a, a.T))
    tensors = cl_array.to_device(queue, np.ones((2, 3, 3, 3), np.float32))
    matrix = cl_array.to_device(queue, np.ones((3, 3), np.float32))
    pyclgemm.transform3d(queue, tensors, matrix).get()


@pytest.mark.parametrize("own_context", [False, True], ids=["one context", "own contexts"])
def test_memory_of_queues_that_were_used_once(device, context, queue, rng, allocated, own_context):
    skip_if_refused(queue, INDIRECT)
    gc.collect()
    gc.disable()  # a queue's memory must not wait for the collector
    try:
        for _ in range(12):
            _use(cl.Context([device]) if own_context else context, rng)
            assert not allocated, f"{len(allocated)} buffers outlive their queue"
    finally:
        gc.enable()


def test_a_plan_outlives_the_callers_queue(context, rng):
    def make():
        queue = cl.CommandQueue(context)
        a = cl_array.to_device(queue, random_array(rng, (9, 9), "float32"))
        return pyclgemm.plan(queue, a, a), a

    plan, a = make()
    gc.collect()
    assert_close(plan(a, a).get(), expected_gemm(a.get(), a.get()))


def test_two_objects_for_one_queue(context, rng):
    queue = cl.CommandQueue(context)
    a = random_array(rng, (20, 20), "float32")
    on_device = cl_array.to_device(queue, a)
    for _ in range(5):
        other = cl.CommandQueue.from_int_ptr(queue.int_ptr, retain=True)
        got = pyclgemm.gemm(other, on_device, on_device)
        assert_close(got.get(), expected_gemm(a, a))
        del other
    assert_close(pyclgemm.gemm(queue, on_device, on_device).get(), expected_gemm(a, a))
