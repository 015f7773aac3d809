"""plan and explain: chosen once, run many times, and readable when printed."""

from __future__ import annotations

import re

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.gates import is_complete
from tests.support.reference import assert_close, expected_gemm, random_array

M, N, K = 37, 29, 53


@pytest.fixture
def draw(queue):
    """Draws matrices a, b and c: on the host, and copies of them on the device."""

    def drawn(seed=0, dtype="float32"):
        rng = np.random.default_rng(seed)
        hosts = [random_array(rng, shape, dtype) for shape in [(M, K), (K, N), (M, N)]]
        return hosts, [cl_array.to_device(queue, host) for host in hosts]

    return drawn


def test_plan_runs_with_other_arrays_of_the_same_layout(queue, draw):
    _, (a, b, _) = draw()
    made = pyclgemm.plan(queue, a, b)
    assert isinstance(made, pyclgemm.GemmPlan)
    for seed in (0, 1, 2):
        hosts, (a, b, _) = draw(seed)
        out = cl_array.empty(queue, (M, N), np.float32)
        assert made(a, b, out=out) is out
        assert_close(out.get(), expected_gemm(*hosts[:2]))


def test_plan_makes_a_destination_where_none_is_given(queue, draw):
    hosts, (a, b, _) = draw()
    made = pyclgemm.plan(queue, a, b)
    first, second = made(a, b), made(a, b)
    assert first is not second
    for out in (first, second):
        assert_close(out.get(), expected_gemm(*hosts[:2]))


def test_plan_with_everything(queue, rng, draw):
    bias = random_array(rng, (N,), "float32")
    options = {"alpha": 0.5, "beta": -2.0}
    epilogue = pyclgemm.Epilogue(bias=cl_array.to_device(queue, bias), activation="gelu")
    made = pyclgemm.plan(queue, *draw()[1], epilogue=epilogue, **options)
    for seed in (1, 2):
        hosts, arrays = draw(seed)
        expected = expected_gemm(*hosts, bias=bias, activation="gelu", **options)
        assert_close(made(*arrays).get(), expected)


def test_a_plan_whose_beta_is_zero_takes_the_addend_and_does_not_read_it(queue, draw):
    hosts, (a, b, c) = draw()
    c.fill(np.nan)
    made = pyclgemm.plan(queue, a, b, c, beta=0.0)
    assert_close(made(a, b, c).get(), expected_gemm(*hosts[:2]))
    assert_close(made(a, b).get(), expected_gemm(*hosts[:2]))


def test_plan_in_place(queue, draw):
    _, (a, b, c) = draw()
    made = pyclgemm.plan(queue, a, b, c, beta=1.0, out=c)
    hosts, (a, b, c) = draw(1)
    made(a, b, c, out=c)
    assert_close(c.get(), expected_gemm(*hosts, beta=1.0))


def test_plan_enqueues_nothing_when_made(queue, draw):
    hosts, (a, b, c) = draw()
    pyclgemm.plan(queue, a, b, out=c)
    queue.finish()
    np.testing.assert_array_equal(c.get(), hosts[2])


def test_plan_of_transposed_operands(queue, draw):
    hosts, (a, b, _) = draw(5, "complex64")
    made = pyclgemm.plan(queue, b, a, trans_a="C", trans_b="T")
    assert_close(made(b, a).get(), expected_gemm(hosts[1], hosts[0], trans_a="C", trans_b="T"))


def test_plan_reads_offsets_anew(queue):
    host = random_array(np.random.default_rng(7), (100, 64), "float32")
    base = cl_array.to_device(queue, host)
    square = random_array(np.random.default_rng(8), (64, 16), "float32")
    b = cl_array.to_device(queue, square)
    made = pyclgemm.plan(queue, base[:20], b)
    for start in (0, 20, 80):
        got = made(base[start : start + 20], b)
        assert_close(got.get(), expected_gemm(host[start : start + 20], square))


def test_plan_keeps_no_array_of_its_first_call(queue, draw):
    hosts, (a, b, _) = draw()
    made = pyclgemm.plan(queue, a, b)
    made(a, b)
    queue.finish()
    a.set(2 * hosts[0])
    assert_close(made(a, b).get(), expected_gemm(2 * hosts[0], hosts[1]))


def test_plan_waits_and_returns_the_event(queue, draw):
    hosts, (a, b, _) = draw()
    made = pyclgemm.plan(queue, a, b)
    gate = cl.UserEvent(queue.context)
    own_queue_needs = cl.enqueue_marker(queue)
    gate.set_status(cl.command_execution_status.COMPLETE)
    out, event = made(a, b, wait_for=[gate, own_queue_needs], return_event=True)
    event.wait()
    assert event in out.events
    assert_close(out.get(), expected_gemm(*hosts[:2]))


# What a plan refuses


@pytest.mark.parametrize("number", [0, 1, 2])
def test_plan_refuses_another_shape(queue, draw, number):
    arrays = draw()[1]
    made = pyclgemm.plan(queue, *arrays[:2], out=arrays[2])
    good = arrays[number].shape
    bad = (good[0] + 2, good[1])
    arrays[number] = cl_array.zeros(queue, bad, np.float32)
    with pytest.raises(pyclgemm.ShapeError) as caught:
        made(*arrays[:2], out=arrays[2])
    message = str(caught.value)
    assert re.search(rf"\b{('a', 'b', 'out')[number]}\b", message)
    assert str(bad) in message and str(good) in message


