"""A call that fails: which error it raises, and that the next call is right."""

from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.runtime import launcher
from pyclgemm.runtime.launcher import KernelLaunch
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.checks import skip_if_refused
from tests.support.configs import BASES, INDIRECT
from tests.support.gates import is_complete


@pytest.fixture
def hosts(rng):
    return draw(rng, (13, 40), (40, 11), (13, 11))


@pytest.fixture
def arrays(queue, hosts):
    return upload(queue, *hosts)


@pytest.fixture(params=BASES.values(), ids=BASES)
def config(request, queue):
    skip_if_refused(queue, request.param)
    return request.param


#: The smallest number that rounds to infinity.
BEYOND = float(np.finfo(np.float32).max) * (1 + 2.0**-24)
LONG = np.longdouble("1e4000")  # infinite if a longdouble is a double
#: Arguments, and the words of the error.
OUT_OF_RANGE = [
    ({"alpha": 7.0, "beta": 1e300}, r"beta is 1e\+300.*float32"),
    ({"alpha": -1e300, "beta": 3.0}, r"alpha is -1e\+300.*float32"),
    ({"alpha": BEYOND}, "alpha"),
    ({"alpha": 10**400}, "alpha .*float64"),
    ({"alpha": -(10**5000)}, "alpha .*float64"),  # Python prints fewer digits
    *([] if np.isinf(LONG) else [({"alpha": LONG}, "alpha .*float64")]),
]


@pytest.mark.parametrize("policy", ["ignore", "warn", "raise"])
def test_a_number_out_of_range_is_refused_before_anything_is_set(
    queue, arrays, hosts, config, policy
):
    def check():
        got = pyclgemm.gemm(queue, *arrays, alpha=1.0, beta=1.0, config=config)
        assert_gemm(got, *hosts, beta=1.0)

    check()
    for options, words in OUT_OF_RANGE:
        with np.errstate(all=policy), pytest.raises(pyclgemm.ArgumentError, match=words):
            pyclgemm.gemm(queue, *arrays, **{"beta": 1.0, "config": config} | options)
    check()


def test_infinity_nan_and_the_largest_are_numbers(queue):
    ones = np.ones((3, 3), np.float32)
    for alpha in (np.inf, -np.inf, np.nan, float(np.finfo(np.float32).max)):
        got = pyclgemm.gemm(queue, ones, ones / 4, alpha=alpha)
        np.testing.assert_array_equal(got, np.full((3, 3), alpha * 0.75, np.float32))


class _Refused(KernelLaunch):
    """A launch with more work-items in a work-group than the device takes."""

    def __init__(self, queue, kernel, global_size, local_size):
        local = (queue.device.max_work_group_size + 1, *local_size[1:])
        groups = np.floor_divide(global_size, local_size)
        super().__init__(queue, kernel, tuple(map(int, groups * local)), local)


def test_a_refused_launch_names_the_configuration(context, config, hosts, monkeypatch):
    queue = cl.CommandQueue(context)
    arrays = upload(queue, *hosts)
    given = {"alpha": 7.0, "beta": 2.0, "config": config}
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "KernelLaunch", _Refused)
        with pytest.raises(pyclgemm.LaunchError, match="WORK_GROUP_SIZE") as failed:
            pyclgemm.gemm(queue, *arrays, **given)
    assert isinstance(failed.value, pyclgemm.ConfigError) and str(config) in str(failed.value)
    got = pyclgemm.gemm(cl.CommandQueue(context), *arrays, **given)
    assert_gemm(got, *hosts, alpha=7.0, beta=2.0)
    for one, host in zip(arrays, hosts, strict=True):
        np.testing.assert_array_equal(one.get(), host)


def test_users_of_the_result_wait_for_what_a_failed_call_launched(
    out_of_order_queue, hosts, gate, monkeypatch
):
    """Otherwise the failed call could write after the next one."""
    queue = out_of_order_queue
    a, b, out = upload(queue, *hosts)
    pyclgemm.gemm(queue, a, b, out=out).get()
    with_event = KernelLaunch.with_event

    def interrupted(self, events):
        with_event(self, events)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(KernelLaunch, "with_event", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pyclgemm.gemm(queue, a, b, out=out, wait_for=[gate.event])
    queue.flush()
    assert not all(map(is_complete, out.events))
    _, event = pyclgemm.gemm(queue, a, b, out=out, return_event=True)
    queue.flush()
    assert not is_complete(event)
    gate.open()
    assert_gemm(out, *hosts[:2])


def test_an_event_of_another_context(device, queue, arrays, hosts):
    event = cl.UserEvent(cl.Context([device]))
    try:
        pyclgemm.gemm(queue, *arrays[:2], wait_for=[event])
        pytest.skip("the runtime takes events of another context")
    except pyclgemm.ArgumentError as error:
        assert "wait_for" in str(error)
    finally:
        event.set_status(cl.command_execution_status.COMPLETE)
    assert_gemm(pyclgemm.gemm(queue, *arrays, beta=2.0), *hosts, beta=2.0)


def test_a_result_larger_than_the_devices_memory(queue):
    side = int((2 * queue.device.global_mem_size / 4) ** 0.5)
    tall, wide = np.ones((side, 1), np.float32), np.ones((1, side), np.float32)
    with pytest.raises(pyclgemm.AllocationError, match=str(queue.device.global_mem_size)):
        pyclgemm.gemm(queue, tall, wide)


def test_an_allocator_may_raise_what_it_likes(queue, arrays, hosts):
    with pytest.raises(ZeroDivisionError):
        pyclgemm.gemm(queue, *arrays[:2], allocator=lambda size: 1 / 0)
    assert_gemm(pyclgemm.gemm(queue, *arrays, beta=2.0), *hosts, beta=2.0)


@pytest.mark.parametrize("lacking", ["workspace", "out", "a"])
def test_memory_that_is_lacking(context, hosts, lacking, monkeypatch):
    queue = cl.CommandQueue(context)
    skip_if_refused(queue, INDIRECT)
    arrays = hosts if lacking == "a" else upload(queue, *hosts)
    out = None if lacking == "out" else cl_array.empty(queue, hosts[2].shape, np.float32)
    more_than_any_device_has = partial(cl.Buffer, context, cl.mem_flags.READ_WRITE, 1 << 60)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", lambda *given, **named: more_than_any_device_has())
        # Some drivers allocate any buffer when a kernel first uses it.
        with pytest.raises(MemoryError, match=f"{lacking}|at the launch") as failed:
            pyclgemm.gemm(queue, *arrays, beta=1.0, out=out, config=INDIRECT)
    assert isinstance(failed.value, pyclgemm.AllocationError)
    assert_gemm(pyclgemm.gemm(queue, *arrays, beta=1.0, config=INDIRECT), *hosts, beta=1.0)
