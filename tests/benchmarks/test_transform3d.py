"""The benchmark of tensor transforms: what it counts, checks, prints and writes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import transform3d
from benchmarks.mra.cases import Data, Size, copy_bandwidth, difference, disagreements
from benchmarks.mra.report import Repetition, medians, speed_table, to_frame, write_results
from benchmarks.mra.rivals import rivals
from tests.support.benchmark_fakes import FACTS

SIZE = Size(2048, 16, "float64")


def test_operations_bytes_and_roofline() -> None:
    assert SIZE.flops == 2048 * 3 * 2 * 16**4
    assert SIZE.bytes == 2 * 2048 * 16**3 * 8
    assert SIZE.computed("L5") == SIZE.flops
    assert SIZE.computed("L6") == 2048 * 2 * 16**6
    # 6 K^4 operations for 16 K^3 bytes: at 1 TB/s K = 16 allows 6 TFLOPS.
    assert SIZE.roofline(1e12) == pytest.approx(6000)


def test_a_line_tells_time_speed_and_share_of_memory() -> None:
    seconds = SIZE.bytes / 2e12
    line = Repetition("L5", "fused", SIZE, 0, seconds).line(2e12)
    assert line.startswith("L5 nfuncs=2048 K=16 time=67.1 us useful=12000.0 GFLOPS")
    assert line.endswith("memory=100.0 %") and "actual" not in line


def test_tables_and_files(tmp_path: Path) -> None:
    other = Size(2048, 8, "float64")
    repetitions = [
        Repetition(name, name, size, number, seconds)
        for size, times in ((other, (1e-4, 3e-4, 2e-4)), (SIZE, (4e-4,) * 3))
        for name in ("L5", "L6", "numpy.matmul")
        for number, seconds in enumerate(times)
    ]
    assert medians(repetitions)[other, "L5"] == 2e-4
    frame = to_frame(repetitions, 1e12)
    assert len(frame) == 18
    kronecker = frame[(frame["level"] == "L6") & (frame["K"] == 8)]["computed_gflops"]
    assert kronecker.median() == pytest.approx(2 * 8**6 * 2048 / 2e-4 / 1e9)
    table = speed_table(repetitions, 1e12)
    assert table.row_count == 6
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    assert "0.08" in console.export_text()  # 16.8 MB in 200 us, over 1 TB/s
    csv, picture = write_results(repetitions, 1e12, FACTS, tmp_path)
    assert list(pd.read_csv(csv)["device"].unique()) == ["Some Device"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_differences_count_over_the_largest_element() -> None:
    assert difference(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25
    assert np.isnan(difference(np.array([np.nan, 2.0]), np.array([1.0, 2.0])))


def test_a_wrong_level_is_told(queue: Any, require: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    require("float64")
    data = Data(queue, Size(3, 6, "float64"))
    levels = ["L3", "L5", "L6"]
    assert list(disagreements(data, levels)) == []
    result = Data.result

    def wrong(self: Data, level: str) -> Any:
        return result(self, level) * {"L5": 1 + 1e-9, "L6": 1 + 1e-12}.get(level, 1.0)

    monkeypatch.setattr(Data, "result", wrong)
    told = list(disagreements(data, levels))
    assert [line[:2] for line in told] == ["L5", "L6"]
    assert "of L1's" in told[0] and "of L3's" in told[1]


def test_numpy_computes_the_same(queue: Any, traits: Any) -> None:
    if traits.type != "cpu":
        pytest.skip("NumPy is a rival on CPUs")
    data = Data(queue, Size(4, 5, "float32"))
    found = rivals(data, print)
    assert {one.name for one in found} == {"numpy.einsum", "numpy.matmul"}
    for one in found:
        one.enqueue(2)


def test_a_copy_has_a_bandwidth(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {True: 1 << 20, False: 1 << 24}
    monkeypatch.setattr("benchmarks.mra.cases._COPIED_BYTES", sizes)
    assert 1e8 < copy_bandwidth(queue) < 1e14


def run(*arguments: str) -> Any:
    return CliRunner().invoke(transform3d.main, list(arguments))


def test_help() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for word in ("--nfuncs", "--tasks", "--repetitions", "--level", "--sweep", "Examples:"):
        assert word in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--k", "33"], "33"), (["--level", "L7"], "L7"), (["--device", "no such"], "no such")],
)
def test_wrong_options_are_explained(queue: Any, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0 and message in result.output


@pytest.mark.first_runtime
def test_a_run_from_end_to_end(queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.mra.cases._COPIED_BYTES", {True: 1 << 20, False: 1 << 24})
    monkeypatch.setattr(transform3d, "_LONGEST_PAUSE", 0.0)
    result = run(
        "--k", "6", "--k", "3", "--nfuncs", "5", "--tasks", "2", "--repetitions", "2",
        "--level", "L3", "--level", "L5", "--dtype", "float32", "--output", str(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("L5 nfuncs=5 K=")]
    assert len(lines) == 4
    [csv] = tmp_path.glob("*.csv")
    frame = pd.read_csv(csv)
    assert set(frame["K"]) == {3, 6} and {"L3", "L5"} <= set(frame["level"])
    assert list(tmp_path.glob("*.png"))


def test_what_cannot_run_is_left_out_and_said(queue: Any, tmp_path: Path) -> None:
    data = Data(queue, Size(1, 3, "float32"))
    console = Console(width=200, record=True, file=io.StringIO())
    assert transform3d.runnable(data, ["L3", "L6"], 1000.0, console) == ["L3"]
    assert "left out: level is 'L6' and K is 3" in console.export_text()
