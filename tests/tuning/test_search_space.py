"""The tuner's space: valid points, and coordinates of the configurations that are known."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.errors import ArgumentError
from pyclgemm.families.registry import violations
from pyclgemm.families.tiled.config import XgemmDirectConfig
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.selection.database import load_database
from pyclgemm.tuning.search import families_for, families_of, search_space, suits
from tests.support.facts import cpu, gpu, problem
from tests.support.reference import DTYPES

AMPERE = replace(gpu(), local_memory_bytes=227 * 1024, fence_options="")
DEVICES = [AMPERE, gpu(vendor="amd", architecture="gfx1030", name="RX 6800"), cpu()]
GPU_FAMILIES = ("indirect", "direct", "gemv")


def test_families():
    plain = resolve_precision("F32_F32_F32", "float32")
    assert families_of(cpu(), "float32", plain) == ("cpu",)
    assert families_of(gpu(), "float32", plain) == GPU_FAMILIES
    assert families_of(gpu(type="accelerator"), "float32", plain) == GPU_FAMILIES
    half = resolve_precision("F16_F16_F32", "float16")
    assert families_of(AMPERE, "float16", half) == (*GPU_FAMILIES, "gemv_unit", "matrix")
    assert families_of(gpu(vendor="amd"), "float16", half) == GPU_FAMILIES
    split = resolve_precision("TF32_TF32_F32_X3", "float32")
    assert families_of(AMPERE, "float32", split) == ("matrix",)


def test_an_unknown_family():
    with pytest.raises(ArgumentError, match="family is 'gpu'; known are indirect"):
        search_space("gpu", "float32", gpu())


@given(st.sampled_from(DEVICES), st.sampled_from(DTYPES), st.integers(0, 1000))
def test_a_repaired_point_is_valid_and_in_the_space(traits, dtype, seed):
    rng = random.Random(seed)
    for family in families_of(traits, dtype, resolve_precision(None, dtype)):
        space = search_space(family, dtype, traits)
        point = space.repaired(space.draw(rng), rng)
        assert point is not None
        assert all(point[name] in values for name, values in space.axes.items())
        config = space.config(point)
        assert config.family == family
        assert violations(config, dtype, traits) == []
        assert space.repaired(point, rng) == point


@pytest.mark.parametrize("family", ["cpu", "indirect", "direct", "matrix"])
def test_a_configuration_has_a_point(family):
    traits = cpu() if family == "cpu" else AMPERE
    space = search_space(family, "float32", traits)
    rng = random.Random(1)
    for _ in range(50):
        config = space.config(space.repaired(space.draw(rng), rng))
        assert space.config(space.nearest_point(config)) == config


def test_what_was_measured_on_an_h100_lies_in_the_space():
    hits = load_database().groups[-1]
    (file,) = [file for file in hits if file.match.architecture == "sm_90"]
    (entry,) = [
        entry
        for entry in file.entries
        if entry.precision == "F32_F32_F32" and entry.dtype == "float32"
    ]
    configs = [record.config for record in entry.records if record.config.family != "gemv"]
    inside = 0
    for config in configs:
        space = search_space(config.family, "float32", AMPERE)
        inside += space.config(space.nearest_point(config)) == config
    assert inside > 0.8 * len(configs)


def test_what_was_the_fastest_on_batches_lies_in_the_space():
    """Trials on an H100: 256 products of 128^3 and of 512^3 in float32."""
    middle = XgemmDirectConfig(
        WGD=64, MDIMCD=8, NDIMCD=8, MDIMAD=16, NDIMBD=16, KWID=8, VWMD=4, VWND=4, PADA=4, PADB=0,
        KWGD=16, STAGES=3, LANES_M=8, LANES_N=4, GROUP_M=8, ASYNC=1, FRAGMENTS=2, SLICES=2,
    )  # fmt: skip
    large = replace(
        middle, WGD=128, NWGD=256, MDIMCD=16, NDIMCD=16, MDIMAD=32, NDIMBD=64, KWGD=8, SLICES=1
    )
    space = search_space("direct", "float32", AMPERE)
    for config in (middle, large):
        assert space.config(space.nearest_point(config)) == config


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


def test_few_rows_or_columns_have_a_family_of_their_own():
    assert suits("gemv", problem(1, 4096, 64), gpu())
    assert suits("gemv", problem(4096, 8, 64), gpu())
    assert not suits("gemv", problem(4096, 4096, 64), gpu())
    assert suits("indirect", problem(4096, 4096, 64), gpu())


@pytest.mark.parametrize(("traits", "family"), [(gpu(), "small"), (cpu(), "small_cpu")])
def test_batches_of_small_products_have_a_family_of_their_own(traits, family):
    single, batch, few = (problem(64, 8, 8, batch=batch) for batch in (None, 32, 31))
    large = problem(65, 8, 8, batch=10_000)
    others = families_of(traits, "float32", batch.precision)
    assert families_for([single, few, large], traits) == others
    assert families_for([single, batch, large], traits) == (*others, family)
    assert [one for one in (*others, "small", "small_cpu") if suits(one, batch, traits)] == [family]
    for one in (single, few, large):
        assert not suits("small", one, traits) and not suits("small_cpu", one, traits)
        assert suits(others[0], one, traits)


@pytest.mark.parametrize(
    ("sizes", "dtype", "competes"),
    [
        ((16, 64, 16), "float16", True),
        ((15, 64, 64), "float16", False),  # fragments would not fill
        ((64, 64, 15), "float16", False),
        ((64, 64, 64), "float64", True),
        ((64, 64, 64), "float32", False),
        ((64, 64, 64), "complex64", False),
        ((64, 64, 64), "complex128", True),
    ],
)
def test_matrix_units_compete_for_small_products(sizes, dtype, competes):
    batch = problem(*sizes, dtype, batch=1000)
    others = families_of(AMPERE, dtype, batch.precision)
    suiting = [one for one in (*others, "small") if suits(one, batch, AMPERE)]
    assert suiting == ["matrix", "small"] * competes + ["small"] * (not competes)


def test_where_kernels_for_small_products_do_not_multiply_others_do():
    batch = problem(8, 8, 8, "complex64", batch=100)
    assert suits("cpu", batch, cpu()) and not suits("small_cpu", batch, cpu())
    assert suits("small", batch, gpu())
    units = problem(8, 8, 8, batch=100, precision="TF32_TF32_F32")
    assert suits("matrix", units, AMPERE) and not suits("small", units, AMPERE)


@pytest.mark.parametrize(("traits", "family"), [(gpu(), "small"), (cpu(), "small_cpu")])
def test_the_space_of_kernels_for_small_products_is_searched(traits, family):
    space, rng = search_space(family, "float32", traits), random.Random(2)
    for _ in range(20):
        config = space.config(space.repaired(space.draw(rng), rng))
        assert config.family == family
        assert space.config(space.nearest_point(config)) == config


def test_no_work_group_leaves_lanes_idle_on_nvidia():
    space = search_space("indirect", "float32", AMPERE)
    point = space.repaired(space.draw(random.Random(0)), random.Random(0))
    assert space.config(dict(point) | {"MDIMC": 4, "NDIMC": 4, "SLICES": 1}) is None


def test_an_exact_count():
    count = search_space("cpu", "float32", cpu()).count()
    assert count.exact
    assert count.points == math.prod(map(len, search_space("cpu", "float32", cpu()).axes.values()))
    assert 0 < count.valid <= count.points


def test_an_estimated_count_agrees_with_an_exact_one():
    space = search_space("indirect", "float32", AMPERE)
    small = replace(
        space,
        axes={name: values[:2] for name, values in space.axes.items()}
        | {
            name: space.axes[name][-1:]
            for name in ("LANES", "SWIZZLE", "SERPENTINE", "FILL", "PAD_A", "PAD_B")
        },
    )
    small = replace(small, axes=small.axes | {"KWI": (2, 4), "MDIMC": (8, 16), "NDIMC": (8, 16)})
    exact = small.count()
    assert exact.exact
    rng = random.Random(0)
    hits = sum(small.config(small.draw(rng)) is not None for _ in range(2000)) / 2000
    assert hits == pytest.approx(exact.valid / exact.points, abs=0.05)
    assert not space.count().exact
    assert space.count().points > 10**6


@pytest.mark.parametrize(
    ("dtype", "values"), [("float16", (0, 1)), ("float64", (0, 1)), ("complex128", (0,))]
)
def test_what_no_element_can_be_is_not_searched(dtype, values):
    precision = problem(64, 64, 64, dtype).precision
    assert search_space("matrix", dtype, AMPERE, precision).axes["UNALIGNED"] == values


def test_what_multiplies_complex_elements_is_no_warpgroup_unit():
    hopper = gpu(wgmma=True, local_memory_bytes=227 * 1024, fence_options="")
    for dtype, expected in (("complex128", ["matrix"]), ("complex64", [])):
        families = families_of(hopper, dtype, resolve_precision(None, dtype))
        assert [one for one in families if one not in GPU_FAMILIES] == expected
    assert "wgmma" in families_of(hopper, "float32", resolve_precision("TF32_TF32_F32", "float32"))
    assert families_of(hopper, "complex64", resolve_precision("TF32_TF32_F32", "complex64")) == ()
