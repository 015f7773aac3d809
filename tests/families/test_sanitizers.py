"""Every family as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

A read or write beyond a buffer or a local array, an access by a vector that is not aligned as its
type asks, and an index that overflows end the program. Left out are the kernels for warpgroups:
`tests.support.emulation.wgmma` runs them on the host, and checks what they copy.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pyclgemm.codegen.launch import Schedule
from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.codegen.source import KernelSource
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.registry import make_schedule, oriented
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.mra.choice import TransformChoice, TransformProblem, choose_transform
from pyclgemm.mra.codegen import Transform
from pyclgemm.mra.codegen import make_schedule as make_transform_schedule
from pyclgemm.mra.fused import FusedConfig
from pyclgemm.mra.tensors import contiguous_stack
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.shape import GemmShape
from tests.support.configs import CPU_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, INDIRECT_CONFIGS
from tests.support.configs import GEMV_UNIT_CONFIGS as UNIT_ROWS
from tests.support.configs import MATRIX as UNIT_TILES
from tests.support.emulation import host_schedule
from tests.support.emulation.host_schedule import run_schedule
from tests.support.emulation.matrix import without_units
from tests.support.emulation.ptx import in_plain_c, through_local_memory
from tests.support.facts import product_of
from tests.support.reference import assert_close, assert_transformed, expected_gemm, random_array

pytestmark = pytest.mark.skipif(bool(host_schedule.missing()), reason=host_schedule.missing())

CPU = replace(typical_traits("x86-64-v2"), compute_units=2)
GPU = replace(typical_traits("gfx1012"), compute_units=2)
H100 = replace(typical_traits("sm_90"), compute_units=2)


@dataclass(frozen=True)
class Case:
    """A product, and how it is computed."""

    config: Any
    sizes: tuple[int, int, int] = (37, 35, 19)
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)
    alpha: float = 0.5
    beta: float = -2.0
    scattered: bool = False


INDIRECT, DIRECT = INDIRECT_CONFIGS["plain"], DIRECT_CONFIGS["plain"]
CPU_PLAIN, ROWS = CPU_CONFIGS["plain"], GEMV_CONFIGS["plain"]
SMALL, SMALL_CPU = SmallConfig(MWI=2, NWI=4, WGS=16), SmallCpuConfig(MR=3, NR=16, VW=8)
BATCH: dict[str, Any] = {"batch": 3}
ALL: dict[str, Any] = {"bias": True, "activation": "gelu"}
TURNED: dict[str, Any] = {"trans_a": "T", "trans_b": "T"}

CASES = {
    # Every parameter of the families of which there are tables.
    **{f"indirect, {name}": Case(config) for name, config in INDIRECT_CONFIGS.items()},
    **{f"direct, {name}": Case(config) for name, config in DIRECT_CONFIGS.items()},
    **{f"gemv, {name}": Case(config) for name, config in GEMV_CONFIGS.items()},
    **{f"cpu, {name}": Case(config) for name, config in CPU_CONFIGS.items()},
    # Whole slabs: what is fetched ahead of the last one lies behind the operand.
    "indirect, two stages": Case(INDIRECT_CONFIGS["two stages"], (37, 35, 24)),
    # Sizes around a tile; nothing to add up; nothing to add to.
    **{
        f"{name}, {'x'.join(map(str, sizes))}": Case(config, sizes)
        for name, config, sizes in [
            ("indirect", INDIRECT, (31, 33, 9)),
            ("indirect", INDIRECT, (1, 1, 1)),
            ("indirect", INDIRECT, (5, 7, 0)),
            ("direct", DIRECT, (15, 17, 17)),
            ("direct", DIRECT, (1, 1, 1)),
            ("direct", DIRECT, (5, 7, 0)),
            ("gemv", ROWS, (1, 65, 1)),
            ("gemv", ROWS, (3, 5, 0)),
            ("cpu", CPU_PLAIN, (4, 15, 33)),
            ("cpu", CPU_PLAIN, (1, 1, 1)),
            ("cpu", CPU_PLAIN, (5, 17, 0)),
        ]
    },
    "indirect, beta 0": Case(INDIRECT, beta=0),
    "direct, Stream-K, deep": Case(DIRECT_CONFIGS["slabs divided"], (13, 15, 170)),
    "indirect, Stream-K, deep": Case(INDIRECT_CONFIGS["slabs divided"], (33, 15, 170)),
    "direct, epilogue, turned": Case(DIRECT, options=ALL | TURNED),
    "cpu, epilogue, turned": Case(CPU_PLAIN, options=ALL | TURNED),
    "cpu, dot products": Case(CPU_CONFIGS["B where it lies"], options={"trans_b": "T"}),
    # Other elements.
    "cpu, complex64": Case(CPU_PLAIN, dtype="complex64", options={"trans_a": "C"}),
    "cpu, bfloat16": Case(CPU_PLAIN, dtype="bfloat16"),
    "cpu, float64": Case(CpuConfig(MR=3, NR=8, KC=16, VW=4), dtype="float64"),
    "direct, complex128": Case(DIRECT, dtype="complex128", options={"trans_b": "C"}),
    "indirect, float16": Case(INDIRECT, dtype="float16"),
    # Batches: one behind the other, and anywhere.
    "small": Case(SMALL, (5, 6, 7), options=BATCH | ALL),
    "small, one": Case(SMALL, (1, 1, 1), options=BATCH),
    "small_cpu": Case(SMALL_CPU, (5, 19, 7), options=BATCH | ALL),
    "small, no depth": Case(SMALL, (5, 6, 0), options=BATCH),
    "small_cpu, no depth": Case(SMALL_CPU, (5, 19, 0), options=BATCH),
    "small_cpu, turned, no depth": Case(SMALL_CPU, (5, 19, 0), options=BATCH | TURNED),
    "small_cpu, turned": Case(SMALL_CPU, (7, 5, 3), options=BATCH | TURNED),
    "direct, batch": Case(DIRECT, (17, 5, 9), options=BATCH),
    "indirect, batch": Case(INDIRECT, (33, 5, 9), options=BATCH),
    "cpu, batch": Case(CPU_PLAIN, (5, 19, 33), options=BATCH),
    "direct, scattered": Case(DIRECT, (17, 5, 9), options=BATCH, scattered=True),
    "indirect, scattered": Case(INDIRECT, (33, 5, 9), options=BATCH, scattered=True),
    "small, scattered": Case(SMALL, (5, 6, 7), options=BATCH, scattered=True),
    "small_cpu, scattered": Case(SMALL_CPU, (5, 19, 7), options=BATCH, scattered=True),
    # Matrix units, emulated; operands packed, whole and in parts.
    "matrix": Case(UNIT_TILES, dtype="float16", options=ALL),
    "matrix, one": Case(UNIT_TILES, (1, 1, 1), "float16"),
    "matrix, slabs divided": Case(replace(UNIT_TILES, FILL=2), (33, 31, 70), "float16"),
    "matrix, float64": Case(UNIT_TILES, dtype="float64"),
    "matrix, three products of parts": Case(UNIT_TILES, options={"precision": "TF32_TF32_F32_X3"}),
    "matrix, six products of parts": Case(UNIT_TILES, options={"precision": "BF16_BF16_F32_X6"}),
    "gemv_unit": Case(UNIT_ROWS["plain"], (5, 70, 75), "float16"),
    "gemv_unit, streamed": Case(UNIT_ROWS["streamed"], (8, 64, 128), "float16"),
}  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_products(case):
    check(case)


def check(case: Case) -> None:
    """Run a product under the sanitizers, and check its result."""
    m, n, k = case.sizes
    traits = traits_for(case)
    described = product_of(m, n, k, case.dtype, reads_c=bool(case.beta), **case.options)
    product = oriented(described, case.config, traits)
    if case.scattered:
        product = replace(
            product,
            **{
                name: replace(getattr(product, name), scattered=True, batch_stride=0)
                for name in ("a", "b", "out", "c")
            },
        )
        layouts = {name: getattr(product, name).layout for name in ("a", "b", "out", "c")}
        product = replace(product, problem=replace(product.problem, **layouts))
    schedule = in_host_code(make_schedule(product, case.config, traits), product, traits)

    rng = np.random.default_rng(0)
    count = described.problem.products
    options = {name: value for name, value in case.options.items() if name != "batch"}
    shapes = {
        "a": (m, k) if options.get("trans_a", "N") == "N" else (k, m),
        "b": (k, n) if options.get("trans_b", "N") == "N" else (n, k),
        "c": (m, n),
    }
    host = {name: random_array(rng, (count, *shape), case.dtype) for name, shape in shapes.items()}
    host["bias"] = random_array(rng, (n,), case.dtype)
    buffers = {name: array.ravel() for name, array in host.items()}
    if product.swapped:
        buffers["a"], buffers["b"] = buffers["b"], buffers["a"]
    out = np.full(count * m * n * buffers["c"].itemsize, 0xFF, np.uint8)
    buffers["out"] = out.view(buffers["c"].dtype)
    for name in ("a", "b", "out", "c"):
        step = buffers[name].size // count
        buffers[f"{name}_offsets"] = step * np.arange(count, dtype=np.int64)
    after = run_schedule(schedule, buffers, {}, {"alpha": case.alpha, "beta": case.beta})
    got = after["out"].reshape(count, m, n)
    for index in range(count):
        expected = expected_gemm(
            host["a"][index], host["b"][index], host["c"][index], alpha=case.alpha,
            beta=case.beta, **{**options, "bias": host["bias"] if options.get("bias") else None},
        )  # fmt: skip
        assert_close(got[index], expected)


def traits_for(case: Case) -> Any:
    """The device that a case's family is for."""
    if case.config.family in ("cpu", "small_cpu"):
        return CPU
    special = ("ASYNC", "SHUFFLE", "SUBGROUPS", "SUBGROUPS_M", "STREAMB")
    return H100 if any(getattr(case.config, name, 0) for name in special) else GPU


