"""Launches: with and without an event, and sequences of them for any arrays and numbers."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.launch import Buffer, Launch, Offset, Scalar, Schedule
from pyclgemm.codegen.source import Argument, KernelSource
from pyclgemm.errors import ArgumentError
from pyclgemm.runtime import launcher as enqueue
from pyclgemm.runtime.launcher import KernelLaunch, LaunchSequence, Operand
from pyclgemm.runtime.queue_state import queue_state
from tests.support.gates import is_complete

SOURCE = "__kernel void add(__global int *x) { x[get_global_id(0)] += 1; }"


@pytest.fixture(params=[True, False], ids=["directly", "by pyopencl"])
def directly(request, monkeypatch):
    """Whether OpenCL's function is called, or pyopencl's: both work on every device."""
    monkeypatch.setattr(enqueue, "_events_cost", lambda device: request.param)
    return request.param


@pytest.fixture
def counting(context, queue):
    """A launch that adds one to each of 64 numbers, and how to read them."""
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "add")
    buffer = cl.Buffer(
        context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(64, "i4")
    )
    kernel.set_args(buffer)

    def read():
        numbers = np.empty(64, "i4")
        cl.enqueue_copy(queue, numbers, buffer)
        return set(numbers.tolist())

    return kernel, read


def test_a_launch_without_an_event_runs_in_its_place(queue, counting, directly):
    kernel, read = counting
    launch = KernelLaunch(queue, kernel, (64,), (16,))
    for _ in range(3):
        assert launch.without_event(None) is None
    assert read() == {3}


def test_it_waits_for_events(fresh_queue, gate, context, directly):
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "add")
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
    kernel.set_args(buffer)
    KernelLaunch(fresh_queue, kernel, (64,), (16,)).without_event([gate.event, gate.event])
    marker = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    assert not is_complete(marker)
    gate.open()
    marker.wait()


def test_an_error_is_raised(queue, counting, directly):
    kernel, read = counting
    with pytest.raises(cl.Error, match=r"clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE"):
        KernelLaunch(queue, kernel, (64,), (48,)).without_event(None)
    assert read() == {0}


def test_where_the_function_is_hidden_pyopencl_serves(queue, counting, monkeypatch):
    kernel, read = counting
    monkeypatch.setattr(enqueue, "_events_cost", lambda device: True)
    monkeypatch.setattr(enqueue, "_enqueue_function", lambda: None)
    KernelLaunch(queue, kernel, (64,), (16,)).without_event(None)
    assert read() == {1}


def test_events_are_spared_where_they_cost_the_device_time(queue):
    assert enqueue._events_cost(queue.device) == (queue.device.type != cl.device_type.CPU)


def test_a_library_without_the_function_is_no_error(monkeypatch):
    enqueue._enqueue_function.cache_clear()
    monkeypatch.setattr(enqueue.ctypes, "CDLL", lambda path: object())
    assert enqueue._enqueue_function() is None
    enqueue._enqueue_function.cache_clear()


# Sequences of launches, which know nothing of products

SCALED = """
__kernel void scale(const __global float *x, const long x_offset, const float factor,
                    const int count, __global float *scratch)
{
    for (int i = 0; i < count; ++i)
        scratch[i] = factor * x[x_offset + i];
}
"""
ADDED = """
__kernel void add(const __global float *scratch, __global float *y, const long y_offset)
{
    y[y_offset + get_global_id(0)] += scratch[get_global_id(0)];
}
"""


def test_a_sequence_takes_arrays_and_numbers_by_their_roles(queue):
    offset = {"x_offset": Offset("x"), "y_offset": Offset("y")}
    values = {"x": Buffer("x"), "y": Buffer("y"), "factor": Scalar("factor"), "count": 4, **offset}
    long, scratch = ("long", ""), ("output", "float")
    scale, add = (
        KernelSource(name, text, tuple(Argument(*one) for one in arguments), (1,))
        for name, text, arguments in (
            ("scale", SCALED, [("x", "input", "float"), ("x_offset", *long), ("factor", "float"),
                               ("count", "int"), ("scratch", *scratch)]),
            ("add", ADDED, [("scratch", "input", "float"), ("y", *scratch), ("y_offset", *long)]),
        )
    )  # fmt: skip
    launches = Launch.of(scale, (1,), values), Launch.of(add, (4,), values)
    operands = Operand("x", "x"), Operand("y", "y", is_result=True)
    state, schedule = queue_state(queue), Schedule(launches, {"scratch": 16})
    sequence = LaunchSequence(state, schedule, operands, ["factor"])
    x, y = (cl_array.arange(queue, 12, dtype=np.float32) for _ in range(2))
    expected = y.get()
    for start, factor in ((0, 2.0), (3, 2.0), (3, -0.5)):
        sequence.enqueue((x[start : start + 4], y[8 - start : 12 - start]), [factor])
        expected[8 - start : 12 - start] += factor * np.arange(start, start + 4, dtype=np.float32)
    np.testing.assert_array_equal(y.get(), expected)
    with pytest.raises(ArgumentError, match=r"factor is 1e\+300, which float32 cannot hold"):
        sequence.enqueue((x[:4], y[:4]), [1e300])
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        sequence.enqueue((y[2:6], y[:4]), [1.0])
