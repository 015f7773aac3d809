"""Timing behind a kernel that holds the queue, on a device and a clock of the test's own."""

import itertools

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.measure import filled_queue
from pyclgemm.measure.bench import Bench, Pace, Timing
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT, QueueBlocker, fill_queue
from tests.support.bench_fakes import FakeDevice, QueuedContender
from tests.support.gates import is_complete


def measure(contender: QueuedContender, takes: int = 1, rounds: int = 3) -> Timing:
    bench = Bench(Pace(0.015, 4.0, rounds, takes=takes), clock=contender.time.clock())
    bench.add(contender)
    return bench.run()["x"]


@pytest.mark.parametrize("takes", [1, 3])
@pytest.mark.parametrize("seconds", [1e-6, 2e-6, 9e-6, 5e-5, 1.5e-4])
def test_behind_a_blocker_the_host_does_not_count(seconds, takes):
    contender = QueuedContender(FakeDevice(), seconds)
    timing = measure(contender, takes)
    assert timing.clock_name == "queue filled"
    assert timing.median == pytest.approx(seconds, rel=0.01)
    assert timing.calls >= 80 and set(contender.bursts[-10:]) <= {timing.calls, 0}


def test_what_is_long_is_timed_on_the_host():
    contender = QueuedContender(FakeDevice(), 2 * LONGEST_PRODUCT)
    timing = measure(contender)
    assert timing.clock_name == "host" and not contender.device.holds
    assert timing.median == pytest.approx(2 * LONGEST_PRODUCT, rel=0.01)


def test_what_has_no_blocker_is_timed_on_the_host():
    contender = QueuedContender(FakeDevice())
    contender.blocker = None
    timing = measure(contender)
    assert timing.clock_name == "host"
    assert timing.median == pytest.approx(contender.each, rel=0.01)


@pytest.mark.parametrize(("launches", "calls"), [(1, 200), (5, 100)])
def test_no_more_launches_are_on_their_way_than_a_driver_takes(launches, calls):
    contender = QueuedContender(FakeDevice())
    contender.launches = launches
    assert measure(contender).calls == calls


def test_the_queue_is_held_for_as_long_as_the_host_needs():
    contender = QueuedContender(FakeDevice(), host=60e-6)
    assert measure(contender).median == pytest.approx(2e-6, rel=0.01)
    assert contender.device.holds[-1] > 200 * 60e-6


def test_a_host_that_is_too_slow_gets_ahead_with_fewer_calls():
    contender = QueuedContender(FakeDevice(), host=400e-6)
    burst = fill_queue(contender, 1000, contender.device, contender.time.clock())
    assert burst is not None and 8 <= burst.calls < 100
    assert burst.sample().seconds == pytest.approx(2e-6, rel=0.01)


class Stalling(QueuedContender):
    """The host is held up the first three times that it runs ahead."""

    stalls = 3

    def enqueue(self, calls):
        super().enqueue(calls)
        if calls and self.device.holds and self.stalls:
            self.stalls -= 1
            self.time.seconds += 0.01


@pytest.mark.parametrize("takes", [1, 3])
def test_where_the_blocker_ended_early_all_is_taken_again_behind_a_longer_one(takes):
    contender = Stalling(FakeDevice())
    timing = measure(contender, takes)
    assert contender.stalls == 0
    assert timing.clock_name == "queue filled"
    assert timing.median == pytest.approx(2e-6, rel=1e-3)
    assert contender.device.holds[-1] > 3 * contender.device.holds[0]


def test_a_status_that_comes_late_does_not_let_a_sample_pass():
    """Drivers may report the end of the blocker late; the host's clock tells, too."""

    class LateStatus(FakeDevice):
        def hold(self, seconds):
            super().hold(seconds)
            return lambda: True

    contender = Stalling(LateStatus())
    burst = fill_queue(contender, 1000, contender.device, contender.time.clock())
    assert contender.stalls == 0 and burst.calls == 200
    assert burst.sample().seconds == pytest.approx(2e-6, rel=1e-3)


def test_a_library_that_waits_is_timed_on_the_host():
    class Waiting(QueuedContender):
        def enqueue(self, calls):
            super().enqueue(calls)
            if calls:
                self.finish()

    contender = Waiting(FakeDevice())
    timing = measure(contender)
    assert timing.clock_name == "host"
    assert timing.median == pytest.approx(9e-6, rel=0.02)
    assert max(contender.device.holds) <= filled_queue._LONGEST_HOLD


@pytest.mark.parametrize("late", [0.01, 100e-6])  # longer than the work behind it, and half of it
@pytest.mark.parametrize("takes", [1, 3])
def test_a_blocker_that_took_longer_alone_once_changes_nothing(late, takes):
    device = FakeDevice()
    hold, extra = device.hold, []
    device.hold = lambda seconds: hold(seconds + (extra.pop() if extra else 0.0))
    contender = QueuedContender(device)
    burst = filled_queue.FilledBurst(contender, 50, device, device.time.clock(), takes)
    for _ in range(2):
        extra.append(late)  # the first blocker of a sample is alone
        assert burst.sample().seconds == pytest.approx(2e-6, rel=0.01)


