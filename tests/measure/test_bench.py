"""Contenders are timed in turn, in bursts with pauses, on a clock that is made up; behind a kernel
that holds the queue, on a device that is made up, too."""

from dataclasses import replace

import numpy as np
import pytest

from pyclgemm.measure import filled_queue
from pyclgemm.measure.bench import PACES, Bench, Calls, Pace, Timing, calibrate, pace_for
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT, fill_queue
from pyclgemm.tuning.worker import clearly_slower
from tests.support.bench_fakes import FakeContender, FakeDevice, FakeTime, QueuedContender

PACE = Pace(burst=0.01, rest=2.0, rounds=7)
CAREFUL = PACES["benchmark"][0]


def run(contenders, pace=PACE, rng=None, **options):
    bench = Bench(pace, clock=contenders[0].time.clock(), rng=rng)
    for contender in contenders:
        bench.add(contender)
    return bench.run(**options)


def fakes(*seconds, names="ab", order=None):
    """Contenders on one clock."""
    time = FakeTime()
    named = zip(names, seconds, strict=False)
    return [FakeContender(name, time, each, order=order) for name, each in named]


def samples(timings):
    return [len(one.samples) for one in timings.values()]


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 3e-3, 0.019, 0.5])
@pytest.mark.parametrize("step", [1, 6])
@pytest.mark.parametrize("pace", [PACE, CAREFUL])
def test_a_burst_takes_about_as_long_as_asked_or_is_one_step(seconds, step, pace):
    time = FakeTime()
    calls, elapsed = calibrate(FakeContender("x", time, seconds, step), pace, time.clock())
    assert calls % step == 0
    assert 0.8 <= elapsed / pace.burst <= 2 or calls == step
    assert elapsed == pytest.approx(calls * seconds, rel=0.1)


@pytest.mark.parametrize("held_up", [0, 1, 2])
def test_a_burst_that_the_machine_held_up_is_not_taken_for_a_whole_one(held_up):
    class HeldUp(FakeContender):
        def finish(self):
            self.time.seconds += 0.02 if len(self.bursts) == held_up + 1 else 1e-5

    time = FakeTime()
    calls, elapsed = calibrate(HeldUp("x", time, 1e-5), CAREFUL, time.clock())
    assert elapsed == pytest.approx(calls * 1e-5, rel=0.1)
    assert 0.012 <= elapsed <= 0.03


def test_the_wait_at_the_end_of_a_burst_does_not_make_bursts_short():
    (one,) = fakes(1e-5)
    one.wait = 1e-3
    calls, _ = calibrate(one, replace(PACE, burst=0.02), one.time.clock())
    assert 1e-3 + 1e-5 * calls >= 0.01


def test_work_that_never_takes_long_ends_and_rounds_can_be_taken_one_by_one():
    bench = Bench(replace(PACE, rest=0.0), clock=FakeTime().clock())
    bench.add(Calls("nothing", [lambda: None]))
    for taken in (1, 2, 3):
        assert bench.run(1)["nothing"].samples == (0.0,) * taken


def test_contenders_take_turns_with_pauses():
    order = []
    two = fakes(1e-3, 1e-3, order=order)
    timings, time = run(two), two[0].time
    assert "".join(order).endswith("abbaabbaabbaab")
    assert samples(timings) == [7, 7]
    assert timings["a"].median == pytest.approx(1e-3, rel=0.01)
    assert time.slept == pytest.approx(2.0 * (time.seconds - time.slept), rel=0.01)


def test_the_order_can_be_shuffled_and_progress_adds_up():
    order, told = [], []
    two = fakes(1e-3, 2e-3, order=order)
    timings = run(two, rng=np.random.default_rng(0), rounds=9, report=told.append)
    assert timings["b"].median == pytest.approx(2e-3, rel=0.01)
    rounds = ["".join(pair) for pair in zip(order[-18::2], order[-17::2], strict=True)]
    assert set(rounds) == {"ab", "ba"}
    assert sum(told) == pytest.approx(1.0)


