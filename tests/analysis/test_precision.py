"""Speed and error of every algorithm: measured, tabulated, and by the command line."""

import csv
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from pyclgemm.analysis import operands as operands_module
from pyclgemm.analysis import precision as bench_module
from pyclgemm.analysis.operands import DISTRIBUTIONS, random_operands
from pyclgemm.analysis.precision import ALGORITHMS, BASELINE, Algorithm, PrecisionBench, Report, Row
from pyclgemm.errors import FileError, KernelBuildError
from pyclgemm.measure.verify import MeasuredError, Rounding, measure_error, reference, rounding_of
from pyclgemm.problem import precision
from pyclgemm.problem.precision import resolve_precision
from tests.support.system import output_of, rank_of, text_of

SIZES = (48, 40, 64)
FLOAT64 = Algorithm("float64", "float64", "F64_F64_F64")
EXACT = Rounding(0.0, 0.0, 0.0)


def report_of(queue, algorithms=ALGORITHMS, data="normal", rounds=1):
    bench = PrecisionBench(queue, SIZES, data, algorithms)
    bench.check()
    bench.time(rounds=rounds)
    return bench.report()


def test_every_algorithm_is_there_and_runs_or_says_why_not(queue):
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


def test_the_library_knows_no_algorithm_that_is_missing():
    named = {(algorithm.precision, algorithm.operand) for algorithm in ALGORITHMS}
    assert {(one.name, one.operand) for one in precision.PRECISIONS} == named
    assert {(algorithm.operand, algorithm.result) for algorithm in ALGORITHMS} == {
        (dtype, result)
        for dtype in precision.DTYPES
        if not precision.is_complex(dtype)
        for result in precision.result_dtypes(dtype)
    }


def test_a_wrong_kernel_exceeds_its_bound_and_is_not_timed(queue, monkeypatch):
    real = operands_module.plan

    def without_the_last_of_k(queue, a, b, **others):
        ready = real(queue, a[:, :-1], b[:-1], **others)

        def wrong(a, b, out):
            ready(a[:, :-1], b[:-1], out=out)

        wrong.choice = ready.choice
        return wrong

    monkeypatch.setattr(operands_module, "plan", without_the_last_of_k)
    report = report_of(queue, [BASELINE])
    (row,) = report.rows
    assert row.verdict == "exceeded" and row.seconds is None
    assert row.error.largest > row.error.bound
    assert "exceeded" in text_of(bench_module.report_table(report))


@pytest.mark.parametrize("data", DISTRIBUTIONS)
@pytest.mark.parametrize("algorithm", [BASELINE, FLOAT64], ids=lambda one: one.operand)
def test_the_bound_holds_on_all_data(queue, require, data, algorithm):
    require(algorithm.operand)
    (row,) = report_of(queue, [algorithm], data, rounds=0).rows
    assert row.verdict == "held", row


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
@pytest.mark.parametrize("data", DISTRIBUTIONS)
def test_operands_are_finite_and_of_the_type(rng, dtype, data):
    operands = random_operands(rng, 6, 5, 64, dtype, data)
    assert [(one.shape, one.dtype.name) for one in operands] == [((6, 64), dtype), ((64, 5), dtype)]
    a, b = (one.astype(float) for one in operands)
    assert np.isfinite(a).all() and np.isfinite(b).all()
    assert len(np.unique(a)) > (8 if dtype == "int8" else 32)
    if data == "cancelling":
        assert (np.abs(a @ b) / (np.abs(a) @ np.abs(b))).max() < 0.05
    if data == "badly-scaled":
        assert np.abs(a).max() > 100 * np.median(np.abs(a)) or dtype == "int8"


