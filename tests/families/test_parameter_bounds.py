"""The bounds of parameters: kept by all that ships and is searched, and stated in the schema."""

import json
import random
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ArgumentError, ConfigError, DatabaseError
from pyclgemm.families.registry import (
    FAMILIES,
    as_config,
    check_config,
    config_from_dict,
    violations,
)
from pyclgemm.families.tiled.config import XgemmConfig
from pyclgemm.mra.fused import (
    FUSED_BOUNDS,
    UNIT_BOUNDS,
    FusedConfig,
    FusedUnitConfig,
    fused_violations,
)
from pyclgemm.problem.bounds import out_of_bounds
from pyclgemm.resources import resource_folder
from pyclgemm.selection.overrides import parse_assignments, parse_config
from pyclgemm.selection.records import parameter_schemas, read_record
from pyclgemm.tuning.search import search_space
from tests.support.typical_configs import (
    CPU,
    DIRECT,
    GEMV,
    GEMV_UNIT,
    INDIRECT,
    MATRIX,
    SMALL,
    SMALL_CPU,
    WGMMA,
)

CONFIGS = {
    config.family: config
    for config in (INDIRECT, DIRECT, GEMV, GEMV_UNIT, MATRIX, WGMMA, CPU, SMALL, SMALL_CPU)
}
FUSED = {
    "transform3d_fused": FusedConfig(2, 1, 1, 64, 2),
    "transform3d_fused_unit": FusedUnitConfig(8, 4, 1, 1, 8, 1),
}
BOUNDS = {name: family.bounds for name, family in FAMILIES.items()} | {
    "transform3d_fused": FUSED_BOUNDS,
    "transform3d_fused_unit": UNIT_BOUNDS,
}
ARCHITECTURES = ("sm_90", "gfx1100", "x86-64-v4", "intel_gpu")
SCHEMA = json.loads((resource_folder("databases") / "schema.json").read_text())


@pytest.mark.parametrize("family", BOUNDS)
def test_every_parameter_of_a_family_has_bounds_and_its_default_keeps_them(family):
    cls = type((CONFIGS | FUSED)[family])
    assert {field.name for field in fields(cls)} == BOUNDS[family].keys()
    defaults = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
    assert out_of_bounds(defaults, BOUNDS[family]) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tuner_stays_within_the_bounds(family):
    rng = random.Random(family)
    for architecture in ARCHITECTURES:
        space = search_space(family, "float32", typical_traits(architecture))
        if not all(space.axes.values()):
            continue
        configs = (space.config(space.draw(rng)) for _ in range(200))
        for config in filter(None, configs):
            assert out_of_bounds(config.as_dict(), BOUNDS[family]) == []


# ------------------------------------------------------------------ beyond the bounds

WILD: list[Any] = [-1, 2**15 + 1, 2**31, 2**63, 10**5000, True, 4.0, "4", None, float("nan"), [4]]


@pytest.mark.parametrize("value", WILD, ids=range(len(WILD)))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_parameter_out_of_bounds_is_stated_alone_and_with_its_value(family, value):
    config = CONFIGS[family]
    for name in config.as_dict():
        wild = replace(config, **{name: value})
        [stated] = violations(wild, "float32", typical_traits("sm_90"))
        assert stated.startswith(f"{name} must be ")
        assert f"{name} is " in stated
        with pytest.raises(ConfigError, match=f"{name} must be "):
            check_config(wild, "float32")


@pytest.mark.parametrize("family", FUSED)
def test_fused_transforms_are_bounded_too(family):
    config, traits = FUSED[family], typical_traits("sm_90")
    assert fused_violations(8, 8, config, traits) == []
    for name in vars(config):
        for value in WILD:
            wild: Any = replace(config, **{name: value})
            [stated] = fused_violations(8, 8, wild, traits)
            assert stated.startswith(f"{name} must be ")


@pytest.mark.parametrize(
    "given_config",
    [
        {"path": ["cpu"]},
        {"path": {"cpu": 1}},
        {"path": "cpu", 7: 8},
        {"path": "cpu", "X" * 10**6: 8},
        {"path": "cpu"} | CPU.as_dict() | {"MR": 10**5000},
        {"path": "cpu"} | CPU.as_dict() | {"MR": "6"},
        {"MWG": 64},
        64,
    ],
    ids=range(8),
)
def test_what_is_no_configuration_is_refused_in_few_words(given_config):
    with pytest.raises(ConfigError) as caught:
        check_config(as_config(given_config), "float32")
    assert len(str(caught.value)) < 1000


def test_a_value_that_nests_deeply_can_be_named():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConfigError, match="too long to show"):
        as_config({"path": "cpu"} | CPU.as_dict() | {"MR": deep})
    with pytest.raises(ConfigError):
        as_config({"MR": deep})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MWG=" + "9" * 5000, "MWG has a value of 5000 digits"),
        ("MWG=\u0663\u0662", "is not of the form NAME=VALUE"),
        ("MWG=-1", "is not of the form NAME=VALUE"),
        ("MWG=1e3", "is not of the form NAME=VALUE"),
        ("M" * 10**6, "is not of the form NAME=VALUE"),
    ],
    ids=range(5),
)
def test_numbers_in_texts_that_are_not_read(text, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        parse_assignments(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"path": "cpu", "MR": ' + "[" * 500 + "]" * 500 + "}", "nested more than 32 deep"),
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"path": ["cpu"]}', "must hold one object with 'path'"),
        ('{"path": "cpu", "MR": NaN}', "NaN is no number"),
        ('{"path": "cpu", "MR": ' + "9" * 5000 + "}", "digits"),
        ('{"path": "cpu", "MR": 6, "MR": 4}', "key 'MR' twice"),
        ("\xff", "utf-8"),
    ],
    ids=range(7),
)
def test_a_configuration_file_that_is_not_read(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ArgumentError, match=message):
        parse_config(str(path))


# ------------------------------------------------------------------ the schema


def test_the_schema_states_the_parameters_and_their_bounds():
    assert SCHEMA["$defs"]["parameters"] == parameter_schemas()
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


@given(
    st.dictionaries(st.sampled_from(list(VALUES)), st.integers(0, 99), max_size=2),
    st.sampled_from([None, *SOUND]),
)
def test_what_is_read_of_a_record_is_what_the_schema_allows(changes, lacking):
    """Constraints between parameters are no part of the schema, nor broken here."""
    record: dict[str, Any] = dict(SOUND)
    record |= {name: VALUES[name][index % len(VALUES[name])] for name, index in changes.items()}
    record.pop(lacking, None)
    validator = Draft202012Validator(SCHEMA | {"$ref": "#/$defs/record"} | NO_FRAME)
    try:
        read_record(record, "float32", "it")
        is_read = True
    except DatabaseError:
        is_read = False
    assert is_read == validator.is_valid(record), record


NO_FRAME: dict[str, Any] = {"type": "object", "required": [], "properties": {},
                            "additionalProperties": True}  # fmt: skip


def test_a_configuration_at_its_highest_values_is_answered_at_once():
    """Whatever is within bounds is examined; a hang would stop the tests."""
    for family, table in BOUNDS.items():
        if family in FUSED:
            continue
        for pick in (min, max):
            config = config_from_dict(family, {name: pick(table[name]) for name in table})
            for architecture in ARCHITECTURES:
                violations(config, "complex128", typical_traits(architecture))
    assert isinstance(config_from_dict("indirect", INDIRECT.as_dict()), XgemmConfig)
