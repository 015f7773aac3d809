"""How tiles fill a device, the bytes that they move, and what follows: all by hand."""

import dataclasses

import pytest

from pyclgemm import SmallConfig
from pyclgemm.analysis.bottleneck import Utilisation, bounds_of, judge, utilise
from pyclgemm.analysis.ceilings import Ceilings
from pyclgemm.analysis.occupancy import Occupancy
from pyclgemm.codegen.stream_k import Division
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.families.traffic import Traffic
from tests.support.facts import product_of
from tests.support.families import load_bytes, traffic_of

INDIRECT = XgemmConfig(
    MWG=128, NWG=64, KWG=16, MDIMC=16, NDIMC=16, MDIMA=16, NDIMB=16, KWI=2, VWM=4, VWN=4
)
DIRECT = XgemmDirectConfig(
    WGD=32, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=2, VWND=4, KWGD=16
)
CPU = CpuConfig(MR=6, NR=64, KC=512, VW=16)


def problem(m, n, k, **others):
    return product_of(m, n, k, **others).problem


def test_tiles_waves_and_edges():
    found = utilise(problem(200, 64, 40), INDIRECT, 2, 132, 1)
    assert found.tiles == 2
    assert found.waves == found.tail == found.balance == 2 / 132
    assert found.useful == 200 * 40 / (256 * 48)


def test_one_group_too_many_costs_a_wave():
    exact = utilise(problem(128 * 132, 64, 16), INDIRECT, 132, 132, 1)
    assert (exact.waves, exact.tail, exact.balance, exact.useful) == (1, 1, 1, 1)
    more = utilise(problem(128 * 133, 64, 16), INDIRECT, 133, 132, 1)
    assert more.balance == more.tail == 133 / 264
    # Where two groups are resident on a unit, the second wave is still half empty.
    assert utilise(problem(128 * 133, 64, 16), INDIRECT, 133, 132, 2).waves == 133 / 264


def test_a_family_of_whole_products_has_no_tiles():
    config = SmallConfig(MWI=2, NWI=2, WGS=32)
    found = utilise(problem(8, 64, 16), config, 4, 4, None)
    assert (found.tiles, found.useful, found.balance) == (None, None, 1)
    traffic = traffic_of(problem(8, 64, 16), config, 32)
    assert traffic == Traffic(4 * (8 * 16 + 16 * 64 + 8 * 64), 0, None, None, None)
    assert load_bytes(problem(8, 64, 16), config) == {}


def test_traffic_of_the_indirect_path():
    found = traffic_of(problem(256, 128, 40), INDIRECT, 32)
    assert found.least == 4 * (256 * 40 + 40 * 128 + 256 * 128)
    # b is row-major, but k = 40 is no multiple of a slab: both are packed.
    assert found.packing == 2 * 4 * (256 * 40 + 40 * 128)
    assert found.tiles == 4 * 4 * 48 * (128 + 64)
    # A work-item reads 8 + 4 entries for each depth; a sub-group of 32 covers 16 x 2.
    assert found.local_by_items == 4 * 4 * 48 * 256 * 12
    assert found.local == 4 * 4 * 48 * 8 * (16 * 8 + 2 * 4)


def test_a_squarer_sub_group_reads_less_local_memory():
    square = XgemmConfig(**{**INDIRECT.as_dict(), "LANES_M": 8, "LANES_N": 4})
    found = traffic_of(problem(256, 128, 48), square, 32)
    assert found.local == 4 * 4 * 48 * 8 * (8 * 8 + 4 * 4)


