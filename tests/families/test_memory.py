"""What kernels read and write: by Oclgrind, by sanitizers, and in guarded memory full of NaN.

Oclgrind reports races, accesses out of bounds and uses of what nobody wrote. Under AddressSanitizer
and UndefinedBehaviorSanitizer kernels are host code, and a read or write beyond a buffer or a local
array, an access by a vector that is not aligned as its type asks, and an index that overflows end
the program. Left out are the kernels for warpgroups: `tests.support.emulation.wgmma` runs them on
the host, and checks what they copy. Guarded memory is on every device.

As a script, under Oclgrind, it prints the name of each product whose result is right, and what was
logged of it.
"""

import json
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.mra.fused import FusedConfig
from pyclgemm.problem.problem import PackedLayout
from tests.support import buffers, clang, configs
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.buffers import Layout, PoisonedBuffer, guarded_allocations
from tests.support.checks import check_gemm, check_transform
from tests.support.configs import CPU, DIRECT, INDIRECT
from tests.support.emulation import sanitizers
from tests.support.emulation.host import kernels_on_the_host
from tests.support.emulation.matrix import without_units
from tests.support.emulation.ptx import emulated_async_copies, in_plain_c, through_local_memory
from tests.support.families import changed_kernels, imagined_traits
from tests.support.system import tree_first

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

#: Without gaps.
ROW, COLUMN = Layout(gap=0), Layout("column", gap=0)

LIES = {"a": ROW, "b": ROW, "out": ROW}
#: What a case is but for its own options.
PLAIN = LIES | {"sizes": (21, 33, 10), "in_place": True, "bias": True, "activation": "relu"}
PLAIN |= {"alpha": 0.5, "beta": -2.0}
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
    "panels": {"sizes": (33, 40, 21), "pack": PackedLayout("panels", CPU.KC, CPU.NR)},
    "column": dict.fromkeys(LIES, COLUMN),
    "turned": {"trans_b": "T"},
    "complex": {"dtype": "complex64", "trans_a": "C", "trans_b": "T", "activation": None},
    "alpha 0": {"alpha": 0.0},
    "beta 0": {"beta": 0.0},
    "float16": {"dtype": "float16"},
    "float64": {"dtype": "float64"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "int8", "alpha": 3, "sizes": (37, 35, 19)},
    "complex128": {"dtype": "complex128", "trans_b": "C", "activation": None},
    "three products": {"precision": "TF32_TF32_F32_X3"},
    "six products": {"precision": "BF16_BF16_F32_X6"},
    "stack": BATCH,
    "sequence": SEQUENCE,
    "sequence, alpha 0": SEQUENCE | {"alpha": 0.0},
}

