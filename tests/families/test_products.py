"""Products by every kernel family that needs no matrix units, on every device.

A CPU would choose the families of CPUs alone; here it runs those of GPUs too, in small tiles.
"""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings, strategies as st

import pyclgemm
from pyclgemm import CpuConfig, SmallConfig, SmallCpuConfig
from pyclgemm.device.probe import SHFL
from pyclgemm.families.cpu.grid import divide
from pyclgemm.families.registry import make_schedule
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from tests.support import configs
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.buffers import ROW, PoisonedBuffer
from tests.support.cases import BATCHES, all_pairs
from tests.support.checks import check_gemm, skip_if_refused
from tests.support.configs import CPU, DIRECT, DIRECT_CONFIGS, INDIRECT, INDIRECT_CONFIGS
from tests.support.facts import cpu, gpu
from tests.support.families import imagined_traits
from tests.support.reference import ACTIVATIONS, DTYPES, assert_close, expected_gemm

pytestmark = pytest.mark.any_runtime

GPU = gpu(
    fence_options="-cl-std=CL3.0", shuffle=SHFL, sub_group_sizes=(8, 16, 32),
    local_memory_bytes=2**17,
)  # fmt: skip
PADDED = replace(INDIRECT, PADLD=10)
SHUFFLED = replace(INDIRECT, MWG=64, NWG=64, LANES_M=8, LANES_N=4, SHUFFLE=1)
INDIRECTS = [
    *INDIRECT_CONFIGS.values(),
    # The padding at the ends of packed rows is NaN: reading it shows.
    *(replace(INDIRECT, PADLD=columns) for columns in (10, 2, 40)),
    replace(PADDED, SA=0, SB=0),
    replace(PADDED, STAGES=2, FRAGMENTS=2),
    replace(PADDED, PADLD=12, VWM=4, VWN=4, NDIMB=4, KWG=16),
    replace(INDIRECT_CONFIGS["slices"], PADLD=4),
    replace(INDIRECT, ASYNC=1, STAGES=2, FRAGMENTS=2),
    # What a work-item shuffles is a vector, parts of one or of several.
    SHUFFLED,
    replace(SHUFFLED, VWM=8, VWN=8),
    replace(SHUFFLED, MWG=128, VWM=1, VWN=1),
    replace(SHUFFLED, STRM=0, STRN=0),
    replace(SHUFFLED, SA=0, SB=0),
    replace(SHUFFLED, SA=0, STRM=0),
    replace(SHUFFLED, STAGES=2, FRAGMENTS=2, PADA=2, PADB=4),
    replace(SHUFFLED, SWIZZLE=4, VWM=4, VWN=4, NDIMB=8),
    replace(SHUFFLED, SLICES=2, MDIMA=16, NDIMB=16),
    # Sub-groups that are higher than wide, and smaller than NVIDIA's.
    *(replace(SHUFFLED, LANES_M=m, LANES_N=n) for m, n in ((4, 8), (4, 2), (2, 4), (4, 4), (8, 2))),
]
SHALLOW = replace(DIRECT_CONFIGS["shuffles"], KWGD=16)
DIRECTS = [
    *DIRECT_CONFIGS.values(),
    *(replace(DIRECT, ASYNC=1, STAGES=2, VWMD=width, VWND=width) for width in (1, 2)),
    replace(DIRECT_CONFIGS["wide vectors"], ASYNC=1, STAGES=4),
    replace(SHALLOW, FILL=3),
    replace(SHALLOW, WGD=64, NWGD=32, STAGES=2, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2),
    # Copies cannot conjugate: a part is conjugated as it is loaded.
    replace(SHALLOW, ASYNC=1, STAGES=3, FRAGMENTS=2),
]
GEMVS = [
    *configs.GEMV_CONFIGS.values(),
    *(replace(configs.GEMV, STREAMB=1, VW=width) for width in (1, 2, 4, 8, 16)),
]
IN_PLACE = replace(CPU, PACKB=0)
CPUS = [
    *configs.CPU_CONFIGS.values(),
    replace(IN_PLACE, VW=16, MR=1, NR=48),
    replace(IN_PLACE, VW=4, MR=13, NR=4, MC=13),
    # Squares of B are transposed in registers as B is packed.
    *(replace(CPU, PACKB=1, VW=width, NR=2 * width) for width in (2, 16)),
]
KINDS = [
    *({"dtype": dtype} for dtype in (*DTYPES, "int8", "bfloat16")),
    *({"dtype": dtype, "result": "float32"} for dtype in ("float16", "bfloat16")),
    {"dtype": "float16", "precision": "F16_F16_F16"},
]
#: Less and more than tiles, slabs and blocks of k, whole ones, and none.
SIZES = [
    (1, 1, 1), (32, 32, 32), (33, 31, 9), (64, 65, 40), (5, 130, 47), (97, 3, 70), (5, 37, 83),
    (62, 36, 18), (0, 5, 3), (5, 0, 3), (5, 7, 0),
]  # fmt: skip
SMALL_SIZES = [(8, 8, 8), (7, 10, 6), (7, 21, 19), (7, 21, 0), (32, 3, 1)]
#: Configurations, the layout in which b is packed, and the device that they are for.
FAMILIES = [
    (INDIRECTS, PackedLayout("padded", 8, 16), GPU),
    (DIRECTS, PackedLayout("padded", 32, 64), GPU),
    (GEMVS, PackedLayout("padded", 16, 1, along_k=True), GPU),
    (CPUS, "panels", cpu()),
]
SMALL_FAMILIES = [
    ((SmallConfig(MWI=4, NWI=4, WGS=64), SmallConfig(MWI=8, NWI=2, WGS=32, KWI=1)), GPU),
    ((SmallCpuConfig(MR=3, NR=16, VW=8), SmallCpuConfig(MR=2, NR=8, VW=4)), cpu()),
]
CASES = [
    *(case for tiles, packed, traits in FAMILIES
      for case in all_pairs(traits, config=tiles, sizes=SIZES, kind=KINDS, batch=BATCHES,
                            pack=(False, packed))),
    *(case for tiles, traits in SMALL_FAMILIES
      for case in all_pairs(traits, config=tiles, kind=KINDS, sizes=SMALL_SIZES,
                            batch=[*BATCHES[1:], {"batch": 37}])),
]  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", CASES)
def test_products(able_queue, traits, require, monkeypatch, case):
    require(case["dtype"], case.get("precision"))
    config = case["config"]
    if "precision" in case and config.family in ("cpu", "small_cpu") and traits.type != "cpu":
        pytest.skip("these families take vectors of halves, which GPU compilers may lack")
    if case.get("pack") == "panels":
        case = case | {"pack": PackedLayout("panels", config.KC, config.NR)}
    # Workspaces are NaN where no kernel writes them.
    monkeypatch.setattr(cl, "Buffer", PoisonedBuffer)
    # Any device takes bfloat16 and int8 here.
    with patch("pyclgemm.api.prepare.check_supported"), patch("pyclgemm.api.pack.check_supported"):
        check_gemm(able_queue, **case)