def test_traffic_follows_type_and_addend():
    plain = traffic_of(problem(64, 64, 64), DIRECT, 32)
    assert plain.packing == 0
    assert plain.tiles == 4 * 64 * 64 * 4
    wide = traffic_of(problem(64, 64, 64, dtype="complex128", reads_c=True), DIRECT, 32)
    assert wide.least == 16 * 4 * 64 * 64
    assert wide.tiles == 4 * plain.tiles
    half = traffic_of(problem(64, 64, 64, dtype="float16"), DIRECT, 32)
    assert half.tiles * 2 == plain.tiles
    assert half.local == plain.local  # staged as float


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 4), ("complex128", 16)])
def test_joining_writes_and_reads_the_sums_of_a_tile(dtype, size):
    config = dataclasses.replace(INDIRECT, FILL=1)
    # Two tiles of 40 slabs for 40 groups: twenty sums of each tile, and two in a second step.
    found = traffic_of(problem(256, 64, 640, dtype=dtype), config, 32, Division(40, 0))
    assert found.joining == 2 * (128 * 64 * size) * 2 * (20 + 2)
    alone = traffic_of(problem(256, 64, 640, dtype=dtype), config, 32)
    assert alone.joining == 0
    assert dataclasses.replace(found, joining=0) == alone
    assert found.global_memory == alone.least + alone.packing + found.joining
    assert found.cache == alone.tiles + found.joining
    assert alone.cache == alone.tiles


def test_whole_tiles_are_not_joined():
    config = dataclasses.replace(DIRECT, FILL=1)
    found = traffic_of(problem(64, 64, 64), config, 32, Division(4, 1))
    assert found.joining == 0
    # Without products the tiles have one slab of nothing each, which nobody divides.
    assert traffic_of(problem(64, 64, 0), config, 32, Division(4, 1)).joining == 0


def test_traffic_of_a_cpu():
    found = traffic_of(problem(12, 64, 100), CPU, 32)
    assert found.tiles == 2 * 100 * 70 * 4
    assert found.packing == 2 * 4 * 100 * (12 + 64)
    assert found.local is None


def test_bytes_of_a_load():
    assert load_bytes(problem(256, 128, 48), INDIRECT) == {
        "A from global memory": 16, "A from local memory": 16,
        "B from global memory": 16, "B from local memory": 16,
    }  # fmt: skip
    # Rows of 30 elements are aligned to two.
    assert load_bytes(problem(30, 30, 30), DIRECT)["B from global memory"] == 8
    assert load_bytes(problem(32, 32, 32, dtype="float64"), CPU) == {"packed B": 128}


CEILINGS = Ceilings({"float32": 1000.0}, 100.0, 400.0, 2000.0, 1e-5, "2026-01-01")
FULL = Utilisation(tiles=8, groups=8, units=8, waves=1.0, tail=1.0, balance=1.0, useful=1.0)
HALF = Utilisation(tiles=4, groups=4, units=8, waves=0.5, tail=0.5, balance=0.5, useful=0.5)
SOME = Occupancy(2, 16, 64, "registers")
FEW = Occupancy(1, 4, 64, "local memory")
TRAFFIC = Traffic(10**6, 0, 10**7, 10**8, 10**9)


def bounds(use=FULL, traffic=TRAFFIC, flops=10**9, launches=1, seconds=2e-3):
    return {
        bound.name: bound
        for bound in bounds_of(flops, 1000.0, traffic, launches, use, CEILINGS, seconds)
    }


def test_each_ceiling_gives_a_time():
    found = bounds()
    assert list(found) == ["arithmetic", "local memory", "cache", "global memory", "launches"]
    assert [found[name].seconds for name in found] == pytest.approx(
        [1e-3, 5e-5, 2.5e-5, 1e-5, 1e-5]
    )
    assert found["arithmetic"].share == pytest.approx(0.5)
    # Idle units and padding both cost arithmetic.
    assert bounds(use=HALF)["arithmetic"].seconds == pytest.approx(4e-3)
    packed = Traffic(10**6, 10**6, None, None, None)
    assert bounds(traffic=packed)["global memory"].seconds == pytest.approx(2e-5)
    assert "cache" not in bounds(traffic=packed)
    joined = dataclasses.replace(TRAFFIC, joining=10**6)
    assert bounds(traffic=joined)["global memory"].seconds == pytest.approx(2e-5)
    assert bounds(traffic=joined)["cache"].seconds == pytest.approx(2.75e-5)


