"""The clock of the demo, on a clock of its own."""

from __future__ import annotations

from pyclgemm import timing


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
    assert result["fast"] == 0.001 or abs(result["fast"] - 0.001) < 1e-12
    assert abs(result["slow"] - 0.5) < 1e-12
    assert order == [("fast", 1), ("slow", 1)] + [("fast", 20), ("slow", 1)] * 3
    # The short burst rests until idle threads sleep, the long one in proportion.
    assert time.pauses[2] == timing.LEAST_PAUSE
    assert abs(time.pauses[3] - timing.PAUSE_BURSTS * 0.5) < 1e-12


def test_samples_are_all_bursts_at_the_pace_that_is_asked_for():
    time = FakeTime()
    durations = iter([0.001, 0.010, 0.020, 0.030])
    counts = []

    def work(count):
        counts.append(count)
        time.now += next(durations)

    samples = timing.sample(
        {"one": work}, 3, burst_seconds=0.01, pause_bursts=2.0, least_pause=0.025,
        clock=time.clock, sleep=time.sleep,
    )  # fmt: skip
    assert counts == [1, 10, 10, 10]
    assert [round(seconds, 9) for seconds in samples["one"]] == [0.001, 0.002, 0.003]
    assert [round(pause, 9) for pause in time.pauses] == [0.025, 0.025, 0.04, 0.06]
