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