USUAL = ["odd", "whole", "column", "one", "more than a tile", "no depth"]
USUAL += ["alpha 0", "beta 0", "stack"]
BATCHES = ["stack", "sequence", "sequence, alpha 0"]
#: Families, configurations, cases.
TABLE = [
    *((family, "plain", [*USUAL, "complex", "packed", "less than a tile", "sequence"])
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
    ("gemv", "plain", [*USUAL, "complex", "packed", "deep"]),
    ("gemv", "wide vectors", ["odd", "whole", "column"]),
    ("gemv", "all work-items along k", ["odd", "deep"]),
    ("gemv", "all work-items along the columns", ["odd"]),
    ("cpu", "plain", [*USUAL, "panels", "turned", "sequence"]),
    ("cpu", "B where it lies", ["odd", "turned"]),
    # Of 16 components, Oclgrind takes a permutation for uninitialised (by i, or of pairs).
    ("cpu", "scalars", ["odd"]), ("cpu", "KC no power of two", ["odd", "complex", "int8"]),
    ("cpu", "B where it lies, in scalars", ["int8"]),
    *((family, "plain", BATCHES) for family in ("small", "small_cpu")),
]  # fmt: skip
PRODUCTS = [f"{family}/{name}/{case}" for family, name, cases in TABLE for case in cases]
#: L4 is L3 on a device without matrix units. In "parts", two work-groups share a tensor, and the
#: second one starts at a column that is no multiple of 4.
TRANSFORMS = [
    f"transform/{level_and_k}"
    for level_and_k in ("L1/3", "L2/5", "L3/6", "L5/6", "L5/5", "L6/2", "parts/12")
]
# Kernels for matrix units hold PTX, which Oclgrind does not know: sanitizers, and `test_wgmma`, run
# them with the instructions emulated.
EVERY = [*PRODUCTS, *TRANSFORMS]


def transform(queue, level, k, dtype="float32"):
    """Some tensors of one extent by one level, or by work-groups that share a tensor."""
    if level == "parts":
        vector = 4 if dtype == "float32" else 2
        config = FusedConfig(VW=vector, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)
        check_transform(queue, 1, k, dtype, config=config)
    else:
        # More than a work-group takes, and no multiple of that.
        check_transform(queue, 15, k, dtype, level)


def compute(queue, name):
    """What EVERY has by this name."""
    family, config, case = name.split("/")
    if family == "transform":
        transform(queue, config, int(case))
    else:
        check_gemm(queue, config=CONFIGS[family][config], **PLAIN | CASES[case])


# ------------------------------------------------------------------ Oclgrind

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


def main():
    """Arguments: Oclgrind's log, and after it names of what to compute."""
    log = Path(sys.argv[1])
    cl.Buffer, buffers.GUARD = KeptBuffer, 0
    devices = [one for platform in cl.get_platforms() for one in platform.get_devices()]
    [simulated] = [one for one in devices if "Oclgrind" in one.name]
    context = cl.Context([simulated])
    with (
        imagined_traits(fence_options=FENCE),
        emulated_async_copies(),
        patch("pyclgemm.api.prepare.check_supported"),  # it passes for a GPU without units
    ):
        for name in sys.argv[2:]:
            start = log.stat().st_size
            # A queue of its own: workspaces are the queue's, and not what another case left.
            compute(cl.CommandQueue(context), name)
            print(name, json.dumps(log.read_bytes()[start:].decode()), sep="\t", flush=True)


#: Not optimised, because it knows no `freeze`, which the optimiser makes; nor does it prefetch.
OPTIONS = "-cl-opt-disable -D__builtin_prefetch(...)="
#: Runs of several products: starting Python there takes longer than a product does.
RUNS = 6


@pytest.mark.one_in(6)
@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")
@pytest.mark.parametrize("run", range(RUNS))
def test_kernels_are_clean(tmp_path, run):
    products = EVERY[run::RUNS]
    log = tmp_path / "oclgrind.log"
    checks = ["--data-races", "--uninitialized", "--max-errors", "100000", "--log", str(log)]
    script = [sys.executable, "-m", "tests.families.test_memory", str(log), *products]
    ended = subprocess.run(
        ["oclgrind", "--build-options", OPTIONS, *checks, *script],
        env=tree_first() | {"PYOPENCL_NO_CACHE": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    # Oclgrind exits with 0 whatever it finds: the log is the verdict.
    said = [line.split("\t") for line in ended.stdout.splitlines() if "\t" in line]
    found = {product: faults(json.loads(logged)) for product, logged in said}
    assert not any(found.values()), found
    assert ended.returncode == 0, f"after {[*found][-1:]}:\n{ended.stderr[-4000:]}"
    assert [*found] == products, ended.stdout + ended.stderr[-4000:]


STORE = "sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];"
LOAD = "accumulators[i][j] += sums[(i * NWI + j) * TILE_ITEMS];"
ARRIVE, RESET = (
    "arrived = atomic_inc(counter) + 1;", "*counter = 0;  // ready for the next launch"
)  # fmt: skip
#: What Oclgrind takes for races between work-groups, since it knows no order between them,
#: though a counter of arrivals decides: a reader of partial sums comes after their writer, and
#: only the last to arrive sets the counter back.
DECIDED = (
    ("Read-write", {STORE, LOAD}),
    ("Read-write", {ARRIVE, RESET}),
    ("Write-write", {ARRIVE, RESET}),
)


def faults(report):
    """What Oclgrind reports, without the races that atomics decide."""
    return [
        fault for fault in re.split(r"\n(?=\S)", report) if fault.strip() and not decided(fault)
    ]


def decided(fault):
    """Whether a counter decides in which order two work-groups do what is reported."""
    kind, is_race, _ = fault.strip().partition(" data race at global memory")
    statements = set(re.findall(r"of input\.cl:\s*\n\s*(.+)", fault))
    groups = set(re.findall(r"Group\((.*?)\)", fault))
    return bool(is_race) and (kind, statements) in DECIDED and len(groups) == 2


READ = "\nInvalid read of size 4\n\tAt line 3 of input.cl:\n\t  "
RACE = (
    "\nRead-write data race at {memory} memory address 0x1\n\tKernel: xgemm\n\n"
    "\tFirst entity:  Global(0,0,0) Local(0,0,0) Group(0,0,0)\n"
    "\tAt line 9 (column 1) of input.cl:\n\t  {first}\n"
    "\tSecond entity: Global(8,0,0) Local(0,0,0) Group({group},0,0)\n"
    "\tAt line 5 (column 1) of input.cl:\n\t  {second}\n\n"
)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"group": 0}, 1),  # of one work-group
        ({"first": STORE}, 1),  # two writers
        ({"second": "x = 1;"}, 1),
        ({"memory": "local"}, 1),
    ],
)
def test_only_the_join_of_partial_sums_may_look_like_a_race(changes, count):
    sides = {"memory": "global", "first": LOAD, "group": 1, "second": STORE}
    assert len(faults(RACE.format(**sides | changes))) == count
    assert len(faults(READ + LOAD)) == 1
    assert faults("") == []


