"""Products are timed by the clock on CPUs, in a filled queue elsewhere, with the same operands."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pyclgemm import operand_pool, profile_operands
from pyclgemm.config import CpuConfig
from pyclgemm.inquiry import Inquiry
from pyclgemm.profile_operands import TimedOperands

CONFIG = CpuConfig(MR=4, NR=8, KC=128, VW=4)


@pytest.fixture
def as_gpu(traits, monkeypatch):
    """The device is taken for a GPU where it is decided how to time it."""
    if traits.type != "cpu":
        pytest.skip("a configuration of the cpu family")
    shown = dataclasses.replace(traits, type="gpu")
    monkeypatch.setattr(profile_operands, "traits_of", lambda device: shown)


class Call:
    """Remembers what a plan was called with."""

    def __init__(self, ready, calls):
        self.ready, self.calls = ready, calls

    def __call__(self, a, b, c=None, **others):
        self.calls.append((a, b, len(a.events + b.events + others["out"].events), others))
        self.ready(a, b, c, **others)


@pytest.fixture
def calls(monkeypatch):
    made, real = [], operand_pool.plan
    monkeypatch.setattr(
        operand_pool, "plan", lambda *rest, **others: Call(real(*rest, **others), made)
    )
    return made


def test_a_cpu_tells_no_time(queue, traits):
    if traits.type != "cpu":
        pytest.skip("how CPUs are timed")
    operands = TimedOperands(queue, "float32", [(16, 16, 16)])
    assert operands.work(Inquiry(16, 16, 16), CONFIG)(2) is None


def test_others_tell_the_time_of_the_device(queue, as_gpu, calls):
    operands = TimedOperands(queue, "float32", [(16, 16, 16)])
    inquiry = Inquiry(16, 16, 16)
    assert operands.fault(inquiry, CONFIG) is None
    calls.clear()
    work = operands.work(inquiry, CONFIG)
    assert work(1) > 0
    assert work(20) > 0
    assert len(calls) >= 21
    burst = calls[1:21]
    assert len({(a.offset, b.offset) for a, b, _, _ in burst}) == 16  # rotated, as ever
    # Nothing to wait for and nothing left behind: either costs the device time.
    assert all(events == 0 for _, _, events, _ in calls)
    assert all(others["add_event"] is False for _, _, _, others in calls)


def test_the_product_is_the_one_asked_for(queue, as_gpu):
    inquiry = Inquiry(9, 7, 5, trans_a="T", reads_c=True, bias=True, activation="relu")
    operands = TimedOperands(queue, "float32", [(9, 7, 5)])
    operands.work(inquiry, CONFIG)(1)
    cut = operands._operands(inquiry)
    (a, b), c, bias = cut.sets[0], cut.c.get(), cut.epilogue.bias.get()
    wanted = np.maximum(a.get().T @ b.get() + 0.5 * c + bias, 0)
    np.testing.assert_allclose(cut.out.get(), wanted, rtol=1e-5, atol=1e-5)
