"""Time the calls of one tree of pyclgemm on the host, on requests of benchmarks/host_time.py.

    python benchmarks/session/host_worker.py TREE PLATFORM DEVICE SIZE ARGUMENTS [WAITS]

Each tree has such a process, so that one run can compare several. It uses only names that pyclgemm
exports, because trees may differ in modules. It reads lines "NAME CALLS" and answers each with the
seconds that the host took to enqueue these calls.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

BASELINE = "enqueue"

#: Starts as many calls.
Burst = Callable[[int], None]


def enqueue_burst(queue: cl.CommandQueue, arguments: int, waits: int) -> Burst:
    """Make the baseline: enqueue an empty kernel that waits for the previous one.

    Of its `arguments` arguments three are buffers and the others integers. It waits for `waits`
    events.
    """
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)
    pointers = min(arguments, 3)
    parameters = [f"__global float *p{i}" for i in range(pointers)]
    parameters += [f"int i{i}" for i in range(arguments - pointers)]
    source = f"__kernel void nothing({', '.join(parameters) or 'void'}) {{}}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        kernel = cl.Kernel(cl.Program(queue.context, source).build(), "nothing")
    kernel.set_args(*[buffer] * pointers, *[np.int32(1)] * (arguments - pointers))
    first = cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    older = [cl.enqueue_marker(queue) for _ in range(waits - 1)]
    queue.finish()

    # The kernel does not keep its buffers alive, so this function does.
    def burst(calls: int, _alive: object = buffer) -> None:
        event = first
        for _ in range(calls):
            event = cl.enqueue_nd_range_kernel(
                queue, kernel, (1,), (1,), wait_for=[event, *older] if waits else None
            )

    return burst


def own_bursts(library: Any, queue: cl.CommandQueue, size: int) -> tuple[dict[str, Burst], int]:
    """Make the calls of a library on one set of operands, and check their results.

    Also return the number of events that a repeated call has to wait for.
    """
    rng = np.random.default_rng(0)
    host_a, host_b = (rng.uniform(-1, 1, (size, size)).astype(np.float32) for _ in range(2))
    host_bias = rng.uniform(-1, 1, size).astype(np.float32)
    a, b, bias = (cl_array.to_device(queue, x) for x in (host_a, host_b, host_bias))
    out = cl_array.empty(queue, (size, size), np.float32)
    plan = library.plan(queue, a, b, out=out, precision="F32_F32_F32", alpha=1.0)
    layer = library.DenseLayer(queue, b, bias, "relu", precision="F32_F32_F32")
    calls = {
        "plan": functools.partial(plan, a, b, None, out=out, add_event=False),
        "gemm": functools.partial(
            library.gemm, queue, a, b, out=out, trans_a=False, trans_b=False,
            precision="F32_F32_F32", alpha=1.0,
        ),
        "DenseLayer": functools.partial(layer, a, out=out),
    }  # fmt: skip
    product = host_a.astype(float) @ host_b
    activated = np.maximum(product + host_bias, 0)
    bound = 2.0**-23 * (size + 10) * (np.abs(host_a) @ np.abs(host_b) + np.abs(host_bias))
    for name, call in calls.items():
        out.fill(np.nan)
        call()
        call()
        queue.finish()
        expected = activated if name == "DenseLayer" else product
        if not (np.abs(out.get() - expected) <= bound).all():
            raise SystemExit(f"{name} of {library.__file__} is wrong")
    calls["plan"]()  # replaces the events of the checks
    waits = sum(len(array.events) for array in (a, b, out))
    return {name: functools.partial(repeat, call) for name, call in calls.items()}, waits


def repeat(call: Callable[[], object], calls: int) -> None:
    """Call `calls` times."""
    for _ in range(calls):
        call()


def main() -> None:
    """Answer requests until the input ends."""
    tree, *numbers = sys.argv[1:]
    sys.path[0] = tree
    import pyclgemm

    platform, device, size, arguments, *requested_waits = map(int, numbers)
    # A variable, because on Intel's runtime a queue does not keep its context alive.
    context = cl.Context([cl.get_platforms()[platform].get_devices()[device]])
    queue = cl.CommandQueue(context)
    bursts, own_waits = own_bursts(pyclgemm, queue, size)
    waits = requested_waits[0] if requested_waits else own_waits
    bursts[BASELINE] = enqueue_burst(queue, arguments, waits)
    print(json.dumps({"pyclgemm": pyclgemm.__file__, "waits": waits}), flush=True)
    for line in sys.stdin:
        name, calls = line.split()
        start = time.perf_counter()
        bursts[name](int(calls))
        elapsed = time.perf_counter() - start
        queue.finish()
        print(elapsed, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
