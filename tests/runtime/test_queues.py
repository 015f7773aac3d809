"""Queues: events and waiting, several threads at once, and memory that goes with a queue."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.runtime import launcher as enqueue, queue_state as queue_states
from pyclgemm.runtime.launcher import KernelLaunch
from pyclgemm.runtime.memory import to_host
from pyclgemm.runtime.queue_state import PreparedCalls, queue_state
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.configs import INDIRECT
from tests.support.gates import is_complete
from tests.support.reference import expected_gemm


@pytest.fixture
def hosts(rng):
    return draw(rng, (37, 53), (53, 29))


@pytest.fixture
def arrays(fresh_queue, hosts):
    """Copies of `hosts` on the device."""
    return upload(fresh_queue, *hosts)


@pytest.mark.parametrize(
    ("result", "wait_for"), [("new", None), ("given", []), ("host", ())], ids=str
)
def test_return_event_belongs_to_the_result(fresh_queue, arrays, hosts, result, wait_for):
    operands = hosts if result == "host" else arrays
    given = cl_array.empty(fresh_queue, (37, 29), np.float32) if result == "given" else None
    options = {"out": given, "wait_for": wait_for, "return_event": True}
    out, event = pyclgemm.gemm(fresh_queue, *operands, **options)
    event.wait()
    assert result == "host" or event in out.events
    assert_gemm(out, *hosts)


@pytest.mark.parametrize("name", ["wait_for", "a", "b", "c", "out", "bias"])
def test_waits_for_the_events_of_every_array_and_returns_at_once(fresh_queue, gate, rng, name):
    host = draw(rng, (37, 53), (53, 29), (37, 29), (37, 29), (29,))
    *arrays, bias = upload(fresh_queue, *host)
    given = dict(zip(("a", "b", "c", "out"), arrays, strict=True))
    waited_for = given | {"bias": bias}
    if name in waited_for:
        waited_for[name].add_event(gate.event)
    else:
        given["wait_for"] = [gate.event]
    given |= {"beta": 1, "epilogue": pyclgemm.Epilogue(bias=bias), "return_event": True}
    out, event = gate.call(lambda: pyclgemm.gemm(fresh_queue, **given))
    fresh_queue.flush()
    assert not is_complete(event)
    gate.open()
    event.wait()
    assert_gemm(out, *host[:3], beta=1, bias=host[4])


def test_alternating_queues_onto_one_destination(context, rng):
    queues = [cl.CommandQueue(context) for _ in range(2)]
    hosts = draw(rng, (33, 33), (33, 33))
    a, b, out = upload(queues[0], *hosts, np.zeros((33, 33), np.float32))
    for step in range(20):
        pyclgemm.gemm(queues[step % 2], a, b, out, beta=1, out=out)
    cl.wait_for_events(out.events)
    expected = expected_gemm(*hosts, alpha=20.0)
    # The sum is rounded after each of twenty steps.
    np.testing.assert_array_less(abs(out.get() - expected.value), 2 * expected.bound)


def test_queues_that_wait_for_each_other_are_flushed(context, rng, monkeypatch):
    # Without it a runtime that sends commands in batches may wait for ever.
    first, second = (cl.CommandQueue(context) for _ in range(2))
    hosts = draw(rng, (33, 33), (33, 33))
    a, b, out = upload(first, *hosts, np.zeros((33, 33), np.float32))
    handles = one, other = first.int_ptr, second.int_ptr
    flushed, flush = [], cl.CommandQueue.flush

    def flush_and_tell(queue):
        if queue.int_ptr in handles:  # others are flushed as they are collected as garbage
            flushed.append(queue.int_ptr)
        flush(queue)

    monkeypatch.setattr(cl.CommandQueue, "flush", flush_and_tell)
    for queue, expected in [(first, []), (second, [one, other]), (first, [])]:
        flushed.clear()
        pyclgemm.gemm(queue, a, b, out, beta=1, out=out)
        assert flushed == expected
    assert_gemm(out, *hosts, alpha=3)
    for queue, expected in [(first, []), (second, [one])]:
        flushed.clear()
        np.testing.assert_array_equal(to_host(queue, a), hosts[0])
        assert flushed == expected


@pytest.mark.parametrize("onto_one", [False, True], ids=["one operand", "one destination"])
def test_many_calls_do_not_block(fresh_queue, gate, arrays, hosts, onto_one):
    out = cl_array.empty(fresh_queue, (37, 29), np.float32) if onto_one else None
    waits = [[gate.event], *40 * [None]]
    results = gate.call(
        lambda: [pyclgemm.gemm(fresh_queue, *arrays, out=out, wait_for=one) for one in waits]
    )
    assert len((out if onto_one else arrays[0]).events) <= 12
    assert not any(all(map(is_complete, one.events)) for one in results)
    gate.open()
    for one in results:
        assert_gemm(one, *hosts)


@pytest.mark.parametrize("way", ["directly", "by pyopencl", "hidden"])
def test_a_launch_without_an_event_keeps_the_order(fresh_queue, gate, monkeypatch, way):
    # A kernel is enqueued by OpenCL's function or by pyopencl, on every device.
    monkeypatch.setattr(enqueue, "_events_cost", lambda device: way != "by pyopencl")
    if way == "hidden":
        monkeypatch.setattr(enqueue, "_enqueue_function", lambda: None)
    source = "__kernel void add(__global int *x) { x[get_global_id(0)] += 1; }"
    kernel = cl.Kernel(cl.Program(fresh_queue.context, source).build(), "add")
    numbers = cl_array.zeros(fresh_queue, 64, np.int32)
    kernel.set_args(numbers.base_data)
    launch = KernelLaunch(fresh_queue, kernel, (64,), (16,))
    for _ in range(3):
        assert launch.without_event(None) is None
    with pytest.raises(cl.Error, match=r"clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE"):
        KernelLaunch(fresh_queue, kernel, (64,), (48,)).without_event(None)
    assert set(numbers.get().tolist()) == {3}
    # A launch waits for events.
    launch.without_event([gate.event, gate.event])
    marker = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    assert not is_complete(marker)
    gate.open()
    marker.wait()


def test_events_are_avoided_on_other_devices_than_cpus(queue, monkeypatch):
    assert enqueue._events_cost(queue.device) == (queue.device.type != cl.device_type.CPU)
    # An OpenCL library may lack the function.
    monkeypatch.setattr(enqueue.ctypes, "CDLL", lambda path: object())
    assert enqueue._enqueue_function.__wrapped__() is None


class _SlowTable(dict[Any, Any]):
    """Drops an entry so slowly that other threads find the same one to be the oldest."""

    def pop(self, *given):
        time.sleep(2e-3)
        return super().pop(*given)


def test_threads_that_drop_the_prepared_calls_of_others(queue, monkeypatch):
    """With room for two prepared calls, each call drops one of another thread."""
    count, table = 4, _SlowTable()
    prepared = PreparedCalls(2)
    monkeypatch.setattr(prepared, "_calls", table)
    monkeypatch.setattr(queue_state(queue), "prepared", prepared)

    def multiply(thread):
        rng = np.random.default_rng(thread)
        for rows in range(1 + thread, 20 * count, count):  # each product is new
            a, b = draw(rng, (rows, 8), (8, 12))
            assert_gemm(pyclgemm.gemm(queue, *upload(queue, a, b)), a, b)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(multiply, range(count)))
    assert len(table) <= 2


def test_a_plan_outlives_the_callers_queue(context, rng):
    (host,) = draw(rng, (9, 9))

    def make():
        queue = cl.CommandQueue(context)
        (a,) = upload(queue, host)
        return pyclgemm.plan(queue, a, a), a

    plan, a = make()
    gc.collect()
    assert_gemm(plan(a, a), host, host)


def _kept():
    """The device memory and the kernels that this process keeps."""
    return sum(isinstance(one, (cl.Buffer, cl.Kernel)) for one in gc.get_objects())


def _use(queue, rng):
    """Multiply in each way that keeps something for the queue, a workspace among it."""
    a, b = draw(rng, (40, 300), (300, 40))
    arrays = upload(queue, a, b)
    layer = pyclgemm.DenseLayer(queue, b)
    for got in (
        pyclgemm.gemm(queue, *arrays), pyclgemm.plan(queue, *arrays)(*arrays), layer(a),
        pyclgemm.gemm(queue, *arrays, config=INDIRECT),
    ):  # fmt: skip
        assert_gemm(got, a, b)


def test_queues_used_once_keep_nothing(context, rng):
    _use(cl.CommandQueue(context), rng)  # what all queues share
    gc.collect()
    before = _kept()
    gc.disable()  # memory must not wait for it
    try:
        for _ in range(100):
            _use(cl.CommandQueue(context), rng)
        assert _kept() <= before
    finally:
        gc.enable()


def test_of_many_queues_that_live_the_last_ones_keep_their_calls(context, rng, monkeypatch):
    queues = [cl.CommandQueue(context) for _ in range(12)]

    def use(number, most):
        monkeypatch.setattr(queue_states, "MOST_QUEUES", most)
        for queue in queues[:number]:  # at the second time, also queues whose calls were dropped
            _use(queue, rng)
        gc.collect()
        return _kept()

    assert use(4, 3) == use(12, 3) == use(12, 3) < use(12, 6)


def test_two_objects_for_one_queue(context, rng):
    queue = cl.CommandQueue(context)
    (host,) = draw(rng, (20, 20))
    (a,) = upload(queue, host)
    for _ in range(5):
        other = cl.CommandQueue.from_int_ptr(queue.int_ptr, retain=True)
        assert_gemm(pyclgemm.gemm(other, a, a), host, host)
        del other
    assert_gemm(pyclgemm.gemm(queue, a, a), host, host)
