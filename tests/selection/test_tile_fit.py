"""Edges and idle compute units, against counting them."""

import math
from dataclasses import replace

import pytest

from pyclgemm import CpuConfig, XgemmDirectConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.selection.distance import Features, excess_octaves
from tests.support.facts import by_distance, recorded

TILE = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=2
)
SHARED = replace(TILE, FILL=2)
GEMV = GemvConfig(MR=2, WGS=64, LANES_N=8, VW=2)


@pytest.mark.parametrize(
    ("config", "sizes", "factor"),
    [
        (TILE, (128, 128, 64), 1),
        (TILE, (128, 97, 64), 128 / 97),  # an edge
        (TILE, (128, 128, 50), 64 / 50),
        (TILE, (32, 32 * 17, 64), 32 / 17),  # a tile more than there are units
        (TILE, (32, 32, 64), 16),  # one unit works
        (TILE, (0, 32, 0), 32 * 16 * 16),
        (SHARED, (32, 32, 16 * 64), 1),  # its slabs are divided among all
        (SHARED, (32 * 7, 32 * 7, 16 * 64), 1),
        (GEMV, (2, 16 * 16, 33), 1),
        (GEMV, (16 * 16, 2, 33), 1),
        (GEMV, (3, 16 * 8, 33), 4 / 3),
        (CpuConfig(MR=6, NR=16, KC=256, VW=8), (7, 17, 3), 1),
    ],
)
def test_time_that_is_lost(config, sizes, factor):
    assert excess_octaves(config, sizes, units=16) == pytest.approx(math.log2(factor))


def test_of_records_as_near_the_one_whose_tiles_fit_comes_first():
    small = recorded("64x512x512", replace(TILE, WGD=16, VWMD=2))
    large = recorded("256x512x512", replace(TILE, WGD=64))
    wanted = Features((128, 512, 512))
    assert by_distance([large, small], wanted) == [large, small]
    # 16 tiles leave most of 100 units idle, and left fewer idle at their record.
    assert by_distance([large, small], wanted, units=100) == [small, large]


def test_a_record_is_not_blamed_for_what_it_lost_already():
    record = recorded("40x40x40", TILE)
    other = recorded("160x160x160", replace(TILE, WGD=16, VWMD=2))
    assert by_distance([other, record], Features((40, 40, 40)), units=64)[0] == record


def test_the_tiles_of_a_batch_fill_the_device_together():
    alone = excess_octaves(TILE, (64, 64, 64), 16)
    assert excess_octaves(TILE, (64, 64, 64), 16, products=64) < alone
    assert excess_octaves(TILE, (64, 64, 64), 16, products=1) == alone
