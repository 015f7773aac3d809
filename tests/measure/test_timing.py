"""Bursts in turn, on a clock of the test's own."""

from __future__ import annotations

import pytest

from pyclgemm.measure import timing


class FakeTime:
    """Time that passes only when work is done or the machine rests."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def test_contenders_take_turns_in_bursts_with_pauses():
    time = FakeTime()
    order = []

    def work(name, seconds):
        def run(count):
            order.append((name, count))
            time.now += seconds * count

        return run

    result = timing.compare(
        {"fast": work("fast", 0.001), "slow": work("slow", 0.5)},
        3,
        clock=time.clock,
        sleep=time.sleep,
    )
    assert result == {"fast": pytest.approx(0.001), "slow": pytest.approx(0.5)}
    fast, slow = ("fast", 16), ("slow", 1)
    assert order == [("fast", 1), fast, slow] + [fast, slow, slow, fast, fast, slow]
    # The short burst rests until idle threads sleep, the long one in proportion.
    assert time.pauses[3] == timing.LEAST_PAUSE
    assert time.pauses[4] == pytest.approx(timing.PAUSE_BURSTS * 0.5)


def test_the_longest_pause_is_limited():
    time = FakeTime()

    def work(count):
        time.now += 10.0 * count

    timing.compare({"one": work}, 1, clock=time.clock, sleep=time.sleep)
    assert time.pauses == [timing.LONGEST_PAUSE] * 2


def test_samples_are_all_bursts_at_the_pace_that_is_asked_for():
    time = FakeTime()
    durations = iter([0.001, 0.010, 0.010, 0.020, 0.030])
    counts = []

    def work(count):
        counts.append(count)
        time.now += next(durations)

    samples = timing.sample(
        {"one": work}, 3, burst_seconds=0.01, pause_bursts=2.0, least_pause=0.025,
        clock=time.clock, sleep=time.sleep,
    )  # fmt: skip
    assert counts == [1, 10, 10, 10, 10]
    assert samples["one"] == pytest.approx([0.001, 0.002, 0.003])
    assert time.pauses == pytest.approx([0.025, 0.025, 0.025, 0.04, 0.06])


def test_the_wait_at_the_end_of_a_burst_does_not_make_bursts_short():
    """One call and the wait take 1 ms, but each further call only 0.01 ms."""
    time = FakeTime()
    counts = []

    def work(count):
        counts.append(count)
        time.now += 1e-3 + 1e-5 * count

    timing.sample({"one": work}, 1, burst_seconds=0.02, clock=time.clock, sleep=time.sleep)
    assert 1e-3 + 1e-5 * counts[-1] >= 0.01


def test_what_the_work_tells_counts_more_than_the_clock():
    time = FakeTime()

    def work(count):
        time.now += 1.0
        return 0.002 * count

    samples = timing.sample(
        {"one": work}, 2, burst_seconds=0.01, pause_bursts=2.0, least_pause=0.0,
        clock=time.clock, sleep=time.sleep,
    )  # fmt: skip
    assert samples["one"] == pytest.approx([0.002, 0.002])
    assert time.pauses[-1] == pytest.approx(0.02)


def test_work_that_never_takes_long_ends():
    turns = timing.Turns([lambda count: 0.0], 1.0, lambda seconds: 0.0)
    turns.take()
    assert turns.samples == [[0.0]]
