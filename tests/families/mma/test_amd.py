"""Products by AMD's matrix units, with the instructions emulated; and which lane holds what."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import MatrixUnit, matrix_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import generate_gemm, make_schedule, violations
from pyclgemm.problem.precision import PRECISIONS
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.select import select
from pyclgemm.tuning.search import search_space
from tests.support.checks import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.emulation.matrix import emulated_units, skip_without_emulation
from tests.support.reference import assert_close, expected_gemm

ARCHITECTURES = ("gfx1100", "gfx1200", "gfx90a", "gfx942")
CONFIG = MatrixConfig(MWG=32, NWG=32, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2, GROUP_M=2)

#: Every unit of every architecture, by precision; parts are multiplied like the elements.
UNITS = [
    (architecture, precision.operand, precision.name)
    for architecture in ARCHITECTURES
    for precision in PRECISIONS
    if matrix_unit(precision, typical_traits(architecture)) and precision.terms == 1
]


def unit_of(architecture: str, dtype: str, name: str) -> MatrixUnit:
    """The unit of an architecture."""
    [precision] = [one for one in PRECISIONS if (one.operand, one.name) == (dtype, name)]
    unit = matrix_unit(precision, typical_traits(architecture))
    assert unit
    return unit


@pytest.fixture(autouse=True)
def emulating(request):
    """Tests on a device run where the emulation compiles in well under a second."""
    if "queue" in request.fixturenames:
        skip_without_emulation(request.getfixturevalue("queue").device)


def config_for(architecture: str, **changes: int) -> MatrixConfig:
    """A small configuration; sub-groups of 64 are one where those of 32 are two."""
    wide = architecture.startswith("gfx9")
    return replace(CONFIG, **({"SUBGROUPS_M": 1} if wide else {}) | changes)


@pytest.mark.parametrize(("architecture", "dtype", "precision"), UNITS)
def test_every_unit(queue, architecture, dtype, precision):
    """Odd sizes, an addend, a bias and an activation where the type has one."""
    activation = None if dtype == "int8" else "gelu"
    factors: dict[str, Any] = (
        {"alpha": 3, "beta": -2} if dtype == "int8" else {"alpha": 0.5, "beta": -1.5}
    )
    depth = 64 if dtype == "int8" else 32  # as many instructions at once as fill a vector
    with emulated_units(architecture):
        check_gemm(
            queue, (45, 39, 53), dtype, c=ROW, bias=True, activation=activation,
            precision=precision, config=config_for(architecture, KWG=depth), **factors,
        )  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["BF16_BF16_F32_X3", "BF16_BF16_F32_X9"])
def test_parts(queue, architecture, precision, rng):
    a = rng.uniform(-1, 1, (33, 40)).astype(np.float32)
    b = rng.uniform(-1, 1, (40, 37)).astype(np.float32)
    a[0, 3], a[1, 5], a[2, 7], a[3, 0], a[3, 1] = np.inf, -np.inf, np.nan, np.inf, -np.inf
    with emulated_units(architecture):
        got = pyclgemm.gemm(
            queue, *(cl_array.to_device(queue, x) for x in (a, b)),
            precision=precision, config=config_for(architecture),
        ).get()  # fmt: skip
    assert_close(got, expected_gemm(a, b, precision=precision))


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        (ROW_ALIGNED, COLUMN_ALIGNED, ROW_ALIGNED),  # both lie as the units take them
        (COLUMN_ALIGNED, ROW_ALIGNED, COLUMN_ALIGNED),
        (COLUMN, STRIDED, STRIDED),
    ],
)
@pytest.mark.parametrize("architecture", ["gfx1200", "gfx90a"])
def test_layouts(queue, architecture, a, b, out):
    with emulated_units(architecture):
        check_gemm(
            queue, (45, 39, 53), "float16", a=a, b=b, out=out, config=config_for(architecture)
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"STAGES": 1, "KWG": 64},
        {"MWG": 96, "NWG": 48, "SUBGROUPS_M": 1, "SUBGROUPS_N": 1, "GROUP_M": 1},
        {"NWG": 64, "SUBGROUPS_M": 1, "SUBGROUPS_N": 2, "KWG": 32},
        {"SUBGROUPS_M": 1, "KWG": 128, "SLICES": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("architecture", ["gfx1100", "gfx942"])
def test_tiles(queue, architecture, changes):
    with emulated_units(architecture):
        for sizes in ((70, 66, 90), (5, 70, 0), (1, 1, 1), (96, 64, 64)):
            config = config_for(architecture, **changes)
            check_gemm(queue, sizes, "float16", a=ROW_ALIGNED, b=COLUMN_ALIGNED, config=config)


# -------------------------------------------------------------------------- without a device


def evaluated(expression: str, lane: int) -> int:
    """An expression of C in `lane`."""
    return int(eval(expression.replace("/", "//"), {"lane": lane})) if expression else 0


@pytest.mark.parametrize(
    ("architecture", "dtype", "precision"),
    [*UNITS, *(("sm_90", one.operand, one.name) for one in PRECISIONS if one.terms == 1
               and matrix_unit(one, typical_traits("sm_90")))],
)  # fmt: skip
def test_every_element_has_its_lane(architecture, dtype, precision):
    unit = unit_of(architecture, dtype, precision)
    operands, result = unit.held, unit.result
    copies = 2 if architecture == "gfx1100" else 1
    for extent in (unit.m, unit.n):
        held = Counter(
            (
                evaluated(operands.position, lane) + operands.positions * group,
                (evaluated(operands.run_index, lane) * operands.run + one) + operands.depths * deep,
            )
            for lane in range(unit.lanes)
            for group in range(extent // operands.positions)
            for deep in range(unit.depth_groups)
            for one in range(operands.run)
        )
        assert set(held.values()) == {copies}
        assert len(held) == extent * unit.k
        assert max(held) == (extent - 1, unit.k - 1)
    written = Counter(
        (
            evaluated(result.row, lane) + result.row_step * group,
            evaluated(result.column, lane) + result.column_step * group + one,
        )
        for lane in range(unit.lanes)
        for group in range(result.groups)
        for one in range(result.width)
    )
    assert set(written.values()) == {1}
    assert len(written) == unit.m * unit.n
    assert max(written) == (unit.m - 1, unit.n - 1)


@pytest.mark.parametrize(("architecture", "dtype", "precision"), UNITS)
def test_the_text_has_the_builtin_and_no_ptx(architecture, dtype, precision):
    problem = GemmShape(64, 64, 64).problem(dtype, precision)
    text = generate_gemm(problem, config_for(architecture), typical_traits(architecture)).text
    builtin = unit_of(architecture, dtype, precision).instruction.split("(")[0]
    assert text.count(builtin) == 1
    assert "asm" not in text
    assert "leading(" not in text  # elements were split as they were packed


@pytest.mark.parametrize(
    ("dtype", "layout", "packed"),
    [
        ("float16", "NN", ["packed_b"]),
        ("float16", "NT", []),
        ("float16", "TN", ["packed_a", "packed_b"]),
        ("float32", "NT", ["packed_a", "packed_b"]),  # in parts
    ],
)
def test_what_does_not_lie_along_k_is_packed(dtype, layout, packed):
    precision = {"float16": "F16_F16_F32", "float32": "BF16_BF16_F32"}[dtype]
    product = GemmShape(64, 64, 64, layout).product(dtype, precision)
    schedule = make_schedule(product, CONFIG, typical_traits("gfx1100"))
    assert list(schedule.workspaces) == packed


def test_mesas_runtimes_have_no_builtins():
    [half] = [one for one in PRECISIONS if one.name == "F16_F16_F32"]
    traits = typical_traits("gfx1100")
    assert matrix_unit(half, traits)
    for platform in ("rusticl", "Clover"):
        assert matrix_unit(half, replace(traits, platform=platform)) is None


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_search_space_fits_the_lanes(architecture):
    traits = typical_traits(architecture)
    space = search_space("matrix", "float16", traits)
    assert space.axes["STAGES"] == (1, 2)
    point = {
        "MWG": 128, "NWG": 128, "KWG": 32, "SUBGROUPS_M": 4, "SUBGROUPS_N": 2, "STAGES": 1,
        "GROUP_M": 8, "FRAGMENTS": 1,
    }  # fmt: skip
    fits = traits.max_work_group_size >= 8 * (64 if architecture.startswith("gfx9") else 32)
    assert (space.config(point) is not None) == fits
    assert violations(replace(CONFIG, STAGES=3), "float16", traits)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_the_databases_choose(architecture):
    """float16 takes units; float32 stays what it is; float64 waits until units were compared."""
    traits, database = typical_traits(architecture), load_database()

    def path(dtype: str, size: int = 1024) -> str:
        problem = GemmShape(size, size, size).problem(dtype)
        return select(problem, traits, database).path

    assert path("float16") == "matrix"
    assert path("float16", 8) == "direct"
    assert path("float32") == path("float64") == "indirect"
