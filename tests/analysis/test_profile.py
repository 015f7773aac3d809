"""Profiles of products: measured on a device, shown as a table, a plot and a command."""

import sys
from dataclasses import asdict, replace
from unittest.mock import Mock

import numpy as np
import pytest

from pyclgemm import CpuConfig
from pyclgemm.analysis import ceilings
from pyclgemm.analysis import operands as operand_pool
from pyclgemm.analysis.profile import KernelResources, analyse, assess, profile
from pyclgemm.analysis.report import plot_roofline, profile_table
from pyclgemm.codegen.stream_k import Division
from pyclgemm.device.ceilings import Occupancy
from pyclgemm.errors import ArgumentError, ConfigError, FileError, PyclgemmError
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.select import Choice
from tests.support import configs
from tests.support.checks import skip_if_refused
from tests.support.system import output_of, rank_of, text_of
from tests.support.typical_configs import INDIRECT

ARITHMETIC = {"float16": 500.0, "float32": 1000.0, "float64": 500.0}
CEILINGS = ceilings.Ceilings(ARITHMETIC, 100.0, 400.0, 2000.0, 1e-5, "2026-01-01")
SMALL = GemmShape(16, 16, 16)


def profiled(queue, product, **options):
    return profile(queue, product, **{"ceilings": CEILINGS, "rounds": 1} | options)


@pytest.fixture(scope="module")
def measured(queue):
    return profiled(queue, GemmShape(96, 80, 64).product())


def test_a_profile_relates_time_to_ceilings(measured, traits):
    flops, least = 2 * 96 * 80 * 64, 4 * (96 * 64 + 64 * 80 + 96 * 80)
    assert measured.gflops == pytest.approx(flops / measured.seconds / 1e9)
    assert measured.intensity(measured.analysis.traffic.least) == pytest.approx(flops / least)
    shares = [bound.share for bound in measured.bounds]
    assert shares == sorted(shares, reverse=True)
    assert shares == pytest.approx([one.seconds / measured.seconds for one in measured.bounds])
    assert measured.analysis.utilisation.units == traits.compute_units and measured.analysis.loads


def test_parameters_and_epilogue_are_those_asked_for(queue, cpu_only):
    epilogue = {"reads_c": True, "bias": True, "activation": "silu"}
    product = GemmShape(20, 24, 28, "TT").product("float64", **epilogue)
    analysis = profiled(queue, product, parameters={"KC": 128}).analysis
    assert (analysis.choice.config.KC, analysis.product.problem.activation) == (128, "silu")
    with pytest.raises(ConfigError, match="no parameter FOO"):
        profiled(queue, product, parameters={"FOO": 1})


def test_a_narrow_result_is_analysed_as_it_is_computed(queue, cpu_only):
    choice = Choice("cpu", CpuConfig(MR=4, NR=8, KC=64, VW=8), "caller", "", "")
    analysis = analyse(queue, GemmShape(200, 4, 64).product(), choice)
    assert analysis.product.problem.n == 4
    assert (analysis.utilisation.tiles, analysis.utilisation.useful) == (25, 1.0)
    assert analysis.traffic.tiles == 25 * 64 * (4 + 8) * 4


def test_shared_tiles_move_partial_sums(queue):
    config = replace(configs.DIRECT, KWGD=8, FILL=1)
    skip_if_refused(queue, config)
    units = queue.device.max_compute_units
    product = GemmShape(16, 16, 8 * 20 * units).product()
    analysis = analyse(queue, product, Choice("direct", config, "caller", "", ""))
    # All groups share the only tile.
    sums = Division(units, 0).partial_sums(1, 20 * units) if units > 1 else 0
    assert analysis.utilisation.groups == units
    assert analysis.traffic.joining == 2 * 4 * 16 * 16 * sums
    text = text_of(profile_table(assess(analysis, CEILINGS, 1e-3)))
    assert ("joining sums moves" in text) is (units > 1)


