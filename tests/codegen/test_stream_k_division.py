"""How many work-groups divide the slabs of a product's tiles among them, and in which integers.

That each slab is added once is tested on devices (tests/codegen/test_stream_k.py).
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyclgemm.codegen.stream_k import Division, divide, stream_k, tile_count

SHAPES = {
    "tiles": st.one_of(st.integers(1, 40), st.integers(1, 3000)),
    "slabs": st.one_of(st.integers(1, 12), st.integers(1, 7000)),
    "groups": st.one_of(st.integers(1, 12), st.integers(1, 600)),
}


@settings(max_examples=200)
@given(**SHAPES)
def test_no_more_groups_than_asked_for_and_none_without_work(tiles, slabs, groups):
    division = divide(tiles, slabs, groups)
    whole_tiles = division.rounds * division.groups
    assert 1 <= division.groups <= groups
    assert 0 <= whole_tiles <= tiles
    # A group has whole tiles, or of the divided ones a slab at least.
    assert division.rounds or (tiles - whole_tiles) * slabs >= division.groups


@pytest.mark.parametrize(
    ("tiles", "slabs", "groups", "wanted"),
    [
        (132, 10, 132, Division(132, 1)),  # one each
        (264, 10, 132, Division(132, 2)),
        (300, 10, 132, Division(132, 1)),  # one whole, and 168 divided
        (133, 10, 132, Division(132, 0)),
        (66, 10, 132, Division(132, 0)),  # halves
        (60, 10, 132, Division(120, 0)),  # equal parts keep nine of ten busy
        (70, 10, 132, Division(132, 0)),  # halves would be 140 groups, whole tiles 70
        (100, 10, 132, Division(132, 0)),
        (5, 1, 132, Division(5, 1)),  # nothing to divide
        (1, 3, 132, Division(1, 1)),  # less than two slabs for each of two
        (1, 4, 132, Division(2, 0)),
        (1, 1, 1, Division(1, 1)),
    ],
)
def test_divisions(tiles, slabs, groups, wanted):
    assert divide(tiles, slabs, groups) == wanted


@pytest.mark.parametrize(
    ("m", "n", "tiles"), [(1, 1, 1), (32, 16, 1), (33, 16, 2), (33, 17, 4), (64, 160, 20)]
)
def test_tiles_of_a_result(m, n, tiles):
    assert tile_count(m, n, rows=32, columns=16) == tiles


@example(tiles=263, slabs=124_000, groups=132)  # just beyond 32 bits
@given(**SHAPES)
def test_counts_of_32_bits_are_used_where_all_products_fit(tiles, slabs, groups):
    division = divide(tiles, slabs, groups)
    divided = (tiles - division.rounds * division.groups) * slabs
    largest = divided * division.groups + division.groups
    assert largest < 2**32 or stream_k(slabs, groups, 64).counts == "ulong"


def test_counts_of_long_products_have_64_bits():
    assert stream_k(slabs=64, groups=132, sums=64).counts == "uint"
    assert stream_k(slabs=10**6, groups=132, sums=64).counts == "ulong"
