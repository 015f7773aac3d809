"""The benchmarks measure the right thing: shapes, checks, CLBlast's results, tables. No timing."""

from __future__ import annotations

import doctest
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not all(map(importlib.util.find_spec, ("click", "matplotlib", "pandas", "pyopencl", "rich"))):
    pytest.skip("the benchmarks need click, matplotlib, pandas and rich", allow_module_level=True)

sys.path.append(str(Path(__file__).resolve().parent.parent))

import click
import pandas as pd
import pyopencl.array as cl_array
from click.testing import CliRunner

from benchmarks import (
    check,
    clblast,
    compare_clblast,
    contenders,
    cublas,
    host_time,
    report,
    shapes,
)
from benchmarks.check import error_ratio, make_reference
from benchmarks.contenders import CLBLAST, CUBLAS, GEMM, LAYER, NUMPY, PLAN
from benchmarks.measure import Clock, Pace, Timing, calibrate, measure_in_turn
from benchmarks.operands import make_operands, uniform
from benchmarks.session import Session
from benchmarks.shapes import Case, parse_shapes, suite_cases

FACTS = {
    "device": "Some Device",
    "platform": "Some Platform",
    "driver": "1.2",
    "date": "2026-01-02T03:04:05+00:00",
}
COMPLEX = ("complex64", "complex128")


# ------------------------------------------------------------------------------ shapes


def test_square_doubles_from_64_to_8192() -> None:
    sizes = [case.m for case in suite_cases("square")]
    assert sizes == [64, 128, 256, 512, 1024, 2048, 4096, 8192]


def test_every_suite_names_itself_and_all_is_their_union() -> None:
    parts = [case for suite in shapes.SUITES for case in suite_cases(suite)]
    assert parts == suite_cases("all")
    assert {case.suite for case in parts} == set(shapes.SUITES)
    assert len(set(parts)) == len(parts)
    assert all(case.dense == (case.suite == "dense") for case in parts)


@pytest.mark.parametrize("suite", shapes.SUITES)
def test_labels_are_unique_and_can_be_given_as_shapes(suite: str) -> None:
    cases = suite_cases(suite)
    again = parse_shapes(",".join(case.label for case in cases))
    assert [replace(case, suite="shapes", dense=False) for case in cases] == again
    assert len({case.label for case in cases}) == len(cases)


def test_random_shapes_are_repeatable_and_within_bounds() -> None:
    cases = suite_cases("random", count=50, seed=3)
    assert cases == suite_cases("random", count=50, seed=3)
    assert cases != suite_cases("random", count=50, seed=4)
    assert all(1 <= size <= 8192 for case in cases for size in (case.m, case.n, case.k))
    assert {case.layout for case in cases} == {"NN", "NT", "TN", "TT"}


@pytest.mark.parametrize("text", ["", "12x3", "4x0x4", "4x4x4:XY", "axbxc", "4x4x4+"])
def test_a_bad_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted MxNxK"):
        parse_shapes(text)


def test_stored_shapes_and_work_of_a_case() -> None:
    (case,) = parse_shapes("2x3x5:TN+4")
    assert (case.shape_a, case.shape_b, case.shape_out) == ((5, 2), (5, 3), (2, 3))
    assert case.bytes("float64") == 8 * (5 * 6 + 5 * 7 + 2 * 7)
    assert (case.flops("float32"), case.flops("complex64")) == (60, 240)


def test_examples_in_docstrings() -> None:
    for module in (shapes, report):
        results = doctest.testmod(module)
        assert results.attempted and not results.failed


# ------------------------------------------------------------------------------ CLBlast


@pytest.fixture(scope="module")
def library() -> clblast.CLBlast:
    try:
        return clblast.load()
    except clblast.CLBlastNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", *COMPLEX])
