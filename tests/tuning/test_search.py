"""What the tuner searches, and how: families and their spaces, and proposals that learn."""

import math
import random
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm import CpuConfig
from pyclgemm.errors import ArgumentError, UnsupportedError
from pyclgemm.families.registry import violations
from pyclgemm.families.tiled.config import XgemmDirectConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.tuning.search import Search, families_for, search_space, suits
from tests.support.facts import cpu, gpu, problem
from tests.support.reference import DTYPES

AMD = gpu(vendor="amd", architecture="gfx1030", name="RX 6800")
AMPERE = gpu(local_memory_bytes=227 * 1024, fence_options="")
HOPPER = replace(AMPERE, wgmma=True)
GPU_FAMILIES = ["indirect", "direct", "gemv"]
SMALL_GPU = ["small"]


@pytest.mark.parametrize(
    ("traits", "dtype", "precision", "families"),
    [
        (cpu(), "float32", None, ["cpu"]),
        (gpu(), "float32", None, GPU_FAMILIES),
        (gpu(type="accelerator"), "float32", None, GPU_FAMILIES),
        (AMPERE, "float16", "F16_F16_F32", [*GPU_FAMILIES, "gemv_unit", "matrix"]),
        (AMD, "float16", "F16_F16_F32", GPU_FAMILIES),
        (AMPERE, "float32", "TF32_TF32_F32_X3", ["matrix"]),
        (HOPPER, "float32", "TF32_TF32_F32", ["matrix", "wgmma"]),
        # What multiplies complex elements is no warpgroup unit.
        (HOPPER, "complex128", None, [*GPU_FAMILIES, "matrix"]),
        (HOPPER, "complex64", None, GPU_FAMILIES),
        (HOPPER, "complex64", "TF32_TF32_F32", []),
    ],
)
def test_families(traits, dtype, precision, families):
    wanted = GemmShape(9, 9, 9).problem(dtype, precision)
    assert list(families_for([wanted], traits)) == families
    with pytest.raises(ArgumentError, match="family is 'gpu'; known are indirect"):
        search_space("gpu", "float32", traits)


@pytest.mark.parametrize(
    ("text", "types", "traits", "families"),
    [
        # Few rows or columns, and batches of small products, have families of their own.
        ("1x4096x64", ("float32",), gpu(), GPU_FAMILIES),
        ("4096x8x64", ("float32",), gpu(), GPU_FAMILIES),
        ("4096x4096x64", ("float32",), gpu(), ["indirect", "direct"]),
        *((text, ("float32",), gpu(), GPU_FAMILIES)
          for text in ("64x8x8", "64x8x8*31", "65x8x8*10000")),
        *((text, ("float32",), cpu(), ["cpu"])
          for text in ("64x8x8", "64x8x8*31", "65x8x8*10000")),
        ("64x8x8*32", ("float32",), gpu(), SMALL_GPU),
        ("64x8x8*32", ("float32",), cpu(), ["small_cpu"]),
        # Matrix units compete where fragments would fill.
        ("16x64x16*1000", ("float16",), AMPERE, ["matrix", "small"]),
        ("15x64x64*1000", ("float16",), AMPERE, SMALL_GPU),
        ("64x64x15*1000", ("float16",), AMPERE, SMALL_GPU),
        ("64x64x64*1000", ("float64",), AMPERE, ["matrix", "small"]),
        ("64x64x64*1000", ("float32",), AMPERE, SMALL_GPU),
        ("64x64x64*1000", ("complex64",), AMPERE, SMALL_GPU),
        ("64x64x64*1000", ("complex128",), AMPERE, ["matrix", "small"]),
        # Others multiply where those for small products do not.
        ("8x8x8*100", ("complex64",), cpu(), ["cpu"]),
        ("8x8x8*100", ("complex64",), gpu(), SMALL_GPU),
        ("8x8x8*100", ("float32", "TF32_TF32_F32"), AMPERE, ["matrix"]),
    ],
)  # fmt: skip
def test_which_families_suit_a_product(text, types, traits, families):
    wanted = GemmShape.parse(text).problem(*types)
    single = replace(wanted, batch=None)
    others = families_for([single], traits)
    suiting = [one for one in (*others, "small", "small_cpu") if suits(one, wanted, traits)]
    assert suiting == families
    small = [one for one in families if one not in others]
    assert families_for([single, wanted], traits) == (*others, *small)


@given(st.sampled_from([AMPERE, AMD, cpu()]), st.sampled_from(DTYPES), st.integers(0, 1000))
def test_a_repaired_point_is_valid_and_in_the_space(traits, dtype, seed):
    rng = random.Random(seed)
    for family in families_for([problem(9, 9, 9, dtype)], traits):
        space = search_space(family, dtype, traits)
        point = space.repaired(space.draw(rng), rng)
        assert all(point[name] in values for name, values in space.axes.items())
        config = space.config(point)
        assert config.family == family and violations(config, dtype, traits) == []
        assert space.repaired(point, rng) == point


@pytest.mark.parametrize("family", ["cpu", "indirect", "direct", "matrix", "small", "small_cpu"])
def test_a_configuration_has_a_point(family):
    space = search_space(family, "float32", cpu() if "cpu" in family else AMPERE)
    rng = random.Random(1)
    for _ in range(50):
        config = space.config(space.repaired(space.draw(rng), rng))
        assert space.config(space.nearest_point(config)) == config


def in_space(config):
    space = search_space(config.family, "float32", AMPERE)
    return space.config(space.nearest_point(config)) == config


