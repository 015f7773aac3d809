"""A product of Dask arrays: each tile of the result is a task on the device of its worker."""

import dask.array as da
import numpy as np

import pyclgemm.dask

a = da.random.default_rng(0).random((600, 500), chunks=(200, 250)).astype(np.float32)
b = da.random.default_rng(1).random((500, 400), chunks=(250, 200)).astype(np.float32)

c = pyclgemm.dask.matmul(a, b)  # a Dask array; nothing is computed yet
print(c)
result = c.sum(axis=1).compute(scheduler="threads")  # it is part of any Dask graph
wanted = (a @ b).sum(axis=1).compute(scheduler="threads")
print(f"largest difference: {np.abs(result - wanted).max():.1e}")
assert np.allclose(result, wanted, rtol=1e-4)
