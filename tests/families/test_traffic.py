"""How tiles fill a device, the bytes that they move, and what follows: all by hand."""

from dataclasses import replace

import pytest

from pyclgemm import SmallConfig, WgmmaConfig
from pyclgemm.analysis.profile import Utilisation, bounds_of, judge, utilise
from pyclgemm.codegen.stream_k import Division
from pyclgemm.device.ceilings import Occupancy
from pyclgemm.families.family import Traffic
from pyclgemm.families.gemv.codegen import GemvConfig
from tests.support import configs as unit_configs, typical_configs
from tests.support.facts import CEILINGS, analysed, product_of
from tests.support.families import load_bytes, traffic_of
from tests.support.typical_configs import CPU

INDIRECT = replace(typical_configs.INDIRECT, MWG=128, MDIMC=16, NDIMC=16, LANES_M=16)
DIRECT = replace(typical_configs.DIRECT, VWMD=2)
GEMV = GemvConfig(MR=1, WGS=128, LANES_N=32, VW=4)
MATRIX, WGMMA = replace(unit_configs.MATRIX, FILL=1), replace(unit_configs.WGMMA, FILL=1)
TALL = WgmmaConfig(MWG=128, NWG=64)
SMALL = SmallConfig(MWI=2, NWI=2, WGS=32)
#: What two sub-groups of 8 x 4 work-items read of each slab, with four entries of A and of B each.
STAGED = 4 * 4 * 64 * 2 * (8 * 4 + 4 * 4)


def problem(m, n, k, packed=(), **others):
    return product_of(m, n, k, **others).problem


@pytest.mark.parametrize(
    ("sizes", "groups", "units", "resident", "wanted"),
    [
        ((200, 64, 40), 2, 132, 1,
         {"tiles": 2, "waves": 2 / 132, "tail": 2 / 132, "balance": 2 / 132,
          "useful": 200 * 40 / (256 * 48)}),
        ((128 * 132, 64, 16), 132, 132, 1, {"waves": 1, "tail": 1, "balance": 1, "useful": 1}),
        # One group too many costs a wave.
        ((128 * 133, 64, 16), 133, 132, 1, {"tail": 133 / 264, "balance": 133 / 264}),
        # Where two groups are resident on a unit, the second wave is still half empty.
        ((128 * 133, 64, 16), 133, 132, 2, {"waves": 133 / 264}),
    ],
)  # fmt: skip
def test_tiles_waves_and_edges(sizes, groups, units, resident, wanted):
    found = utilise(problem(*sizes), INDIRECT, groups, units, resident)
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_a_family_of_whole_products_has_no_tiles():
    found = utilise(problem(8, 64, 16), SMALL, 4, 4, None)
    assert (found.tiles, found.useful, found.balance) == (None, None, 1)
    traffic = traffic_of(problem(8, 64, 16), SMALL, 32)
    assert traffic == Traffic(4 * (8 * 16 + 16 * 64 + 8 * 64), 0, None, None, None)


