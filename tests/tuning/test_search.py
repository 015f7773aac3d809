"""The tuner's search: families, their spaces, and proposals that learn from measured times."""

import math
import random
import sys
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings, strategies as st

from pyclgemm import CpuConfig
from pyclgemm.errors import ArgumentError, UnsupportedError
from pyclgemm.families.registry import violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.selection.database import load_database
from pyclgemm.tuning.search import Search, families_for, search_space, suits
from tests.support.facts import cpu, gpu, problem_of
from tests.support.reference import DTYPES

AMD = gpu(vendor="amd", architecture="gfx1030", name="RX 6800")
AMPERE = gpu(local_memory_bytes=227 * 1024, fence_options="")
HOPPER = replace(AMPERE, wgmma=True)
GPU_FAMILIES = ["indirect", "direct", "gemv"]


@pytest.mark.parametrize(
    ("traits", "dtype", "precision", "families"),
    [
        (cpu(), "float32", None, ["cpu"]),
        (gpu(), "float32", None, GPU_FAMILIES),
        (gpu(type="accelerator"), "float32", None, GPU_FAMILIES),
        (AMPERE, "float16", "F16_F16_F32", [*GPU_FAMILIES, "gemv_unit", "matrix"]),
        (AMD, "float16", "F16_F16_F32", GPU_FAMILIES),
        (AMPERE, "float32", "TF32_TF32_F32_X3", ["matrix"]),
        (HOPPER, "float32", "TF32_TF32_F32", ["gemv_unit", "matrix", "wgmma"]),
        *((HOPPER, dtype, None, [*GPU_FAMILIES, "gemv_unit", "matrix", "wgmma"])
          for dtype in ("float16", "bfloat16")),
        (HOPPER, "int8", None, [*GPU_FAMILIES, "matrix", "wgmma"]),
        # Warpgroup units multiply no complex elements.
        (HOPPER, "complex128", None, [*GPU_FAMILIES, "gemv_unit", "matrix"]),
        (HOPPER, "complex64", None, GPU_FAMILIES),
        (HOPPER, "complex64", "TF32_TF32_F32", []),
    ],
)  # fmt: skip
def test_the_families_for_a_device_and_a_type(traits, dtype, precision, families):
    wanted = problem_of("9x9x9", dtype, precision)
    assert list(families_for([wanted], traits)) == families


def test_an_unknown_family_is_refused():
    with pytest.raises(ArgumentError, match="family is 'gpu'; known are indirect"):
        search_space("gpu", "float32", gpu())


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
        *((f"{rows}x512x512", (dtype,), HOPPER, families)
          for dtype in ("float16", "bfloat16")
          for rows, families in ((8, [*GPU_FAMILIES, "gemv_unit", "matrix", "wgmma"]),
                                 (512, ["indirect", "direct", "matrix", "wgmma"]))),
        ("64x8x8*32", ("float32",), gpu(), ["small"]),
        ("64x8x8*32", ("float32",), cpu(), ["small_cpu"]),
        # Matrix units take part where a product is at least as large as a fragment.
        ("16x64x16*1000", ("float16",), AMPERE, ["matrix", "small"]),
        ("15x64x64*1000", ("float16",), AMPERE, ["small"]),
        ("64x64x15*1000", ("float16",), AMPERE, ["small"]),
        ("64x64x64*1000", ("float64",), AMPERE, ["matrix", "small"]),
        ("64x64x64*1000", ("float32",), AMPERE, ["small"]),
        ("64x64x64*1000", ("complex64",), AMPERE, ["small"]),
        ("64x64x64*1000", ("complex128",), AMPERE, ["matrix", "small"]),
        # Other families take part where those for small products cannot compute the type.
        ("8x8x8*100", ("complex64",), cpu(), ["cpu"]),
        ("8x8x8*100", ("complex64",), gpu(), ["small"]),
        ("8x8x8*100", ("float32", "TF32_TF32_F32"), AMPERE, ["gemv_unit", "matrix"]),
    ],
)  # fmt: skip
def test_families_that_suit_a_product(text, types, traits, families):
    wanted = problem_of(text, *types)
    single = replace(wanted, batch=None)
    others = families_for([single], traits)
    suiting = [one for one in (*others, "small", "small_cpu") if suits(one, wanted, traits)]
    assert suiting == families
    small = [one for one in families if one not in others]
    assert families_for([single, wanted], traits) == (*others, *small)


