"""Configurations: defaults, the way to dicts and back, bounds, and the schema."""

import functools
import json
from dataclasses import MISSING, fields, replace

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ArgumentError, ConfigError, DatabaseError
from pyclgemm.families import registry
from pyclgemm.families.registry import FAMILIES, as_config, config_from_dict, violations
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.families.tiled.constraints import local_bytes
from pyclgemm.mra import fused
from pyclgemm.problem.bounds import out_of_bounds
from pyclgemm.resources import resource_folder
from pyclgemm.selection.overrides import parse_assignments, parse_config
from pyclgemm.selection.records import read_record
from tests.support import typical_configs
from tests.support.typical_configs import CPU, DIRECT, INDIRECT

CONFIGS = {name: getattr(typical_configs, name.upper()) for name in FAMILIES}
#: Those of transforms are of no family.
FUSED = {
    "fused": fused.FusedConfig(2, 1, 1, 64, 2),
    "fused_unit": fused.FusedUnitConfig(8, 4, 1, 1, 8, 1),
}
EVERY = CONFIGS | FUSED
BOUNDS = {name: config.bounds() for name, config in EVERY.items()}
ARCHITECTURES = [typical_traits(name) for name in ("sm_90", "gfx1100", "x86-64-v4", "intel_gpu")]
H100 = ARCHITECTURES[0]
SCHEMA = json.loads((resource_folder("databases") / "schema.json").read_text())

# ------------------------------------------------------------------ defaults and tilings


def test_defaults_that_follow_other_parameters():
    direct = XgemmDirectConfig(
        WGD=32, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
    )
    assert (direct.KWGD, direct.LANES_M, direct.LANES_N) == (32, 8, 1)
    assert INDIRECT.LANES_M == INDIRECT.MDIMC
    # What was derived stays when its origin is replaced: a search that changes MDIMC sees LANES_M.
    assert replace(DIRECT, WGD=64).KWGD == DIRECT.KWGD
    assert replace(INDIRECT, MDIMC=16).LANES_M == INDIRECT.MDIMC
    assert replace(INDIRECT, MDIMC=16, LANES_M=0).LANES_M == 16
    # Square tiles follow their rows.
    for rows, columns, tile in [(32, 0, 32), (64, 0, 64), (32, 16, 16), (64, 16, 16)]:
        config = replace(replace(DIRECT, NWGD=columns), WGD=rows)
        assert (rows, tile) == (config.tiles.MWG, config.tiles.NWG)
        assert rows == replace(config, NWGD=0).tiles.NWG


def test_the_direct_tiling_in_the_names_of_the_indirect_one():
    tiles = DIRECT.tiles
    assert (tiles.MWG, tiles.NWG, tiles.KWG, tiles.work_items) == (32, 32, 16, 64)
    assert tiles.local_elements() == 16 * (36 + 36)
    assert local_bytes(tiles, "float64") == 16 * 72 * 8
    names, own = ({field.name for field in fields(x)} for x in (XgemmConfig, XgemmDirectConfig))
    shared = names & own
    assert {*NEWER, "STAGES", "REGISTERS", "SHUFFLE"} <= shared
    for name in shared:
        assert getattr(replace(DIRECT, **{name: 7}).tiles, name) == 7, name


# ------------------------------------------------------------------ dicts and JSON

NEWER = {"FILL": 2, "ASYNC": 1, "SWIZZLE": 4, "FRAGMENTS": 2, "SLICES": 2, "GROUP_M": 4}


@pytest.mark.parametrize(
    "config",
    [*CONFIGS.values(), replace(INDIRECT, STAGES=3, **NEWER), replace(DIRECT, NWGD=16, **NEWER)],
    ids=lambda config: config.family,
)
def test_dict_and_json_and_back(config):
    assert config_from_dict(config.family, config.as_dict()) == config
    described = {"path": config.family} | config.as_dict()
    assert as_config(described) == as_config(json.loads(json.dumps(described))) == config


