"""The benchmarks' command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pandas as pd
import pyopencl as cl
import pytest
from click.testing import CliRunner

from benchmarks import compare_clblast, host_time
from pyclgemm.measure.filled_queue import QueueBlocker


@pytest.mark.parametrize("command", [compare_clblast.main, host_time.main])
def test_help(command: click.Command) -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "--device" in result.output and "--output" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "4x4"], "wanted MxNxK"),
        (["--contenders", "MKL"], "known are pyclgemm"),
        (["--suite", "round"], "round"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(compare_clblast.main, arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_a_device_that_is_not_there_is_named(queue: Any) -> None:
    result = CliRunner().invoke(compare_clblast.main, ["--device", "no such device"])
    assert result.exit_code != 0
    assert "no such device" in result.output


@pytest.mark.any_runtime
@pytest.mark.parametrize("command", [compare_clblast.main, host_time.main])
def test_a_run_from_end_to_end(
    command: click.Command, queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds: list[float] = []
    hold = QueueBlocker.hold
    monkeypatch.setattr(
        QueueBlocker, "hold", lambda self, seconds: holds.append(seconds) or hold(self, seconds)
    )
    options = ["--device", queue.device.platform.name, "--rounds", "3", "--output", str(tmp_path)]
    if command is compare_clblast.main:
        options += ["--shapes", "8x8x8,9x7x5:TN+2", "--dense", "--burst", "1", "--fill-queue"]
        options += ["--contenders", "pyclgemm,pyclgemm.gemm,DenseLayer,NumPy"]
    else:
        options += ["--calls", "3"]
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 0, result.output
    assert queue.device.name.strip() in result.output
    (table,) = tmp_path.glob("*.csv")
    assert len(pd.read_csv(table)) == (8 if command is compare_clblast.main else 4)
    if command is compare_clblast.main:
        assert "queue filled ahead" in result.output
        clocks = pd.read_csv(table).groupby("contender")["clock"].agg(set)
        assert clocks["pyclgemm.gemm"] == clocks["NumPy"] == {"host"}
        # A busy CPU varies more than so small products take; then the host's clock is right.
        assert clocks["pyclgemm"] == {"host"} or holds
        assert clocks["pyclgemm"] <= {"queue filled", "host"}


@pytest.mark.any_runtime
def test_on_a_cpu_all_is_timed_on_the_host(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not queue.device.type & cl.device_type.CPU:
        pytest.skip("this is no CPU")

    def hold(self: QueueBlocker, seconds: float) -> Any:
        pytest.fail("a CPU's queue is held")

    monkeypatch.setattr(QueueBlocker, "hold", hold)
    options = ["--device", queue.device.platform.name, "--output", str(tmp_path)]
    options += ["--shapes", "8x8x8", "--contenders", "pyclgemm", "--rounds", "1", "--burst", "1"]
    result = CliRunner().invoke(compare_clblast.main, options)
    assert result.exit_code == 0, result.output
    assert "host, each product waited for" in result.output


def test_the_command_takes_precisions(queue: Any, tmp_path: Path) -> None:
    options = ["--device", queue.device.platform.name, "--rounds", "1", "--output", str(tmp_path)]
    options += ["--shapes", "8x8x8", "--burst", "1", "--contenders", "pyclgemm,CLBlast"]
    options += ["--dtype", "float16", "--result-dtype", "float32"]
    result = CliRunner().invoke(compare_clblast.main, options)
    assert result.exit_code == 0, result.output
    assert "float16 to float32" in result.output
    (table,) = tmp_path.glob("*.csv")
    assert set(pd.read_csv(table)["result"]) == {"float32"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--dtype", "float64", "--precision", "TF32_TF32_F32"], "--precision"),
        (["--result-dtype", "float64"], "--result-dtype"),
    ],
)
def test_wrong_precisions_are_named(given: list[str], message: str) -> None:
    result = CliRunner().invoke(compare_clblast.main, given)
    assert result.exit_code == 2 and message in result.output
