"""Profiles of products: what drivers report of kernels, the measurement, its table and plot."""

import sys
from dataclasses import asdict, replace
from unittest.mock import MagicMock, Mock, patch

import pytest

from pyclgemm import CpuConfig
from pyclgemm.analysis import ceilings, operands as operand_pool, profile as profiles
from pyclgemm.analysis.profile import KernelResources, analyse, assess, profile, resources_of
from pyclgemm.analysis.report import plot_roofline, profile_table
from pyclgemm.codegen.stream_k import Division
from pyclgemm.device.ceilings import Occupancy
from pyclgemm.errors import ArgumentError, ConfigError, FileError, PyclgemmError
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose, kernel_sources
from pyclgemm.selection.select import Choice
from tests.support import configs
from tests.support.checks import skip_if_refused
from tests.support.facts import CEILINGS
from tests.support.system import output_of, rank_of, text_of
from tests.support.typical_configs import INDIRECT

LOG = """ptxas info    : 24 bytes gmem, 32 bytes cmem[4]
ptxas info    : Compiling entry function 'pack_a' for 'sm_75'
ptxas info    : Function properties for pack_a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'xgemm' for 'sm_75'
ptxas info    : Function properties for xgemm
ptxas         .     72 bytes stack frame, 96 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 33792+0 bytes smem, 72 bytes cmem[0]
"""


@pytest.mark.parametrize(
    ("log", "kernel", "figures"),
    [
        (LOG, "pack_a", {"registers": 16, "stack": 0, "stores": 0, "loads": 0}),
        (LOG, "xgemm",
         {"registers": 255, "stack": 72, "stores": 96, "loads": 120, "local": 33792}),
        ("", "xgemm", {}), ("warning: unused variable\n", "xgemm", {}), (LOG, "other", {}),
    ],
)  # fmt: skip
def test_logs_of_nvidias_assembler(log, kernel, figures):
    assert profiles.parse_ptxas_log(log, kernel) == figures


def code_object(**figures):
    """A code object of AMD with metadata, whose numbers take one to three bytes."""
    body = b""
    for key, value in figures.items():
        size = (value > 0x7F) + (value > 0xFF)
        number = [b"", b"\xcc", b"\xcd"][size] + value.to_bytes(max(1, size), "big")
        body += bytes([0xA0 + len(key) + 1]) + b"." + key.encode() + number
    return b"\x7fELF\x02\x01amdhsa.kernels" + body + b"\xaa.wavefront"


ALL_FIGURES = code_object(
    vgpr_count=170, vgpr_spill_count=3, private_segment_fixed_size=16,
    group_segment_fixed_size=33792,
)  # fmt: skip


@pytest.mark.parametrize(
    ("binary", "figures"),
    [
        (ALL_FIGURES, {"registers": 170, "spills": 3, "private": 16, "local": 33792}),
        (code_object(vgpr_count=94), {"registers": 94}),
        (b"", {}), (b"\x7fELF", {}), (b"//PTX .vgpr_count\x10", {}), (b"\x7fELF.vgpr_count", {}),
    ],
)  # fmt: skip
def test_metadata_of_amds_binaries(binary, figures):
    assert profiles.parse_amd_binary(binary) == figures


@pytest.fixture
def source(traits):
    product = GemmShape(64, 64, 64).product()
    choice = choose(product.problem, traits, load_database())
    resources_of.cache_clear()
    yield kernel_sources(product, choice.config, traits)[-1]
    resources_of.cache_clear()


def test_resources_of_a_kernel_of_this_device(context, device, traits, source):
    resources = resources_of(context, device, source)
    if traits.type == "cpu":
        assert resources.registers is resources.spill_bytes is resources.private_bytes is None
        assert "CPU" in resources.source
    elif traits.vendor == "nvidia":
        assert 16 <= resources.registers <= 255


@pytest.fixture
def as_nvidia(monkeypatch, traits):
    shown = replace(traits, type="gpu", vendor="nvidia", architecture="sm_90")
    monkeypatch.setattr(profiles, "traits_of", lambda device: shown)


def test_a_kernel_without_a_log_is_compiled_again(context, device, source, as_nvidia, monkeypatch):
    """NVIDIA's driver has no log of a kernel from its cache."""
    log = Mock(side_effect=["", LOG.replace("xgemm", source.name)])
    monkeypatch.setattr(profiles, "_nvidia_log", log)
    resources = resources_of(context, device, source)
    assert (resources.registers, resources.spill_bytes) == (255, 120)
    first, second = (call.args[-1] for call in log.call_args_list)
    assert first == source.text
    assert second.startswith(source.text)
    assert "__kernel void fresh_" in second


def test_a_driver_without_the_option_reports_nothing(context, device, source, as_nvidia):
    if "nvidia" in device.vendor.lower():
        pytest.skip("this driver has the option")
    resources = resources_of(context, device, source)
    assert resources.registers is None
    assert resources.source == "the driver's build log told nothing"


def test_lifted_instructions_are_assembled_for_the_log(context, device, source, monkeypatch):
    """They are comments to the compiler, so only the log of the second program counts them."""
    programs = MagicMock()
    built = programs.return_value.build.return_value = programs.return_value
    built.get_info.return_value = [b".target sm_90\n//@wgmma.fence.sync.aligned;\n"]
    built.get_build_info.side_effect = lambda *what: f"log of program {programs.call_count}"
    monkeypatch.setattr(profiles.cl, "Program", programs)
    lifted = replace(source, target="sm_90a")
    logs = [profiles._nvidia_log(context, device, one, one.text) for one in (source, lifted)]
    assert logs == ["log of program 1", "log of program 3"]
    (binary,) = programs.call_args.args[2]
    assert binary == b".target sm_90a\nwgmma.fence.sync.aligned;\n"
    assert all("-cl-nv-verbose" in call.args[0] for call in built.build.call_args_list)


