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
from tests.support.buffers import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, Layout
from tests.support.cases import BATCHES, LAYOUTS, all_pairs
from tests.support.checks import check_gemm
from tests.support.configs import GEMV_UNIT, GEMV_UNIT_CONFIGS, WGMMA
from tests.support.emulation.matrix import emulated_units
from tests.support.facts import product_of
from tests.support.reference import assert_close, expected_gemm

CONFIG, FLOAT32, SPLIT = configs.MATRIX, configs.FLOAT32_PRECISIONS, configs.SPLIT_PRECISIONS
H100, RDNA3 = typical_traits("sm_90"), typical_traits("gfx1100")
SLICED = replace(CONFIG, KWG=64, SLICES=4, SUBGROUPS_M=1, STAGES=6)
SHARED = replace(CONFIG, FILL=3, STAGES=3)
IN_PLACE = replace(CONFIG, KWG=32, UNALIGNED=1)
PAST = replace(IN_PLACE, UNALIGNED=2)
DEEP = replace(CONFIG, KWG=32, STAGES=4)
# A row of a slab has more vectors than a group has work-items: of complex128, and of float64.
LONG_ROWS = replace(CONFIG, MWG=16, NWG=64, KWG=64, SUBGROUPS_M=1, SUBGROUPS_N=1, STAGES=2)
LONGER_ROWS = replace(LONG_ROWS, NWG=32, KWG=128)

#: Precisions by what is written of them below.
HALF, HALVES = ("float16", "F16_F16_F32"), ("float16", "F16_F16_F16")
BFLOAT, BYTES = ("bfloat16", "BF16_BF16_F32"), ("int8", "I8_I8_I32")
DOUBLE, COMPLEX = ("float64", "F64_F64_F64"), ("complex128", "F64_F64_F64")
FAST, IN_PARTS = ("float32", "TF32_TF32_F32"), ("float32", "TF32_TF32_F32_X3")
IN_BFLOATS = ("float32", "BF16_BF16_F32_X3")

ODD = (45, 39, 53)
GELU = {"c": ROW, "bias": True, "activation": "gelu", "alpha": 0.5, "beta": -1.5}
OFFSET = {"c": ROW, "bias": True, "alpha": 3, "beta": -2}

