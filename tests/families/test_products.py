"""Every kernel family with a configuration of the caller's, on every device.

CPU devices would choose the CPU family alone; here they run the GPU families too, in
small tiles. The configurations cover each parameter, not their product.
"""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyclgemm
from pyclgemm import CpuConfig
from pyclgemm.families.registry import make_schedule
from pyclgemm.problem.precision import UNIT_DTYPES
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from tests.support import buffers, configs
from tests.support.buffers import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED
from tests.support.checks import check_batch, check_gemm, spoil_workspace
from tests.support.configs import BASES, DIRECT_CONFIGS, INDIRECT, INDIRECT_CONFIGS
from tests.support.facts import cpu
from tests.support.reference import ACTIVATIONS, DTYPES, assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

WHOLE = {"c": ROW, "alpha": 0.5, "beta": -2.0, "bias": True}
PADDED = replace(INDIRECT, PADLD=10)
CPU = CpuConfig(MR=2, NR=16, KC=32, VW=8, PACKB=0)
# Rows and columns that fill no tile, several blocks of k, and a last one that fills no vector.
ODD = (5, 37, 83)


def pad(columns, **changes):
    return pytest.param(replace(INDIRECT, PADLD=columns, **changes), id=f"{columns} {changes}")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "config",
    [
        *configs.EVERY_CONFIG,
        # Operands are packed with padding at the end of rows, which is NaN: a read of it shows.
        *(pad(columns) for columns in (10, 2, 40)),
        pad(10, SA=0, SB=0),
        pad(10, STAGES=2, FRAGMENTS=2),
        pad(12, VWM=4, VWN=4, NDIMB=4, KWG=16),
        # More ways of copies past the registers.
        replace(INDIRECT, ASYNC=1, STAGES=2, FRAGMENTS=2),
        replace(BASES["direct"], ASYNC=1, STAGES=2),
        replace(DIRECT_CONFIGS["wide vectors"], ASYNC=1, STAGES=4),
    ],
)
def test_every_configuration(able_queue, config):
    spoil_workspace(able_queue, config=config)
    for sizes in configs.TELLING_SIZES:
        check_gemm(able_queue, sizes, config=config)


def check(queue, require, config, **options):
    """One product, in workspaces that are full of NaN where a type has not been before."""
    given = {"sizes": (37, 41, 19), "dtype": "float32", "config": config} | options
    require(given["dtype"], given.get("precision"))
    if given["dtype"] not in ("float32", *UNIT_DTYPES) and "precision" not in given:
        spoil_workspace(queue, given["dtype"], config=given["config"])
    check_gemm(queue, **given)


def rows(configs, table):
    """Each configuration with all options of a table."""
    return [
        pytest.param(config, options, id=f"{family}-{name}")
        for family, config in configs.items()
        for name, options in table.items()
    ]


TRANSPOSED = {
    f"{a}{b}, {out.order}": {"trans_a": a == "T", "trans_b": b == "T", "out": out}
    for a in "NT" for b in "NT" for out in (ROW, COLUMN)
}  # fmt: skip
DEEP = WHOLE | {"sizes": (37, 41, 70)}  # several slabs of k
IN_PLACE = WHOLE | {"c": None, "in_place": True, "activation": "tanh"}
FOR_EACH_FAMILY = TRANSPOSED | {"deep": DEEP, "deep, relu": DEEP | {"activation": "relu"}}
OPTIONS = {
    "no rows": {"sizes": (0, 5, 3)},
    "no columns": {"sizes": (5, 0, 3)},
    "no depth": {"sizes": (5, 7, 0)},
    "a strided": {"a": STRIDED},
    "b strided": {"b": STRIDED},
    "out strided": {"out": STRIDED},
    "whole epilogue in place": IN_PLACE,
    "the same by columns": IN_PLACE | {"out": COLUMN},
}
#: Whole tiles, and vectors that are cut at edges.
OF_VECTORS = {
    f"{lies.order}, {sizes}": {"sizes": sizes, "a": lies, "b": lies, "out": ROW_ALIGNED}
    for lies in (ROW_ALIGNED, COLUMN_ALIGNED) for sizes in ((64, 64, 64), (33, 31, 9), (5, 130, 47))
}  # fmt: skip
WITH_VECTORS = BASES | {
    "indirect: wide vectors": INDIRECT_CONFIGS["wide vectors"],
    "direct: wide vectors": DIRECT_CONFIGS["wide vectors"],
    "direct: past the registers": DIRECT_CONFIGS["all at once, past the registers"],
    "gemv: wide vectors": configs.GEMV_CONFIGS["wide vectors"],
}
PAIR = {"sizes": (64, 32, 24)}
CONJUGATED = {"dtype": "complex64", "trans_a": "C", "trans_b": "C"}
#: Where rows of packed operands are padded.
PADDINGS = TRANSPOSED | {
    "whole": PAIR,
    "conjugates and strides": CONJUGATED | {"a": STRIDED, "b": STRIDED},
    # The other operand is read where it lies.
    "a": PAIR | {"a": COLUMN_ALIGNED},
    "b": PAIR | {"b": ROW_ALIGNED},
    "neither": PAIR | {"a": COLUMN_ALIGNED, "b": ROW_ALIGNED},
    # Packed ahead, in whole tiles and in less: that one is packed once more.
    **{
        f"packed by {width}, {sizes}": {"sizes": sizes, "pack": PackedLayout("padded", 32, width)}
        for width in (64, 16) for sizes in [(37, 64, 32), (37, 41, 19)]
    },
}  # fmt: skip