# ------------------------------------------------------------------ sanitizers

ON_CPU, ON_GPU, ON_NVIDIA = (
    replace(typical_traits(name), compute_units=2) for name in ("x86-64-v2", "gfx1012", "sm_90")
)


@pytest.fixture
def bare_queue(cpu_only, context, monkeypatch):
    """A queue whose buffers have nothing around them, and are NaN where nobody wrote."""
    clang.skip_without(*sanitizers.NEEDED)
    monkeypatch.setattr(buffers, "GUARD", 0)
    monkeypatch.setattr(cl, "Buffer", PoisonedBuffer)
    return cl.CommandQueue(context)


@contextmanager
def sanitized(config=None):
    """Let a device pass for one that a family is for, and run its kernels on the host."""
    special = ("ASYNC", "SHUFFLE", "SUBGROUPS", "SUBGROUPS_M", "STREAMB")
    traits = ON_NVIDIA if any(getattr(config, name, 0) for name in special) else ON_GPU
    if config is not None and config.family in ("cpu", "small_cpu"):
        traits = ON_CPU
    with (
        changed_kernels(in_host_code),
        imagined_traits(**asdict(traits)),
        patch("pyclgemm.api.prepare.check_supported"),  # bfloat16 without units, too
        kernels_on_the_host(sanitizers.run_sanitized),
    ):
        yield


def in_host_code(source, problem, config, traits):
    """The kernel without instructions of a GPU."""
    if "mma.sync" in source.text:
        return without_units(source, required_unit(problem.precision, traits))
    if "shuffle(" in source.text:
        return through_local_memory(source)
    return replace(source, text=in_plain_c(source.text))