#: Stages, fragments, slices, tiles and depths, tiles that work-groups share, operands in place.
CONFIGS = [
    CONFIG, replace(CONFIG, STAGES=3), replace(CONFIG, KWG=32, FRAGMENTS=2), DEEP,
    replace(CONFIG, KWG=64, FRAGMENTS=2, STAGES=3), replace(CONFIG, FRAGMENTS=2),
    replace(CONFIG, MWG=64, NWG=64, SUBGROUPS_M=1, SUBGROUPS_N=2),
    replace(CONFIG, MWG=96, NWG=48, SUBGROUPS_M=1, SUBGROUPS_N=3, GROUP_M=1),
    SLICED, replace(SLICED, FRAGMENTS=2, SLICES=2), replace(SLICED, SLICES=2, STAGES=4),
    replace(SLICED, MWG=16, NWG=64, SUBGROUPS_N=2, SLICES=2),
    replace(SLICED, KWG=128, FRAGMENTS=2, SLICES=2), replace(SLICED, SLICES=2, STAGES=3),
    SHARED, replace(SHARED, KWG=32), replace(SHARED, KWG=32, FRAGMENTS=2),
    replace(SHARED, KWG=32, FRAGMENTS=2, FILL=1),
    replace(SHARED, STAGES=4, GROUP_M=1), replace(SHARED, UNALIGNED=1, STAGES=2),
    replace(SHARED, FILL=1, UNALIGNED=1, STAGES=1), IN_PLACE, replace(IN_PLACE, STAGES=1),
    replace(IN_PLACE, KWG=128, SLICES=2, SUBGROUPS_M=1), LONG_ROWS, LONGER_ROWS,
    replace(LONG_ROWS, UNALIGNED=1), replace(LONGER_ROWS, UNALIGNED=1, STAGES=1),
    replace(CONFIG, UNALIGNED=2), replace(DEEP, UNALIGNED=2),
    replace(DEEP, UNALIGNED=2, FRAGMENTS=2), replace(SHARED, KWG=32, UNALIGNED=2),
    replace(SLICED, UNALIGNED=2), replace(SLICED, KWG=32, STAGES=8, FRAGMENTS=2),
    replace(IN_PLACE, MWG=64, NWG=16, KWG=64, SUBGROUPS_M=2, STAGES=1),
]  # fmt: skip
KINDS = (HALF, HALVES, BFLOAT, BYTES, DOUBLE, COMPLEX, FAST, IN_PARTS, IN_BFLOATS)
OPTIONS_OF_KINDS = [
    *({"dtype": dtype, "precision": precision} for dtype, precision in KINDS),
    {"dtype": "float16", "precision": "F16_F16_F32", "result": "float32"},
]
#: Less and more than tiles and slabs, whole ones, and rows that end within a vector.
SIZES = [(1, 1, 1), (32, 32, 64), ODD, (70, 66, 150), (5, 70, 0), (45, 40, 77), (200, 36, 40)]
FEW_ROWS = [(8, 64, 128), (5, 70, 200), (19, 35, 33), (1, 1, 1), (300, 1, 20), (5, 7, 0)]
ALIGNMENTS = (*LAYOUTS, Layout(alignment=2), Layout(alignment=4), Layout(alignment=8))
PRODUCTS = [
    case for tiles, sizes in ((CONFIGS, SIZES), (GEMV_UNIT_CONFIGS.values(), FEW_ROWS))
    for case in all_pairs(
        H100, config=tiles, sizes=sizes, kind=OPTIONS_OF_KINDS, batch=BATCHES,
        a=ALIGNMENTS, b=ALIGNMENTS, out=ALIGNMENTS,
        pack=(False, PackedLayout("padded", 16, 32), PackedLayout("padded", 16, 1, along_k=True)),
    )
]  # fmt: skip


@pytest.mark.one_in(8)
@pytest.mark.first_runtime
@pytest.mark.parametrize("case", PRODUCTS)
def test_products(units, queue, case):
    # Counters of arrivals must be ready for the next call.
    for _ in range(2 if getattr(case["config"], "FILL", 0) else 1):
        check_gemm(queue, **case)


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


@pytest.mark.parametrize(
    ("emulation", "config"), [("units", CONFIG), ("warpgroups", replace(WGMMA, PROMOTE=0))]
)
def test_float32_is_rounded_to_the_nearest_tf32(request, queue, rng, emulation, config):
    """A single product of each element and one: no other error hides a bit that is lost."""
    request.getfixturevalue(emulation)
    one, column = np.ones((1, 1), np.float32), rng.uniform(0.5, 1, (64, 1)).astype(np.float32)
    for a, b in ((column, one), (one, column.T)):
        got = product(queue, a, b, "TF32_TF32_F32", config)
        np.testing.assert_allclose(got.ravel(), column.ravel(), rtol=2**-11)


@pytest.mark.first_runtime
@pytest.mark.parametrize("a", [ROW_ALIGNED, COLUMN_ALIGNED, Layout("column", alignment=4), COLUMN])
@pytest.mark.parametrize("b", [COLUMN, ROW_ALIGNED, Layout(alignment=4), ROW])
@pytest.mark.parametrize("tile", [
    {}, {"MWG": 64, "NWG": 16, "KWG": 64, "STAGES": 1},
    {"MWG": 96, "NWG": 48, "SUBGROUPS_M": 1, "SUBGROUPS_N": 3},
])  # fmt: skip
def test_bytes_that_are_transposed_in_place(units, queue, a, b, tile):
    config = replace(IN_PLACE, **tile)
    check_gemm(queue, config=config, sizes=(70, 66, 150), a=a, b=b, dtype="int8", c=ROW, beta=-2)


