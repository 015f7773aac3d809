"""The benchmarks' scripts: their examples, help, wrong options, and a run of each."""

import doctest
import importlib
import pkgutil
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyopencl as cl
import pytest
from rich.console import Console

import benchmarks
import pyclgemm
from benchmarks import (
    amd_report,
    choice_time,
    compare_clblast,
    host_time,
    ladder,
    scale,
    stream,
    transform3d,
    unseen,
)
from benchmarks.contenders.contenders import NUMPY, PLAN
from benchmarks.mra.cases import Data, Size, copy_bandwidth, difference, disagreements
from benchmarks.mra.report import Repetition, medians, speed_table, to_frame, write_results
from benchmarks.session.host_worker import BASELINE, own_bursts
from benchmarks.session.session import Session
from benchmarks.steps.steps import ladder_steps
from pyclgemm.device.discovery import best_device
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.families.registry import FAMILIES, violations
from pyclgemm.measure.filled_queue import QueueBlocker
from pyclgemm.runtime.compile_pool import CompilePool
from pyclgemm.selection.database import load_database, read_file
from pyclgemm.selection.model import basis_for
from tests.support.benchmark_records import FACTS
from tests.support.system import output_of, text_of

ROOT = Path(ladder.__file__).parent.parent


def test_examples_in_docstrings():
    modules = pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    results = {one.name: doctest.testmod(importlib.import_module(one.name)) for one in modules}
    assert {name: result.failed for name, result in results.items() if result.failed} == {}
    assert sum(result.attempted > 0 for result in results.values()) >= 14


def printed_by(script, *arguments, queue=None, code=0):
    """The output of a script that ends with this status, on the device of a queue."""
    device = ("--device", queue.device.platform.name) if queue else ()
    return output_of(*device, *arguments, code=code, command=script.main)


def only_table(folder):
    [path] = folder.glob("*.csv")
    return pd.read_csv(path)


@pytest.mark.parametrize(
    "script",
    [
        choice_time, compare_clblast, host_time, amd_report, ladder, scale, stream, transform3d,
        unseen,
    ],
)  # fmt: skip
def test_help(script):
    with_examples = ladder, scale, stream, transform3d
    parts = {amd_report: "gfx1100", **dict.fromkeys(with_examples, "Examples:")}
    part = parts.get(script, "")
    assert part in printed_by(script, "--help")


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (compare_clblast, "--shapes 4x4", "wanted MxNxK"),
        (compare_clblast, "--contenders MKL", "known are pyclgemm"),
        (compare_clblast, "--suite round", "round"),
        (compare_clblast, "--dtype float64 --precision TF32_TF32_F32", "--precision"),
        (compare_clblast, "--result-dtype float64", "--result-dtype"),
        (host_time, "--tree none-such", "none-such"),
        (amd_report, "--shape 12by12", "'12by12' is not of the form MxNxK"),
        (amd_report, "--config 12by12", "'12by12' is not of the form NAME=VALUE"),
        (amd_report, "--architecture sm_90", "'sm_90' is not of the form of an AMD architecture"),
        (amd_report, f"--clang {ROOT}/clang-19", "is a program here; clang 19 or newer is wanted"),
        (amd_report, f"--clang {sys.executable} --rocm-path {ROOT}",
         f"none of {ROOT} holds amdgcn/bitcode"),
        (ladder, "--no-measure --no-compile", "nothing to do"),
        (ladder, "--architecture sm_90", "not of the form of an AMD"),
        (ladder, f"--no-measure --compiled {__file__}", "no report of compiled steps"),
        (transform3d, "--sweep --k 33", "33"),
        (transform3d, "--level L7", "L7"),
        (stream, "--size 4x4", "N or MxNxK"),
        (stream, "--memory much", "4GiB"),
        (stream, "--devices none-such", "none-such"),
        (scale, "measure --workers 0", "'0' is no list of positive integers"),
        (scale, "measure --contenders MKL", "MKL; known are pyclgemm"),
        (unseen, "--type float8", "'float8' is none of float16"),
        (unseen, "--type float64:TF32_TF32_F32", "the operands are float64"),
        (unseen, "--hide none.json", "'none.json' is not one of"),
        *((script, "--device none-such", "none-such")
          for script in (compare_clblast, ladder, transform3d, unseen)),
    ],
)  # fmt: skip
def test_wrong_options_are_explained(queue, script, arguments, message):
    output = printed_by(script, *arguments.split(), code=(1, 2))
    assert message in " ".join(output.split())


