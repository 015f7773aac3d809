"""Products by matrix units, with the instructions emulated: tiles, and few rows."""

import re
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import family_of, make_schedule
from pyclgemm.problem.precision import PRECISIONS, resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources
from tests.support import configs
from tests.support.arrays import draw_with_infinities
from tests.support.buffers import ALIGNED, COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, Layout
from tests.support.checks import check_gemm
from tests.support.configs import GEMV_UNIT, GEMV_UNIT_CONFIGS, WGMMA
from tests.support.emulation.matrix import emulated_units, skip_without_emulation
from tests.support.facts import product_of
from tests.support.reference import assert_close, expected_gemm

CONFIG, FLOAT32, SPLIT = configs.MATRIX, configs.FLOAT32_PRECISIONS, configs.SPLIT_PRECISIONS
H100, RDNA3 = typical_traits("sm_90"), typical_traits("gfx1100")
SLICED = replace(CONFIG, KWG=64, SLICES=4, SUBGROUPS_M=1, STAGES=6)
SHARED = replace(CONFIG, FILL=3, STAGES=3)
IN_PLACE = replace(CONFIG, KWG=32, UNALIGNED=1)
DEEP = replace(CONFIG, KWG=32, STAGES=4)

#: Precisions by what is written of them below.
HALF, HALVES = ("float16", "F16_F16_F32"), ("float16", "F16_F16_F16")
BFLOAT, BYTES = ("bfloat16", "BF16_BF16_F32"), ("int8", "I8_I8_I32")
DOUBLE, COMPLEX = ("float64", "F64_F64_F64"), ("complex128", "F64_F64_F64")
FAST, IN_PARTS = ("float32", "TF32_TF32_F32"), ("float32", "TF32_TF32_F32_X3")
IN_BFLOATS = ("float32", "BF16_BF16_F32_X3")

#: Configurations of slices, and of tiles that work-groups share, for each precision.
OF_SLICES = {
    HALF: {},
    HALVES: {"SLICES": 2, "FRAGMENTS": 2},
    BFLOAT: {"MWG": 16, "NWG": 64, "SUBGROUPS_N": 2, "SLICES": 2},
    DOUBLE: {"SLICES": 2, "STAGES": 4},
    COMPLEX: {"SLICES": 2, "STAGES": 3, "FRAGMENTS": 2},
    BYTES: {"KWG": 128, "FRAGMENTS": 2, "SLICES": 2},
    IN_PARTS: {"SLICES": 2, "FRAGMENTS": 2, "STAGES": 3},
}
OF_SHARED = {
    HALF: {},
    HALVES: {"KWG": 32, "FRAGMENTS": 2},
    BFLOAT: {"KWG": 32, "FRAGMENTS": 2, "FILL": 1},
    DOUBLE: {"STAGES": 4, "GROUP_M": 1},
    COMPLEX: {"FRAGMENTS": 2},
    BYTES: {"KWG": 32},
    FAST: {"UNALIGNED": 1, "STAGES": 2},
    IN_PARTS: {"FRAGMENTS": 2, "KWG": 32},
}
DIVIDED = [replace(SLICED, FRAGMENTS=2, SLICES=2), SHARED]
DIVIDED += [replace(SHARED, FILL=1, UNALIGNED=1, STAGES=1)]

GELU = {"c": ROW, "bias": True, "activation": "gelu", "alpha": 0.5, "beta": -1.5}
RELU = {"c": ROW, "bias": True, "activation": "relu", "alpha": 3, "beta": -2}
OFFSET = RELU | {"activation": None}
PACKED = {"pack": PackedLayout("padded", depth_block=16, width=32)}
BATCH = {"a": ROW_ALIGNED, "out": ROW_ALIGNED, "c": ROW, "beta": 0.5, "batch": 3}
ODD, WIDE = (45, 39, 53), (37, 33, 40)
BY_ROWS = {"a": ROW_ALIGNED, "b": ROW_ALIGNED}
BY_COLUMNS = {"a": COLUMN_ALIGNED, "b": COLUMN_ALIGNED}

