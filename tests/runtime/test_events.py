"""What gemm waits for, what it leaves behind to wait for, and that the host never waits."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.checks import skip_if_refused
from tests.support.gates import is_complete
from tests.support.reference import assert_close, expected_gemm, random_array


@pytest.fixture
def hosts(rng):
    return random_array(rng, (37, 53), "float32"), random_array(rng, (53, 29), "float32")


def test_return_event_belongs_to_the_result(queue, hosts):
    a, b = (cl_array.to_device(queue, x) for x in hosts)
    result = pyclgemm.gemm(queue, a, b, return_event=True)
    assert isinstance(result, tuple)
    out, event = result
    assert isinstance(event, cl.Event)
    event.wait()
    assert_close(out.get(), expected_gemm(*hosts))


def test_destination_gets_the_event(queue, hosts):
    a, b = (cl_array.to_device(queue, x) for x in hosts)
    out = cl_array.empty(queue, (37, 29), np.float32)
    out.finish()
    _, event = pyclgemm.gemm(queue, a, b, out=out, return_event=True)
    assert event in out.events
    new = pyclgemm.gemm(queue, a, b)
    assert len(new.events) >= 1


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


def test_waits_for_wait_for_and_returns_at_once(fresh_queue, gate, hosts):
    a, b = (cl_array.to_device(fresh_queue, x) for x in hosts)
    out, event = gate.call(
        lambda: pyclgemm.gemm(fresh_queue, a, b, wait_for=[gate.event], return_event=True)
    )
    fresh_queue.flush()
    assert not is_complete(event)
    gate.open()
    event.wait()
    assert_close(out.get(), expected_gemm(*hosts))


@pytest.mark.parametrize("name", ["a", "b", "c", "out", "bias"])
def test_waits_for_the_events_of_every_array(fresh_queue, gate, hosts, rng, name):
    host = {
        "a": hosts[0],
        "b": hosts[1],
        "c": random_array(rng, (37, 29), "float32"),
        "bias": random_array(rng, (29,), "float32"),
        "out": np.zeros((37, 29), np.float32),
    }
    arrays = {key: cl_array.to_device(fresh_queue, value) for key, value in host.items()}
    arrays[name].add_event(gate.event)
    _, event = gate.call(
        lambda: pyclgemm.gemm(
            fresh_queue,
            arrays["a"],
            arrays["b"],
            arrays["c"],
            beta=1,
            out=arrays["out"],
            epilogue=pyclgemm.Epilogue(bias=arrays["bias"]),
            return_event=True,
        )
    )
    fresh_queue.flush()
    assert not is_complete(event)
    gate.open()
    event.wait()
    assert_close(arrays["out"].get(), expected_gemm(*hosts, host["c"], beta=1, bias=host["bias"]))


def test_operand_that_another_queue_still_writes(context, fresh_queue, gate, hosts):
    producer = cl.CommandQueue(context)
    a = cl_array.Array(producer, hosts[0].shape, np.float32)
    nan = np.full_like(hosts[0], np.nan)
    cl.enqueue_copy(producer, a.base_data, nan)
    late = cl.enqueue_copy(
        producer, a.base_data, hosts[0], wait_for=[gate.event], is_blocking=False
    )
    a.add_event(late)
    b = cl_array.to_device(fresh_queue, hosts[1])
    out, event = gate.call(lambda: pyclgemm.gemm(fresh_queue, a, b, return_event=True))
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
    expected = host.astype(np.float64)
    for _ in range(4):
        expected = expected @ host.astype(np.float64)
    # Errors of four products in turn: entries grow by at most 31 each time.
    np.testing.assert_allclose(out.get(), expected, atol=4 * 41 * 2.0**-23 * 31**3)


def test_many_calls_onto_one_destination_do_not_block(fresh_queue, gate, hosts):
    a, b = (cl_array.to_device(fresh_queue, x) for x in hosts)
    out = cl_array.empty(fresh_queue, (37, 29), np.float32)

    def many():
        pyclgemm.gemm(fresh_queue, a, b, out=out, wait_for=[gate.event])
        for _ in range(40):
            pyclgemm.gemm(fresh_queue, a, b, out=out)

    gate.call(many)
    assert len(out.events) <= 12
    assert not all(is_complete(event) for event in out.events)
    gate.open()
    assert_close(out.get(), expected_gemm(*hosts))


def test_many_calls_that_read_one_operand_do_not_block(fresh_queue, gate, hosts):
    a, b = (cl_array.to_device(fresh_queue, x) for x in hosts)

    def many():
        first = pyclgemm.gemm(fresh_queue, a, b, wait_for=[gate.event])
        return [first] + [pyclgemm.gemm(fresh_queue, a, b) for _ in range(40)]

    results = gate.call(many)
    assert len(a.events) <= 12
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


def test_out_of_order_queue(context, device, hosts):
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.queue_properties & properties:
        pytest.skip(f"{device.name.strip()} has no out-of-order queues")
    queue = cl.CommandQueue(context, properties=properties)
    a, b = (cl_array.to_device(queue, x) for x in hosts)
    config = pyclgemm.XgemmConfig(
        MWG=32, NWG=32, KWG=8, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2
    )  # several launches, each of which needs the one before
    skip_if_refused(queue, config)
    for _ in range(5):
        out = pyclgemm.gemm(queue, a, b, config=config)
        for event in out.events:
            event.wait()
        assert_close(out.get(), expected_gemm(*hosts))
