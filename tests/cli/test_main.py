"""The command line, by click's runner: what it prints, and how it fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from pyclgemm.cli import main as cli
from pyclgemm.cli.main import main
from pyclgemm.device import discovery
from pyclgemm.device.discovery import FoundDevice
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import ArgumentError
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from tests.support.system import rank_of


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def output_of(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def no_device(monkeypatch):
    """A machine with one device, on which no kernel builds."""
    found = (FoundDevice("Platform", "Broken Device", None, None, "no kernel builds"),)
    monkeypatch.setattr(discovery, "find_devices", lambda: found)
    monkeypatch.setattr(cli, "find_devices", lambda: found)


@pytest.mark.parametrize("command", ["devices", "demo", "source", "explain"])
def test_help_has_an_example(command):
    assert f"python -m pyclgemm {command}" in output_of(command, "--help").split("Example")[1]


def test_version_needs_no_installation():
    assert "version" in output_of("--version")


def test_devices_lists_what_works(device):
    output = "".join(output_of("devices").split())
    assert "".join(traits_of(device).driver.split())[:20] in output
    assert traits_of(device).architecture in output


def test_devices_says_why_one_is_skipped(no_device):
    result = run("devices")
    assert result.exit_code == 1
    assert "Broken Device" in result.output
    assert "skipped: no kernel builds" in result.output
    assert 'pip install "pyclgemm[cpu]"' in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("architecture", "path", "kernels"),
    [
        ("sm_90", "indirect", ["pack_a", "xgemm"]),
        ("gfx1012", "direct", ["xgemm_direct"]),
        ("x86-64-v4", "cpu", ["gemm_cpu"]),
        ("x86-64-v2", "auto", ["gemm_cpu"]),
    ],
)
def test_source_needs_no_device(no_device, architecture, path, kernels):
    output = output_of("source", "96x80x72", "--architecture", architecture, "--path", path)
    for kernel in kernels:
        assert f"void {kernel}(" in output
    assert "\x1b" not in output


def test_source_has_what_was_asked_for():
    plain = output_of("source", "64x64x64", "--architecture", "sm_90")
    fused = output_of(
        "source", "64x64x64", "--architecture", "sm_90", "--bias", "--activation", "relu",
        "--with-c", "--trans-a", "--trans-b",
    )  # fmt: skip
    assert "relu" in fused
    assert "relu" not in plain
    assert "bias_stride" in fused
    assert "bias_stride" not in plain
    assert "beta" in fused
    assert "beta" not in plain
    assert "a_column_stride" in fused
    assert "a_row_stride" in plain


def test_source_takes_parameters():
    arguments = ("explain", "64x64x64", "--architecture", "x86-64-v4", "--config")
    output = output_of(*arguments, "mr=3", "--config", "NR=32")
    assert "MR=3 NR=32" in output
    assert "the caller" in output


def test_explain_says_path_configuration_and_reason():
    output = output_of("explain", "8192x8192x8192", "--architecture", "sm_90")
    for part in ("indirect", "MWG=", "nvidia/sm_90", "8192x8192x8192", "pack_a, xgemm"):
        assert part in output
    assert "m*n*k" in output_of("explain", "4096x4096x4096", "--architecture", "sm_50")


def test_explain_and_source_take_batches():
    small = output_of("explain", "8x8x8*10000", "--architecture", "sm_90")
    for part in ("8 x 8 x 8, 10000 products, float32", "path     small", "record is for 8x8x8"):
        assert part in small
    for path in ("auto", "direct"):
        arguments = ("128x128x128*256", "--architecture", "sm_90", "--path", path)
        assert "256 products" in output_of("explain", *arguments)
        assert "in_batch" in output_of("source", *arguments)


def test_a_batch_is_described_as_arrays_of_it_are():
    for layout in LAYOUTS:
        product = GemmShape(9, 8, 7, layout, batch=5).product(reads_c=True)
        assert product.problem == replace(
            GemmShape(9, 8, 7, layout, batch=5).problem("float32"), c=product.problem.out
        )
        strides = [one.batch_stride for one in (product.a, product.b, product.out, product.c)]
        assert strides == [63, 56, 72, 72]


def test_a_batch_is_not_profiled():
    result = run("profile", "8x8x8*5")
    assert result.exit_code == 2 and "'8x8x8*5' is not of the form MxNxK" in result.output


def test_explain_on_a_device(device):
    output = output_of("explain", "64x64x64", "--device", rank_of(device))
    assert traits_of(device).name in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["12x3"], "'12x3' is not of the form MxNxK"),
        (["0x3x4"], "'0x3x4' is not of the form MxNxK"),
        (["2x3x4*1"], "'2x3x4*1' is not of the form MxNxK or MxNxK*BATCH"),
        (["2x3x4:NT"], "'2x3x4:NT' is not of the form MxNxK or MxNxK*BATCH"),
        (["2x3x4", "--config", "MWG"], "'MWG' is not of the form NAME=VALUE"),
        (["2x3x4", "--device", "0", "--architecture", "sm_90"], "exclude each other"),
        (["2x3x4", "--trans-a", "--conjugate-a"], "exclude each other"),
        (["2x3x4", "--dtype", "int32"], "'int32' is not one of"),
    ],
)
def test_wrong_usage_is_named(arguments, message):
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--architecture", "z80"], "architecture is 'z80'; known forms are"),
        (["--architecture", "x86-64-v4", "--config", "MR=0"], "MR must be an integer of 1 to 64"),
        (["--architecture", "x86-64-v4", "--config", "FOO=1"], "has no parameter FOO"),
        (["--architecture", "sm_90", "--path", "cpu"], "no database has a configuration"),
        (["--architecture", "sm_90", "--precision", "F64_F64_F64"], "precision is 'F64_F64_F64'"),
    ],
)
def test_errors_of_the_library_are_one_line(arguments, message):
    result = run("explain", "2x3x4", *arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_a_missing_device_is_named(device):
    result = run("explain", "2x3x4", "--device", "no such device")
    assert result.exit_code == 1
    assert "device is 'no such device'" in result.output


def test_interruption_leaves_cleanly(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "find_devices", interrupted)
    result = run("devices")
    assert result.exit_code == 1
    assert "Aborted" in result.output
    assert "Traceback" not in result.output


def test_typical_traits_refuse_unknown_names():
    with pytest.raises(ArgumentError, match="architecture is 'sm90'"):
        typical_traits("sm90")
    assert not typical_traits("x86-64-v2").fast_fma32
