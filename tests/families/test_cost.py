"""Predicted times: each term by hand, what more work costs, and what families state."""

import math
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyclgemm import WgmmaConfig
from pyclgemm.codegen.stream_k import divide
from pyclgemm.device.ceilings import Ceilings, typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import Coefficients, Costs, Place, Work, WorkTable, shares, total
from pyclgemm.families.registry import FAMILIES, problem_on
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from tests.support.facts import cpu, gpu, problem

ARCHITECTURES = (
    "sm_50", "sm_75", "sm_80", "sm_90", "gfx803", "gfx90a", "gfx1030", "gfx1100", "x86-64",
    "x86-64-v4", "aarch64", "intel_gpu", "apple_gpu", "qualcomm_gpu", "arm_gpu",
)  # fmt: skip
TYPES = (
    ("float32", None), ("float32", "TF32_TF32_F32"), ("float32", "BF16_BF16_F32_X3"),
    ("float16", None), ("bfloat16", None), ("int8", None), ("float64", None),
    ("complex64", None), ("complex128", None),
)  # fmt: skip

NOTHING = Coefficients(**dict.fromkeys((field.name for field in fields(Coefficients)), 0.0))
#: Those of ratios are 1; there are no latencies.
RATIOS = ("multiply", "local", "loads", "turned", "store", "memory", "cache", "packing", "join")
EXACT = replace(NOTHING, **dict.fromkeys(RATIOS, 1.0))

#: A product of 2 x 3 tiles and 10 slabs on 4 compute units, one of which has 2 tiles.
UNITS = 4
SIZES = 20, 30, 50
TILE = Work(rows=10, columns=10, depth=5, multiply=0.0, joining=1.0)


def seconds(work, sizes=SIZES, coefficients=EXACT, products=1, units=UNITS):
    (found,) = WorkTable([work], [coefficients], units).seconds(*sizes, products)
    return found


@pytest.mark.parametrize(
    ("work", "coefficients", "expected"),
    [
        ({"local": 1.0}, {}, 2 * 10),
        ({"loads": 1.0}, {}, 2 * 10),
        ({"turned": 1.0}, {"turned": 0.5}, 2 * 10 / 2),
        ({"store": 1.0}, {}, 2),
        ({}, {"tile": 1.0}, 2),
        ({"resident": 2}, {"tile": 1.0}, 1),
        ({}, {"slab": 1.0}, 2 * 10),
        ({"resident": 2}, {"slab": 1.0}, 10),
        ({"resident": 2, "exposed": 0.25}, {"slab": 1.0}, 10 / 4),
        ({"resident": 2, "rounds": 3}, {"tile": 1.0}, 3),
        ({"multiply": 1.0, "alone": 0.0}, {}, 2 * 10),
        ({"multiply": 1.0, "alone": 0.0}, {"multiply": 1.5}, 2 * 10 * 1.5),
        # Alone a work-group multiplies so much longer that nothing else counts.
        ({"multiply": 1.0, "alone": 1e6, "resident": 2}, {}, 10 * 1e6),
        ({"cache": 1.0}, {}, 6 * 10 / 4),
        ({"cache": 1.0, "rows": 20, "columns": 30}, {}, 10),
        ({"operand": 1.0}, {}, 20 * 50 + 50 * 30),
        ({"result": 1.0}, {"memory": 2.0}, 2 * 20 * 30),
        ({}, {"launch": 1.0, "pack_launch": 9.0, "descriptors": 9.0}, 1),
        ({"packs": 2}, {"pack_launch": 1.0}, 2),
        ({"packed_a": 1.0}, {}, 20 * 50),
        ({"packed_b": 1.0}, {"packing": 3.0}, 3 * 50 * 30),
        ({"descriptors": 1}, {"descriptors": 1.0}, 1),
        ({"join": 1.0}, {"split": 1.0}, 0),
        # Two tiles of a work-group are one; rows of the tile are columns of the result.
        ({"tiles": 2, "local": 1.0}, {}, 10),
        ({"columns": 20, "swapped": True, "local": 1.0}, {}, 10),
        ({"columns": 20, "local": 1.0}, {}, 10),
        ({"columns": 15, "swapped": True, "local": 1.0}, {}, 2 * 10),
        # The last tile of a row of tiles computes as many grains as it needs.
        ({"rows": 2, "columns": 20, "grain": 5, "local": 1.0}, {}, 4 * 10),
        ({"rows": 2, "columns": 15, "grain": 5, "swapped": True, "local": 1.0}, {}, 5 * 10),
        # The 60 slabs are divided evenly among one or three work-groups of each unit.
        ({"fill": 1, "local": 1.0}, {}, 15),
        ({"fill": 3, "local": 1.0}, {}, 15),
        ({"fill": 3, "resident": 3}, {"slab": 1.0}, 5),
        ({"fill": 3, "resident": 2}, {"slab": 1.0}, 2 * 5),
        ({"fill": 1}, {"tile": 1.0}, 1.5),
        ({"fill": 3, "resident": 3}, {"tile": 1.0}, 1),
        ({"fill": 3, "cache": 1.0}, {}, 15),
        # Four groups share the sums of six tiles in two steps, or two groups those of each tile in
        # one. A group reads two of them, each at a fourth of the bandwidth.
        ({"fill": 1, "join": 1.0}, {"split": 7.0}, 6 + 2 * 7 + 2 * 4 / 2),
        ({"fill": 3, "join": 1.0}, {"split": 7.0}, 12 + 7 + 2 * 4 / 2),
        # If joining takes as long as all slabs, tiles that are fewer than groups stay whole.
        ({"fill": 3, "join": 1.0, "joining": 10.0}, {"split": 7.0}, 0),
        ({"fill": 3, "resident": 3, "joining": 10.0}, {"slab": 1.0}, 10),
        # A work-group has two slabs at least, or a tile; whole tiles are not split.
        ({"fill": 100, "resident": 100}, {"slab": 1.0}, 2),
        ({"fill": 1, "rows": 20, "columns": 30, "depth": 25, "local": 1.0}, {}, 2),
        ({"fill": 3, "depth": 50, "join": 1.0, "resident": 2}, {"split": 1.0, "tile": 1.0}, 1),
        ({"fill": 1, "rows": 20, "columns": 8, "join": 1.0}, {"split": 1.0}, 0),
        # Tiles of one slab cannot be split, though the work-groups have one and a half of them.
        ({"fill": 1, "depth": 50, "join": 1.0}, {"split": 1.0}, 0),
    ],
)  # fmt: skip
def test_a_term_by_itself(work, coefficients, expected):
    found = seconds(replace(TILE, **work), coefficients=replace(EXACT, **coefficients))
    assert found == pytest.approx(expected, rel=1e-9)