#: What sums products of pairs; a processor that has an instruction has those before it.
PAIRS = ["", "vpmaddwd", "vpdpwssd"]


@pytest.mark.parametrize("instruction", PAIRS)
def test_every_spelling_of_products_of_pairs(queue, traits, instruction):
    if PAIRS.index(instruction) > PAIRS.index(traits.pair_instruction):
        pytest.skip("the processor has no such instruction, or the compiler does not take it")
    config = CpuConfig(MR=3, NR=16, KC=16, VW=16)
    with imagined_traits(pair_instruction=instruction, vector_bytes=32):
        check_gemm(queue, (7, 40, 95), "int8", config=config, trans_b="T")


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
@pytest.mark.parametrize("config", [
    CpuConfig(MR=1, NR=32, KC=4, VW=8, PACKB=0), CpuConfig(MR=3, NR=16, KC=2, VW=8, PACKB=0),
    CpuConfig(MR=2, NR=16, KC=4, VW=8),
])  # fmt: skip
def test_blocks_shallower_than_a_vector(queue, config, dtype):
    for layout in ("NN", "NT", "TN"):
        trans = dict(zip(("trans_a", "trans_b"), layout, strict=True))
        check_gemm(queue, (7, 75, 21), dtype, config=config, c=ROW, beta=2.0, **trans)
    panels = PackedLayout("panels", depth_block=config.KC, width=config.NR)
    check_gemm(queue, (5, 64, 9), dtype, config=config, pack=panels)


