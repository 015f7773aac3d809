"""What gemm waits for, what it leaves behind to wait for, and that the host never waits."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.checks import skip_if_refused
from tests.support.configs import INDIRECT
from tests.support.gates import is_complete
from tests.support.reference import assert_close, expected_gemm, random_array


@pytest.fixture
def hosts(rng):
    return random_array(rng, (37, 53), "float32"), random_array(rng, (53, 29), "float32")


@pytest.fixture
def arrays(fresh_queue, hosts):
    """The same on the device."""
    return [cl_array.to_device(fresh_queue, host) for host in hosts]


def opened(gate, event):
    """Assert that an event waits for the gate, and open it."""
    assert not is_complete(event)
    gate.open()
    event.wait()


def test_return_event_belongs_to_the_result(fresh_queue, arrays, hosts):
    result = pyclgemm.gemm(fresh_queue, *arrays, return_event=True)
    assert isinstance(result, tuple)
    out, event = result
    assert isinstance(event, cl.Event)
    event.wait()
    assert_close(out.get(), expected_gemm(*hosts))


def test_destination_gets_the_event(fresh_queue, arrays):
    out = cl_array.empty(fresh_queue, (37, 29), np.float32)
    out.finish()
    _, event = pyclgemm.gemm(fresh_queue, *arrays, out=out, return_event=True)
    assert event in out.events
    assert len(pyclgemm.gemm(fresh_queue, *arrays).events) >= 1


@pytest.mark.parametrize("sizes", [(3, 0, 2), (3, 4, 0)], ids=["empty", "k zero"])
def test_return_event_when_there_is_little_to_do(queue, sizes):
    m, n, k = sizes
    a, b = (cl_array.zeros(queue, shape, np.float32) for shape in [(m, k), (k, n)])
    out, event = pyclgemm.gemm(queue, a, b, return_event=True)
    event.wait()
    assert out.shape == (m, n)


def test_numpy_result_with_event(queue, hosts):
    out, event = pyclgemm.gemm(queue, *hosts, return_event=True)
    event.wait()
    assert_close(out, expected_gemm(*hosts))


def test_waits_for_wait_for_and_returns_at_once(fresh_queue, gate, arrays, hosts):
    out, event = gate.call(
        lambda: pyclgemm.gemm(fresh_queue, *arrays, wait_for=[gate.event], return_event=True)
    )
    fresh_queue.flush()
    opened(gate, event)
    assert_close(out.get(), expected_gemm(*hosts))


@pytest.mark.parametrize("name", ["a", "b", "c", "out", "bias"])
def test_waits_for_the_events_of_every_array(fresh_queue, gate, hosts, rng, name):
    c, bias = random_array(rng, (37, 29), "float32"), random_array(rng, (29,), "float32")
    host = {"a": hosts[0], "b": hosts[1], "c": c, "out": np.zeros_like(c), "bias": bias}
    arrays = {key: cl_array.to_device(fresh_queue, value) for key, value in host.items()}
    arrays[name].add_event(gate.event)
    epilogue = pyclgemm.Epilogue(bias=arrays.pop("bias"))
    out, event = gate.call(
        lambda: pyclgemm.gemm(fresh_queue, **arrays, beta=1, epilogue=epilogue, return_event=True)
    )
    fresh_queue.flush()
    opened(gate, event)
    assert_close(out.get(), expected_gemm(*hosts, c, beta=1, bias=bias))


def test_operand_that_another_queue_still_writes(context, fresh_queue, gate, arrays, hosts):
    producer = cl.CommandQueue(context)
    a = cl_array.Array(producer, hosts[0].shape, np.float32)
    cl.enqueue_copy(producer, a.base_data, np.full_like(hosts[0], np.nan))
    late = cl.enqueue_copy(
        producer, a.base_data, hosts[0], wait_for=[gate.event], is_blocking=False
    )
    a.add_event(late)
    out, event = gate.call(lambda: pyclgemm.gemm(fresh_queue, a, arrays[1], return_event=True))
    fresh_queue.flush()
    assert not is_complete(event)
    gate.open()
    producer.flush()
    event.wait()
    assert_close(out.get(), expected_gemm(*hosts))


def test_results_flow_from_queue_to_queue(context, rng):
    queues = [cl.CommandQueue(context) for _ in range(2)]
    host = random_array(rng, (31, 31), "float32")
    x = out = cl_array.to_device(queues[0], host)
    for step in range(4):
        out = pyclgemm.gemm(queues[step % 2], out, x)
    expected = np.linalg.matrix_power(host.astype(np.float64), 5)
    # Errors of four products in turn: entries grow by at most 31 each time.
    np.testing.assert_allclose(out.get(), expected, atol=4 * 41 * 2.0**-23 * 31**3)


def test_many_calls_onto_one_destination_do_not_block(fresh_queue, gate, arrays, hosts):
    out = cl_array.empty(fresh_queue, (37, 29), np.float32)

    def many():
        pyclgemm.gemm(fresh_queue, *arrays, out=out, wait_for=[gate.event])
        for _ in range(40):
            pyclgemm.gemm(fresh_queue, *arrays, out=out)

    gate.call(many)
    assert len(out.events) <= 12
    assert not all(is_complete(event) for event in out.events)
    gate.open()
    assert_close(out.get(), expected_gemm(*hosts))


def test_many_calls_that_read_one_operand_do_not_block(fresh_queue, gate, arrays, hosts):
    def many():
        first = pyclgemm.gemm(fresh_queue, *arrays, wait_for=[gate.event])
        return [first] + [pyclgemm.gemm(fresh_queue, *arrays) for _ in range(40)]

    results = gate.call(many)
    assert len(arrays[0].events) <= 12
    gate.open()
    for out in results:
        assert_close(out.get(), expected_gemm(*hosts))


def test_alternating_queues_onto_one_destination(context, rng):
    queues = [cl.CommandQueue(context) for _ in range(2)]
    a, b = (random_array(rng, (33, 33), "float32") for _ in range(2))
    on_device = [cl_array.to_device(queues[0], x) for x in (a, b)]
    out = cl_array.zeros(queues[0], (33, 33), np.float32)
    for step in range(20):
        pyclgemm.gemm(queues[step % 2], *on_device, out, beta=1, out=out)
    for event in out.events:
        event.wait()
    expected = expected_gemm(a, b, alpha=20.0)
    # The sum is rounded after each of twenty steps.
    np.testing.assert_array_less(abs(out.get() - expected.value), 2 * expected.bound)


@pytest.mark.parametrize("wait_for", [None, [], ()], ids=repr)
def test_nothing_to_wait_for(queue, hosts, wait_for):
    got = pyclgemm.gemm(queue, *hosts, wait_for=wait_for)
    assert_close(got, expected_gemm(*hosts))


def test_out_of_order_queue(out_of_order_queue, hosts):
    """Several launches, each of which needs the one before."""
    queue = out_of_order_queue
    skip_if_refused(queue, INDIRECT)
    a, b = (cl_array.to_device(queue, x) for x in hosts)
    for _ in range(5):
        out = pyclgemm.gemm(queue, a, b, config=INDIRECT)
        for event in out.events:
            event.wait()
        assert_close(out.get(), expected_gemm(*hosts))