@pytest.mark.parametrize("config", [INDIRECT, DIRECT, CPU], ids=lambda config: config.family)
def test_records_without_the_newer_parameters_mean_their_defaults(config):
    newer = {*NEWER, "NWGD", "MC", "PACKB", "REGISTERS", "SHUFFLE", "PADLD"}
    older = {name: value for name, value in config.as_dict().items() if name not in newer}
    assert config_from_dict(config.family, older) == config


def described(given):
    registry.check_config(as_config(given), "float32")


DEEP = functools.reduce(lambda value, _: [value], range(100_000), [])
WHOLE = {"path": "cpu"} | CPU.as_dict()
NO_INTEGER = "a configuration parameter is an integer"
NOT_OF_FORM = "is not of the form NAME=VALUE"
IN_FILE = '{"path": "cpu", "MR": '
#: What reads a configuration, what it is given, and what it says.
UNREADABLE = [
    *((lambda given: config_from_dict(*given), given, message)
      for given, message in [
          (("strassen", {}), "path is 'strassen'; known paths are indirect, direct, gemv, "),
          (("cpu", {"MR": 6, "UNROLL": 2}), "CpuConfig has no parameter UNROLL; it has KC, MC, MR"),
          (("cpu", {"MR": 6, "NR": 64, "KC": 512}), "CpuConfig lacks a parameter: .*'VW'"),
          (("cpu", {"MR": 6.0}), f"MR is 6.0; {NO_INTEGER}"),
          (("cpu", {"MR": True}), f"MR is True; {NO_INTEGER}")]),
    *((described, given, "")
      for given in [
          {"path": ["cpu"]}, {"path": {"cpu": 1}}, {"path": "cpu", 7: 8}, {"MWG": 64}, 64,
          {"path": "cpu", "X" * 10**6: 8}, WHOLE | {"MR": 10**5000}, WHOLE | {"MR": "6"},
          {"MR": DEEP}]),
    (described, WHOLE | {"MR": DEEP}, "too long to show"),
    (parse_assignments, "MWG=" + "9" * 5000, "MWG has a value of 5000 digits"),
    *((parse_assignments, text, NOT_OF_FORM)
      for text in ["MWG=\u0663\u0662", "MWG=-1", "MWG=1e3", "M" * 10**6]),
    *((parse_config, content.encode("latin-1"), message)
      for content, message in [
          (IN_FILE + "[" * 500 + "]" * 500 + "}", "nested more than 32 deep"),
          ("[" * 100_000, "nested more than 32 deep"),
          ('{"path": ["cpu"]}', "must hold one object with 'path'"),
          (IN_FILE + "NaN}", "NaN is no number"), (IN_FILE + "9" * 5000 + "}", "digits"),
          (IN_FILE + '6, "MR": 4}', "key 'MR' twice"), ("\xff", "utf-8")]),
]  # fmt: skip


