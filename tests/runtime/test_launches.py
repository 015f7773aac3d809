"""Launches: with and without an event, what they wait for, and that the host never waits."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.runtime import launcher as enqueue
from pyclgemm.runtime.launcher import KernelLaunch
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.gates import is_complete
from tests.support.reference import expected_gemm


@pytest.fixture
def hosts(rng):
    return draw(rng, (37, 53), (53, 29))


@pytest.fixture
def arrays(fresh_queue, hosts):
    """The same on the device."""
    return upload(fresh_queue, *hosts)


# Events of products


@pytest.mark.parametrize(
    ("result", "wait_for"), [("new", None), ("given", []), ("host", ())], ids=str
)
def test_return_event_belongs_to_the_result(fresh_queue, arrays, hosts, result, wait_for):
    operands = hosts if result == "host" else arrays
    given = cl_array.empty(fresh_queue, (37, 29), np.float32) if result == "given" else None
    options = {"out": given, "wait_for": wait_for, "return_event": True}
    returned = pyclgemm.gemm(fresh_queue, *operands, **options)
    assert isinstance(returned, tuple)
    out, event = returned
    assert isinstance(event, cl.Event)
    event.wait()
    assert result == "host" or event in out.events
    assert_gemm(out, *hosts)


@pytest.mark.parametrize("name", ["wait_for", "a", "b", "c", "out", "bias"])
def test_waits_for_the_events_of_every_array_and_returns_at_once(fresh_queue, gate, rng, name):
    host = draw(rng, (37, 53), (53, 29), (37, 29), (37, 29), (29,))
    a, b, c, out, bias = upload(fresh_queue, *host)
    given = {"a": a, "b": b, "c": c, "out": out, "bias": bias}
    options = {"beta": 1, "out": out, "epilogue": pyclgemm.Epilogue(bias=bias)}
    if name in given:
        given[name].add_event(gate.event)
    else:
        options["wait_for"] = [gate.event]
    _, event = gate.call(lambda: pyclgemm.gemm(fresh_queue, a, b, c, return_event=True, **options))
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
    for event in out.events:
        event.wait()
    expected = expected_gemm(*hosts, alpha=20.0)
    # The sum is rounded after each of twenty steps.
    np.testing.assert_array_less(abs(out.get() - expected.value), 2 * expected.bound)


@pytest.mark.parametrize("onto_one", [False, True], ids=["one operand", "one destination"])
def test_many_calls_do_not_block(fresh_queue, gate, arrays, hosts, onto_one):
    out = cl_array.empty(fresh_queue, (37, 29), np.float32) if onto_one else None

    def many():
        waits = [[gate.event]] + 40 * [None]
        return [pyclgemm.gemm(fresh_queue, *arrays, out=out, wait_for=one) for one in waits]

    results = gate.call(many)
    assert len((out if onto_one else arrays[0]).events) <= 12
    assert not any(all(map(is_complete, one.events)) for one in results)
    gate.open()
    for one in results:
        assert_gemm(one, *hosts)


# A launch by OpenCL's function, which makes no event, or by pyopencl's


@pytest.fixture(params=[True, False], ids=["directly", "by pyopencl"])
def directly(request, monkeypatch):
    """Whether OpenCL's function is called, or pyopencl's: both work on every device."""
    monkeypatch.setattr(enqueue, "_events_cost", lambda device: request.param)


@pytest.fixture
def adding(context):
    """A kernel that adds one to each of 64 numbers, and them."""
    source = "__kernel void add(__global int *x) { x[get_global_id(0)] += 1; }"
    kernel = cl.Kernel(cl.Program(context, source).build(), "add")
    numbers = cl_array.zeros(cl.CommandQueue(context), 64, np.int32)
    numbers.finish()
    kernel.set_args(numbers.base_data)
    return kernel, numbers


def read(queue, numbers):
    return set(numbers.get(queue).tolist())


def test_a_launch_without_an_event_runs_in_its_place(queue, adding, directly):
    kernel, numbers = adding
    launch = KernelLaunch(queue, kernel, (64,), (16,))
    for _ in range(3):
        assert launch.without_event(None) is None
    assert read(queue, numbers) == {3}


def test_it_waits_for_events(fresh_queue, gate, adding, directly):
    launch = KernelLaunch(fresh_queue, adding[0], (64,), (16,))
    launch.without_event([gate.event, gate.event])
    marker = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    assert not is_complete(marker)
    gate.open()
    marker.wait()


def test_an_error_is_raised(queue, adding, directly):
    kernel, numbers = adding
    with pytest.raises(cl.Error, match=r"clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE"):
        KernelLaunch(queue, kernel, (64,), (48,)).without_event(None)
    assert read(queue, numbers) == {0}


def test_where_the_function_is_hidden_pyopencl_serves(queue, adding, monkeypatch):
    kernel, numbers = adding
    monkeypatch.setattr(enqueue, "_events_cost", lambda device: True)
    monkeypatch.setattr(enqueue, "_enqueue_function", lambda: None)
    KernelLaunch(queue, kernel, (64,), (16,)).without_event(None)
    assert read(queue, numbers) == {1}


def test_events_are_spared_where_they_cost_the_device_time(queue):
    assert enqueue._events_cost(queue.device) == (queue.device.type != cl.device_type.CPU)


def test_a_library_without_the_function_is_no_error(monkeypatch):
    enqueue._enqueue_function.cache_clear()
    monkeypatch.setattr(enqueue.ctypes, "CDLL", lambda path: object())
    assert enqueue._enqueue_function() is None
    enqueue._enqueue_function.cache_clear()
