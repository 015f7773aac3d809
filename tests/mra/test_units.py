"""Transforms of tensors by matrix units, with the instructions emulated."""

import re
from dataclasses import replace

import pytest

from pyclgemm.codegen.matrix_units import nvidia_double_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.mra import codegen, transform
from pyclgemm.mra.choice import TransformChoice
from pyclgemm.mra.codegen import make_schedule
from pyclgemm.mra.fused import FusedUnitConfig
from tests.support.checks import check_transform
from tests.support.emulation.matrix import skip_without_emulation, without_units

#: Calls of the function whose definition the emulation changes.
CALL = re.compile(r"(?<!void )multiply_accumulate\(")


def emulated(source, choice):
    """A kernel for a matrix unit in plain C; its work-group must be one sub-group."""
    assert choice.unit and source.local_size[0] == choice.unit.lanes
    named = re.sub(r"\bK\b", "EXTENT", source.text)  # the emulation has a K of its own
    plain = without_units(replace(source, text=named), choice.unit)
    text = CALL.sub("multiply_accumulate(exchange, ", plain.text)
    return replace(plain, text=f"#define ITEMS {choice.unit.lanes}\n{text}")


@pytest.fixture
def check(fresh_queue, monkeypatch):
    """A function that transforms random tensors by emulated units of an architecture."""
    skip_without_emulation(fresh_queue.device)

    def by_units(architecture, count, k, out="contiguous", config=None):
        traits = typical_traits(architecture)

        def schedule(described, choice, _):
            if config is not None:
                unit = nvidia_double_unit(config.UNIT_M, config.UNIT_K)
                choice = TransformChoice("L5", "fused unit", "", config, unit)
            made = make_schedule(described, choice, traits)
            launches = (replace(one, source=emulated(one.source, choice)) for one in made.launches)
            return replace(made, launches=tuple(launches))

        monkeypatch.setattr(codegen, "UNIT_SUB_GROUPS", 1)
        monkeypatch.setattr(transform, "make_schedule", schedule)
        monkeypatch.setattr(transform, "traits_of", lambda device: traits)
        check_transform(fresh_queue, count, k, "float64", "L4", out=out)

    return by_units


@pytest.mark.parametrize(("architecture", "k"), [("sm_80", 6), ("sm_90", 9), ("gfx90a", 10)])
def test_contractions(check, architecture, k):
    check(architecture, 2, k)


@pytest.mark.parametrize(
    ("k", "config", "strided"),
    [
        (k, FusedUnitConfig(rows, depth, tensors, parts, 1, slices, stages), strided)
        for k, rows, depth, tensors, parts, slices, stages, strided in [
            (8, 8, 4, 2, 1, 3, 1, False), (10, 16, 4, 1, 1, 2, 1, False),
            (7, 8, 4, 2, 1, 1, 1, True), (16, 16, 16, 1, 1, 1, 1, False),
            (13, 16, 8, 1, 1, 2, 1, False), (20, 8, 4, 1, 3, 1, 1, False),
            (12, 16, 16, 1, 1, 1, 1, False),  # depths are padded
            (20, 16, 8, 1, 1, 1, 1, False),  # rows are padded
            (10, 16, 4, 2, 1, 1, 2, False), (18, 16, 4, 1, 2, 1, 1, True),
            (9, 16, 4, 2, 1, 4, 2, False),  # 18 slices by fours
            (16, 8, 4, 1, 1, 1, 2, False), (20, 16, 4, 1, 1, 1, 1, False),
        ]
    ],
)  # fmt: skip
def test_fused(check, k, config, strided):
    check("sm_90", 3, k, "every other" if strided else "contiguous", config)
