"""The benchmarks' command lines: help, wrong options, and a run of each from end to end."""

import io
import sys
from pathlib import Path

import pandas as pd
import pyopencl as cl
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import amd_report, compare_clblast, host_time, ladder, transform3d
from benchmarks.mra.cases import Data, Size
from benchmarks.steps.steps import ladder_steps
from pyclgemm.device.discovery import default_device
from pyclgemm.device.traits import traits_of
from pyclgemm.families.registry import violations
from pyclgemm.measure.filled_queue import QueueBlocker

ROOT = Path(ladder.__file__).parent.parent


def run(script, *arguments):
    return CliRunner().invoke(script.main, [str(one) for one in arguments])


def succeed(script, *arguments):
    result = run(script, *arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (compare_clblast, "--device --output --contenders"),
        (host_time, "--device --output --tree"),
        (amd_report, "--architecture gfx1100"),
        (ladder, "--size --rounds --no-measure --compiled Examples:"),
        (transform3d, "--nfuncs --tasks --repetitions --level --sweep Examples:"),
    ],
)
def test_help(script, words):
    output = succeed(script, "--help").output
    assert [word for word in words.split() if word not in output] == []


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (compare_clblast, "--shapes 4x4", "wanted MxNxK"),
        (compare_clblast, "--contenders MKL", "known are pyclgemm"),
        (compare_clblast, "--suite round", "round"),
        (compare_clblast, "--dtype float64 --precision TF32_TF32_F32", "--precision"),
        (compare_clblast, "--result-dtype float64", "--result-dtype"),
        (compare_clblast, "--device none-such", "none-such"),
        (host_time, "--tree none-such", "none-such"),
        (amd_report, "--shape 12by12", "'12by12' is not of the form MxNxK"),
        (amd_report, "--config 12by12", "'12by12' is not of the form NAME=VALUE"),
        (amd_report, "--architecture sm_90", "'sm_90' is not of the form of an AMD architecture"),
        (ladder, "--no-measure --no-compile", "nothing to do"),
        (ladder, "--architecture sm_90", "not of the form of an AMD"),
        (ladder, "--device none-such", "none-such"),
        (ladder, f"--no-measure --compiled {__file__}", "no report of compiled steps"),
        (transform3d, "--k 33", "33"),
        (transform3d, "--level L7", "L7"),
        (transform3d, "--device none-such", "none-such"),
    ],
)
def test_wrong_options_are_explained(queue, script, arguments, message):
    result = run(script, *arguments.split())
    assert result.exit_code != 0 and message in " ".join(result.output.split())


def test_a_missing_compiler_and_missing_libraries_are_named(tmp_path):
    result = run(amd_report, "--clang", tmp_path / "clang-19")
    assert result.exit_code == 1
    assert "clang-19 is a program here; clang 19 or newer is wanted" in result.output
    result = run(amd_report, "--clang", sys.executable, "--rocm-path", tmp_path)
    assert result.exit_code == 1
    assert f"none of {tmp_path} holds amdgcn/bitcode" in " ".join(result.output.split())


# ------------------------------------------------------------------------------ runs


def compare(queue, folder, *options):
    """What a short run prints, and its CSV file."""
    platform = queue.device.platform.name
    output = succeed(
        compare_clblast, "--device", platform, "--output", folder, "--burst", 1, *options
    ).output
    [table] = folder.glob("*.csv")
    return output, pd.read_csv(table)


@pytest.mark.any_runtime
def test_a_comparison(queue, tmp_path, monkeypatch):
    holds = []
    hold = QueueBlocker.hold
    monkeypatch.setattr(
        QueueBlocker, "hold", lambda self, seconds: holds.append(seconds) or hold(self, seconds)
    )
    output, table = compare(
        queue, tmp_path, "--shapes", "8x8x8,9x7x5:TN+2", "--dense", "--fill-queue", "--rounds", 3,
        "--contenders", "pyclgemm,pyclgemm.gemm,DenseLayer,NumPy",
    )  # fmt: skip
    assert queue.device.name.strip() in output and "queue filled ahead" in output
    assert len(table) == 8
    clocks = table.groupby("contender")["clock"].agg(set)
    assert clocks["pyclgemm.gemm"] == clocks["NumPy"] == {"host"}
    # A busy CPU varies more than so small products take; then the host's clock is right.
    assert clocks["pyclgemm"] == {"host"} or holds
    assert clocks["pyclgemm"] <= {"queue filled", "host"}


