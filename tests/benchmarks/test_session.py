"""A run goes on after failures, and says what it leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.contenders import contenders
from benchmarks.contenders.contenders import CLBLAST, LAYER, NUMPY, PLAN
from benchmarks.products.case import Case
from tests.support.benchmark_fakes import (
    FLOAT32,
    FakeContender,
    FakeDevice,
    FakeTime,
    QueuedContender,
    make_session,
)


def test_a_session_reports_and_leaves_out_what_fails(queue: Any) -> None:
    def raising(operands: Any) -> Any:
        raise RuntimeError("not on this device")

    def wrong(operands: Any) -> Any:
        return FakeContender(PLAN, FakeTime(), 1e-3, value=np.zeros((5, 5), np.float32))

    said: list[str] = []
    factories = {PLAN: wrong, CLBLAST: raising, NUMPY: contenders.NumpyContender}
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

    class Breaking(FakeContender):
        def enqueue(self, calls: int) -> None:
            if self.bursts:
                raise RuntimeError("lost the device")
            super().enqueue(calls)

    def breaking(operands: Any) -> Any:
        one = operands.sets[0]
        return Breaking(CLBLAST, FakeTime(), 1e-3, value=one.a.host @ one.b.host)

    session = make_session(queue, [], **{PLAN: raising})
    session.run([Case(4, 4, 4)], FLOAT32, lambda part: None)
    assert "ours" in session.failures[0]
    session = make_session(queue, [], **{CLBLAST: breaking})
    session.run([Case(4, 4, 4), Case(5, 5, 5)], FLOAT32, lambda part: None)
    assert ["lost the device" in failure for failure in session.failures] == [True, True]


def test_a_session_skips_what_has_shown_to_be_slow(queue: Any) -> None:
    said: list[str] = []
    session = make_session(queue, said, **{NUMPY: contenders.NumpyContender})
    session.run([Case(8, 8, 8)], FLOAT32, lambda part: None)
    session.longest_product = 1e-9
    session.run([Case(16, 16, 16)], FLOAT32, lambda part: None)
    assert len(session.records) == 1
    assert "16x16x16" in said[0] and "--max-seconds" in said[0]


def test_a_session_skips_what_does_not_fit_the_device(queue: Any) -> None:
    said: list[str] = []
    session = make_session(queue, said, **{NUMPY: contenders.NumpyContender})
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
    device = FakeDevice(FakeTime())

    class Library(QueuedContender):
        def enqueue_ahead(self, calls: int) -> None:
            super().enqueue_ahead(calls)
            if waits and calls:
                device.finish()

    def factory(operands: Any) -> Any:
        one = operands.sets[0]
        contender = Library(CLBLAST, device, host=1e-6, seconds=1e-5)
        contender.value = one.a.host @ one.b.host
        return contender

    said: list[str] = []
    session = make_session(queue, said, **{CLBLAST: factory})
    session.blocker, session.clock = device, device.time.clock()
    session.run([Case(4, 4, 4)], FLOAT32, lambda part: None)
    (record,) = session.records
    assert record.timing.clock_name == ("host" if waits else "queue filled")
    assert ["behind a blocker in 4x4x4" in line for line in said] == [True] * waits
