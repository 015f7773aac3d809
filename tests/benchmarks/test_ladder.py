"""The ladder: its steps on typical devices, its report, and a run from end to end."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import ladder
from benchmarks.amd_compile import CompilerError, find_clang, find_rocm_path
from benchmarks.arithmetic import arithmetic_of
from benchmarks.burst import Pace
from benchmarks.case import Case
from benchmarks.check import error_ratio, make_reference
from benchmarks.contenders import CUBLAS, NUMPY, NumpyContender, plan_contender
from benchmarks.cublas import CublasContender
from benchmarks.ladder_compiled import COLUMNS, compile_ladder, read_compiled
from benchmarks.ladder_frame import CHOICE, ladder_frame
from benchmarks.ladder_report import write_report
from benchmarks.ladder_rivals import unit_precision
from benchmarks.ladder_step import changed_parameters
from benchmarks.ladder_steps import choice_of, ladder_steps
from benchmarks.measure import MeasurementInterrupted, Timing, measure_in_turn
from benchmarks.operands import make_operands
from benchmarks.report import Record
from pyclgemm.codegen.config import Config
from pyclgemm.device.discovery import default_device
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.registry import violations
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources
from tests.support import benchmark_fakes

GPUS = (
    "sm_61",
    "sm_75",
    "sm_80",
    "sm_90",
    "gfx1030",
    "gfx1100",
    "gfx90a",
    "intel_gpu",
    "apple_gpu",
)
CPUS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")

#: What must change from the step before, where it is the same on all GPUs.
CHANGES = {
    "4": {"STAGES"},
    "5a": {"PADA", "PADB"},
    "7": {"KWI"},
}
FACTS = {"device": "D", "platform": "P", "date": "2026-01-02T03:04:05+00:00"}


@pytest.mark.parametrize("architecture", [*GPUS, *CPUS])
def test_steps_are_valid_and_each_is_another(architecture: str) -> None:
    traits = typical_traits(architecture)
    steps = ladder_steps(1024, traits)
    assert sorted({step.name[0] for step in steps}) == list("12345678")
    assert len({step.config for step in steps}) == len(steps)
    product = GemmShape(1024, 1024, 1024).product(reads_c=True)
    for step in steps:
        assert violations(step.config, "float32", traits) == [], step
        assert kernel_sources(product, step.config, traits)
        for sentence in (step.what, step.why):
            assert sentence.endswith(".") and ". " not in sentence.replace("cp.async", "")


@pytest.mark.parametrize("architecture", GPUS)
def test_steps_of_a_gpu_change_what_they_say(architecture: str) -> None:
    steps = ladder_steps(4096, typical_traits(architecture))
    by_name = {step.name: step.config.tiles for step in steps}  # type: ignore[union-attr]
    for before, step in zip(steps, steps[1:], strict=False):
        changed = changed_parameters(before, step)
        assert changed and set(changed) == CHANGES.get(step.name, set(changed))
    naive, tiled = by_name["1"], by_name["2"]
    assert (naive.MWI, naive.NWI, naive.SA, naive.SB) == (1, 1, 0, 0)
    assert (tiled.MWG, tiled.NWG, tiled.KWG, tiled.SA, tiled.SB) == (32, 32, 32, 1, 1)
    assert (by_name["3a"].MWI, by_name["3a"].NWI) == (4, 4)
    large = by_name["3b"]
    assert (large.MWG, large.NWG, large.KWG, large.MWI, large.NWI) == (128, 128, 8, 8, 8)
    assert (by_name["5b"].MWI, by_name["5b"].NWI, by_name["5b"].PADA) == (8, 16, 0)
    assert by_name["7"].KWI == by_name["7"].KWG
    assert by_name["8"].GROUP_M == 8


def test_texts_tell_what_depends_on_the_device() -> None:
    def what(architecture: str, name: str, **changes: int) -> str:
        traits = replace(typical_traits(architecture), **changes)
        [step] = [one for one in ladder_steps(4096, traits) if one.name == name]
        return step.what + step.why

    assert "one element" in what("sm_90", "2") and "four elements" in what("gfx1100", "2")
    assert "128 x 128" in what("sm_90", "3a") and "64 x 64" in what("gfx1100", "3a")
    assert "v_dual_fmac" in what("gfx1100", "6") and "second set" in what("sm_90", "6")
    assert "four times as deep are" in what("sm_90", "8") and "twice" in what("sm_80", "8")
    assert "cp.async" in what("sm_80", "8") and "cp.async" not in what("sm_75", "8")
    assert "no deeper slabs" in what("apple_gpu", "8", local_memory_bytes=2**14)


def test_the_last_step_is_what_the_library_takes_where_it_was_tuned() -> None:
    for architecture, size in (("sm_90", 4096), ("x86-64-v4", 1024)):
        traits = typical_traits(architecture)
        assert ladder_steps(size, traits)[-1].config == choice_of(size, traits).config


def test_cpu_steps_lead_to_the_family_of_cpus() -> None:
    steps = {step.name: step.config for step in ladder_steps(1024, typical_traits("x86-64-v3"))}
    for name, parameters in {
        "4": {"PREFETCHB": 1}, "5": {"KC": 256, "MC": 512}, "6": {"VW": 8, "NR": 8},
        "7": {"NR": 24}, "8": {"PREFETCHC": 1},
    }.items():  # fmt: skip
        before = steps[{"4": "3b"}.get(name, str(int(name) - 1))]
        assert isinstance(before, CpuConfig) and steps[name] == replace(before, **parameters)


def test_matrix_units_are_named() -> None:
    assert unit_precision(4096, typical_traits("sm_90")) == "TF32_TF32_F32_X3"
    assert unit_precision(4096, typical_traits("x86-64-v4")) is None


# ------------------------------------------------------------------------- alpha and beta


def test_contenders_scale_and_add_in_place(queue: Any, rng: np.random.Generator) -> None:
    case = Case(24, 20, 16, alpha=1.5, beta=0.5)
    made = make_operands(case, arithmetic_of("float32"), queue, rng)
    first = made.sets[0]
    a, b, c = (one.host.astype(float) for one in (first.a, first.b, first.out))
    expected = 1.5 * a @ b + 0.5 * c
    reference = make_reference(made, rng)
    np.testing.assert_allclose(reference.expected, expected, rtol=1e-12)
    torch: Any = benchmark_fakes.FakeTorch()
    for contender in (plan_contender(made), NumpyContender(made), CublasContender(torch, 0, made)):
        for calls in (3, 1):  # the last must not start from the results of those before
            contender.poison()
            contender.enqueue(calls)
            contender.finish()
        assert error_ratio(contender.result(), reference, contender.precision) <= 1.0
    assert set(torch.called) == {"addmm"}
    wrong = expected.astype(np.float32) + 0.5 * c.astype(np.float32)
    assert error_ratio(wrong, reference, made.arithmetic.precision) > 1.0


def test_dense_layers_and_batches_have_no_factors() -> None:
    with pytest.raises(ValueError, match=r"alpha is 2\.0 and beta is 0\.0"):
        Case(1, 2, 3, dense=True, alpha=2.0)
    with pytest.raises(ValueError, match=r"alpha is 1\.0 and beta is 0\.5"):
        Case(1, 2, 3, batch=4, beta=0.5)


def test_an_interrupt_keeps_what_was_measured() -> None:
    time = benchmark_fakes.FakeTime()

    class Impatient(benchmark_fakes.FakeContender):
        def enqueue(self, calls: int) -> None:
            super().enqueue(calls)
            if len(self.bursts) == 6:
                raise KeyboardInterrupt

    contenders = [Impatient("a", time, 1e-3), benchmark_fakes.FakeContender("b", time, 2e-3)]
    with pytest.raises(MeasurementInterrupted) as caught:
        measure_in_turn(
            contenders, Pace(burst=1e-3, rounds=9), np.random.default_rng(0), clock=time.clock()
        )
    assert set(caught.value.timings) == {"a", "b"}
    assert caught.value.timings["b"].median == pytest.approx(2e-3, rel=0.02)


# ------------------------------------------------------------------------------ the report


def record(name: str, seconds: float) -> Record:
    return Record(Case(8, 8, 8), benchmark_fakes.FLOAT32, name, Timing(1, (seconds,)), 1, 0.1)


def test_the_report_has_a_page_for_each_step(tmp_path: Path) -> None:
    steps = ladder_steps(4096, typical_traits("sm_90"))
    measured = [record(step.name, 8.0 / 2**index) for index, step in enumerate(steps)]
    measured += [record(CHOICE, 8.0 / 2**10), record(CUBLAS, 0.01), record(NUMPY, 1.0)]
    others = {CHOICE: "the choice", CUBLAS: "in place", NUMPY: "alone"}
    figures: dict[str, Any] = {
        step.name: dict.fromkeys(COLUMNS, 0.5) | {"config": "MWG=1"} for step in steps
    }
    frame = ladder_frame(steps, others, measured, figures)
    assert frame.loc["4", "speedup"] == pytest.approx(2.0)
    assert frame.loc[CHOICE, "speedup"] == pytest.approx(2.0)
    assert pd.isna(frame.loc["1", "speedup"]) and pd.isna(frame.loc[CUBLAS, "speedup"])
    assert frame.loc["1", "percent"] == pytest.approx(100 * 0.01 / 8)
    report, chart, csv = write_report(frame, steps, "T", "gfx1100", FACTS, tmp_path, "s")
    text = report.read_text()
    for step in steps:
        [page] = re.findall(rf"## Step {step.name}: (.*?)(?=\n## |\Z)", text, re.DOTALL)
        for part in (step.title, step.what, step.why, "VGPRs", "GFLOPS", "`MWG=1`"):
            assert part in page
    assert "`STAGES` 1 → 2" in text and "![T](s.png)" in text and "% cuBLAS" in text
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert list(pd.read_csv(csv)["device"].unique()) == ["D"]
    read, _ = read_compiled_with_facts(csv, tmp_path)
    assert set(read) == {step.name for step in steps} and read["5a"]["vgprs"] == 0.5


def read_compiled_with_facts(csv: Path, folder: Path) -> Any:
    frame = pd.read_csv(csv, dtype={"step": str})
    path = folder / "with-facts.csv"
    frame.assign(**{"compiler": "c", "compiled for": "g"}).to_csv(path, index=False)
    return read_compiled(path)


def test_what_was_not_measured_is_left_open() -> None:
    steps = ladder_steps(4096, typical_traits("sm_90"))
    frame = ladder_frame(steps, {}, [record("2", 1.0)], {})
    assert frame["gflops"].notna().sum() == 1 and frame["percent"].isna().all()


# ------------------------------------------------------------------------------ runs


def run(*arguments: str) -> Any:
    return CliRunner().invoke(ladder.main, list(arguments))


def test_help() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for word in ("--size", "--rounds", "--no-measure", "--compiled", "Examples:"):
        assert word in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-measure", "--no-compile"], "nothing to do"),
        (["--architecture", "sm_90"], "not of the form of an AMD"),
        (["--device", "no such"], "no such"),
        (["--no-measure", "--compiled", __file__], "no report of compiled steps"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0 and message in " ".join(result.output.split())


@pytest.mark.first_runtime
def test_a_run_from_end_to_end(queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its first step, as on a runtime that compiles it wrongly."""
    traits = traits_of(default_device())
    first, *others = ladder_steps(48, traits)

    def broken(config: Config, *facts: Any) -> list[str]:
        return ["it is naive"] if config == first.config else violations(config, *facts)

    monkeypatch.setattr(ladder, "violations", broken)
    result = run(
        "--size", "48", "--rounds", "1", "--seconds", "0.2", "--no-compile",
        "--output", str(tmp_path), "--stem", "run",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(tmp_path / "run.csv", index_col="step")
    steps = frame[frame["config"].notna()]
    assert len(steps) >= 9
    measured = steps[steps["gflops"].notna()]
    assert (measured["error"] <= 1).all()
    assert list(measured.index) == [
        step.name for step in others if not violations(step.config, "float32", traits)
    ]
    assert "step 1 is left out: it is naive" in result.output
    assert (tmp_path / "run.md").read_text().count("## Step") == len(steps)


def test_what_the_compiler_makes_of_it(tmp_path: Path) -> None:
    try:
        find_clang(None), find_rocm_path(None)
        figures, _ = compile_ladder("gfx1100", 256)
    except CompilerError as error:
        pytest.skip(str(error).splitlines()[-1])
    assert all(one["spilled_vgprs"] == one["scratch_bytes"] == 0 for one in figures.values())
    lds = {name: one["lds_bytes"] for name, one in figures.items()}
    assert (lds["1"], lds["3b"], lds["4"]) == (0, 8192, 16384)
    # Two multiply-adds a slot at most; dual issue gives more than one from register tiles on.
    assert figures["1"]["dual_share"] == 0.0
    assert 1.5 < float(figures["3b"]["fmas_per_slot"]) < float(figures["6"]["fmas_per_slot"]) < 2
    assert float(figures["6"]["dual_share"]) > 0.95
