"""Tables, the CSV file and pictures of what was measured."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.contenders.contenders import CLBLAST, CUBLAS, PLAN
from benchmarks.products.case import Case
from benchmarks.products.shapes import suite_cases
from benchmarks.reports import report, results
from tests.support.benchmark_fakes import FACTS, fake_records, record_of


def test_table_has_speeds_and_ratios_in_the_order_measured():
    cases = suite_cases("square")
    frame = report.to_frame(fake_records(cases), FACTS)
    assert (frame["device"] == "Some Device").all()
    table = report.speed_table(frame, "square")
    assert list(table.index) == [str(case) for case in cases]
    expected = {
        PLAN: 40, CLBLAST: 20, "x CLBlast": 2, "x NumPy": 4, "x cuBLAS": 0.8,
        "layer / plan": 40 / 39, "layer / gemm": 38 / 39, "spread %": 5,
    }  # fmt: skip
    for column, value in expected.items():
        np.testing.assert_allclose(table[column].astype(float), value)
    text = report.format_table(table)
    assert "8192x8192x8192" in text and "2.00" in text
    summary = report.ratio_summary(table)
    assert summary.loc["x cuBLAS", "median"] == pytest.approx(0.8)


def test_a_case_without_a_contender_has_a_gap():
    records = fake_records([Case(8, 8, 8), Case(9, 9, 9)])
    records = [r for r in records if (r.case.m, r.contender) != (9, CLBLAST)]
    table = report.speed_table(report.to_frame(records, FACTS), "shapes")
    assert np.isnan(table.loc["9x9x9", CLBLAST])
    assert table.loc["8x8x8", "x CLBlast"] == pytest.approx(2)
    assert " - " in report.format_table(table)


@pytest.mark.parametrize("suite", ["square", "dense", "random", "one"])
def test_csv_and_plots_are_written(suite, tmp_path):
    cases = [Case(3, 4, 5, suite="one")] if suite == "one" else suite_cases(suite, count=50)
    folder = tmp_path / "new"
    table, *plots = results.write_results(fake_records(cases), FACTS, folder)
    rows = pd.read_csv(table)
    assert len(rows) == 6 * len(cases)
    assert set(FACTS) <= set(rows.columns)
    assert table.name == "some-device-some-platform-float32-2026-01-02t030405.csv"
    pictures = [f"-{suite}.png"] + [f"-{suite}-ratios.png"] * (suite == "random")
    assert len(plots) == len(pictures)
    for plot, ending in zip(plots, pictures, strict=True):
        assert plot.name.endswith(ending)
        assert plot.read_bytes().startswith(b"\x89PNG")


def records_with(ratios):
    """Products of which cuBLAS takes 10 us, and pyclgemm so many times less."""
    return [
        record_of(Case(index + 1, 2, 3, suite="random"), name, seconds)
        for index, ratio in enumerate(ratios)
        for name, seconds in ((PLAN, 1e-5 / ratio), (CUBLAS, 1e-5))
    ]


def test_the_distribution_counts_what_is_slow():
    frame = report.to_frame(records_with([0.25, 0.51, 0.9, 0.96, 2.0]), FACTS)
    summary = report.ratio_summary(report.speed_table(frame, "random")).loc["x cuBLAS"]
    wanted = {
        "least": 0.25, "25 %": 0.51, "median": 0.9, "75 %": 0.96, "most": 2.0,
        "under 0.5": 1, "under 0.95": 3, "shapes": 5,
    }  # fmt: skip
    assert {name: pytest.approx(value) for name, value in wanted.items()} == {
        name: summary[name] for name in wanted
    }
    assert summary["5 %"] == pytest.approx(0.302)


def test_the_worst_shapes_come_first_with_both_times():
    frame = report.to_frame(records_with([0.8, 0.25, 0.5, 2.0]), FACTS)
    worst = report.worst_cases(frame, "random", CUBLAS, 3)
    assert list(worst.index) == ["2x2x3", "3x2x3", "1x2x3"]
    np.testing.assert_allclose(worst["pyclgemm, us"], [40, 20, 12.5])
    np.testing.assert_allclose(worst["cuBLAS, us"], 10)
    assert report.worst_cases(frame, "random", CLBLAST).empty
