"""The bench and the filled queue, on a fake clock and a fake device; the blocker's real kernel."""

import itertools
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.measure import filled_queue
from pyclgemm.measure.bench import PACES, Bench, Calls, Pace, calibrate, pace_for
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT, Burst, QueueBlocker, fill_queue
from pyclgemm.tuning.worker import clearly_slower
from tests.support.bench_fakes import FakeContender, FakeDevice, FakeTime
from tests.support.gates import is_complete

PACE = Pace(burst=0.01, rest=2.0, rounds=7)
CAREFUL = PACES["benchmark"][0]


def run(contenders, pace=PACE, rng=None, **options):
    return Bench(pace, *contenders, clock=contenders[0].time.clock(), rng=rng).run(**options)


def fakes(*seconds, names="ab", **options):
    """Contenders on one clock, whose calls take the host these seconds."""
    device = FakeDevice()
    named = zip(names, seconds, strict=False)
    return [FakeContender(device, 0.0, each, name, **options) for name, each in named]


def samples(timings):
    return [len(timing.samples) for timing in timings.values()]


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 3e-3, 0.019, 0.5])
@pytest.mark.parametrize("step", [1, 6])
@pytest.mark.parametrize("pace", [PACE, CAREFUL])
def test_a_burst_takes_about_as_long_as_asked_or_is_one_step(seconds, step, pace):
    (contender,) = fakes(seconds, step=step)
    calls, elapsed = calibrate(contender, pace, contender.time.clock())
    assert calls % step == 0
    assert 0.8 <= elapsed / pace.burst <= 2 or calls == step
    assert elapsed == pytest.approx(calls * seconds, rel=0.1)


@pytest.mark.parametrize("slow_bursts", [0, 1, 2])
@pytest.mark.parametrize("pace", [PACE, CAREFUL])
def test_a_delayed_burst_is_not_taken_for_a_full_one(slow_bursts, pace):
    (contender,) = fakes(1e-5)
    waits = itertools.chain(slow_bursts * [1e-5], [0.02], itertools.repeat(1e-5))
    contender.finish = lambda: contender.time.clock().sleep(next(waits))
    calls, elapsed = calibrate(contender, pace, contender.time.clock())
    assert elapsed == pytest.approx(calls * 1e-5, rel=0.1)
    assert 0.8 <= elapsed / pace.burst <= 2


def test_the_wait_at_the_end_of_a_burst_does_not_make_bursts_short():
    (contender,) = fakes(1e-5)
    contender.wait = 1e-3
    calls, _ = calibrate(contender, replace(PACE, burst=0.02), contender.time.clock())
    assert 1e-3 + 1e-5 * calls >= 0.01


def test_calls_that_take_no_time_end_and_rounds_can_be_run_one_by_one():
    nothing = Calls("nothing", [lambda: None])
    bench = Bench(replace(PACE, rest=0.0), nothing, clock=FakeTime().clock())
    for rounds in (1, 2, 3):
        assert bench.run(1)["nothing"].samples == (0.0,) * rounds


def test_contenders_take_turns_with_pauses():
    order = []
    contenders = fakes(1e-3, 1e-3, then=lambda contender: order.append(contender.name))
    timings, time = run(contenders), contenders[0].time
    assert "".join(order).endswith("abbaabbaabbaab")
    assert samples(timings) == [7, 7]
    assert timings["a"].median == pytest.approx(1e-3, rel=0.01)
    before, *pauses = time.pauses
    worked = time.seconds - before - sum(pauses)
    assert sum(pauses) == pytest.approx(2.0 * worked, rel=0.01)


def test_the_order_can_be_shuffled_and_the_reported_progress_adds_up_to_one():
    order, progress = [], []
    contenders = fakes(1e-3, 2e-3, then=lambda contender: order.append(contender.name))
    run(contenders, rng=np.random.default_rng(0), rounds=9, report=progress.append)
    rounds = ["".join(pair) for pair in zip(order[-18::2], order[-17::2], strict=True)]
    assert set(rounds) == {"ab", "ba"}
    assert sum(progress) == pytest.approx(1.0)