def in_host_code(schedule: Schedule, product: Any, traits: Any) -> Schedule:
    """The same launches without instructions of a GPU."""

    def changed(source: KernelSource) -> KernelSource:
        if "mma.sync" in source.text:
            return without_units(source, required_unit(product.problem.precision, traits))
        if "shuffle(" in source.text:
            return through_local_memory(source)
        return replace(source, text=in_plain_c(source.text))

    launches = (replace(launch, source=changed(launch.source)) for launch in schedule.launches)
    return replace(schedule, launches=tuple(launches))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("level", "count", "k"),
    [
        ("L1", 3, 5),
        ("L2", 3, 5),
        ("L3", 3, 6),
        ("L5", 3, 5),
        ("L5", 3, 8),
        ("parts", 2, 12),
        ("parts", 2, 20),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms(level, count, k, dtype):
    """L4 has the units of `test_transform3d_units`; L6 is a product, with a kernel before it."""
    rng = np.random.default_rng(0)
    tensors, matrix = (random_array(rng, shape, dtype) for shape in ((count, k, k, k), (k, k)))
    stack = contiguous_stack(count, k)
    problem = TransformProblem(count, k, dtype, stack.layout, stack.layout)
    if level == "parts":
        parts = FusedConfig(VW=4 if dtype == "float32" else 2, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)
        choice = TransformChoice("L5", "fused", "", parts)
    else:
        choice = choose_transform(problem, GPU, level)
    transform = Transform(stack, Matrix(k, k, k, 1, 0), stack, dtype)
    schedule = make_transform_schedule(transform, choice, GPU)
    buffers = {
        "tensors": tensors.ravel(),
        "matrix": matrix.ravel(),
        "out": np.full(tensors.size, np.nan),
    }
    buffers["out"] = np.full(tensors.size, np.nan, dtype)
    got = run_schedule(schedule, buffers, {}, {})["out"].reshape(tensors.shape)
    assert_transformed(got, tensors, matrix)


def beyond(source: KernelSource) -> KernelSource:
    """A kernel that stores a vector behind where it should."""
    return replace(source, text=source.text.replace("out += out_offset;", "out += out_offset + 4;"))


def misaligned(source: KernelSource) -> KernelSource:
    """A kernel that takes elements for the start of vectors, one element too early."""
    start = source.text.index("__kernel")
    head, body = source.text[:start], source.text[start:]
    body = body.replace("a_offset;", "a_offset;\n    *(__global float2 *)(out + 1) = (float2)(0);")
    return replace(source, text=head + body)


def short(source: KernelSource) -> KernelSource:
    """A kernel whose slab of A has room for one element less."""
    return replace(source, text=source.text.replace("a_local[", "a_local[-1 + "))


@pytest.mark.parametrize(
    ("config", "fault", "said"),
    [
        *((config, beyond, "heap-buffer-overflow") for config in (CPU_PLAIN, DIRECT, INDIRECT)),
        *((config, misaligned, "misaligned address") for config in (CPU_PLAIN, DIRECT, INDIRECT)),
        (INDIRECT, short, "global-buffer-overflow"),
    ],
)
def test_faults_are_found(config, fault, said):
    traits = CPU if config is CPU_PLAIN else GPU
    schedule = make_schedule(GemmShape(8, 8, 8).product(), config, traits)
    *before, last = schedule.launches
    broken = replace(schedule, launches=(*before, replace(last, source=fault(last.source))))
    assert broken != schedule
    buffers = {name: np.ones(64, np.float32) for name in ("a", "b", "out")}
    run_schedule(schedule, buffers, {}, {"alpha": 1.0})
    with pytest.raises(host_schedule.Fault, match=said):
        run_schedule(broken, buffers, {}, {"alpha": 1.0})
