"""Multiply NumPy arrays on the best device, as numpy.matmul does."""

import numpy as np

import pyclgemm

rng = np.random.default_rng(0)
a = rng.random((64, 768), dtype=np.float32)
b = rng.random((768, 3072), dtype=np.float32)

c = pyclgemm.matmul(a, b)  # a NumPy array; copied to a GPU and back; a CPU reads them in place
print("matmul:", c.shape, c.dtype)
assert np.allclose(c, a @ b, rtol=1e-4)

stack = rng.random((10, 64, 32), dtype=np.float32)  # ten matrices in one launch
products = pyclgemm.matmul(stack, stack.transpose(0, 2, 1))  # views are read where they lie
print("a stack:", products.shape)
assert np.allclose(products, stack @ stack.transpose(0, 2, 1), rtol=1e-4)

trace = pyclgemm.einsum("bij,bij->b", stack, stack)
print("einsum:", trace.shape)
assert np.allclose(trace, np.einsum("bij,bij->b", stack, stack), rtol=1e-4)