SANITIZED = [
    # Every parameter of the families of which there are tables.
    *(f"{family}/{name}/odd" for family in ("indirect", "direct", "gemv", "cpu")
      for name in CONFIGS[family]),
    *(one for one in PRODUCTS if not one.endswith("/odd")),
    "indirect/plain/float16", "cpu/plain/bfloat16", "cpu/plain/int8", "cpu/plain/float64",
    "cpu/plain/complex", "direct/plain/complex128",
    # Matrix units, emulated; operands packed, whole and in split terms.
    *(f"matrix/plain/{case}" for case in ("float16", "float64", "three products", "six products")),
    "matrix/slabs divided/float16", "gemv_unit/plain/float16", "gemv_unit/streamed/float16",
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.first_runtime
@pytest.mark.parametrize("product", SANITIZED)
def test_products_under_sanitizers(bare_queue, product):
    family, name, _ = product.split("/")
    with sanitized(CONFIGS[family][name]):
        compute(bare_queue, product)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("level", "k"),
    [("L1", 5), ("L2", 5), ("L3", 6), ("L5", 5), ("L5", 8), ("parts", 12), ("parts", 20)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.first_runtime
def test_transforms_under_sanitizers(bare_queue, level, k, dtype):
    """L4 has the units of `test_transform`; L6 is a product, with a kernel before it."""
    with sanitized():
        transform(bare_queue, level, k, dtype)


#: A vector that is stored behind where it should, one that starts an element too early, and a slab
#: of A with room for one element less.
BEYOND = ("out += out_offset;", "out += out_offset + 4;")
MISALIGNED = ("a_offset;", "a_offset;\n    *(__global float2 *)(out + 1) = (float2)(0);")
SHORT = ("a_local[", "a_local[-1 + ")


@pytest.mark.first_runtime
@pytest.mark.parametrize(
    ("config", "fault", "said"),
    [
        *((config, BEYOND, "heap-buffer-overflow") for config in (CPU, DIRECT, INDIRECT)),
        *((config, MISALIGNED, "misaligned address") for config in (CPU, DIRECT, INDIRECT)),
        (INDIRECT, SHORT, "global-buffer-overflow"),
    ],
)
def test_sanitizers_find_faults(bare_queue, config, fault, said):
    def broken(source, *_):
        head, kernel, body = source.text.partition("__kernel")
        changed = replace(source, text=head + kernel + body.replace(*fault))
        assert changed != source
        return changed

    with (
        sanitized(config),
        changed_kernels(broken),
        pytest.raises(sanitizers.Fault, match=said),
    ):
        check_gemm(bare_queue, (8, 8, 8), config=config, **LIES)


# ------------------------------------------------------------------ guarded memory


@pytest.fixture
def guarded(context):
    """A guarded queue, without workspaces: a product makes its own."""
    queue = cl.CommandQueue(context)
    with guarded_allocations(queue):
        yield queue


@pytest.mark.one_in(4)
@pytest.mark.any_runtime
@pytest.mark.parametrize("name", EVERY)
def test_products_and_transforms_in_guarded_memory(guarded, name):
    compute(guarded, name)


@pytest.mark.parametrize("sizes", [(37, 35, 19), (1, 1, 1), (32, 32, 32), (13, 15, 70)])
@pytest.mark.parametrize(
    "dtype", ["float32", "complex64", "float16", "bfloat16", "float64", "int8"]
)
@pytest.mark.any_runtime
def test_types_by_what_is_chosen(guarded, dtype, sizes):
    try:
        for pack in (False, True):
            check_gemm(guarded, sizes, dtype, pack=pack)
        check_gemm(guarded, sizes, dtype, batch=4)
    except pyclgemm.UnsupportedError as error:
        pytest.skip(str(error))


def test_plans_layers_and_matmul(guarded, rng):
    x, weight, bias = draw(rng, (5, 37), (37, 19), (19,))
    there = upload(guarded, x, weight)
    assert_gemm(pyclgemm.plan(guarded, *there)(*there), x, weight)
    layer = pyclgemm.DenseLayer(guarded, weight, bias, "relu")
    assert_gemm(layer(there[0]), x, weight, bias=bias, activation="relu")
    assert_gemm(pyclgemm.matmul(x, weight, queue=guarded), x, weight)


def test_a_byte_behind_a_buffer_is_seen(queue):
    with (
        pytest.raises(AssertionError, match="byte 3 behind a buffer of 64 bytes"),
        guarded_allocations(queue),
    ):
        array = cl_array.empty(queue, (16,), np.float32)
        assert np.isnan(array.get()).all()
        cl.enqueue_fill_buffer(queue, array.base_data, np.uint8(0), 67, 1)


if __name__ == "__main__":
    main()
