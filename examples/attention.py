"""Attention of several heads: two batched products, with the softmax on the host."""

import numpy as np
import pyopencl.array as cla

import pyclgemm

HEADS, TOKENS, WIDTH = 8, 128, 64

queue = pyclgemm.default_queue()
rng = np.random.default_rng(0)
queries, keys, values = (
    rng.standard_normal((HEADS, TOKENS, WIDTH), dtype=np.float32) for _ in range(3)
)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Normalise rows."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


# One launch for all heads: Q Kᵀ / sqrt(width), then the weights times V.
scores = pyclgemm.gemm_batched(
    queue,
    cla.to_device(queue, queries),
    cla.to_device(queue, keys),
    trans_b=True,
    alpha=WIDTH**-0.5,
)
weights = cla.to_device(queue, softmax(scores.get()))
heads = pyclgemm.gemm_batched(queue, weights, cla.to_device(queue, values)).get()

wanted = softmax(queries @ keys.transpose(0, 2, 1) * np.float32(WIDTH**-0.5)) @ values
print(f"{HEADS} heads of {TOKENS} tokens: largest difference {np.abs(heads - wanted).max():.1e}")
assert np.allclose(heads, wanted, atol=1e-4)

# With NumPy arrays, matmul does the same.
again = pyclgemm.matmul(softmax(pyclgemm.matmul(queries, keys.swapaxes(1, 2)) / WIDTH**0.5), values)
assert np.allclose(again, wanted, atol=1e-4)
