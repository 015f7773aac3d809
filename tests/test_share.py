"""How tiles are divided among work-groups: each slab once, and each partial sum joined once.

`Kernel` repeats in Python what the work-groups compute in kernels_cl/share.mako, and a test
holds both against each other; the sums themselves are tested on devices (tests/test_stream_k.py).
"""

from __future__ import annotations

import functools
import math
import random
import re
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from facts import gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclgemm.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.inquiry import Inquiry, product_of
from pyclgemm.schedule import make_schedule
from pyclgemm.share import FAN_IN, Share, divide, tile_count


@dataclass(frozen=True)
class Part:
    """Slabs `first` to `last` of a tile, as one work-group computes them."""

    group: int
    tile: int
    first: int
    last: int


@dataclass(frozen=True)
class Kernel:
    """What kernels_cl/share.mako computes from its arguments."""

    tiles: int
    slabs: int
    groups: int
    rounds: int

    @property
    def whole_tiles(self) -> int:
        return self.rounds * self.groups

    @property
    def divided(self) -> int:
        return (self.tiles - self.whole_tiles) * self.slabs

    def parts(self, group: int) -> list[Part]:
        position = self.divided * group // self.groups
        end = self.divided * (group + 1) // self.groups
        parts = []
        turn = 0
        while turn < self.rounds or position < end:
            tile, first, last = turn * self.groups + group, 0, self.slabs
            if turn >= self.rounds:
                tile = self.whole_tiles + position // self.slabs
                first = position % self.slabs
                last = min(self.slabs, first + end - position)
                position += last - first
            parts.append(Part(group, tile, first, last))
            turn += 1
        return parts

    def group_of(self, slab: int) -> int:
        return ((slab + 1) * self.groups - 1) // self.divided

    @staticmethod
    def slot_of(group: int, is_beginning: bool) -> int:
        return 2 * group + is_beginning

    def sharers(self, tile: int) -> tuple[int, int]:
        """The lowest group that shares a tile, and how many do."""
        beginning = (tile - self.whole_tiles) * self.slabs
        lowest = self.group_of(beginning)
        return lowest, self.group_of(beginning + self.slabs - 1) - lowest + 1

    def is_partial(self, part: Part) -> bool:
        return part.last - part.first < self.slabs

    def slot(self, part: Part) -> int:
        """Where the first partial sums of a group go."""
        lowest, _ = self.sharers(part.tile)
        return self.slot_of(part.group, part.group == lowest)


def kernel_of(tiles: int, slabs: int, share: Share) -> Kernel:
    return Kernel(tiles, slabs, share.groups, share.rounds)


SHAPES = {
    "tiles": st.one_of(st.integers(1, 40), st.integers(1, 3000)),
    "slabs": st.one_of(st.integers(1, 12), st.integers(1, 7000)),
    "groups": st.one_of(st.integers(1, 12), st.integers(1, 600)),
}
SMALL_SHAPES = {
    "tiles": st.integers(1, 30),
    "slabs": st.integers(1, 200),
    "groups": st.integers(1, 150),
}


@settings(max_examples=200)
@given(**SHAPES)
def test_no_more_groups_than_asked_for_and_none_without_work(tiles, slabs, groups):
    share = divide(tiles, slabs, groups)
    kernel = kernel_of(tiles, slabs, share)
    assert 1 <= share.groups <= groups
    assert 0 <= kernel.whole_tiles <= tiles
    # A group has whole tiles, or of the divided ones a slab at least.
    assert share.rounds or kernel.divided >= share.groups


@settings(max_examples=100)
@given(**SMALL_SHAPES)
def test_each_slab_belongs_to_exactly_one_group(tiles, slabs, groups):
    kernel = kernel_of(tiles, slabs, divide(tiles, slabs, groups))
    times = np.zeros((tiles, slabs), int)
    for group in range(kernel.groups):
        for part in kernel.parts(group):
            assert 0 <= part.first < part.last <= slabs
            times[part.tile, part.first : part.last] += 1
    assert (times == 1).all()