TYPES = {
    dtype: WHOLE | {"dtype": dtype} | ({"trans_a": "C"} if dtype.startswith("complex") else {})
    for dtype in ("float16", "float64", "complex64", "complex128")
}
HALVES = {"dtype": "float16", "precision": "F16_F16_F16"}
#: Halves in vectors, which GPU compilers may lack.
CPU_HALVES = {f"b {b.order}": HALVES | {"sizes": ODD, "b": b} for b in (ROW, COLUMN)}


@pytest.mark.parametrize(
    ("config", "options"),
    rows(BASES, FOR_EACH_FAMILY | {"half arithmetic": HALVES})
    + rows(configs.BASES_AND_MORE, OPTIONS | TYPES)
    + rows(WITH_VECTORS, OF_VECTORS)
    + rows({"padded": PADDED}, PADDINGS | TYPES)
    + rows({"another cpu": CPU}, CPU_HALVES),
)
def test_layouts_epilogues_and_types(queue, traits, require, config, options):
    if config.family == "cpu" != traits.type and "precision" in options:
        pytest.skip("the cpu family takes vectors of halves, which GPU compilers may lack")
    check(queue, require, config, **options)


@configs.EVERY_FAMILY_AND_MORE
@settings(max_examples=15)
@given(sizes=st.tuples(*[st.integers(1, 100)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size(queue, config, sizes, seed):
    check_gemm(queue, sizes, config=config, seed=seed, bias=True, activation="relu")


# ------------------------------------------------------------------ what only the CPU family does

TANH = WHOLE | {"c": STRIDED, "activation": "tanh"}
TILES = {
    "scalars": replace(CPU, VW=1, NR=3),
    "one row": replace(CPU, VW=16, MR=1, NR=48),
    "many rows": replace(CPU, VW=4, MR=13, NR=4, MC=13),
}
FEW = CpuConfig(MR=3, NR=8, KC=512, VW=4)
IN_CPU = {
    # B where it lies: by rows, and by dot products along k.
    **{
        f"{dtype}, {b.order}": WHOLE | {"dtype": dtype, "b": b}
        for dtype in ("float16", "float32", "float64", "complex64") for b in (ROW, COLUMN)
    },
    **{
        f"{name}, {b.order}, {sizes}": {"config": config, "b": b, "sizes": sizes}
        for name, config in TILES.items() for b in (ROW, COLUMN)
        for sizes in [ODD, (1, 1, 1), (29, 48, 64)]
    },
    # Squares of B are transposed in registers as it is packed.
    **{
        f"{dtype}, squares of {width}": {
            "config": replace(CPU, PACKB=1, VW=width, NR=2 * width), "dtype": dtype, "b": COLUMN,
            "sizes": (5, 3 * width + 1, 83),
        }
        for dtype, width in [
            ("float16", 2), ("float16", 16), ("float32", 2), ("float32", 16), ("complex64", 2),
            ("complex64", 8),
        ]
    },
    **{f"dot products, A {a.order}": {"a": a, "b": COLUMN} for a in (ROW, COLUMN, STRIDED)},
    "conjugated A": {"dtype": "complex64", "trans_a": "C", "trans_b": "T"},
    "conjugated B": {"dtype": "complex64", "trans_b": "C"},
    "a packed operand is transposed": {"b": COLUMN, "pack": True, "config": None},
    "activation after dot products":
        {"b": COLUMN, "bias": True, "activation": "tanh", "out": COLUMN},
    "rows of whole tiles": TANH,
    "rows of whole tiles that are strided": TANH | {"out": COLUMN},
    "rows of whole tiles of scalars": TANH | {"out": STRIDED, "config": TILES["scalars"]},
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", IN_CPU.values(), ids=IN_CPU)
def test_the_cpu_family(queue, require, options):
    check(queue, require, **{"config": CPU, "sizes": ODD} | options)


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


# ------------------------------------------------------------------ what a product leaves out
# What a kernel leaves out it must not name: each is built and run.

#: alpha, beta, depth. beta None is for a product without an addend.
LEFT_OUT = [
    (0.5, None, 19), (0.5, -2.0, 19), (0.0, None, 19), (0.0, 0.0, 19), (0.0, -2.0, 19),
    (0.5, None, 0), (0.5, 0.0, 0), (0.5, -2.0, 0),
]  # fmt: skip
SMALL, SMALL_CPU = (configs.BATCH_CONFIGS[name] for name in ("small", "small_cpu"))
TURNED = {"a": COLUMN, "b": COLUMN, "out": COLUMN, "bias": True}
STRIDES = {"a": STRIDED, "b": STRIDED, "out": STRIDED, "activation": "silu"}
ALIGNED = {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED, "bias": True}
DOUBLE = {"dtype": "float64"}
HALF = {"dtype": "float16", "bias": True, "activation": "relu"}
MOVED = {"steps": "shared backwards interleaved matrix"}
#: Configurations and the ways of a call that change the kernel's text.
WAYS = [
    (INDIRECT, {}), (INDIRECT_CONFIGS["all at once"], TURNED),
    (replace(INDIRECT_CONFIGS["slices"], PADLD=4), CONJUGATED),
    (INDIRECT, {"pack": PackedLayout("padded", 8, 16)}), (BASES["direct"], TURNED),
    (DIRECT_CONFIGS["two stages"], STRIDES), (DIRECT_CONFIGS["slabs divided"], {}),
    (BASES["gemv"], TURNED), (BASES["gemv"], CONJUGATED | {"bias": True}), (BASES["cpu"], ALIGNED),
    (CPU, TURNED), (FEW, HALF), (FEW, DOUBLE),
    (BASES["cpu"], {"pack": PackedLayout("panels", 32, 16)}), (SMALL, TURNED), (SMALL, ALIGNED),
    (SMALL, CONJUGATED), (SMALL, MOVED), (SMALL_CPU, {}), (SMALL_CPU, TURNED), (SMALL_CPU, STRIDES),
    (replace(SMALL_CPU, MR=2, NR=8, VW=4), DOUBLE | {"b": COLUMN}), (SMALL_CPU, HALF | MOVED),
    # Batches of the others.
    *((config, {"b": COLUMN, "batch": 2}) for config in BASES.values()),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("config", "way"), WAYS)
def test_what_a_product_leaves_out(queue, config, way):
    for alpha, beta, k in LEFT_OUT:
        options = {"dtype": "float32"} | way | {"alpha": alpha, "config": config}
        if beta is not None:
            options |= {"beta": beta, "c": options.get("out", ROW)}
        count = 3 if config.family.startswith("small") else options.pop("batch", None)
        if count:
            check_batch(queue, count, sizes=(7, 21, k), **options)
        else:
            check_gemm(queue, sizes=(7, 21, k), **options)


# ------------------------------------------------------------------ types of matrix units
# bfloat16 and int8 by kernels without units: sums of int8 are those of units bit by bit, those of
# bfloat16 are within the same bound. Devices without units refuse them; here none is asked.


@pytest.fixture
def offered():
    """Any device takes the types."""
    with patch("pyclgemm.api.prepare.check_supported"), patch("pyclgemm.api.dense.check_supported"):
        yield


NARROW = {"sizes": (37, 41, 70), "alpha": 3, "beta": -2}  # in two blocks, so that sums wait
FOR_NARROW = {
    "aligned, in place":
        NARROW | {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED, "in_place": True},
    "column":
        NARROW | {"a": COLUMN_ALIGNED, "b": COLUMN, "out": COLUMN, "c": ROW, "activation": "relu"},
    "strided": NARROW | {"a": STRIDED, "b": ROW, "out": STRIDED, "c": STRIDED, "bias": True},
}  # fmt: skip
MOVING = {
    "shuffles": DIRECT_CONFIGS["shuffles"],
    "vectors": INDIRECT_CONFIGS["wide vectors"],
}
#: Layouts of packed operands: as units want them, and as other kernels do.
PACKED = {
    f"packed, along k {along_k}": {
        "sizes": (33, 35, 37), "pack": PackedLayout("padded", 16, width, along_k=along_k),
    }
    for width, along_k in ((1, True), (32, False))
}  # fmt: skip


@pytest.mark.parametrize("dtype", UNIT_DTYPES)
@pytest.mark.parametrize(
    ("config", "options"),
    rows(configs.BASES_AND_MORE, FOR_NARROW)
    + rows(MOVING, {"what moves": {"sizes": (64, 65, 40), "b": COLUMN}})
    + rows({name: BASES[name] for name in ("direct", "indirect")}, PACKED),
)
@pytest.mark.one_in(2)
def test_types_of_units(offered, queue, require, config, dtype, options):
    check(queue, require, config, dtype=dtype, **options)
    if dtype == "bfloat16" and options.get("bias"):
        check(queue, require, config, dtype=dtype, **options, result="float32")


@pytest.mark.parametrize("dtype", UNIT_DTYPES)
@pytest.mark.parametrize("config", [SMALL, SMALL_CPU], ids=lambda config: config.family)
@pytest.mark.parametrize("sizes", [(8, 8, 8), (7, 10, 6)], ids=["even", "odd"])
def test_batches_of_small_products(offered, queue, config, sizes, dtype):
    check_batch(queue, 37, sizes, dtype, config=config, alpha=2, beta=-1, c=ROW, bias=True)


# ------------------------------------------------------------------ bias and activation

SIZES = (23, 35, 41)
EPILOGUES = [
    *({"out": out, "bias": bias, "activation": activation} for out in (ROW, COLUMN, STRIDED)
      for bias in (False, True) for activation in (None, *ACTIVATIONS)),
    *({"dtype": dtype, "bias": True} for dtype in DTYPES),
    *({"dtype": dtype, "bias": True, "activation": name}
      for dtype in ("float16", "float64") for name in ("gelu", "silu")),
    {"dtype": "float16", "bias": True, "activation": "relu", "precision": "F16_F16_F16"},
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", EPILOGUES)
def test_epilogues(queue, require, options):
    require(options.get("dtype"), options.get("precision"))
    check_gemm(queue, SIZES, **options)


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


@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
@pytest.mark.parametrize("stride", [2, -1])
def test_bias_is_read_at_its_stride_and_offset(queue, rng, stride, out):
    m, n, k = SIZES
    a, b = (
        buffers.guarded_matrix(queue, random_array(rng, shape, "float32"), ROW)
        for shape in ((m, k), (k, n))
    )
    bias = buffers.GuardedArray(queue, random_array(rng, (n,), "float32"), (stride,), lead=71)
    result = buffers.guarded_matrix(queue, buffers.blank((m, n), "float32"), out)
    epilogue = pyclgemm.Epilogue(bias=bias.array)
    pyclgemm.gemm(queue, a.array, b.array, out=result.array, epilogue=epilogue)
    assert_close(result.get(), expected_gemm(a.initial, b.initial, bias=bias.initial))


@pytest.mark.parametrize("bias", [None, [0, np.nan, 0]], ids=["empty", "nan in its column"])
def test_bias_of_products_of_ones(queue, bias):
    ones = np.ones((3, 3), np.float32)
    epilogue = pyclgemm.Epilogue(None if bias is None else np.array(bias, np.float32))
    expected = [[3, 3, 3] if bias is None else [3, np.nan, 3]] * 3
    np.testing.assert_array_equal(pyclgemm.gemm(queue, ones, ones, epilogue=epilogue), expected)


@pytest.mark.parametrize("bias_on_device", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
def test_bias_lies_where_the_caller_has_it(queue, rng, bias_on_device, on_device):
    a, b, bias = (random_array(rng, shape, "float32") for shape in ((9, 9), (9, 9), (9,)))
    epilogue = pyclgemm.Epilogue(cl_array.to_device(queue, bias) if bias_on_device else bias)
    operands = [cl_array.to_device(queue, x) for x in (a, b)] if on_device else [a, b]
    got = pyclgemm.gemm(queue, *operands, epilogue=epilogue)
    assert_close(got.get() if on_device else got, expected_gemm(a, b, bias=bias))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_complex_activation_is_refused(queue, activation):
    ones = np.ones((3, 3), np.complex64)
    epilogue = pyclgemm.Epilogue(activation=activation)
    refused = (pyclgemm.UnsupportedError, pyclgemm.DtypeError)
    with pytest.raises(refused, match=f"{activation}.*complex"):
        pyclgemm.gemm(queue, ones, ones, epilogue=epilogue)