@pytest.mark.parametrize(
    ("config", "sizes", "options", "wanted"),
    [
        # b is row-major, but k = 40 is no multiple of a slab: both are packed. A work-item reads
        # 8 + 4 entries for each depth; a sub-group of 32 covers 16 x 2.
        (INDIRECT, (256, 128, 40), {"packed": ("a", "b")},
         {"least": 4 * (256 * 40 + 40 * 128 + 256 * 128),
          "packing": 2 * 4 * (256 * 40 + 40 * 128), "tiles": 4 * 4 * 48 * (128 + 64),
          "local_by_items": 4 * 4 * 48 * 256 * 12,
          "local": 4 * 4 * 48 * 8 * (16 * 8 + 2 * 4)}),
        # A squarer sub-group reads less local memory.
        (replace(INDIRECT, LANES_M=8, LANES_N=4), (256, 128, 48), {},
         {"local": 4 * 4 * 48 * 8 * (8 * 8 + 4 * 4)}),
        (DIRECT, (64, 64, 64), {}, {"packing": 0, "tiles": 4 * 64 * 64 * 4, "local": STAGED}),
        (DIRECT, (64, 64, 64), {"dtype": "complex128", "reads_c": True},
         {"least": 16 * 4 * 64 * 64, "tiles": 16 * 64 * 64 * 4}),
        (DIRECT, (64, 64, 64), {"dtype": "float16"},
         {"tiles": 2 * 64 * 64 * 4, "local": STAGED}),  # staged as float
        (CPU, (12, 64, 100), {},
         {"tiles": 2 * 100 * 70 * 4, "packing": 2 * 4 * 100 * (12 + 64), "local": None}),
        # Two sub-groups share B's columns, and each has rows of A of its own.
        (replace(MATRIX, MWG=64), (64, 64, 64), {"dtype": "float16"},
         {"tiles": 2 * 64 * (64 + 32) * 2, "local": 2 * 64 * (64 + 2 * 32) * 2, "packing": 0}),
        (MATRIX, (64, 64, 64), {"dtype": "float16", "packed": ("b",)},
         {"packing": 2 * 2 * 64 * 64}),
        # Two fragments of 64 rows read B, and each its own rows; split terms are six products.
        (TALL, (128, 64, 100), {"dtype": "float16"},
         {"tiles": 128 * (128 + 64) * 2, "local": 128 * (128 + 2 * 64) * 2}),
        (TALL, (128, 64, 128), {"precision": "BF16_BF16_F32_X6", "packed": ("a", "b")},
         {"tiles": 3 * 128 * (128 + 64) * 2, "local": 6 * 128 * (128 + 2 * 64) * 2,
          "packing": 2 * 3 * 2 * (128 + 64) * 128}),
    ],
)  # fmt: skip
def test_traffic(config, sizes, options, wanted):
    packed = options.get("packed", ())
    found = traffic_of(problem(*sizes, **options), config, 32, packed=packed)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("config", "sizes", "options", "division", "joining"),
    [
        # Two tiles of 40 slabs for 40 groups: twenty sums of each tile, and two in a second step.
        *((replace(INDIRECT, FILL=1), (256, 64, 640), {"dtype": dtype}, Division(40, 0),
           2 * (128 * 64 * size) * 2 * (20 + 2))
          for dtype, size in (("float32", 4), ("float16", 4), ("complex128", 16))),
        # 16 tiles, and 8 groups for each; one tile of 16 slabs, two for each of 8 groups.
        *((MATRIX, (128, 128, 1024), {"dtype": dtype, "precision": precision}, Division(128, 0),
           2 * 128 * 32 * 32 * size)
          for dtype, precision, size in (("float16", "F16_F16_F16", 2),
                                         ("float16", "F16_F16_F32", 4), ("complex128", None, 16))),
        (WGMMA, (64, 64, 1024), {"dtype": "float16"}, Division(8, 0), 2 * 8 * 64 * 64 * 4),
        # Whole tiles. Without depth they have one slab of nothing each, which nobody divides.
        *((replace(DIRECT, FILL=1), (64, 64, k), {}, Division(4, 1), 0) for k in (64, 0)),
    ],
)  # fmt: skip
def test_joining_writes_and_reads_the_sums_of_a_tile(config, sizes, options, division, joining):
    found = traffic_of(problem(*sizes, **options), config, 32, division)
    assert found.joining == joining
    alone = traffic_of(problem(*sizes, **options), config, 32)
    assert alone == replace(found, joining=0)
    assert found.global_memory == alone.least + alone.packing + found.joining
    assert found.cache == alone.tiles + found.joining
    assert alone.cache == alone.tiles


OF_A, OF_B = "A from global memory", "B from global memory"


@pytest.mark.parametrize(
    ("config", "sizes", "options", "wanted"),
    [
        (INDIRECT, (256, 128, 48), {}, {f"{one} from {memory} memory": 16
                                        for one in "AB" for memory in ("global", "local")}),
        # As wide as alignment allows: rows of 30 elements are aligned to two.
        *((DIRECT, (size, size, size), options, {OF_B: 4 * width})
          for size, options, width in ((32, {}, 4), (30, {}, 2), (31, {}, 1),
                                       (32, {"trans_b": "T"}, 4), (31, {"trans_b": "T"}, 1))),
        (replace(DIRECT, ASYNC=1, STAGES=2), (32, 32, 32), {"trans_b": "T"}, {OF_B: 4}),
        (CPU, (32, 32, 32), {"dtype": "float64"}, {"packed B": 128}),
        # Boxes are copied by no work-item.
        (SMALL, (8, 64, 16), {}, {}), (WGMMA, (128, 128, 128), {"dtype": "float16"}, {}),
        (replace(WGMMA, TMA=0), (128, 128, 128), {"dtype": "float16"}, {OF_A: 16, OF_B: 16}),
        *((config, sizes, {"dtype": "float16"},
           {OF_A: of_a, OF_B: of_b, "A from local memory": None, "B from local memory": None})
          for config, sizes, of_a, of_b in (
              (MATRIX, (64, 64, 64), 16, 16), (replace(MATRIX, UNALIGNED=1), (64, 63, 62), 4, 2))),
        (MATRIX, (64, 63, 62), {"dtype": "float16", "packed": "ab"}, {OF_A: 16, OF_B: 16}),
    ],
)  # fmt: skip
def test_bytes_of_a_load(config, sizes, options, wanted):
    found = load_bytes(problem(*sizes, **options), config, options.get("packed", ()))
    assert {name: found.get(name) for name in wanted} == wanted
    assert bool(found) == bool(wanted)


# ------------------------------------------------------------------ what follows