def test_sampled_rows_are_exact_for_integers_and_reach_both_ends(rng):
    a, b = random_operands(rng, 50, 30, 70, "int8", "uniform")
    parts = rows, _ = reference(a, b, rng, most_work=10 * 30 * 70)
    assert {0, 49} <= set(rows.axes[0]) and len(rows.axes[0]) <= 12
    exact = a.astype(np.int64) @ b.astype(np.int64)
    magnitude = np.abs(a.astype(int)) @ np.abs(b.astype(int))
    for part in parts:
        assert (part.value == exact[np.ix_(*part.axes)]).all()
        assert (part.magnitude == magnitude[np.ix_(*part.axes)]).all()
    right = measure_error(exact.astype(np.int32), parts, EXACT)
    assert right == MeasuredError(0.0, 0.0, 0.0, 0.0) and right.held
    exact[rows.axes[0][3], 7] += 1
    wrong = measure_error(exact.astype(np.int32), parts, EXACT)
    assert not wrong.held and wrong.largest > 0


def test_the_errors_are_relative_to_the_sums_of_magnitudes(rng):
    a, b = random_operands(rng, 3, 4, 8, "float64", "normal")
    parts = reference(a, b, rng)
    result = a @ b + 0.125 * parts[0].magnitude
    found = measure_error(result, parts, Rounding(0.1, 0.0, 0.0))
    assert found.largest == pytest.approx(0.125) == found.root_mean_square
    assert (found.bound, found.held, found.ratio) == (0.1, False, pytest.approx(1.25))
    assert measure_error(result, parts, Rounding(0.13, 0.0, 0.0)).held
    result[1, 2] = np.nan
    found = measure_error(result, parts, Rounding(1.0, 0.0, 0.0))
    assert found.largest == np.inf and not found.held


def test_rounding_has_the_parts_and_the_store():
    split, plain = (resolve_precision(name, "float32") for name in ("TF32_TF32_F32", None))
    sums = [rounding_of("float32", 1024, one).sums for one in (split, plain)]
    assert sums[0] - sums[1] == pytest.approx(split.product_error)
    half = resolve_precision("F16_F16_F32", "float16")
    stores = [rounding_of("float16", 64, half, *result).storing for result in ([], ["float32"])]
    assert stores == [2.0**-10, 0]


ERROR = MeasuredError(1e-6, 1e-7, 1e-5, ratio=0.1)
MADE_UP = Report(
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


def test_the_table_and_the_reasons():
    text = text_of(bench_module.report_table(MADE_UP))
    for part in ("Some [GPU]", "100 x 200 x 500", "20 TFLOPS", "40 TOPS", "4.00", "8.00", "exact",
                 "held", "exceeded", "matrix", "1.0e-06"):  # fmt: skip
        assert part in text, part
    assert "X3" not in text
    wanted = ["float32 to float32, TF32_TF32_F32_X3: no such unit"]
    assert bench_module.reasons(MADE_UP) == wanted


def test_the_file_has_every_row(tmp_path):
    path = tmp_path / "x.csv"
    bench_module.write_csv(MADE_UP, path)
    rows = list(csv.DictReader(path.open()))
    assert [row["precision"] for row in rows] == [row.algorithm.precision for row in MADE_UP.rows]
    assert float(rows[0]["times_f32"]) == 4 and rows[2]["seconds"] == ""
    assert (rows[2]["reason"], rows[3]["verdict"]) == ("no such unit", "exceeded")
    with pytest.raises(FileError, match="cannot be written"):
        bench_module.write_csv(MADE_UP, path / "x.csv")


def test_the_plot_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    bench_module.plot_report(MADE_UP, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_refusal_says_what_the_compiler_complained_of():
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


def test_an_interruption_shows_what_was_measured_and_an_exceeded_bound_is_an_error(
    device, monkeypatch
):
    with patch.object(PrecisionBench, "time", side_effect=KeyboardInterrupt):
        output = run(device)
    assert "Interrupted" in output and "held" in output
    monkeypatch.setattr(operands_module, "rounding_of", lambda *facts: EXACT)
    output = run(device, code=1)
    assert "exceeded" in output and "exceeds its bound" in output