def test_times_that_overlap_are_longer_than_each_and_less_than_their_sum():
    read, multiplied = replace(TILE, operand=0.01), replace(TILE, local=1.0)
    both = replace(TILE, operand=0.01, local=1.0)
    apart = [seconds(work) for work in (read, multiplied)]
    assert max(apart) < seconds(both) < sum(apart)
    # What is done before and after overlaps with nothing.
    packing = replace(TILE, packed_a=0.01)
    both = replace(packing, local=1.0)
    assert seconds(both) == pytest.approx(seconds(packing) + seconds(multiplied))


def test_matrices_in_a_cache_take_no_time_of_the_memory():
    table = WorkTable([replace(TILE, operand=1.0, result=1.0, local=1.0)], [EXACT], UNITS)
    (found,) = table.seconds(*SIZES, 1, in_cache=True)
    assert found == pytest.approx(2 * 10)


def test_one_tile_more_than_a_wave_takes_another():
    work = replace(TILE, local=1.0)
    times = [seconds(work, (10, 10 * tiles, 50)) for tiles in range(1, 2 * UNITS + 2)]
    assert times == pytest.approx([10] * UNITS + [20] * UNITS + [30])
    batches = [seconds(work, (10, 10, 50), products=number) for number in range(1, 10)]
    assert batches == times
    # Work-groups that share a unit divide its throughput, not their latency.
    latency = replace(EXACT, slab=1.0)
    shared = [seconds(replace(TILE, resident=3), (10, 10 * n, 50), latency) for n in (4, 12, 13)]
    assert shared == pytest.approx([10, 10, 20])


def test_the_shares_of_a_time_say_how_it_follows_its_parts(rng):
    """The share of a part is the relative change of the time if only that part changes."""
    parts = rng.uniform(0.1, 10.0, (7, 5))
    times, step = total(parts), 1e-6
    found = shares(parts, times)
    np.testing.assert_allclose(found.sum(0), 1.0)
    for number, share in enumerate(found):
        longer = parts.copy()
        longer[number] *= 1 + step
        np.testing.assert_allclose((total(longer) / times - 1) / step, share, rtol=1e-4)


def test_the_bytes_of_all_products_of_a_batch_count_and_sizes_of_zero_are_one():
    for read in ("operand", "result", "packed_a", "packed_b"):
        work = replace(TILE, **{read: 1.0})
        assert seconds(work, products=7) == pytest.approx(7 * seconds(work))
        for sizes in product((0, 1), repeat=3):
            assert seconds(work, sizes) == pytest.approx(2 if read == "operand" else 1)


