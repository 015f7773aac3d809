"""Every constraint fires, with both of its sides in the message; configurations from dicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts import cpu, gpu

from pyclgemm.config import (
    FAMILIES,
    CpuConfig,
    XgemmConfig,
    XgemmDirectConfig,
    config_from_dict,
)
from pyclgemm.constraints import CONSTRAINTS, check_config, local_bytes, violations
from pyclgemm.errors import ConfigError

INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=4, PADA=4, PADB=4
)
CPU = CpuConfig(MR=6, NR=64, KC=512, VW=16)

# configuration, changes, element type, the sentence that is wanted
BROKEN = [
    (INDIRECT, {"KWI": 0}, "float32", "every parameter except SA, SB, STRM, STRN, PADA and PADB "
     "must be at least 1: they are"),
    (DIRECT, {"WGD": -32}, "float32", "must be at least 1: they are WGD=-32"),
    (CPU, {"MR": 0}, "float32", "must be at least 1: they are MR=0"),
    (INDIRECT, {"SA": 2}, "float32", "SA must be one of 0, 1: SA is 2"),
    (INDIRECT, {"SB": 3}, "float32", "SB must be one of 0, 1: SB is 3"),
    (INDIRECT, {"STRM": 2}, "float32", "STRM must be one of 0, 1: STRM is 2"),
    (INDIRECT, {"STRN": 2}, "float32", "STRN must be one of 0, 1: STRN is 2"),
    (INDIRECT, {"VWM": 3}, "float32", "VWM must be one of 1, 2, 4, 8, 16: VWM is 3"),
    (INDIRECT, {"VWN": 32}, "float32", "VWN must be one of 1, 2, 4, 8, 16: VWN is 32"),
    (DIRECT, {"VWMD": 3}, "float32", "VWMD must be one of 1, 2, 4, 8, 16: VWMD is 3"),
    (DIRECT, {"VWND": 5}, "float32", "VWND must be one of 1, 2, 4, 8, 16: VWND is 5"),
    (CPU, {"VW": 32}, "float32", "VW must be one of 1, 2, 4, 8, 16: VW is 32"),
    (INDIRECT, {"STAGES": 3}, "float32", "STAGES must be one of 1, 2: STAGES is 3"),
    (INDIRECT, {"VWM": 16}, "complex64", "a vector of a complex type must fit OpenCL's 16 "
     "components: complex64 with vector widths 16 and 4"),
    (CPU, {}, "complex128", "a vector of a complex type must fit OpenCL's 16 components: "
     "complex128 with vector width 16"),
    (INDIRECT, {"MWG": 48}, "float32", "the rows of the tile must divide among work-items and "
     "vectors: 48 rows, 8 work-items, vectors of 4"),
    (INDIRECT, {"NWG": 40}, "float32", "the columns of the tile must divide among work-items and "
     "vectors: 40 columns, 8 work-items, vectors of 4"),
    (DIRECT, {"WGD": 40}, "float32", "the rows of the tile must divide among work-items and "
     "vectors: 40 rows, 8 work-items, vectors of 4"),
    (INDIRECT, {"KWI": 3}, "float32", "the slab's depth must be a multiple of the unrolling: "
     "depth 16, unrolling 3"),
    (INDIRECT, {"MDIMA": 32}, "float32", "a slab of A must divide among the work-items that copy "
     "it: 16 x 64 elements, 64 work-items, 32 of them along m, vectors of 4"),
    (INDIRECT, {"NDIMB": 2}, "float32", "a slab of B must divide among the work-items that copy "
     "it: 16 x 64 elements, 64 work-items, 2 of them along n, vectors of 4"),
    (DIRECT, {"MDIMAD": 16}, "float32", "a slab of A must divide among the work-items that copy "
     "it: 16 x 32 elements, 64 work-items, 16 of them along m"),
    (DIRECT, {"KWGD": 1, "KWID": 1}, "float32", "a slab whose unit-stride index is k must divide "
     "among the work-items: 32 x 1 elements, 64 work-items"),
    (INDIRECT, {"PADA": 2}, "float32", "padding must keep the vectors of a staged slab aligned: "
     "PADA 2 with vectors of 4, PADB 0 with vectors of 4"),
    (DIRECT, {"PADB": 1}, "float32", "padding must keep the vectors of a staged slab aligned: "
     "PADA 4 with vectors of 4, PADB 1"),
    (INDIRECT, {"LANES_M": 3}, "float32", "the work-items must divide into runs of LANES_M * "
     "LANES_N: 8 x 8 work-items, runs of 3 x 1"),
    (INDIRECT, {"STAGES": 2, "SB": 0}, "float32", "two stages need both operands in local memory: "
     "STAGES is 2, SA is 1, SB is 0"),
    (CPU, {"KC": 40}, "float32", "KC must be a multiple of VW: KC is 40, VW is 16"),
    (CPU, {"NR": 40}, "float32", "NR must be a multiple of VW: NR is 40, VW is 16"),
    (CPU, {"MC": 0}, "float32", "must be at least 1: they are MR=6 NR=64 KC=512 VW=16 MC=0"),
    (CPU, {"PACKB": 2}, "float32", "PACKB must be one of 0, 1: PACKB is 2"),
    (CPU, {"PREFETCHB": 2}, "float32", "PREFETCHB must be one of 0, 1: PREFETCHB is 2"),
    (CPU, {"PREFETCHC": 2}, "float32", "PREFETCHC must be one of 0, 1: PREFETCHC is 2"),
    (INDIRECT, {"MDIMC": 16, "NDIMC": 16}, "float32", "the work-group must not exceed the device's "
     "limit: 256 work-items, limit 128"),
    (INDIRECT, {"STAGES": 2}, "float64", "the staged slabs must fit the device's local memory: "
     "32768 bytes, limit 16384"),
]  # fmt: skip

MISCOMPILING = cpu(platform="Portable Computing Language", driver="5.0+debian")
SMALL_DEVICE = gpu(max_work_group_size=128, local_memory_bytes=16 * 1024)


@pytest.mark.parametrize("config", [INDIRECT, DIRECT, CPU], ids=lambda config: config.family)
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
    fired = {
        stated.partition(":")[0]
        for config, changes, dtype, _ in BROKEN
        for stated in violations(replace(config, **changes), dtype, SMALL_DEVICE)
    } | {stated.partition(":")[0] for stated in violations(DIRECT, "float32", MISCOMPILING)}
    rules = {constraint.rule for constraint in CONSTRAINTS if family in constraint.families}
    assert rules <= fired


def test_a_runtime_that_miscompiles_a_family_is_refused():
    (stated,) = violations(DIRECT, "float32", MISCOMPILING)
    assert stated.endswith("the device's runtime is Portable Computing Language 5.0+debian")
    assert violations(INDIRECT, "float32", MISCOMPILING) == []
    assert violations(DIRECT, "float32", replace(MISCOMPILING, driver="3.1+debian")) == []


def test_without_traits_the_limits_of_a_device_are_not_checked():
    large = replace(INDIRECT, MWG=512, NWG=512, MDIMC=64, NDIMC=64, MDIMA=128, NDIMB=128,
                    KWG=32)  # fmt: skip
    assert violations(large, "complex128") == []
    assert len(violations(large, "complex128", SMALL_DEVICE)) == 2


def test_defaults_that_follow_other_parameters():
    direct = XgemmDirectConfig(
        WGD=32, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
    )
    assert (direct.KWGD, direct.LANES_M, direct.LANES_N) == (32, 8, 1)
    assert INDIRECT.LANES_M == INDIRECT.MDIMC


def test_the_direct_tiling_in_the_names_of_the_indirect_one():
    tiles = DIRECT.tiles
    assert (tiles.MWG, tiles.NWG, tiles.KWG, tiles.work_items) == (32, 32, 16, 64)
    assert tiles.local_elements() == 16 * (36 + 36)
    assert local_bytes(tiles, "float64") == 16 * 72 * 8


@pytest.mark.parametrize(("stages", "sa", "sb", "elements"),
                         [(1, 1, 1, 16 * 128), (2, 1, 1, 32 * 128), (1, 1, 0, 16 * 64),
                          (1, 0, 0, 0)])  # fmt: skip
def test_local_memory_counts_what_is_staged(stages, sa, sb, elements):
    assert replace(INDIRECT, STAGES=stages, SA=sa, SB=sb).local_elements() == elements


@pytest.mark.parametrize("config", [INDIRECT, DIRECT, CPU], ids=lambda config: config.family)
def test_dict_and_back(config):
    assert config_from_dict(config.family, config.as_dict()) == config


@pytest.mark.parametrize(
    ("family", "parameters", "message"),
    [
        ("strassen", {}, "path is 'strassen'; known paths are indirect, direct, cpu"),
        (
            "cpu",
            {"MR": 6, "UNROLL": 2},
            "CpuConfig has no parameter UNROLL; it has KC, MC, MR, "
            "NR, PACKB, PREFETCHB, PREFETCHC, VW",
        ),
        ("cpu", {"MR": 6, "NR": 64, "KC": 512}, "CpuConfig lacks a parameter: .*'VW'"),
        ("cpu", {"MR": 6.0}, "MR is 6.0; a configuration parameter is an integer"),
        ("cpu", {"MR": True}, "MR is True; a configuration parameter is an integer"),
    ],
)
def test_a_dict_that_is_no_configuration(family, parameters, message):
    with pytest.raises(ConfigError, match=message):
        config_from_dict(family, parameters)
