"""Speed and error of every algorithm: the measurement, its table, file and plot, the command."""

import csv
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from pyclgemm.analysis import operands as operands_module, precision as bench_module
from pyclgemm.analysis.operands import DISTRIBUTIONS, random_operands
from pyclgemm.analysis.precision import ALGORITHMS, BASELINE, Algorithm, PrecisionBench, Report, Row
from pyclgemm.errors import FileError, KernelBuildError
from pyclgemm.measure.verify import MeasuredError, Rounding
from pyclgemm.problem import precision
from tests.support.system import output_of, rank_of, text_of

FLOAT64 = Algorithm("float64", "float64", "F64_F64_F64")


def report_of(queue, algorithms=ALGORITHMS, data="normal", rounds=1):
    bench = PrecisionBench(queue, (48, 40, 64), data, algorithms)
    bench.check()
    bench.time(rounds=rounds)
    return bench.report()


def test_every_algorithm_is_measured_or_has_a_reason(queue):
    measured = report_of(queue)
    assert [row.algorithm for row in measured.rows] == list(ALGORITHMS)
    for row in measured.rows:
        if row.reason:
            assert (row.seconds, row.error, row.path) == (None, None, "")
        else:
            assert row.error.held and row.seconds > 0 and row.path and row.config, row
    [base] = [row for row in measured.rows if row.algorithm == BASELINE]
    assert measured.relative(base) == 1
    assert 0 < base.error.root_mean_square < base.error.largest < 1e-6


def test_algorithms_are_all_precisions_and_results_of_real_types():
    """But for int32, whose only arithmetic wraps and has no error."""
    precisions = {(algorithm.precision, algorithm.operand) for algorithm in ALGORITHMS}
    known = {(one.name, one.operand) for one in precision.PRECISIONS}
    assert known == precisions | {("I32_I32_I32", "int32")}
    assert {(algorithm.operand, algorithm.result) for algorithm in ALGORITHMS} == {
        (dtype, result)
        for dtype in precision.DTYPES
        if not precision.is_complex(dtype) and dtype != "int32"
        for result in precision.result_dtypes(dtype)
    }


@pytest.mark.parametrize("data", DISTRIBUTIONS)
@pytest.mark.parametrize("algorithm", [BASELINE, FLOAT64], ids=lambda one: one.operand)
def test_the_bound_holds_on_all_data(queue, require, data, algorithm):
    require(algorithm.operand)
    (row,) = report_of(queue, [algorithm], data, rounds=0).rows
    assert row.verdict == "held", row


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
@pytest.mark.parametrize("data", DISTRIBUTIONS)
def test_random_operands_have_the_distribution(rng, dtype, data):
    operands = random_operands(rng, 6, 5, 64, dtype, data)
    assert [(one.shape, one.dtype.name) for one in operands] == [((6, 64), dtype), ((64, 5), dtype)]
    a, b = (one.astype(float) for one in operands)
    assert np.isfinite(a).all() and np.isfinite(b).all()
    assert len(np.unique(a)) > (8 if dtype == "int8" else 32)
    if data == "cancelling":
        assert (np.abs(a @ b) / (np.abs(a) @ np.abs(b))).max() < 0.05
    if data == "badly-scaled":
        assert np.abs(a).max() > 100 * np.median(np.abs(a)) or dtype == "int8"


ERROR = MeasuredError(1e-6, 1e-7, 1e-5, ratio=0.1)
REPORT = Report(
    "Some [GPU]",
    (100, 200, 500),
    "normal",
    (
        Row(Algorithm("float16", "float16", "F16_F16_F32"), "matrix", "MWG=1", 1e-6, ERROR),
        Row(BASELINE, "indirect", "MWG=2", 4e-6, ERROR),
        Row(Algorithm("float32", "float32", "TF32_TF32_F32_X3"), reason="no such unit"),
        Row(FLOAT64, "direct", "WGD=8", None, replace(ERROR, ratio=2.0)),
        Row(
            Algorithm("int8", "int32", "I8_I8_I32"), "matrix", "MWG=4", 5e-7,
            MeasuredError(0.0, 0.0, 0.0, ratio=0.0),
        ),
    ),
)  # fmt: skip


def test_the_table_the_reasons_the_file_and_the_plot(tmp_path):
    text = text_of(bench_module.report_table(REPORT))
    for part in ("Some [GPU]", "100 x 200 x 500", "20 TFLOPS", "40 TOPS", "4.00", "8.00", "exact",
                 "held", "exceeded", "matrix", "1.0e-06"):  # fmt: skip
        assert part in text, part
    assert "X3" not in text
    wanted = {"no such unit": ["float32 to float32, TF32_TF32_F32_X3"]}
    assert bench_module.reasons(REPORT) == wanted
    path = tmp_path / "x.csv"
    bench_module.write_csv(REPORT, path)
    rows = list(csv.DictReader(path.open()))
    assert [row["precision"] for row in rows] == [row.algorithm.precision for row in REPORT.rows]
    assert float(rows[0]["times_f32"]) == 4 and rows[2]["seconds"] == ""
    assert (rows[2]["reason"], rows[3]["verdict"]) == ("no such unit", "exceeded")
    with pytest.raises(FileError, match="cannot be written"):
        bench_module.write_csv(REPORT, path / "x.csv")
    pytest.importorskip("matplotlib")
    bench_module.plot_report(REPORT, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_refusal_has_the_compilers_first_error():
    complaint = "<kernel>:3:1: error: use of undeclared identifier 'x'"
    error = KernelBuildError("it refused", log=f"warning: unused\n{complaint}\nnote: here")
    assert bench_module._line(error) == f"it refused: {complaint}"
    assert bench_module._line(KernelBuildError("it refused")) == "it refused"


def run(device, *more, code=0):
    arguments = ("precision", "48x40x64", "--device", rank_of(device), "--rounds", 1, *more)
    return output_of(*arguments, code=code)


def test_the_command(device, tmp_path):
    output = run(device, "--csv", tmp_path / "x.csv")
    assert "F32_F32_F32" in output and "normal data" in output
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 1 + len(ALGORITHMS)


def test_an_interruption_shows_what_was_measured(device):
    with patch.object(PrecisionBench, "time", side_effect=KeyboardInterrupt):
        output = run(device)
    assert "Interrupted" in output and "held" in output


def test_a_result_that_exceeds_its_bound_is_not_timed_and_an_error(queue, device, monkeypatch):
    monkeypatch.setattr(operands_module, "rounding_of", lambda *facts: Rounding(0.0, 0.0, 0.0))
    (row,) = report_of(queue, [BASELINE]).rows
    assert row.verdict == "exceeded" and row.seconds is None
    assert row.error.largest > row.error.bound
    output = run(device, code=1)
    assert "exceeded" in output and "exceeds its bound" in output