@settings(max_examples=100)
@given(**SMALL_SHAPES)
def test_a_group_works_on_one_end_and_one_beginning_at_most(tiles, slabs, groups):
    kernel = kernel_of(tiles, slabs, divide(tiles, slabs, groups))
    for group in range(kernel.groups):
        partial = [part for part in kernel.parts(group) if kernel.is_partial(part)]
        ends = [part for part in partial if part.first > 0]
        beginnings = [part for part in partial if part.first == 0]
        assert len(ends) <= 1
        assert len(beginnings) <= 1


@settings(max_examples=100)
@given(**SMALL_SHAPES)
def test_the_kernels_number_of_sharers_is_the_number_of_groups_that_arrive(tiles, slabs, groups):
    kernel = kernel_of(tiles, slabs, divide(tiles, slabs, groups))
    arriving: dict[int, list[Part]] = {}
    for group in range(kernel.groups):
        for part in kernel.parts(group):
            if kernel.is_partial(part):
                arriving.setdefault(part.tile, []).append(part)
    for tile, parts in arriving.items():
        lowest, sharers = kernel.sharers(tile)
        assert [part.group for part in parts] == list(range(lowest, lowest + sharers))
        # The lowest has the beginning, and the others ends or middles: they follow one another.
        assert [part.first for part in parts[1:]] == [part.last for part in parts[:-1]]


@settings(max_examples=100)
@given(**SMALL_SHAPES)
def test_slots_never_collide_and_suffice(tiles, slabs, groups):
    share = divide(tiles, slabs, groups)
    kernel = kernel_of(tiles, slabs, share)
    slots = Counter(
        kernel.slot(part)
        for group in range(kernel.groups)
        for part in kernel.parts(group)
        if kernel.is_partial(part)
    )
    assert all(count == 1 for count in slots.values())
    assert all(0 <= slot < share.slots for slot in slots)


def neighbours_of(sharers: int) -> int:
    """How many partial sums are joined at once."""
    return max(FAN_IN, math.ceil(math.sqrt(sharers)))


