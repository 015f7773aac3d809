"""Tables, CSV files and plots of measurements, and their targets."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.contenders.contenders import CLBLAST, CUBLAS, LAYER, MMA, PLAN
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.shapes import limit_targets, suite_cases
from benchmarks.reports import report, results
from benchmarks.reports.plots import plot_unseen
from benchmarks.reports.targets import add_targets, matrix_table
from benchmarks.reports.unseen import TRUE_FLOAT32, unseen_row, unseen_summary, worst_lines
from benchmarks.session import matrix_suite
from benchmarks.session.matrix_suite import cpu_targets, gpu_targets, matrix_runs
from pyclgemm.selection.select import Choice
from tests.support.benchmark_records import FACTS, records_of
from tests.support.typical_configs import INDIRECT

#: GFLOPS of each contender.
SPEEDS = {
    PLAN: 40, "pyclgemm.gemm": 38, LAYER: 39, CLBLAST: 20, "NumPy": 10, CUBLAS: 50,
    "cuBLAS.layer": 26,
}  # fmt: skip


def measured(cases):
    """Records of three samples: at the contender's speed, 10 % faster and 10 % slower."""
    records = []
    for case in cases:
        times = case.flops("float32") / 1e9 * np.array([1, 0.9, 1.1])
        records += records_of(case, {name: times / speed for name, speed in SPEEDS.items()})
    return records


def test_a_table_has_speeds_and_ratios_in_the_order_of_the_cases_and_gaps():
    cases = suite_cases("square")
    frame = report.to_frame(measured(cases), FACTS)
    assert (frame["device"] == "Some Device").all()
    table = report.speed_table(frame, "square")
    assert list(table.index) == [str(case) for case in cases]
    expected = {
        PLAN: 40, CLBLAST: 20, "x CLBlast": 2, "x NumPy": 4, "x cuBLAS": 0.8,
        "layer / plan": 40 / 39, "layer / gemm": 38 / 39,
        "layer x cuBLAS.layer": 1.5, "spread %": 5,
    }  # fmt: skip
    for column, value in expected.items():
        np.testing.assert_allclose(table[column].astype(float), value)
    text = report.format_table(table)
    assert "8192x8192x8192" in text and "2.00" in text
    assert report.ratio_summary(table).loc["x cuBLAS", "median"] == pytest.approx(0.8)
    without = frame[(frame["case"] != "64x64x64") | (frame["contender"] != CLBLAST)]
    table = report.speed_table(without, "square")
    assert np.isnan(table.loc["64x64x64", CLBLAST])
    assert table.loc["128x128x128", "x CLBlast"] == pytest.approx(2)
    assert " - " in report.format_table(table)


def test_ratios_have_the_spread_of_both_sides():
    case = Case(8, 8, 8, suite="one")
    frame = report.to_frame(records_of(case, {PLAN: [1, 2, 3], CUBLAS: [4, 6, 8]}), FACTS)
    (row,) = report.ratio_ranges(frame, "one").to_dict("records")
    assert row == {"case": "8x8x8", "reference": CUBLAS, "ratio": 3.0, "low": 2.0,
                   "high": pytest.approx(7 / 1.5)}  # fmt: skip
    own = frame[frame["contender"] == PLAN]
    assert report.ratio_ranges(own, "one").empty