#: Sizes, element type and precision, what is changed of CONFIG or another one, and options.
PRODUCTS = [
    *((ODD, HALF, {}, {"a": a, "b": b}) for a in ALIGNED for b in ALIGNED),
    (ODD, HALVES, {}, BY_ROWS),
    # A and B are loaded by the same lines in these: two of the four show each twice.
    *((ODD, kind, {}, both) for kind in (DOUBLE, BFLOAT) for both in (BY_ROWS, BY_COLUMNS)),
    # An element is 16 bytes: rows of any length are copied where they lie.
    *((ODD, COMPLEX, {}, {"a": a, "b": b})
      for a, b in ((ROW, COLUMN), (COLUMN, ROW), (STRIDED, STRIDED))),
    # Bytes by columns are packed: k must be contiguous.
    *((ODD, kind, {"KWG": 32} if kind == BYTES else {}, {"a": a, "b": b})
      for kind in (FAST, BYTES)
      for a, b in ((ROW_ALIGNED, COLUMN_ALIGNED), (COLUMN_ALIGNED, ROW_ALIGNED))),
    (ODD, IN_BFLOATS, {}, {"a": COLUMN_ALIGNED, "b": ROW_ALIGNED}),
    # Rows that cannot be copied are packed.
    *(((33, 35, 37), FAST, {}, {"a": a, "b": b, "trans_a": True})
      for a, b in ((ROW, COLUMN), (COLUMN, STRIDED), (STRIDED, ROW))),
    *(((33, 35, 37), kind, {}, PACKED) for kind in (HALF, COMPLEX)),
    *((sizes, HALF, {}, {})
      for sizes in ((1, 1, 1), (32, 32, 16), (31, 33, 17), (65, 1, 130), (5, 70, 0))),
    *(((70, 66, 90), HALF, changes, BY_ROWS | {"out": ROW_ALIGNED})
      for changes in (
          {"STAGES": 3}, {"STAGES": 4, "KWG": 32}, {"KWG": 32, "FRAGMENTS": 2},
          {"KWG": 64, "FRAGMENTS": 2, "STAGES": 3},
          {"MWG": 64, "NWG": 64, "SUBGROUPS_M": 1, "SUBGROUPS_N": 2},
          {"MWG": 96, "NWG": 48, "SUBGROUPS_M": 1, "SUBGROUPS_N": 3, "GROUP_M": 1})),
    *(((37, 33, 150), kind, {"KWG": depth, "FRAGMENTS": 2}, {})
      for kind, depth in ((DOUBLE, 16), (COMPLEX, 16), (IN_PARTS, 32), (BYTES, 64))),
    *((WIDE, HALF, {}, {"bias": True, "activation": activation, "alpha": 2.0})
      for activation in ("gelu_tanh", "silu", "sigmoid")),
    # Without an addend what is written beside the result is no NaN, as what lies there.
    *((WIDE, kind, {}, options | {"out": out})
      for kind, out in ((HALF, ROW_ALIGNED), (DOUBLE, STRIDED))
      for options in (GELU, {"in_place": True, "beta": 2.0}, {})),
    *((WIDE, COMPLEX, {}, {"c": ROW, "bias": True, "alpha": 0.5 - 2j, "beta": 1j,
                           "trans_a": trans_a, "trans_b": trans_b})
      for trans_a, trans_b in ("CN", "NC", "CC")),
    # Results in pieces: rows end within one or between two.
    *(((45, n, 40), kind, DEEP, RELU | {"out": out, "result": result, "c": c, "in_place": not c})
      for kind, result, out, n in (
          (HALF, "float16", Layout(alignment=8), 40), (HALF, "float32", ROW_ALIGNED, 33),
          (BFLOAT, "bfloat16", ROW_ALIGNED, 39), (BYTES, "int32", Layout(alignment=4), 36))
      for c in (ROW_ALIGNED, ROW, COLUMN, None)),
    # Slabs and tiles divided: rows end within a piece and the last slab is a part of one.
    *(((45, 39, 150), kind, replace(base, **changes), (OFFSET if kind == COMPLEX else RELU)
       | {"out": out})
      for base, table in ((SLICED, OF_SLICES), (SHARED, OF_SHARED))
      for kind, changes in table.items() for out in (ROW_ALIGNED, STRIDED)),
    *((sizes, HALF, DIVIDED[0], both)
      for sizes in ((1, 1, 1), (32, 32, 64), (5, 70, 0)) for both in (BY_ROWS, BY_COLUMNS)),
    # One tile for all groups, none that is shared, none to multiply, whole ones before.
    *((sizes, HALF, config, {"a": COLUMN}) for config in DIVIDED[1:]
      for sizes in ((1, 1, 1), (32, 32, 16), (20, 5, 1000), (5, 70, 0), (200, 99, 40))),
    # Read where they lie: more than one slab, and rows that end within a vector.
    *(((45, 39, 77), kind, IN_PLACE, {"a": Layout(a, alignment=by), "b": Layout(b, alignment=by)})
      for kind, a, b in (
          (HALF, "row", "row"), (HALF, "column", "column"), (HALVES, "row", "column"),
          (BFLOAT, "column", "row"), (FAST, "row", "row"), (FAST, "column", "column"),
          (DOUBLE, "row", "row"), (BYTES, "row", "column"),
          (BYTES, "row", "row"))  # B is packed: k must be contiguous
      for by in (1, 4)),
    # Whole tiles and slabs, and the epilogue behind them.
    *(((64, 32, 256), HALF, replace(IN_PLACE, **changes),
       RELU | {"a": Layout(alignment=a), "b": Layout(alignment=b)})
      for changes in ({"STAGES": 1}, {"KWG": 128, "SLICES": 2, "SUBGROUPS_M": 1})
      for a, b in ((1, 2), (8, 1))),
    *((sizes, HALF, IN_PLACE, {"a": both, "b": both})
      for sizes in ((1, 1, 1), (32, 32, 32), (3, 70, 5), (33, 1, 64))
      for both in (ROW, COLUMN, ROW_ALIGNED)),
    ((33, 35, 37), HALF, IN_PLACE, {"a": STRIDED, "b": COLUMN}),
    # Without depth or alpha.
    *(((7, 21, k), kind, config, {"alpha": alpha, "beta": -2.0, "c": ROW, "b": b})
      for kind, config, b in ((HALF, {}, ROW), (IN_PARTS, {}, ROW), (HALF, GEMV_UNIT, COLUMN))
      for alpha, k in ((0.0, 19), (0.5, 0))),
    # Few rows by units that lanes feed from memory.
    *((sizes, HALF, config, {"a": ROW_ALIGNED, "b": b}) for config in GEMV_UNIT_CONFIGS.values()
      for b in ALIGNED for sizes in ((8, 64, 128), (5, 70, 200), (19, 35, 33))),
    *(((7, 37, 75), kind, GEMV_UNIT, {"a": a, "b": b}) for kind in (HALF, BFLOAT)
      for a, b in ((ROW_ALIGNED, ROW), (ROW, COLUMN), (COLUMN, ROW_ALIGNED), (STRIDED, STRIDED),
                   (COLUMN_ALIGNED, COLUMN_ALIGNED))),
    *(((9, 37, 75), kind, GEMV_UNIT, options | {"out": out}) for kind in (HALF, BFLOAT)
      for out in (ROW_ALIGNED, STRIDED, COLUMN)
      for options in (GELU, {"in_place": True, "beta": 2.0})),
    *((sizes, HALF, GEMV_UNIT, {"c": ROW, "beta": 1.0, "bias": True})
      for sizes in ((1, 1, 1), (37, 3, 75), (300, 1, 20), (5, 7, 0))),
    *(((5, 37, 75), HALF, GEMV_UNIT, options)
      for options in ({"result": "float32", "alpha": 1 / 3}, PACKED,
                      {"pack": PackedLayout("padded", 16, 1, along_k=True)})),
    # Batches; in split terms packed first, and the elements read where a sum is not finite.
    *(((40, 34, 24), kind, {}, BATCH | options)
      for kind, options in ((HALF, {"b": COLUMN_ALIGNED}),
                            (IN_BFLOATS, {"b": STRIDED,
                                          "steps": "backwards interleaved apart matrix"}))),
    ((37, 33, 90), HALF, SHARED, {"batch": 3}),
    ((20, 30, 70), COMPLEX, replace(SHARED, STAGES=2), {"batch": 5}),
    ((5, 37, 75), HALF, GEMV_UNIT, {"batch": 3, "bias": True, "steps": "apart shared apart apart"}),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("sizes", "kind", "config", "options"), PRODUCTS)
