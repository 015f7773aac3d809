"""gemm_batched of sequences of matrices: launches, offsets, events."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.runtime.launcher import LaunchSequence
from tests.support.checks import skip_if_refused
from tests.support.configs import BATCH_CONFIGS, DIRECT, INDIRECT
from tests.support.gates import is_complete
from tests.support.reference import assert_close, expected_gemm, random_array


def _matrices(queue, rng, count, shape, scattered):
    """Matrices on the device, in one buffer in no order or in buffers of their own, and here."""
    host = random_array(rng, (count, *shape), "float32")
    if not scattered:
        return [cl_array.to_device(queue, one) for one in host], host
    order = rng.permutation(count + 2)[:count]
    whole = cl_array.to_device(queue, random_array(rng, (count + 2, *shape), "float32"))
    slices = [whole[int(place)] for place in order]
    for one, values in zip(slices, host, strict=True):
        one.set(values)
    return slices, host


def _check(out, host_a, host_b):
    for got, *hosts in zip(out.get(), host_a, host_b, strict=True):
        assert_close(got, expected_gemm(*hosts))


def _launches():
    """Counts launches of kernels while it is entered."""
    return patch.object(
        LaunchSequence, "_launch", autospec=True, side_effect=LaunchSequence._launch
    )


@pytest.mark.parametrize("sizes", [(20, 24, 16), (64, 64, 64)], ids=["tails", "whole tiles"])
@pytest.mark.parametrize("config", [None, INDIRECT, replace(DIRECT, FILL=2), BATCH_CONFIGS["gemv"]])
@pytest.mark.first_runtime
def test_slices_of_one_buffer_go_into_one_launch(queue, rng, config, sizes):
    skip_if_refused(queue, config)
    count = 7
    m, n, k = sizes
    a, host_a = _matrices(queue, rng, count, (m, k), True)
    b, host_b = _matrices(queue, rng, count, (k, n), True)
    out, _ = _matrices(queue, rng, count, (m, n), True)
    c, host_c = _matrices(queue, rng, count, (m, n), True)
    with _launches() as launched:
        returned = pyclgemm.gemm_batched(queue, a, b, c, beta=0.5, out=out, config=config)
    assert launched.call_count == 1
    assert returned is out
    for number, got in enumerate(out):
        expected = expected_gemm(host_a[number], host_b[number], host_c[number], beta=0.5)
        assert_close(got.get(), expected)


def test_buffers_of_their_own(queue, rng):
    a, host_a = _matrices(queue, rng, 4, (5, 6), False)
    b, host_b = _matrices(queue, rng, 4, (6, 3), True)
    with _launches() as launched:
        out = pyclgemm.gemm_batched(queue, a, b)
    assert launched.call_count == 4
    assert out.shape == (4, 5, 3)
    _check(out, host_a, host_b)


def test_two_buffers_are_two_launches(queue, rng):
    first, host_first = _matrices(queue, rng, 3, (5, 6), True)
    second, host_second = _matrices(queue, rng, 3, (5, 6), True)
    b = random_array(rng, (6, 6, 4), "float32")
    turns = [0, 3, 1, 4, 2, 5]
    a = [(first + second)[turn] for turn in turns]
    host_a = np.concatenate([host_first, host_second])[turns]
    with _launches() as launched:
        out = pyclgemm.gemm_batched(queue, a, cl_array.to_device(queue, b))
    assert launched.call_count == 2
    _check(out, host_a, b)


def test_a_launch_that_cannot_be_leaves_the_result_as_it_was(queue, rng):
    """The matrix that is alone in its buffer is no batch, as this family takes them only."""
    together, _ = _matrices(queue, rng, 3, (5, 5), True)
    alone, _ = _matrices(queue, rng, 1, (5, 5), True)
    out = cl_array.empty(queue, (4, 5, 5), np.float32)
    out.fill(7)
    config = BATCH_CONFIGS["small"]
    skip_if_refused(queue, config)
    with pytest.raises(pyclgemm.ConfigError, match="single product"):
        pyclgemm.gemm_batched(queue, together + alone, together + alone, out=out, config=config)
    assert (out.get() == 7).all()


def test_offsets_are_uploaded_where_they_change(queue, rng):
    a, host_a = _matrices(queue, rng, 5, (6, 6), True)
    out = cl_array.zeros(queue, (5, 6, 6), np.float32)
    for turned in (a, a, a[::-1], [a[i] for i in (2, 0, 1, 4, 3)]):
        pyclgemm.gemm_batched(queue, turned, a, out=out)
        numbers = [next(i for i, one in enumerate(a) if one is other) for other in turned]
        _check(out, host_a[numbers], host_a)


def test_sequences_of_numpy_arrays(queue, rng):
    a = [random_array(rng, (4, 5), "float32") for _ in range(3)]
    b = random_array(rng, (5, 6), "float32")
    out = pyclgemm.gemm_batched(queue, a, b)
    assert isinstance(out, np.ndarray)
    given = [np.empty((4, 6), np.float32) for _ in range(3)]
    assert pyclgemm.gemm_batched(queue, tuple(a), b, out=given) is given
    for number in range(3):
        assert_close(out[number], expected_gemm(a[number], b))
        assert_close(given[number], expected_gemm(a[number], b))


def test_one_matrix_serves_all(queue, rng):
    a, host_a = _matrices(queue, rng, 3, (4, 5), True)
    b, host_b = _matrices(queue, rng, 1, (5, 6), True)
    out = pyclgemm.gemm_batched(queue, a, b)
    _check(out, host_a, np.repeat(host_b, 3, axis=0))


# Events


def test_waits_and_events(fresh_queue, gate, rng):
    a, host = _matrices(fresh_queue, rng, 3, (4, 4), True)
    fresh_queue.finish()
    out, event = pyclgemm.gemm_batched(fresh_queue, a, a, wait_for=[gate.event], return_event=True)
    assert not is_complete(event)
    assert out.events == [event]
    again = pyclgemm.gemm_batched(fresh_queue, out, a)
    gate.open()
    for number, got in enumerate(again.get()):
        cube = np.linalg.matrix_power(host[number].astype(np.float64), 3)
        np.testing.assert_allclose(got, cube, rtol=1e-4, atol=1e-5)


def test_event_goes_to_every_destination(queue, rng):
    a, _ = _matrices(queue, rng, 3, (4, 4), False)
    out = [cl_array.empty(queue, (4, 4), np.float32) for _ in range(3)]
    pyclgemm.gemm_batched(queue, a, a, out=out)
    assert all(len(one.events) == 1 for one in out)


def test_out_of_order_queue(out_of_order_queue, rng):
    a, host = _matrices(out_of_order_queue, rng, 4, (6, 6), False)
    out, event = pyclgemm.gemm_batched(out_of_order_queue, a, a, return_event=True)
    event.wait()
    _check(out, host, host)
