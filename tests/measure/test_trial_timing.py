"""Timing in turn, on a clock of the test's own."""

from __future__ import annotations

import pytest

from pyclgemm.measure.timing import Pace, time_in_turn

PACE = Pace(burst=0.01, rest=2.0, rounds=7)


class Machine:
    """Works at a speed that may change, and remembers who ran and how long it slept."""

    def __init__(self):
        self.now = 0.0
        self.slow = 1.0
        self.ran = []
        self.slept = []

    def work(self, name, seconds):
        def run(count):
            self.ran.append((name, count))
            self.now += self.slow * seconds * count

        return run

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def time(self, candidate, rival):
        return time_in_turn(
            self.work("a", candidate),
            None if rival is None else self.work("b", rival),
            PACE,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def bursts(machine):
    """Who ran bursts of full length, in order."""
    return "".join(name for name, count in machine.ran if count >= 5)


def test_medians_of_both():
    assert Machine().time(0.001, 0.002) == (pytest.approx(0.001), pytest.approx(0.002))


def test_alone():
    machine = Machine()
    assert machine.time(0.001, None) == (pytest.approx(0.001), None)
    assert "b" not in bursts(machine)


def test_close_contenders_take_turns():
    machine = Machine()
    machine.time(0.001, 0.001)
    assert bursts(machine).endswith("abbaabbaabbaab")


@pytest.mark.parametrize(("candidate", "rounds"), [(0.0014, 1), (0.0011, 3), (0.00101, 7)])
def test_the_slower_the_candidate_the_fewer_rounds(candidate, rounds):
    machine = Machine()
    machine.time(candidate, 0.001)
    calibrated = 2
    assert len(bursts(machine)) - calibrated <= 2 * rounds
    assert len(bursts(machine)) >= 2 * rounds


def test_a_faster_candidate_is_timed_in_all_rounds():
    machine = Machine()
    machine.time(0.0005, 0.001)
    assert len(bursts(machine)) >= 14


def test_long_products_get_fewer_rounds():
    machine = Machine()
    machine.time(0.5, 0.5)
    calibrated = 2
    assert len(machine.ran) - calibrated == 4  # two rounds of 2 (0.5 + 1) s pass the limit


def test_pauses_follow_the_work():
    machine = Machine()
    machine.time(0.001, 0.001)
    assert max(machine.slept) == pytest.approx(2.0 * PACE.burst, rel=0.3)


def test_a_long_product_is_a_burst_by_itself():
    machine = Machine()
    assert machine.time(0.5, None) == (pytest.approx(0.5), None)
    assert {count for _, count in machine.ran} == {1}