def test_what_was_the_fastest_on_an_h100_lies_in_the_space():
    [(_, entry), *_] = load_database().lookup(gpu(), "float32", "F32_F32_F32")
    configs = [record.config for record in entry.records if record.config.family != "gemv"]
    assert sum(map(in_space, configs)) > 0.8 * len(configs)
    # Of 256 products of 128^3 and of 512^3.
    middle = XgemmDirectConfig(
        WGD=64, MDIMCD=8, NDIMCD=8, MDIMAD=16, NDIMBD=16, KWID=8, VWMD=4, VWND=4, PADA=4, PADB=0,
        KWGD=16, STAGES=3, LANES_M=8, LANES_N=4, GROUP_M=8, ASYNC=1, FRAGMENTS=2, SLICES=2,
    )  # fmt: skip
    large = replace(
        middle, WGD=128, NWGD=256, MDIMCD=16, NDIMCD=16, MDIMAD=32, NDIMBD=64, KWGD=8, SLICES=1
    )
    assert in_space(middle) and in_space(large)


@pytest.mark.parametrize("family", ["indirect", "direct"])
def test_lanes_may_lie_all_along_n(family):
    """Then a run of them stores single elements side by side."""
    space = search_space(family, "float32", AMPERE)
    rng = random.Random(3)
    point = {"LANES": 1, "NDIMC": 32, "VWN": 1}
    while (config := space.config(space.draw(rng) | point)) is None:
        pass
    assert (config.tiles.LANES_M, config.tiles.LANES_N, config.tiles.VWN) == (1, 32, 1)
    assert space.nearest_point(config)["LANES"] == 1


def test_what_no_element_can_be_and_work_groups_that_leave_lanes_idle_are_not_searched():
    for dtype, values in {"float16": (0, 1), "float64": (0, 1), "complex128": (0,)}.items():
        precision = problem(64, 64, 64, dtype).precision
        assert search_space("matrix", dtype, AMPERE, precision).axes["UNALIGNED"] == values
    space = search_space("indirect", "float32", AMPERE)
    point = space.repaired(space.draw(random.Random(0)), random.Random(0))
    assert space.config(dict(point) | {"MDIMC": 4, "NDIMC": 4, "SLICES": 1}) is None


def test_small_spaces_are_counted_and_large_ones_estimated():
    of_cpus = search_space("cpu", "float32", cpu())
    count = of_cpus.count()
    assert count.exact
    assert 0 < count.valid <= count.points == math.prod(map(len, of_cpus.axes.values()))
    space = search_space("indirect", "float32", AMPERE)
    assert not space.count().exact and space.count().points > 10**6
    fixed = ("LANES", "SWIZZLE", "SERPENTINE", "FILL", "PAD_A", "PAD_B")
    axes = {
        name: values[-1:] if name in fixed else values[:2] for name, values in space.axes.items()
    }
    small = replace(space, axes=axes | {"KWI": (2, 4), "MDIMC": (8, 16), "NDIMC": (8, 16)})
    exact, rng = small.count(), random.Random(0)
    hits = sum(small.config(small.draw(rng)) is not None for _ in range(2000)) / 2000
    assert exact.exact and hits == pytest.approx(exact.valid / exact.points, abs=0.05)


WHOLE = search_space("cpu", "float32", cpu())
SPACE = replace(WHOLE, axes={name: WHOLE.axes[name] for name in ("MR", "VECTORS", "KC", "VW")})
GOAL = CpuConfig(MR=10, NR=48, KC=384, VW=16)


def seconds(config):
    """Grows with the distance from the goal in every parameter."""
    pairs = [(getattr(config, name), getattr(GOAL, name)) for name in ("MR", "NR", "KC", "VW")]
    return math.exp(sum(abs(math.log2(one / other)) for one, other in pairs))


@pytest.fixture
def proposals():
    """A function that searches, and gives what was proposed, in order."""
    pytest.importorskip("optuna")

    def run(count, seed=0, space=SPACE, answer=seconds, known=()):
        search = Search(space, seed)
        for config in known:
            search.tell(config, 1.0)
        proposed = []
        while len(proposed) < count and (config := search.ask()) is not None:
            search.tell(config, answer(config))
            proposed.append(config)
        return proposed

    return run


def test_it_learns(proposals):
    points = [{}]
    for name, values in SPACE.axes.items():
        points = [point | {name: value} for point in points for value in values]
    ranked = sorted(map(seconds, filter(None, map(SPACE.config, points))))
    # A random search of 40 among about 1000 ends in the best 1 % every third time only.
    found = [min(map(seconds, proposals(40, seed))) for seed in range(5)]
    assert sum(one <= ranked[len(ranked) // 100] for one in found) >= 4
    assert proposals(12, 3) == proposals(12, 3)


def test_it_never_repeats_itself_and_comes_to_an_end(proposals):
    small = replace(SPACE, axes={"MR": (2, 4), "VECTORS": (1, 2), "KC": (256,), "VW": (8, 16)})
    known = CpuConfig(MR=2, NR=8, KC=256, VW=8)
    options = {"space": small, "known": [known]}
    proposed = proposals(99, **options, answer=lambda config: None if config.MR == 2 else 1.0)
    assert len(set(proposed)) == len(proposed) == 7 and known not in proposed


def test_it_avoids_what_cannot_be_used(proposals):
    proposed = proposals(60, answer=lambda config: None if config.VW != 16 else 1.0)
    usable = [config.VW == 16 for config in proposed]
    assert sum(usable[-15:]) > sum(usable[:15])


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UnsupportedError, match=r'pip install "pyclgemm\[tune\]"'):
        Search(SPACE, 0)
