"""Estimated ceilings follow compute units, are near data sheets, and have every unit's."""

from dataclasses import asdict, replace

import pytest

from pyclgemm.analysis.ceilings import peak_of
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.precision import resolve_precision
from tests.support.facts import cpu, gpu


def figures(ceilings):
    """All figures of ceilings by name, but for those of launches."""
    found = {}
    for name, value in asdict(ceilings).items():
        if isinstance(value, dict):
            found |= {f"{name} {key}": figure for key, figure in value.items()}
        elif name not in ("launch_seconds", "date") and value is not None:
            found[name] = value
    return found


@pytest.mark.parametrize(
    ("architecture", "name", "sheet"),
    [
        # V100, Titan RTX, A100, RTX 3090 Ti, RTX 4090, H100 SXM, RTX 5090.
        ("sm_70", "arithmetic float32", 15.7e3), ("sm_70", "global_memory", 900),
        ("sm_70", "units matrix float16", 125e3), ("sm_75", "arithmetic float32", 16.3e3),
        ("sm_80", "arithmetic float32", 19.5e3), ("sm_80", "arithmetic float64", 9.7e3),
        ("sm_80", "units matrix float16", 312e3), ("sm_80", "units matrix tf32", 156e3),
        ("sm_80", "units matrix int8", 624e3), ("sm_80", "units matrix float64", 19.5e3),
        ("sm_80", "global_memory", 1555),
        ("sm_86", "arithmetic float32", 40e3), ("sm_86", "global_memory", 1008),
        ("sm_86", "units matrix float16", 160e3), ("sm_86", "arithmetic float64", 625),
        ("sm_89", "arithmetic float32", 82.6e3), ("sm_89", "global_memory", 1008),
        ("sm_90", "arithmetic float32", 66.9e3), ("sm_90", "arithmetic float64", 33.5e3),
        ("sm_90", "units wgmma float16", 989e3), ("sm_90", "units wgmma int8", 1979e3),
        ("sm_90", "global_memory", 3350), ("sm_120", "arithmetic float32", 104.8e3),
        ("sm_120", "global_memory", 1792),
        # MI100, a half of an MI250X, MI300X; RX 5500 XT, RX 6900 XT, RX 7900 XTX, RX 9070 XT.
        ("gfx908", "arithmetic float32", 23.1e3), ("gfx908", "units matrix float16", 184.6e3),
        ("gfx90a", "arithmetic float64", 23.9e3), ("gfx90a", "global_memory", 1638),
        ("gfx942", "arithmetic float32", 163.4e3), ("gfx942", "units matrix float16", 1307e3),
        ("gfx942", "global_memory", 5300), ("gfx1012", "arithmetic float32", 5.2e3),
        ("gfx1012", "global_memory", 224), ("gfx1030", "arithmetic float32", 23e3),
        ("gfx1030", "global_memory", 512), ("gfx1100", "units matrix float16", 122.8e3),
        ("gfx1100", "global_memory", 960), ("gfx1201", "units matrix float16", 195e3),
        ("gfx1201", "global_memory", 640),
        # M2 Max, and 96 of the 512 vector engines of an Arc A770.
        ("apple_gpu", "arithmetic float32", 13.6e3), ("apple_gpu", "global_memory", 400),
        ("intel_gpu", "arithmetic float32", 19.7e3 * 96 / 512),
    ],
)  # fmt: skip
def test_estimates_are_near_data_sheets(architecture, name, sheet):
    # Sheets state boost clocks, which few devices hold, and the largest board's memory.
    estimate = figures(typical_ceilings(typical_traits(architecture)))[name]
    assert 0.6 < estimate / sheet < 1.3


@pytest.mark.parametrize("traits", [gpu(), gpu(vendor="x", architecture=""), cpu()])
def test_twice_the_compute_units_do_twice_as_much(traits):
    one = figures(typical_ceilings(traits))
    two = figures(typical_ceilings(replace(traits, compute_units=2 * traits.compute_units)))
    assert two == pytest.approx({name: 2 * value for name, value in one.items()})


@pytest.mark.parametrize("kind", ["gpu", "cpu", "accelerator"])
@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel", "apple", "arm", "qualcomm", "z", ""])
@pytest.mark.parametrize("architecture", ["", "sm_999", "gfx9999", "riscv"])
def test_a_device_that_nobody_knows_has_sane_ceilings(kind, vendor, architecture):
    traits = gpu(type=kind, vendor=vendor, architecture=architecture, compute_units=10)
    ceilings = typical_ceilings(traits)
    assert all(value > 0 for value in figures(ceilings).values())
    assert 50 < ceilings.arithmetic["float32"] < 20e3
    assert 10 <= ceilings.global_memory <= 500
    assert 1 < ceilings.arithmetic["float32"] / ceilings.global_memory < 1000
    assert ceilings.arithmetic["float64"] <= ceilings.arithmetic["float32"]
    assert (ceilings.cache is None) == (ceilings.local_memory is None) == (kind == "cpu")
    assert 1e-6 <= ceilings.launch_seconds <= 1e-4
    assert ceilings.date == ""


def test_an_estimate_is_of_units_clock_and_multiply_adds():
    found = typical_ceilings(typical_traits("sm_90")).arithmetic["float32"]
    assert found == pytest.approx(132 * 1.6 * 128 * 2)


def test_a_device_without_double_has_no_ceiling_of_it():
    assert "float64" not in typical_ceilings(gpu(float64=False)).arithmetic


@pytest.mark.parametrize("architecture", ["sm_70", "sm_80", "sm_90", "gfx908", "gfx942", "gfx1100"])
@pytest.mark.parametrize(
    "types",
    ["F16_F16_F32 float16", "BF16_BF16_F32 bfloat16", "TF32_TF32_F32 float32",
     "BF16_BF16_F32_X6 float32", "I8_I8_I32 int8", "F64_F64_F64 float64"],
)  # fmt: skip
def test_every_unit_that_kernels_use_has_a_ceiling(architecture, types):
    traits, precision = typical_traits(architecture), resolve_precision(*types.split())
    ceilings = typical_ceilings(traits)
    if matrix_unit(precision, traits) is not None:
        assert peak_of(ceilings, "matrix", precision)
        # A unit is worth its name.
        real = ceilings.arithmetic[precision.arithmetic]
        assert precision.terms * peak_of(ceilings, "matrix", precision).gflops >= real