some = st.floats(0.0, 1e-3)
counts = st.integers(1, 300)
works = st.builds(
    Work, counts, counts, st.integers(1, 64), some, fill=st.integers(0, 3),
    resident=st.integers(1, 16), alone=st.floats(1.0, 4.0), tiles=st.integers(1, 64),
    grain=st.sampled_from((0, 1, 8)), swapped=st.booleans(),
    local=some, cache=some, loads=some, turned=some, store=some, join=some,
    packs=st.integers(0, 2), packed_a=some, packed_b=some, operand=some, result=some,
    descriptors=st.integers(0, 1), joining=st.floats(0.1, 100.0),
).map(lambda work: replace(work, grain=0) if work.fill else work)  # fmt: skip
coefficients = st.builds(
    Coefficients, **{field.name: st.floats(0.0, 3.0) for field in fields(Coefficients)}
)
extents = st.integers(1, 5000)
sizes = st.tuples(extents, extents, extents)


@given(works, coefficients, sizes, st.integers(0, 3), st.integers(0, 5000), st.integers(1, 200))
def test_more_work_is_never_predicted_faster(work, ratios, smaller, axis, more, units):
    launched = ratios.launch + work.packs * ratios.pack_launch
    assert seconds(work, smaller, ratios, units=units) >= launched
    # More slabs may let tiles be divided in another way, by a rule that does not know the ratios.
    work = replace(work, fill=0)
    larger = [size + more * (number == axis) for number, size in enumerate((*smaller, 1))]
    before = seconds(work, smaller, ratios, units=units)
    after = seconds(work, larger[:3], ratios, larger[3], units)
    assert after >= before * (1 - 1e-12)


@given(
    st.integers(1, 2000), st.integers(1, 500), st.integers(1, 4), st.integers(1, 150),
    st.floats(0.1, 100.0),
)  # fmt: skip
def test_slabs_are_predicted_as_kernels_divide_them(tiles, slabs, fill, units, joining):
    work = Work(1, 1, 1, 0.0, fill=fill, joining=joining, resident=fill)
    predicted = seconds(work, (tiles, 1, slabs), replace(NOTHING, slab=1.0), units=units)
    division = divide(tiles, slabs, fill * units, joining)
    divided = (tiles - division.rounds * division.groups) * slabs
    most = division.rounds * slabs + math.ceil(divided / division.groups)
    assert predicted <= most < predicted + 1


@given(st.lists(st.tuples(works, coefficients, sizes, counts), min_size=1, max_size=9))
def test_many_at_once_are_predicted_as_one_by_one(rows):
    work, ratios, shapes, products = zip(*rows, strict=True)
    table = WorkTable(work, ratios, UNITS)
    alone = [seconds(one, shape, ratio, number) for one, ratio, shape, number in rows]
    together = table.seconds(*np.array(shapes, float).T, np.array(products, float))
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    # Sizes of all configurations alike are numbers.
    same = [seconds(one, SIZES, ratio, 3) for one, ratio, _, _ in rows]
    np.testing.assert_allclose(table.seconds(*SIZES, 3), same, rtol=1e-12)


# What families state of their configurations


def times_of(family, wanted, traits):
    """Times of a menu, without the launch; None where all lack an arithmetic."""
    menu, ceilings = family.menu(wanted.dtype, traits, wanted.precision), typical_ceilings(traits)
    work = [family.work(config, wanted, traits, ceilings) for config in menu]
    if None in work:
        assert set(work) == {None}
        return None
    ratios = replace(family.coefficients, launch=0.0)
    table = WorkTable(work, [ratios] * len(work), traits.compute_units)
    return table.seconds(wanted.m, wanted.n, wanted.k, wanted.products)


@given(
    st.sampled_from(ARCHITECTURES), st.sampled_from(TYPES), sizes, st.sampled_from(LAYOUTS),
    st.sampled_from([0, 1, 4]), st.sampled_from([None, 3, 500]),
)  # fmt: skip
def test_every_configuration_of_a_menu_has_a_time(architecture, types, sizes, layout, pad, batch):
    traits = typical_traits(architecture)
    shape = GemmShape(*sizes, layout, padding=pad, batch=batch)
    wanted = problem_on(shape.problem(*types), traits)
    for family in FAMILIES.values():
        if family.runs(wanted.dtype, wanted.precision, traits):
            times = times_of(family, wanted, traits)
            assert times is None or (np.isfinite(times) & (times > 0)).all()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "gfx1100", "gfx942"])