@pytest.mark.first_runtime
@pytest.mark.parametrize("kind", [DOUBLE, COMPLEX])
@pytest.mark.parametrize("options", [{}, {"a": COLUMN, "b": COLUMN, "out": COLUMN}])
@pytest.mark.parametrize("config", [GEMV_UNIT, replace(DEEP, FRAGMENTS=2)])
def test_the_unit_for_float64_of_earlier_devices(queue, kind, options, config):
    """Its fragments have 8 columns of B, of which a lane has one."""
    with emulated_units(queue.device, "sm_80"):
        check_gemm(
            queue, config=config, sizes=(19, 70, 45), dtype=kind[0], precision=kind[1],
            bias=True, alpha=3, **options,
        )  # fmt: skip


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
    with emulated_units(queue.device, architecture):
        yield queue


ON_AMD = [
    # Odd sizes, an addend, a bias; as many instructions at once as fill a vector.
    *((name, (dtype, precision), ODD, {"KWG": 64}, OFFSET) if dtype == "int8" else
      (name, (dtype, precision), ODD, {}, GELU) for name, dtype, precision in units_of(*AMD)),
    # Bytes are transposed on their way to local memory.
    *((name, BYTES, (70, 66, 90), {"KWG": 64, "UNALIGNED": 1}, {"a": COLUMN, "b": ROW_ALIGNED})
      for name in ("gfx1100", "gfx942")),
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
@pytest.mark.first_runtime
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
    # Near the beginning of k and beyond its middle.
    a, b = (rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((33, k), (k, 37)))
    a[0, 3], a[1, 5], a[2, 7] = np.inf, -np.inf, np.nan
    a[3, 0], a[3, 1] = np.inf, -np.inf
    b[k - 31, 4], b[3, 6], b[:, 8], b[5, 9] = np.inf, 0, 1.0, np.nan
    a[20, 2], b[2, 10] = 1e38, 1e-30
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
        # Bytes are transposed on the way, too; past the registers 4 bytes are the least.
        (IN_PLACE, H100, BYTES, CROOKED, "NN", ""),
        (IN_PLACE, RDNA3, BYTES, CROOKED, "TN", ""),
        (replace(IN_PLACE, UNALIGNED=0), H100, BYTES, CUBE, "TN", "ab"),
        (PAST, H100, HALF, (32, 30, 32), "NN", ""),
        (PAST, H100, HALF, (32, 29, 32), "NN", "b"),
        (PAST, H100, DOUBLE, CROOKED, "NN", ""),
        (PAST, H100, FAST, CROOKED, "NN", ""),
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


@pytest.mark.parametrize(("architecture", "way"), [("sm_90", "ca"), ("sm_80", "cg")])
def test_slabs_come_through_the_first_level_cache_where_that_was_measured(architecture, way):
    product = product_of(64, 64, 64, dtype="float16")
    *_, source = kernel_sources(product, CONFIG, typical_traits(architecture))
    assert set(re.findall(r"cp\.async\.(c.)\.", source.text)) == {way}


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


@pytest.mark.parametrize("config", GEMV_UNIT_CONFIGS.values())
@pytest.mark.parametrize("b", [ROW, COLUMN])
def test_columns_of_two_strips_are_stored_once(units, queue, b, config):
    # In place, a second store would add beta times the first result. Strips have 16 to 64 columns.
    options = {"dtype": "float16", "b": b, "in_place": True, "beta": 2.0}
    check_gemm(queue, (5, 72, 40), config=config, **options)


@pytest.mark.parametrize(("b", "kind"), [("N", "v2"), ("T", "v4")])
def test_few_rows_load_b_by_vectors_and_pass_local_memory_by(b, kind):
    """Of 4 columns of 2 bytes, or of 8 depths."""
    config = replace(GEMV_UNIT, STREAMB=1)
    shapes = (GemmShape(8, size, size, f"N{b}") for size in (512, 511))
    source = family_of(config).source
    even, odd = (source(shape.problem("float16"), config, H100).text for shape in shapes)
    # Across columns two depths are loaded for each register.
    assert even.count("load_streamed(b") == (2 if b == "N" else 1)
    assert "b_local" not in even and "barrier" not in even[: even.index("work-items along k")]
    assert f"L2::128B.{kind}.u32" in even
    assert "load_streamed" not in odd
