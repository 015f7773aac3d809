"""Benchmarks in other precisions: what is computed, by whom, and what it must reach."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyopencl as cl
import pytest
from click.testing import CliRunner

from benchmarks import compare_clblast
from benchmarks.contenders import contenders, cublas, factories, torch_arithmetic
from benchmarks.contenders.contenders import (
    CUBLAS,
    CUBLAS_LAYER,
    CUBLAS_STREAM,
    LAYER,
    MMA,
    PLAN,
    QUEUED,
)
from benchmarks.products import arithmetic, check
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.check import error_ratio, make_reference, relative_error
from benchmarks.products.operands import make_operands
from benchmarks.reports import report, results
from benchmarks.reports.targets import matrix_table
from benchmarks.session import matrix_suite
from benchmarks.session.matrix_suite import gpu_targets, matrix_runs
from benchmarks.session.measure import Timing
from benchmarks.session.session import Record
from pyclgemm.errors import PyclgemmError
from tests.support.benchmark_fakes import FACTS, FakeTorch, make_session

ml_dtypes = pytest.importorskip("ml_dtypes")

KINDS = [
    ("float16", None, None), ("float16", None, "float32"), ("float16", "F16_F16_F16", None),
    ("bfloat16", None, None), ("bfloat16", None, "float32"), ("float32", "TF32_TF32_F32", None),
    ("float32", "BF16_BF16_F32_X3", None), ("float64", None, None), ("int8", None, None),
]  # fmt: skip


def test_examples_in_docstrings() -> None:
    for module in (arithmetic, torch_arithmetic):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed, module


def test_what_does_not_fit_together_is_named() -> None:
    with pytest.raises(PyclgemmError, match="TF32_TF32_F32"):
        arithmetic_of("float64", "TF32_TF32_F32")
    with pytest.raises(ValueError, match="result of float32 operands is float32, not float16"):
        arithmetic_of("float32", None, "float16")


# ------------------------------------------------------------------------------ the check


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_check_holds_each_arithmetic_to_its_own_bound(
    queue: Any, rng: np.random.Generator, kind: Any
) -> None:
    how = arithmetic_of(*kind)
    operands = make_operands(Case(33, 34, 128), how, queue, rng)
    one, reference = operands.sets[0], make_reference(operands, rng)
    assert operands.sets[0].device_out.dtype.name == how.result_dtype
    a, b = one.a.host.astype(np.float64), one.b.host.astype(np.float64)
    right = (a @ b).astype(how.result_dtype)
    precision = how.precision
    assert error_ratio(right, reference, precision) < 1
    wrong = right.astype(np.float64)
    wrong[17, 11] += 3 if how.dtype == "int8" else 0.5 * (np.abs(a) @ np.abs(b))[17, 11]
    wrong = wrong.astype(how.result_dtype)
    assert error_ratio(wrong, reference, precision) > 1
    if how.dtype == "int8":
        assert error_ratio(right, reference, precision) == 0 == relative_error(right, reference)
    else:
        assert relative_error(wrong, reference) == pytest.approx(0.5, rel=0.02)


def test_one_rounding_to_tf32_is_allowed_where_it_was_asked_for(
    queue: Any, rng: np.random.Generator
) -> None:
    operands = make_operands(Case(8, 9, 16), arithmetic_of("float32"), queue, rng)
    reference = make_reference(operands, rng)
    off = (reference.expected + 2e-4 * reference.magnitude).astype(np.float32)
    assert error_ratio(off, reference, arithmetic_of("float32").precision) > 1
    assert error_ratio(off, reference, arithmetic_of("float32", "TF32_TF32_F32").precision) < 1


# ------------------------------------------------------------------------------ contenders


def test_own_contenders_compute_what_is_asked_for(queue: Any, rng: np.random.Generator) -> None:
    made = make_operands(
        Case(13, 17, 19, dense=True), arithmetic_of("float16", None, "float32"), queue, rng
    )
    reference = make_reference(made, rng)
    for make in (contenders.plan_contender, contenders.gemm_contender, contenders.layer_contender):
        contender = make(made)
        contender.poison()
        contender.enqueue(1)
        contender.finish()
        assert contender.result().dtype == np.float32
        ratio = error_ratio(contender.result(), reference, contender.precision, contender.bias)
        assert ratio < 1, contender.name


def test_those_that_cannot_take_part_say_so(queue: Any) -> None:
    said: list[str] = []
    library = SimpleNamespace(prepare=contenders.CLBlast.prepare)
    session = make_session(
        queue, said,
        NumPy=contenders.NumpyContender,
        CLBlast=lambda operands: contenders.clblast_contender(_Library(library), operands),
    )  # fmt: skip
    session.run([Case(4, 4, 4)], arithmetic_of("int8"), lambda part: None)
    assert any("NumPy multiplies int8 without a BLAS" in line for line in said)
    assert any("CLBlast needs one of" in line for line in said)
    assert not session.failures and not session.records


class _Library(contenders.CLBlast):
    """CLBlast without its shared library: what it refuses it refuses before any call."""

    def __init__(self, _: Any) -> None:
        pass


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("layer", [False, True])
def test_cublas_is_asked_for_the_same_precision(
    queue: Any, rng: np.random.Generator, kind: Any, layer: bool
) -> None:
    how = arithmetic_of(*kind)
    made = make_operands(Case(24, 16, 32, trans_b=True, dense=layer), how, queue, rng)
    torch = FakeTorch()
    if layer and how.result_dtype != how.dtype:
        with pytest.raises(ValueError, match="no bias and ReLU"):
            cublas.CublasContender(torch, 0, made, layer=True)
        return
    contender = cublas.CublasContender(torch, 0, made, layer=layer)
    assert contender.name == (CUBLAS_LAYER if layer else CUBLAS)
    flags = torch.backends.cuda.matmul
    assert flags.allow_tf32 == (kind[1] == "TF32_TF32_F32")
    assert flags.allow_fp16_accumulation == (kind[1] == "F16_F16_F16")
    assert not flags.allow_fp16_reduced_precision_reduction
    assert not flags.allow_bf16_reduced_precision_reduction
    split = how.precision.terms > 1
    assert contender.precision.name == ("F32_F32_F32" if split else how.precision.name)
    wanted = (
        "_int_mm" if how.dtype == "int8" else "mm" if how.result_dtype != how.dtype else "matmul"
    )
    assert set(torch.called) == {"_addmm_activation" if layer else wanted}
    contender.poison()
    contender.enqueue(1)
    contender.finish()
    result = contender.result()
    assert result.dtype.name == how.result_dtype
    reference = make_reference(made, rng)
    assert error_ratio(result, reference, contender.precision, contender.bias) < 1


def test_cublas_without_a_graph_computes_each_product_when_it_is_launched(
    queue: Any, rng: np.random.Generator
) -> None:
    made = make_operands(Case(24, 16, 32, trans_b=True), arithmetic_of("float32"), queue, rng)
    torch = FakeTorch()
    contender = cublas.CublasStreamContender(torch, 0, made)
    assert contender.name == CUBLAS_STREAM and torch.called == []
    contender.poison()
    contender.enqueue_ahead(3)
    contender.finish()
    assert torch.called == ["matmul"] * 3
    assert error_ratio(contender.result(), make_reference(made, rng), contender.precision) < 1


def test_its_stream_is_held_for_as_many_cycles_as_the_time_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch, ticks = FakeTorch(), iter((0.0, 1.0, 2.0, 2.01))  # 20 million cycles take 10 ms
    monkeypatch.setattr(cublas.time, "perf_counter", lambda: next(ticks))
    is_holding = cublas.StreamBlocker(torch, 0).hold(0.003)
    assert torch.slept[-1] == pytest.approx(6_000_000, abs=1)
    assert not is_holding()


def test_sizes_that_torch_refuses_are_named(queue: Any, rng: np.random.Generator) -> None:
    made = make_operands(Case(24, 15, 32), arithmetic_of("int8"), queue, rng)
    with pytest.raises(ValueError, match="multiples of 8 as n and k, not 24 x 15 x 32"):
        cublas.CublasContender(FakeTorch(), 0, made)


def test_a_flag_that_has_to_be_on_must_exist() -> None:
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(matmul=object())))
    half = torch_arithmetic.torch_arithmetic(arithmetic_of("float16"))
    torch_arithmetic.set_flags(torch, half)
    narrow = torch_arithmetic.torch_arithmetic(arithmetic_of("float16", "F16_F16_F16"))
    with pytest.raises(ValueError, match="no allow_fp16_accumulation"):
        torch_arithmetic.set_flags(torch, narrow)


# ------------------------------------------------------------------------------ the suite


def test_every_target_is_measured_with_its_reference() -> None:
    for on_cpu, targets in ((False, gpu_targets()), (True, matrix_suite.cpu_targets())):
        runs = matrix_runs(on_cpu=on_cpu)
        measured = {(case.label, run.arithmetic): (case, run) for run in runs for case in run.cases}
        assert len(measured) == sum(len(run.cases) for run in runs)
        for target in targets:
            for how in target.arithmetics:
                case, run = measured[target.case.label, how]
                assert target.contender not in run.without
                assert case.dense or target.contender != LAYER
            other = target.reference_arithmetic or target.arithmetics[0]
            assert (target.case.label, other) in measured
    by_mma = [run for run in matrix_runs(on_cpu=False) if MMA not in run.without]
    assert [case.label for run in by_mma for case in run.cases] == ["4096x4096x4096"]


def test_targets_are_those_that_were_set() -> None:
    wanted = {
        (target.case.label, target.arithmetics[0].precision.name, target.contender): target.ratio
        for target in gpu_targets()
        if target.arithmetics[0].dtype != "bfloat16"
    }
    cube = {size: f"{size}x{size}x{size}" for size in (1024, 2048, 4096, 8192)}
    assert (
        wanted[cube[8192], "F16_F16_F32", PLAN] == 1.0 == wanted[cube[4096], "F16_F16_F32", LAYER]
    )
    assert wanted[cube[2048], "F16_F16_F32", PLAN] == 0.95
    assert wanted[cube[1024], "F16_F16_F32", PLAN] == 0.85
    assert wanted["64x3072x768", "F16_F16_F32", LAYER] == 0.9
    assert wanted[cube[8192], "TF32_TF32_F32", PLAN] == 0.95
    assert wanted[cube[2048], "F64_F64_F64", PLAN] == 0.9
    assert wanted[cube[4096], "I8_I8_I32", PLAN] == 1.5
    assert wanted[cube[4096], "TF32_TF32_F32_X3", PLAN] == 2.0
    assert wanted[cube[4096], "F16_F16_F32", MMA] == 0.55


def records_of(speeds: dict[tuple[str, str | None, str], tuple[float, float]]) -> list[Any]:
    """Products of 4096 in some arithmetics: TFLOPS and errors by dtype, precision, contender."""
    case = Case(4096, 4096, 4096, matrix_suite.SUITE)
    return [
        Record(
            case, arithmetic_of(dtype, precision), name,
            Timing(1, (case.flops("float32") / tera / 1e12,)), 1, 0.1, error,
        )
        for (dtype, precision, name), (tera, error) in speeds.items()
    ]  # fmt: skip


def test_the_table_says_what_was_reached(tmp_path: Path) -> None:
    records = records_of(
        {
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
    )
    frame = report.to_frame(records, FACTS)
    table = matrix_table(frame, on_cpu=False)
    verdicts = {
        (row["types"], row["contender"]): (row["value"], row[""]) for _, row in table.iterrows()
    }
    assert verdicts["float16", PLAN] == ("1.07", "reached")
    assert verdicts["float16", MMA] == ("0.43", "missed")
    assert verdicts["int8 to int32", PLAN] == ("1.47", "missed")
    assert verdicts["float64", PLAN] == ("nan", "?")
    # Fast enough, but not as exact; exact and fast; exact, but not fast enough.
    assert verdicts["float32, TF32_TF32_F32_X3", PLAN] == ("2.16", "missed, but not by all")
    assert verdicts["float32, BF16_BF16_F32_X9", PLAN] == ("2.04", "reached")
    assert verdicts["float32, BF16_BF16_F32_X6", PLAN] == ("1.76", "missed, but not by all")
    assert matrix_table(frame.assign(suite="square"), on_cpu=False).empty
    paths = results.write_results(records, FACTS, tmp_path)
    assert "precisions" in paths[0].name
    kept = pd.read_csv(paths[0])
    assert {"precision", "result", "error"} <= set(kept.columns)
    assert len({path.name for path in paths}) == len(paths)


def test_layers_are_compared_with_cublas_own() -> None:
    case = Case(64, 64, 64, dense=True)
    seconds = {PLAN: 1.0, LAYER: 1.1, CUBLAS: 1.0, CUBLAS_LAYER: 0.99}
    records = [
        Record(case, arithmetic_of("float16"), name, Timing(1, (time,)), 1, 0.1)
        for name, time in seconds.items()
    ]
    table = report.speed_table(report.to_frame(records, FACTS), "shapes")
    assert table[f"layer x {CUBLAS_LAYER}"].iloc[0] == pytest.approx(0.9)
    assert not table.filter(like="x cuBLAS.layer").empty


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


def test_default_contenders_leave_some_to_be_asked_for(queue: Any) -> None:
    names = factories.default_names(queue.device)
    assert not {MMA, CUBLAS_STREAM, QUEUED} & set(names)
    assert CUBLAS_LAYER in names


def test_products_in_a_queue_are_a_contender_on_cpus_alone() -> None:
    for kind, taken in ((cl.device_type.CPU, [QUEUED]), (cl.device_type.GPU, [])):
        said: list[str] = []
        made = factories.make_factories([QUEUED], SimpleNamespace(type=kind), None, {}, said.append)
        assert list(made) == taken
        assert len(said) == 1 - len(taken) and all(QUEUED in line for line in said)
    assert check._EPS["int32"] == 0