@pytest.mark.any_runtime
def test_a_comparison(queue, tmp_path):
    real = {"autospec": True, "side_effect": QueueBlocker.hold}
    with patch.object(QueueBlocker, "hold", **real) as hold:
        output = printed_by(
            compare_clblast, "--output", tmp_path, "--burst", 1, "--shapes", "8x8x8,9x7x5:TN+2",
            "--dense", "--fill-queue", "--rounds", 3,
            "--contenders", "pyclgemm,pyclgemm.gemm,DenseLayer,NumPy", queue=queue,
        )  # fmt: skip
    assert queue.device.name.strip() in output and "queue filled ahead" in output
    table = only_table(tmp_path)
    assert len(table) == 8
    clocks = table.groupby("contender")["clock"].agg(set)
    assert clocks["pyclgemm.gemm"] == clocks["NumPy"] == {"host"}
    # The times of a busy CPU vary by more than these products take; then the host is the clock.
    assert clocks["pyclgemm"] == {"host"} or hold.called
    assert clocks["pyclgemm"] <= {"queue filled", "host"}


@pytest.mark.any_runtime
def test_a_comparison_in_another_precision_timed_on_the_host(queue, tmp_path, monkeypatch):
    is_cpu = bool(queue.device.type & cl.device_type.CPU)
    if is_cpu:
        monkeypatch.setattr(QueueBlocker, "hold", lambda *_: pytest.fail("a CPU's queue is held"))
    output = printed_by(
        compare_clblast, "--output", tmp_path, "--burst", 1, "--shapes", "8x8x8", "--rounds", 1,
        "--contenders", "pyclgemm,DenseLayer,CLBlast", "--dtype", "float16",
        "--result-dtype", "float32", "--no-fill-queue", queue=queue,
    )  # fmt: skip
    table = only_table(tmp_path)
    # CLBlast has no such product, and a DenseLayer is for dense suites.
    assert set(table["contender"]) == {"pyclgemm"} and set(table["result"]) == {"float32"}
    assert "float16 to float32" in output
    assert ("host, each product waited for" in output) == is_cpu


@pytest.fixture
def measure_unseen(queue, tmp_path, monkeypatch):
    """A function that runs the script on small shapes; it returns the output and the table."""
    monkeypatch.setattr(unseen, "_MOST_OPERATIONS", 1e6)
    monkeypatch.setattr(unseen, "_LEAST_CPU_SECONDS", 0.0)
    monkeypatch.setattr(CompilePool, "start", lambda pool, sources: None)  # no other process

    def measure(*options):
        plot = tmp_path / "plot.png"
        output = printed_by(
            unseen, "--seconds-per-case", 0.01, "--csv", tmp_path / "run.csv", "--plot", plot,
            *options, queue=queue,
        )  # fmt: skip
        assert plot.read_bytes().startswith(b"\x89PNG")
        return output, only_table(tmp_path)

    return measure