# ------------------------------------------------------------------ measurements

SMALL = GemmShape(16, 16, 16)


@pytest.fixture(scope="module", autouse=True)
def remeasured():
    """Beaten ceilings are not measured again, nor written to the user's folder."""
    with patch.object(
        profiles, "remeasured", side_effect=lambda queue, known, *others: known
    ) as it:
        yield it


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


def test_a_profile_has_the_parameters_and_the_epilogue_asked_for(queue, cpu_only):
    epilogue = {"reads_c": True, "bias": True, "activation": "silu"}
    product = GemmShape(20, 24, 28, "TT").product("float64", **epilogue)
    analysis = profiled(queue, product, parameters={"KC": 128}).analysis
    assert (analysis.choice.config.KC, analysis.product.problem.activation) == (128, "silu")
    with pytest.raises(ConfigError, match="no parameter FOO"):
        profiled(queue, product, parameters={"FOO": 1})


@pytest.mark.parametrize("text", ["40x24x16:TN+3", "9x1x20+5", "1x9x20+5", "8x8x8:NT+3*50"])
def test_a_profile_is_of_the_shape_asked_for(queue, monkeypatch, text):
    made = Mock(side_effect=profiles.make_operands)
    monkeypatch.setattr(profiles, "make_operands", made)
    shape = GemmShape.parse(text)
    result = profiled(queue, shape.product())
    assert str(made.call_args.args[1]) == text
    assert result.analysis.product.problem.flops == shape.problem().flops


def test_a_narrow_result_is_analysed_as_the_transposed_product(queue, cpu_only):
    choice = Choice("cpu", CpuConfig(MR=4, NR=8, KC=64, VW=8), "caller", "", "")
    analysis = analyse(queue, GemmShape(200, 4, 64).product(), choice)
    assert analysis.product.problem.n == 4
    assert (analysis.utilisation.tiles, analysis.utilisation.useful) == (25, 1.0)
    assert analysis.traffic.tiles == 25 * 64 * (4 + 8) * 4


def test_work_groups_that_share_a_tile_move_partial_sums(queue):
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


def test_a_wider_result_is_measured_and_a_wrong_one_ends_the_profile(queue, monkeypatch):
    options = {"result_dtype": "float32", "reads_c": True, "bias": True}
    analysis = profiled(queue, SMALL.product("float16", **options)).analysis
    assert analysis.product.problem.types == "float16 -> float32"
    assert analysis.traffic.least == 2 * (256 + 256) + 4 * 2 * 256
    monkeypatch.setattr(operand_pool, "plan", lambda *arrays, **options: Mock())
    with pytest.raises(PyclgemmError, match="is wrong"):
        profiled(queue, SMALL.product())


@pytest.fixture(scope="module")
def on_gpu(measured):
    """The profile as it would be on a GPU whose driver reports everything."""
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


def test_the_table(measured, on_gpu, traits):
    text = text_of(profile_table(measured))
    for part in ("96 x 80 x 64", "GFLOPS", "verdict", "to try", measured.verdict.kind, "occupancy"):
        assert part in text
    assert traits.type != "cpu" or ("does not apply" in text and "None" not in text)
    text = text_of(profile_table(on_gpu))
    for part in (
        "Some [GPU]", "221 and 12 bytes", "16 of 64 sub-groups", "limited by registers",
        "4.0 KiB", "400 GB/s from the second-level cache", "2000 GB/s from local memory",
        "least, by local memory", "work-items shared nothing",
    ):  # fmt: skip
        assert part in text
    unknown = replace(on_gpu.analysis, resources=KernelResources(None, None, None, 0, "no log"))
    assert "unknown: no log" in text_of(profile_table(replace(on_gpu, analysis=unknown)))


def test_ceilings_that_a_product_beats_are_measured_again(queue, measured):
    """Those that stay beaten are marked in the table."""
    slow = replace(CEILINGS, global_memory=1e-3)
    beaten = assess(measured.analysis, slow, measured.seconds)
    with patch.object(profiles, "remeasured", return_value=CEILINGS) as again:
        mended = profiles.assess_again(queue, beaten)
    assert again.call_args.args[:2] == (queue, slow)
    assert "global memory" in again.call_args.args[2]
    assert mended.ceilings == CEILINGS and mended.seconds == beaten.seconds
    text = " ".join(text_of(profile_table(beaten)).split())
    assert "faster than the ceiling, which was measured twice" in text
    fast = replace(CEILINGS, arithmetic={"float32": 1e9}, global_memory=1e9, launch_seconds=1e-12)
    plain = assess(measured.analysis, fast, measured.seconds)
    with patch.object(profiles, "remeasured") as again:
        assert profiles.assess_again(queue, plain) is plain
    assert not again.called
    assert "measured twice" not in " ".join(text_of(profile_table(plain)).split())


def test_the_plot(measured, on_gpu, tmp_path, monkeypatch):
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


def test_the_command(device, home, monkeypatch, tmp_path):
    measure = Mock(return_value=[asdict(CEILINGS)])
    monkeypatch.setattr(ceilings, "measure_ceilings", measure)
    command = ("profile", "32x24x16", "--device", rank_of(device), "--rounds", 1)
    assert "32 x 24 x 16" in output_of(*command, "--plot", tmp_path / "roof.png")
    assert (tmp_path / "roof.png").stat().st_size > 1000
    output_of(*command, "--bias", "--dtype", "float32")
    assert measure.call_count == 1
    output_of(*command, "--remeasure")
    assert measure.call_count == 2
