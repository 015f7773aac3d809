"""The ladder: its steps on typical devices, its report, and its compiled kernels."""

import itertools
import re
from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.amd.compile import CompilerError, find_clang, find_rocm_path
from benchmarks.contenders.contenders import CUBLAS, NUMPY
from benchmarks.products.case import Case
from benchmarks.steps.compiled import COLUMNS, compile_ladder, read_compiled
from benchmarks.steps.frame import CHOICE, ladder_frame
from benchmarks.steps.report import write_report
from benchmarks.steps.step import changed_parameters
from benchmarks.steps.steps import choice_of, ladder_steps
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import violations
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources
from tests.support.benchmark_records import FACTS, records_of

GPUS = (
    "sm_61", "sm_75", "sm_80", "sm_90", "gfx1030", "gfx1100", "gfx90a", "intel_gpu", "apple_gpu",
)  # fmt: skip
CPUS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")

#: Parameters that a step changes, where they are the same on all devices of a type.
CHANGES = {
    "gpu": {"4": {"STAGES"}, "5a": {"PADA", "PADB"}, "7": {"KWI"}},
    "cpu": {"4": {"PREFETCHB"}, "5": {"KC", "MC"}, "6": {"VW", "NR"}, "7": {"NR"},
            "8": {"PREFETCHC"}},
}  # fmt: skip


@pytest.mark.parametrize("architecture", [*GPUS, *CPUS])
def test_steps_are_valid_and_differ(architecture):
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
    for before, step in itertools.pairwise(steps):
        changed = set(changed_parameters(before, step))
        assert changed == CHANGES[traits.type].get(step.name, changed)


@pytest.mark.parametrize("architecture", GPUS)
def test_the_parameters_of_the_steps_of_a_gpu(architecture):
    steps = ladder_steps(4096, typical_traits(architecture))
    by_name = {step.name: step.config.tiles for step in steps}
    for name, parameters in {
        "1": {"MWI": 1, "NWI": 1, "SA": 0, "SB": 0},
        "2": {"MWG": 32, "NWG": 32, "KWG": 32, "SA": 1, "SB": 1},
        "3a": {"MWI": 4, "NWI": 4},
        "3b": {"MWG": 128, "NWG": 128, "KWG": 8, "MWI": 8, "NWI": 8},
        "5b": {"MWI": 8, "NWI": 16, "PADA": 0},
        "7": {"KWI": by_name["7"].KWG},
        "8": {"GROUP_M": 8},
    }.items():
        assert {one: getattr(by_name[name], one) for one in parameters} == parameters


def test_texts_depend_on_the_device():
    def text(architecture, name, **changes):
        traits = replace(typical_traits(architecture), **changes)
        [step] = [one for one in ladder_steps(4096, traits) if one.name == name]
        return step.what + step.why

    assert "one element" in text("sm_90", "2") and "four elements" in text("gfx1100", "2")
    assert "v_dual_fmac" in text("gfx1100", "6") and "second set" in text("sm_90", "6")
    assert "four times as deep are" in text("sm_90", "8") and "twice" in text("sm_80", "8")
    assert "cp.async" in text("sm_80", "8") and "cp.async" not in text("sm_75", "8")
    assert "no deeper slabs" in text("apple_gpu", "8", local_memory_bytes=2**14)


def test_the_last_step_is_the_librarys_choice_on_a_tuned_device():
    for architecture, size in (("sm_90", 4096), ("x86-64-v4", 1024)):
        traits = typical_traits(architecture)
        assert ladder_steps(size, traits)[-1].config == choice_of(size, traits).config


def test_the_report_has_a_page_for_each_step(tmp_path):
    steps = ladder_steps(4096, typical_traits("sm_90"))
    seconds = {step.name: 8.0 / 2**index for index, step in enumerate(steps)}
    seconds |= {CHOICE: 8.0 / 2**10, CUBLAS: 0.01, NUMPY: 1.0}
    measured = records_of(Case(8, 8, 8), seconds)
    others = {CHOICE: "the choice", CUBLAS: "in place", NUMPY: "alone"}
    figures = {step.name: dict.fromkeys(COLUMNS, 0.5) | {"config": "MWG=1"} for step in steps}
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
    assert list(pd.read_csv(csv)["device"].unique()) == ["Some Device"]
    unmeasured = ladder_frame(steps, {}, measured[:1], {})
    assert unmeasured["gflops"].notna().sum() == 1 and unmeasured["percent"].isna().all()
    facts = {"compiler": "c", "compiled for": "g"}
    pd.read_csv(csv, dtype={"step": str}).assign(**facts).to_csv(csv, index=False)
    read, found = read_compiled(csv)
    assert set(read) == {step.name for step in steps} and read["5a"]["vgprs"] == 0.5
    assert found == facts


def test_the_compiled_steps():
    try:
        find_clang(None), find_rocm_path(None)
        figures, _ = compile_ladder("gfx1100", 256)
    except CompilerError as error:
        pytest.skip(str(error).splitlines()[-1])
    assert all(one["spilled_vgprs"] == one["scratch_bytes"] == 0 for one in figures.values())
    lds = {name: one["lds_bytes"] for name, one in figures.items()}
    assert (lds["1"], lds["3b"], lds["4"]) == (0, 8192, 16384)
    # At most two multiply-adds a slot; with register tiles dual issue gives more than one.
    assert figures["1"]["dual_share"] == 0.0
    assert 1.5 < float(figures["3b"]["fmas_per_slot"]) < float(figures["6"]["fmas_per_slot"]) < 2
    assert float(figures["6"]["dual_share"]) > 0.95
