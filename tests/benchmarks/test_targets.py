"""Targets: what the suites ``limit`` and ``matrix`` must reach, and what they reached."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.contenders.contenders import CUBLAS, CUBLAS_LAYER, LAYER, MMA, PLAN
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.shapes import limit_targets
from benchmarks.reports import report, results
from benchmarks.reports.targets import add_targets, matrix_table
from benchmarks.session import matrix_suite
from benchmarks.session.matrix_suite import gpu_targets, matrix_runs
from tests.support.benchmark_fakes import FACTS, record_of


def test_limit_tells_bandwidth_of_few_rows_and_what_is_met():
    cases = [case for case in limit_targets() if case.m in (1, 2048)]
    # 1x1024x1024 moves 4.2 MB: in 4.2 us at 1000 GB/s.
    seconds = {"2048x2048x2048": 1e-3, "1x4096x4096": 1e-3, "1x1024x1024": 4.202496e-6}
    records = [
        record_of(case, name, time)
        for case in cases
        for name, time in ((PLAN, seconds[str(case)]), (CUBLAS, 0.98 * seconds[str(case)]))
    ]
    frame = report.to_frame(records, {**FACTS, "read_gb_s": "1100.0"})
    table = add_targets(report.speed_table(frame, "limit"), frame)
    assert table.loc["1x1024x1024", "GB/s"] == pytest.approx(1000)
    assert table.loc["1x1024x1024", "of memory"] == pytest.approx(1 / 1.1)
    assert np.isnan(table.loc["2048x2048x2048", "GB/s"])
    assert dict(table["met"]) == {
        "2048x2048x2048": "yes", "1x4096x4096": "NO", "1x1024x1024": "yes"
    }  # fmt: skip
    assert "1.00 or 85%" in report.format_table(table)
    without = frame[frame["contender"] == PLAN]
    table = add_targets(report.speed_table(without, "limit"), without)
    assert dict(table["met"]) == {
        "2048x2048x2048": "?", "1x4096x4096": "?", "1x1024x1024": "yes"
    }  # fmt: skip


def test_every_target_is_measured_with_its_reference():
    for on_cpu, targets in ((False, gpu_targets()), (True, matrix_suite.cpu_targets())):
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


def test_targets_are_those_that_were_set():
    wanted = {
        (str(target.case), target.arithmetics[0].precision.name, target.contender): target.ratio
        for target in gpu_targets()
        if target.arithmetics[0].dtype != "bfloat16"
    }
    expected = {
        (8192, "F16_F16_F32", PLAN): 1.0,
        (4096, "F16_F16_F32", LAYER): 1.0,
        (2048, "F16_F16_F32", PLAN): 0.95,
        (1024, "F16_F16_F32", PLAN): 0.85,
        (8192, "TF32_TF32_F32", PLAN): 0.95,
        (2048, "F64_F64_F64", PLAN): 0.9,
        (4096, "I8_I8_I32", PLAN): 1.5,
        (4096, "TF32_TF32_F32_X3", PLAN): 2.0,
        (4096, "F16_F16_F32", MMA): 0.55,
    }
    for (size, precision, name), ratio in expected.items():
        assert wanted[f"{size}x{size}x{size}", precision, name] == ratio
    assert wanted["64x3072x768", "F16_F16_F32", LAYER] == 0.9


def test_the_table_says_what_was_reached(tmp_path):
    case = Case(4096, 4096, 4096, suite=matrix_suite.SUITE)
    tera = {  # and errors, by element type, precision and contender
        ("float16", None, PLAN): (750.0, 1e-4),
        ("float16", None, CUBLAS): (700.0, 1e-4),
        ("float16", None, MMA): (300.0, 1e-4),
        ("int8", None, PLAN): (1100.0, 0.0),
        ("float64", None, PLAN): (40.0, 1e-16),
        ("float32", "TF32_TF32_F32_X3", PLAN): (110.0, 2e-7),
        ("float32", "BF16_BF16_F32_X9", PLAN): (104.0, 1e-7),
        ("float32", "BF16_BF16_F32_X6", PLAN): (90.0, 1e-7),
        ("float32", None, CUBLAS): (51.0, 1e-7),
    }
    records = [
        record_of(
            case, name, case.flops("float32") / speed / 1e12,
            arithmetic=arithmetic_of(dtype, precision), error=error,
        )
        for (dtype, precision, name), (speed, error) in tera.items()
    ]  # fmt: skip
    frame = report.to_frame(records, FACTS)
    table = matrix_table(frame, on_cpu=False)
    verdicts = {
        (row["types"], row["contender"]): (row["value"], row[""]) for _, row in table.iterrows()
    }
    # Of float32: fast enough, but not as exact; exact and fast; exact, but not fast enough.
    assert verdicts == {
        ("float16", PLAN): ("1.07", "reached"),
        ("float16", MMA): ("0.43", "missed"),
        ("int8 to int32", PLAN): ("1.47", "missed"),
        ("float64", PLAN): ("nan", "?"),
        ("float32, TF32_TF32_F32_X3", PLAN): ("2.16", "missed, but not by all"),
        ("float32, BF16_BF16_F32_X9", PLAN): ("2.04", "reached"),
        ("float32, BF16_BF16_F32_X6", PLAN): ("1.76", "missed, but not by all"),
    }
    assert matrix_table(frame.assign(suite="square"), on_cpu=False).empty
    paths = results.write_results(records, FACTS, tmp_path)
    assert "precisions" in paths[0].name
    kept = pd.read_csv(paths[0])
    assert {"precision", "result", "error"} <= set(kept.columns)
    assert len({path.name for path in paths}) == len(paths)


def test_layers_are_compared_with_cublas_own():
    case = Case(64, 64, 64, dense=True)
    seconds = {PLAN: 1.0, LAYER: 1.1, CUBLAS: 1.0, CUBLAS_LAYER: 0.99}
    records = [
        record_of(case, name, time, arithmetic=arithmetic_of("float16"))
        for name, time in seconds.items()
    ]
    table = report.speed_table(report.to_frame(records, FACTS), "shapes")
    assert table[f"layer x {CUBLAS_LAYER}"].iloc[0] == pytest.approx(0.9)
    assert not table.filter(like="x cuBLAS.layer").empty
