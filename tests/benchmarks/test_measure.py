"""Contenders are timed in turn, in bursts; seen on a clock that is made up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from benchmarks.contenders import contenders
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.operands import make_operands
from benchmarks.session.burst import Pace, Sample, calibrate
from benchmarks.session.filled_queue import fill_queue
from benchmarks.session.measure import Timing, measure_in_turn
from pyclgemm.measure.filled_queue import QueueBlocker
from tests.support.benchmark_fakes import FakeContender, FakeDevice, FakeTime, QueuedContender
from tests.support.gates import is_complete


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 3e-3, 0.019, 0.5])
@pytest.mark.parametrize("step", [1, 6])
def test_a_burst_takes_about_15_ms_or_is_one_step(seconds: float, step: int) -> None:
    time = FakeTime()
    calls, elapsed = calibrate(FakeContender("x", time, seconds, step), Pace(), time.clock())
    assert calls % step == 0
    assert 0.012 <= elapsed <= 0.03 or calls == step
    assert elapsed == pytest.approx(calls * seconds, rel=0.1)


@pytest.mark.parametrize("held_up", [0, 1, 2])
def test_a_burst_that_the_machine_held_up_is_not_taken_for_a_whole_one(held_up: int) -> None:
    time = FakeTime()

    class HeldUp(FakeContender):
        def finish(self) -> None:
            time.seconds += 0.02 if len(self.bursts) == held_up + 1 else 1e-5

    calls, elapsed = calibrate(HeldUp("x", time, 1e-5), Pace(), time.clock())
    assert elapsed == pytest.approx(calls * 1e-5, rel=0.1)
    assert 0.012 <= elapsed <= 0.03


def test_contenders_take_turns_and_rest_four_times_as_long() -> None:
    time = FakeTime()
    order: list[str] = []

    class Noting(FakeContender):
        def enqueue(self, calls: int) -> None:
            order.append(self.name)
            super().enqueue(calls)

    two = [Noting("x", time, 1e-3), Noting("y", time, 2e-3)]
    told: list[float] = []
    timings = measure_in_turn(
        two, Pace(rounds=9), np.random.default_rng(0), clock=time.clock(), progress=told.append
    )
    assert timings["x"].median == pytest.approx(1e-3, rel=0.01)
    assert timings["y"].median == pytest.approx(2e-3, rel=0.01)
    rounds = [order[i : i + 2] for i in range(len(order) - 18, len(order), 2)]
    assert all(sorted(pair) == ["x", "y"] for pair in rounds)
    assert ["x", "y"] in rounds and ["y", "x"] in rounds
    assert sum(told) == pytest.approx(1.0)
    assert time.slept == pytest.approx(0.8 * time.seconds, rel=0.01)


def host_sample(seconds: float) -> Sample:
    return Sample(seconds, seconds, seconds)


def test_long_bursts_get_fewer_rounds_but_three() -> None:
    pace = Pace(rounds=9, seconds=10.0)
    assert pace.rounds_for([host_sample(0.02)] * 2) == 9
    assert pace.rounds_for([host_sample(0.3), host_sample(0.1)]) == 5
    assert pace.rounds_for([host_sample(5.0)]) == 3
    assert replace(pace, rounds=1).rounds_for([host_sample(5.0)]) == 1


def test_little_time_for_a_case_makes_bursts_short_and_is_kept() -> None:
    time = FakeTime()
    two = [FakeContender("x", time, 1e-5), FakeContender("y", time, 3e-4)]
    pace = Pace(rounds=3, seconds=0.5)
    timings = measure_in_turn(two, pace, np.random.default_rng(0), clock=time.clock())
    assert [len(timing.samples) for timing in timings.values()] == [3, 3]
    assert time.seconds < 0.6
    assert Pace().shortened(7) == Pace()


def test_spread_is_half_the_distance_between_quartiles() -> None:
    timing = Timing(1, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert (timing.median, timing.spread) == (3.0, pytest.approx(1 / 3))


def measure_queued(contender: QueuedContender, blocked: bool = True) -> Timing:
    return measure_in_turn(
        [contender], Pace(rounds=3), np.random.default_rng(0),
        blocker=contender.device if blocked else None, clock=contender.device.time.clock(),
    )["x"]  # fmt: skip


@pytest.mark.parametrize("seconds", [2e-6, 9e-6, 5e-5])
def test_behind_a_blocker_the_host_does_not_count(seconds: float) -> None:
    contender = QueuedContender("x", FakeDevice(FakeTime()), host=9e-6, seconds=seconds)
    timing = measure_queued(contender)
    assert timing.clock_name == "queue filled"
    assert timing.median == pytest.approx(seconds, rel=1e-3)
    assert 100 <= timing.calls <= 200 and set(contender.bursts[-10:]) <= {timing.calls, 0}


def test_what_is_long_or_must_not_run_ahead_is_timed_on_the_host() -> None:
    for launches, seconds in ((1, 3e-4), (None, 2e-6)):
        contender = QueuedContender("x", FakeDevice(FakeTime()), 9e-6, seconds, launches)
        timing = measure_queued(contender)
        assert timing.clock_name == "host" and not contender.device.holds
        assert timing.median == pytest.approx(max(9e-6, seconds), rel=0.01)
    contender = QueuedContender("x", FakeDevice(FakeTime()), host=9e-6, seconds=2e-6)
    assert measure_queued(contender, blocked=False).median == pytest.approx(9e-6, rel=0.01)


def test_no_more_launches_are_on_their_way_than_a_driver_takes() -> None:
    contender = QueuedContender("x", FakeDevice(FakeTime()), 9e-6, 2e-6, launches=5)
    assert measure_queued(contender).calls == 100


class Stalling(QueuedContender):
    """The host is held up, the first times that it runs ahead or always."""

    stalls = 3

    def enqueue_ahead(self, calls: int) -> None:
        super().enqueue_ahead(calls)
        if calls and self.device.holds and self.stalls:
            self.stalls -= 1
            self._time.seconds += 0.01


def test_a_sample_whose_blocker_ended_early_is_thrown_away_and_the_blocker_made_longer() -> None:
    device = FakeDevice(FakeTime())
    contender = Stalling("x", device, host=9e-6, seconds=2e-6)
    timing = measure_queued(contender)
    assert contender.stalls == 0
    assert timing.clock_name == "queue filled"
    assert timing.median == pytest.approx(2e-6, rel=1e-3)
    assert device.holds[-1] > 3 * device.holds[0]


def test_a_library_that_waits_is_timed_on_the_host() -> None:
    class Waiting(QueuedContender):
        def enqueue_ahead(self, calls: int) -> None:
            super().enqueue_ahead(calls)
            if calls:
                self.finish()

    timing = measure_queued(Waiting("x", FakeDevice(FakeTime()), host=9e-6, seconds=2e-6))
    assert timing.clock_name == "host"
    assert timing.median == pytest.approx(9e-6, rel=0.02)


def test_a_status_that_comes_late_does_not_let_a_sample_pass() -> None:
    """Drivers may report the end of the blocker late; the host's clock tells, too."""

    class LateStatus(FakeDevice):
        def hold(self, seconds: float) -> Callable[[], bool]:
            super().hold(seconds)
            return lambda: True

    device = LateStatus(FakeTime())
    contender = Stalling("x", device, host=9e-6, seconds=2e-6)
    # The blocker is longer than enqueueing takes, and shorter than the stall.
    burst, sample = fill_queue(contender, 1000, device, device.time.clock())
    assert contender.stalls == 0 and burst.calls == 200
    assert sample.seconds == pytest.approx(2e-6, rel=1e-3)


