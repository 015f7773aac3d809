"""The contenders compute the product, on every set of operands."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from benchmarks.contenders import contenders
from benchmarks.products import operands
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case, parse_shapes
from benchmarks.products.check import error_ratio, make_reference
from benchmarks.products.operands import make_operands
from tests.support.benchmark_fakes import FLOAT32


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_own_contenders_are_right(queue: Any, dtype: str, rng: np.random.Generator) -> None:
    for case in parse_shapes("13x17x19:TT+3,32x24x40", dense=True):
        made = make_operands(case, arithmetic_of(dtype), queue, rng)
        reference = make_reference(made, rng)
        for make in (
            contenders.plan_contender,
            contenders.gemm_contender,
            contenders.packed_contender,
            contenders.layer_contender,
        ):
            contender = make(made)
            contender.poison()
            contender.enqueue(len(made.sets) + 1)
            contender.finish()
            ratio = error_ratio(contender.result(), reference, contender.precision, contender.bias)
            assert ratio < 1, contender.name


def test_every_set_has_buffers_of_its_own_and_gets_its_product(
    queue: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operands, "rotated_sets", lambda set_bytes, device: 3)
    for case in (Case(5, 6, 7), Case(5, 6, 7, padding=2)):
        made = make_operands(case, arithmetic_of("float32"), queue, rng)
        outs = [one.out.device_base for one in made.sets]
        buffers = {
            matrix.device_base.base_data.int_ptr
            for one in made.sets
            for matrix in (one.a, one.b, one.out)
        }
        assert len(buffers) == 9
        for make in (contenders.plan_contender, contenders.packed_contender):
            for out in outs:
                out.fill(np.nan, queue)
            contender = make(made)
            contender.enqueue_ahead(3)
            contender.finish()
            for one in made.sets:
                result = one.out.device_base.get(queue)[:, : case.n]
                np.testing.assert_allclose(result, one.a.host @ one.b.host, rtol=1e-4, atol=1e-5)


def test_on_a_cpu_numpy_finds_every_set_where_the_device_finds_it(
    queue: Any, rng: np.random.Generator
) -> None:
    made = make_operands(Case(5, 6, 7), arithmetic_of("float32"), queue, rng, count=3)
    places = {
        matrix.host_base.ctypes.data for one in made.sets for matrix in (one.a, one.b, one.out)
    }
    assert len(places) == (9 if queue.device.type & cl.device_type.CPU else 3)
    for one in made.sets:
        np.testing.assert_array_equal(one.a.host, made.sets[0].a.host)
        np.testing.assert_array_equal(one.b.host, one.device_b.get())


def test_sets_are_as_many_as_asked_for_or_more_than_caches_hold(
    queue: Any, rng: np.random.Generator
) -> None:
    def count(*given: int) -> int:
        return len(make_operands(Case(64, 64, 64), FLOAT32, queue, rng, *given).sets)

    assert (count(1), count(2), count()) == (1, 2, 64)


def test_products_in_a_queue_are_waited_for_once(
    queue: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_operands(Case(5, 6, 7), FLOAT32, queue, rng, 2)
    reference = make_reference(made, rng)
    one_by_one, queued = contenders.plan_contender(made), contenders.queued_contender(made)
    monkeypatch.setattr(one_by_one, "waits_for_each", True)
    markers: list[Any] = []
    mark = cl.enqueue_marker
    monkeypatch.setattr(cl, "enqueue_marker", lambda given: markers.append(given) or mark(given))
    for contender, waits in ((queued, 0), (one_by_one, 3)):
        markers.clear()
        contender.poison()
        contender.enqueue(3)
        contender.finish()
        assert len(markers) == waits
        assert error_ratio(contender.result(), reference, contender.precision) < 1


def test_a_burst_goes_on_among_the_sets_where_the_one_before_stopped(
    queue: Any, rng: np.random.Generator
) -> None:
    made = make_operands(Case(5, 6, 7), arithmetic_of("float32"), queue, rng)
    order: list[int] = []
    calls = [functools.partial(order.append, index) for index in range(3)]
    contender = contenders.DeviceContender("x", made, calls)
    contender.enqueue(2)
    contender.enqueue_ahead(2)
    assert order == [0, 1, 2, 0]
    contender.poison()
    contender.enqueue(1)
    assert order[4:] == [0]


def test_only_what_may_run_ahead_tells_its_launches(queue: Any, rng: np.random.Generator) -> None:
    made = make_operands(Case(3, 3, 3), arithmetic_of("float32"), queue, rng)
    assert contenders.plan_contender(made).launches
    assert contenders.packed_contender(made).launches
    assert contenders.layer_contender(made).launches
    # Its figure is what a user's loop sees.
    assert contenders.gemm_contender(made).launches is None
    assert contenders.NumpyContender(made).launches is None
