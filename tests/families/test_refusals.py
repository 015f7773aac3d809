"""What makes a configuration valid: each constraint is shown to fire, and with which words."""

import re
from dataclasses import replace

import pytest

import pyclgemm
from pyclgemm import GemvConfig
from pyclgemm.errors import ConfigError
from pyclgemm.families.registry import FAMILIES, check_config, violations
from tests.support import configs
from tests.support.broken_configs import BROKEN
from tests.support.facts import cpu, gpu
from tests.support.typical_configs import BASES, CPU, DIRECT, GEMV, GEMV_UNIT, INDIRECT, SMALL_CPU

SMALL_DEVICE = gpu(max_work_group_size=128, local_memory_bytes=16 * 1024)
ROOMY = gpu(local_memory_bytes=2**17)
TURING, VOLTA = gpu(architecture="sm_75"), gpu(architecture="sm_70")
RADEON = gpu(vendor="amd", architecture="gfx1100", local_memory_bytes=2**17)
XE = gpu(vendor="intel", architecture="")
MISCOMPILING = cpu(platform="Portable Computing Language", driver="5.0+debian")

ASYNC = replace(INDIRECT, ASYNC=1, STAGES=2)
STREAMED = replace(GEMV, STREAMB=1)
CAPPED = replace(INDIRECT, REGISTERS=64)
# 512 work-items, which fill the register file with 128 registers each, in steps of eight.
LARGE = replace(INDIRECT, SLICES=8, MDIMA=16, NDIMB=16, KWG=32)


@BASES
def test_the_base_configurations_are_valid(config):
    check_config(config, "float32", SMALL_DEVICE)


@pytest.mark.parametrize(("config", "changes", "dtype", "words"), BROKEN)
def test_a_broken_constraint_is_stated_with_both_sides(config, changes, dtype, words):
    broken = replace(config, **changes)
    sentence = re.compile(".*".join(map(re.escape, words)))
    (stated, *_) = [one for one in violations(broken, dtype, SMALL_DEVICE) if sentence.search(one)]
    with pytest.raises(ConfigError) as caught:
        check_config(broken, dtype, SMALL_DEVICE)
    assert stated in str(caught.value)
    assert type(config).__name__ in str(caught.value)


NO_COPIES = "copies past the registers need NVIDIA's compute capability 8.0: ASYNC is 1 on "
WIDE_COPIES = "copies past the registers move vectors of 4, 8 or 16 bytes"
NO_HINTS = "loads past the first-level cache need NVIDIA's compute capability 7.5: STREAMB is 1 on "
NO_CAP = "a cap of registers needs NVIDIA's or AMD's compiler for GPUs: REGISTERS is 64 on a "
FULL_FILE = "a work-group of capped registers must fit"
#: Configuration, element type, device, how the one constraint is stated that is broken, if any.
ON_DEVICES = [
    *((ASYNC, "float32", gpu(architecture=name), "") for name in ("sm_80", "sm_120")),
    *((ASYNC, "float32", one, NO_COPIES + one.architecture)
      for one in (TURING, gpu(architecture=""), RADEON, cpu())),
    (ASYNC, "float32", None, ""),
    (STREAMED, "float32", TURING, ""),
    *((STREAMED, "float32", one, NO_HINTS + one.architecture) for one in (VOLTA, cpu())),
    *((CAPPED, "float32", one, "") for one in (gpu(), RADEON, None)),
    (CAPPED, "float32", XE, NO_CAP + "gpu of intel"),
    (CAPPED, "float32", cpu(), NO_CAP + "cpu of amd"),
    *((INDIRECT, "float32", one, "") for one in (gpu(), RADEON, None, XE, cpu())),
    (replace(LARGE, REGISTERS=128), "float32", ROOMY, ""),
    (replace(LARGE, REGISTERS=129), "float32", ROOMY, FULL_FILE),
    (replace(LARGE, REGISTERS=129), "float32", RADEON, ""),
    *((replace(config, FILL=fill), "float32", gpu(fence_options=options), "")
      for config, fill in ((INDIRECT, 1), (DIRECT, 3)) for options in ("", "-cl-std=CL2.0")),
    *((replace(ASYNC, VWM=width * wide, VWN=width, MDIMA=8), dtype, ROOMY,
       WIDE_COPIES if wide > 1 else "")
      for dtype, width in (("float32", 4), ("float64", 2), ("complex64", 2), ("complex128", 1))
      for wide in (1, 2)),
    *((config, "float32", MISCOMPILING,
       "the runtime must compile") for config in (INDIRECT, DIRECT)),
    *((config, "float32", replace(MISCOMPILING, **changes), "") for config in (INDIRECT, DIRECT)
      for changes in ({"driver": "3.1+debian"}, {"platform": "Another"})),
    *((config, "float32", MISCOMPILING, "") for config in (GEMV, CPU, SMALL_CPU)),
]  # fmt: skip