@pytest.mark.parametrize(
    ("found", "use", "occupancy", "kind", "words"),
    [
        (bounds(seconds=1.1e-3), FULL, SOME, "compute-bound", "little is left"),
        (bounds(use=HALF, seconds=5e-3), HALF, SOME, "compute-bound", "50% of the device"),
        (bounds(flops=10, seconds=6e-5), FULL, SOME, "memory-bound", "LANES_M"),
        (
            bounds(flops=10, traffic=Traffic(10**8, 0, None, None, None), seconds=1.1e-3),
            FULL, SOME, "memory-bound", "fewer bytes",
        ),
        (
            bounds(flops=10, traffic=Traffic(1, 0, 10**8, None, None), seconds=3e-4),
            FULL, SOME, "memory-bound", "larger tile of the work-group",
        ),
        (
            bounds(flops=10, traffic=Traffic(1, 0, 1, 1, 1), launches=3, seconds=4e-5),
            FULL, SOME, "latency-bound", "one launch instead",
        ),
        (bounds(seconds=1.0), HALF, SOME, "latency-bound", "only 4 work-groups for 8"),
        (bounds(seconds=1.0), FULL, FEW, "latency-bound", "limited by local memory"),
        (bounds(seconds=1.0), FULL, SOME, "latency-bound", "more independent work"),
    ],
)  # fmt: skip
def test_verdicts(found, use, occupancy, kind, words):
    verdict = judge(list(found.values()), use, occupancy, TRAFFIC, INDIRECT)
    assert verdict.kind == kind
    assert words in f"{verdict.reason}; {verdict.advice}"


@pytest.mark.parametrize("limit", ["global memory", "cache"])
def test_joining_is_blamed_where_it_moves_most(limit):
    for joining, blamed in ((3 * 10**7, True), (10**5, False)):
        traffic = Traffic(10**7, 10**7, 10**7, None, None, joining)
        ceilings = dataclasses.replace(CEILINGS, **{limit.replace(" ", "_"): 1.0})
        found = bounds_of(1, 1000.0, traffic, 1, FULL, ceilings, 0.05)
        assert found[0].name == limit
        verdict = judge([dataclasses.replace(found[0], share=1.0)], FULL, SOME, traffic, FILLED[0])
        assert ("FILL" in verdict.advice) is blamed


def test_a_cpu_is_not_told_of_stages():
    verdict = judge(list(bounds(seconds=1.0).values()), FULL, FEW, TRAFFIC, CPU)
    assert "STAGES" not in verdict.advice
    assert "pack" in verdict.advice


FILLED = [dataclasses.replace(INDIRECT, FILL=2), dataclasses.replace(DIRECT, FILL=1)]
GEMV = GemvConfig(MR=1, WGS=128, LANES_N=32, VW=4)
# Compute-bound with idle units, latency-bound with idle units, and without.
IDLE = Utilisation(tiles=4, groups=4, units=8, waves=0.5, tail=0.5, balance=0.5, useful=1.0)
SITUATIONS = [
    (bounds(use=IDLE, seconds=3e-3), IDLE, SOME),
    (bounds(seconds=1.0), IDLE, SOME),
    (bounds(seconds=1.0), FULL, FEW),
    (bounds(seconds=1.0), FULL, SOME),
]


@pytest.mark.parametrize("config", [INDIRECT, DIRECT])
def test_fill_is_advised_where_units_are_idle(config):
    advised = [judge(list(f.values()), u, o, TRAFFIC, config).advice for f, u, o in SITUATIONS]
    assert ["or FILL" in advice for advice in advised] == [True, True, False, False]


@pytest.mark.parametrize("config", FILLED)
def test_fill_is_not_advised_where_it_is_in_use(config):
    for found, use, occupancy in SITUATIONS:
        advice = judge(list(found.values()), use, occupancy, TRAFFIC, config).advice
        assert "or FILL" not in advice
    # Nearly all units have a work-group: idle ones are not what is wrong.
    nearly = dataclasses.replace(FULL, groups=128, units=132, balance=128 / 132)
    advice = judge(list(bounds(seconds=1.0).values()), nearly, SOME, TRAFFIC, config).advice
    assert "work-groups" not in advice


@pytest.mark.parametrize("config", [GEMV, CPU])
def test_no_parameter_is_advised_that_the_family_lacks(config):
    others = {"FILL", "STAGES", "KWI", "LANES_N"} - set(config.as_dict())
    for found, use, occupancy in SITUATIONS:
        advice = judge(list(found.values()), use, occupancy, TRAFFIC, config).advice
        assert not [name for name in others if name in advice]