def test_pauses_are_limited_and_outlast_idle_threads():
    quick, slow = fakes(1e-3, 10.0)
    quick.unrest = 0.2
    run([quick, slow], rounds=1)
    # Before all, after two measurements that lay out the first, one of the second, and a round.
    assert quick.time.pauses == pytest.approx([0.2, 2e-3, 0.2, 2.0, 0.2, 2.0], rel=0.1)


@pytest.mark.parametrize(
    ("pace", "seconds", "rounds"),
    [
        # Two rounds of 2 (0.5 + 1) s reach the limit.
        (replace(PACE, seconds=4.0), (0.5, 0.5), 2), (CAREFUL, (0.02, 0.02), 7),
        (CAREFUL, (0.3, 0.1), 5), (CAREFUL, (5.0,), 3), (replace(CAREFUL, rounds=1), (5.0,), 1),
    ],
)  # fmt: skip
def test_long_products_get_fewer_rounds(pace, seconds, rounds):
    assert set(samples(run(fakes(*seconds), pace))) == {rounds}


def test_little_time_makes_bursts_short_and_is_kept():
    two = fakes(1e-5, 3e-4)
    assert samples(run(two, replace(CAREFUL, rounds=3, seconds=0.5))) == [3, 3]
    assert two[0].time.seconds < 0.6
    assert CAREFUL.shortened(7) == CAREFUL
    assert replace(CAREFUL, seconds=0.05).shortened(2).burst == 0.001


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [((1.4e-3, 1e-3), 1), ((1.1e-3, 1e-3), 3), ((1.01e-3, 1e-3), 7), ((5e-4, 1e-3), 7),
     ((1e-3,), 7)],
)  # fmt: skip
def test_the_slower_a_candidate_than_its_rival_the_fewer_rounds(seconds, rounds):
    contenders = fakes(*seconds, names=("candidate", "rival"))
    timing = run(contenders, enough=clearly_slower)["candidate"]
    assert len(timing.samples) == rounds
    assert timing.median == pytest.approx(seconds[0], rel=0.01)


def test_what_was_measured_before_an_interruption_is_known():
    class Interrupted(FakeContender):
        def enqueue(self, calls):
            if len(self.bursts) == 3:
                raise KeyboardInterrupt
            super().enqueue(calls)

    time = FakeTime()
    bench = Bench(PACE, clock=time.clock())
    assert bench.timings() == {}
    bench.add(FakeContender("x", time, 0.02))
    bench.add(Interrupted("y", time, 0.02))
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert samples(bench.timings()) == [3, 2]


def test_calls_go_on_where_they_stopped():
    made = []
    calls = Calls("x", [lambda: made.append(0), lambda: made.append(1), lambda: made.append(2)])
    calls.enqueue(2)
    calls.enqueue(2)
    assert made == [0, 1, 2, 0]
    calls.restart()
    calls.enqueue(1)
    assert made[4:] == [0]


