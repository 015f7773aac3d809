"""A dense layer for inference: the weight is packed once, bias and activation cost no pass."""

import numpy as np
import pyopencl.array as cla

import pyclgemm

queue = pyclgemm.default_queue()
rng = np.random.default_rng(0)
weight = rng.standard_normal((256, 512), dtype=np.float32) / 16  # (in, out)
bias = rng.standard_normal(512, dtype=np.float32)

layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
for rows in (1, 8, 100):  # any number of rows; each has a kernel that suits it
    x = rng.standard_normal((rows, 256), dtype=np.float32)
    y = layer(cla.to_device(queue, x)).get()
    wanted = np.maximum(x @ weight + bias, 0)
    print(f"{rows} rows: largest difference {np.abs(y - wanted).max():.1e}")
    assert np.allclose(y, wanted, atol=1e-4)
