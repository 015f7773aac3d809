"""The benchmark of tensor transforms: what it counts, checks, prints and writes."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from benchmarks.mra.cases import Data, Size, copy_bandwidth, difference, disagreements
from benchmarks.mra.report import Repetition, medians, speed_table, to_frame, write_results
from benchmarks.mra.rivals import rivals
from tests.support.benchmark_fakes import FACTS

SIZE = Size(2048, 16, "float64")


def test_operations_bytes_and_roofline():
    assert SIZE.flops == 2048 * 3 * 2 * 16**4
    assert SIZE.bytes == 2 * 2048 * 16**3 * 8
    assert SIZE.computed("L5") == SIZE.flops
    assert SIZE.computed("L6") == 2048 * 2 * 16**6
    # 6 K^4 operations for 16 K^3 bytes: at 1 TB/s K = 16 allows 6 TFLOPS.
    assert SIZE.roofline(1e12) == pytest.approx(6000)


def test_a_line_tells_time_speed_and_share_of_memory():
    seconds = SIZE.bytes / 2e12
    line = Repetition("L5", "fused", SIZE, 0, seconds).line(2e12)
    assert line.startswith("L5 nfuncs=2048 K=16 time=67.1 us useful=12000.0 GFLOPS")
    assert line.endswith("memory=100.0 %") and "actual" not in line


def test_tables_and_files(tmp_path):
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


def test_differences_count_over_the_largest_element():
    assert difference(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25
    assert np.isnan(difference(np.array([np.nan, 2.0]), np.array([1.0, 2.0])))


def test_a_wrong_level_is_told(queue, require, monkeypatch):
    require("float64")
    data = Data(queue, Size(3, 6, "float64"))
    levels = ["L3", "L5", "L6"]
    assert list(disagreements(data, levels)) == []
    result = Data.result

    def wrong(self, level):
        return result(self, level) * {"L5": 1 + 1e-9, "L6": 1 + 1e-12}.get(level, 1.0)

    monkeypatch.setattr(Data, "result", wrong)
    told = list(disagreements(data, levels))
    assert [line[:2] for line in told] == ["L5", "L6"]
    assert "of L1's" in told[0] and "of L3's" in told[1]


def test_numpy_computes_the_same(queue, traits):
    if traits.type != "cpu":
        pytest.skip("NumPy is a rival on CPUs")
    data = Data(queue, Size(4, 5, "float32"))
    found = rivals(data, print)
    assert {one.name for one in found} == {"numpy.einsum", "numpy.matmul"}
    for one in found:
        one.enqueue(2)


def test_a_copy_has_a_bandwidth(queue, monkeypatch):
    sizes = {True: 1 << 20, False: 1 << 24}
    monkeypatch.setattr("benchmarks.mra.cases._COPIED_BYTES", sizes)
    assert 1e8 < copy_bandwidth(queue) < 1e14