def test_spread_is_half_the_distance_between_quartiles():
    timing = Timing(1, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert (timing.median, timing.spread) == (3.0, pytest.approx(1 / 3))


@pytest.mark.parametrize("user", PACES)
def test_every_user_has_a_pace_for_every_device(user):
    for kind in ("cpu", "gpu", "accelerator"):
        pace = pace_for(user, kind)
        assert 0 < pace.burst <= 0.03 and pace.rounds >= pace.least_rounds
    assert pace_for(user, "cpu").rest == 4.0 or user == "ceilings"


# Behind a kernel that holds the queue. A call takes the host 9 us, the device 2 us.

TAKES = pytest.mark.parametrize("takes", [1, 3])


def measure(contender, takes=1, rounds=3):
    """The contender's timing, which has all samples of one kind."""
    timing = run([contender], Pace(0.015, 4.0, rounds, takes=takes))["x"]
    assert len(timing.samples) == rounds
    return timing


def burst_of(contender, calls, takes=1):
    return fill_queue(contender, calls, contender.device, contender.time.clock(), takes)


def late_from(count, late):
    """A device whose blocker is late by these seconds after `count` times."""
    return FakeDevice((0.0,) * count + late + (0.0,) * 100_000)


@TAKES
@pytest.mark.parametrize("seconds", [1e-6, 2e-6, 9e-6, 5e-5, 1.5e-4])
def test_behind_a_blocker_the_host_does_not_count(seconds, takes):
    contender = QueuedContender(FakeDevice(), seconds)
    timing = measure(contender, takes)
    assert timing.clock_name == "queue filled"
    assert timing.median == pytest.approx(seconds, rel=0.01)
    assert timing.calls >= 80 and set(contender.bursts[-10:]) <= {timing.calls, 0}


class Waiting(QueuedContender):
    """A library that waits."""

    def enqueue(self, calls):
        super().enqueue(calls)
        if calls:
            self.finish()


class NotHeld(QueuedContender):
    """A library whose queue cannot be held."""

    blocker = property(lambda self: None, lambda self, value: None)


@TAKES
@pytest.mark.parametrize(
    ("contender", "late", "seconds"),
    [
        (QueuedContender, (0.0,), 2 * LONGEST_PRODUCT), (NotHeld, (0.0,), 2e-6),
        (Waiting, (0.0,), 2e-6),
        (QueuedContender, (1e-3, 0.0), 2e-6),  # lost in the blocker's variation
    ],
)  # fmt: skip
def test_the_hosts_clock_counts_where_the_queue_is_not_filled(contender, late, seconds, takes):
    one = contender(FakeDevice(late), seconds)
    timing = measure(one, takes)
    assert timing.clock_name == "host"
    assert timing.median == pytest.approx(max(seconds, 9e-6), rel=0.02)
    assert max(one.device.holds, default=0.0) <= filled_queue._LONGEST_HOLD
    assert not (one.device.holds and (seconds > LONGEST_PRODUCT or contender is NotHeld))


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
    burst = burst_of(QueuedContender(FakeDevice(), host=400e-6), 1000)
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


@TAKES
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
    burst = burst_of(contender, 1000)
    assert contender.stalls == 0 and burst.calls == 200
    assert burst.sample().seconds == pytest.approx(2e-6, rel=1e-3)


@pytest.mark.parametrize("late", [0.01, 100e-6])  # longer than the work behind it, and half of it
@TAKES
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
    burst = filled_queue.FilledBurst(QueuedContender(device), 50, device, device.time.clock())
    for _ in range(filled_queue._MOST_ALONE + 1):
        sample = burst.sample()
    assert sample.seconds == pytest.approx(2e-6, rel=0.01)


@pytest.mark.parametrize(
    ("variations", "clock", "seconds"), [(2000, "host", 9e-6), (14, "queue filled", 2e-6)]
)
def test_all_figures_are_taken_again_when_the_blocker_begins_to_vary(variations, clock, seconds):
    """A burst is laid out anew, behind the blocker if that is steady by then."""
    timing = measure(QueuedContender(late_from(8, (1e-3, 0.0) * variations)), rounds=9)
    assert timing.clock_name == clock
    np.testing.assert_allclose(timing.samples, seconds, rtol=0.02)


def test_calls_too_few_to_be_told_from_the_blockers_variation_become_more():
    """Six calls take 12 us, by which the blocker is late at times."""
    burst = burst_of(QueuedContender(FakeDevice((20e-6, 0.0) * 13 + (0.0,) * 1000)), 6)
    assert burst.calls == 12
    assert burst.sample().seconds == pytest.approx(2e-6, rel=1e-3)


def test_the_time_of_the_blocker_asks_for_no_rest():
    burst = burst_of(QueuedContender(FakeDevice()), 1000, takes=3)
    assert burst.sample().worked == pytest.approx(3 * burst.calls * 2e-6, rel=1e-3)