@pytest.mark.parametrize(("read", "given", "message"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_is_no_configuration_is_refused_in_few_words(tmp_path, read, given, message):
    if read is parse_config:
        (tmp_path / "config.json").write_bytes(given)
        given = str(tmp_path / "config.json")
    error = ArgumentError if read in (parse_assignments, parse_config) else ConfigError
    with pytest.raises(error, match=message or None) as caught:
        read(given)
    assert len(str(caught.value).replace(str(tmp_path), "")) < 1000


# ------------------------------------------------------------------ bounds


def test_every_parameter_of_a_family_has_bounds_and_its_default_keeps_them():
    for name, config in EVERY.items():
        defaults = {field.name: field.default for field in fields(config)}
        assert defaults.keys() == BOUNDS[name].keys()
        given = {key: value for key, value in defaults.items() if value is not MISSING}
        assert out_of_bounds(given, BOUNDS[name]) == []


WILD = [-1, 2**15 + 1, 2**31, 2**63, 10**5000, True, 4.0, "4", None, float("nan"), [4]]


@pytest.mark.parametrize("value", WILD, ids=range(len(WILD)))
@pytest.mark.parametrize("family", BOUNDS)
def test_a_parameter_out_of_bounds_is_stated_alone_and_with_its_value(family, value):
    for name in BOUNDS[family]:
        wild = replace(EVERY[family], **{name: value})
        if family in FUSED:
            [stated] = fused.fused_violations(8, 8, wild, H100)
        else:
            [stated] = violations(wild, "float32", H100)
        assert stated.startswith(f"{name} must be ") and f"{name} is " in stated


def test_a_configuration_at_its_highest_values_is_answered_at_once():
    """Whatever is within bounds is examined; a hang would stop the tests."""
    for family in FAMILIES:
        table = BOUNDS[family]
        for pick in (min, max):
            config = config_from_dict(family, {name: pick(table[name]) for name in table})
            for traits in ARCHITECTURES:
                violations(config, "complex128", traits)


# ------------------------------------------------------------------ the schema


def schema_of(allowed):
    if isinstance(allowed, range):
        return {"type": "integer", "minimum": allowed[0], "maximum": allowed[-1]}
    return {"enum": list(allowed)}


def test_the_schema_states_the_parameters_and_their_bounds():
    assert SCHEMA["$defs"]["parameters"] == {
        name: {
            "type": "object",
            "required": [
                field.name for field in fields(family.config_class) if field.default is MISSING
            ],
            "additionalProperties": False,
            "properties": {
                field.name: schema_of(BOUNDS[family.name][field.name])
                for field in fields(family.config_class)
            },
        }
        for name, family in FAMILIES.items()
    }
    stated = [
        (one["if"]["properties"]["path"]["const"], one["then"]["properties"]["config"]["$ref"])
        for one in SCHEMA["$defs"]["record"]["allOf"]
    ]
    assert stated == [(family, f"#/$defs/parameters/{family}") for family in FAMILIES]


@pytest.mark.parametrize(
    "path", sorted(resource_folder("databases").glob("*_*.json")), ids=lambda path: path.stem
)
def test_what_ships_keeps_the_schema(path):
    Draft202012Validator(SCHEMA).validate(json.loads(path.read_text()))


#: What may stand at each place of a record: within bounds, at them, just beyond, and wild.
VALUES = {
    "path": ["cpu", "gemv", "", 7],
    "shape": [[1, 1, 1], [10**10] * 3, [0, 1, 1], [10**10 + 1, 1, 1], [1, 1], [1] * 4, [None] * 3],
    "layout": ["NN", "TT", "CN", 1],
    "alignment": [1, 16, 0, 3, 32, "1"],
    "batch": [2, 10**9, 1, 10**9 + 1, True],
    "gflops": [1, 1e-12, 1e9, 0, 9e-13, 1.1e9, -1, "1", True],
    "config": [
        CPU.as_dict(), CPU.as_dict() | {"MR": 0}, CPU.as_dict() | {"MC": 2**15, "KC": 64}, {},
        CPU.as_dict() | {"MC": 2**15 + 1, "KC": 64}, CPU.as_dict() | {"X": 1}, [],
    ],
    "speed": [1],
}  # fmt: skip
SOUND = {"path": "cpu", "shape": [8, 8, 8], "config": CPU.as_dict()}
#: A record stands alone, in no file.
NO_FRAME = {"type": "object", "required": [], "properties": {}, "additionalProperties": True}


@given(
    st.dictionaries(st.sampled_from(list(VALUES)), st.integers(0, 99), max_size=2),
    st.sampled_from([None, *SOUND]),
)
def test_what_is_read_of_a_record_is_what_the_schema_allows(changes, lacking):
    """Constraints between parameters are no part of the schema, nor broken here."""
    record = dict(SOUND)
    record |= {name: VALUES[name][index % len(VALUES[name])] for name, index in changes.items()}
    record.pop(lacking, None)
    validator = Draft202012Validator(SCHEMA | {"$ref": "#/$defs/record"} | NO_FRAME)
    try:
        read_record(record, "float32", "it")
        is_read = True
    except DatabaseError:
        is_read = False
    assert is_read == validator.is_valid(record), record