def test_products(units, queue, sizes, kind, config, options):
    dtype, precision = kind
    config = replace(CONFIG, **config) if isinstance(config, dict) else config
    # Counters of arrivals must be ready for the next call.
    for _ in range(2 if getattr(config, "FILL", 0) else 1):
        check_gemm(queue, sizes, dtype, precision=precision, config=config, **options)


# ------------------------------------------------------------------ numbers that are hard


def product(queue, a, b, precision, config=CONFIG):
    """The product of NumPy arrays; operands that lie alike build each precision's kernel once."""
    device_a, device_b = (cl_array.to_device(queue, x.astype(np.float32)) for x in (a, b))
    return pyclgemm.gemm(queue, device_a, device_b, precision=precision, config=config).get()


@pytest.mark.parametrize("precision", FLOAT32)
@pytest.mark.parametrize("kind", ["badly scaled", "cancelling", "denormal", "near the largest"])
def test_error_bound(units, queue, rng, precision, kind):
    a, b = rng.uniform(-1, 1, (32, 64)), rng.uniform(-1, 1, (64, 32))
    if kind == "badly scaled":
        a *= 2.0 ** rng.integers(-40, 40, a.shape)
        b *= 2.0 ** rng.integers(-40, 40, b.shape)
    elif kind == "cancelling":
        a[:, 32:], b[32:] = a[:, :32], -b[:32]
    elif kind == "denormal":
        a *= 2.0**-120
        a[:, ::2] *= 2.0**-20
    else:
        a[:, 0], b[0] = 3.4e38, rng.choice([-1.0, 1.0], 32)
        a[:, 1:] *= 1e30
    a, b = a.astype(np.float32), b.astype(np.float32)
    expected = expected_gemm(a, b, precision=precision)
    # A denormal number has fewer bits than a part: what a single part leaves is no part of it.
    lost = 0.0 if precision in SPLIT else 2.0**-133 * np.abs(b.astype(float)).sum(0)
    expected = replace(expected, bound=expected.bound + lost)
    assert_close(product(queue, a, b, precision), expected)