def test_pauses_are_limited_and_last_until_idle_threads_sleep():
    quick, slow = fakes(1e-3, 10.0)
    quick.unrest = 0.2
    run([quick, slow], rounds=1)
    # At the start, after three calibrating bursts of the first, one of the second, and a round.
    assert quick.time.pauses == pytest.approx([0.016, 2e-3, 0.02, 0.2, 2.0, 0.2, 2.0], rel=0.1)


@pytest.mark.parametrize(("busy", "begin"), [(0.0, 0.0), (0.11, 0.11), (9.0, 0.3)])
def test_a_bench_begins_when_the_threads_of_the_process_rest_or_after_0_3_s(busy, begin):
    begun = []
    (contender,) = fakes(1e-3, then=lambda one: begun.append(one.time.seconds))
    contender.time.busy_until = busy
    run([contender])
    assert begun[0] == pytest.approx(begin, abs=0.033)


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


def test_a_short_time_limit_is_kept_by_shorter_bursts():
    contenders = fakes(1e-5, 3e-4)
    assert samples(run(contenders, replace(CAREFUL, rounds=3, seconds=0.5))) == [3, 3]
    assert contenders[0].time.seconds < 0.6
    assert CAREFUL.shortened(7) == CAREFUL
    assert replace(CAREFUL, seconds=0.05).shortened(2).burst == 0.001


@pytest.mark.parametrize(
    ("ratios", "rounds"),
    [((1.4, 1.0), 1), ((1.1, 1.0), 3), ((1.01, 1.0), 7), ((0.5, 1.0), 7), ((1.0,), 7)],
)
def test_the_slower_a_candidate_than_its_rival_the_fewer_rounds(ratios, rounds):
    contenders = fakes(*(1e-3 * ratio for ratio in ratios), names=("candidate", "rival"))
    timing = run(contenders, enough=clearly_slower)["candidate"]
    assert len(timing.samples) == rounds
    assert timing.median == pytest.approx(1e-3 * ratios[0], rel=0.01)


def test_an_interrupted_run_keeps_its_samples():
    def interrupt(contender):
        if len(contender.bursts) == 5:  # two calibrate
            raise KeyboardInterrupt

    first, second = fakes(0.02, 0.02)
    second.then = interrupt
    bench = Bench(PACE, clock=first.time.clock())
    assert bench.timings() == {}
    bench.add(first)
    bench.add(second)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert samples(bench.timings()) == [3, 2]


def test_every_user_has_a_pace_for_every_device():
    for user, kind in itertools.product(PACES, ("cpu", "gpu", "accelerator")):
        pace = pace_for(user, kind)
        assert 0 < pace.burst <= 0.03 and pace.rounds >= pace.least_rounds
        assert pace.rest == 4.0 or kind != "cpu" or user == "ceilings"


def stalling():
    """A contender whose host is delayed during the first three bursts behind a blocker."""
    stalls = 3 * [0.01]

    def stall(contender):
        if contender.device.holds and stalls:
            contender.time.seconds += stalls.pop()

    return fake(then=stall)


def late_status():
    """As `stalling`; the driver reports the end of the blocker late, so the clock must tell."""
    contender = stalling()
    hold = contender.device.hold
    contender.device.hold = lambda seconds: hold(seconds) and (lambda: True)
    return contender


@pytest.mark.parametrize("stalled", range(8))
def test_the_demo_does_not_mistake_a_stalled_burst_for_a_slow_product(stalled):
    """Its first bursts say how many calls a burst has: too few would time the final wait."""

    def stall(contender):
        if len(contender.bursts) == stalled + 1:
            contender.time.seconds += 0.2

    contender = FakeContender(FakeDevice(), seconds=1e-4, host=1e-6, then=stall)
    contender.wait = 1e-3
    timing = run([contender], PACES["demo"][0])["x"]
    assert 1e-4 <= timing.median < 1.3e-4


