"""Every family as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

A read or write beyond a buffer or a local array, an access by a vector that is not aligned as its
type asks, and an index that overflows end the program. Left out are the kernels for warpgroups:
`tests.support.emulation.wgmma` runs them on the host, and checks what they copy.
"""

from dataclasses import replace

import numpy as np
import pytest

from pyclgemm import CpuConfig
from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import make_schedule, oriented
from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.mra.choice import Transform, TransformChoice, choose_transform, contiguous_stack
from pyclgemm.mra.codegen import make_schedule as make_transform_schedule
from pyclgemm.mra.fused import FusedConfig
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.shape import GemmShape
from tests.support.checks import stored_shape
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


INDIRECT, DIRECT = INDIRECT_CONFIGS["plain"], DIRECT_CONFIGS["plain"]
CPU_PLAIN, ROWS = CPU_CONFIGS["plain"], GEMV_CONFIGS["plain"]
SMALL, SMALL_CPU = SmallConfig(MWI=2, NWI=4, WGS=16), SmallCpuConfig(MR=3, NR=16, VW=8)
CPU_DOUBLE = CpuConfig(MR=3, NR=8, KC=16, VW=4)
BATCH, SCATTERED = {"batch": 3}, {"batch": 3, "scattered": True}
ALL, HALF = {"bias": True, "activation": "gelu"}, {"dtype": "float16"}
TURNED = {"trans_a": "T", "trans_b": "T"}
ODD = (37, 35, 19)

#: Configurations, sizes, and what else a product is.
CASES = {
    # Every parameter of the families of which there are tables.
    **{
        f"{family}, {name}": (config, ODD, {})
        for family, table in (
            ("indirect", INDIRECT_CONFIGS), ("direct", DIRECT_CONFIGS), ("gemv", GEMV_CONFIGS),
            ("cpu", CPU_CONFIGS))
        for name, config in table.items()
    },
    # Whole slabs: what is fetched ahead of the last one lies behind the operand.
    "indirect, two stages": (INDIRECT_CONFIGS["two stages"], (37, 35, 24), {}),
    # Sizes around a tile; nothing to add up; nothing to add to.
    **{
        f"{config.family}, {'x'.join(map(str, sizes))}": (config, sizes, {})
        for config, *several in [
            (INDIRECT, (31, 33, 9), (1, 1, 1), (5, 7, 0)),
            (DIRECT, (15, 17, 17), (1, 1, 1), (5, 7, 0)),
            (ROWS, (1, 65, 1), (3, 5, 0)),
            (CPU_PLAIN, (4, 15, 33), (1, 1, 1), (5, 17, 0)),
        ]
        for sizes in several
    },
    "indirect, beta 0": (INDIRECT, ODD, {"beta": 0}),
    "direct, Stream-K, deep": (DIRECT_CONFIGS["slabs divided"], (13, 15, 170), {}),
    "indirect, Stream-K, deep": (INDIRECT_CONFIGS["slabs divided"], (33, 15, 170), {}),
    "direct, epilogue, turned": (DIRECT, ODD, ALL | TURNED),
    "cpu, epilogue, turned": (CPU_PLAIN, ODD, ALL | TURNED),
    "cpu, dot products": (CPU_CONFIGS["B where it lies"], ODD, {"trans_b": "T"}),
    # Other elements.
    "cpu, complex64": (CPU_PLAIN, ODD, {"dtype": "complex64", "trans_a": "C"}),
    "cpu, bfloat16": (CPU_PLAIN, ODD, {"dtype": "bfloat16"}),
    "cpu, float64": (CPU_DOUBLE, ODD, {"dtype": "float64"}),
    "direct, complex128": (DIRECT, ODD, {"dtype": "complex128", "trans_b": "C"}),
    "indirect, float16": (INDIRECT, ODD, HALF),
    # Batches: one behind the other, and anywhere.
    "small": (SMALL, (5, 6, 7), BATCH | ALL),
    "small, one": (SMALL, (1, 1, 1), BATCH),
    "small_cpu": (SMALL_CPU, (5, 19, 7), BATCH | ALL),
    "small, no depth": (SMALL, (5, 6, 0), BATCH),
    "small_cpu, no depth": (SMALL_CPU, (5, 19, 0), BATCH),
    "small_cpu, turned, no depth": (SMALL_CPU, (5, 19, 0), BATCH | TURNED),
    "small_cpu, turned": (SMALL_CPU, (7, 5, 3), BATCH | TURNED),
    "cpu, batch": (CPU_PLAIN, (5, 19, 33), BATCH),
    **{
        f"{config.family}, {name}": (config, sizes, options)
        for config, sizes in ((DIRECT, (17, 5, 9)), (INDIRECT, (33, 5, 9)))
        for name, options in (("batch", BATCH), ("scattered", SCATTERED))
    },
    "small, scattered": (SMALL, (5, 6, 7), SCATTERED),
    "small_cpu, scattered": (SMALL_CPU, (5, 19, 7), SCATTERED),
    # Matrix units, emulated; operands packed, whole and in split terms.
    "matrix": (UNIT_TILES, ODD, HALF | ALL),
    "matrix, one": (UNIT_TILES, (1, 1, 1), HALF),
    "matrix, slabs divided": (replace(UNIT_TILES, FILL=2), (33, 31, 70), HALF),
    "matrix, float64": (UNIT_TILES, ODD, {"dtype": "float64"}),
    "matrix, three products": (UNIT_TILES, ODD, {"precision": "TF32_TF32_F32_X3"}),
    "matrix, six products": (UNIT_TILES, ODD, {"precision": "BF16_BF16_F32_X6"}),
    "gemv_unit": (UNIT_ROWS["plain"], (5, 70, 75), HALF),
    "gemv_unit, streamed": (UNIT_ROWS["streamed"], (8, 64, 128), HALF),
}  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("config", "sizes", "options"), CASES.values(), ids=CASES)
def test_products(config, sizes, options):
    m, n, k = sizes
    given = {"dtype": "float32", "beta": -2.0, "scattered": False} | options
    dtype, beta, scattered = (given.pop(name) for name in ("dtype", "beta", "scattered"))
    traits = traits_for(config)
    described = product_of(m, n, k, dtype, reads_c=bool(beta), **given)
    product = oriented(described, config, traits)
    if scattered:
        parts = ("a", "b", "out", "c")
        moved = {
            name: replace(getattr(product, name), scattered=True, batch_stride=0) for name in parts
        }
        layouts = {name: matrix.layout for name, matrix in moved.items()}
        product = replace(product, **moved, problem=replace(product.problem, **layouts))
    schedule = in_host_code(make_schedule(product, config, traits), product, traits)

    rng = np.random.default_rng(0)
    count = given.pop("batch", 1)
    shapes = {
        "a": stored_shape(given.get("trans_a", "N"), m, k),
        "b": stored_shape(given.get("trans_b", "N"), k, n),
        "c": (m, n),
    }
    host = {name: random_array(rng, (count, *shape), dtype) for name, shape in shapes.items()}
    host["bias"] = random_array(rng, (n,), dtype)
    buffers = {name: array.ravel() for name, array in host.items()}
    if product.swapped:
        buffers["a"], buffers["b"] = buffers["b"], buffers["a"]
    out = np.full(count * m * n * buffers["c"].itemsize, 0xFF, np.uint8)
    buffers["out"] = out.view(buffers["c"].dtype)
    for name in ("a", "b", "out", "c"):
        step = buffers[name].size // count
        buffers[f"{name}_offsets"] = step * np.arange(count, dtype=np.int64)
    scalars = {"alpha": 0.5, "beta": beta}
    got = run_schedule(schedule, buffers, {}, scalars)["out"].reshape(count, m, n)
    given["bias"] = host["bias"] if given.get("bias") else None
    for index in range(count):
        operands = (host[name][index] for name in "abc")
        assert_close(got[index], expected_gemm(*operands, **scalars, **given))