def test_clblast_gives_the_product(
    library: clblast.CLBlast, queue: Any, dtype: str, rng: np.random.Generator
) -> None:
    m, n, k, padding = 7, 5, 11, 3

    def matrix(rows: int, columns: int) -> tuple[np.ndarray, Any, Any]:
        host = uniform(rng, (rows, columns + padding), dtype)
        base = cl_array.to_device(queue, host)
        return host[:, :columns].astype(complex), base[:, :columns], base

    alpha, beta = (1.5 - 0.5j, 0.25 + 2j) if dtype in COMPLEX else (1.5, 0.25)
    for trans_a, trans_b in [(False, False), (False, True), (True, False), (True, True)]:
        host_a, a, _ = matrix(*((k, m) if trans_a else (m, k)))
        host_b, b, _ = matrix(*((n, k) if trans_b else (k, n)))
        host_c, c, base = matrix(m, n)
        before = base.get()
        try:
            library.gemm(queue, a, b, c, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta)
        except clblast.CLBlastError as error:
            if error.status in (-2044, -2045):
                pytest.skip(str(error))
            raise
        after = base.get()
        op_a, op_b = host_a.T if trans_a else host_a, host_b.T if trans_b else host_b
        wanted = alpha * op_a @ op_b + beta * host_c
        bound = 8 * (k + 10) * np.finfo(dtype).eps * (np.abs(op_a) @ np.abs(op_b) + np.abs(host_c))
        assert (np.abs(after[:, :n] - wanted) <= bound).all()
        np.testing.assert_array_equal(after[:, n:], before[:, n:])


def test_clblast_refuses_what_it_cannot_express(library: clblast.CLBlast, queue: Any) -> None:
    square = cl_array.zeros(queue, (4, 4), np.float32)
    with pytest.raises(ValueError, match="4 bytes apart"):
        library.prepare(queue, square[:, ::2], square[:2, :], square)
    with pytest.raises(ValueError, match="do not fit"):
        library.prepare(queue, square, square[:3, :], square)
    with pytest.raises(ValueError, match="one of float16"):
        library.prepare(queue, *[cl_array.zeros(queue, (4, 4), np.int32)] * 3)


def test_a_failing_routine_says_why(library: clblast.CLBlast, queue: Any) -> None:
    # A view into a buffer that is too small for the rows that it claims.
    buffer = cl_array.zeros(queue, (4, 4), np.float32)
    beyond = cl_array.Array(queue, (8, 4), np.float32, data=buffer.base_data)
    with pytest.raises(clblast.CLBlastError, match="buffer of a is too small"):
        library.gemm(queue, beyond, buffer, cl_array.zeros(queue, (8, 4), np.float32))


