"""Caps of registers: in the text and the options where compilers take them, refused elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

import pyclgemm
from pyclgemm.codegen.source import KernelSource
from pyclgemm.device.traits import has_register_caps
from pyclgemm.families.registry import make_schedule, violations
from pyclgemm.problem.shape import GemmShape
from tests.support.checks import check_gemm, skip_if_refused
from tests.support.configs import DIRECT, INDIRECT
from tests.support.facts import gpu

H100 = gpu(fence_options="-cl-std=CL3.0")
RADEON = gpu(vendor="amd", architecture="gfx1100", fence_options="-cl-std=CL2.0")
BOTH = pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)


def _gemm(config: Any, traits: Any) -> KernelSource:
    assert violations(config, "float32", traits) == []
    return make_schedule(GemmShape(33, 31, 9).product(), config, traits).launches[-1].source


def _body(source: KernelSource) -> str:
    """The text but for the line that names the configuration, and the kernel's attributes."""
    lines = source.text.splitlines()
    lines[1:2] = []
    text = "\n".join(line for line in lines if not line.startswith("__kernel"))
    assert "__attribute__((reqd" not in text
    assert "amdgpu" not in text
    return text


def _declaration(source: KernelSource) -> str:
    (line,) = [line for line in source.text.splitlines() if line.startswith("__kernel")]
    return line.partition(" void ")[0]


@BOTH
def test_nvidias_compiler_takes_an_option_instead_of_the_work_groups_size(config):
    free, capped = (_gemm(replace(config, REGISTERS=number), H100) for number in (0, 96))
    items = free.local_size[0]
    assert _declaration(free) == f"__kernel __attribute__((reqd_work_group_size({items}, 1, 1)))"
    assert _declaration(capped) == "__kernel"
    assert _body(capped) == _body(free)
    assert (free.options, capped.options) == ("", "-cl-nv-maxrregcount=96")
    assert capped.local_size == free.local_size


@BOTH
def test_amds_compiler_takes_an_attribute_beside_it(config):
    free, capped = (_gemm(replace(config, REGISTERS=number), RADEON) for number in (0, 96))
    assert _declaration(capped) == f"{_declaration(free)} __attribute__((amdgpu_num_vgpr(96)))"
    assert _body(capped) == _body(free)
    assert free.options == capped.options == ""


def test_the_cap_stands_beside_the_options_of_the_fence():
    both = replace(DIRECT, REGISTERS=128, FILL=2)
    assert _gemm(both, H100).options == "-cl-std=CL3.0 -cl-nv-maxrregcount=128"
    assert _gemm(both, replace(H100, fence_options="")).options == "-cl-nv-maxrregcount=128"
    assert _gemm(both, RADEON).options == "-cl-std=CL2.0"


@BOTH
def test_right_where_there_is_a_cap_and_refused_elsewhere(queue, traits, rng, config):
    skip_if_refused(queue, config)
    capped = replace(config, REGISTERS=32)
    if has_register_caps(traits):
        for sizes in [(33, 31, 9), (64, 64, 64)]:
            check_gemm(queue, sizes, config=capped)
    else:
        a = rng.random((40, 40), dtype="float32")
        with pytest.raises(pyclgemm.ConfigError, match=r"REGISTERS is 32 on a cpu"):
            pyclgemm.gemm(queue, a, a, config=capped)