@pytest.mark.any_runtime
def test_a_comparison_in_another_precision_on_the_host_alone(queue, tmp_path, monkeypatch):
    def hold(self, seconds):
        pytest.fail("a CPU's queue is held")

    if queue.device.type & cl.device_type.CPU:
        monkeypatch.setattr(QueueBlocker, "hold", hold)
    output, table = compare(
        queue, tmp_path, "--shapes", "8x8x8", "--rounds", 1, "--contenders", "pyclgemm,CLBlast",
        "--dtype", "float16", "--result-dtype", "float32", "--no-fill-queue",
    )  # fmt: skip
    assert "float16 to float32" in output and set(table["result"]) == {"float32"}
    assert ("host, each product waited for" in output) == (queue.device.type == cl.device_type.CPU)


@pytest.mark.any_runtime
def test_host_times_of_two_trees(queue, tmp_path):
    output = succeed(
        host_time, "--device", queue.device.platform.name, "--rounds", 3, "--calls", 3,
        "--output", tmp_path, "--tree", ROOT, "--tree", ROOT / "tests" / "..",
    ).output  # fmt: skip
    assert queue.device.name.strip() in output
    [table] = tmp_path.glob("*.csv")
    calls = pd.read_csv(table)["call"]
    assert calls[0] == host_time.BASELINE and len(set(calls)) == 7


@pytest.mark.first_runtime
def test_a_ladder_without_its_first_step(queue, tmp_path, monkeypatch):
    """As on a runtime that compiles that step wrongly."""
    traits = traits_of(default_device())
    first, *others = ladder_steps(48, traits)

    def broken(config, *facts):
        return ["it is naive"] if config == first.config else violations(config, *facts)

    monkeypatch.setattr(ladder, "violations", broken)
    output = succeed(
        ladder, "--size", 48, "--rounds", 1, "--seconds", 0.2, "--no-compile",
        "--output", tmp_path, "--stem", "run",
    ).output  # fmt: skip
    frame = pd.read_csv(tmp_path / "run.csv", index_col="step")
    steps = frame[frame["config"].notna()]
    assert len(steps) >= 9
    measured = steps[steps["gflops"].notna()]
    assert (measured["error"] <= 1).all()
    assert list(measured.index) == [
        step.name for step in others if not violations(step.config, "float32", traits)
    ]
    assert "step 1 is left out: it is naive" in output
    assert (tmp_path / "run.md").read_text().count("## Step") == len(steps)


@pytest.mark.first_runtime
def test_transforms(queue, tmp_path, monkeypatch):
    sizes = {True: 1 << 20, False: 1 << 24}
    monkeypatch.setattr("benchmarks.mra.cases._COPIED_BYTES", sizes)
    monkeypatch.setattr(transform3d, "_LONGEST_PAUSE", 0.0)
    output = succeed(
        transform3d, "--k", 6, "--k", 3, "--nfuncs", 5, "--tasks", 2, "--repetitions", 2,
        "--level", "L3", "--level", "L5", "--dtype", "float32", "--output", tmp_path,
    ).output  # fmt: skip
    assert sum(line.startswith("L5 nfuncs=5 K=") for line in output.splitlines()) == 4
    [table] = tmp_path.glob("*.csv")
    frame = pd.read_csv(table)
    assert set(frame["K"]) == {3, 6} and {"L3", "L5"} <= set(frame["level"])
    assert list(tmp_path.glob("*.png"))


def test_a_level_that_cannot_run_is_left_out_and_named(queue):
    data = Data(queue, Size(1, 3, "float32"))
    console = Console(width=200, record=True, file=io.StringIO())
    assert transform3d.runnable(data, ["L3", "L6"], 1000.0, console) == ["L3"]
    assert "left out: level is 'L6' and K is 3" in console.export_text()
