"""Estimated ceilings against data sheets, and occupancy against tables and calculators."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given, strategies as st

from pyclgemm.analysis.ceilings import peak_of
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.ceilings import (
    estimate_occupancy,
    limits_of,
    resident_groups,
    typical_ceilings,
)
from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.precision import resolve_precision
from tests.support.facts import cpu, gpu


def figures(ceilings):
    """All figures of ceilings by name, without those of launches."""
    found = {}
    for name, value in asdict(ceilings).items():
        if isinstance(value, dict):
            found |= {f"{name} {key}".replace("arithmetic ", ""): value[key] for key in value}
        elif name not in ("launch_seconds", "date") and value is not None:
            found[name] = value
    return found


#: Figures of data sheets by architecture; an element type stands for its arithmetic.
SHEETS = {
    # V100, Titan RTX, A100, RTX 3090 Ti, RTX 4090, H100 SXM, RTX 5090.
    "sm_70": {"float32": 15.7e3, "global_memory": 900, "units matrix float16": 125e3},
    "sm_75": {"float32": 16.3e3},
    "sm_80": {"float32": 19.5e3, "float64": 9.7e3, "global_memory": 1555,
              "units matrix float16": 312e3, "units matrix tf32": 156e3,
              "units matrix int8": 624e3, "units matrix float64": 19.5e3},
    "sm_86": {"float32": 40e3, "float64": 625, "global_memory": 1008,
              "units matrix float16": 160e3},
    "sm_89": {"float32": 82.6e3, "global_memory": 1008},
    "sm_90": {"float32": 66.9e3, "float64": 33.5e3, "global_memory": 3350,
              "units wgmma float16": 989e3, "units wgmma int8": 1979e3},
    "sm_120": {"float32": 104.8e3, "global_memory": 1792},
    # MI100, a half of an MI250X, MI300X; RX 5500 XT, RX 6900 XT, RX 7900 XTX, RX 9070 XT.
    "gfx908": {"float32": 23.1e3, "units matrix float16": 184.6e3},
    "gfx90a": {"float64": 23.9e3, "global_memory": 1638},
    "gfx942": {"float32": 163.4e3, "global_memory": 5300, "units matrix float16": 1307e3},
    "gfx1012": {"float32": 5.2e3, "global_memory": 224},
    "gfx1030": {"float32": 23e3, "global_memory": 512},
    "gfx1100": {"global_memory": 960, "units matrix float16": 122.8e3},
    "gfx1201": {"global_memory": 640, "units matrix float16": 195e3},
    # M2 Max, and 96 of the 512 vector engines of an Arc A770.
    "apple_gpu": {"float32": 13.6e3, "global_memory": 400},
    "intel_gpu": {"float32": 19.7e3 * 96 / 512},
}  # fmt: skip


@pytest.mark.parametrize("architecture", SHEETS)
def test_estimates_are_near_data_sheets(architecture):
    # Sheets state boost clocks, which few devices hold, and the largest board's memory.
    estimates = figures(typical_ceilings(typical_traits(architecture)))
    for name, sheet in SHEETS[architecture].items():
        assert 0.6 < estimates[name] / sheet < 1.3, name


@pytest.mark.parametrize("traits", [gpu(), gpu(vendor="x", architecture=""), cpu()])
def test_twice_the_compute_units_do_twice_as_much(traits):
    one = figures(typical_ceilings(traits))
    two = figures(typical_ceilings(replace(traits, compute_units=2 * traits.compute_units)))
    assert two == pytest.approx({name: 2 * value for name, value in one.items()})
    # Compute units, clock, lanes and two operations. No double, no ceiling for it.
    h100 = typical_ceilings(replace(typical_traits("sm_90"), float64=False)).arithmetic
    assert h100["float32"] == pytest.approx(132 * 1.6 * 128 * 2)
    assert "float64" not in h100


@pytest.mark.parametrize("kind", ["gpu", "cpu", "accelerator"])
@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel", "apple", "arm", "qualcomm", "z", ""])
@pytest.mark.parametrize("architecture", ["", "sm_999", "gfx9999", "riscv"])
def test_an_unknown_device_has_sane_ceilings(kind, vendor, architecture):
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
        # A unit is faster than ordinary arithmetic.
        real = ceilings.arithmetic[precision.arithmetic]
        assert precision.terms * peak_of(ceilings, "matrix", precision).gflops >= real


# ------------------------------------------------------------------ occupancy


@pytest.mark.parametrize(
    ("architecture", "items", "local", "registers", "groups", "limit"),
    [
        # NVIDIA, "Compute Capabilities": work-items, work-groups and local memory of a unit.
        ("sm_75", 256, 0, 32, 4, ""), ("sm_80", 256, 0, 32, 8, ""), ("sm_86", 256, 0, 32, 6, ""),
        ("sm_89", 256, 0, 32, 6, ""), ("sm_90", 256, 0, 32, 8, "work-items"),
        ("sm_90", 1024, 0, 32, 2, ""), ("sm_75", 1024, 0, 32, 1, "work-items"),
        ("sm_70", 32, 0, 16, 32, ""), ("sm_75", 32, 0, 16, 16, ""), ("sm_86", 32, 0, 16, 16, ""),
        ("sm_89", 32, 0, 16, 24, ""), ("sm_90", 32, 0, 32, 32, "work-groups"),
        ("sm_70", 128, 48 * 1024, 32, 2, "local memory"), ("sm_75", 128, 32 * 1024, 32, 2, ""),
        # From 8.0 on the system takes 1 KB of each work-group.
        ("sm_70", 64, 8192, 32, 12, "local memory"), ("sm_80", 64, 8192, 32, 18, "local memory"),
        ("sm_80", 128, 40 * 1024, 32, 4, ""), ("sm_80", 128, 40 * 1024 + 1, 32, 3, ""),
        ("sm_86", 128, 48 * 1024, 32, 2, ""), ("sm_90", 128, 227 * 1024, 32, 1, "local memory"),
        # 65536 registers, allocated by 8 a work-item.
        ("sm_90", 256, 0, 64, 4, "registers"), ("sm_90", 256, 0, 65, 3, "registers"),
        ("sm_80", 128, 0, 128, 4, ""), ("sm_80", 128, 0, 168, 3, ""), ("sm_80", 128, 0, 169, 2, ""),
        ("sm_80", 256, 0, 255, 1, ""), ("sm_90", 256, 0, 128, 2, ""), ("sm_90", 256, 0, 129, 1, ""),
        # CUDA Occupancy Calculator.
        ("sm_90", 256, 33792, 221, 1, "registers"), ("sm_90", 128, 70000, 64, 3, "local memory"),
        ("sm_90", 256, 33792, 128, 2, "registers"),
        ("sm_80", 256, 40960, 64, 4, "registers"), ("sm_86", 256, 0, 40, 6, "registers"),
        # AMD, GCN and CDNA: four waves of 64 are a group; 256 or 512 registers of a lane.
        ("gfx906", 256, 0, 24, 10, ""), ("gfx906", 256, 0, 84, 3, ""),
        ("gfx906", 256, 0, 85, 2, ""),
        ("gfx906", 256, 0, 128, 2, "registers"), ("gfx908", 256, 0, 128, 2, ""),
        ("gfx908", 256, 0, 129, 1, ""), ("gfx90a", 256, 0, 128, 4, "registers"),
        ("gfx90a", 256, 0, 64, 8, ""), ("gfx942", 256, 0, 129, 3, ""),
        ("gfx906", 256, 32 * 1024, 24, 2, ""),
        # RDNA: eight waves of 32 on four SIMDs, with 16 (20 on RDNA 1) each. LLVM's report for
        # gfx1100 says 8 waves a SIMD with 170 registers, 16 with 94.
        ("gfx1012", 256, 0, 48, 10, ""), ("gfx1030", 256, 0, 64, 8, ""),
        ("gfx1030", 256, 0, 128, 4, "registers"), ("gfx1100", 256, 0, 96, 8, "registers"),
        ("gfx1100", 256, 0, 97, 6, ""), ("gfx1100", 256, 0, 170, 4, "registers"),
        ("gfx1102", 256, 0, 96, 5, ""), ("gfx1010", 256, 65536, 32, 2, "local memory"),
        # A work-group of one wave takes none of the limited number of barriers.
        ("gfx906", 64, 0, 24, 40, "registers"), ("gfx906", 128, 0, 24, 16, ""),
        ("gfx1030", 32, 0, 24, 64, ""), ("gfx1201", 256, 0, 192, 4, ""),
        ("gfx1100", 256, 32 * 1024, 64, 4, ""),
        # The driver would refuse these.
        ("sm_90", 1024, 0, 65, 0, ""), ("sm_90", 1024, 0, 255, 0, ""),
        ("gfx1030", 256, 200 * 1024, 64, 0, ""),
    ],
)  # fmt: skip
def test_resident_groups_agree_with_tables_and_calculators(
    architecture, items, local, registers, groups, limit
):
    traits = typical_traits(architecture)
    assert resident_groups(traits, items, local, registers) == max(1, groups)
    found = estimate_occupancy(traits, items, local, registers)
    assert found.groups == groups
    if groups:
        assert limit in found.limit
        width = 64 if architecture.startswith("gfx9") else 32
        assert found.sub_groups == groups * -(-items // width)
        assert found.share == found.sub_groups / found.most_sub_groups <= 1


@given(
    st.integers(1, 1024), st.integers(0, 100_000), st.integers(1, 255),
    st.tuples(*[st.integers(0, 3)] * 3),
)  # fmt: skip
def test_an_unknown_device_has_usual_limits(items, local, registers, more):
    traits = replace(typical_traits("arm_gpu"), vendor="other")
    assert limits_of(traits) is None
    groups = resident_groups(traits, items, local, registers)
    assert 1 <= groups <= 16
    larger = (items << more[0], local << more[1], registers << more[2])
    assert resident_groups(traits, *larger) <= groups


def test_an_unknown_occupancy_names_the_reason():
    found = estimate_occupancy(typical_traits("gfx1030"), 256, 40000, None)
    assert found.groups == 3
    assert "local memory; at most" in found.limit
    mali = replace(typical_traits("sm_90"), vendor="arm", architecture="", name="Mali-G710")
    cores = [(typical_traits(one), "does not apply") for one in ("x86-64-v4", "aarch64")]
    for traits, said in [*cores, (typical_traits("sm_140"), "sm_140"), (mali, "unknown")]:
        assert limits_of(traits) is None
        found = estimate_occupancy(traits, 64, 0, 32)
        assert (found.groups, found.share) == (None, None)
        assert said in found.limit
