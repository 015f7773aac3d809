"""Occupancy, against figures of the makers' own calculators and compilers."""

import dataclasses

import pytest

from pyclgemm.analysis.occupancy import estimate_occupancy
from pyclgemm.device.traits import typical_traits


@pytest.mark.parametrize(
    ("architecture", "items", "local", "registers", "groups", "limit"),
    [
        # CUDA Occupancy Calculator.
        ("sm_90", 256, 0, 32, 8, "work-items"),
        ("sm_90", 256, 33792, 221, 1, "registers"),
        ("sm_90", 256, 0, 128, 2, "registers"),
        ("sm_90", 256, 0, 129, 1, "registers"),
        ("sm_90", 128, 70000, 64, 3, "local memory"),
        ("sm_90", 32, 0, 32, 32, "work-groups"),
        ("sm_80", 256, 40960, 64, 4, "registers"),
        ("sm_86", 256, 0, 40, 6, "registers"),
        ("sm_75", 1024, 0, 32, 1, "work-items"),
        ("sm_70", 256, 49152, 64, 2, "local memory"),
        # A block of 8 KiB is 8 KiB on Volta and takes 1 KiB more from Ampere on.
        ("sm_70", 64, 8192, 32, 12, "local memory"),
        ("sm_80", 64, 8192, 32, 18, "local memory"),
        ("sm_90", 1024, 0, 65, 0, "registers"),
        # LLVM's report for gfx1100 says 8 waves a SIMD with 170 registers, 16 with 94.
        ("gfx1100", 256, 0, 170, 4, "registers"),
        ("gfx1100", 256, 0, 94, 8, "registers"),
        ("gfx1030", 256, 0, 128, 4, "registers"),
        ("gfx1010", 256, 65536, 32, 2, "local memory"),
        ("gfx90a", 256, 0, 128, 4, "registers"),
        ("gfx906", 256, 0, 128, 2, "registers"),
        ("gfx906", 64, 0, 24, 40, "registers"),
    ],
)
def test_known_figures(architecture, items, local, registers, groups, limit):
    found = estimate_occupancy(typical_traits(architecture), items, local, registers)
    assert found.groups == groups
    if groups:
        assert limit in found.limit
        width = 64 if architecture.startswith("gfx9") else 32
        assert found.sub_groups == groups * -(-items // width)
        assert found.share == found.sub_groups / found.most_sub_groups <= 1


def test_without_registers_it_is_an_upper_bound_and_says_so():
    found = estimate_occupancy(typical_traits("gfx1030"), 256, 40000, None)
    assert found.groups == 3
    assert "local memory; at most" in found.limit


def test_what_is_not_known_is_said():
    cpu = estimate_occupancy(typical_traits("x86-64-v4"), 1, 0, None)
    assert (cpu.groups, cpu.share) == (None, None)
    assert "does not apply" in cpu.limit
    mali = dataclasses.replace(
        typical_traits("sm_90"), vendor="arm", architecture="", name="Mali-G710"
    )
    assert estimate_occupancy(mali, 64, 0, 32).limit.startswith("unknown")
    new = estimate_occupancy(typical_traits("sm_140"), 64, 0, 32)
    assert new.groups is None
    assert "sm_140" in new.limit