@pytest.mark.parametrize("precision", SPLIT)
def test_leading_parts_that_overflow(units, queue, precision):
    """Both leading parts of bfloat16 are rounded up, and their product is infinite."""
    a, b = np.zeros((32, 64), np.float32), np.zeros((64, 32), np.float32)
    a[5, 9], b[9, 7] = 3.383e38, 1.0040
    assert_close(product(queue, a, b, precision), expected_gemm(a, b, precision=precision))


def test_split_products_are_as_good_as_float32(units, queue, rng):
    """Not only within the bound, which a wrong pair of parts may be: near the sum's own error."""
    a = rng.uniform(-1, 1, (64, 96)).astype(np.float32)
    b = rng.uniform(-1, 1, (96, 64)).astype(np.float32)
    exact = a.astype(float) @ b.astype(float)
    scale = np.abs(a).astype(float) @ np.abs(b).astype(float)
    errors = {
        name: np.abs(product(queue, a, b, name) - exact).max() / scale.max() for name in FLOAT32
    }
    assert errors["BF16_BF16_F32"] < 2**-8 < 2**8 * errors["TF32_TF32_F32"] < 1
    for name in ("TF32_TF32_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"):
        assert errors[name] < 2**-21
    assert 2**-24 < errors["BF16_BF16_F32_X3"] < 2**-15


# ------------------------------------------------------------------ units of AMD

AMD = ("gfx1100", "gfx1200", "gfx90a", "gfx942")
AMD_CONFIG = MatrixConfig(MWG=32, NWG=32, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2, GROUP_M=2)


def units_of(*architectures):
    """Architectures with the precisions that they have units for; split terms have those of one."""
    return [
        (name, one.operand, one.name)
        for name in architectures
        for one in PRECISIONS
        if one.terms == 1 and matrix_unit(one, typical_traits(name))
    ]


def config_for(architecture, **changes):
    """A small configuration; sub-groups of 64 are one where those of 32 are two."""
    wide = architecture.startswith("gfx9")
    return replace(AMD_CONFIG, **({"SUBGROUPS_M": 1} if wide else {}) | changes)


@pytest.fixture
def emulated(queue, architecture):
    """An architecture's units, where the emulation compiles in well under a second."""
    skip_without_emulation(queue.device)
    with emulated_units(architecture):
        yield queue


