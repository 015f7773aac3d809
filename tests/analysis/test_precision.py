"""Speed and error of every algorithm: measured, tabulated, and by the command line."""

from __future__ import annotations

import csv
import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pyclgemm.analysis import precision as precision_bench
from pyclgemm.analysis.precision import (
    ALGORITHMS,
    BASELINE,
    Algorithm,
    PrecisionBench,
    Report,
    Row,
    plot_report,
    reasons,
    report_table,
    write_csv,
)
from pyclgemm.cli.main import main
from pyclgemm.errors import ArgumentError, FileError, KernelBuildError, PyclgemmError
from pyclgemm.measure import operands as operands_module
from pyclgemm.measure.operands import DISTRIBUTIONS, random_operands
from pyclgemm.measure.verify import (
    MeasuredError,
    Rounding,
    measure_error,
    reference,
    rounding_of,
)
from pyclgemm.problem.precision import resolve_precision
from tests.support.system import rank_of, text_of

SIZES = (48, 40, 64)
FLOAT64 = Algorithm("float64", "float64", "F64_F64_F64")
SPLIT = Algorithm("float32", "float32", "TF32_TF32_F32_X3")


@pytest.fixture(scope="module")
def measured(queue: Any) -> Report:
    bench = PrecisionBench(queue, SIZES)
    bench.check()
    bench.time(rounds=1)
    return bench.report()


def row_of(report: Report, algorithm: Algorithm) -> Row:
    return next(row for row in report.rows if row.algorithm == algorithm)


def test_every_algorithm_is_there_and_runs_or_says_why_not(measured: Report) -> None:
    assert [row.algorithm for row in measured.rows] == list(ALGORITHMS)
    for row in measured.rows:
        if row.reason:
            assert (row.seconds, row.error, row.path) == (None, None, "")
        else:
            assert row.error is not None and row.error.held, row
            assert row.seconds and row.seconds > 0
            assert row.path and row.config
    base = row_of(measured, BASELINE)
    assert not base.reason
    assert measured.relative(base) == 1
    assert base.error is not None and 0 < base.error.root_mean_square < base.error.largest < 1e-6


def test_the_library_knows_no_algorithm_that_is_missing() -> None:
    from pyclgemm.problem import precision

    named = {(algorithm.precision, algorithm.operand) for algorithm in ALGORITHMS}
    assert {(one.name, one.operand) for one in precision.PRECISIONS} == named
    results = {(algorithm.operand, algorithm.result) for algorithm in ALGORITHMS}
    assert results == {
        (dtype, result)
        for dtype in precision.DTYPES
        if not precision.is_complex(dtype)
        for result in precision.result_dtypes(dtype)
    }


