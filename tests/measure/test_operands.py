"""Operands are rotated on GPUs; products of them are checked, and timed as the device wants it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pyclgemm.device.traits import traits_of
from pyclgemm.errors import UnsupportedError
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.measure import operands as operand_pool
from pyclgemm.measure.operands import OperandPool
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose
from tests.support.products import product_of

CONFIG = CpuConfig(MR=4, NR=8, KC=128, VW=4)
PRODUCT = GemmShape(16, 16, 16).product()


def chosen(queue, product):
    """A configuration for whatever the device is."""
    return choose(product.problem, traits_of(queue.device), load_database()).config


@pytest.fixture
def cpu(traits):
    if traits.type != "cpu":
        pytest.skip("a configuration of the cpu family")


@pytest.fixture
def as_gpu(cpu, traits, monkeypatch):
    """The device is taken for a GPU where it is decided how to time it and what to rotate."""
    shown = dataclasses.replace(traits, type="gpu")
    monkeypatch.setattr(operand_pool, "traits_of", lambda device: shown)
    monkeypatch.setattr(operand_pool, "rotated_sets", lambda set_bytes, device: 5)


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


def test_a_cpu_tells_no_time(cpu, queue, calls):
    work = OperandPool(queue, "float32", [(16, 16, 16)]).work(PRODUCT, CONFIG)
    assert work(3) is None
    assert len({id(a) for a, _, _, _ in calls}) == 3


def test_others_tell_the_time_of_the_device(queue, as_gpu, calls):
    pool = OperandPool(queue, "float32", [(16, 16, 16)])
    assert pool.fault(PRODUCT, CONFIG) is None
    calls.clear()
    work = pool.work(PRODUCT, CONFIG)
    assert work(1) > 0
    assert work(20) > 0
    assert len(calls) >= 21
    # Nothing to wait for and nothing left behind: either costs the device time.
    assert all(events == 0 for _, _, events, _ in calls)
    assert all(others["add_event"] is False for _, _, _, others in calls)


def test_operands_and_results_rotate(queue, as_gpu, calls):
    # The largest shape is not the one whose sets need the most memory.
    pool = OperandPool(queue, "float32", [(3, 5, 7), (16, 16, 16)])
    pool.work(GemmShape(3, 5, 7).product(), CONFIG)(1)
    pool.work(PRODUCT, CONFIG)(1)
    for product in (GemmShape(3, 5, 7).product(), PRODUCT):
        calls.clear()
        pool.work(product, CONFIG)(20)
        burst = [(a, b, others["out"]) for a, b, _, others in calls[:20]]
        places = [tuple(array.offset for array in one) for one in burst]
        assert len(set(places)) == 5
        assert places[:5] == places[5:10]
        assert all(offset % 256 == 0 for one in places for offset in one)
        for role in zip(*burst[:5], strict=True):
            spans = sorted((array.offset, array.offset + array.nbytes) for array in role)
            assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def test_what_is_rotated_is_told_the_bytes_of_a_set(queue, monkeypatch):
    asked = []
    monkeypatch.setattr(operand_pool, "rotated_sets", lambda *given: asked.append(given) or 1)
    OperandPool(queue, "float64", [(2, 3, 5)])
    assert asked == [(8 * (2 * 5 + 5 * 3 + 2 * 3), queue.device)]


def test_no_more_sets_than_a_buffer_holds(queue, traits, monkeypatch, as_gpu):
    small = dataclasses.replace(traits, max_allocation_bytes=3 * 1024 + 512)
    monkeypatch.setattr(operand_pool, "traits_of", lambda device: small)
    pool = OperandPool(queue, "float32", [(16, 16, 16)])
    assert len(pool._operands(PRODUCT).sets) == 3
    assert max(memory.nbytes for memory in pool._memory.values()) == 3 * 1024
    with pytest.raises(UnsupportedError, match="out of the largest product takes 3600 bytes"):
        OperandPool(queue, "float32", [(30, 30, 1)])


def test_the_product_is_the_one_asked_for(queue, as_gpu):
    product = GemmShape(9, 7, 5, "TN").product(reads_c=True, bias=True, activation="relu")
    pool = OperandPool(queue, "float32", [(9, 7, 5)])
    pool.work(product, CONFIG)(5)
    cut = pool._operands(product)
    c, bias = cut.c.get(), cut.epilogue.bias.get()
    for a, b, out in cut.sets:
        wanted = np.maximum(a.get().T @ b.get() + 0.5 * c + bias, 0)
        np.testing.assert_allclose(out.get(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trans_a", ["N", "T", "C"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_right_result_is_right_in_every_layout(queue, trans_a, dtype):
    product = product_of(33, 18, 20, dtype, trans_a=trans_a, trans_b="T")
    pool = OperandPool(queue, dtype, [(33, 18, 20), (5, 50, 6)])
    assert pool.fault(product, chosen(queue, product)) is None


def test_what_is_not_written_is_wrong(queue, monkeypatch):
    pool = OperandPool(queue, "float32", [(16, 16, 16)])
    config = chosen(queue, PRODUCT)
    assert pool.fault(PRODUCT, config) is None
    monkeypatch.setattr(operand_pool, "plan", lambda *_, **__: lambda *_, **__: None)
    assert "no finite numbers" in pool.fault(PRODUCT, config)


def test_a_product_that_the_device_cannot_hold_is_refused(queue):
    with pytest.raises(UnsupportedError, match="a of the largest product takes"):
        OperandPool(queue, "float32", [(2**24, 1, 2**24)])
