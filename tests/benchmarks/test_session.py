"""A run goes on after failures, and says what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.contenders.contenders import CLBLAST, LAYER, NUMPY, PLAN, NumpyContender
from benchmarks.products.case import Case
from tests.support.bench_fakes import FakeDevice, FakeTime, QueuedContender
from tests.support.benchmark_fakes import FLOAT32, Checked, CheckedFake, make_session


def test_a_session_reports_and_leaves_out_what_fails(queue: Any) -> None:
    def raising(operands: Any) -> Any:
        raise RuntimeError("not on this device")

    def wrong(operands: Any) -> Any:
        return CheckedFake(PLAN, np.zeros((5, 5), np.float32))

    said: list[str] = []
    factories = {PLAN: wrong, CLBLAST: raising, NUMPY: NumpyContender}
    session = make_session(queue, said, **factories)
    parts: list[float] = []
    session.run([Case(5, 5, 5), Case(5, 5, 5, padding=2)], FLOAT32, parts.append)
    assert [record.contender for record in session.records] == [NUMPY, NUMPY]
    assert sum("not on this device" in line for line in said) == 1
    assert sum("WRONG" in line for line in said) == len(session.failures) == 2
    assert sum(parts) == pytest.approx(2.0)


def test_a_session_goes_on_after_an_error_of_ours(queue: Any) -> None:
    def raising(operands: Any) -> Any:
        raise ValueError("ours")

    class Breaking(CheckedFake):
        def enqueue(self, calls: int) -> None:
            if self.bursts:
                raise RuntimeError("lost the device")
            super().enqueue(calls)

    def breaking(operands: Any) -> Any:
        return Breaking(CLBLAST, operands.host[0] @ operands.host[1])

    session = make_session(queue, [], **{PLAN: raising})
    session.run([Case(4, 4, 4)], FLOAT32, lambda part: None)
    assert "ours" in session.failures[0]
    session = make_session(queue, [], **{CLBLAST: breaking})
    session.run([Case(4, 4, 4), Case(5, 5, 5)], FLOAT32, lambda part: None)
    assert ["lost the device" in failure for failure in session.failures] == [True, True]


def test_a_session_skips_what_has_shown_to_be_slow(queue: Any) -> None:
    said: list[str] = []
    session = make_session(queue, said, **{NUMPY: NumpyContender})
    session.run([Case(8, 8, 8)], FLOAT32, lambda part: None)
    session.longest_product = 1e-9
    session.run([Case(16, 16, 16)], FLOAT32, lambda part: None)
    assert len(session.records) == 1
    assert "16x16x16" in said[0] and "--max-seconds" in said[0]


def test_a_session_skips_what_does_not_fit_the_device(queue: Any) -> None:
    said: list[str] = []
    session = make_session(queue, said, **{NUMPY: NumpyContender})
    session.run([Case(1 << 20, 1 << 20, 1)], FLOAT32, lambda part: None)
    assert not session.records
    assert "1048576x1048576x1 is skipped" in said[0]


def test_dense_contenders_take_part_in_dense_cases_only(queue: Any) -> None:
    asked: list[str] = []

    def asking(name: str) -> Any:
        def factory(operands: Any) -> Any:
            asked.append(name)
            raise RuntimeError

        return factory

    session = make_session(queue, [], **{PLAN: asking(PLAN), LAYER: asking(LAYER)})
    session.run([Case(4, 4, 4)], FLOAT32, lambda part: None)
    assert asked == [PLAN]
    session.run([Case(4, 4, 4, dense=True)], FLOAT32, lambda part: None)
    assert asked == [PLAN, PLAN, LAYER]


@pytest.mark.parametrize("waits", [False, True])
def test_a_session_says_where_a_library_waits(queue: Any, waits: bool) -> None:
    device = FakeDevice()

    class Library(Checked, QueuedContender):
        """Enqueues, or waits for each call."""

        def __init__(self, value: Any) -> None:
            super().__init__(device, seconds=1e-5, host=1e-6)
            self.name, self.value = CLBLAST, value

        def enqueue(self, calls: int) -> None:
            super().enqueue(calls)
            if waits and calls:
                self.finish()

    said: list[str] = []
    session = make_session(
        queue, said, **{CLBLAST: lambda operands: Library(operands.host[0] @ operands.host[1])}
    )
    session.blocker, session.clock = device, device.time.clock()
    session.run([Case(4, 4, 4)], FLOAT32, lambda part: None)
    (record,) = session.records
    assert record.timing.clock_name == ("host" if waits else "queue filled")
    assert ["behind a blocker in 4x4x4" in line for line in said] == [True] * waits


def test_an_interrupt_keeps_what_was_measured(queue: Any) -> None:
    class Impatient(CheckedFake):
        def enqueue(self, calls: int) -> None:
            super().enqueue(calls)
            if len(self.bursts) == 6:
                raise KeyboardInterrupt

    time = FakeTime()
    session = make_session(
        queue, [],
        **{
            PLAN: lambda operands: Impatient(PLAN, operands.host[0] @ operands.host[1], time),
            CLBLAST: lambda one: CheckedFake(CLBLAST, one.host[0] @ one.host[1], time),
        },
    )  # fmt: skip
    session.pace, session.clock = replace(session.pace, rounds=9), time.clock()
    with pytest.raises(KeyboardInterrupt):
        session.run([Case(4, 4, 4)], FLOAT32, lambda part: None)
    assert {record.contender for record in session.records} == {PLAN, CLBLAST}