ON_AMD = [
    # Odd sizes, an addend, a bias; as many instructions at once as fill a vector.
    *((name, (dtype, precision), ODD, {"KWG": 64}, OFFSET) if dtype == "int8" else
      (name, (dtype, precision), ODD, {}, GELU) for name, dtype, precision in units_of(*AMD)),
    # Both lie as the units take them, neither does, and what is strided.
    *((name, HALF, ODD, {}, {"a": a, "b": b, "out": out})
      for name in ("gfx1200", "gfx90a")
      for a, b, out in ((ROW_ALIGNED, COLUMN_ALIGNED, ROW_ALIGNED), (COLUMN, STRIDED, STRIDED),
                        (COLUMN_ALIGNED, ROW_ALIGNED, COLUMN_ALIGNED))),
    *((name, HALF, sizes, changes, {"a": ROW_ALIGNED, "b": COLUMN_ALIGNED})
      for name in ("gfx1100", "gfx942")
      for changes in (
          {"STAGES": 1, "KWG": 64}, {"SUBGROUPS_M": 1, "KWG": 128, "SLICES": 2},
          {"MWG": 96, "NWG": 48, "SUBGROUPS_M": 1, "SUBGROUPS_N": 1, "GROUP_M": 1},
          {"NWG": 64, "SUBGROUPS_M": 1, "SUBGROUPS_N": 2, "KWG": 32})
      for sizes in ((70, 66, 90), (5, 70, 0), (1, 1, 1), (96, 64, 64))),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("architecture", "kind", "sizes", "changes", "options"), ON_AMD)
def test_units_of_amd(emulated, architecture, kind, sizes, changes, options):
    config = config_for(architecture, **changes)
    dtype, precision = kind
    check_gemm(emulated, sizes, dtype, precision=precision, config=config, **options)


@pytest.mark.parametrize(
    ("architecture", "precision", "k", "config"),
    [
        *(("sm_90", precision, 40, CONFIG) for precision in FLOAT32),
        ("sm_90", "TF32_TF32_F32_X3", 70, replace(SLICED, SLICES=2, STAGES=3)),
        ("sm_90", "TF32_TF32_F32_X3", 170, SHARED),
        *((name, f"BF16_BF16_F32_X{terms}", 40, config_for(name))
          for name in AMD for terms in "39"),
        *(("sm_90a", precision, 48, replace(WGMMA, PROMOTE=1)) for precision in FLOAT32),
    ],
)  # fmt: skip
def test_infinities_and_nan(request, queue, rng, architecture, precision, k, config):
    emulation = {"sm_90": "units", "sm_90a": "warpgroups"}.get(architecture, "emulated")
    request.getfixturevalue(emulation)
    a, b = draw_with_infinities(rng, 33, k, 37)
    if architecture != "sm_90a":  # whose boxes copy elements as they lie
        a[4, 2] = np.uint32(0x7F800001).view(np.float32)  # a NaN by bits that no part keeps
    assert_close(product(queue, a, b, precision, config), expected_gemm(a, b, precision=precision))


# ------------------------------------------------------------------ without a device

CUBE, CROOKED = (32, 32, 32), (63, 61, 65)


