"""What makes a configuration valid: one list, each entry of which is shown to fire."""

from dataclasses import replace

import pytest

from pyclgemm.errors import ConfigError
from pyclgemm.families.registry import FAMILIES, check_config, violations
from tests.support.broken_configs import BROKEN
from tests.support.facts import cpu, gpu
from tests.support.typical_configs import (
    BASES,
    CPU,
    DIRECT,
    GEMV,
    GEMV_UNIT,
    INDIRECT,
    SMALL_CPU,
)

OLDER = gpu(architecture="sm_75")
ASYNC = replace(INDIRECT, ASYNC=1, STAGES=2)
MISCOMPILING = cpu(platform="Portable Computing Language", driver="5.0+debian")
SMALL_DEVICE = gpu(max_work_group_size=128, local_memory_bytes=16 * 1024)


@BASES
def test_the_base_configurations_are_valid(config):
    assert violations(config, "float32", SMALL_DEVICE) == []
    check_config(config, "float32", SMALL_DEVICE)


@pytest.mark.parametrize(("config", "changes", "dtype", "sentence"), BROKEN)
def test_a_broken_constraint_is_stated_with_both_sides(config, changes, dtype, sentence):
    broken = violations(replace(config, **changes), dtype, SMALL_DEVICE)
    assert any(sentence in stated for stated in broken), broken
    with pytest.raises(ConfigError) as caught:
        check_config(replace(config, **changes), dtype, SMALL_DEVICE)
    assert sentence in str(caught.value)
    assert type(config).__name__ in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_constraint_of_a_family_is_shown_to_fire_somewhere(family):
    cases = [
        (replace(config, **changes), dtype, SMALL_DEVICE) for config, changes, dtype, _ in BROKEN
    ]
    cases += [(DIRECT, "float32", MISCOMPILING), (ASYNC, "float32", OLDER)]
    cases += [(SMALL_CPU, "float16", MISCOMPILING)]
    cases += [(replace(GEMV, STREAMB=1), "float32", cpu())]
    cases += [(replace(GEMV_UNIT, STREAMB=1), "float16", gpu(architecture="sm_70"))]
    cases += [(replace(config, REGISTERS=64), "float32", cpu()) for config in (INDIRECT, DIRECT)]
    fired = {
        stated.partition(":")[0]
        for config, dtype, traits in cases
        for stated in violations(config, dtype, traits)
    }
    rules = {constraint.rule for constraint in FAMILIES[family].constraints}
    assert rules <= fired


@pytest.mark.parametrize(
    ("traits", "refused"),
    [
        (gpu(architecture="sm_80"), False),
        (gpu(architecture="sm_120"), False),
        (gpu(architecture="sm_75"), True),
        (gpu(architecture=""), True),
        (gpu(vendor="amd", architecture="gfx1100"), True),
        (cpu(), True),
        (None, False),
    ],
    ids=lambda value: value.architecture or "unknown" if hasattr(value, "architecture") else None,
)
def test_copies_past_the_registers_are_refused_where_the_device_has_none(traits, refused):
    stated = [
        f"copies past the registers need NVIDIA's compute capability 8.0: ASYNC is 1 on "
        f"{traits.architecture}"
    ] if refused else []  # fmt: skip
    assert violations(ASYNC, "float32", traits) == stated


@pytest.mark.parametrize(
    ("traits", "refused"), [(OLDER, False), (gpu(architecture="sm_70"), True), (cpu(), True)]
)
def test_loads_past_the_first_level_cache_are_refused_where_there_are_none(traits, refused):
    stated = [
        f"loads past the first-level cache need NVIDIA's compute capability 7.5: STREAMB is 1 on "
        f"{traits.architecture}"
    ] if refused else []  # fmt: skip
    assert violations(replace(GEMV, STREAMB=1), "float32", traits) == stated


@pytest.mark.parametrize(
    ("dtype", "width"), [("float32", 4), ("float64", 2), ("complex64", 2), ("complex128", 1)]
)
def test_copies_past_the_registers_take_vectors_of_up_to_16_bytes(dtype, width):
    roomy = gpu(local_memory_bytes=2**17)
    assert violations(replace(ASYNC, VWM=width, VWN=width), dtype, roomy) == []
    (stated,) = violations(replace(ASYNC, VWM=2 * width, VWN=width, MDIMA=8), dtype, roomy)
    assert stated.startswith("copies past the registers move vectors of 4, 8 or 16 bytes")


@pytest.mark.parametrize("options", ["", "-cl-std=CL2.0"])
def test_a_division_of_slabs_is_valid_where_there_is_a_fence(options):
    assert violations(replace(INDIRECT, FILL=1), "float32", gpu(fence_options=options)) == []
    assert violations(replace(DIRECT, FILL=3), "float32", gpu(fence_options=options)) == []