@pytest.mark.any_runtime
def test_unseen_shapes(traits, measure_unseen, tmp_path):
    types = ("--type", "float32", "--type", "float32:TF32_TF32_F32", "--type", "complex64")
    taught = tmp_path / "taught.json"
    output, table = measure_unseen(
        "--count", 2, "--best", 1, "--batched", "--contribute", taught, *types
    )
    assert {"float32", "complex64"} <= set(table["arithmetic"])
    assert (table.groupby("arithmetic").size() == 2).all()
    assert ("TF32_TF32_F32 is left out" in output) == (traits.type == "cpu")
    assert (table["batch"] >= 2).all() and (2 * table[["m", "n", "k"]].prod(axis=1) <= 1e6).all()
    assert (table["error_of_bound"] <= 1).all() and table["path"].isin(FAMILIES).all()
    if traits.type == "cpu":
        assert set(table["vendor"]) == {NUMPY}
        np.testing.assert_allclose(table["ratio"], table["vendor_us"] / table["us"])
    assert (table["timed"] == 2).all() and (table["lost"] >= 1).all()
    assert "the worst of float32" in output
    # Choices are measured and not compared: they decide nothing.
    entries = {entry.name: entry.own for entry in read_file(taught).entries}
    records = entries["float32", "F32_F32_F32"]
    assert all(record.sample for own in entries.values() for record in own)
    measured = table[table["arithmetic"] == "float32"]
    assert {str(record) for record in records} == {str(case) for case in measured["case"]}


@pytest.mark.first_runtime
def test_the_outer_ratios_are_measured_again_and_the_shorter_times_kept(
    measure_unseen, monkeypatch
):
    runs, run_session = [], Session.run

    def noted(session, cases, *others):
        first = len(session.records)
        run_session(session, cases, *others)
        runs.append([one for one in session.records[first:] if one.case in cases])

    monkeypatch.setattr(Session, "run", noted)
    _, table = measure_unseen("--count", 3, "--again", 1)
    assert sorted(table["measured"]) == [1, 2, 2] and len(runs) == 5
    for _, row in table.iterrows():
        records = [one for run in runs for one in run if str(one.case) == row["case"]]
        assert len(records) == 2 * row["measured"]
        for contender, time in ((NUMPY, row["vendor_us"]), (PLAN, row["us"])):
            times = [1e6 * one.timing.median for one in records if one.contender == contender]
            assert time == pytest.approx(min(times))


@pytest.mark.first_runtime
def test_an_interrupted_run_keeps_the_unseen_shapes_measured(measure_unseen, tmp_path, monkeypatch):
    runs, run_session = [], Session.run

    def interrupted(session, cases, *others):
        if runs:
            raise KeyboardInterrupt
        runs.append(cases)
        run_session(session, cases, *others)

    monkeypatch.setattr(Session, "run", interrupted)
    output, table = measure_unseen("--count", 3)
    assert "Interrupted" in output
    assert list(table["case"]) == [str(case) for case in runs[0]]
    # Shapes for which no time is left are not measured.
    output = printed_by(unseen, "--seconds", 1e-9, "--csv", tmp_path / "none.csv", code=1)
    assert "nothing was measured" in output
    assert "float32: 0 of 100 shapes were reached in 1e-09 s" in output


def test_a_built_in_file_is_hidden_for_a_while():
    def standings():
        typical = map(typical_traits, ("sm_90", "x86-64-v4"))
        return [basis_for(load_database(), one).standing for one in typical]

    assert standings() == ["relative", "relative"]
    with pytest.raises(KeyboardInterrupt), unseen.hidden(["nvidia_sm_90.json"]):
        assert standings() == ["vendor", "relative"]
        raise KeyboardInterrupt
    assert standings() == ["relative", "relative"]


@pytest.mark.first_runtime
def test_a_ladder_without_its_first_step(queue, tmp_path, monkeypatch):
    """A runtime compiles that step wrongly."""
    traits = traits_of(best_device().device)
    first, *others = ladder_steps(48, traits)

    def broken(config, *facts):
        return ["it is naive"] if config == first.config else violations(config, *facts)

    monkeypatch.setattr(ladder, "violations", broken)
    output = printed_by(
        ladder, "--size", 48, "--rounds", 1, "--seconds", 0.2, "--no-compile",
        "--output", tmp_path, "--stem", "run",
    )  # fmt: skip
    frame = only_table(tmp_path).set_index("step")
    steps = frame[frame["config"].notna()]
    assert len(steps) >= 9
    measured = steps[steps["gflops"].notna()]
    assert (measured["error"] <= 1).all()
    valid = [step.name for step in others if not violations(step.config, "float32", traits)]
    assert list(measured.index) == valid
    assert "step 1 is left out: it is naive" in output
    assert (tmp_path / "run.md").read_text().count("## Step") == len(steps)


