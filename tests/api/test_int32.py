"""Products of int32 wrap as NumPy's do."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm


def _full(*shape):
    """Numbers of the whole range, whose sums of products overflow."""
    random = np.random.default_rng(sum(shape))
    return random.integers(-(2**31), 2**31, shape).astype(np.int32)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sizes", [(37, 29, 41), (130, 70, 90), (1, 50, 60), (300, 1, 70)])
def test_a_product_wraps(queue, sizes, order):
    m, n, k = sizes
    a, b, c, bias = _full(m, k), _full(k, n), _full(m, n), _full(n)
    on_device = [cl_array.to_device(queue, np.asarray(x, order=order)) for x in (a, b, c)]
    epilogue = pyclgemm.Epilogue(bias=cl_array.to_device(queue, bias))
    found = pyclgemm.gemm(
        queue, *on_device[:2], c=on_device[2], alpha=-3, beta=7, epilogue=epilogue
    )
    np.testing.assert_array_equal(found.get(), np.int32(-3) * (a @ b) + np.int32(7) * c + bias)


def test_batches_and_einsum_wrap(queue):
    a, b = _full(7, 9, 11), _full(7, 11, 5)
    np.testing.assert_array_equal(pyclgemm.matmul(a, b, queue=queue), a @ b)
    found = pyclgemm.einsum("bij,bjk->ik", a, b, queue=queue)
    np.testing.assert_array_equal(found, (a @ b).sum(0, dtype=np.int32))


def test_fractions_and_activations_are_refused(queue):
    a = cl_array.to_device(queue, _full(4, 4))
    with pytest.raises(pyclgemm.DtypeError, match=r"alpha is 1.5 .* int32"):
        pyclgemm.gemm(queue, a, a, alpha=1.5)
    with pytest.raises(pyclgemm.UnsupportedError, match=r"relu.* int32"):
        pyclgemm.gemm(queue, a, a, epilogue=pyclgemm.Epilogue(activation="relu"))


def test_layers_packed_matrices_and_narrower_integers_wrap(queue):
    a, b = _full(50, 40), _full(40, 30)
    layer = pyclgemm.DenseLayer(queue, b, b[0])
    np.testing.assert_array_equal(layer(a), a @ b + b[0])
    np.testing.assert_array_equal(pyclgemm.gemm(queue, a, pyclgemm.pack(queue, b)), a @ b)
    narrow = a.astype(np.int16)
    found = pyclgemm.matmul(narrow, b, queue=queue, dtype="int32")
    np.testing.assert_array_equal(found, narrow.astype(np.int32) @ b)
