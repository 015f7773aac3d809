"""A run goes on after failures, and says what it leaves out."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.contenders import contenders
from benchmarks.contenders.contenders import CLBLAST, LAYER, NUMPY, PLAN, NumpyContender
from benchmarks.products.case import Case
from benchmarks.session.session import Session
from pyclgemm.measure.bench import Pace
from tests.support.bench_fakes import FakeContender, FakeDevice, FakeTime, QueuedContender
from tests.support.benchmark_fakes import FLOAT32


class Checked(contenders.CheckedContender):
    """Gives the product of the first set, as NumPy computes it."""

    precision = FLOAT32.precision

    def poison(self):
        pass

    def result(self):
        return self.value


class CheckedFake(Checked, FakeContender):
    """Takes a millisecond a call; `at_call` is called before each, with its number."""

    def __init__(self, operands, time=None, name=CLBLAST, at_call=lambda number: None):
        super().__init__(name, time or FakeTime(), 1e-3)
        self.value, self.at_call = operands.host[0] @ operands.host[1], at_call

    def enqueue(self, calls):
        self.at_call(len(self.bursts))
        super().enqueue(calls)


@pytest.fixture
def said():
    """What a session says."""
    return []


@pytest.fixture
def make_session(queue, said):
    def make(factories):
        pace = Pace(burst=1e-4, rest=4.0, rounds=1)
        return Session(queue, factories, pace, said.append, longest_product=float("inf"))

    return make


def measure(session, *cases):
    """Run a session; the parts of the work that it reports."""
    parts = []
    session.run(cases, FLOAT32, parts.append)
    return parts


def test_a_session_reports_and_leaves_out_what_fails(make_session, said):
    def wrong(operands):
        contender = CheckedFake(operands, name=PLAN)
        contender.value = np.zeros_like(contender.value)
        return contender

    absent = Mock(side_effect=RuntimeError("not on this device"))
    session = make_session({PLAN: wrong, CLBLAST: absent, NUMPY: NumpyContender})
    parts = measure(session, Case(5, 5, 5), Case(5, 5, 5, padding=2))
    assert [record.contender for record in session.records] == [NUMPY, NUMPY]
    assert sum("not on this device" in line for line in said) == 1
    assert sum("WRONG" in line for line in said) == len(session.failures) == 2
    assert sum(parts) == pytest.approx(2.0)


def test_a_session_goes_on_after_an_error_of_ours(make_session):
    session = make_session({PLAN: Mock(side_effect=ValueError("ours"))})
    measure(session, Case(4, 4, 4))
    assert "ours" in session.failures[0]

    def lost(number):
        if number:
            raise RuntimeError("lost the device")

    session = make_session({CLBLAST: lambda operands: CheckedFake(operands, at_call=lost)})
    measure(session, Case(4, 4, 4), Case(5, 5, 5))
    assert ["lost the device" in failure for failure in session.failures] == [True, True]


def test_a_session_skips_what_is_slow_or_does_not_fit_the_device(make_session, said):
    session = make_session({NUMPY: NumpyContender})
    measure(session, Case(8, 8, 8))
    session.longest_product = 1e-9
    measure(session, Case(16, 16, 16), Case(1 << 20, 1 << 20, 1))
    assert len(session.records) == 1
    assert "16x16x16" in said[0] and "--max-seconds" in said[0]
    assert "1048576x1048576x1 is skipped" in said[-1]


def test_dense_contenders_take_part_in_dense_cases_only(make_session):
    session = make_session({name: Mock(side_effect=KeyError(name)) for name in (PLAN, LAYER)})
    measure(session, Case(4, 4, 4))
    assert len(session.failures) == 1 and PLAN in session.failures[0]
    measure(session, Case(4, 4, 4, dense=True))
    assert len(session.failures) == 3 and LAYER in session.failures[2]


@pytest.mark.parametrize("waits", [False, True])
def test_a_session_says_where_a_library_waits(make_session, said, waits):
    device = FakeDevice()

    class Library(Checked, QueuedContender):
        """Enqueues, or waits for each call."""

        def __init__(self, operands):
            super().__init__(device, seconds=1e-5, host=1e-6)
            self.name, self.value = CLBLAST, operands.host[0] @ operands.host[1]

        def enqueue(self, calls):
            super().enqueue(calls)
            if waits and calls:
                self.finish()

    session = make_session({CLBLAST: Library})
    session.blocker, session.clock = device, device.time.clock()
    measure(session, Case(4, 4, 4))
    (record,) = session.records
    assert record.timing.clock_name == ("host" if waits else "queue filled")
    assert ["behind a blocker in 4x4x4" in line for line in said] == [True] * waits


def test_an_interrupt_keeps_what_was_measured(make_session):
    time = FakeTime()

    def interrupt(number):
        if number == 6:
            raise KeyboardInterrupt

    factories = {
        PLAN: lambda operands: CheckedFake(operands, time, PLAN, interrupt),
        CLBLAST: lambda operands: CheckedFake(operands, time),
    }
    session = make_session(factories)
    session.pace, session.clock = replace(session.pace, rounds=9), time.clock()
    with pytest.raises(KeyboardInterrupt):
        measure(session, Case(4, 4, 4))
    assert {record.contender for record in session.records} == {PLAN, CLBLAST}