@pytest.mark.parametrize(("config", "dtype", "traits", "start"), ON_DEVICES)
def test_what_a_device_lacks_is_stated_alone(config, dtype, traits, start):
    stated = violations(config, dtype, traits)
    assert len(stated) == bool(start)
    assert all(one.startswith(start) for one in stated), stated
    if start.startswith("the runtime"):
        assert stated[0].endswith("the device's runtime is Portable Computing Language 5.0+debian")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_constraint_of_a_family_is_shown_to_fire_somewhere(family):
    cases = [
        (replace(config, **changes), dtype, SMALL_DEVICE) for config, changes, dtype, _ in BROKEN
    ]
    cases += [(config, dtype, traits) for config, dtype, traits, _ in ON_DEVICES if traits]
    cases += [(SMALL_CPU, "float16", MISCOMPILING), (replace(DIRECT, REGISTERS=64), "int8", cpu())]
    cases += [(replace(GEMV_UNIT, STREAMB=1), "float16", VOLTA)]
    fired = {
        stated.partition(":")[0]
        for config, dtype, traits in cases
        for stated in violations(config, dtype, traits)
    }
    rules = {constraint.rule for constraint in FAMILIES[family].constraints}
    assert rules <= fired


@pytest.mark.parametrize(
    ("lanes", "sizes", "valid"),
    [
        ((8, 4), (32,), True), ((4, 8), (32,), True), ((4, 4), (32,), False),
        ((4, 4), (8, 16, 32), True), ((2, 8), (8, 16, 32), True), ((8, 8), (8, 16, 32), False),
        ((8, 4), (), False),
    ],
)  # fmt: skip
def test_shuffles_need_runs_as_long_as_a_sub_group(lanes, sizes, valid):
    config = replace(INDIRECT, SHUFFLE=1, LANES_M=lanes[0], LANES_N=lanes[1])
    stated = violations(config, "float32", gpu(sub_group_sizes=sizes))
    assert len(stated) == (not valid)
    for one in stated:
        assert f": {lanes[0]} * {lanes[1]}, the device has them in sub-groups of" in one
        assert one.endswith(" or ".join(map(str, sizes)) or "no size")
    assert violations(config, "float32") == []


def test_without_traits_the_limits_of_a_device_are_not_checked():
    large = replace(INDIRECT, MWG=512, NWG=512, MDIMC=64, NDIMC=64, MDIMA=128, NDIMB=128, KWG=32)
    assert violations(large, "complex128") == []
    assert len(violations(large, "complex128", SMALL_DEVICE)) == 2


FLOATS = 4 * 16 * 64  # bytes of 16 rows or columns of a slab
#: Bytes of slabs that are staged, and of sums that slices and the work-items of a gemv give away.
LOCAL_BYTES = [
    (INDIRECT, {}, "float32", 2 * FLOATS),
    (INDIRECT, {"STAGES": 2}, "float32", 4 * FLOATS),
    (INDIRECT, {"SB": 0}, "float32", FLOATS),
    (INDIRECT, {"STAGES": 4}, "float32", 8 * FLOATS),
    (INDIRECT, {"SA": 0, "SB": 0}, "float32", 0),
    (INDIRECT, {"SA": 0, "SB": 0, "SLICES": 2}, "float32", 4 * FLOATS),
    (INDIRECT, {"STAGES": 2, "SLICES": 4}, "float32", 8 * FLOATS),
    (GEMV, {"WGS": 64}, "float32", 56 * 2 * 4 * 4),  # 7 of 8 give their sums away
    (GEMV, {"WGS": 8}, "float32", 0),
    # Too many bytes for more than a half at once.
    (GEMV, {"WGS": 512}, "complex128", 256 * 2 * 4 * 16),
]


@pytest.mark.parametrize(("config", "changes", "dtype", "size"), LOCAL_BYTES)
def test_local_memory(config, changes, dtype, size):
    assert FAMILIES[config.family].local_bytes(replace(config, **changes), dtype) == size


# ------------------------------------------------------------------ by gemm, on a device


def test_gemm_refuses_an_invalid_configuration(queue, rng, traits):
    a, most = rng.random((40, 40), dtype="float32"), traits.max_work_group_size
    for config, message in [
        (replace(configs.INDIRECT, MWG=24), "(?s)24 rows.*8 work-items.*vectors of 2"),
        (replace(configs.DIRECT, MDIMAD=3), "(?s)32 work-items.*3 of them"),
        (replace(configs.GEMV, WGS=12), "(?s)WGS is 12, LANES_N is 4"),
        (replace(configs.CPU, NR=20), "(?s)NR is 20.*VW is 8"),
        # What asks for more than the device has.
        (GemvConfig(MR=1, WGS=2 * most, LANES_N=2 * most, VW=1), f"{2 * most}.*{most}"),
        (
            replace(configs.INDIRECT, MWG=1024, NWG=1024, KWG=1024, STAGES=2),
            f"limit {traits.local_memory_bytes}",
        ),
    ]:
        with pytest.raises(ConfigError, match=message):
            pyclgemm.gemm(queue, a, a, config=config)