def test_plan_refuses_other_arrays(queue, draw):
    _, (a, b, c) = draw()
    made = pyclgemm.plan(queue, a, b)
    with pytest.raises(pyclgemm.DtypeError, match=r"(?s)complex64.*float32|float32.*complex64"):
        made(cl_array.zeros(queue, (M, K), np.complex64), b)
    with pytest.raises(pyclgemm.ArgumentError, match=r"\ba\b"):
        made(cl_array.to_device(queue, np.asfortranarray(a.get())), b)
    with pytest.raises(pyclgemm.ArgumentError, match=r"\bc\b.* made without one"):
        made(a, b, c)
    with pytest.raises(pyclgemm.ArgumentError, match=r"\bc\b"):
        pyclgemm.plan(queue, a, b, c, beta=1)(a, b)


def test_plan_refuses_a_destination_over_an_operand(queue):
    square = cl_array.zeros(queue, (16, 16), np.float32)
    made = pyclgemm.plan(queue, square, square)
    with pytest.raises(pyclgemm.ArgumentError, match="out"):
        made(square, square, out=square)


# explain


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (37, 29, 53), (600, 600, 600), (1, 4096, 512)], ids=str
)
def test_explanation_is_readable(queue, sizes):
    m, n, k = sizes
    choice = pyclgemm.explain(queue, np.zeros((m, k), "f"), np.zeros((k, n), "f"))
    assert isinstance(choice, pyclgemm.Choice)
    text = str(choice)
    assert choice.path in text
    assert choice.reason and choice.reason in text
    for name, value in choice.config.as_dict().items():
        assert f"{name}={value}" in text
    assert choice.level


def test_explanation_is_what_the_plan_runs(queue, draw):
    hosts, (a, b, _) = draw()
    choice = pyclgemm.explain(queue, a, b)
    got = pyclgemm.gemm(queue, a, b, config=choice.config)
    np.testing.assert_array_equal(got.get(), pyclgemm.gemm(queue, a, b).get())
    assert choice == pyclgemm.explain(queue, *hosts[:2])


def test_explain_validates_as_gemm_does(queue):
    ones = np.ones((4, 4), np.float32)
    with pytest.raises(pyclgemm.ArgumentError, match="beta"):
        pyclgemm.explain(queue, ones, ones, ones)
    with pytest.raises(pyclgemm.DtypeError, match="int64"):
        pyclgemm.explain(queue, ones.astype(np.int64), ones)


def test_cpu_devices_take_the_cpu_path(queue, traits):
    if traits.type != "cpu":
        pytest.skip(f"{traits.name} is no CPU")
    big = np.zeros((512, 512), np.float32)
    assert pyclgemm.explain(queue, big, big).path == "cpu"


# Without events


def test_without_an_event_the_queues_order_is_kept(queue, rng):
    a = rng.random((33, 33), dtype="float32")
    left = cl_array.to_device(queue, a)
    first, second = cl_array.empty_like(left), cl_array.empty_like(left)
    plan = pyclgemm.plan(queue, left, left, out=first)
    for _ in range(3):  # each product reads what the one before wrote
        plan(left, left, out=first, add_event=False)
        plan(first, left, out=second, add_event=False)
    assert first.events == [] and second.events == []
    wide = a.astype("float64")
    # Entries are positive, so each product has a relative error of gamma(33) at most.
    bound = 3 * 33 * np.finfo("float32").eps
    np.testing.assert_allclose(second.get(queue), wide @ wide @ wide, rtol=bound)


def test_without_an_event_those_of_the_operands_are_waited_for(fresh_queue, gate, rng):
    a = rng.random((8, 8), dtype="float32")
    left = cl_array.to_device(fresh_queue, a)
    out = cl_array.zeros(fresh_queue, (8, 8), "float32")
    plan = pyclgemm.plan(fresh_queue, left, left, out=out)
    fresh_queue.finish()
    left.add_event(gate.event)
    plan(left, left, out=out, add_event=False)
    marker = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    assert not is_complete(marker)
    gate.open()
    marker.wait()
    np.testing.assert_allclose(out.get(fresh_queue), a @ a, rtol=1e-5)


def test_an_out_of_order_queue_always_gives_an_event(out_of_order_queue, rng):
    a = cl_array.to_device(out_of_order_queue, rng.random((8, 8), dtype="float32"))
    out = cl_array.empty_like(a)
    pyclgemm.plan(out_of_order_queue, a, a, out=out)(a, a, out=out, add_event=False)
    assert len(out.events) == 1
    cl.wait_for_events(out.events)


def test_an_event_that_is_asked_for_is_given(queue, rng):
    a = cl_array.to_device(queue, rng.random((8, 8), dtype="float32"))
    plan = pyclgemm.plan(queue, a, a)
    out, event = plan(a, a, add_event=False, return_event=True)
    event.wait()
    assert out.events == [event]