@settings(max_examples=60)
@given(st.sampled_from([AMPERE, AMD, cpu()]), st.sampled_from(DTYPES), st.integers(0, 1000))
def test_a_repaired_point_is_valid_and_in_the_space(traits, dtype, seed):
    rng, problems = random.Random(seed), [problem_of(text, dtype) for text in ("9x9x9", "9x9x9*99")]
    for family in families_for(problems, traits):
        space = search_space(family, dtype, traits)
        point = space.repaired(space.draw(rng), rng)
        assume(point)  # of one point in a thousand no valid one is found
        assert all(point[name] in values for name, values in space.axes.items())
        config = space.config(point)
        assert config.family == family and violations(config, dtype, traits) == []
        assert space.repaired(point, rng) == point
        assert space.config(space.nearest_point(config)) == config


@given(st.sampled_from([AMPERE, AMD, cpu()]), st.integers(0, 1000))
def test_a_neighbour_is_in_the_space_and_differs_in_a_few_coordinates(traits, seed):
    rng = random.Random(seed)
    for family in families_for([problem_of("9x9x9", "float32")], traits):
        space = search_space(family, "float32", traits)
        point = space.draw(rng)
        neighbour = space.neighbour(point, rng)
        assert all(neighbour[name] in values for name, values in space.axes.items())
        assert sum(neighbour[name] != point[name] for name in space.axes) <= 3


def test_most_of_the_fastest_configurations_of_an_h100_are_in_the_space():
    def is_in_space(config):
        space = search_space(config.family, "float32", AMPERE)
        return space.config(space.nearest_point(config)) == config

    [(_, entry), *_] = load_database().lookup(gpu(), "float32", "F32_F32_F32")
    configs = [record.config for record in entry.records if record.config.family != "gemv"]
    assert sum(map(is_in_space, configs)) > 0.85 * len(configs)


@pytest.mark.parametrize("family", ["indirect", "direct"])
def test_all_lanes_may_lie_along_n(family):
    """Then a run of lanes stores single elements side by side."""
    space = search_space(family, "float32", AMPERE)
    rng = random.Random(3)
    point = {"LANES": 1, "NDIMC": 32, "VWN": 1}
    while (config := space.config(space.draw(rng) | point)) is None:
        pass
    assert (config.tiles.LANES_M, config.tiles.LANES_N, config.tiles.VWN) == (1, 32, 1)
    assert space.nearest_point(config)["LANES"] == 1


def test_unaligned_complex128_and_work_groups_with_idle_lanes_are_not_in_the_space():
    for dtype, values in {"float16": (0, 1, 2), "float64": (0, 1, 2), "complex128": (0,)}.items():
        precision = resolve_precision(None, dtype)
        assert search_space("matrix", dtype, AMPERE, precision).axes["UNALIGNED"] == values
    space = search_space("indirect", "float32", AMPERE)
    point = space.repaired(space.draw(random.Random(0)), random.Random(0))
    assert space.config(point | {"MDIMC": 4, "NDIMC": 4, "SLICES": 1}) is None


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


def proposals(count, seed=0, space=SPACE, seconds_of=seconds, known=()):
    """Search, and return the proposed configurations in order."""
    pytest.importorskip("optuna")
    search, proposed = Search(space, seed), []
    for config in known:
        search.tell(config, 1.0)
    while len(proposed) < count and (config := search.ask()) is not None:
        search.tell(config, seconds_of(config))
        proposed.append(config)
    return proposed


def test_proposals_improve_with_the_measured_times():
    points = [dict(zip(SPACE.axes, one, strict=True)) for one in product(*SPACE.axes.values())]
    ranked = sorted(map(seconds, filter(None, map(SPACE.config, points))))
    # A random search of 40 among about 1000 ends in the best 1 % only every third time.
    found = [min(map(seconds, proposals(40, seed))) for seed in range(5)]
    assert sum(one <= ranked[len(ranked) // 100] for one in found) >= 4
    assert proposals(12, 3) == proposals(12, 3)


def test_each_point_is_proposed_once_until_none_is_left():
    small = replace(SPACE, axes={"MR": (2, 4), "VECTORS": (1, 2), "KC": (256,), "VW": (8, 16)})
    known = CpuConfig(MR=2, NR=8, KC=256, VW=8)
    proposed = proposals(99, 0, small, lambda config: None if config.MR == 2 else 1.0, [known])
    assert len(set(proposed)) == len(proposed) == 7 and known not in proposed


def test_proposals_avoid_what_cannot_be_used():
    proposed = proposals(60, seconds_of=lambda config: None if config.VW != 16 else 1.0)
    usable = [config.VW == 16 for config in proposed]
    assert sum(usable[-15:]) > sum(usable[:15])


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UnsupportedError, match=r'pip install "pyclgemm\[tune\]"'):
        Search(SPACE, 0)