def test_a_blocker_that_takes_longer_from_now_on_is_tried_until_that_is_known():
    device = FakeDevice((0.0,) * 4 + (0.01,) * 1000)
    contender = QueuedContender(device)
    burst = filled_queue.FilledBurst(contender, 50, device, device.time.clock())
    for _ in range(filled_queue._MOST_ALONE + 1):
        sample = burst.sample()
    assert sample.seconds == pytest.approx(2e-6, rel=0.01)


@pytest.mark.parametrize("takes", [1, 3])
def test_products_lost_in_the_blockers_variation_are_timed_on_the_host(takes):
    timing = measure(QueuedContender(FakeDevice((1e-3, 0.0))), takes)
    assert timing.clock_name == "host" and len(timing.samples) == 3
    assert timing.median == pytest.approx(9e-6, rel=0.02)


def late_from(count, late):
    """The seconds by which blockers are late: `count` are not, then `late` of them."""
    return FakeDevice((0.0,) * count + late + (0.0,) * 100_000)


def test_figures_of_a_contender_are_of_one_kind():
    """The variation begins after some samples: they are taken again."""
    timing = measure(QueuedContender(late_from(8, (1e-3, 0.0) * 2000)), rounds=9)
    assert timing.clock_name == "host" and len(timing.samples) == 9
    np.testing.assert_allclose(timing.samples, 9e-6, rtol=0.02)


def test_a_burst_is_laid_out_anew_behind_the_blocker_before_the_hosts_clock_is_taken():
    """The variation passes: samples before it, and the next ones as at first."""
    timing = measure(QueuedContender(late_from(8, (1e-3, 0.0) * 14)), rounds=9)
    assert timing.clock_name == "queue filled" and len(timing.samples) == 9
    assert timing.median == pytest.approx(2e-6, rel=1e-3)


def test_calls_too_few_to_be_told_from_the_blockers_variation_become_more():
    """Six calls take 12 us, by which the blocker is late at times."""
    device = FakeDevice((20e-6, 0.0) * 13 + (0.0,) * 1000)
    contender = QueuedContender(device)
    burst = fill_queue(contender, 6, device, device.time.clock())
    assert burst.calls == 12
    assert burst.sample().seconds == pytest.approx(2e-6, rel=1e-3)


def test_the_time_of_the_blocker_asks_for_no_rest():
    device = FakeDevice()
    contender = QueuedContender(device)
    burst = fill_queue(contender, 1000, device, device.time.clock(), takes=3)
    assert burst.sample().worked == pytest.approx(3 * burst.calls * 2e-6, rel=1e-3)


# --------------------------------------------------------------------------------------
# The blocker itself, on devices.
# --------------------------------------------------------------------------------------


def test_what_comes_after_waits(fresh_queue):
    blocker = QueueBlocker(fresh_queue)
    still_holding = blocker.hold(0.02)
    after = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    polls = 0
    while not is_complete(after):
        polls += 1
    assert polls
    assert not still_holding()


def test_it_lets_go(fresh_queue):
    still_holding = QueueBlocker(fresh_queue).hold(0.0)
    fresh_queue.finish()
    assert not still_holding()


@pytest.fixture
def steps(fresh_queue, monkeypatch):
    """A blocker whose kernel does a million steps a second, and the steps of its launches."""
    monkeypatch.setattr(QueueBlocker, "_measure", lambda self: 1e6)
    blocker = QueueBlocker(fresh_queue)
    asked = []
    launch = blocker._launch

    def record(steps):
        asked.append(steps)
        return launch(1)

    monkeypatch.setattr(blocker, "_launch", record)
    return blocker, asked


def test_steps_follow_the_speed(steps):
    blocker, asked = steps
    for seconds in (0.001, 0.25, 0.0, 1e9):
        blocker.hold(seconds)
    assert asked == [1000, 250_000, 1, filled_queue._MOST_STEPS]


def test_the_speed_is_that_of_a_warm_kernel(fresh_queue, monkeypatch):
    """The first launch takes a second, whatever it does; the others 10 ns a step."""
    launched = []

    def seconds(self, steps):
        launched.append(steps)
        return 1.0 if len(launched) == 1 else 1e-8 * steps

    monkeypatch.setattr(QueueBlocker, "_seconds", seconds)
    assert QueueBlocker(fresh_queue)._steps_per_second == pytest.approx(1e8)
    assert 1e-8 * launched[-1] >= filled_queue._MEASURED


@pytest.mark.parametrize("waits", [[0.005], [0.02, 0.0, 0.005, 0.011, 0.0]], ids=str)
def test_the_speed_is_not_that_of_waiting_for_other_processes(fresh_queue, monkeypatch, waits):
    """Launches wait for the device before they run, at 10 ns a step."""
    turns = itertools.cycle(waits)
    monkeypatch.setattr(QueueBlocker, "_seconds", lambda self, steps: next(turns) + 1e-8 * steps)
    assert 0.7e8 < QueueBlocker(fresh_queue)._steps_per_second <= 1e8


def test_the_kernel_does_every_step(fresh_queue):
    """Each step brings the state nearer to 1 by a quarter."""
    blocker = QueueBlocker(fresh_queue)
    state = np.empty(1, np.float32)
    cl.enqueue_fill_buffer(fresh_queue, blocker._state, np.float32(0.0), 0, 4)
    blocker._launch(3)
    cl.enqueue_copy(fresh_queue, state, blocker._state)
    assert state[0] == pytest.approx(1 - 0.75**3)