@pytest.mark.first_runtime
def test_scale_over_processes(queue, tmp_path):
    pytest.importorskip("distributed")
    output = output_of(
        "measure", "--devices", queue.device.platform.name, "--workers", 2, "--size", 60,
        "--chunk", 20, "--rounds", 1, "--output", tmp_path, code=0, command=scale.main,
    )  # fmt: skip
    table = only_table(tmp_path).set_index("contender")
    assert table["tasks"]["pyclgemm"] == 9 and table["tasks"]["da.matmul"] > 27
    assert table["moved_of_a"]["pyclgemm"] == table["summa_of_a"]["pyclgemm"] == 1
    assert "speedup" in output and list(tmp_path.glob("*.png"))


def test_scale_on_paper():
    run = scale.Run(8192, 1024, "float32", 4, "grid")
    rates = {"machines": 2, "link": 1e9, "copy": 1e10, "product": 1e12}
    found = scale.predicted(run, memory=1e12, **rates)
    nbytes = 4 * 8192**2
    # Half of A and half of B are received or own, and copied once; a quarter of C comes back.
    assert found["received"] == nbytes / 2
    assert found["copy_seconds"] == pytest.approx((nbytes + nbytes / 4) / 1e10)
    assert found["product_seconds"] == pytest.approx(2 * 8192**3 / 4 / 1e12)
    parts = [found[f"{name}_seconds"] for name in ("link", "copy", "product")]
    assert max(parts) < found["seconds"] < sum(parts)
    assert scale.predicted(run, memory=1e7, **rates)["copy_seconds"] > found["copy_seconds"]


def test_times_of_choices():
    output = printed_by(choice_time, "sm_80", "--count", 3)
    assert all(dtype in output for dtype in choice_time.DTYPES)


@pytest.mark.any_runtime
def test_host_times_of_two_trees(queue, tmp_path):
    output = printed_by(
        host_time, "--rounds", 3, "--calls", 3, "--output", tmp_path, "--tree", ROOT,
        "--tree", ROOT / "tests" / "..", queue=queue,
    )  # fmt: skip
    assert queue.device.name.strip() in output
    calls = only_table(tmp_path)["call"]
    assert calls[0] == BASELINE and len(set(calls)) == 7


def test_the_baseline_is_subtracted_in_each_round():
    slept = []
    each = {BASELINE: 5e-6, "plan new": 9e-6, "gemm new": 25e-6}
    bursts = {name: lambda calls, one=one: calls * one for name, one in each.items()}
    times = host_time.measure_host_time(
        bursts, calls=10, rounds=5, rng=np.random.default_rng(0), sleep=slept.append
    )
    assert sum(slept) == pytest.approx(4 * 5 * 10 * sum(each.values()))
    table = host_time.summarise(times)
    np.testing.assert_allclose(table["beyond enqueue"], [0.0, 4.0, 20.0], atol=1e-6)
    assert list(table["within"]) == ["", "yes", "NO"]


def test_the_results_of_calls_are_checked_before_their_host_time(queue, monkeypatch):
    bursts, waits = own_bursts(pyclgemm, queue, 5)
    assert list(bursts) == list(host_time.CALLS) and waits > 0
    monkeypatch.setattr(pyclgemm, "gemm", lambda *arguments, **options: None)
    with pytest.raises(SystemExit, match="gemm of .* is wrong"):
        own_bursts(pyclgemm, queue, 5)


