"""Operands of products: they rotate, they lie as asked, and results of plans are checked."""

from unittest.mock import Mock

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.analysis import operands as operands_module
from pyclgemm.analysis.operands import make_operands, plan_contender
from pyclgemm.measure import verify
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from tests.support.reference import DTYPES

SHAPE = GemmShape(16, 16, 16)


def fault(operands, product=None):
    dtype = operands.host[0].dtype.name
    return operands.error(product or operands.plan(), resolve_precision(None, dtype)).fault


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_numbers_fill_the_interval(rng, dtype):
    numbers = operands_module.uniform(rng, (40, 50), dtype)
    assert numbers.shape == (40, 50) and numbers.dtype == dtype and numbers.flags.c_contiguous
    parts = (numbers.real, numbers.imag) if numbers.dtype.kind == "c" else (numbers,)
    for part in parts:
        assert -1 <= part.min() < -0.9 and 0.9 < part.max() <= 1  # float16 rounds up to 1
        assert len(np.unique(part)) > 1000
    assert abs(np.corrcoef(np.ravel(parts[0]), np.ravel(parts[-1]))[0, 1]) < 0.2 or len(parts) == 1


def test_operands_and_results_rotate(queue):
    operands = make_operands(queue, SHAPE, "float32", count=5)
    called = []

    def product(*arrays, out, add_event):
        # Events, old or new, would cost the device time.
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


def test_the_number_of_sets_follows_from_the_bytes_of_a_set(queue, monkeypatch):
    small, middle, large = (
        operands_module.rotated_sets(size, queue.device) for size in (1, 8 << 20, 1 << 40)
    )
    assert small == 64 and middle >= 16 and large == 1
    rotated = Mock(return_value=1)
    monkeypatch.setattr(operands_module, "rotated_sets", rotated)
    make_operands(queue, GemmShape(2, 3, 5), "float64")
    rotated.assert_called_with(8 * (2 * 5 + 5 * 3 + 2 * 3), queue.device)
    make_operands(queue, GemmShape(2, 3, 5, "NT", 1, batch=7), "int8", "int32")
    rotated.assert_called_with(7 * (2 * 6 + 3 * 6 + 4 * 2 * 4), queue.device)


@pytest.mark.parametrize("trans", [("T", "T"), ("C", "T"), ("C", "C")])
def test_a_plan_of_complex_operands_is_right(queue, trans):
    shape = GemmShape(33, 18, 20, "TT")
    assert fault(make_operands(queue, shape, "complex64", trans=trans)) is None


@pytest.mark.any_runtime
@pytest.mark.parametrize("whole", [verify._WHOLE, 0], ids=["whole", "sampled"])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [None, 33])
def test_operands_have_the_layout_of_the_shape(queue, monkeypatch, layout, padding, batch, whole):
    monkeypatch.setattr(verify, "_WHOLE", whole)
    shape = GemmShape(9, 12, 10, layout, padding, batch)
    operands = make_operands(queue, shape, "float32")
    product = operands.plan()
    assert product.product.problem == shape.problem("float32")
    assert fault(operands, product) is None
    for array in operands.sets[0][:2]:
        columns = array.shape[-1]
        stored = np.empty((*array.shape[:-1], columns + padding), np.float32)
        cl.enqueue_copy(queue, stored, array.base_data)
        assert np.isnan(stored[..., columns:]).all()
        assert np.isfinite(stored[..., :columns]).all()


def test_a_contender_may_have_an_addend(queue):
    operands = make_operands(queue, SHAPE, "float32", count=2)
    c = operands.sets[1][2]
    c.fill(2.0)
    contender = plan_contender("x", operands, operands.plan(c=c, beta=0.5), c=c)
    contender.enqueue(1)
    contender.finish()
    a, b = operands.host
    np.testing.assert_allclose(operands.sets[0][2].get(), a @ b + 1.0, rtol=1e-4, atol=1e-5)


def test_a_full_store_drops_its_oldest_operands(queue, monkeypatch):
    monkeypatch.setattr(operands_module, "_KEPT_BYTES", 50_000)
    store = operands_module.OperandStore(queue, most_sets=5)
    shapes = [GemmShape(size, size, size) for size in (8, 16, 64)]
    small, middle, large = (store.get(shape, "float32") for shape in shapes)
    assert store.get(shapes[2], "float32") is large
    assert store.get(shapes[0], "float32") is not small
    assert store.get(shapes[0], "float32") is store.get(shapes[0], "float32")


@pytest.mark.parametrize(("dtype", "reason"), [("float32", "no finite"), ("int8", "it is -1")])
def test_a_result_that_is_not_written_is_wrong(queue, dtype, reason):
    operands = make_operands(queue, SHAPE, dtype)
    assert fault(operands) is None  # leaves a right result in the buffer
    assert reason in fault(operands, lambda a, b, out: None)