def test_a_vector_takes_as_long_as_reading_the_matrix(architecture):
    traits = typical_traits(architecture)
    seconds_of_bytes = 4 * 8192**2 / (1e9 * typical_ceilings(traits).global_memory)
    gemv = FAMILIES["gemv"]
    time, twice = (min(times_of(gemv, problem(1, n, 8192), traits)) for n in (8192, 16384))
    assert 1 <= time / seconds_of_bytes / gemv.coefficients.memory < 1.6
    assert twice / time == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("architecture", "family"),
    [("sm_90", "indirect"), ("gfx1030", "indirect"), ("gfx1030", "direct"), ("x86-64-v4", "cpu")],
)
def test_a_large_product_takes_as_long_as_its_multiply_adds(architecture, family):
    traits = typical_traits(architecture)
    flops = 2 * 4096**3 / (1e9 * typical_ceilings(traits).arithmetic["float32"])
    time = min(times_of(FAMILIES[family], problem(4096, 4096, 4096), traits))
    assert 1 <= time / flops / FAMILIES[family].coefficients.multiply < 2.5


@pytest.mark.parametrize(
    ("dtype", "rate", "multiply_adds", "bytes_of_result"),
    [
        ("float32", 1000, 1, 4), ("complex64", 1000, 4, 8), ("float64", 500, 1, 8),
        ("complex128", 500, 4, 16), ("float16", 1000, 1, 2), ("int8", 250, 1, 4),
    ],
)  # fmt: skip
def test_operations_take_a_compute_units_share_of_the_ceilings(
    dtype, rate, multiply_adds, bytes_of_result
):
    arithmetic = {"float32": 1000.0, "float64": 500.0, "int32": 250.0}
    ceilings = Ceilings(arithmetic, 2.0, 20.0, 40.0, 5e-6, "")
    wanted = problem(8, 8, 8, dtype)
    costs = Costs.of(wanted, gpu(compute_units=10), ceilings)
    assert costs.multiply_add == pytest.approx(multiply_adds * 2 * 10 / (rate * 1e9))
    assert costs.load == pytest.approx(4 * 2 * 10 / (1000 * 1e9))  # that of 4 in float32
    assert (costs.cache_byte, costs.local_byte) == pytest.approx((10 / 20e9, 10 / 40e9))
    tile = costs.work(2, 3, 5)
    assert tile.multiply == pytest.approx(30 * costs.multiply_add)
    assert tile.operand == pytest.approx(np.dtype(dtype).itemsize / 2e9)
    assert tile.result == pytest.approx(bytes_of_result / 2e9)
    # A CPU has no ceilings of its own for caches.
    without = replace(ceilings, cache=None, local_memory=None)
    costs = Costs.of(wanted, cpu(compute_units=10), without)
    assert (costs.cache_byte, costs.local_byte) == (10 * costs.memory_byte, 0)


def test_an_addend_is_read_as_the_result_is_written():
    traits, wanted = gpu(), problem(100, 100, 100)
    family = FAMILIES["direct"]
    config = family.menu("float32", traits, wanted.precision)[0]
    plain, added = (
        family.work(config, one, traits, typical_ceilings(traits))
        for one in (wanted, replace(wanted, c=wanted.out))
    )
    assert added == replace(plain, result=2 * plain.result)


def test_split_elements_cost_each_term_and_what_the_ceilings_lack_costs_none():
    def cost(traits, *unit, **options):
        return Costs.of(problem(8, 8, 8, **options), traits, typical_ceilings(traits), *unit)

    one, three = (cost(gpu(), "matrix", precision=f"BF16_BF16_F32{times}") for times in ("", "_X3"))
    assert three.multiply_add == pytest.approx(3 * one.multiply_add)
    assert cost(cpu(float64=False), dtype="float64") is None
    assert cost(cpu(float64=False), "matrix") is None


@pytest.mark.parametrize(
    ("dtype", "columns", "n", "expected"),
    [
        ("float16", 128, 1600, 2),
        # Rows start within a sector.
        ("float16", 128, 1592, 2 * 2),
        ("bfloat16", 128, 1592, 2 * 2),
        # Alignments of more than 16 elements are not told apart.
        ("int8", 128, 1616, 2),
        # Copied as three boxes of 32 columns, whose rows take as long as those of 64.
        ("float16", 80, 1600, 3),
        ("float16", 64, 1600, 1),
    ],
)
def test_a_warpgroups_cache_takes_longer_for_partial_sectors_and_rows(dtype, columns, n, expected):
    traits, config = typical_traits("sm_90"), WgmmaConfig(64, columns, 1, 4)
    wanted = GemmShape(512, n, 512).problem(dtype, resolve_precision(None, dtype).name)
    costs = Costs.of(wanted, traits, typical_ceilings(traits), "wgmma")
    of_a, of_b = (FAMILIES["wgmma"].access(config, costs, one) for one in Place.of(wanted)[:2])
    # A slab of A has 64 rows of 128 bytes, of B as many for 64 columns.
    assert of_b.cache == pytest.approx(expected * of_a.cache)