def test_a_wider_result_is_what_is_measured_and_a_wrong_one_ends_the_profile(queue, monkeypatch):
    options = {"result_dtype": "float32", "reads_c": True, "bias": True}
    analysis = profiled(queue, SMALL.product("float16", **options)).analysis
    assert analysis.product.problem.types == "float16 -> float32"
    assert analysis.traffic.least == 2 * (256 + 256) + 4 * 2 * 256
    real = operand_pool.plan

    def without_a(queue, a, b, *rest, **others):
        ready = real(queue, a, b, *rest, **others)
        return lambda a, b, out: ready(0 * a, b, out=out)

    monkeypatch.setattr(operand_pool, "plan", without_a)
    with pytest.raises(PyclgemmError, match="is wrong"):
        profiled(queue, SMALL.product())


def test_float16_sums_are_compared_with_their_own_ceiling(queue):
    units = {"matrix float16": 2000.0, "wgmma float16": 4000.0}
    found = profiled(queue, SMALL.product("float16"), ceilings=replace(CEILINGS, units=units))
    analysis = found.analysis
    family = {"gemv_unit": "matrix"}.get(analysis.choice.path, analysis.choice.path)
    peak = units.get(f"{family} float16", ARITHMETIC["float32"])
    arithmetic = next(bound for bound in found.bounds if bound.name == "arithmetic")
    useful = analysis.utilisation.useful or 1.0  # gemv has no tiles
    done = 2 * 16**3 / useful / analysis.utilisation.balance
    assert arithmetic.seconds == pytest.approx(done / (peak * 1e9))
    assert np.isfinite(found.gflops)


@pytest.fixture(scope="module")
def on_gpu(measured):
    """The profile as it would be on a GPU whose driver tells everything."""
    analysis = measured.analysis
    traffic = {"tiles": 10**6, "local": 10**7, "local_by_items": 10**8}
    analysis = replace(
        analysis,
        traits=replace(analysis.traits, type="gpu", name="Some [GPU]"),
        choice=replace(analysis.choice, path="indirect", config=INDIRECT),
        resources=KernelResources(221, 12, 16, 4096, "the build log"),
        occupancy=Occupancy(2, 16, 64, "registers"),
        traffic=replace(analysis.traffic, **traffic),
    )
    return assess(analysis, CEILINGS, 1e-4)


def test_the_table_says_what_a_cpu_has_not(measured, traits):
    text = text_of(profile_table(measured))
    for part in ("96 x 80 x 64", "GFLOPS", "verdict", "to try", measured.verdict.kind, "occupancy"):
        assert part in text
    assert traits.type != "cpu" or ("does not apply" in text and "None" not in text)


def test_the_table_says_what_a_gpu_has(on_gpu):
    text = text_of(profile_table(on_gpu))
    for part in (
        "Some [GPU]", "221 and 12 bytes", "16 of 64 sub-groups", "limited by registers",
        "4.0 KiB", "400 GB/s from the second-level cache", "2000 GB/s from local memory",
        "least, by local memory", "work-items shared nothing",
    ):  # fmt: skip
        assert part in text
    silent = replace(on_gpu.analysis, resources=KernelResources(None, None, None, 0, "nobody told"))
    assert "unknown: nobody told" in text_of(profile_table(replace(on_gpu, analysis=silent)))


def test_the_plot_is_a_picture(measured, on_gpu, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    for one in (measured, on_gpu):
        plot_roofline(one, path)
        assert path.read_bytes().startswith(b"\x89PNG")
        path.write_bytes(b"")
    with pytest.raises(FileError, match="cannot be written"):
        plot_roofline(measured, path / "x.png")
    with pytest.raises(ArgumentError, match="cannot be written"):
        plot_roofline(measured, tmp_path / "x.nonsense")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PyclgemmError, match=r'pip install "pyclgemm\[profile\]"'):
        plot_roofline(measured, path)


def test_the_command(device, monkeypatch, tmp_path):
    measure = Mock(return_value=[asdict(CEILINGS)])
    monkeypatch.setattr(ceilings, "ceilings_folder", lambda: tmp_path / "ceilings")
    monkeypatch.setattr(ceilings, "measure_ceilings", measure)
    command = ("profile", "32x24x16", "--device", rank_of(device), "--rounds", 1)
    assert "32 x 24 x 16" in output_of(*command, "--plot", tmp_path / "roof.png")
    assert (tmp_path / "roof.png").stat().st_size > 1000
    output_of(*command, "--bias", "--dtype", "float32")
    assert measure.call_count == 1
    output_of(*command, "--remeasure")
    assert measure.call_count == 2
