"""Run products on the simulated device, to be started under Oclgrind (see test_oclgrind.py).

Oclgrind reports what kernels do wrong; this script says which results are right, and where in
Oclgrind's log the faults of each product start.
"""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import pyclgemm
from pyclgemm.device import traits as device
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.mra.choice import TransformChoice
from pyclgemm.mra.fused import FusedConfig
from pyclgemm.mra.transform import build_transform, describe_transform
from pyclgemm.problem.problem import PackedLayout
from tests.support.checks import packed
from tests.support.configs import CPU_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, INDIRECT_CONFIGS
from tests.support.emulation.ptx import emulated_async_copies
from tests.support.reference import assert_close, assert_transformed, expected_gemm, random_array

CONFIGS = {
    "indirect": INDIRECT_CONFIGS,
    "direct": DIRECT_CONFIGS,
    "gemv": GEMV_CONFIGS,
    "cpu": CPU_CONFIGS,
    "small": {"plain": SmallConfig(MWI=2, NWI=4, WGS=16)},
    "small_cpu": {"plain": SmallCpuConfig(MR=3, NR=16, VW=8)},
}

#: Sizes of a case; those around a tile, and of one element, are of the tables' tiles.
SIZES = {
    "odd": (37, 35, 19),
    "whole": (32, 32, 32),
    "packed": (33, 40, 21),
    "deep": (13, 15, 70),
    "one": (1, 1, 1),
    "less than a tile": (31, 15, 7),
    "more than a tile": (33, 17, 9),
    "no depth": (17, 5, 0),
}

#: Of a fused transform, two work-groups a tensor.
PARTS = FusedConfig(VW=4, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)

#: Oclgrind has no OpenCL C 2.0. It runs one work-item after the other, up to a barrier: a fence
#: of one work-item is as good there as one of the device.
FENCE = "-D atomic_work_item_fence(flags,order,scope)=mem_fence(flags)"


def exact(queue, host, order="C"):
    """An array whose buffer ends where it ends: a read or write beyond it is reported."""
    return cl_array.to_device(queue, np.array(host, order=order))


#: Each array and queue lives to the end: memory that is freed and taken again, Oclgrind takes
#: for uninitialised wherever the new buffer is larger.
_kept = []


def multiply(queue, family, name, case):
    config = CONFIGS[family][name]
    if family == "cpu":
        # It has no prefetching, and stops there.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
    if case in BATCHES:
        multiply_batch(queue, config, case)
        return
    if family == "cpu" and case == "complex":
        # Of 16 components Oclgrind takes a permutation (to multiply by i) for uninitialised.
        config = replace(config, VW=4)
    rng = np.random.default_rng(0)
    m, n, k = SIZES.get(case, (21, 33, 10))
    dtype = "complex64" if case == "complex" else "float32"
    trans_a, trans_b = {"complex": ("C", "T"), "turned": ("N", "T")}.get(case, ("N", "N"))
    a = random_array(rng, (m, k) if trans_a == "N" else (k, m), dtype)
    b = random_array(rng, (k, n) if trans_b == "N" else (n, k), dtype)
    c = random_array(rng, (m, n), dtype)
    bias = random_array(rng, (n,), dtype)
    order = "F" if case == "column" else "C"
    left, unpacked, out = (exact(queue, host, order) for host in (a, b, c))
    right = unpacked
    options = {
        "alpha": 0.0 if case == "alpha 0" else 0.5,
        "beta": 0.0 if case == "beta 0" else -2.0,
        "trans_a": trans_a,
        "trans_b": trans_b,
    }
    if case == "alpha 0":
        left, right = exact(queue, np.nan * a, order), exact(queue, np.nan * b, order)
    if case == "beta 0":
        out = exact(queue, np.nan * c, order)
    if case == "packed":
        layout = PackedLayout("padded", depth_block=32, width=64)
        if family == "cpu":
            layout = PackedLayout("panels", depth_block=config.KC, width=config.NR)
        right = packed(queue, unpacked, layout)
        options.pop("trans_b")
    activation = "relu" if dtype == "float32" else None
    offset = exact(queue, bias)
    _kept.extend([queue, left, unpacked, right, out, offset])
    epilogue = pyclgemm.Epilogue(bias=offset, activation=activation)
    pyclgemm.gemm(queue, left, right, out, out=out, config=config, epilogue=epilogue, **options)
    expected = expected_gemm(a, b, c, bias=bias, activation=activation, **options)
    assert_close(out.get(), expected)


#: Matrices one behind the other, and matrices anywhere.
BATCHES = ("stack", "sequence", "sequence, alpha 0")


def multiply_batch(queue, config, case):
    m, n, k = 5, 19, 7
    rng = np.random.default_rng(0)
    a, b, c = (random_array(rng, (3, *shape), "float32") for shape in ((m, k), (k, n), (m, n)))
    options = {"alpha": 0.0 if case == "sequence, alpha 0" else 0.5, "beta": -2.0}
    arrays = [exact(queue, host) for host in (a, b, c)]
    _kept.extend([queue, *arrays])
    if case != "stack":
        # Of one buffer, in another order than their products.
        arrays = [[stack[i] for i in (2, 0, 1)] for stack in arrays]
        a, b, c = (host[[2, 0, 1]] for host in (a, b, c))
    left, right, out = arrays
    pyclgemm.gemm_batched(queue, left, right, out, out=out, config=config, **options)
    for index in range(3):
        assert_close(out[index].get(), expected_gemm(a[index], b[index], c[index], **options))


def transform(queue, level, k):
    """Some tensors of one extent by one level, or by work-groups that share a tensor."""
    rng = np.random.default_rng(0)
    count = 1 if level == "parts" else 15  # more than a work-group takes, and no multiple of that
    tensors = random_array(rng, (count, k, k, k), "float32")
    matrix = random_array(rng, (k, k), "float32")
    arrays = [exact(queue, array) for array in (tensors, matrix, tensors)]
    _kept.extend([queue, *arrays])
    if level == "parts":
        described = describe_transform(*arrays)
        sequence = build_transform(queue, described, TransformChoice("L5", "fused", "", PARTS))
        sequence.enqueue(arrays)
    else:
        pyclgemm.transform3d(queue, *arrays[:2], out=arrays[2], level=level)
    assert_transformed(arrays[2].get(), tensors, matrix)


def main():
    """Arguments: Oclgrind's log, and after it family/configuration's name/case of each product, or
    transform/level/K.
    """
    log = Path(sys.argv[1])
    devices = [one for platform in cl.get_platforms() for one in platform.get_devices()]
    [simulated] = [one for one in devices if "Oclgrind" in one.name]
    context = cl.Context([simulated])
    fenced = replace(device.traits_of(simulated), fence_options=FENCE)
    for product in sys.argv[2:]:
        family, name, case = product.split("/")
        print(product, log.stat().st_size, sep="\t", flush=True)
        # A queue of its own: workspaces are the queue's, and not what another case left.
        queue = cl.CommandQueue(context)
        if family == "transform":
            transform(queue, name, int(case))
            continue
        with ExitStack() as stack:
            config = CONFIGS[family][name]
            if getattr(config, "FILL", 0):
                stack.enter_context(patch("pyclgemm.api.prepare.traits_of", lambda device: fenced))
            if getattr(config, "ASYNC", 0):
                stack.enter_context(emulated_async_copies())
            multiply(queue, family, name, case)
    print("right", log.stat().st_size, sep="\t")


if __name__ == "__main__":
    main()
