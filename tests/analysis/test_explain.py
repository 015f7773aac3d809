"""What is said of matrix units and of packing, for products and devices that are described."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from pyclgemm.analysis.report import describe_packing, describe_unit
from pyclgemm.cli.main import main
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.tiled.config import XgemmConfig
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.problem import MatrixLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources

H100, V100 = typical_traits("sm_90"), typical_traits("sm_70")
MATRIX = MatrixConfig(MWG=32, NWG=32, KWG=16, SUBGROUPS_M=2, SUBGROUPS_N=1)
INDIRECT = XgemmConfig(
    MWG=32, NWG=32, KWG=16, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=4, VWN=4
)
WGMMA = WgmmaConfig(MWG=128, NWG=128)
GEMV = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=4)
CPU = CpuConfig(MR=6, NR=64, KC=512, VW=16)


@pytest.mark.parametrize(
    ("dtype", "precision", "config", "traits", "said"),
    [
        ("float16", None, MATRIX, H100, ["m16n8k16", "16 x 8 x 16 of float16"]),
        ("float32", "TF32_TF32_F32_X3", MATRIX, H100, ["tf32", "3 products of parts"]),
        ("float16", None, WGMMA, H100, ["wgmma.mma_async", "64 x 128 x 16 of float16"]),
        ("float16", None, GEMV, H100, ["not used on the gemv path", "m16n8k16"]),
        ("float16", None, GEMV, V100, ["none", "F16_F16_F32"]),
        ("float32", None, INDIRECT, H100, ["none", "F32_F32_F32"]),
        ("complex64", None, INDIRECT, H100, ["none", "F32_F32_F32"]),
        ("complex128", None, MATRIX, H100, ["m16n8k4", "16 x 8 x 4 of float64"]),
    ],
)
def test_the_unit_or_the_reason(dtype, precision, config, traits, said):
    problem = GemmShape(64, 64, 64).problem(dtype, precision)
    text = describe_unit(problem, config, traits)
    for part in said:
        assert part in text


@pytest.mark.parametrize(
    ("shape", "dtype", "config", "said"),
    [
        ("64x64x64", "float16", MATRIX, "nothing"),
        ("64x64x60", "float16", MATRIX, "a (its rows are multiples of 8 bytes apart"),
        ("64x63x64:NT", "float16", MATRIX, "nothing"),
        ("64x63x64", "float16", MATRIX, "b (its rows are multiples of 2 bytes apart"),
        ("64x64x64", "float32", INDIRECT, "a (m is not contiguous in it)"),
        ("66x64x64:TN", "float32", INDIRECT, "a (m = 66 is no multiple of MWG = 32)"),
        ("64x64x66:TN", "float32", INDIRECT, "a (k = 66 is no multiple of KWG = 16), b"),
        ("64x64x64:TN", "float32", INDIRECT, "nothing"),
        ("64x64x64", "float32", GEMV, "nothing"),
        ("64x64x64", "float32", CPU, "panels of both"),
    ],
)
def test_what_is_packed_and_why(shape, dtype, config, said):
    product = GemmShape.parse(shape).product(dtype)
    kernels = [kernel.name for kernel in kernel_sources(product, config, H100)]
    text = describe_packing(product.problem, config, kernels)
    assert text.startswith(said)
    # It says so of every operand that is, and of no other.
    for name in "ab":
        assert (f"pack_{name}" in kernels) == (f"{name} (" in text)


def test_strided_operands_are_told_apart():
    problem = replace(GemmShape(64, 64, 64).problem(), a=MatrixLayout("strided"))
    for config in (MATRIX, INDIRECT):
        text = describe_packing(problem, config, ["pack_a", "gemm"])
        assert text == "a (neither its rows nor its columns are contiguous)"


def test_explain_shows_both():
    arguments = ["explain", "64x64x64", "--dtype", "float16", "--architecture", "sm_70"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert lines["unit"].startswith("none") and lines["packed"]
    wide = [*arguments, "--result-dtype", "float32"]
    assert "float16 -> float32" in CliRunner().invoke(main, wide).output
    wrong = CliRunner().invoke(main, [*arguments, "--result-dtype", "float64"])
    assert wrong.exit_code == 2
    assert "the result of float16 operands is float16 or float32" in wrong.output


def test_a_refusal_of_the_warpgroup_units_is_told_beside_what_takes_their_place():
    refused = replace(H100, wgmma=False, wgmma_refusal="the driver said no")
    problem = GemmShape(64, 64, 64).problem("float16")
    told = describe_unit(problem, MATRIX, refused)
    assert told.startswith("mma.sync")
    assert told.endswith("(not wgmma: the driver said no)")
