"""Leaves the interpreter in the midst of things: ``exit_script.py PLATFORM WAY``."""

import atexit
import os
import sys
import threading
import time

import numpy as np

import pyclgemm

# isort: split
import pyopencl as cl
import pyopencl.array as cl_array


def multiply(queue, n, **options):
    a = cl_array.to_device(queue, np.ones((n, n), np.float32))
    return pyclgemm.gemm(queue, a, a, **options)


def multiply_on():
    """Build and launch one product after the other."""
    queue = cl.CommandQueue(context)
    a = np.ones((300, 300), np.float32)
    for n in range(100, 300):
        pyclgemm.gemm(queue, a[:n, :n], a[:n, :n], trans_a=bool(n % 3), trans_b=bool(n % 2))


platform, way = sys.argv[1:]
(device,) = next(one for one in cl.get_platforms() if one.name == platform).get_devices()[:1]
context = cl.Context([device])
queue = cl.CommandQueue(context)
if way == "kernels wait to be compiled and run":
    results = [multiply(queue, 400), multiply(queue, 300, trans_a=True)]
elif way == "the queue is dropped":
    multiply(queue, 500)
    del queue
elif way == "an error":
    multiply(queue, 500)
    sys.exit(3)
elif way == "threads that multiply":
    for _ in range(3):
        threading.Thread(target=multiply_on, daemon=True).start()
    time.sleep(0.4)
elif way == "an exit handler that multiplies":
    atexit.register(lambda: multiply(queue, 500))
elif way.startswith("a forked child"):
    assert (multiply(queue, 8).get() == 8).all()
    child = os.fork()
    if not child:
        # Past the exit handlers multiprocessing ends its processes.
        (os._exit if "past" in way else sys.exit)(8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 8, status
    assert (multiply(queue, 8, alpha=2.0).get() == 16).all()