def test_an_absent_clblast_is_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clblast, "_SONAMES", ("libnosuch.so",))
    monkeypatch.setattr(clblast.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(clblast.CLBlastNotFoundError, match="--clblast PATH"):
        clblast.load()
    with pytest.raises(clblast.CLBlastNotFoundError, match="from nowhere.so"):
        clblast.load("nowhere.so")


def test_without_clblast_its_column_is_left_out(queue: Any) -> None:
    said: list[str] = []
    facts: dict[str, str] = {}
    factories = compare_clblast.make_factories(
        [CLBLAST, NUMPY], queue.device, "nowhere.so", facts, said.append
    )
    assert list(factories) == [NUMPY]
    assert "nowhere.so" in said[0]
    assert facts["clblast"] == "absent"


def test_cublas_is_not_looked_for_without_its_gpu(queue: Any) -> None:
    if cublas.is_nvidia_gpu(queue.device):
        pytest.skip("this is an NVIDIA GPU")
    with pytest.raises(cublas.CublasUnavailableError, match="no NVIDIA GPU"):
        cublas.find_torch_device(queue.device)


# ------------------------------------------------------------------------------ checks


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_check_passes_a_right_result_and_finds_one_wrong_element(
    queue: Any, dtype: str, rng: np.random.Generator
) -> None:
    operands = make_operands(Case(33, 34, 35, padding=3), dtype, queue, rng)
    one = operands.sets[0]
    reference = make_reference(operands, rng)
    right = one.a.host @ one.b.host
    assert 0 < error_ratio(right, reference, dtype) < 1
    for spoiled in (right[17, 11] + 1, np.nan):
        wrong = right.copy()
        wrong[17, 11] = spoiled
        assert error_ratio(wrong, reference, dtype) > 1


def test_of_a_large_product_no_wrong_tile_escapes(
    queue: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_MOST_WORK", 16 * 70 * 5)
    operands = make_operands(Case(64, 70, 5), "float32", queue, rng)
    reference = make_reference(operands, rng)
    assert len(reference.rows) <= 18 and {0, 63} <= set(reference.rows)
    right = operands.sets[0].a.host @ operands.sets[0].b.host
    assert error_ratio(right, reference, "float32") < 1
    for start in range(57):
        wrong = right.copy()
        wrong[start : start + 7, 60:] += 1
        assert error_ratio(wrong, reference, "float32") > 1
    unwritten = right.copy()
    unwritten[np.setdiff1d(np.arange(64), reference.rows)[0], 3] = np.nan
    assert error_ratio(unwritten, reference, "float32") == np.inf


def test_the_check_adds_bias_and_relu(queue: Any, rng: np.random.Generator) -> None:
    operands = make_operands(Case(9, 8, 7, trans_b=True), "float32", queue, rng)
    one, bias = operands.sets[0], operands.bias.host[0]
    reference = make_reference(operands, rng)
    product = one.a.host @ one.b.host.T
    assert error_ratio(np.maximum(product + bias, 0), reference, "float32", bias) < 1
    assert error_ratio(product + bias, reference, "float32", bias) > 1


def test_the_result_is_poisoned_before_a_check(queue: Any, rng: np.random.Generator) -> None:
    operands = make_operands(Case(4, 3, 2, padding=1), "float32", queue, rng)
    assert not np.isnan(operands.result()).any()
    operands.poison()
    assert np.isnan(operands.result()).all()
    assert operands.result().shape == (4, 3)


# ------------------------------------------------------------------------------ measuring


class FakeTime:
    """A clock that moves only when work or sleep is done."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept += seconds


class FakeContender:
    """Takes so many seconds a call, and a fixed time to wait."""

    arithmetic = "float32"
    bias = None

    def __init__(
        self, name: str, time: FakeTime, seconds: float, step: int = 1, value: Any = None
    ) -> None:
        self.name, self.step, self.unrest = name, step, 0.0
        self._time, self._seconds, self._value = time, seconds, value
        self.bursts: list[int] = []

    def enqueue(self, calls: int) -> None:
        assert calls % self.step == 0
        self.bursts.append(calls)
        self._time.seconds += calls * self._seconds

    def finish(self) -> None:
        self._time.seconds += 1e-5

    def poison(self) -> None:
        pass

    def result(self) -> Any:
        return self._value


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 3e-3, 0.019, 0.5])
@pytest.mark.parametrize("step", [1, 6])
def test_a_burst_takes_about_15_ms_or_is_one_step(seconds: float, step: int) -> None:
    time = FakeTime()
    calls, elapsed = calibrate(FakeContender("x", time, seconds, step), Pace(), time.clock())
    assert calls % step == 0
    assert 0.012 <= elapsed <= 0.03 or calls == step
    assert elapsed == pytest.approx(calls * seconds, rel=0.1)


def test_contenders_take_turns_and_rest_four_times_as_long() -> None:
    time = FakeTime()
    order: list[str] = []

    class Noting(FakeContender):
        def enqueue(self, calls: int) -> None:
            order.append(self.name)
            super().enqueue(calls)

    two = [Noting("x", time, 1e-3), Noting("y", time, 2e-3)]
    told: list[float] = []
    timings = measure_in_turn(
        two, Pace(rounds=9), np.random.default_rng(0), clock=time.clock(), progress=told.append
    )
    assert timings["x"].median == pytest.approx(1e-3, rel=0.01)
    assert timings["y"].median == pytest.approx(2e-3, rel=0.01)
    rounds = [order[i : i + 2] for i in range(len(order) - 18, len(order), 2)]
    assert all(sorted(pair) == ["x", "y"] for pair in rounds)
    assert ["x", "y"] in rounds and ["y", "x"] in rounds
    assert sum(told) == pytest.approx(1.0)
    assert time.slept == pytest.approx(0.8 * time.seconds, rel=0.01)


def test_long_bursts_get_fewer_rounds_but_three() -> None:
    pace = Pace(rounds=9, seconds=10.0)
    assert pace.rounds_for([0.02, 0.02]) == 9
    assert pace.rounds_for([0.3, 0.1]) == 5
    assert pace.rounds_for([5.0]) == 3
    assert replace(pace, rounds=1).rounds_for([5.0]) == 1


def test_spread_is_half_the_distance_between_quartiles() -> None:
    timing = Timing(1, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert (timing.median, timing.spread) == (3.0, pytest.approx(1 / 3))


# ------------------------------------------------------------------------------ a session


def make_session(queue: Any, said: list[str], **factories: Any) -> Session:
    return Session(
        queue, factories, Pace(burst=1e-4, rounds=1), said.append, longest_product=float("inf")
    )


def test_a_session_reports_and_leaves_out_what_fails(queue: Any) -> None:
    def raising(operands: Any) -> Any:
        raise RuntimeError("not on this device")

    def wrong(operands: Any) -> Any:
        return FakeContender(PLAN, FakeTime(), 1e-3, value=np.zeros((5, 5), np.float32))

    said: list[str] = []
    factories = {PLAN: wrong, CLBLAST: raising, NUMPY: contenders.NumpyContender}
    session = make_session(queue, said, **factories)
    parts: list[float] = []
    session.run([Case(5, 5, 5), Case(5, 5, 5, padding=2)], "float32", parts.append)
    assert [record.contender for record in session.records] == [NUMPY, NUMPY]
    assert sum("not on this device" in line for line in said) == 1
    assert sum("WRONG" in line for line in said) == len(session.failures) == 2
    assert sum(parts) == pytest.approx(2.0)


def test_a_session_goes_on_after_an_error_of_ours(queue: Any) -> None:
    def raising(operands: Any) -> Any:
        raise ValueError("ours")

    class Breaking(FakeContender):
        def enqueue(self, calls: int) -> None:
            if self.bursts:
                raise RuntimeError("lost the device")
            super().enqueue(calls)

    def breaking(operands: Any) -> Any:
        one = operands.sets[0]
        return Breaking(CLBLAST, FakeTime(), 1e-3, value=one.a.host @ one.b.host)

    session = make_session(queue, [], **{PLAN: raising})
    session.run([Case(4, 4, 4)], "float32", lambda part: None)
    assert "ours" in session.failures[0]
    session = make_session(queue, [], **{CLBLAST: breaking})
    session.run([Case(4, 4, 4), Case(5, 5, 5)], "float32", lambda part: None)
    assert ["lost the device" in failure for failure in session.failures] == [True, True]


def test_a_session_skips_what_has_shown_to_be_slow(queue: Any) -> None:
    said: list[str] = []
    session = make_session(queue, said, **{NUMPY: contenders.NumpyContender})
    session.run([Case(8, 8, 8)], "float32", lambda part: None)
    session.longest_product = 1e-9
    session.run([Case(16, 16, 16)], "float32", lambda part: None)
    assert len(session.records) == 1
    assert "16x16x16" in said[0] and "--max-seconds" in said[0]


def test_a_session_skips_what_does_not_fit_the_device(queue: Any) -> None:
    said: list[str] = []
    session = make_session(queue, said, **{NUMPY: contenders.NumpyContender})
    session.run([Case(1 << 20, 1 << 20, 1)], "float32", lambda part: None)
    assert not session.records
    assert "1048576x1048576x1 is skipped" in said[0]


def test_dense_contenders_take_part_in_dense_cases_only(queue: Any) -> None:
    asked: list[str] = []

    def asking(name: str) -> Any:
        def factory(operands: Any) -> Any:
            asked.append(name)
            raise RuntimeError

        return factory

    session = make_session(queue, [], **{PLAN: asking(PLAN), LAYER: asking(LAYER)})
    session.run([Case(4, 4, 4)], "float32", lambda part: None)
    assert asked == [PLAN]
    session.run([Case(4, 4, 4, dense=True)], "float32", lambda part: None)
    assert asked == [PLAN, PLAN, LAYER]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_own_contenders_are_right(queue: Any, dtype: str, rng: np.random.Generator) -> None:
    for case in parse_shapes("13x17x19:TT+3,32x24x40", dense=True):
        operands = make_operands(case, dtype, queue, rng)
        reference = make_reference(operands, rng)
        for make in (
            contenders.plan_contender,
            contenders.gemm_contender,
            contenders.packed_contender,
            contenders.layer_contender,
        ):
            contender = make(operands)
            contender.poison()
            contender.enqueue(len(operands.sets) + 1)
            contender.finish()
            ratio = error_ratio(contender.result(), reference, contender.arithmetic, contender.bias)
            assert ratio < 1, contender.name


# ------------------------------------------------------------------------------ report


def fake_records(cases: list[Case]) -> list[report.Record]:
    """Speeds in GFLOPS: pyclgemm 40, gemm 38, DenseLayer 39, CLBlast 20, NumPy 10, cuBLAS 50."""
    speeds = {PLAN: 40, GEMM: 38, LAYER: 39, CLBLAST: 20, NUMPY: 10, CUBLAS: 50}
    return [
        report.Record(
            case, "float32", name,
            Timing(3, tuple(case.flops("float32") / speed / 1e9 * part for part in (1, 0.9, 1.1))),
            1, 0.1,
        )
        for case in cases
        for name, speed in speeds.items()
    ]  # fmt: skip


def test_table_has_speeds_and_ratios_in_the_order_measured() -> None:
    cases = suite_cases("square")
    frame = report.to_frame(fake_records(cases), FACTS)
    assert (frame["device"] == "Some Device").all()
    table = report.speed_table(frame, "square")
    assert list(table.index) == [case.label for case in cases]
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


def test_a_case_without_a_contender_has_a_gap() -> None:
    records = fake_records([Case(8, 8, 8), Case(9, 9, 9)])
    records = [r for r in records if (r.case.m, r.contender) != (9, CLBLAST)]
    table = report.speed_table(report.to_frame(records, FACTS), "shapes")
    assert np.isnan(table.loc["9x9x9", CLBLAST])
    assert table.loc["8x8x8", "x CLBlast"] == pytest.approx(2)
    assert " - " in report.format_table(table)


@pytest.mark.parametrize("suite", ["square", "dense", "random", "one"])
def test_csv_and_plots_are_written(suite: str, tmp_path: Path, queue: Any) -> None:
    cases = [Case(3, 4, 5, "one")] if suite == "one" else suite_cases(suite, count=50)
    session = make_session(queue, [])
    session.records = fake_records(cases)
    folder = tmp_path / "new"
    table, *plots = compare_clblast.write_results(session, FACTS, "float32", folder)
    rows = pd.read_csv(table)
    assert len(rows) == 6 * len(cases)
    assert set(FACTS) <= set(rows.columns)
    assert table.name == "some-device-some-platform-float32-2026-01-02t030405.csv"
    assert [plot.name.endswith(f"-{suite}.png") for plot in plots] == [True]
    assert plots[0].read_bytes().startswith(b"\x89PNG")


# ------------------------------------------------------------------------------ host time


def test_host_time_counts_enqueueing_alone() -> None:
    time = FakeTime()

    def burst(seconds: float) -> host_time.Burst:
        def run(calls: int) -> None:
            time.seconds += calls * seconds

        return run

    def drain() -> None:
        time.seconds += 1.0

    times = host_time.measure_host_time(
        {host_time.BASELINE: burst(5e-6), "plan": burst(9e-6), "gemm": burst(25e-6)},
        drain, calls=10, rounds=5, rng=np.random.default_rng(0), clock=time.clock(),
    )  # fmt: skip
    table = host_time.summarise(times)
    np.testing.assert_allclose(table["beyond enqueue"], [0.0, 4.0, 20.0], atol=1e-6)
    assert list(table["within"]) == ["", "yes", "NO"]


@pytest.mark.parametrize(("arguments", "waits"), [(0, 0), (2, 1), (12, 3)])
def test_the_empty_kernel_can_be_enqueued(queue: Any, arguments: int, waits: int) -> None:
    host_time.enqueue_burst(queue, arguments, waits)(3)
    queue.finish()


# ------------------------------------------------------------------------------ command line


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


@pytest.mark.parametrize("command", [compare_clblast.main, host_time.main])
def test_a_run_from_end_to_end(command: click.Command, queue: Any, tmp_path: Path) -> None:
    options = ["--device", queue.device.platform.name, "--rounds", "3", "--output", str(tmp_path)]
    if command is compare_clblast.main:
        options += ["--shapes", "8x8x8,9x7x5:TN+2", "--dense", "--burst", "1"]
        options += ["--contenders", "pyclgemm,pyclgemm.gemm,DenseLayer,NumPy"]
    else:
        options += ["--calls", "3"]
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 0, result.output
    assert queue.device.name.strip() in result.output
    (table,) = tmp_path.glob("*.csv")
    assert len(pd.read_csv(table)) == (8 if command is compare_clblast.main else 4)