def fake(*late, **options):
    """A contender whose blocker ends late by these seconds in turn, and later in time."""
    device = FakeDevice(late + (0.0,) * 100_000)
    return FakeContender(device, **{"blocker": device} | options)


NONE = (0.0,)
VARYING = (1e-3, 0.0)

#: Contenders, the clock that counts, and the seconds of a call.
TIMED = {
    **{
        f"{seconds} s": (lambda seconds=seconds: fake(seconds=seconds), "queue filled", seconds)
        for seconds in (1e-6, 2e-6, 9e-6, 5e-5, 1.5e-4)
    },
    "a slow host": (lambda: fake(host=60e-6), "queue filled", 2e-6),
    "a blocker that ends early": (stalling, "queue filled", 2e-6),
    "long calls": (lambda: fake(seconds=2 * LONGEST_PRODUCT), "host", 2 * LONGEST_PRODUCT),
    "no blocker": (lambda: fake(blocker=None), "host", 9e-6),
    "a library that waits": (lambda: fake(then=FakeContender.finish), "host", 9e-6),
    "a blocker that varies": (lambda: fake(*VARYING * 2000), "host", 9e-6),
    # All samples of a contender are of one clock: its bursts are calibrated again, and timed on
    # the host if the blocker still varies.
    "it begins to vary": (lambda: fake(*NONE * 8, *VARYING * 2000), "host", 9e-6),
    "it varies in between": (lambda: fake(*NONE * 8, *VARYING * 14), "queue filled", 2e-6),
}


@pytest.mark.parametrize("takes", [1, 3])
@pytest.mark.parametrize(("make", "clock", "seconds"), TIMED.values(), ids=TIMED)
def test_the_host_is_the_clock_only_where_the_queue_cannot_be_filled(make, clock, seconds, takes):
    contender = make()
    timing = run([contender], Pace(0.015, 4.0, rounds=9, takes=takes))["x"]
    assert timing.clock_name == clock and len(timing.samples) == 9
    np.testing.assert_allclose(timing.samples, seconds, rtol=0.02)
    holds = contender.device.holds
    assert max(holds, default=0.0) <= filled_queue._LONGEST_HOLD
    assert not (holds and seconds > LONGEST_PRODUCT)
    if clock != "host":
        assert timing.calls >= 80 and set(contender.bursts[-10:]) <= {timing.calls, 0}
        pause = 4.0 * takes * timing.calls * seconds  # of the work without the blocker
        assert contender.time.pauses[-1] == pytest.approx(pause, rel=0.02)


#: Contenders, the calls asked for, and those that a burst may have.
BURSTS = {
    "as many as a driver takes": (fake, 1000, [200]),
    "as many as a driver takes, of five launches": (lambda: fake(launches=5), 1000, [100]),
    "a host too slow": (lambda: fake(host=400e-6), 1000, range(8, 100)),
    "a status that comes late": (late_status, 1000, [200]),
    # Six calls take 12 us, less than the blocker is late at times.
    "too few to measure": (lambda: fake(*(20e-6, 0.0) * 13), 6, [12]),
}


@pytest.mark.parametrize(("make", "asked", "calls"), BURSTS.values(), ids=BURSTS)
def test_a_burst_has_as_many_calls_as_the_host_enqueues_ahead(make, asked, calls):
    contender = make()
    burst = fill_queue(contender, asked, contender.device, contender.time.clock(), takes=1)
    assert burst.sample() == pytest.approx(2e-6, rel=0.01)  # without the blocker
    assert burst.calls in calls