@pytest.mark.parametrize("suite", ["square", "dense", "random", "one"])
def test_csv_and_plots_are_written(suite, tmp_path):
    cases = [Case(3, 4, 5, suite="one")] if suite == "one" else suite_cases(suite, count=50)
    table, *plots = results.write_results(measured(cases), FACTS, tmp_path / "new")
    rows = pd.read_csv(table)
    assert len(rows) == len(SPEEDS) * len(cases)
    assert set(FACTS) <= set(rows.columns)
    assert table.name == "some-device-some-platform-float32-2026-01-02t030405.csv"
    pictures = [f"-{suite}.png"] + [f"-{suite}-ratios.png"] * (suite == "random")
    for plot, ending in zip(plots, pictures, strict=True):
        assert plot.name.endswith(ending)
        assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_distribution_of_ratios_and_the_worst_cases():
    records = []
    for m, ratio in enumerate((0.51, 0.25, 0.9, 0.96, 2.0), 1):
        case = Case(m, 2, 3, suite="random")
        records += records_of(case, {PLAN: 1e-5 / ratio, CUBLAS: 1e-5})
    frame = report.to_frame(records, FACTS)
    summary = report.ratio_summary(report.speed_table(frame, "random")).loc["x cuBLAS"]
    assert summary["least":"75 %"].tolist() == pytest.approx([0.25, 0.302, 0.51, 0.9, 0.96])
    worst = report.worst_cases(frame, "random", CUBLAS, 3)
    assert list(worst.index) == ["2x2x3", "1x2x3", "3x2x3"]
    np.testing.assert_allclose(worst["pyclgemm, us"], [40, 10 / 0.51, 10 / 0.9])
    np.testing.assert_allclose(worst["cuBLAS, us"], 10)
    assert report.worst_cases(frame, "random", CLBLAST).empty


def test_the_bandwidth_of_few_rows_and_the_targets_met():
    cases = [case for case in limit_targets() if case.m in (1, 2048)]
    # 1x1024x1024 moves 4.2 MB: in 4.2 us at 1000 GB/s.
    seconds = {"2048x2048x2048": 1e-3, "1x4096x4096": 1e-3, "1x1024x1024": 4.202496e-6}
    records = []
    for case in cases:
        records += records_of(case, {PLAN: seconds[str(case)], CUBLAS: 0.98 * seconds[str(case)]})
    frame = report.to_frame(records, {**FACTS, "read_gb_s": "1100.0"})
    table = add_targets(report.speed_table(frame, "limit"), frame)
    assert table.loc["1x1024x1024", "GB/s"] == pytest.approx(1000)
    assert table.loc["1x1024x1024", "of memory"] == pytest.approx(1 / 1.1)
    assert np.isnan(table.loc["2048x2048x2048", "GB/s"])
    assert dict(table["met"]) == dict(zip(seconds, ("yes", "NO", "yes"), strict=True))
    assert "1.00 or 85%" in report.format_table(table)
    without = frame[frame["contender"] == PLAN]
    table = add_targets(report.speed_table(without, "limit"), without)
    assert dict(table["met"]) == dict(zip(seconds, ("?", "?", "yes"), strict=True))


def test_every_target_is_measured_with_its_reference():
    for on_cpu, targets in ((False, gpu_targets()), (True, cpu_targets())):
        runs = matrix_runs(on_cpu=on_cpu)
        measured = {(str(case), run.arithmetic): (case, run) for run in runs for case in run.cases}
        assert len(measured) == sum(len(run.cases) for run in runs)
        for target in targets:
            for how in target.arithmetics:
                case, run = measured[str(target.case), how]
                assert target.contender not in run.without
                assert case.dense or target.contender != LAYER
            other = target.reference_arithmetic or target.arithmetics[0]
            assert (str(target.case), other) in measured
    by_mma = [run for run in matrix_runs(on_cpu=False) if MMA not in run.without]
    assert [str(case) for run in by_mma for case in run.cases] == ["4096x4096x4096"]


