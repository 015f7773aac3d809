"""Keep arrays on a device: choose it, multiply without waiting, repeat a product by a plan."""

import numpy as np
import pyopencl.array as cla

import pyclgemm  # before the first OpenCL call of the process

queue = pyclgemm.default_queue()  # or any pyopencl.CommandQueue
print("device:", queue.device.name)

rng = np.random.default_rng(0)
a = cla.to_device(queue, rng.random((500, 300), dtype=np.float32))
b = cla.to_device(queue, rng.random((300, 400), dtype=np.float32))

c = pyclgemm.gemm(queue, a, b)  # enqueued; returns before the device has computed it
pyclgemm.gemm(queue, a, b, c, alpha=2.0, beta=-1.0, out=c)  # in place: 2 A B - C
difference = np.abs(c.get() - a.get() @ b.get()).max()  # get() waits
print(f"largest difference from NumPy: {difference:.1e}")
assert difference < 1e-2

print(pyclgemm.explain(queue, a, b))  # which kernel runs, and why

plan = pyclgemm.plan(queue, a, b, out=c)  # chooses and builds once
for _ in range(10):
    plan(a, b, out=c)
queue.finish()
assert np.allclose(c.get(), a.get() @ b.get(), rtol=1e-4)