FULL = Utilisation(tiles=8, groups=8, units=8, waves=1.0, tail=1.0, balance=1.0, useful=1.0)
HALF = Utilisation(tiles=4, groups=4, units=8, waves=0.5, tail=0.5, balance=0.5, useful=0.5)
IDLE = replace(HALF, useful=1.0)
SOME = Occupancy(2, 16, 64, "registers")
FEW = Occupancy(1, 4, 64, "local memory")
TRAFFIC = Traffic(10**6, 0, 10**7, 10**8, 10**9)


def judged(
    config=INDIRECT, use=FULL, occupancy=SOME, traffic=TRAFFIC, flops=10**9, launches=1,
    seconds=1.0, ceilings=CEILINGS,
):  # fmt: skip
    """The bounds of a product, and what follows from them."""
    known = analysed(config, use, occupancy, traffic, flops, launches)
    found = bounds_of(known, ceilings, seconds)
    return found, judge(known, found)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, {"arithmetic": 1e-3, "local memory": 5e-5, "cache": 2.5e-5, "global memory": 1e-5,
              "launches": 1e-5}),
        # Idle units and padding both cost arithmetic.
        ({"use": HALF}, {"arithmetic": 4e-3}),
        ({"traffic": Traffic(10**6, 10**6, None, None, None)}, {"global memory": 2e-5}),
        ({"traffic": replace(TRAFFIC, joining=10**6)},
         {"global memory": 2e-5, "cache": 2.75e-5}),
    ],
)  # fmt: skip
def test_each_ceiling_gives_a_time(changes, wanted):
    found = {bound.name: bound for bound in judged(seconds=2e-3, **changes)[0]}
    assert {name: found[name].seconds for name in wanted} == pytest.approx(wanted)
    traffic = changes.get("traffic", TRAFFIC)
    assert ("cache" in found) == (traffic.tiles is not None)
    if not changes:
        assert list(found) == list(wanted)
        assert found["arithmetic"].share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("situation", "kind", "words"),
    [
        ({"seconds": 1.1e-3}, "compute-bound", "little is left"),
        ({"use": HALF, "seconds": 5e-3}, "compute-bound", "50% of the device"),
        ({"flops": 10, "seconds": 6e-5}, "memory-bound", "LANES_M"),
        ({"flops": 10, "traffic": Traffic(10**8, 0, None, None, None), "seconds": 1.1e-3},
         "memory-bound", "fewer bytes"),
        ({"flops": 10, "traffic": Traffic(1, 0, 10**8, None, None), "seconds": 3e-4},
         "memory-bound", "larger tile of the work-group"),
        ({"flops": 10, "traffic": Traffic(1, 0, 1, 1, 1), "launches": 3, "seconds": 4e-5},
         "latency-bound", "one launch instead"),
        ({"use": HALF}, "latency-bound", "only 4 work-groups for 8"),
        ({"occupancy": FEW}, "latency-bound", "limited by local memory"),
        ({}, "latency-bound", "more independent work"),
    ],
)  # fmt: skip
def test_verdicts(situation, kind, words):
    _, verdict = judged(**situation)
    assert verdict.kind == kind
    assert words in f"{verdict.reason}; {verdict.advice}"


@pytest.mark.parametrize("limit", ["global memory", "cache"])
@pytest.mark.parametrize(("joining", "blamed"), [(3 * 10**7, True), (10**5, False)])
def test_joining_is_blamed_where_it_moves_most(limit, joining, blamed):
    traffic = Traffic(10**7, 10**7, 10**7, None, None, joining)
    ceilings = replace(CEILINGS, **{limit.replace(" ", "_"): 1.0})
    config = replace(INDIRECT, FILL=2)
    (first, *_), _ = judged(config, traffic=traffic, flops=1, ceilings=ceilings)
    assert first.name == limit
    options = {"traffic": traffic, "flops": 1, "ceilings": ceilings, "seconds": first.seconds}
    assert ("FILL" in judged(config, **options)[1].advice) is blamed


def advices(config, *more):
    """Compute-bound with idle units, latency-bound with idle units, and twice or more without."""
    situations = [{"use": IDLE, "seconds": 3e-3}, {"use": IDLE}, {"occupancy": FEW}, {}, *more]
    return [judged(config, **situation)[1].advice for situation in situations]


@pytest.mark.parametrize("config", [INDIRECT, DIRECT])
def test_fill_is_advised_where_units_are_idle_and_it_is_not_in_use(config):
    assert ["or FILL" in advice for advice in advices(config)] == [True, True, False, False]
    # Nearly all units have a work-group: idle ones are not what is wrong.
    nearly = replace(FULL, groups=128, units=132, balance=128 / 132)
    *filled, last = advices(replace(config, FILL=2), {"use": nearly})
    assert not any("or FILL" in advice for advice in filled)
    assert "work-groups" not in last


@pytest.mark.parametrize("config", [GEMV, CPU])
def test_no_parameter_is_advised_that_the_family_lacks(config):
    others = {"FILL", "STAGES", "KWI", "LANES_N"} - set(config.as_dict())
    for advice in advices(config):
        assert not [name for name in others if name in advice]
    assert config is GEMV or "pack" in advices(CPU)[2]
