"""Contenders are timed in turn, in bursts with pauses; seen on a clock that is made up."""

from dataclasses import replace

import numpy as np
import pytest

from pyclgemm.measure.bench import PACES, Bench, Calls, Pace, Timing, calibrate, pace_for
from pyclgemm.tuning.worker import clearly_slower
from tests.support.bench_fakes import FakeContender, FakeTime

PACE = Pace(burst=0.01, rest=2.0, rounds=7)
CAREFUL = PACES["benchmark"][0]


def run(contenders, pace=PACE, **options):
    bench = Bench(pace, clock=contenders[0].time.clock(), rng=options.pop("rng", None))
    for contender in contenders:
        bench.add(contender)
    return bench.run(**options)


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
    time = FakeTime()

    class HeldUp(FakeContender):
        def finish(self):
            self.time.seconds += 0.02 if len(self.bursts) == held_up + 1 else 1e-5

    calls, elapsed = calibrate(HeldUp("x", time, 1e-5), CAREFUL, time.clock())
    assert elapsed == pytest.approx(calls * 1e-5, rel=0.1)
    assert 0.012 <= elapsed <= 0.03


def test_the_wait_at_the_end_of_a_burst_does_not_make_bursts_short():
    one = FakeContender("x", FakeTime(), 1e-5)
    one.wait = 1e-3
    calls, _ = calibrate(one, replace(PACE, burst=0.02), one.time.clock())
    assert 1e-3 + 1e-5 * calls >= 0.01


def test_work_that_never_takes_long_ends():
    bench = Bench(replace(PACE, rest=0.0), clock=FakeTime().clock())
    bench.add(Calls("nothing", [lambda: None]))
    assert bench.run(1)["nothing"].samples == (0.0,)


def test_contenders_take_turns_with_pauses():
    time, order = FakeTime(), []
    two = [FakeContender(name, time, 1e-3, order=order) for name in "ab"]
    timings = run(two)
    assert "".join(order).endswith("abbaabbaabbaab")
    assert {name: len(timing.samples) for name, timing in timings.items()} == {"a": 7, "b": 7}
    assert timings["a"].median == pytest.approx(1e-3, rel=0.01)
    assert time.slept == pytest.approx(2.0 * (time.seconds - time.slept), rel=0.01)


def test_the_order_can_be_shuffled_and_progress_adds_up():
    time, order, told = FakeTime(), [], []
    two = [FakeContender("a", time, 1e-3, order=order), FakeContender("b", time, 2e-3, order=order)]
    timings = run(two, rng=np.random.default_rng(0), rounds=9, report=told.append)
    assert timings["b"].median == pytest.approx(2e-3, rel=0.01)
    rounds = [order[i : i + 2] for i in range(len(order) - 18, len(order), 2)]
    assert all(sorted(pair) == ["a", "b"] for pair in rounds)
    assert ["a", "b"] in rounds and ["b", "a"] in rounds
    assert sum(told) == pytest.approx(1.0)


def test_pauses_are_limited_and_outlast_idle_threads():
    time = FakeTime()
    quick, slow = FakeContender("quick", time, 1e-3), FakeContender("slow", time, 10.0)
    quick.unrest = 0.2
    run([quick, slow], rounds=1)
    # Before all, after two measurements that lay out the first, one of the second, and a round.
    assert time.pauses == pytest.approx([0.2, 2e-3, 0.2, 2.0, 0.2, 2.0], rel=0.1)


def test_long_products_get_fewer_rounds():
    def rounds(pace, *seconds):
        time = FakeTime()
        timings = run([FakeContender(str(i), time, one) for i, one in enumerate(seconds)], pace)
        return {len(timing.samples) for timing in timings.values()}

    limited = replace(PACE, seconds=4.0)
    assert rounds(limited, 0.5, 0.5) == {2}  # two rounds of 2 (0.5 + 1) s reach the limit
    assert rounds(CAREFUL, 0.02, 0.02) == {7}
    assert rounds(CAREFUL, 0.3, 0.1) == {5}
    assert rounds(CAREFUL, 5.0) == {3}
    assert rounds(replace(CAREFUL, rounds=1), 5.0) == {1}


def test_little_time_makes_bursts_short_and_is_kept():
    time = FakeTime()
    two = [FakeContender("x", time, 1e-5), FakeContender("y", time, 3e-4)]
    timings = run(two, replace(CAREFUL, rounds=3, seconds=0.5))
    assert [len(timing.samples) for timing in timings.values()] == [3, 3]
    assert time.seconds < 0.6
    assert CAREFUL.shortened(7) == CAREFUL
    assert replace(CAREFUL, seconds=0.05).shortened(2).burst == 0.001


@pytest.mark.parametrize(
    ("candidate", "rounds"), [(0.0014, 1), (0.0011, 3), (0.00101, 7), (0.0005, 7)]
)
def test_the_slower_a_candidate_the_fewer_rounds(candidate, rounds):
    time = FakeTime()
    two = [FakeContender("candidate", time, candidate), FakeContender("rival", time, 0.001)]
    timings = run(two, enough=clearly_slower)
    assert len(timings["candidate"].samples) == rounds
    assert timings["candidate"].median == pytest.approx(candidate, rel=0.01)


def test_a_candidate_without_a_rival_is_timed_in_all_rounds():
    timings = run([FakeContender("candidate", FakeTime(), 0.001)], enough=clearly_slower)
    assert len(timings["candidate"].samples) == 7


def test_what_was_measured_before_an_interruption_is_known():
    time = FakeTime()

    class Interrupted(FakeContender):
        def enqueue(self, calls):
            if len(self.bursts) == 3:
                raise KeyboardInterrupt
            super().enqueue(calls)

    bench = Bench(PACE, clock=time.clock())
    assert bench.timings() == {}
    bench.add(FakeContender("x", time, 0.02))
    bench.add(Interrupted("y", time, 0.02))
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert {name: len(one.samples) for name, one in bench.timings().items()} == {"x": 3, "y": 2}


def test_rounds_can_be_taken_one_by_one():
    bench = Bench(PACE, clock=FakeTime().clock())
    bench.add(Calls("x", [lambda: None]))
    for _ in range(3):
        bench.run(1)
    assert len(bench.timings()["x"].samples) == 3


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
