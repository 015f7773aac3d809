"""Which matrix unit a device has, and what other small facts of code generation are."""

import pytest

from pyclgemm.codegen.config import is_staged_as_stored
from pyclgemm.codegen.kernel import approximation
from pyclgemm.codegen.matrix_units import elements_wanted, nvidia_double_unit, unit_multiplying
from pyclgemm.codegen.pack import PackedForm
from pyclgemm.codegen.source import Argument, moved_matrices
from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.precision import resolve_precision

_MMA = "mma.sync.aligned"


@pytest.mark.parametrize(
    ("architecture", "multiplied", "sums", "instruction", "lanes"),
    [
        ("sm_90", "int8", "int32", f"{_MMA}.m16n8k32.row.col.s32.s8.s8.s32", 32),
        ("sm_80", "float64", "float64", f"{_MMA}.m8n8k4.row.col.f64.f64.f64.f64", 32),
        ("sm_90", "float64", "float64", f"{_MMA}.m16n8k4.row.col.f64.f64.f64.f64", 32),
        ("gfx90a", "float64", "float64", "__builtin_amdgcn_mfma_f64_16x16x4f64", 64),
        ("gfx1100", "int8", "int32", "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32", 32),
        ("gfx1200", "float16", "float32", "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12", 32),
    ],
)
def test_the_unit_of_an_architecture(architecture, multiplied, sums, instruction, lanes):
    unit = unit_multiplying(multiplied, sums, typical_traits(architecture))
    assert (unit.instruction.partition("(")[0], unit.lanes) == (instruction, lanes)


@pytest.mark.parametrize(
    ("architecture", "multiplied", "sums"),
    [("gfx1100", "float64", "float64"), ("sm_70", "float16", "float32")],
)
def test_no_unit(architecture, multiplied, sums):
    assert unit_multiplying(multiplied, sums, typical_traits(architecture)) is None


def test_units_for_float64_by_their_sizes():
    assert nvidia_double_unit(16, 8).instruction == f"{_MMA}.m16n8k8.row.col.f64.f64.f64.f64"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (
            elements_wanted("complex128", resolve_precision("F64_F64_F64", "float64")),
            "F64_F64_F64 of complex elements",
        ),
        (approximation("silu", 2), (-1.44269504,)),
        ((is_staged_as_stored("float32"), is_staged_as_stored("bfloat16")), (True, False)),
        (PackedForm(along_k=True).layout("b").order, "column"),
        (
            moved_matrices(
                [Argument("a_batch_stride", "long"), Argument("b_offsets", "input", "long")]
            ),
            [("a", False), ("b", True)],
        ),
    ],
    ids=["elements", "activation", "staged", "packed", "batch"],
)
def test_small_facts(value, wanted):
    assert value == wanted