def traits_for(config):
    """The device that a family is for."""
    if config.family in ("cpu", "small_cpu"):
        return CPU
    special = ("ASYNC", "SHUFFLE", "SUBGROUPS", "SUBGROUPS_M", "STREAMB")
    return H100 if any(getattr(config, name, 0) for name in special) else GPU


def in_host_code(schedule, product, traits):
    """The same launches without instructions of a GPU."""

    def changed(source):
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
    [("L1", 3, 5), ("L2", 3, 5), ("L3", 3, 6), ("L5", 3, 5), ("L5", 3, 8), ("parts", 2, 12),
     ("parts", 2, 20)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms(level, count, k, dtype):
    """L4 has the units of `test_transform3d_units`; L6 is a product, with a kernel before it."""
    rng = np.random.default_rng(0)
    tensors, matrix = (random_array(rng, shape, dtype) for shape in ((count, k, k, k), (k, k)))
    stack = contiguous_stack(count, k)
    transform = Transform(stack, Matrix(k, k, k, 1, 0), stack, dtype)
    if level == "parts":
        parts = FusedConfig(VW=4 if dtype == "float32" else 2, TENSORS=1, PARTS=2, ITEMS=32, ROWS=2)
        choice = TransformChoice("L5", "fused", "", parts)
    else:
        choice = choose_transform(transform, GPU, level)
    schedule = make_transform_schedule(transform, choice, GPU)
    buffers = {"tensors": tensors.ravel(), "matrix": matrix.ravel()}
    buffers["out"] = np.full(tensors.size, np.nan, dtype)
    got = run_schedule(schedule, buffers, {}, {})["out"].reshape(tensors.shape)
    assert_transformed(got, tensors, matrix)


#: A vector that is stored behind where it should, one that starts an element too early, and a slab
#: of A with room for one element less.
BEYOND = ("out += out_offset;", "out += out_offset + 4;")
MISALIGNED = ("a_offset;", "a_offset;\n    *(__global float2 *)(out + 1) = (float2)(0);")
SHORT = ("a_local[", "a_local[-1 + ")


@pytest.mark.parametrize(
    ("config", "fault", "said"),
    [
        *((config, BEYOND, "heap-buffer-overflow") for config in (CPU_PLAIN, DIRECT, INDIRECT)),
        *((config, MISALIGNED, "misaligned address") for config in (CPU_PLAIN, DIRECT, INDIRECT)),
        (INDIRECT, SHORT, "global-buffer-overflow"),
    ],
)
def test_faults_are_found(config, fault, said):
    schedule = make_schedule(GemmShape(8, 8, 8).product(), config, traits_for(config))
    *before, last = schedule.launches
    head, kernel, body = last.source.text.partition("__kernel")
    source = replace(last.source, text=head + kernel + body.replace(*fault))
    assert source != last.source
    broken = replace(schedule, launches=(*before, replace(last, source=source)))
    buffers = {name: np.ones(64, np.float32) for name in ("a", "b", "out")}
    run_schedule(schedule, buffers, {}, {"alpha": 1.0})
    with pytest.raises(host_schedule.Fault, match=said):
        run_schedule(broken, buffers, {}, {"alpha": 1.0})