class Jittering(FakeDevice):
    """The blocker's time varies: by so much, in turn."""

    jitter: tuple[float, ...] = (0.0,)

    def hold(self, seconds: float) -> Callable[[], bool]:
        late = self.jitter[len(self.holds) % len(self.jitter)]
        is_holding = super().hold(seconds)
        self.done_at += late
        return is_holding


def test_what_has_a_queue_of_its_own_is_held_there() -> None:
    """The blocker of the session would hold another queue, and the host would be timed."""
    time = FakeTime()
    of_session, own = FakeDevice(time), FakeDevice(time)
    contender = QueuedContender("x", own, host=9e-6, seconds=2e-6)
    contender.blocker = own
    timing = measure_in_turn(
        [contender], Pace(rounds=3), np.random.default_rng(0), blocker=of_session,
        clock=time.clock(),
    )["x"]  # fmt: skip
    assert timing.clock_name == "queue filled" and of_session.holds == []
    assert timing.median == pytest.approx(2e-6, rel=1e-3)


def test_what_seems_too_fast_is_not_dropped() -> None:
    """Of three bursts one seems to take no time at all: the median stands."""
    device = Jittering(FakeTime())
    # Alone, behind, alone, behind, ...: the first blocker alone is late.
    device.jitter = (1e-3, 0.0, 0.0, 0.0, 0.0, 0.0)
    timing = measure_queued(QueuedContender("x", device, host=9e-6, seconds=2e-6))
    assert timing.clock_name == "queue filled"
    assert timing.median == pytest.approx(2e-6, rel=1e-3)
    assert len(device.holds) == 6 * (1 + len(timing.samples)), "a burst was taken again"


