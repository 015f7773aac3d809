"""A run goes on after failures, and says what it leaves out."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.contenders.contenders import CLBLAST, LAYER, NUMPY, PLAN, NumpyContender
from benchmarks.products.case import Case
from tests.support.bench_fakes import FakeDevice, FakeTime, QueuedContender
from tests.support.benchmark_fakes import (
    Checked,
    CheckedFake,
    make_session,
    measure,
    product,
    raising,
)


def test_a_session_reports_and_leaves_out_what_fails(queue):
    said = []
    factories = {
        PLAN: lambda operands: CheckedFake(PLAN, np.zeros((5, 5), np.float32)),
        CLBLAST: raising(RuntimeError("not on this device")),
        NUMPY: NumpyContender,
    }
    session = make_session(queue, said, **factories)
    parts = measure(session, Case(5, 5, 5), Case(5, 5, 5, padding=2))
    assert [record.contender for record in session.records] == [NUMPY, NUMPY]
    assert sum("not on this device" in line for line in said) == 1
    assert sum("WRONG" in line for line in said) == len(session.failures) == 2
    assert sum(parts) == pytest.approx(2.0)


def test_a_session_goes_on_after_an_error_of_ours(queue):
    class Breaking(CheckedFake):
        def enqueue(self, calls):
            if self.bursts:
                raise RuntimeError("lost the device")
            super().enqueue(calls)

    session = make_session(queue, [], **{PLAN: raising(ValueError("ours"))})
    measure(session, Case(4, 4, 4))
    assert "ours" in session.failures[0]
    session = make_session(
        queue, [], **{CLBLAST: lambda operands: Breaking(CLBLAST, product(operands))}
    )
    measure(session, Case(4, 4, 4), Case(5, 5, 5))
    assert ["lost the device" in failure for failure in session.failures] == [True, True]


def test_a_session_skips_what_is_slow_or_does_not_fit_the_device(queue):
    said = []
    session = make_session(queue, said, **{NUMPY: NumpyContender})
    measure(session, Case(8, 8, 8))
    session.longest_product = 1e-9
    measure(session, Case(16, 16, 16), Case(1 << 20, 1 << 20, 1))
    assert len(session.records) == 1
    assert "16x16x16" in said[0] and "--max-seconds" in said[0]
    assert "1048576x1048576x1 is skipped" in said[-1]


def test_dense_contenders_take_part_in_dense_cases_only(queue):
    said = []
    session = make_session(queue, said, **{name: raising(KeyError(name)) for name in (PLAN, LAYER)})
    measure(session, Case(4, 4, 4))
    assert len(session.failures) == 1 and PLAN in session.failures[0]
    measure(session, Case(4, 4, 4, dense=True))
    assert len(session.failures) == 3 and LAYER in session.failures[2]


@pytest.mark.parametrize("waits", [False, True])
def test_a_session_says_where_a_library_waits(queue, waits):
    device = FakeDevice()

    class Library(Checked, QueuedContender):
        """Enqueues, or waits for each call."""

        def __init__(self, value):
            super().__init__(device, seconds=1e-5, host=1e-6)
            self.name, self.value = CLBLAST, value

        def enqueue(self, calls):
            super().enqueue(calls)
            if waits and calls:
                self.finish()

    said = []
    session = make_session(queue, said, **{CLBLAST: lambda operands: Library(product(operands))})
    session.blocker, session.clock = device, device.time.clock()
    measure(session, Case(4, 4, 4))
    (record,) = session.records
    assert record.timing.clock_name == ("host" if waits else "queue filled")
    assert ["behind a blocker in 4x4x4" in line for line in said] == [True] * waits


def test_an_interrupt_keeps_what_was_measured(queue):
    time = FakeTime()

    class Impatient(CheckedFake):
        def enqueue(self, calls):
            super().enqueue(calls)
            if len(self.bursts) == 6:
                raise KeyboardInterrupt

    factories = {
        PLAN: lambda operands: Impatient(PLAN, product(operands), time),
        CLBLAST: lambda operands: CheckedFake(CLBLAST, product(operands), time),
    }
    session = make_session(queue, [], **factories)
    session.pace, session.clock = replace(session.pace, rounds=9), time.clock()
    with pytest.raises(KeyboardInterrupt):
        measure(session, Case(4, 4, 4))
    assert {record.contender for record in session.records} == {PLAN, CLBLAST}