def test_the_table_of_targets(tmp_path):
    case = Case(4096, 4096, 4096, suite=matrix_suite.SUITE)
    # The split precisions: fast but less exact, fast and exact, exact but slow.
    measured = [  # type, precision, contender, 1e12 operations a second, error; value and verdict
        ("float16", None, PLAN, 750.0, 1e-4, "1.07", "reached"),
        ("float16", None, CUBLAS, 700.0, 1e-4, None, None),
        ("float16", None, MMA, 300.0, 1e-4, "0.43", "missed"),
        ("int8", None, PLAN, 1100.0, 0.0, "1.47", "missed"),
        ("float64", None, PLAN, 40.0, 1e-16, "nan", "?"),
        ("float32", "TF32_TF32_F32_X3", PLAN, 110.0, 2e-7, "2.16", "missed, but not by all"),
        ("float32", "BF16_BF16_F32_X9", PLAN, 104.0, 1e-7, "2.04", "reached"),
        ("float32", "BF16_BF16_F32_X6", PLAN, 90.0, 1e-7, "1.76", "missed, but not by all"),
        ("float32", None, CUBLAS, 51.0, 1e-7, None, None),
    ]
    records, wanted = [], {}
    for dtype, precision, name, speed, error, value, verdict in measured:
        how = arithmetic_of(dtype, precision)
        seconds = case.flops("float32") / speed / 1e12
        records += records_of(case, {name: seconds}, how, error)
        if verdict:
            wanted[str(how), name] = (value, verdict)
    frame = report.to_frame(records, FACTS)
    table = matrix_table(frame, on_cpu=False)
    assert wanted == {
        (row["types"], row["contender"]): (row["value"], row[""]) for _, row in table.iterrows()
    }
    assert {types for types, _ in wanted} >= {"int8 to int32", "float32, TF32_TF32_F32_X3"}
    assert matrix_table(frame.assign(suite="square"), on_cpu=False).empty
    paths = results.write_results(records, FACTS, tmp_path)
    assert "precisions" in paths[0].name
    assert len({path.name for path in paths}) == len(paths)


def unseen_frame(*ratios):
    """float32 shapes that take cuBLAS 12 us, and the second choice 10 us."""
    choices = {
        name: Choice(path, INDIRECT, "device", "a file", "a reason", 9e-6)
        for name, path in ((PLAN, "direct"), ("pyclgemm 2", "indirect"))
    }
    rows = []
    for index, ratio in enumerate(ratios):
        times = {PLAN: 12e-6 / ratio, "pyclgemm 2": 1e-5, CUBLAS: 12e-6}
        case = Case(8, 16, 8 * (index + 1), "TN")
        rows.append(unseen_row(records_of(case, times), choices) | FACTS)
    return pd.DataFrame(rows)


def test_a_row_of_an_unseen_shape():
    row = unseen_frame(0.8).iloc[0]
    # The second choice takes 10 us instead of 15: it is the best known.
    times = row[["us", "vendor_us", "best_us", "predicted_us"]].tolist()
    assert times == pytest.approx([15, 12, 10, 9])
    assert (row["ratio"], row["lost"]) == pytest.approx((0.8, 1.5))
    assert (row["path"], row["best_path"], row["vendor"]) == ("direct", "indirect", CUBLAS)
    # 2 m n k operations; 8x8, 8x16 and 8x16 floats.
    assert row["intensity"] == pytest.approx(2 * 8 * 16 * 8 / (4 * (64 + 128 + 128)))
    assert np.isnan(row["over_float32"])


def test_a_split_precision_is_compared_with_true_float32():
    split = arithmetic_of("float32", "TF32_TF32_F32_X3")
    choice = Choice("matrix", INDIRECT, "device", "a file", "a reason")
    times = {PLAN: 2e-5, TRUE_FLOAT32: 1e-5}
    row = unseen_row(records_of(Case(8, 8, 8), times, split), dict.fromkeys(times, choice))
    assert row["over_float32"] == pytest.approx(0.5)
    # No other library has this precision, and true float32 is no choice for it.
    assert np.isnan([row["ratio"], row["lost"], row["predicted_us"]]).all()


def test_unseen_shapes_are_summarised_by_type(tmp_path):
    frame = unseen_frame(0.5, 2.0, 8.0)
    summary = unseen_summary(frame).loc["float32"]
    assert summary["mean"] == pytest.approx(2.0)  # the cube root of 0.5 * 2 * 8
    assert (summary["worst"], summary["where"]) == (0.5, "8x16x8:TN direct")
    # The choices take 24, 6 and 1.5 us; the best known take 10, 6 and 1.5 us.
    assert summary["lost most"] == pytest.approx(2.4)
    assert summary["lost"] == pytest.approx(2.4 ** (1 / 3))
    assert summary["10 %"] == pytest.approx(0.8)  # a fifth of the way from 0.5 to 2
    title, worst, best, *others = worst_lines(frame)
    assert "0.500 8x16x8:TN: 24 us (9 predicted), cuBLAS 12; direct" in worst
    assert "2.40 times as fast: indirect" in best and len(others) == 2
    plot_unseen(frame, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