def test_products_lost_in_the_blocker_s_variation_are_timed_on_the_host() -> None:
    device = Jittering(FakeTime())
    device.jitter = (1e-3, 0.0)
    timing = measure_queued(QueuedContender("x", device, host=9e-6, seconds=2e-6))
    assert timing.clock_name == "host" and len(timing.samples) == 3
    assert timing.median == pytest.approx(9e-6, rel=0.02)


def test_figures_of_a_contender_are_of_one_kind() -> None:
    """The variation begins in the second round: the first is taken again."""
    device = Jittering(FakeTime())
    device.jitter = (0.0,) * 12 + (1e-3, 0.0) * 1000
    timing = measure_queued(QueuedContender("x", device, host=9e-6, seconds=2e-6))
    assert timing.clock_name == "host" and len(timing.samples) == 3
    np.testing.assert_allclose(timing.samples, 9e-6, rtol=0.02)


def test_a_burst_is_laid_out_anew_behind_the_blocker_before_the_host_s_clock_is_taken() -> None:
    """The variation passes: two samples, one lost in it, and the next ones as at first."""
    device = Jittering(FakeTime())
    device.jitter = (0.0,) * 12 + (1e-3, 0.0) * 3 + (0.0,) * 1000
    timing = measure_queued(QueuedContender("x", device, host=9e-6, seconds=2e-6))
    assert timing.clock_name == "queue filled" and len(timing.samples) == 3
    assert timing.median == pytest.approx(2e-6, rel=1e-3)


def test_calls_too_few_to_be_told_from_the_blocker_s_variation_become_more() -> None:
    """Six calls take 12 us, by which the blocker is late at times."""
    device = Jittering(FakeTime())
    device.jitter = (20e-6, 0.0) * 3 + (0.0,) * 1000
    burst, sample = fill_queue(
        QueuedContender("x", device, host=9e-6, seconds=2e-6), 6, device, device.time.clock()
    )
    assert burst.calls == 12
    assert sample.seconds == pytest.approx(2e-6, rel=1e-3)


def test_the_time_of_the_blocker_asks_for_no_rest() -> None:
    device = FakeDevice(FakeTime())
    contender = QueuedContender("x", device, host=9e-6, seconds=2e-6)
    burst, sample = fill_queue(contender, 1000, device, device.time.clock())
    assert sample.worked == pytest.approx(3 * burst.calls * 2e-6, rel=1e-3)
    assert sample.elapsed > 6 * burst.hold > sample.worked


def test_the_blocker_holds_a_queue_about_as_long_as_asked(queue: Any) -> None:
    blocker = QueueBlocker(queue)
    start = time.perf_counter()
    still_holding = blocker.hold(0.1)
    held_at_once = still_holding()
    marker = cl.enqueue_marker(queue)
    queue.finish()
    elapsed = time.perf_counter() - start
    assert held_at_once and not still_holding()
    assert is_complete(marker)
    assert elapsed > 0.02, "loose: other work may have slowed the measurement of its speed"


def test_real_products_run_behind_a_real_blocker(queue: Any, rng: np.random.Generator) -> None:
    made = make_operands(Case(16, 16, 16), arithmetic_of("float32"), queue, rng)
    contender = contenders.plan_contender(made)
    contender.enqueue(2)
    contender.finish()
    contender.poison()
    blocker = QueueBlocker(queue)
    for seconds in (0.1, 1.0, 10.0):  # other processes on the device may hide its speed
        still_holding = blocker.hold(seconds)
        contender.enqueue_ahead(20)
        if still_holding():
            break
        contender.finish()
    assert still_holding()
    contender.finish()
    assert not still_holding()
    np.testing.assert_allclose(
        contender.result(), made.sets[0].a.host @ made.sets[0].b.host, rtol=1e-4, atol=1e-5
    )
