"""Configurations: defaults that follow other parameters, tilings, and the way to dicts and back."""

import json
from dataclasses import fields, replace

import pytest

from pyclgemm.errors import ConfigError
from pyclgemm.families.registry import as_config, config_from_dict
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.families.tiled.constraints import local_bytes
from tests.support.typical_configs import (
    BASES,
    CPU,
    DIRECT,
    GEMV,
    INDIRECT,
)


def test_defaults_that_follow_other_parameters():
    direct = XgemmDirectConfig(
        WGD=32, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
    )
    assert (direct.KWGD, direct.LANES_M, direct.LANES_N) == (32, 8, 1)
    assert INDIRECT.LANES_M == INDIRECT.MDIMC


def test_square_direct_tiles_follow_their_rows_when_these_are_replaced():
    assert DIRECT.NWGD == 0
    assert (DIRECT.tiles.MWG, DIRECT.tiles.NWG) == (32, 32)
    larger = replace(DIRECT, WGD=64)
    assert (larger.tiles.MWG, larger.tiles.NWG) == (64, 64)
    oblong = replace(DIRECT, NWGD=16)
    assert (oblong.tiles.MWG, oblong.tiles.NWG) == (32, 16)
    assert (replace(oblong, WGD=64).tiles.MWG, replace(oblong, WGD=64).tiles.NWG) == (64, 16)
    assert replace(oblong, NWGD=0).tiles.NWG == 32


def test_what_was_derived_stays_when_its_origin_is_replaced():
    # A configuration is what it says: a search that changes MDIMC sees LANES_M, too.
    assert replace(DIRECT, WGD=64).KWGD == DIRECT.KWGD
    assert replace(INDIRECT, MDIMC=16).LANES_M == INDIRECT.MDIMC
    assert replace(INDIRECT, MDIMC=16, LANES_M=0).LANES_M == 16


def test_both_tiled_families_hand_on_every_parameter_that_they_share():
    names = {field.name for field in fields(XgemmConfig)}
    shared = names & {field.name for field in fields(XgemmDirectConfig)}
    assert {"FILL", "ASYNC", "STAGES", "SWIZZLE", "FRAGMENTS", "SLICES", "GROUP_M"} <= shared
    assert {"REGISTERS", "SHUFFLE"} <= shared
    for name in shared:
        config = replace(DIRECT, **{name: 7})
        assert getattr(config.tiles, name) == 7, name


def test_the_direct_tiling_in_the_names_of_the_indirect_one():
    tiles = DIRECT.tiles
    assert (tiles.MWG, tiles.NWG, tiles.KWG, tiles.work_items) == (32, 32, 16, 64)
    assert tiles.local_elements() == 16 * (36 + 36)
    assert local_bytes(tiles, "float64") == 16 * 72 * 8


@BASES
def test_dict_and_back(config):
    assert config_from_dict(config.family, config.as_dict()) == config
    assert as_config({"path": config.family} | config.as_dict()) == config


@pytest.mark.parametrize("config", [
    replace(INDIRECT, FILL=2, ASYNC=1, STAGES=3, SWIZZLE=4, FRAGMENTS=2, SLICES=2, GROUP_M=4),
    replace(DIRECT, NWGD=16, FILL=2, ASYNC=1, STAGES=4, SWIZZLE=2, FRAGMENTS=2, SLICES=4),
    GEMV, CPU], ids=lambda config: config.family)  # fmt: skip
def test_json_and_back(config):
    stored = json.loads(json.dumps({"path": config.family} | config.as_dict()))
    assert as_config(stored) == config


@pytest.mark.parametrize("config", [INDIRECT, DIRECT, CPU], ids=lambda config: config.family)
def test_records_without_the_newer_parameters_mean_their_defaults(config):
    newer = {"FILL", "ASYNC", "SWIZZLE", "FRAGMENTS", "SLICES", "GROUP_M", "NWGD", "MC", "PACKB"}
    newer |= {"REGISTERS", "SHUFFLE", "PADLD"}
    older = {name: value for name, value in config.as_dict().items() if name not in newer}
    assert config_from_dict(config.family, older) == config


@pytest.mark.parametrize(
    ("family", "parameters", "message"),
    [
        (
            "strassen",
            {},
            "path is 'strassen'; known paths are indirect, direct, gemv, gemv_unit, "
            "matrix, wgmma, cpu",
        ),
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
