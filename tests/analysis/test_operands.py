"""Operands are rotated and lie as asked; results pass if right, and each mistake is caught."""

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.analysis import operands as operands_module
from pyclgemm.analysis.operands import make_operands, plan_contender
from pyclgemm.measure import verify
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from tests.support.reference import DTYPES, random_array

SHAPE = GemmShape(16, 16, 16)


def fault(operands, product=None):
    dtype = operands.host[0].dtype.name
    return operands.error(product or operands.plan(), resolve_precision(None, dtype)).fault


@pytest.fixture
def five_sets(monkeypatch):
    monkeypatch.setattr(operands_module, "rotated_sets", lambda set_bytes, device: 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_numbers_spread_over_the_interval(rng, dtype):
    numbers = operands_module.uniform(rng, (40, 50), dtype)
    assert numbers.shape == (40, 50) and numbers.dtype == dtype and numbers.flags.c_contiguous
    parts = (numbers.real, numbers.imag) if numbers.dtype.kind == "c" else (numbers,)
    for part in parts:
        assert -1 <= part.min() < -0.9 and 0.9 < part.max() <= 1  # float16 rounds up to 1
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


def test_what_is_rotated_follows_from_the_bytes_of_a_set(queue, monkeypatch):
    small, middle, large = (
        operands_module.rotated_sets(size, queue.device) for size in (1, 8 << 20, 1 << 40)
    )
    assert small == 64 and middle >= 16 and large == 1
    asked = []
    monkeypatch.setattr(operands_module, "rotated_sets", lambda *given: asked.append(given) or 1)
    make_operands(queue, GemmShape(2, 3, 5), "float64")
    make_operands(queue, GemmShape(2, 3, 5, "NT", 1, batch=7), "int8", "int32")
    assert asked == [
        (8 * (2 * 5 + 5 * 3 + 2 * 3), queue.device),
        (7 * (2 * 6 + 3 * 6 + 4 * 2 * 4), queue.device),
    ]


@pytest.mark.parametrize("trans_a", ["N", "T", "C"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_right_result_is_right_in_every_layout(queue, five_sets, trans_a, dtype):
    shape = GemmShape(33, 18, 20, "NT" if trans_a == "N" else "TT")
    assert fault(make_operands(queue, shape, dtype, trans=(trans_a, "T"))) is None


@pytest.mark.any_runtime
@pytest.mark.parametrize("whole", [verify._WHOLE, 0], ids=["whole", "sampled"])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [None, 33])
def test_operands_lie_as_the_shape_says(queue, monkeypatch, layout, padding, batch, whole):
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


def test_an_addend_takes_part(queue, five_sets):
    operands = make_operands(queue, SHAPE, "float32")
    c = operands.sets[1][2]
    c.fill(2.0)
    contender = plan_contender("x", operands, operands.plan(c=c, beta=0.5), c=c)
    contender.enqueue(1)
    contender.finish()
    a, b = operands.host
    np.testing.assert_allclose(operands.sets[0][2].get(), a @ b + 1.0, rtol=1e-4, atol=1e-5)


def test_old_operands_make_room(queue, monkeypatch, five_sets):
    monkeypatch.setattr(operands_module, "_KEPT_BYTES", 50_000)
    store = operands_module.OperandStore(queue)
    shapes = [GemmShape(size, size, size) for size in (8, 16, 64)]
    small, middle, large = (store.get(shape, "float32") for shape in shapes)
    assert store.get(shapes[2], "float32") is large
    assert store.get(shapes[0], "float32") is not small
    assert store.get(shapes[0], "float32") is store.get(shapes[0], "float32")


@pytest.mark.parametrize(("dtype", "reason"), [("float32", "no finite"), ("int8", "it is -1")])
def test_what_is_not_written_is_wrong_and_the_error_is_measured(queue, dtype, reason):
    operands = make_operands(queue, SHAPE, dtype)
    assert reason in fault(operands, lambda a, b, out: None)
    if dtype == "float32":
        precision = resolve_precision(None, dtype)
        error = operands.error(operands.plan(), precision)
        assert error.held and 0 < error.ratio < 1 and 0 < error.largest < error.bound
        assert not operands.error(lambda a, b, out: out.fill(0.0), precision).held


def fault_of(a, b, result, dtype="float32", precision=None):
    parts = verify.reference(a, b, np.random.default_rng(5))
    rounding = verify.rounding_of(dtype, a.shape[-1], resolve_precision(precision, dtype))
    return verify.measure_error(result, parts, rounding).fault


def numbers(m, n, k, dtype="float32", stack=()):
    """Operands, and their product with sums in the arithmetic of the type."""
    rng = np.random.default_rng(7)
    a, b = (random_array(rng, (*stack, *shape), dtype) for shape in ((m, k), (k, n)))
    wide = np.float32 if dtype == "float16" else a.dtype
    return a, b, (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


@pytest.fixture(params=[False, True], ids=["whole", "sampled"])
def sampled(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(verify, "_WHOLE", 0)
        monkeypatch.setattr(verify, "_BLOCK", 16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(40, 50, 30), (1, 1, 1), (5, 7, 3000), (33, 1, 2)])
def test_a_right_result_passes(sampled, dtype, sizes):
    assert fault_of(*numbers(*sizes, dtype), dtype) is None


def test_the_least_exact_arithmetic_that_is_right_passes():
    a, b, _ = numbers(20, 20, 200, "float16")
    result = np.zeros((20, 20), np.float16)
    for i in range(200):
        result = (result + np.outer(a[:, i], b[i]).astype(np.float16)).astype(np.float16)
    assert fault_of(a, b, result, "float16", "F16_F16_F16") is None
    assert fault_of(a, b, result, "float16")


def test_a_split_precision_is_held_to_its_own_error():
    a, b, right = numbers(40, 50, 30)
    rounded = [
        (x.view(np.uint32) + 0x1000 & 0xFFFFE000).astype(np.uint32).view(np.float32) for x in (a, b)
    ]
    result = rounded[0] @ rounded[1]  # as of tf32
    assert fault_of(a, b, result, "float32", "TF32_TF32_F32") is None
    assert fault_of(a, b, result, "float32", "TF32_TF32_F32_X3")
    assert fault_of(a, b, right, "float32", "TF32_TF32_F32_X3") is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", [(0, 3), (39, 20), (17, 0), (11, 49)])
def test_an_element_on_an_edge_is_caught(sampled, dtype, where):
    a, b, result = numbers(40, 50, 30, dtype)
    result[where] = result[where] * 1.1 + 0.1
    assert str(where) in fault_of(a, b, result, dtype)
    result[0, 0] = np.nan
    assert fault_of(a, b, result, dtype) == "1 elements are no finite numbers"


@pytest.mark.parametrize("product", [0, 69])
def test_a_wrong_product_of_a_batch_is_caught(sampled, product):
    a, b, result = numbers(40, 9, 30, stack=(70,))
    assert fault_of(a, b, result) is None
    result[product] = 1000
    assert f"at ({product}, 0, 0) it is 1000" in fault_of(a, b, result)


def test_a_missing_slab_of_a_long_sum_and_a_wrong_tile_are_caught(sampled):
    a, b, _ = numbers(16, 16, 60_000)
    assert fault_of(a, b, a[:, 16:] @ b[16:])
    a, b, result = numbers(300, 300, 20)
    result[128:256] = np.roll(result[128:256], 1, 0)
    assert fault_of(a, b, result)