def test_a_wrong_kernel_exceeds_its_bound_and_is_not_timed(
    queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = operands_module.plan

    def without_the_last_of_k(queue: Any, a: Any, b: Any, **others: Any) -> Any:
        short_a, short_b = a[:, :-1], b[:-1]
        ready = real(queue, short_a, short_b, **others)

        class Wrong:
            choice = ready.choice

            def __call__(self, a: Any, b: Any, out: Any) -> None:
                ready(a[:, :-1], b[:-1], out=out)

        return Wrong()

    monkeypatch.setattr(operands_module, "plan", without_the_last_of_k)
    bench = PrecisionBench(queue, SIZES, algorithms=[BASELINE])
    bench.check()
    bench.time(rounds=1)
    report = bench.report()
    (row,) = report.rows
    assert row.verdict == "exceeded" and row.seconds is None
    assert row.error is not None and row.error.largest > row.error.bound
    assert "exceeded" in text_of(report_table(report))


@pytest.mark.parametrize("data", DISTRIBUTIONS)
@pytest.mark.parametrize("algorithm", [BASELINE, FLOAT64], ids=lambda one: one.operand)
def test_the_bound_holds_on_all_data(
    queue: Any, require: Any, data: str, algorithm: Algorithm
) -> None:
    require(algorithm.operand)
    bench = PrecisionBench(queue, SIZES, data, [algorithm])
    bench.check()
    (row,) = bench.report().rows
    assert row.verdict == "held", row


# -------------------------------------------------------------------------- without a device


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
@pytest.mark.parametrize("data", DISTRIBUTIONS)
def test_operands_are_finite_and_of_the_type(rng: Any, dtype: str, data: str) -> None:
    pytest.importorskip("ml_dtypes")
    a, b = random_operands(rng, 6, 5, 64, dtype, data)
    assert (a.shape, b.shape) == ((6, 64), (64, 5))
    assert a.dtype.name == b.dtype.name == dtype
    wide_a, wide_b = a.astype(float), b.astype(float)
    assert np.isfinite(wide_a).all() and np.isfinite(wide_b).all()
    assert len(np.unique(wide_a)) > (8 if dtype == "int8" else 32)
    relative = np.abs(wide_a @ wide_b) / (np.abs(wide_a) @ np.abs(wide_b))
    if data == "cancelling":
        assert relative.max() < 0.05
    if data == "badly-scaled":
        assert np.abs(wide_a).max() > 100 * np.median(np.abs(wide_a)) or dtype == "int8"


def test_sampled_rows_are_exact_for_integers_and_reach_both_ends(rng: Any) -> None:
    a, b = random_operands(rng, 50, 30, 70, "int8", "uniform")
    rows, columns = reference(a, b, rng, most_work=10 * 30 * 70)
    assert {0, 49} <= set(rows.axes[0]) and len(rows.axes[0]) <= 12
    exact = a.astype(np.int64) @ b.astype(np.int64)
    magnitude = np.abs(a.astype(int)) @ np.abs(b.astype(int))
    for part in (rows, columns):
        assert (part.value == exact[np.ix_(*part.axes)]).all()
        assert (part.magnitude == magnitude[np.ix_(*part.axes)]).all()
    nothing = Rounding(0.0, 0.0, 0.0)
    right = measure_error(exact.astype(np.int32), (rows, columns), nothing)
    assert right == MeasuredError(0.0, 0.0, 0.0, 0.0) and right.held
    exact[rows.axes[0][3], 7] += 1
    wrong = measure_error(exact.astype(np.int32), (rows, columns), nothing)
    assert not wrong.held and wrong.largest > 0


def test_the_errors_are_relative_to_the_sums_of_magnitudes(rng: Any) -> None:
    a, b = random_operands(rng, 3, 4, 8, "float64", "normal")
    parts = reference(a, b, rng)
    result = a @ b + 0.125 * parts[0].magnitude
    found = measure_error(result, parts, Rounding(0.1, 0.0, 0.0))
    assert found.largest == pytest.approx(0.125) == found.root_mean_square
    assert (found.bound, found.held) == (0.1, False)
    assert found.ratio == pytest.approx(1.25)
    assert measure_error(result, parts, Rounding(0.13, 0.0, 0.0)).held
    result[1, 2] = np.nan
    found = measure_error(result, parts, Rounding(1.0, 0.0, 0.0))
    assert found.largest == np.inf and not found.held


def test_rounding_has_the_parts_and_the_store() -> None:
    split = rounding_of("float32", 1024, resolve_precision("TF32_TF32_F32", "float32"))
    plain = rounding_of("float32", 1024, resolve_precision(None, "float32"))
    error = resolve_precision("TF32_TF32_F32", "float32").product_error
    assert split.sums - plain.sums == pytest.approx(error)
    half = resolve_precision("F16_F16_F32", "float16")
    assert rounding_of("float16", 64, half).storing == 2.0**-10
    assert rounding_of("float16", 64, half, "float32").storing == 0


def made_up() -> Report:
    error = MeasuredError(1e-6, 1e-7, 1e-5, ratio=0.1)
    exact = MeasuredError(0.0, 0.0, 0.0, ratio=0.0)
    rows = (
        Row(Algorithm("float16", "float16", "F16_F16_F32"), "matrix", "MWG=1", 1e-6, error),
        Row(BASELINE, "indirect", "MWG=2", 4e-6, error),
        Row(SPLIT, reason="no such unit"),
        Row(FLOAT64, "direct", "WGD=8", None, dataclasses.replace(error, ratio=2.0)),
        Row(Algorithm("int8", "int32", "I8_I8_I32"), "matrix", "MWG=4", 5e-7, exact),
    )
    return Report("Some [GPU]", (100, 200, 500), "normal", rows)


def test_the_table_and_the_reasons() -> None:
    text = text_of(report_table(made_up()))
    for part in ("Some [GPU]", "100 x 200 x 500", "20 TFLOPS", "40 TOPS", "4.00", "8.00", "exact",
                 "held", "exceeded", "matrix", "1.0e-06"):  # fmt: skip
        assert part in text, part
    assert "X3" not in text
    assert reasons(made_up()) == ["float32 to float32, TF32_TF32_F32_X3: no such unit"]


def test_the_file_has_every_row(tmp_path: Any) -> None:
    write_csv(made_up(), tmp_path / "x.csv")
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["precision"] for row in rows] == [row.algorithm.precision for row in made_up().rows]
    assert float(rows[0]["times_f32"]) == 4 and rows[2]["seconds"] == ""
    assert (rows[2]["reason"], rows[3]["verdict"]) == ("no such unit", "exceeded")
    with pytest.raises(FileError, match="cannot be written"):
        write_csv(made_up(), tmp_path / "x.csv" / "x.csv")


def test_the_plot_is_a_picture(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    plot_report(made_up(), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ArgumentError, match="cannot be written"):
        plot_report(made_up(), tmp_path / "x.nonsense")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PyclgemmError, match=r'pip install "pyclgemm\[profile\]"'):
        plot_report(made_up(), tmp_path / "x.png")


# -------------------------------------------------------------------------- the command


def arguments(device: Any, *more: str) -> list[str]:
    return ["precision", "48x40x64", "--device", rank_of(device), "--rounds", "1", *more]


def test_the_command(device: Any, tmp_path: Any) -> None:
    table = tmp_path / "x.csv"
    result = CliRunner().invoke(main, arguments(device, "--csv", str(table)))
    assert result.exit_code == 0, result.output
    assert "F32_F32_F32" in result.output and "normal data" in result.output
    assert len(table.read_text().splitlines()) == 1 + len(ALGORITHMS)


def test_an_interruption_shows_what_was_measured(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*rest: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrecisionBench, "time", interrupt)
    result = CliRunner().invoke(main, arguments(device))
    assert result.exit_code == 0, result.output
    assert "Interrupted" in result.output and "held" in result.output


def test_an_exceeded_bound_ends_with_an_error(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Rounding(0.0, 0.0, 0.0)
    monkeypatch.setattr(operands_module, "rounding_of", lambda *facts: nothing)
    result = CliRunner().invoke(main, arguments(device))
    assert result.exit_code == 1
    assert "exceeded" in result.output and "exceeds its bound" in result.output


def test_a_refusal_says_what_the_compiler_complained_of() -> None:
    log = "warning: unused\n<kernel>:3:1: error: use of undeclared identifier 'x'\nnote: here"
    error = KernelBuildError("the compiler of 'A' refused kernel 'xgemm'", log=log)
    assert precision_bench._line(error) == (
        "the compiler of 'A' refused kernel 'xgemm': "
        "<kernel>:3:1: error: use of undeclared identifier 'x'"
    )
    assert precision_bench._line(KernelBuildError("it refused")) == "it refused"
