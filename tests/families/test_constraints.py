"""Constraints of configurations: each is shown to fire, with its words; memory that they count."""

import re
from dataclasses import replace

import pytest

import pyclgemm
from pyclgemm import GemvConfig
from pyclgemm.errors import ConfigError
from pyclgemm.families import registry
from pyclgemm.families.registry import FAMILIES, violations
from tests.support import configs, typical_configs
from tests.support.facts import cpu, gpu
from tests.support.typical_configs import CPU, DIRECT, GEMV, GEMV_UNIT, INDIRECT, MATRIX, SMALL_CPU

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

#: By family: changes that break a constraint on the small device, what is stated of it and of both
#: its sides, and an element type other than float32, or float16 of those for matrix units.
BROKEN = {
    "indirect": [
        ({"MWG": 256, "NWG": 128}, "sums of a work-item ... they are 512"),
        ({"KWG": 256, "KWI": 128, "NWG": 128}, "multiply-adds of a work-item ... they are 16384"),
        ({"KWG": 1024, "NWG": 256}, "slab that a work-item copies ... they are 4096"),
        ({"KWI": 0}, "KWI must be an integer of 1 to 128 ... KWI is 0"),
        ({"SA": 2}, "SA must be one of 0, 1 ... SA is 2"),
        ({"VWM": 3}, "VWM must be one of 1, 2, 4, 8, 16 ... VWM is 3"),
        ({"SWIZZLE": 16, "MWG": 32}, "of SWIZZLE ... rows of 32 and 64 ... 4 and 4, SWIZZLE 16"),
        ({"ASYNC": 1}, "as they are stored ... float32, STAGES is 1, vectors of 4 and 4 elements"),
        ({"ASYNC": 1, "STAGES": 2, "VWN": 8}, "are stored ... float32, STAGES is 2 ... 4 and 8"),
        ({"STAGES": 3}, "more than two stages need ASYNC ... STAGES is 3, ASYNC is 0"),
        ({"FRAGMENTS": 2, "STAGES": 2, "KWI": 1}, "an even unrolling ... the unrolling is 1"),
        ({"FILL": 2}, "needs a memory fence ... FILL is 2, the compiler has no such fence"),
        ({"REGISTERS": 23}, "24 to 255 ... REGISTERS is 23"),
        ({"VWM": 16}, "16 components ... complex64 with vector widths 16 and 4", "complex64"),
        ({"MDIMC": 16, "NDIMC": 16}, "the device's limit ... 256 work-items, limit 128"),
        ({"SLICES": 4}, "the device's limit ... 256 work-items, limit 128"),
        ({"MWG": 48}, "rows of the tile ... 48 rows, 8 work-items, vectors of 4"),
        ({"NWG": 40}, "columns of the tile ... 40 columns, 8 work-items, vectors of 4"),
        ({"KWI": 3}, "slab's depth ... depth 16, slices 1, unrolling 3"),
        ({"MDIMA": 32}, "a slab of A ... 16 x 64 ... 64 ... 32 of them along m ... 4"),
        ({"SLICES": 4, "MDIMA": 16, "KWG": 8}, "of A ... 8 x 64 ... 256 ... 16 of them ... 4"),
        ({"NDIMB": 2}, "a slab of B ... 16 x 64 ... 64 ... 2 of them along n ... 4"),
        ({"PADA": 2}, "staged slab aligned ... PADA 2 with vectors of 4, PADB 0 with vectors of 4"),
        ({"PADLD": 2}, "packed operand aligned ... PADLD 2 with vectors of 4 and 4"),
        ({"PADLD": 4, "VWN": 8}, "packed operand aligned ... PADLD 4 with vectors of 4 and 8"),
        ({"LANES_M": 3}, "divide into runs ... 8 x 8 work-items, runs of 3 x 1"),
        ({"SHUFFLE": 1, "LANES_N": 4}, "needs shuffles ... 8 * 4 ... in sub-groups of no size"),
        ({"SHUFFLE": 1}, "fragments ... 8 rows ... 4 among 1, 8 columns ... 4 among 8"),
        ({"STAGES": 2, "SB": 0}, "both operands in local memory ... STAGES is 2, SA is 1, SB is 0"),
        ({"SLICES": 2, "MDIMA": 8, "NDIMB": 8}, "staged slabs must fit ... 24576 bytes ... 16384"),
        ({"STAGES": 2}, "staged slabs must fit ... 32768 bytes, limit 16384", "float64")],
    # Constraints that are not tried on "indirect", whose tiling has the others.
    "direct": [
        ({"RUN_K": True}, "RUN_K must be an integer of 1 to 256 ... RUN_K is True"),
        ({"ASYNC": 1, "STAGES": 2}, "are stored ... float64, STAGES is 2 ... 4 and 4", "float64"),
        ({"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, "float16 ... of 1 and 2", "float16"),
        ({"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, "int8 ... of 1 and 2", "int8"),
        ({"FRAGMENTS": 2}, "an even unrolling ... FRAGMENTS is 2, STAGES is 1, the unrolling is 2"),
        ({"REGISTERS": 256}, "REGISTERS must be an integer of 0 to 255 ... REGISTERS is 256"),
        ({"KWGD": 1, "KWID": 1}, "unit-stride index is k ... 32 x 1 and 32 x 1 ... 64 work-items"),
        ({"NWGD": 8, "KWGD": 4, "VWND": 1, "NDIMBD": 2}, "index is k ... 32 x 4 and 8 x 4 ... 64"),
        ({"PADB": 1}, "staged slab aligned ... PADA 4 with vectors of 4, PADB 1 with vectors of 4"),
        ({"SHUFFLE": 1, "LANES_N": 4, "WGD": 96, "NWGD": 64, "VWMD": 2}, "fragments ... 2 among 4"),
        ({"SHUFFLE": 1, "LANES_N": 4, "WGD": 96, "NWGD": 64, "VWMD": 4}, "fragments ... 4 among 4"),
        ({"SHUFFLE": 1, "LANES_N": 4}, "fragments ... 4 among 4, 4 columns ... 4 among 8")],
    "gemv": [
        ({"MR": 32, "VW": 16}, "sums of a work-item ... they are 512"),
        ({"MR": 16, "VW": 16, "KWI": 32}, "multiply-adds of a work-item ... they are 8192"),
        ({"WGS": 60}, "a power of two along k ... WGS is 60, LANES_N is 8"),
        ({"WGS": 24}, "a power of two along k ... WGS is 24, LANES_N is 8"),
        ({"VW": 16}, "OpenCL's 16 components ... complex64 with vector width 16", "complex64"),
        ({"WGS": 256}, "the device's limit ... 256 work-items, limit 128"),
        ({"MR": 16, "VW": 16}, "partial sums of a work-group ... 32768 bytes, limit 16384"),
        ({"STREAMB": 1, "VW": 8}, "read ... 4, 8 or 16 bytes ... STREAMB is 1, VW is 8, float32")],
    "small_cpu": [
        ({"MR": 17, "NR": 1, "VW": 1}, "written for 64 columns ... they are 1088"),
        ({"NR": 24}, "NR must be a multiple of VW ... NR is 24, VW is 16"),
        ({"MR": 12, "NR": 64}, "more than 32 vectors of sums ... MR is 12, NR is 64, VW is 16"),
        ({}, "on CPUs multiply real elements ... the operands are complex64", "complex64")],
    "cpu": [
        ({"MR": 48}, "vectors of sums must ... they are 192"),
        ({"KC": 4096, "MC": 4096}, "elements of a packed block ... they are 16777216"),
        ({"KC": 32.0}, "KC must be an integer of 1 to 4096 ... KC is 32.0"),
        ({"MC": "512"}, "MC must be an integer of 1 to 32768 ... MC is '512'"),
        ({"NR": 10**5000}, "of 1 to 1024 ... NR is a value of type int that is too long to show"),
        ({}, "OpenCL's 16 components ... complex128 with vector width 16", "complex128"),
        ({"KC": 40}, "KC must be a multiple of VW ... KC is 40, VW is 16"),
        ({"NR": 40}, "NR must be a multiple of VW ... NR is 40, VW is 16")],
    "matrix": [
        ({"MWG": 256, "NWG": 256}, "sums of a sub-group ... they are 32768"),
        ({"FILL": 1}, "needs a memory fence ... FILL is 1, the compiler has no such fence"),
        ({"SUBGROUPS_M": 8, "MWG": 128}, "the device's limit ... 256 work-items, limit 128"),
        ({"STAGES": 1}, "STAGES of 2 to 8 ... STAGES is 1"),
        ({"UNALIGNED": 1}, "STAGES of 2 to 8 ... STAGES is 3"),
        ({"UNALIGNED": 2, "MWG": 96, "NWG": 96}, "multiple of the other ... rows of 96, 96 or 16"),
        ({}, "of 1, 2, 4 or 8 bytes ... they are complex64", "complex64"),
        ({"UNALIGNED": 1}, "smaller than the pieces ... they are complex128", "complex128"),
        ({"MWG": 48}, "the depth also of 32 bytes ... 48 x 32 among 2 x 1 sub-groups, KWG is 16"),
        ({}, "the depth also of 32 bytes ... 32 x 32 among 2 x 1 sub-groups, KWG is 16", "int8"),
        ({"KWG": 24}, "the depth also of 32 bytes ... 32 x 32 among 2 x 1 sub-groups, KWG is 24"),
        ({"SUBGROUPS_M": 8, "MWG": 128}, "of 16 bytes ... 128 x 16 and 16 x 32 float16, 256"),
        ({"MWG": 96, "NWG": 96}, "multiple of the other ... rows of 96, 96 or 16 float16, 64"),
        ({"FILL": 1, "SLICES": 2}, "(FILL) or among slices (SLICES) ... FILL is 1, SLICES is 2"),
        ({"SLICES": 2}, "as deep as a fragment ... KWG is 16 float16, SLICES is 2, FRAGMENTS is 1"),
        ({"SLICES": 4, "KWG": 64, "SUBGROUPS_M": 1}, "all slices ... 12288"),
        ({"FRAGMENTS": 2}, "FRAGMENTS of 2 need slabs ... FRAGMENTS is 2, KWG is 16 float16"),
        ({"MWG": 128, "NWG": 128}, "a work-group must fit ... 147456 bytes ... 16384", "float32")],
    "wgmma": [
        ({"FILL": 1}, "needs a memory fence ... FILL is 1, the compiler has no such fence"),
        ({"CONSUMERS": 1}, "the device's limit ... 256 work-items, limit 128"),
        ({}, "float16, bfloat16, float32, int8 ... the operands are float64", "float64"),
        ({"CONSUMERS": 3}, "each of CONSUMERS ... MWG is 128, CONSUMERS is 3"),
        ({"PROMOTE": 2}, "PROMOTE must be 0 ... PROMOTE is 2, the operands are int8", "int8"),
        ({"NWG": 256, "PROMOTE": 1}, "a work-item must fit ... 256 sums, room for 200", "float32"),
        ({"MWG": 192, "NWG": 256, "CONSUMERS": 3},
         "ptxas gives ... 128 sums and 26 more, room for 128"),
        ({}, "collected results ... 163904 bytes, limit 16384"),
        ({}, "must have warpgroup units ... 'NVIDIA H100 80GB HBM3' has none")],
    "gemv_unit": [
        ({"SUBGROUPS": 8}, "the device's limit ... 256 work-items, limit 128"),
        ({"MR": 32, "VW": 8, "SUBGROUPS": 8}, "sums of a work-group ... 32768 bytes ... 16384"),
        ({}, "multiply float16, bfloat16, float32, float64, complex128 ... they are int8", "int8"),
        ({"MR": 32, "VW": 8, "SUBGROUPS": 16}, "sums and fragments ... about 152 ... 128")],
    "small": [
        ({"MWI": 16, "NWI": 16}, "more than 128 sums ... MWI is 16, NWI is 16")],
}  # fmt: skip
BROKEN_CASES = [
    (replace(getattr(typical_configs, family.upper()), **changes),
     *(dtype or ["float16" if FAMILIES[family].uses_units else "float32"]), stated)
    for family, rows in BROKEN.items() for changes, stated, *dtype in rows
]  # fmt: skip


@pytest.mark.parametrize("config", [INDIRECT, DIRECT, GEMV, CPU], ids=lambda config: config.family)
def test_the_base_configurations_are_valid(config):
    registry.check_config(config, "float32", SMALL_DEVICE)


@pytest.mark.parametrize(("broken", "dtype", "wanted"), BROKEN_CASES)
def test_a_broken_constraint_is_stated_with_both_sides(broken, dtype, wanted):
    sentence = re.compile(re.escape(wanted).replace(re.escape(" ... "), ".*"))
    stated, *_ = filter(sentence.search, violations(broken, dtype, SMALL_DEVICE))
    with pytest.raises(ConfigError) as caught:
        registry.check_config(broken, dtype, SMALL_DEVICE)
    assert stated in str(caught.value)
    assert type(broken).__name__ in str(caught.value)


NO_COPIES = "copies past the registers need NVIDIA's compute capability 8.0: ASYNC is 1 on "
WIDE_COPIES = "copies past the registers move vectors of 4, 8 or 16 bytes"
NO_HINTS = "loads past the first-level cache need NVIDIA's compute capability 7.5: STREAMB is 1 on "
NO_CAP = "a cap of registers needs NVIDIA's or AMD's compiler for GPUs: REGISTERS is 64 on a "
FULL_FILE = "a work-group of capped registers must fit"
NO_SHUFFLES = (
    "passing fragments between work-items needs shuffles within a sub-group of LANES_M * LANES_N "
    "work-items: {} * {}, the device has them in sub-groups of {}"
)
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
    (replace(MATRIX, UNALIGNED=2, STAGES=2), "float16", RADEON, "UNALIGNED of 2 needs copies past"),
    # Runs of work-items that exchange fragments are as long as a sub-group.
    *((replace(INDIRECT, SHUFFLE=1, LANES_M=m, LANES_N=n), "float32",
       None if sizes is None else gpu(sub_group_sizes=sizes), has and NO_SHUFFLES.format(m, n, has))
      for m, n, sizes, has in (
          (8, 4, (32,), ""), (4, 8, (32,), ""), (4, 4, (8, 16, 32), ""), (2, 8, (8, 16, 32), ""),
          (4, 4, None, ""), (4, 4, (32,), "32"), (8, 8, (8, 16, 32), "8 or 16 or 32"),
          (8, 4, (), "no size"))),
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
    cases = [(broken, dtype, SMALL_DEVICE) for broken, dtype, _ in BROKEN_CASES]
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