@pytest.mark.parametrize("vendor", ["intel", "amd"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int8"])
@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_few_rows_by_panels(queue, rows, dtype, vendor):
    # Few rows read 8 places of a block in turn: of 104 depths, of 31 (uneven), and of 7 (none).
    config = CpuConfig(MR=rows, NR=32, KC=104, VW=8)
    panels = PackedLayout("panels", depth_block=config.KC, width=config.NR)
    with imagined_traits(vendor=vendor):
        for k in (7, 135):
            check_gemm(queue, (rows, 75, k), dtype, config=config, pack=panels)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16", "int8"])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_the_last_columns_of_b_that_is_read_in_place(queue, require, dtype, vectors):
    # They fill some of a tile's vectors, or the last one in part, at each number of columns.
    require(dtype)
    config = CpuConfig(MR=2, NR=4 * vectors, KC=16, VW=4, PACKB=0)
    for columns in range(1, 4 * vectors + 1):
        check_gemm(queue, (5, 4 * vectors + columns, 37), dtype, config=config, c=ROW, beta=2.0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("k", [16, 21, 31, 37])
def test_dot_products_multiply_infinite_elements_once(queue, require, dtype, k):
    # With VW=8 the last vector of 21 elements holds three that the vector before it holds too.
    require(dtype)
    a, b = np.ones((5, k), dtype), np.ones((k, 37), dtype)
    b[k - 8, 3] = a[2, k - 6] = np.inf
    b[k - 1, 5] = b[0, 36] = -np.inf
    config = CpuConfig(MR=3, NR=16, KC=32, VW=8, PACKB=0)
    got = pyclgemm.gemm(queue, a, np.ascontiguousarray(b.T), trans_b=True, config=config)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("config", [INDIRECT, PADDED, DIRECT_CONFIGS["slabs divided"], CPU])
def test_a_workspace_that_a_larger_product_filled_with_nan_is_used_again(queue, config):
    skip_if_refused(queue, config)
    nan = np.full((150, 150), np.nan, np.float32)
    assert np.isnan(pyclgemm.gemm(queue, nan, nan, config=config)).all()
    check_gemm(queue, (33, 31, 9), config=config)


@pytest.mark.parametrize("config", [*configs.BASES.values(), DIRECT_CONFIGS["all at once"]])
@settings(max_examples=15)
@given(sizes=st.tuples(*[st.integers(1, 100)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size(queue, config, sizes, seed):
    check_gemm(queue, sizes, config=config, seed=seed, bias=True, activation="relu")


@pytest.mark.parametrize(
    ("packed", "conjugate", "blocks"), [(0, False, 1), (0, True, 2), (1, False, 2)]
)
def test_rows_of_b_that_are_read_in_place_are_divided_least(packed, conjugate, blocks):
    product = GemmShape(1, 4096, 4096).product("complex64")
    b = replace(product.problem.b, conjugate=conjugate)
    product = replace(product, problem=replace(product.problem, b=b))
    config = CpuConfig(MR=1, NR=64, KC=128, VW=8, PACKB=packed)
    (launch,) = make_schedule(product, config, cpu(compute_units=4)).launches
    assert launch.global_size == (blocks * 4,)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
@pytest.mark.parametrize("config", [
    replace(CPU, KC=256), replace(CPU, NR=8), replace(IN_PLACE, VW=4, NR=4),
    replace(CPU, VW=1, NR=1),
])  # fmt: skip
def test_slices_of_k_of_few_tiles(queue, config, dtype):
    activation = None if dtype == "complex64" else "tanh"
    with imagined_traits(compute_units=5):
        for layout in ("NN", "NT", "TN"):
            trans = dict(zip(("trans_a", "trans_b"), layout, strict=True))
            # Twice: the counters of arrivals are ready for the next launch.
            check_gemm(queue, (7, 17, 2500), dtype, config=config, **trans)
            check_gemm(
                queue, (7, 17, 2500), dtype, config=config, c=ROW, beta=2.0, alpha=0.5, bias=2,
                activation=activation, **trans,
            )  # fmt: skip
        panels = PackedLayout("panels", depth_block=config.KC, width=config.NR)
        check_gemm(queue, (7, 17, 2500), dtype, config=config, pack=panels)


@pytest.mark.parametrize(
    ("sizes", "dtype", "batch", "slices"),
    [
        ((17, 168, 5272), "float32", None, 4),  # of three panels one core would have two
        ((17, 168, 50), "float32", None, 1),  # adding up slices would take longer
        ((7, 16, 136), "float32", None, 1),  # waking a core would
        ((1024, 1024, 1024), "float32", None, 1),
        ((17, 168, 5272), "int8", None, 1),  # pairs along k
        ((17, 168, 5272), "float32", 2, 1),
    ],
)
def test_k_is_divided_where_few_tiles_would_leave_a_core_idle(sizes, dtype, batch, slices):
    problem = GemmShape(*sizes, batch=batch).problem(dtype)
    grid = divide(problem, CpuConfig(MR=6, NR=64, KC=128, VW=16), cpu(compute_units=2)).grid
    assert grid.slices == slices


@pytest.mark.parametrize(
    ("shape", "changes", "swept"),
    [
        (GemmShape(1320, 865, 9), {}, True),
        (GemmShape(1320, 64, 9), {}, False),  # one panel
        (GemmShape(1320, 865, 120), {}, False),  # panels that fill a cache
        (GemmShape(1320, 865, 9), {"PACKB": 0}, False),
    ],
)
def test_all_panels_are_packed_first_where_k_is_shallow(shape, changes, swept):
    config = replace(CpuConfig(MR=6, NR=64, KC=128, VW=16), **changes)
    assert divide(shape.problem(), config, cpu(compute_units=2)).sweeps == swept


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_the_whole_range_and_beyond(queue, activation):
    one, infinite = np.ones((1, 1), np.float32), [-np.inf, np.inf, np.nan]
    x = np.concatenate([infinite, [0.0, -0.0], *(s * np.logspace(-30, 4, 400) for s in (1, -1))])
    row = x.astype(np.float32)[np.newaxis]
    epilogue = pyclgemm.Epilogue(activation=activation)
    got = pyclgemm.gemm(queue, one, row, epilogue=epilogue)
    assert_close(got[:, 3:], expected_gemm(one, row[:, 3:], activation=activation))
    limits = {"sigmoid": (0, 1), "tanh": (-1, 1)}.get(activation, (0, np.inf))
    # 16 eps for the evaluation, as in the module `reference`.
    np.testing.assert_allclose(got[0, :3], [*limits, np.nan], rtol=0, atol=16 * 2.0**-23)


def test_a_nan_in_the_bias_stays_in_its_column(queue):
    ones, bias = np.ones((3, 3), np.float32), np.array([0, np.nan, 0], np.float32)
    got = pyclgemm.gemm(queue, ones, ones, epilogue=pyclgemm.Epilogue(bias))
    np.testing.assert_array_equal(got, [[3, np.nan, 3]] * 3)


@pytest.mark.parametrize("bias_on_device", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
def test_the_bias_may_be_on_the_host_or_on_the_device(queue, rng, bias_on_device, on_device):
    hosts = draw(rng, (9, 9), (9, 9), (9,))
    a, b, bias = (
        upload(queue, host)[0] if uploaded else host
        for host, uploaded in zip(hosts, (on_device, on_device, bias_on_device), strict=True)
    )
    got = pyclgemm.gemm(queue, a, b, epilogue=pyclgemm.Epilogue(bias))
    assert_gemm(got, *hosts[:2], bias=hosts[2])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_complex_activation_is_refused(queue, activation):
    ones = np.ones((3, 3), np.complex64)
    refused = (pyclgemm.UnsupportedError, pyclgemm.DtypeError)
    with pytest.raises(refused, match=f"{activation}.*complex"):
        pyclgemm.gemm(queue, ones, ones, epilogue=pyclgemm.Epilogue(activation=activation))
