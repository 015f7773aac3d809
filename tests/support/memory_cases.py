"""Products and transforms in memory that ends where they do, for Oclgrind and for sanitizers.

As a script, to be started under Oclgrind (see test_memory.py), it prints the name of each product
whose result is right, and what was logged of it.
"""

import json
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
from tests.support import buffers, configs
from tests.support.buffers import Layout
from tests.support.checks import check_gemm, check_transform
from tests.support.emulation.ptx import emulated_async_copies
from tests.support.families import imagined_traits

CONFIGS = {
    "indirect": configs.INDIRECT_CONFIGS,
    "direct": configs.DIRECT_CONFIGS,
    "gemv": configs.GEMV_CONFIGS,
    "cpu": configs.CPU_CONFIGS,
    "small": {"plain": SmallConfig(MWI=2, NWI=4, WGS=16)},
    "small_cpu": {"plain": SmallCpuConfig(MR=3, NR=16, VW=8)},
    "matrix": {"plain": configs.MATRIX, "slabs divided": replace(configs.MATRIX, FILL=2)},
    "gemv_unit": configs.GEMV_UNIT_CONFIGS,
}

#: Without gaps, and without the guards that `multiply` and `transform` are to be called without.
ROW, COLUMN = Layout(gap=0), Layout("column", gap=0)

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
    "float16": {"dtype": "float16"},
    "float64": {"dtype": "float64"},
    "bfloat16": {"dtype": "bfloat16"},
    "complex128": {"dtype": "complex128", "trans_b": "C", "activation": None},
    "three products": {"precision": "TF32_TF32_F32_X3"},
    "six products": {"precision": "BF16_BF16_F32_X6"},
    "stack": BATCH,
    "sequence": SEQUENCE,
    "sequence, alpha 0": SEQUENCE | {"alpha": 0.0},
}

BASIC = ["odd", "whole", "column", "complex", "packed"]
EDGES = ["one", "more than a tile", "no depth", "alpha 0", "beta 0", "stack"]
BATCHES = ["stack", "sequence", "sequence, alpha 0"]
#: Families, configurations, cases.
TABLE = [
    *((family, "plain", [*BASIC, *EDGES, "less than a tile", "sequence"])
      for family in ("indirect", "direct")),
    *(("indirect", name, ["odd"])
      for name in ("scalars", "caches only", "A through caches", "lanes", "oblong", "swizzle",
                   "two fragments", "slices", "slices through caches", "past the registers")),
    ("indirect", "two stages", ["odd", "whole"]),
    ("indirect", "slabs divided", ["odd", "deep", "no depth", "stack"]),
    *(("indirect", name, ["odd", "deep"])
      for name in ("all at once", "all at once, past the registers")),
    *(("direct", name, ["odd"]) for name in ("scalars", "two stages", "tall", "slices")),
    *(("direct", name, ["odd", "whole"]) for name in ("wide vectors", "two fragments")),
    *(("direct", name, ["odd", "column"]) for name in ("wide", "swizzle")),
    ("direct", "slabs divided", ["deep", "no depth", "one", "stack"]),
    ("direct", "past the registers", ["odd", "whole", "column"]),
    *(("direct", name, ["odd", "complex", "deep"])
      for name in ("all at once", "all at once, past the registers")),
    ("gemv", "plain", [*BASIC, *EDGES, "deep"]),
    ("gemv", "wide vectors", ["odd", "whole", "column"]),
    ("gemv", "all work-items along k", ["odd", "deep"]),
    ("gemv", "all work-items along the columns", ["odd"]),
    ("cpu", "plain", [*BASIC, *EDGES, "turned", "sequence"]),
    ("cpu", "B where it lies", ["odd", "turned"]),
    *(("cpu", name, ["odd"]) for name in ("scalars", "KC no power of two")),
    *((family, "plain", BATCHES) for family in ("small", "small_cpu")),
]  # fmt: skip
PRODUCTS = [f"{family}/{name}/{case}" for family, name, cases in TABLE for case in cases]
#: L4 is L3 on a device without matrix units. In "parts", two work-groups share a tensor, and the
#: second one starts at a column that is no multiple of 4.
TRANSFORMS = [
    f"transform/{level_and_k}"
    for level_and_k in ("L1/3", "L2/5", "L3/6", "L5/6", "L5/5", "L6/2", "parts/12")
]

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


def multiply(queue, family, config, case):
    options = {"sizes": (21, 33, 10)} | WHOLE | LIES | CASES[case]
    if family == "cpu" and case == "packed":
        options["pack"] = PackedLayout("panels", config.KC, config.NR)
    check_gemm(queue, config=config, **options)


def transform(queue, level, k, dtype="float32"):
    """Some tensors of one extent by one level, or by work-groups that share a tensor."""
    if level == "parts":
        vector = 4 if dtype == "float32" else 2
        config = FusedConfig(VW=vector, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)
        check_transform(queue, 1, k, dtype, config=config)
    else:
        # More than a work-group takes, and no multiple of that.
        check_transform(queue, 15, k, dtype, level)


def run_under_oclgrind(queue, family, name, case):
    if family == "transform":
        transform(queue, name, int(case))
        return
    config = CONFIGS[family][name]
    if family == "cpu":
        # It has no prefetching, and stops there. Of 16 components it takes a permutation (to
        # multiply by i) for uninitialised.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
        config = replace(config, VW=4) if case == "complex" else config
    with ExitStack() as stack:
        if getattr(config, "FILL", 0):
            stack.enter_context(imagined_traits(fence_options=FENCE))
        if getattr(config, "ASYNC", 0):
            stack.enter_context(emulated_async_copies())
        multiply(queue, family, config, case)


def main():
    """Arguments: Oclgrind's log, and after it products and transforms by their names."""
    log = Path(sys.argv[1])
    cl.Buffer, buffers.GUARD = KeptBuffer, 0
    devices = [one for platform in cl.get_platforms() for one in platform.get_devices()]
    [simulated] = [one for one in devices if "Oclgrind" in one.name]
    context = cl.Context([simulated])
    for product in sys.argv[2:]:
        start = log.stat().st_size
        # A queue of its own: workspaces are the queue's, and not what another case left.
        run_under_oclgrind(cl.CommandQueue(context), *product.split("/"))
        print(product, json.dumps(log.read_bytes()[start:].decode()), sep="\t", flush=True)


if __name__ == "__main__":
    main()
