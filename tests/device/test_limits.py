"""Work-groups that a compute unit holds at a time, against public tables and calculators."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.device.ceilings import estimate_occupancy, limits_of, resident_groups
from pyclgemm.device.traits import typical_traits


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
        # A work-group of one wave takes no barrier, of which there are so many.
        ("gfx906", 64, 0, 24, 40, "registers"), ("gfx906", 128, 0, 24, 16, ""),
        ("gfx1030", 32, 0, 24, 64, ""), ("gfx1201", 256, 0, 192, 4, ""),
        ("gfx1100", 256, 32 * 1024, 64, 4, ""),
        # What the driver would refuse.
        ("sm_90", 1024, 0, 65, 0, ""), ("sm_90", 1024, 0, 255, 0, ""),
        ("gfx1030", 256, 200 * 1024, 64, 0, ""),
    ],
)  # fmt: skip
def test_groups_as_tables_and_calculators_have_them(
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


figures = {
    "items": st.integers(1, 1024), "local": st.integers(0, 100_000),
    "registers": st.integers(1, 255),
}  # fmt: skip


@given(**figures, more=st.tuples(*[st.integers(0, 3)] * 3))
def test_a_device_that_is_not_known_has_usual_limits(items, local, registers, more):
    traits = replace(typical_traits("arm_gpu"), vendor="other")
    assert limits_of(traits) is None
    groups = resident_groups(traits, items, local, registers)
    assert 1 <= groups <= 16
    larger = (items << more[0], local << more[1], registers << more[2])
    assert resident_groups(traits, *larger) <= groups


def test_an_occupancy_that_is_not_known_is_said():
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
