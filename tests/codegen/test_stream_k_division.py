"""How tiles are divided among work-groups: each slab once, in shares that differ by one slab.

`stream_k_model.Kernel` repeats in Python what the work-groups compute;
tests/codegen/test_stream_k_kernel.py holds it against the kernels' text.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings

from pyclgemm.codegen.stream_k import Share, divide, sharing, tile_count
from tests.support.stream_k_model import SHAPES, SMALL_SHAPES, kernel_of


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


@example(tiles=263, slabs=124_000, groups=132)  # just beyond 32 bits
@given(**SHAPES)
def test_counts_of_32_bits_are_used_where_all_products_fit(tiles, slabs, groups):
    kernel = kernel_of(tiles, slabs, divide(tiles, slabs, groups))
    largest = kernel.divided * kernel.groups + kernel.groups
    assert largest < 2**32 or sharing(slabs, groups, 64).counts == "ulong"


def test_counts_of_long_products_have_64_bits():
    assert sharing(slabs=64, groups=132, sums=64).counts == "uint"
    assert sharing(slabs=10**6, groups=132, sums=64).counts == "ulong"
