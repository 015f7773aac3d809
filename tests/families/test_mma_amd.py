"""Products by AMD's matrix units, with the instructions emulated; and which lane holds what."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import generate_gemm, make_schedule
from pyclgemm.problem.precision import PRECISIONS
from pyclgemm.problem.shape import GemmShape
from tests.support.checks import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, check_gemm
from tests.support.emulation.matrix import emulated_units, skip_without_emulation
from tests.support.reference import assert_close, expected_gemm

ARCHITECTURES = ("gfx1100", "gfx1200", "gfx90a", "gfx942")
CONFIG = MatrixConfig(MWG=32, NWG=32, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2, GROUP_M=2)


def units_of(architecture):
    """By architecture and precision; parts are multiplied like the elements."""
    found = {
        (architecture, one.operand, one.name): matrix_unit(one, typical_traits(architecture))
        for one in PRECISIONS
        if one.terms == 1
    }
    return {key: unit for key, unit in found.items() if unit}


UNITS = {key: unit for name in ARCHITECTURES for key, unit in units_of(name).items()}
EVERY_UNIT = pytest.mark.parametrize(("architecture", "dtype", "precision"), UNITS)


def config_for(architecture, **changes):
    """A small configuration; sub-groups of 64 are one where those of 32 are two."""
    wide = architecture.startswith("gfx9")
    return replace(CONFIG, **({"SUBGROUPS_M": 1} if wide else {}) | changes)


@pytest.fixture
def emulated(queue, architecture):
    """An architecture's units, where the emulation compiles in well under a second."""
    skip_without_emulation(queue.device)
    with emulated_units(architecture):
        yield queue


@EVERY_UNIT
def test_every_unit(emulated, architecture, dtype, precision):
    """Odd sizes, an addend, a bias and an activation where the type has one."""
    is_int8 = dtype == "int8"
    check_gemm(
        emulated, (45, 39, 53), dtype, c=ROW, bias=True, activation=None if is_int8 else "gelu",
        alpha=3 if is_int8 else 0.5, beta=-2 if is_int8 else -1.5, precision=precision,
        # As many instructions at once as fill a vector.
        config=config_for(architecture, KWG=64 if is_int8 else 32),
    )  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["BF16_BF16_F32_X3", "BF16_BF16_F32_X9"])
def test_parts(emulated, architecture, precision, rng):
    a = rng.uniform(-1, 1, (33, 40)).astype(np.float32)
    b = rng.uniform(-1, 1, (40, 37)).astype(np.float32)
    a[0, 3], a[1, 5], a[2, 7], a[3, 0], a[3, 1] = np.inf, -np.inf, np.nan, np.inf, -np.inf
    operands = (cl_array.to_device(emulated, x) for x in (a, b))
    config = config_for(architecture)
    got = pyclgemm.gemm(emulated, *operands, precision=precision, config=config).get()
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
def test_layouts(emulated, architecture, a, b, out):
    config = config_for(architecture)
    check_gemm(emulated, (45, 39, 53), "float16", a=a, b=b, out=out, config=config)


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
def test_tiles(emulated, architecture, changes):
    config = config_for(architecture, **changes)
    for sizes in ((70, 66, 90), (5, 70, 0), (1, 1, 1), (96, 64, 64)):
        check_gemm(emulated, sizes, "float16", a=ROW_ALIGNED, b=COLUMN_ALIGNED, config=config)


# ------------------------------------------------------------------ without a device


def evaluated(expression, lane):
    """An expression of C in `lane`."""
    return int(eval(expression.replace("/", "//"), {"lane": lane})) if expression else 0


@pytest.mark.parametrize(("key", "unit"), [*UNITS.items(), *units_of("sm_90").items()])
def test_every_element_has_its_lane(key, unit):
    operands, result = unit.held, unit.result
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
        assert set(held.values()) == {2 if key[0] == "gfx1100" else 1}
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


@EVERY_UNIT
def test_the_text_has_the_builtin_and_no_ptx(architecture, dtype, precision):
    problem = GemmShape(64, 64, 64).problem(dtype, precision)
    text = generate_gemm(problem, config_for(architecture), typical_traits(architecture)).text
    builtin = UNITS[architecture, dtype, precision].instruction.split("(")[0]
    assert text.count(builtin) == 1
    assert "asm" not in text
    assert "leading(" not in text  # elements were split as they were packed


@pytest.mark.parametrize(
    ("precision", "layout", "packed"),
    [
        (("float16", "F16_F16_F32"), "NN", ["packed_b"]),
        (("float16", "F16_F16_F32"), "NT", []),
        (("float16", "F16_F16_F32"), "TN", ["packed_a", "packed_b"]),
        (("float32", "BF16_BF16_F32"), "NT", ["packed_a", "packed_b"]),  # in parts
    ],
)
def test_what_does_not_lie_along_k_is_packed(precision, layout, packed):
    product = GemmShape(64, 64, 64, layout).product(*precision)
    schedule = make_schedule(product, CONFIG, typical_traits("gfx1100"))
    assert list(schedule.workspaces) == packed