@pytest.mark.first_runtime
def test_transforms(queue, traits, tmp_path, monkeypatch):
    sizes = {True: 1 << 20, False: 1 << 24}
    monkeypatch.setattr("benchmarks.mra.cases._COPIED_BYTES", sizes)
    monkeypatch.setattr(transform3d, "_LONGEST_PAUSE", 0.0)
    assert 1e8 < copy_bandwidth(queue) < 1e14
    output = printed_by(
        transform3d, "--k", 6, "--k", 3, "--nfuncs", 5, "--tasks", 2, "--repetitions", 2,
        "--level", "L3", "--level", "L5", "--dtype", "float32", "--output", tmp_path,
        queue=queue,
    )  # fmt: skip
    assert sum(line.startswith("L5 nfuncs=5 K=") for line in output.splitlines()) == 4
    frame = only_table(tmp_path)
    rivals = {"numpy.einsum", "numpy.matmul"} if traits.type == "cpu" else set()
    assert set(frame["K"]) == {3, 6} and {"L3", "L5"} | rivals <= set(frame["level"])
    assert list(tmp_path.glob("*.png"))


@pytest.mark.first_runtime
def test_streams(queue, tmp_path):
    name = queue.device.platform.name
    output = output_of(
        "--devices", name, "--size", "300x200x100", "--memory", "300kB", "--memory", "free",
        "--layout", "TN", "--source", "memmap", "--folder", tmp_path, "--rounds", 1, "--explain",
        "--output", tmp_path, command=stream.main,
    )  # fmt: skip
    assert "of C, predicted" in output
    frame = only_table(tmp_path)
    assert list(frame["contender"]) == ["gemm", "stream_gemm", "stream_gemm"]
    assert (frame["error"] <= 1).all() and (frame["of_gemm"] > 0).all()


def test_tables_and_files_of_transforms(tmp_path):
    other, size16 = Size(2048, 8, "float64"), Size(2048, 16, "float64")
    repetitions = [
        Repetition(name, name, size, number, seconds)
        for size, times in ((other, (1e-4, 3e-4, 2e-4)), (size16, (4e-4,) * 3))
        for name in ("L5", "L6", "numpy.matmul")
        for number, seconds in enumerate(times)
    ]
    assert medians(repetitions)[other, "L5"] == 2e-4
    frame = to_frame(repetitions, 1e12)
    assert len(frame) == 18
    # 6 K^4 operations for 16 K^3 bytes: at 1 TB/s K = 16 allows 6 TFLOPS.
    assert size16.roofline(1e12) == pytest.approx(6000)
    kronecker = frame[(frame["level"] == "L6") & (frame["K"] == 8)]["computed_gflops"]
    assert kronecker.median() == pytest.approx(2 * 8**6 * 2048 / 2e-4 / 1e9)
    table = speed_table(repetitions, 1e12)
    assert table.row_count == 6
    assert "0.08" in text_of(table)  # 16.8 MB in 200 us, over 1 TB/s
    csv, picture = write_results(repetitions, 1e12, FACTS, tmp_path)
    assert list(pd.read_csv(csv)["device"].unique()) == ["Some Device"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_wrong_level_is_named_and_an_impossible_one_left_out(queue, require, monkeypatch, capsys):
    require("float64")
    data = Data(queue, Size(3, 6, "float64"))
    levels = ["L3", "L5", "L6"]
    assert list(disagreements(data, levels)) == []
    result, factors = Data.result, {"L5": 1 + 1e-9, "L6": 1 + 1e-12}
    monkeypatch.setattr(
        Data, "result", lambda self, level: result(self, level) * factors.get(level, 1.0)
    )
    l5, l6 = disagreements(data, levels)
    assert l5.startswith("L5") and "of L1's" in l5
    assert l6.startswith("L6") and "of L3's" in l6
    assert np.isnan(difference(np.array([np.nan, 2.0]), np.array([1.0, 2.0])))
    small = Data(queue, Size(1, 3, "float32"))
    assert transform3d.runnable(small, ["L3", "L6"], 1000.0, Console(width=200)) == ["L3"]
    assert "left out: level is 'L6' and K is 3" in capsys.readouterr().out