@pytest.mark.parametrize(
    ("traits", "refused"),
    [
        (gpu(), False),
        (gpu(vendor="amd", architecture="gfx1100"), False),
        (gpu(vendor="intel", architecture=""), True),
        (cpu(), True),  # though its vendor is AMD
        (None, False),
    ],
)
def test_a_cap_of_registers_is_refused_where_the_compiler_takes_none(traits, refused):
    stated = [
        "a cap of registers needs NVIDIA's or AMD's compiler for GPUs: REGISTERS is 64 on a "
        f"{traits.type} of {traits.vendor}"
    ] if refused else []  # fmt: skip
    assert violations(replace(INDIRECT, REGISTERS=64), "float32", traits) == stated
    assert violations(INDIRECT, "float32", traits) == []


def test_capped_registers_fill_the_register_file_in_steps_of_eight():
    # 512 work-items of 128 registers are just what a multiprocessor has.
    larger = replace(INDIRECT, SLICES=8, MDIMA=16, NDIMB=16, KWG=32)
    roomy = gpu(local_memory_bytes=2**17)
    assert violations(replace(larger, REGISTERS=128), "float32", roomy) == []
    (stated,) = violations(replace(larger, REGISTERS=129), "float32", roomy)
    assert stated.startswith("a work-group of capped registers must fit")
    elsewhere = gpu(vendor="amd", architecture="gfx1100", local_memory_bytes=2**17)
    assert violations(replace(larger, REGISTERS=129), "float32", elsewhere) == []


@pytest.mark.parametrize(
    ("lanes", "sizes", "valid"),
    [
        ((8, 4), (32,), True),
        ((4, 8), (32,), True),
        ((4, 4), (32,), False),
        ((4, 4), (8, 16, 32), True),
        ((2, 8), (8, 16, 32), True),
        ((8, 8), (8, 16, 32), False),
        ((8, 4), (), False),
    ],
)
def test_shuffles_need_runs_as_long_as_a_sub_group(lanes, sizes, valid):
    config = replace(INDIRECT, SHUFFLE=1, LANES_M=lanes[0], LANES_N=lanes[1])
    stated = violations(config, "float32", gpu(sub_group_sizes=sizes))
    assert (stated == []) == valid
    assert len(stated) <= 1
    if stated:
        assert f": {lanes[0]} * {lanes[1]}, the device has them in sub-groups of" in stated[0]
        assert stated[0].endswith(" or ".join(map(str, sizes)) or "no size")
    assert violations(config, "float32") == []


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=["indirect", "direct"])
def test_a_runtime_that_miscompiles_a_family_is_refused(config):
    (stated,) = violations(config, "float32", MISCOMPILING)
    assert stated.endswith("the device's runtime is Portable Computing Language 5.0+debian")
    assert violations(config, "float32", replace(MISCOMPILING, driver="3.1+debian")) == []
    assert violations(config, "float32", replace(MISCOMPILING, platform="Another")) == []


@pytest.mark.parametrize("config", [GEMV, CPU, SMALL_CPU], ids=lambda config: config.family)
def test_what_such_a_runtime_compiles_rightly_is_valid(config):
    assert violations(config, "float32", MISCOMPILING) == []


def test_without_traits_the_limits_of_a_device_are_not_checked():
    large = replace(INDIRECT, MWG=512, NWG=512, MDIMC=64, NDIMC=64, MDIMA=128, NDIMB=128,
                    KWG=32)  # fmt: skip
    assert violations(large, "complex128") == []
    assert len(violations(large, "complex128", SMALL_DEVICE)) == 2


@pytest.mark.parametrize(("stages", "sa", "sb", "slices", "elements"),
                         [(1, 1, 1, 1, 16 * 128), (2, 1, 1, 1, 32 * 128), (1, 1, 0, 1, 16 * 64),
                          (4, 1, 1, 1, 64 * 128), (1, 0, 0, 1, 0), (1, 0, 0, 2, 64 * 64),
                          (2, 1, 1, 4, 32 * 128 + 64 * 64)])  # fmt: skip
def test_local_memory_counts_what_is_staged(stages, sa, sb, slices, elements):
    config = replace(INDIRECT, STAGES=stages, SA=sa, SB=sb, SLICES=slices)
    assert config.local_elements() == elements


@pytest.mark.parametrize(
    ("wgs", "dtype", "size"),
    [
        (64, "float32", 56 * 2 * 4 * 4),  # 7 of 8 give their sums away
        (8, "float32", 0),
        (512, "complex128", 256 * 2 * 4 * 16),  # too many bytes for more than a half at once
    ],
)
def test_local_memory_of_a_gemv_holds_the_sums_that_are_given_away(wgs, dtype, size):
    assert FAMILIES["gemv"].local_bytes(replace(GEMV, WGS=wgs), dtype) == size