@pytest.mark.parametrize(
    ("config", "traits", "kind", "sizes", "layout", "packed"),
    [
        # Rows of 16 bytes are copied where they lie, but for conjugates and split terms.
        (CONFIG, H100, HALF, CUBE, "NN", ""),
        (CONFIG, H100, HALF, (28, 32, 32), "NN", ""),  # no row of A or B is that long
        (CONFIG, H100, HALF, (32, 32, 12), "NN", "a"),
        (CONFIG, H100, HALF, (32, 28, 32), "NN", "b"),
        (CONFIG, H100, HALF, (28, 32, 32), "TN", "a"),
        (CONFIG, H100, HALF, (32, 32, 28), "NT", "ab"),
        (CONFIG, H100, FAST, CUBE, "TN", ""),
        (CONFIG, H100, FAST, (32, 32, 30), "NN", "a"),
        (CONFIG, H100, IN_PARTS, CUBE, "NT", "ab"),
        (CONFIG, H100, ("float32", "BF16_BF16_F32"), CUBE, "NT", "ab"),
        (CONFIG, H100, DOUBLE, (32, 32, 30), "NN", ""),
        (CONFIG, H100, COMPLEX, (31, 33, 29), "TN", ""),
        (CONFIG, H100, COMPLEX, CUBE, "CN", "a"),
        # Whatever its alignment, and for AMD's what lies along k.
        (IN_PLACE, H100, HALF, CROOKED, "NN", ""),
        (IN_PLACE, RDNA3, HALF, CROOKED, "NN", "b"),
        (AMD_CONFIG, RDNA3, HALF, CUBE, "NN", "b"),
        (AMD_CONFIG, RDNA3, HALF, CUBE, "NT", ""),
        (AMD_CONFIG, RDNA3, HALF, CUBE, "TN", "ab"),
        (AMD_CONFIG, RDNA3, ("float32", "BF16_BF16_F32"), CUBE, "NT", "ab"),
    ],
)
def test_what_is_packed(config, traits, kind, sizes, layout, packed):
    (dtype, precision), (trans_a, trans_b) = kind, layout
    product = product_of(*sizes, dtype, precision=precision, trans_a=trans_a, trans_b=trans_b)
    workspaces = make_schedule(product, config, traits).workspaces
    assert list(workspaces) == [f"packed_{operand}" for operand in packed]


@pytest.mark.parametrize(
    ("options", "stored", "matrices"),
    [
        ({"dtype": "float16"}, "uint4", ("out",)),
        ({"dtype": "float16", "reads_c": True}, "uint4", ("c", "out")),
        # Rows begin at 8, 4 and 2 bytes.
        ({"dtype": "float16", "n": 36}, "uint2", ("out",)),
        ({"dtype": "float16", "n": 38, "reads_c": True}, "uint", ("c", "out")),
        ({"dtype": "float16", "n": 37}, "ushort", ("out",)),
        ({"dtype": "int8", "n": 36}, "uint4", ("out",)),
        ({"precision": "BF16_BF16_F32_X3"}, "uint4", ("out",)),
        ({"dtype": "float64"}, "", ()),  # two neighbours are 16 bytes
        ({"dtype": "float64", "n": 37}, "uint2", ("out",)),
    ],
)
def test_results_are_stored_in_the_largest_vectors_that_rows_allow(options, stored, matrices):
    product = product_of(**{"m": 64, "n": 64, "k": 64, **options})
    *_, source = kernel_sources(product, DEEP, H100)
    there = re.findall(r"\*there = \(.*global \w+ \*\)(\w+) \+", source.text)
    assert tuple(there) == matrices
    assert set(re.findall(r"\*\(__global (\w+) \*\)there = ", source.text)) == {stored} - {""}


def test_results_that_slabs_leave_no_room_for_are_stored_directly():
    problem = GemmShape(128, 128, 128).problem("float16")
    config = MatrixConfig(MWG=128, NWG=128, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2, STAGES=2)
    crowded = replace(config, KWG=16, SUBGROUPS_M=8, SUBGROUPS_N=1)
    text, direct = (family_of(one).source(problem, one, H100).text for one in (config, crowded))
    # The barriers of the emulation's last multiplication would hide that this one is missing.
    assert re.search(r"\n    barrier\(CLK_LOCAL_MEM_FENCE\);\n    __local \w+ \*collected", text)
    assert "collected" not in direct


@pytest.mark.parametrize("name", FLOAT32)
def test_the_documented_error_is_the_bound_of_the_tests(name):
    from tests.support.reference import _PARTS

    precision = resolve_precision(name, "float32")
    assert (precision.terms, precision.product_error) == pytest.approx(_PARTS[name])


@pytest.mark.parametrize(("b", "kind"), [("N", "v2"), ("T", "v4")])
def test_few_rows_load_b_by_vectors_and_pass_local_memory_by(b, kind):
    """Of 4 columns of 2 bytes, or of 8 depths."""
    config = replace(GEMV_UNIT, STREAMB=1)
    shapes = (GemmShape(8, size, size, f"N{b}") for size in (512, 511))
    source = family_of(config).source
    even, odd = (source(shape.problem("float16"), config, H100).text for shape in shapes)
    assert even.count("load_streamed(b") == 1
    assert "b_local" not in even and "barrier" not in even[: even.index("work-items along k")]
    assert f"L2::128B.{kind}.u32" in even
    assert "load_streamed" not in odd
