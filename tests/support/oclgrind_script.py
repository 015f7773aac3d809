"""Run products on the simulated device, to be started under Oclgrind (see test_oclgrind.py).

Oclgrind reports what kernels do wrong; this script says which results are right, and where in
Oclgrind's log the faults of each product start.
"""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyclgemm  # noqa: F401 - first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl as cl

from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.mra.fused import FusedConfig
from pyclgemm.problem.problem import PackedLayout
from tests.support import buffers
from tests.support.buffers import Layout
from tests.support.checks import check_gemm, check_transform
from tests.support.configs import CPU_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, INDIRECT_CONFIGS
from tests.support.emulation.ptx import emulated_async_copies
from tests.support.families import imagined_traits

CONFIGS = {
    "indirect": INDIRECT_CONFIGS,
    "direct": DIRECT_CONFIGS,
    "gemv": GEMV_CONFIGS,
    "cpu": CPU_CONFIGS,
    "small": {"plain": SmallConfig(MWI=2, NWI=4, WGS=16)},
    "small_cpu": {"plain": SmallCpuConfig(MR=3, NR=16, VW=8)},
}

#: Without gaps and guards: a buffer ends where its view does, and a read or write beyond is seen.
ROW, COLUMN = Layout(gap=0), Layout("column", gap=0)
buffers.GUARD = 0

WHOLE = {"in_place": True, "bias": True, "activation": "relu", "alpha": 0.5, "beta": -2.0}
LIES = {"a": ROW, "b": ROW, "out": ROW}
BATCH = {"sizes": (5, 19, 7), "batch": 3, "bias": False, "activation": None}
SEQUENCE = BATCH | {"order": (2, 0, 1)}
#: Sizes around a tile, and of one element, are of the tables' tiles.
CASES = {
    "odd": {"sizes": (37, 35, 19)},
    "whole": {"sizes": (32, 32, 32)},
    "deep": {"sizes": (13, 15, 70)},
    "one": {"sizes": (1, 1, 1)},
    "less than a tile": {"sizes": (31, 15, 7)},
    "more than a tile": {"sizes": (33, 17, 9)},
    "no depth": {"sizes": (17, 5, 0)},
    "packed": {"sizes": (33, 40, 21), "pack": PackedLayout("padded", 32, 64)},
    "column": dict.fromkeys(LIES, COLUMN),
    "turned": {"trans_b": "T"},
    "complex": {"dtype": "complex64", "trans_a": "C", "trans_b": "T", "activation": None},
    "alpha 0": {"alpha": 0.0},
    "beta 0": {"beta": 0.0},
    "stack": BATCH,
    "sequence": SEQUENCE,
    "sequence, alpha 0": SEQUENCE | {"alpha": 0.0},
}

#: Of a fused transform, two work-groups a tensor.
PARTS = FusedConfig(VW=4, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)

#: Oclgrind has no OpenCL C 2.0. It runs one work-item after the other, up to a barrier: a fence
#: of one work-item is as good there as one of the device.
FENCE = "-D atomic_work_item_fence(flags,order,scope)=mem_fence(flags)"


class KeptBuffer(cl.Buffer):
    """A buffer that lives to the end.

    Memory that is freed and taken again, Oclgrind takes for uninitialised wherever the new buffer
    is larger.
    """

    kept = []

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.kept.append(self)


def multiply(queue, family, name, case):
    config = CONFIGS[family][name]
    options = {"sizes": (21, 33, 10)} | WHOLE | LIES | CASES[case]
    if family == "cpu":
        # It has no prefetching, and stops there.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
        if case == "complex":
            # Of 16 components Oclgrind takes a permutation (to multiply by i) for uninitialised.
            config = replace(config, VW=4)
        if case == "packed":
            options["pack"] = PackedLayout("panels", config.KC, config.NR)
    check_gemm(queue, config=config, **options)


def transform(queue, level, k):
    """Some tensors of one extent by one level, or by work-groups that share a tensor."""
    if level == "parts":
        check_transform(queue, 1, k, "float32", config=PARTS)
    else:
        # More than a work-group takes, and no multiple of that.
        check_transform(queue, 15, k, "float32", level)


def main():
    """Arguments: Oclgrind's log, and after it family/configuration's name/case of each product, or
    transform/level/K.
    """
    log = Path(sys.argv[1])
    cl.Buffer = KeptBuffer
    devices = [one for platform in cl.get_platforms() for one in platform.get_devices()]
    [simulated] = [one for one in devices if "Oclgrind" in one.name]
    context = cl.Context([simulated])
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
                stack.enter_context(imagined_traits(fence_options=FENCE))
            if getattr(config, "ASYNC", 0):
                stack.enter_context(emulated_async_copies())
            multiply(queue, family, name, case)
    print("right", log.stat().st_size, sep="\t")


if __name__ == "__main__":
    main()
