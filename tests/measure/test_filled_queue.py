"""Timing behind a kernel that holds the queue, on a device and a clock of the test's own."""

from __future__ import annotations

import pytest

from pyclgemm.measure import filled_queue as ahead_timing
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT, AheadOfDevice


class Machine:
    """A host and an in-order device beside it.

    Attributes
    ----------
    call, product, wake : float
        Seconds that a call costs the host, a product the device, and the host's waking up.
    """

    def __init__(self, call=10e-6, product=4e-6, wake=15e-6):
        self.call, self.product, self.wake = call, product, wake
        self.now = self.free = 0.0
        self.enqueued = []
        self.held = []
        self.waits_in_calls = False

    def enqueue(self, count):
        self.enqueued.append(count)
        for _ in range(count):
            if self.waits_in_calls:
                self.now = max(self.now, self.free)
            self.now += self.call
            self.free = max(self.free, self.now) + self.product

    def finish(self):
        self.now = max(self.now, self.free) + self.wake

    def hold(self, seconds):
        self.held.append(seconds)
        self.now += self.call
        end = self.free = max(self.free, self.now) + seconds
        return lambda: self.now < end

    def timed(self):
        return AheadOfDevice(self.enqueue, self.finish, self, clock=lambda: self.now)


@pytest.mark.parametrize("product", [1e-6, 4e-6, 50e-6, 150e-6])
def test_short_products_take_what_they_take_the_device(product):
    machine = Machine(product=product)
    timed = machine.timed()
    timed.work(1)
    assert timed.work(50) == pytest.approx(50 * product, rel=0.01)


def test_the_first_call_alone_is_timed_by_the_clock():
    machine = Machine()
    assert machine.timed().work(1) == pytest.approx(10e-6 + 4e-6 + 15e-6)
    assert not machine.held


def test_long_products_need_no_blocker():
    machine = Machine(product=2 * LONGEST_PRODUCT)
    timed = machine.timed()
    timed.work(1)
    assert timed.work(20) == pytest.approx(20 * machine.product, rel=0.01)
    assert not machine.held


def test_a_late_first_call_is_forgotten():
    machine = Machine(wake=1.0)
    timed = machine.timed()
    timed.work(1)
    machine.wake = 15e-6
    timed.work(16)
    assert not machine.held
    assert timed.work(16) == pytest.approx(16 * machine.product, rel=0.01)
    assert machine.held


def test_few_calls_stand_for_many():
    machine = Machine()
    timed = machine.timed()
    timed.work(1)
    assert timed.work(100_000) == pytest.approx(100_000 * machine.product, rel=0.01)
    assert max(machine.enqueued) == ahead_timing._MOST_CALLS


def test_the_queue_is_held_for_as_long_as_the_host_needs():
    machine = Machine(call=100e-6)
    timed = machine.timed()
    timed.work(1)
    assert timed.work(50) == pytest.approx(50 * machine.product, rel=0.01)
    assert machine.held[-1] > 50 * machine.call
    # What was found out is kept.
    before = len(machine.held)
    timed.work(50)
    assert machine.held[before:] == [machine.held[before - 1]] * 2  # alone, and with the work


def test_where_the_host_never_gets_ahead_the_clock_decides():
    machine = Machine()
    machine.waits_in_calls = True
    timed = machine.timed()
    timed.work(1)
    for _ in range(2):
        each = machine.call + machine.product
        assert timed.work(50) == pytest.approx(50 * each, rel=0.05)
    assert max(machine.held) <= ahead_timing._LONGEST_HOLD


@pytest.mark.parametrize("late", [0.01, 100e-6])  # longer than the work behind it, and half of it
def test_a_blocker_that_took_longer_once_changes_nothing(late):
    machine = Machine()
    timed = machine.timed()
    timed.work(1)
    hold, extra = machine.hold, [late]
    machine.hold = lambda seconds: hold(seconds + (extra.pop() if extra else 0.0))
    assert timed.work(50) == pytest.approx(50 * machine.product, rel=0.01)
    extra.append(late)
    assert timed.work(50) == pytest.approx(50 * machine.product, rel=0.01)


def test_a_blocker_that_takes_longer_from_now_on_is_tried_until_that_is_known():
    machine = Machine()
    timed = machine.timed()
    timed.work(1)
    timed.work(50)
    hold, late = machine.hold, [0.0] + [0.01] * 100
    machine.hold = lambda seconds: hold(seconds + late.pop())
    for _ in range(ahead_timing._MOST_ALONE):
        timed.work(50)
    assert timed.work(50) == pytest.approx(50 * machine.product, rel=0.01)