class Joining:
    """The join of partial sums, with groups that arrive in any order."""

    def __init__(self, kernel: Kernel, share: Share) -> None:
        self.kernel = kernel
        self.counters = [0] * share.counters
        self.sums: dict[int, list[int]] = {}
        self.counters_of_tile: dict[int, int] = {}
        self.results: dict[int, list[list[int]]] = {}

    def arrive(self, part: Part) -> None:
        """What a work-group does after its part of a tile; sums are lists of the groups added."""
        kernel = self.kernel
        lowest, sharers = kernel.sharers(part.tile)
        rank = part.group - lowest
        accumulators = [part.group]
        neighbours = neighbours_of(sharers)
        level, distance = 0, 1
        while distance < sharers and rank >= 0:
            self.sums[kernel.slot_of(lowest + rank, rank == 0)] = accumulators
            leader = rank // (distance * neighbours) * (distance * neighbours)
            members = min(neighbours, (sharers - leader + distance - 1) // distance)
            counter = level + kernel.slot_of(lowest + leader, leader == 0)
            # Nobody else's arrivals are counted there.
            assert self.counters_of_tile.setdefault(counter, part.tile) == part.tile
            self.counters[counter] += 1
            if self.counters[counter] == members:
                self.counters[counter] = 0
                rank = leader
                accumulators = []
                for member in range(members):
                    source = leader + member * distance
                    accumulators = (
                        accumulators + self.sums[kernel.slot_of(lowest + source, source == 0)]
                    )
            else:
                rank = -1
            level += 2 * kernel.groups
            distance *= neighbours
        if rank >= 0:
            self.results.setdefault(part.tile, []).append(accumulators)


@settings(max_examples=100)
@given(**SMALL_SHAPES, seed=st.integers(0, 2**32 - 1))
def test_joining_adds_each_partial_sum_once_whoever_comes_last(tiles, slabs, groups, seed):
    share = divide(tiles, slabs, groups)
    kernel = kernel_of(tiles, slabs, share)
    parts = [
        part
        for group in range(kernel.groups)
        for part in kernel.parts(group)
        if kernel.is_partial(part)
    ]
    random.Random(seed).shuffle(parts)
    joining = Joining(kernel, share)
    for part in parts:
        joining.arrive(part)
    for tile in {part.tile for part in parts}:
        lowest, sharers = kernel.sharers(tile)
        # In the order of the groups, and by one of them alone.
        assert joining.results[tile] == [list(range(lowest, lowest + sharers))]
    assert not any(joining.counters), "counters are not left at zero"


@pytest.mark.parametrize("sharers", [2, 7, 8, 9, 64, 65, 100, 264, 1000])
def test_one_tile_among_many_groups(sharers):
    share = divide(tiles=1, slabs=2 * sharers, groups=sharers)
    assert share == Share(sharers, 0)
    joining = Joining(kernel_of(1, 2 * sharers, share), share)
    for group in reversed(range(sharers)):
        (part,) = joining.kernel.parts(group)
        joining.arrive(part)
    assert joining.results == {0: [list(range(sharers))]}


@pytest.mark.parametrize(
    ("tiles", "slabs", "groups", "wanted"),
    [
        (132, 10, 132, Share(132, 1)),  # one each
        (264, 10, 132, Share(132, 2)),
        (300, 10, 132, Share(132, 1)),  # one whole, and 168 divided
        (133, 10, 132, Share(132, 0)),
        (66, 10, 132, Share(132, 0)),  # halves
        (60, 10, 132, Share(120, 0)),  # equal parts keep nine of ten busy
        (70, 10, 132, Share(132, 0)),  # halves would be 140 groups, whole tiles 70
        (100, 10, 132, Share(132, 0)),
        (5, 1, 132, Share(5, 1)),  # nothing to divide
        (1, 3, 132, Share(1, 1)),  # less than two slabs for each of two
        (1, 4, 132, Share(2, 0)),
        (1, 1, 1, Share(1, 1)),
    ],
)
def test_divisions(tiles, slabs, groups, wanted):
    assert divide(tiles, slabs, groups) == wanted


@settings(max_examples=100)
@given(**SHAPES)
def test_no_group_gets_much_more_than_its_share(tiles, slabs, groups):
    share = divide(tiles, slabs, groups)
    kernel = kernel_of(tiles, slabs, share)
    work = [
        sum(part.last - part.first for part in kernel.parts(group))
        for group in (0, share.groups // 2, share.groups - 1)
    ]
    assert max(work) - min(work) <= 1


@pytest.mark.parametrize(
    ("m", "n", "tiles"), [(1, 1, 1), (32, 16, 1), (33, 16, 2), (33, 17, 4), (64, 160, 20)]
)
def test_tiles_of_a_result(m, n, tiles):
    assert tile_count(m, n, rows=32, columns=16) == tiles


# What the launch is given


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
    product = product_of(Inquiry(100, 50, 80, dtype))
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
    schedule = make_schedule(product_of(Inquiry(100, 50, 0)), config, gpu(compute_units=5))
    assert schedule.launches[-1].groups == (10,)
    assert divide(tiles=16, slabs=1, groups=10) == Share(10, 0)


def test_a_problem_of_no_fill_has_no_workspaces():
    schedule = make_schedule(
        product_of(Inquiry(100, 50, 80)), replace(DIRECT, FILL=0), gpu(compute_units=5)
    )
    assert schedule.workspaces == {}
    assert schedule.launches[0].groups == (16,)
    assert "rounds" not in schedule.launches[0].values


# That the kernels compute what `Kernel` does


def _in_python(expression: str) -> str:
    """A C expression of non-negative integers."""
    expression = re.sub(r"\((?:int|long|extent|float)\)", "", expression)
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
        position = value(_initial_value(text, "long position"))
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
    schedule = make_schedule(product_of(Inquiry(100, 50, 80)), config, traits)
    return schedule.launches[-1].source.text
