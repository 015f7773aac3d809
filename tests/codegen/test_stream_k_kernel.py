"""What a launch with shared tiles is given, and that its kernel computes what the model does."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclgemm.codegen.stream_k import FAN_IN, Share, divide
from pyclgemm.families.registry import make_schedule
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.problem.shape import GemmShape
from tests.support.facts import gpu
from tests.support.products import product_of
from tests.support.stream_k_model import SHAPES, kernel_of, neighbours_of

INDIRECT = XgemmConfig(
    MWG=32, NWG=16, KWG=8, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2, FILL=2
)
DIRECT = XgemmDirectConfig(
    WGD=32, NWGD=16, KWGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=2, VWND=2,
    PADA=0, PADB=0, FILL=2,
)  # fmt: skip


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 4), ("complex128", 16)])
def test_the_launch_gets_its_groups_rounds_and_workspaces(config, dtype, size):
    traits = gpu(compute_units=5, fence_options="-cl-std=CL3.0")
    product = GemmShape(100, 50, 80).product(dtype)
    schedule = make_schedule(product, config, traits)
    share = divide(tiles=4 * 4, slabs=10, groups=10)
    assert share == Share(10, 0)
    launch = schedule.launches[-1]
    assert launch.groups == (10,)
    assert launch.values["rounds"] == 0
    assert launch.source.options == "-cl-std=CL3.0"
    assert schedule.workspaces["partial_sums"] == share.slots * 32 * 16 * size
    assert schedule.workspaces["counters"] == 4 * share.counters


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
def test_without_products_a_tile_has_one_slab_of_nothing(config):
    schedule = make_schedule(product_of(100, 50, 0), config, gpu(compute_units=5))
    assert schedule.launches[-1].groups == (10,)
    assert divide(tiles=16, slabs=1, groups=10) == Share(10, 0)


def test_a_problem_of_no_fill_has_no_workspaces():
    schedule = make_schedule(
        GemmShape(100, 50, 80).product(), replace(DIRECT, FILL=0), gpu(compute_units=5)
    )
    assert schedule.workspaces == {}
    assert schedule.launches[0].groups == (16,)
    assert "rounds" not in schedule.launches[0].values


# That the kernels compute what `stream_k_model.Kernel` does


def _in_python(expression: str) -> str:
    """A C expression of non-negative integers."""
    expression = re.sub(r"\((?:int|long|extent|float|slab_count)\)", "", expression)
    return re.sub(r"(?<=\d)L\b", "", expression).replace("/", "//")


def _initial_value(text: str, name: str) -> str:
    found = re.search(rf"\b{name} = (.*?);", text)
    assert found, f"{name} is given no value"
    return _in_python(found[1])


def _returned(text: str, function: str) -> str:
    found = re.search(rf"\b{function}\(.*?\)\n\{{\n\s*return (.*?);", text)
    assert found, f"{function} returns nothing"
    return _in_python(found[1])


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
@settings(max_examples=100)
@given(**SHAPES, slab=st.integers(0), group=st.integers(0))
def test_the_kernels_text_computes_the_same(config, tiles, slabs, groups, slab, group):
    text = _text(config)
    kernel = kernel_of(tiles, slabs, divide(tiles, slabs, groups))
    groups, divided = kernel.groups, kernel.divided
    facts = {"groups": groups, "group": group % groups, "slabs": slabs, "divided": divided}

    def value(expression, **more):
        return eval(expression, {"max": max, "min": min}, facts | more)

    assert value(_initial_value(text, "whole_tiles"), rounds=kernel.rounds) == kernel.whole_tiles
    assert divided == value(
        _initial_value(text, "divided"), tiles_m=1, tiles_n=tiles, whole_tiles=kernel.whole_tiles
    )
    assert value(_initial_value(text, "slabs"), k=slabs * 8, KWG=8) == slabs
    assert value(_initial_value(text, "slabs"), k=0, KWG=8) == 1
    for is_beginning in (False, True):
        slot = value(_returned(text, "slot_of"), is_beginning=is_beginning)
        assert slot == kernel.slot_of(group % groups, is_beginning)
    for sharers in (2, 9, 64, 65, groups):
        neighbours = value(
            _initial_value(text, "neighbours"), sharers=sharers, FAN_IN=FAN_IN,
            ceil=math.ceil, sqrt=math.sqrt,
        )  # fmt: skip
        assert neighbours == neighbours_of(sharers)
        assert neighbours**2 >= sharers  # two levels have counters
    if divided:
        found = value(_returned(text, "group_of"), slab=slab % divided)
        assert found == kernel.group_of(slab % divided)
        position = value(_initial_value(text, "slab_count position"))
        end = value(_initial_value(text, "end"))
        assert (position, end) == (
            divided * (group % groups) // groups,
            divided * (group % groups + 1) // groups,
        )


@pytest.mark.parametrize("config", [INDIRECT, DIRECT], ids=lambda config: config.family)
def test_sums_are_in_memory_before_the_arrival_and_read_after_it(config):
    # No runtime of a CPU shows a missing fence: the order is that of CUDA's threadFenceReduction.
    text = _text(config)
    place = 0
    for statement in (
        "sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];",
        "device_fence();",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "arrived = atomic_inc(counter) + 1;",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "device_fence();",
        "accumulators[i][j] += sums[(i * NWI + j) * TILE_ITEMS];",
    ):
        place = text.find(statement, place)
        assert place > 0, f"{statement} is missing, or comes too early"
        place += len(statement)
    assert text.count("device_fence();") == 2


@functools.cache
def _text(config):
    traits = gpu(compute_units=5, fence_options="")
    schedule = make_schedule(GemmShape(100, 50, 80).product(), config, traits)
    return schedule.launches[-1].source.text
