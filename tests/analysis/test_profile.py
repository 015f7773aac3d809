"""Profiles of products: measured on a device, shown as a table, a plot and a command."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from pyclgemm.analysis import ceilings as ceilings_cache
from pyclgemm.analysis import report as profile_plot
from pyclgemm.analysis.ceilings import Ceilings
from pyclgemm.analysis.occupancy import KernelResources, Occupancy
from pyclgemm.analysis.profile import analyse, assess, profile
from pyclgemm.analysis.report import profile_table
from pyclgemm.cli.main import main
from pyclgemm.codegen.stream_k import Division
from pyclgemm.errors import ArgumentError, ConfigError, FileError, PyclgemmError
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig
from pyclgemm.measure import operands as operand_pool
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.select import Choice
from tests.support.checks import skip_if_refused
from tests.support.system import rank_of, text_of

ARITHMETIC = {"float16": 500.0, "float32": 1000.0, "float64": 500.0}
CEILINGS = Ceilings(ARITHMETIC, 100.0, 400.0, 2000.0, 1e-5, "2026-01-01")


@pytest.fixture(scope="module")
def measured(queue):
    return profile(queue, GemmShape(96, 80, 64).product(), ceilings=CEILINGS, rounds=1)


def test_a_profile_relates_time_to_ceilings(measured, traits):
    assert measured.seconds > 0
    flops = 2 * 96 * 80 * 64
    assert measured.gflops == pytest.approx(flops / measured.seconds / 1e9)
    shares = [bound.share for bound in measured.bounds]
    assert shares == sorted(shares, reverse=True)
    for bound in measured.bounds:
        assert bound.share == pytest.approx(bound.seconds / measured.seconds)
    least = 4 * (96 * 64 + 64 * 80 + 96 * 80)
    assert measured.intensity(measured.analysis.traffic.least) == pytest.approx(flops / least)
    assert measured.analysis.utilisation.units == traits.compute_units
    assert measured.analysis.loads


def test_parameters_and_epilogue_are_those_asked_for(queue, traits):
    if traits.type != "cpu":
        pytest.skip("parameters of the cpu family")
    product = GemmShape(20, 24, 28, "TT").product(
        "float64", reads_c=True, bias=True, activation="silu"
    )
    found = profile(queue, product, parameters={"KC": 128}, ceilings=CEILINGS, rounds=1)
    assert found.analysis.choice.config.KC == 128
    assert found.analysis.product.problem.activation == "silu"
    with pytest.raises(ConfigError, match="no parameter FOO"):
        profile(queue, product, parameters={"FOO": 1}, ceilings=CEILINGS)


def test_a_narrow_result_is_analysed_as_it_is_computed(queue, traits):
    if traits.type != "cpu":
        pytest.skip("only CPUs compute narrow results as their transposes")
    config = CpuConfig(MR=4, NR=8, KC=64, VW=8)
    choice = Choice("cpu", config, "caller", "", "")
    analysis = analyse(queue, GemmShape(200, 4, 64).product(), choice)
    assert analysis.product.problem.n == 4
    assert (analysis.utilisation.tiles, analysis.utilisation.useful) == (25, 1.0)
    assert analysis.traffic.tiles == 25 * 64 * (4 + 8) * 4


def test_shared_tiles_move_partial_sums(queue):
    config = XgemmDirectConfig(
        WGD=16, KWGD=8, MDIMCD=8, NDIMCD=4, MDIMAD=8, NDIMBD=4, KWID=2, VWMD=2, VWND=2, PADA=0,
        PADB=0, FILL=1,
    )  # fmt: skip
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


def test_a_wrong_result_ends_the_profile(queue, monkeypatch):
    real = operand_pool.plan

    def without_a(queue, a, b, *rest, **others):
        ready = real(queue, a, b, *rest, **others)
        return lambda a, b, out: ready(0 * a, b, out=out)

    monkeypatch.setattr(operand_pool, "plan", without_a)
    with pytest.raises(PyclgemmError, match="is wrong"):
        profile(queue, GemmShape(16, 16, 16).product(), ceilings=CEILINGS)


def as_gpu(measured):
    """The profile as it would be on a GPU whose driver tells everything."""
    analysis = measured.analysis
    config = XgemmConfig(
        MWG=32, NWG=32, KWG=16, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=4, VWN=4
    )
    analysis = dataclasses.replace(
        analysis,
        traits=dataclasses.replace(analysis.traits, type="gpu", name="Some [GPU]"),
        choice=dataclasses.replace(analysis.choice, path="indirect", config=config),
        resources=KernelResources(221, 12, 16, 4096, "the build log"),
        occupancy=Occupancy(2, 16, 64, "registers"),
        traffic=dataclasses.replace(
            analysis.traffic, tiles=10**6, local=10**7, local_by_items=10**8
        ),
    )
    return assess(analysis, CEILINGS, 1e-4)


def test_the_table_says_what_a_cpu_has_not(measured, traits):
    text = text_of(profile_table(measured))
    for part in ("96 x 80 x 64", "GFLOPS", "verdict", "to try", measured.verdict.kind, "occupancy"):
        assert part in text
    if traits.type == "cpu":
        assert "does not apply" in text
        assert "None" not in text


def test_the_table_says_what_a_gpu_has(measured):
    text = text_of(profile_table(as_gpu(measured)))
    for part in (
        "Some [GPU]", "221 and 12 bytes", "16 of 64 sub-groups", "limited by registers",
        "4.0 KiB", "400 GB/s from the second-level cache", "2000 GB/s from local memory",
        "least, by local memory", "work-items shared nothing",
    ):  # fmt: skip
        assert part in text
    unknown = as_gpu(measured)
    analysis = dataclasses.replace(
        unknown.analysis, resources=KernelResources(None, None, None, 0, "nobody tells")
    )
    assert "unknown: nobody tells" in text_of(
        profile_table(dataclasses.replace(unknown, analysis=analysis))
    )


def test_the_plot_is_a_picture(measured, tmp_path):
    pytest.importorskip("matplotlib")
    for number, one in enumerate((measured, as_gpu(measured))):
        path = tmp_path / f"{number}.png"
        profile_plot.plot_roofline(one, path)
        assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileError, match="cannot be written"):
        profile_plot.plot_roofline(measured, tmp_path / "0.png" / "x.png")
    with pytest.raises(ArgumentError, match="cannot be written"):
        profile_plot.plot_roofline(measured, tmp_path / "x.nonsense")


def test_a_plot_without_matplotlib_says_what_to_install(measured, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PyclgemmError, match=r'pip install "pyclgemm\[profile\]"'):
        profile_plot.plot_roofline(measured, tmp_path / "x.png")


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """A user's folder of the test's own, and a measurement that takes no time."""
    calls = []

    def measure(queue, report):
        calls.append(queue)
        return CEILINGS

    monkeypatch.setattr(ceilings_cache, "ceilings_folder", lambda: tmp_path / "ceilings")
    monkeypatch.setattr(ceilings_cache, "measure_ceilings", measure)
    return calls


def test_the_command(device, cached, tmp_path):
    arguments = ["profile", "32x24x16", "--device", rank_of(device), "--rounds", "1"]
    result = CliRunner().invoke(main, [*arguments, "--plot", str(tmp_path / "roof.png")])
    assert result.exit_code == 0, result.output
    assert "32 x 24 x 16" in result.output
    assert (tmp_path / "roof.png").stat().st_size > 1000
    again = CliRunner().invoke(main, [*arguments, "--bias", "--dtype", "float32"])
    assert again.exit_code == 0, again.output
    assert len(cached) == 1
    CliRunner().invoke(main, [*arguments, "--remeasure"])
    assert len(cached) == 2


def test_a_wider_result_is_what_is_measured(queue):
    product = GemmShape(16, 16, 16).product(
        "float16", result_dtype="float32", reads_c=True, bias=True
    )
    found = profile(queue, product, ceilings=CEILINGS, rounds=1)
    assert found.analysis.product.problem.types == "float16 -> float32"
    assert found.analysis.traffic.least == 2 * (256 + 256) + 4 * 2 * 256


def test_float16_sums_are_compared_with_their_own_ceiling(queue):
    peaks = {"matrix": 2000.0, "wgmma": 4000.0}
    units = {f"{family} float16": gflops for family, gflops in peaks.items()}
    peaks["gemv_unit"] = peaks["matrix"]  # the same instruction
    ceilings = dataclasses.replace(CEILINGS, units=units)
    found = profile(queue, GemmShape(16, 16, 16).product("float16"), ceilings=ceilings, rounds=1)
    peak = peaks.get(found.analysis.choice.path, CEILINGS.arithmetic["float32"])
    arithmetic = next(bound for bound in found.bounds if bound.name == "arithmetic")
    utilisation = found.analysis.utilisation
    useful = utilisation.useful or 1.0  # gemv has no tiles
    done = 2 * 16**3 / useful / utilisation.balance
    assert arithmetic.seconds == pytest.approx(done / (peak * 1e9))
    assert np.isfinite(found.gflops)
