"""What is chosen, searched and refused for the families of matrix units, by device and type."""

from dataclasses import replace

import numpy as np
import pytest

from pyclgemm import gemm
from pyclgemm.analysis.report import describe_unit
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.records import Record
from pyclgemm.selection.select import alternatives, select
from pyclgemm.tuning.search import families_for, search_space
from tests.support.configs import DIRECT, GEMV_UNIT, MATRIX, WGMMA
from tests.support.databases import FLOAT16, NVIDIA, SM_90, a_database, made_file
from tests.support.families import refusal

H100, GFX90A = typical_traits("sm_90"), typical_traits("gfx90a")
REFUSED = replace(H100, wgmma=False, wgmma_refusal="the driver said no")
SPLIT = ("TF32_TF32_F32_X3", "BF16_BF16_F32")
IN_PLACE = replace(MATRIX, KWG=32, UNALIGNED=1)
CUBE = GemmShape(64, 64, 64)

UNITS = ("matrix", "wgmma")
AMD = ("gfx1100", "gfx1200", "gfx90a", "gfx942")

# ------------------------------------------------------------------ what is chosen


@pytest.mark.parametrize("precision", ["BF16_BF16_F32", "TF32_TF32_F32", "BF16_BF16_F32_X9"])
def test_what_is_rounded_first_is_left_to_units(precision):
    problem = CUBE.problem("float32", precision)
    with pytest.raises(ConfigError, match="which only matrix units compute"):
        select(problem, H100, load_database(), DIRECT)
    assert select(problem, H100, load_database()).path in UNITS


def database_of(*configs, types=("float32", "TF32_TF32_F32"), device=NVIDIA):
    """A database with a record for each configuration, at growing sizes."""
    records = [Record(GemmShape(64 << i, 64, 64), config) for i, config in enumerate(configs)]
    return a_database(made_file(records, device, kind="measured", types=types))


@pytest.mark.parametrize("k", [64, 0])
def test_a_precision_of_units_takes_the_record_of_a_unit(k):
    problem = replace(CUBE.problem("float32", "TF32_TF32_F32"), k=k)
    choice = select(problem, H100, database_of(MATRIX))
    assert choice.path in ("matrix", "gemv_unit")
    assert k == 0 or choice.config == MATRIX


DEEPER = replace(WGMMA, STAGES=3)


@pytest.mark.parametrize(
    ("configs", "traits", "able"),
    [
        ((MATRIX, DIRECT), H100, (MATRIX, DIRECT)),
        ((MATRIX, DIRECT), typical_traits("sm_75"), (DIRECT,)),
        ((WGMMA, DEEPER, MATRIX), H100, (WGMMA, DEEPER, MATRIX)),
        ((WGMMA, DEEPER, MATRIX), REFUSED, (MATRIX,)),
    ],
)
def test_records_of_units_are_passed_over_where_there_is_none(configs, traits, able):
    device = SM_90 if WGMMA in configs else NVIDIA
    database = database_of(*configs, types=FLOAT16, device=device)
    offered = [one.config for one in alternatives(CUBE.problem("float16"), traits, database)]
    assert set(configs) & set(offered) == set(able)
    assert (offered[0] == configs[0]) == (configs[0] in able)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("config", "dtype", "precision", "traits", "message"),
    [
        (GEMV_UNIT, "float16", "F16_F16_F16", H100, ""),
        (GEMV_UNIT, "float32", "BF16_BF16_F32", H100, ""),
        (GEMV_UNIT, "float16", None, typical_traits("gfx1100"), ""),
        (GEMV_UNIT, "float16", None, typical_traits("sm_75"), ""),
        (WGMMA, "float16", "F16_F16_F16", H100, "no warpgroup unit for F16_F16_F16"),
        (WGMMA, "float16", None, typical_traits("sm_80"), "has none"),
        (WGMMA, "float16", None, REFUSED, "said no"),
        (MATRIX, "complex128", None, GFX90A, "no matrix unit for F64_F64_F64 of complex elements"),
    ],
)  # fmt: skip
def test_what_a_family_does_not_compute(config, dtype, precision, traits, message):
    problem = CUBE.problem(dtype, precision)
    with pytest.raises(ConfigError, match=message or None):
        select(problem, traits, Database(()), config)
    if config is GEMV_UNIT:
        assert "gemv_unit" not in families_for([problem], traits)


def test_units_that_take_no_complex_elements_say_so(queue):
    problem = CUBE.problem("complex128")
    assert "of complex elements" in describe_unit(problem, DIRECT, GFX90A)
    assert refusal(MATRIX, problem, H100) == ""
    (broken,) = violations(replace(MATRIX, UNALIGNED=1), "complex128", H100)
    assert "UNALIGNED" in broken
    assert not violations(WGMMA, "float16", H100)
    a = np.ones((4, 4), np.complex64)
    with pytest.raises(UnsupportedError, match="complex64 and precision is .*, which is for real"):
        gemm(queue, a, a, precision="TF32_TF32_F32")


def test_mesas_runtimes_have_no_builtins():
    half, traits = resolve_precision("F16_F16_F32", "float16"), typical_traits("gfx1100")
    assert matrix_unit(half, traits)
    for platform in ("rusticl", "Clover"):
        assert matrix_unit(half, replace(traits, platform=platform)) is None


# ------------------------------------------------------------------ what is searched


@pytest.mark.parametrize("precision", ["TF32_TF32_F32", *SPLIT])
def test_operands_that_are_split_are_not_searched_in_place(precision):
    problem = CUBE.problem("float32", precision)
    is_split = precision in SPLIT
    stated = f"UNALIGNED is 1; for {precision} operands are split"
    assert (stated in refusal(IN_PLACE, problem, H100)) == is_split
    axes = search_space("matrix", "float32", H100, problem.precision).axes
    assert axes["UNALIGNED"] == ((0,) if is_split else (0, 1, 2))


@pytest.mark.parametrize("architecture", AMD)
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
    config = MatrixConfig(MWG=32, NWG=32, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=3)
    assert violations(config, "float16", traits)