@pytest.mark.parametrize("late", [0.01, 100e-6])  # longer than the work behind it, and half of it
@pytest.mark.parametrize("takes", [1, 3])
def test_one_late_blocker_changes_nothing(late, takes):
    contender, extra = fake(), []
    device, hold = contender.device, contender.device.hold
    device.hold = lambda seconds: hold(seconds + (extra.pop() if extra else 0.0))
    burst = Burst(contender, 50, device.time.clock(), device, takes)
    for _ in range(2):
        extra.append(late)  # the first blocker of a sample has no work behind it
        assert burst.sample() == pytest.approx(2e-6, rel=0.01)


def test_a_blocker_that_stays_late_is_measured_until_its_new_time_is_known():
    contender = fake(*NONE * 4, *(0.01,) * 1000)
    burst = Burst(contender, 50, contender.time.clock(), contender.device)
    for _ in range(filled_queue._MOST_ALONE + 1):
        seconds = burst.sample()
    assert seconds == pytest.approx(2e-6, rel=0.01)


@pytest.mark.parametrize("takes", [1, 3])
def test_a_busy_host_makes_no_product_seem_faster(takes, rng):
    """The blocker ends up to 5 ms late, many times as long as a burst takes: the host is timed."""
    contender = fake(*rng.uniform(0, 5e-3, 20_000))
    timing = run([contender], Pace(0.004, 4.0, rounds=9, takes=takes))["x"]
    assert min(timing.samples) >= 1e-6


@pytest.mark.parametrize("late", [50e-6, 200e-6, 390e-6])
def test_a_blocker_that_is_slower_alone_makes_no_product_seem_faster(late):
    contender = fake()
    enqueue = contender.enqueue

    def slower_alone(calls):
        contender.device.add(0.0 if calls else late)
        enqueue(calls)

    contender.enqueue = slower_alone
    timing = run([contender], Pace(0.004, 4.0, rounds=9))["x"]  # 200 calls take 400 us
    assert min(timing.samples) >= 1.5e-6


def test_commands_behind_the_blocker_wait_for_its_end(fresh_queue):
    still_holding = QueueBlocker(fresh_queue).hold(0.02)
    after = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    assert not is_complete(after)
    while not is_complete(after):
        pass
    assert not still_holding()


def test_the_steps_of_a_blocker_follow_its_speed(fresh_queue, monkeypatch):
    monkeypatch.setattr(QueueBlocker, "_measure", lambda self: 1e6)
    blocker = QueueBlocker(fresh_queue)
    steps, launch = [], blocker._launch
    monkeypatch.setattr(blocker, "_launch", lambda count: steps.append(count) or launch(1))
    for seconds in (0.001, 0.25, 0.0, 1e9):
        blocker.hold(seconds)
    assert steps == [1000, 250_000, 1, filled_queue._MOST_STEPS]


@pytest.mark.parametrize("waits", [[0.0], [0.005], [0.02, 0.0, 0.005, 0.011, 0.0]], ids=str)
def test_the_speed_is_that_of_a_warm_kernel_without_its_waits(fresh_queue, monkeypatch, waits):
    """The first launch takes a second; the others wait, and then take 10 ns a step."""
    delays, launched = itertools.chain([1.0], itertools.cycle(waits)), []

    def seconds(self, steps):
        launched.append(steps)
        return next(delays) + 1e-8 * steps

    monkeypatch.setattr(QueueBlocker, "_seconds", seconds)
    assert 0.7e8 < QueueBlocker(fresh_queue)._steps_per_second <= 1e8 * (1 + 1e-9)
    assert 1e-8 * launched[-1] >= filled_queue._MEASURED


def test_the_kernel_does_every_step(fresh_queue):
    """Each step moves the state a quarter of the way to 1."""
    blocker = QueueBlocker(fresh_queue)
    state = np.empty(1, np.float32)
    cl.enqueue_fill_buffer(fresh_queue, blocker._state, np.float32(0.0), 0, 4)
    blocker._launch(3)
    cl.enqueue_copy(fresh_queue, state, blocker._state)
    assert state[0] == pytest.approx(1 - 0.75**3)
