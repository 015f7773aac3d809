"""How partial sums of a tile are joined: each once, whichever work-group comes last.

The sums themselves are tested on devices (tests/codegen/test_stream_k.py).
"""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclgemm.codegen.stream_k import Share, divide
from tests.support.stream_k_model import SMALL_SHAPES, Kernel, Part, kernel_of, neighbours_of


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


class Joining:
    """The join of partial sums, with groups that arrive in any order."""

    def __init__(self, kernel: Kernel, share: Share) -> None:
        self.kernel = kernel
        self.counters = [0] * share.counters
        self.sums: dict[int, list[int]] = {}
        self.written = self.read = 0
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
            self.written += 1
            leader = rank // (distance * neighbours) * (distance * neighbours)
            members = min(neighbours, (sharers - leader + distance - 1) // distance)
            counter = level + kernel.slot_of(lowest + leader, leader == 0)
            # Nobody else's arrivals are counted there.
            assert self.counters_of_tile.setdefault(counter, part.tile) == part.tile
            self.counters[counter] += 1
            if self.counters[counter] == members:
                self.counters[counter] = 0
                rank = leader
                self.read += members
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
    assert joining.written == joining.read == share.partial_sums(tiles, slabs)


@pytest.mark.parametrize("sharers", [2, 7, 8, 9, 64, 65, 100, 264, 1000])
def test_one_tile_among_many_groups(sharers):
    share = divide(tiles=1, slabs=2 * sharers, groups=sharers)
    assert share == Share(sharers, 0)
    joining = Joining(kernel_of(1, 2 * sharers, share), share)
    for group in reversed(range(sharers)):
        (part,) = joining.kernel.parts(group)
        joining.arrive(part)
    assert joining.results == {0: [list(range(sharers))]}
    assert joining.written == joining.read == share.partial_sums(1, 2 * sharers)
