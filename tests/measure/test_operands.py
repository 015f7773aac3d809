"""Operands are rotated and lie as asked; products of them are checked."""

import dataclasses

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.device.traits import traits_of
from pyclgemm.errors import UnsupportedError
from pyclgemm.measure import operands as operands_module
from pyclgemm.measure import verify
from pyclgemm.measure.operands import (
    OperandStore,
    make_operands,
    plan_contender,
    rotated_sets,
    uniform,
)
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape

SHAPE = GemmShape(16, 16, 16)


def fault(operands, product=None):
    dtype = operands.host[0].dtype.name
    return operands.fault(product or operands.plan(), resolve_precision(None, dtype))


@pytest.fixture
def five_sets(monkeypatch):
    monkeypatch.setattr(operands_module, "rotated_sets", lambda set_bytes, device: 5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_random_numbers_spread_over_the_interval(rng, dtype):
    numbers = uniform(rng, (40, 50), dtype)
    assert numbers.shape == (40, 50)
    assert numbers.dtype == dtype
    assert numbers.flags.c_contiguous
    parts = (numbers.real, numbers.imag) if numbers.dtype.kind == "c" else (numbers,)
    for part in parts:
        assert -1 <= part.min() < -0.9
        assert 0.9 < part.max() <= 1  # float16 rounds up to 1
        assert len(np.unique(part)) > 1000
    assert abs(np.corrcoef(np.ravel(parts[0]), np.ravel(parts[-1]))[0, 1]) < 0.2 or len(parts) == 1


def test_operands_and_results_rotate(queue, five_sets):
    operands = make_operands(queue, SHAPE, "float32")
    called = []

    def product(*arrays, out, add_event):
        # Nothing to wait for and nothing left behind: either costs the device time.
        assert add_event is False
        assert not any(array.events for array in (*arrays[:2], out))
        called.append((arrays[0], arrays[1], out))

    assert fault(operands) is None
    plan_contender("x", operands, product).enqueue(20)
    buffers = [tuple(array.base_data.int_ptr for array in one) for one in called]
    assert len({buffer for one in buffers for buffer in one}) == 15
    assert buffers == buffers[:5] * 4
    for a, b, _ in called[:5]:
        np.testing.assert_array_equal(a.get(), operands.host[0])
        np.testing.assert_array_equal(b.get(), operands.host[1])


def test_what_is_rotated_is_told_the_bytes_of_a_set(queue, monkeypatch):
    asked = []
    monkeypatch.setattr(operands_module, "rotated_sets", lambda *given: asked.append(given) or 1)
    make_operands(queue, GemmShape(2, 3, 5), "float64")
    make_operands(queue, GemmShape(2, 3, 5, "NT", 1, batch=7), "int8", "int32")
    assert asked == [
        (8 * (2 * 5 + 5 * 3 + 2 * 3), queue.device),
        (7 * (2 * 6 + 3 * 6 + 4 * 2 * 4), queue.device),
    ]


def test_small_sets_are_many_and_large_ones_are_one(queue):
    assert rotated_sets(1, queue.device) == 64
    assert rotated_sets(8 << 20, queue.device) >= 16
    assert rotated_sets(1 << 40, queue.device) == 1


@pytest.mark.parametrize("trans_a", ["N", "T", "C"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_right_result_is_right_in_every_layout(queue, five_sets, trans_a, dtype):
    layout = "NT" if trans_a == "N" else "TT"
    shape = GemmShape(33, 18, 20, layout)
    assert fault(make_operands(queue, shape, dtype, trans=(trans_a, "T"))) is None


@pytest.mark.any_runtime
@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [None, 33])
def test_operands_lie_as_the_shape_says(queue, monkeypatch, layout, padding, batch, sampled):
    if sampled:
        monkeypatch.setattr(verify, "_WHOLE", 0)
    shape = GemmShape(9, 12, 10, layout, padding, batch)
    operands = make_operands(queue, shape, "float32")
    product = operands.plan()
    assert product.product.problem == shape.problem("float32")
    assert fault(operands, product) is None
    for array in operands.sets[0][:2]:
        columns = array.shape[-1]
        whole = np.empty((*array.shape[:-1], columns + padding), np.float32)
        cl.enqueue_copy(queue, whole, array.base_data)
        assert np.isnan(whole[..., columns:]).all()
        assert np.isfinite(whole[..., :columns]).all()


def test_an_addend_takes_part(queue, five_sets):
    operands = make_operands(queue, SHAPE, "float32")
    c = operands.sets[1][2]
    c.fill(2.0)
    product = operands.plan(c=c, beta=0.5)
    contender = plan_contender("x", operands, product, c=c)
    contender.enqueue(1)
    contender.finish()
    a, b = operands.host
    np.testing.assert_allclose(operands.sets[0][2].get(), a @ b + 1.0, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "reason"), [("float32", "no finite"), ("int8", "it is -1")])
def test_what_is_not_written_is_wrong(queue, dtype, reason):
    operands = make_operands(queue, SHAPE, dtype)
    assert reason in fault(operands, lambda a, b, out: None)


@pytest.mark.parametrize("batch", [None, 3])
def test_what_is_written_between_rows_is_wrong(queue, batch):
    operands = make_operands(queue, GemmShape(9, 12, 10, padding=3, batch=batch), "float32")
    product = operands.plan()

    def spoiled(a, b, out):
        product(a, b, out=out)
        cl.enqueue_copy(queue, out.base_data, np.float32(1), dst_offset=out.base_data.size - 4)

    assert "between two rows" in fault(operands, spoiled)


def test_the_error_is_measured(queue):
    operands = make_operands(queue, SHAPE, "float32")
    precision = resolve_precision(None, "float32")
    error = operands.error(operands.plan(), precision)
    assert error.held and 0 < error.ratio < 1 and 0 < error.largest < error.bound
    assert not operands.error(lambda a, b, out: out.fill(0.0), precision).held


def test_a_product_that_the_device_cannot_hold_is_refused(queue, monkeypatch):
    small = dataclasses.replace(traits_of(queue.device), max_allocation_bytes=3600)
    monkeypatch.setattr(operands_module, "traits_of", lambda device: small)
    make_operands(queue, GemmShape(30, 30, 1), "float32")
    with pytest.raises(UnsupportedError, match="out of 30x31x1 takes 3720 bytes of float32"):
        make_operands(queue, GemmShape(30, 31, 1), "float32")


def test_old_operands_make_room(queue, monkeypatch, five_sets):
    monkeypatch.setattr(operands_module, "_KEPT_BYTES", 50_000)
    store = OperandStore(queue)
    shapes = [GemmShape(size, size, size) for size in (8, 16, 64)]
    small, middle, large = (store.get(shape, "float32") for shape in shapes)
    assert store.get(shapes[2], "float32") is large
    assert store.get(shapes[0], "float32") is not small
    assert store.get(shapes[0], "float32") is store.get(shapes[0], "float32")
